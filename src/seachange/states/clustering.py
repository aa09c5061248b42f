"""Points to clusters: k-means that says when there are fewer points than clusters."""

from __future__ import annotations

import numpy as np

from seachange.engine import one_thread
from seachange.protocols import Floats, Ints


def cluster(points: Floats, n_clusters: int, seed: int, starts: int = 10) -> Ints:
    """(m,) cluster of each of the (m, d) points, by k-means; fewer clusters where there are fewer distinct points."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(points, axis=0))
    if distinct <= n_clusters:
        return np.unique(points, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    with one_thread():
        means = KMeans(n_clusters, n_init=starts, random_state=seed).fit(points)
    return np.asarray(means.labels_, dtype=np.int64)
