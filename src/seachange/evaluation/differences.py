"""By how much one policy would earn more than another, judged on the same rounds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from seachange.engine import one_thread
from seachange.evaluation.diagnostics import diagnostics_of, require_sound
from seachange.evaluation.formulas import Parts
from seachange.evaluation.support import Judged, distribution_of, membership_of
from seachange.evaluation.terms import terms_of
from seachange.evaluation.value_estimate import ValueEstimate, wanted_interval
from seachange.log.bandit_log import BanditLog, require_propensities
from seachange.protocols import Floats
from seachange.states.labels import StateLabels


@dataclass(frozen=True)
class Difference:
    """Mean reward a round that one policy would earn more than another."""

    value: float
    std_error: float
    low: float
    high: float
    confidence: float
    paired: bool  # round by round; else the interval allows for any dependence between the two estimates

    @property
    def told_apart(self) -> bool:
        """Whether the interval leaves no doubt which of them earns more."""
        return self.low > 0 or self.high < 0


def evaluate_difference(
    log: BanditLog,
    policy: Judged,
    other: Judged | None = None,
    *,
    labels: StateLabels | None = None,
    other_labels: StateLabels | None = None,
    confidence: float = 0.95,
) -> Difference:
    """Estimate how much more ``policy`` would have earned a round on ``log`` than ``other``; None: than the log did.

    V̂(π) - V̂(π') = mean of y_t - y'_t,  y = Σ_a π(a | x_t) r̂(x_t, a) + w_t (r_t - r̂(x_t, a_t)),  y' = r_t of the log

    Both are judged on the same rewards, whose noise they share: the interval is shorter than those of the two values.
    Raises ``RefusedError`` where the log cannot support either.
    """
    require_propensities(log, "comparing policies")
    wanted = wanted_interval(log, "normal", confidence, None, 0)
    terms, weights = _terms(log, policy, labels)
    less = log.arrays.rewards if other is None else _terms(log, other, other_labels)[0]
    with one_thread():
        found = wanted.answer("dr", Parts(terms - less), weights, np.inf, latent=False)
    return Difference(found.value, found.std_error, found.low, found.high, confidence, paired=True)


def difference_at_worst(one: ValueEstimate, other: ValueEstimate) -> Difference:
    """The difference of two estimates of which nobody knows how their errors depend on each other.

    Its standard error is at most the sum of theirs.
    """
    value, error = one.value - other.value, one.std_error + other.std_error
    reach = NormalDist().inv_cdf(0.5 + one.confidence / 2) * error
    return Difference(value, error, value - reach, value + reach, one.confidence, paired=False)


def _terms(log: BanditLog, policy: Judged, labels: StateLabels | None) -> tuple[Floats, Floats]:
    """(n,) what each round says of a policy, and its weights."""
    probs_of, membership = distribution_of(log, policy, labels, False), membership_of(log, labels, False)
    with one_thread():
        terms, support = terms_of(log, probs_of, membership, np.inf, frozenset({"model"}))
    require_sound(diagnostics_of(log, support, np.inf), False)
    return terms.direct + terms.weights * (terms.rewards - terms.modelled), terms.weights
