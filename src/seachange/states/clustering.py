"""Points to clusters: k-means that says when there are fewer points than clusters."""

from __future__ import annotations

import numpy as np

from seachange.engine import one_thread
from seachange.protocols import Floats, Ints

# Points that differ by less than this share of the spread are the same: rounding hides such gaps from k-means.
SAME_POINT = 1e-6


def cluster(points: Floats, n_clusters: int, seed: int, starts: int = 10) -> Ints:
    """(m,) cluster of each of the (m, d) points, by k-means; fewer clusters where there are fewer distinct points."""
    from sklearn.cluster import KMeans

    spread = float(np.ptp(points, axis=0).max())
    places = np.round((points - points.min(axis=0)) / (spread or 1.0) / SAME_POINT) * SAME_POINT
    distinct, owners = np.unique(places, axis=0, return_inverse=True)
    if len(distinct) <= n_clusters:
        return owners.reshape(-1).astype(np.int64)
    with one_thread():
        means = KMeans(n_clusters, n_init=starts, random_state=seed).fit(places)
    return np.asarray(means.labels_, dtype=np.int64)
