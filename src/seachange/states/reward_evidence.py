"""How much a log says about the reward models of its states: where learning goes on from."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from seachange.kernels.regression import solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.column_statistics import moments_of
from seachange.log.units import Units
from seachange.params import Brief
from seachange.protocols import Floats
from seachange.states.expectation import Chain, expectation
from seachange.states.switching_regression import SwitchingRegression, bought


@dataclass(frozen=True, eq=False, repr=False)
class RewardEvidence(Brief):
    """The information of a log on the coefficients of a switching regression, without any prior.

    Features are in units f̃ = (f - means) / scales; the scale of the intercept is 1.
    """

    grams: Floats  # (L, B, D, D) Σ_t Q_t(z) c f̃ f̃', with c = 1, or p (1 - p) for clicks
    units: Units
    base_score: float  # of the mean reward: log-odds for clicks
    relative_variance: float  # of rewards, relative to the noise; 1 for clicks
    complete: bool = True  # whether the states explain all of the log

    @classmethod
    def of(cls, model: SwitchingRegression, log: BanditLog) -> Self:
        """The evidence of ``log``, given its states in ``model``."""
        seen = bought(log) if model.rewards == "hurdle" else log
        units = Units(log.units.means, np.append(log.units.scales[:-1], 1.0))
        rewards = moments_of(seen.arrays.rewards)
        base, variance = rewards.mean, 1.0
        if model.clicks:
            # Half a click keeps the rate away from 0 and 1.
            least = 0.5 / rewards.n_seen
            rate = min(max(base, least), 1 - least)
            base = float(np.log(rate / (1 - rate)))
        else:
            variance = max(rewards.variance / float(np.mean(model.noise_variances)), 1.0)
        grams = units.grams(expectation(model, Chain(seen)).grams)
        # Centering leaves rounding errors where a feature hardly varies.
        return cls(without_rounding(grams), units, float(base), float(variance))

    def pooled(self, model: SwitchingRegression) -> tuple[SwitchingRegression, Self]:
        """The regression of the whole log without states, and its evidence, from those of the states.

        Every state's log-likelihood is taken to be quadratic, which is exact for Gaussian rewards.
        """
        coefs, grams = self.units.coefs(model.reward_coefs), self.grams.sum(axis=0, keepdims=True)
        center = coefs.mean(axis=0)  # where no state has evidence
        moments = np.einsum("zbij,zbj->bi", self.grams, coefs - center)
        common = center + solve_ridge(grams, moments[None], 0.0)
        variances = model.noise_variances
        if not model.clicks:
            gaps = coefs - common
            rounds = self.grams[..., -1, -1].sum(axis=1)
            spread = rounds @ variances + np.einsum("zbi,zbij,zbj->", gaps, self.grams, gaps)
            variances = np.array([spread / rounds.sum()])
        alone = replace(
            model,
            initial_probs=np.ones(1),
            transition_matrix=np.ones((1, 1)),
            reward_coefs=self.units.raw_coefs(common),
            reward_precisions=model.reward_precisions.sum(axis=0, keepdims=True),
            noise_variances=variances,
        )
        return alone, replace(self, grams=grams)


def without_rounding(grams: Floats) -> Floats:
    """``grams`` (..., D, D) with |G_ij| ≤ √(G_ii G_jj), which rounding errors can break."""
    roots = np.sqrt(np.maximum(np.einsum("...ii->...i", grams), 0.0))
    most = roots[..., :, None] * roots[..., None, :]
    return np.clip(grams, -most, most)
