"""Units of features: solvers center and scale them, so that neither their origin nor their scale matters."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seachange.protocols import Bools, Floats

NUMBERS = 1 << 20  # features in memory at a time
CONSTANT = 1e-12  # deviations below this share of the mean are rounding errors
LEVEL = 0.1  # penalty on intercepts relative to other coefficients: levels differ more than the effects of features


class Units(NamedTuple):
    """f̃ = (f - means) / scales. The last feature is the intercept, which is always 1.

    Logs, policies and models hold raw features and coefficients; c̃ · f̃ = c · f. Arrays may have leading axes.
    """

    means: Floats  # (..., D), 0 for the intercept
    scales: Floats  # (..., D) standard deviations, 1 for constants; √LEVEL for the intercept unless it is alone

    @classmethod
    def of(cls, rows: Floats, mask: Bools) -> "Units":
        """The units of ``rows`` (n, R, D), with features per action of those allowed by ``mask`` (n or 1, K)."""
        n_features = rows.shape[2]
        count, means, squares = 0, np.zeros(n_features), np.zeros(n_features)
        step = max(NUMBERS // (rows.shape[1] * n_features), 1)
        for start in range(0, len(rows) if n_features > 1 else 0, step):
            part = rows[start : start + step]
            masked = rows.shape[1] > 1 and len(mask) > 1
            own = (part[mask[start : start + step]] if masked else part.reshape(-1, n_features)).astype(np.float64)
            # Means and squared deviations of both parts combined (Chan et al.).
            gaps, total = own.mean(axis=0) - means, count + len(own)
            squares += np.square(own - own.mean(axis=0)).sum(axis=0) + gaps * gaps * count * len(own) / total
            means, count = means + gaps * len(own) / total, total
        means[-1] = 0.0
        scales = np.sqrt(squares / max(count, 1))
        scales = np.where(scales > CONSTANT * np.abs(means), scales, 1.0)
        scales[-1] = np.sqrt(LEVEL) if n_features > 1 else 1.0
        return cls(means, scales)

    def coefs(self, raw: Floats) -> Floats:
        """c̃ from c (..., D)."""
        coefs = raw * self.scales
        coefs[..., -1] += self.scales[..., -1] * np.sum(raw * self.means, axis=-1)
        return np.asarray(coefs)

    def raw_coefs(self, coefs: Floats) -> Floats:
        """c from c̃ (..., D)."""
        raw = coefs / self.scales
        raw[..., -1] -= np.sum(raw * self.means, axis=-1)
        return np.asarray(raw)

    def moments(self, raw: Floats) -> Floats:
        """Σ f̃ r from Σ f r (..., D)."""
        return np.asarray((raw - self.means * raw[..., -1:]) / self.scales)

    def grams(self, raw: Floats) -> Floats:
        """Σ f̃ f̃' from Σ f f' (..., D, D)."""
        return _both_ways(self._of_rows.moments, raw)

    def raw_grams(self, grams: Floats) -> Floats:
        """Σ f f' from Σ f̃ f̃' (..., D, D)."""
        means, scales = self._of_rows
        return _both_ways(lambda sums: sums * scales + means * (sums * scales)[..., -1:], grams)

    def raw_inverses(self, inverses: Floats) -> Floats:
        """Covariances of c from those of c̃ (..., D, D)."""
        return _both_ways(self._of_rows.raw_coefs, inverses)

    @property
    def _of_rows(self) -> "Units":
        return Units(self.means[..., None, :], self.scales[..., None, :])


def _both_ways(change: Callable[[Floats], Floats], matrices: Floats) -> Floats:
    """A change of basis, of rows and columns."""
    return change(np.swapaxes(change(matrices), -1, -2))
