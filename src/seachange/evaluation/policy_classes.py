"""How large a class of switching policies is, as far as uniform bounds are concerned."""

from __future__ import annotations

import math
from dataclasses import dataclass

from seachange.params import require, require_count


@dataclass(frozen=True)
class PolicyClass:
    """A class that a deviation V̂ - V is bounded over by looking at N of its members."""

    name: str
    log_size: float  # log N
    slack: float = 0.0  # s: what the other members may differ from those, in units of M ρ over all rounds
    choice_price: float = 0.0  # added to log(1 / δ) where the class itself was chosen after seeing the log


def finite_class(n_policies: int) -> PolicyClass:
    """N switching policies that were there before the log."""
    require_count("n_policies", n_policies)
    return PolicyClass(f"{n_policies:,} policies", math.log(n_policies))


def table_class(*, n_contexts: int, n_actions: int, n_states: int, capped: bool) -> PolicyClass:
    """All stochastic policies on finitely many contexts, one for each state.

    V̂ - V is linear in π(a | x), so its largest value is at a vertex: deterministic policies, K in each context and
    state; where π(a | x) ≤ M π_0(a | x) is asked for, all probabilities but one are 0 or at their cap: K 2^(K - 1).
    """
    each = math.log(n_actions) + ((n_actions - 1) * math.log(2) if capped else 0.0)
    limit = ", held to a ratio" if capped else ""
    return PolicyClass(f"all tables of {n_contexts:,} contexts{limit}", n_states * n_contexts * each)


def softmax_class(*, n_coefs: int, n_states: int, radius: float, feature_gap: float, n_rounds: int) -> PolicyClass:
    """Softmax policies with |θ_z| ≤ W in every state, W the power of 2 from ``radius`` up.

    |log π_θ(a | x) - log π_θ'(a | x)| ≤ G |θ - θ'|, G the largest |f(x, a) - f(x, a')|. Policies that are within
    r = log(1 + 1 / T) / G differ by at most M ρ in V̂ and in V over T rounds: s = 2. At most (1 + 2 W / r)^d points of a
    ball are r apart, in each of L states. That W was chosen among powers of 2 costs log(π² (j + 1)² / 6), W = 2^j.
    """
    require_count("n_coefs", n_coefs)
    require(radius >= 0 and feature_gap >= 0, "radius and feature_gap must be at least 0.")
    power = max(math.ceil(math.log2(radius)), 0) if radius > 1 else 0
    net = math.log1p(1 / n_rounds) / max(feature_gap, 1e-300)
    return PolicyClass(
        f"softmax policies of {n_coefs} coefficients up to {2.0**power:g}",
        n_states * n_coefs * math.log1p(2 * 2.0**power / net),
        slack=2.0,
        choice_price=math.log(math.pi**2 * (power + 1) ** 2 / 6),
    )
