"""The paper's theorems as functions: each bound as printed, as it can be proved, and the conditions it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from seachange.params import require, require_count


@dataclass(frozen=True)
class PolicyClass:
    """A class of policies over which V̂ - V is bounded uniformly, by a union bound over N of its members."""

    name: str
    log_size: float  # log N
    slack: float = 0.0  # s: how far other members may differ from those, in units of M ρ over all rounds
    choice_price: float = 0.0  # added to log(1 / δ) if the class itself was chosen after seeing the log


def finite_class(n_policies: int) -> PolicyClass:
    """N switching policies fixed before the log was seen."""
    require_count("n_policies", n_policies)
    return PolicyClass(f"{n_policies:,} policies", math.log(n_policies))


def table_class(*, n_contexts: int, n_actions: int, n_states: int, capped: bool) -> PolicyClass:
    """All stochastic policies on finitely many contexts, one per state.

    V̂ - V is linear in π(a | x), so its maximum is at a vertex. Vertices are deterministic policies, K per context and
    state; under the cap π(a | x) ≤ M π_0(a | x), all probabilities but one are 0 or at their cap: K 2^(K - 1).
    """
    each = math.log(n_actions) + ((n_actions - 1) * math.log(2) if capped else 0.0)
    limit = " with capped ratios" if capped else ""
    return PolicyClass(f"all tables over {n_contexts:,} contexts{limit}", n_states * n_contexts * each)


def softmax_class(*, n_coefs: int, n_states: int, radius: float, feature_gap: float, n_rounds: int) -> PolicyClass:
    """Softmax policies with |θ_z| ≤ W in every state, W = ``radius`` rounded up to a power of 2.

    |log π_θ(a | x) - log π_θ'(a | x)| ≤ G |θ - θ'|, G the largest |f(x, a) - f(x, a')|. Policies within
    r = log(1 + 1 / T) / G of each other differ by at most M ρ in V̂ and in V over T rounds: s = 2. At most
    (1 + 2 W / r)^d points of a ball are r apart, in each of L states. Choosing W = 2^j among powers of 2
    costs log(π² (j + 1)² / 6).
    """
    require_count("n_coefs", n_coefs)
    require(radius >= 0 and feature_gap >= 0, "radius and feature_gap must be at least 0.")
    power = max(math.ceil(math.log2(radius)), 0) if radius > 1 else 0
    net = math.log1p(1 / n_rounds) / max(feature_gap, 1e-300)
    return PolicyClass(
        f"softmax policies with {n_coefs} coefficients, norm up to {2.0**power:g}",
        n_states * n_coefs * math.log1p(2 * 2.0**power / net),
        slack=2.0,
        choice_price=math.log(math.pi**2 * (power + 1) ** 2 / 6),
    )


Range = tuple[float, float]


@dataclass(frozen=True)
class Condition:
    """A condition of a bound."""

    rule: str
    holds: bool | None  # None: cannot be checked on a log


@dataclass(frozen=True)
class Bound:
    """A theorem, evaluated for given quantities."""

    name: str
    bounds: str  # the quantity that is bounded
    printed: float  # the paper's formula
    printed_flaw: str  # what is wrong with it, if anything
    corrected: float  # the formula that can be proved
    n_rounds: float  # rounds it covers
    total: float  # the trivial bound: all rounds, or the largest possible total reward
    probability: float | None  # with which the corrected bound holds at least; None: it holds in expectation
    conditions: tuple[Condition, ...]

    @property
    def vacuous(self) -> bool:
        """Whether the corrected bound is no better than the trivial one."""
        return not self.corrected < self.total

    @property
    def printed_vacuous(self) -> bool:
        """Whether the printed formula, if it were right, would be no better than the trivial bound."""
        return not self.printed < self.total

    @property
    def broken(self) -> tuple[Condition, ...]:
        """Conditions that fail."""
        return tuple(condition for condition in self.conditions if condition.holds is False)

    @property
    def verdict(self) -> Literal["vacuous", "does not apply", "conditional", "applies"]:
        """In a word: "conditional" means that some conditions cannot be checked on a log."""
        if self.vacuous:
            return "vacuous"
        if self.broken:
            return "does not apply"
        return "applies" if all(condition.holds for condition in self.conditions) else "conditional"


def least_window(n_rounds: int, min_change: float, delta: float, reward_length: float = 1.0) -> float:
    """w = ⌈4 R² log(4 T / δ) / Δ²⌉: the shortest window for which c = Δ / 2 satisfies ``detector_bound``."""
    require(min_change >= 0, f"min_change must be at least 0; got {min_change}.")
    if min_change == 0:
        return math.inf
    return float(math.ceil(4 * (reward_length / min_change) ** 2 * math.log(4 * n_rounds / delta)))


def detector_bound(
    *, n_rounds: int, n_segments: int, window: float, threshold: float, min_change: float, shortest_segment: int, delta:
    float, reward_length: float = 1.0,
) -> Bound:  # fmt: skip
    """Rounds that the paper's change-point detector mislabels: (S - 1) w; printed S w.

    Needs Δ / 2 ≥ c ≥ R √(log(4 T / δ) / w), R the length of the reward range; printed √(2 log(8 T / δ) / w), for R = 1.
    """
    _check(n_rounds, n_segments, delta)
    least = reward_length * math.sqrt(math.log(4 * n_rounds / delta) / window) if window > 0 else math.inf
    return Bound(
        name="detector error",
        bounds="mislabeled rounds",
        printed=n_segments * window,
        printed_flaw="there are S - 1 changes, not S; only for rewards in [0, 1]",
        corrected=(n_segments - 1) * window if n_segments > 1 else 0.0,
        n_rounds=n_rounds,
        total=float(n_rounds),
        probability=1 - delta,
        conditions=(
            Condition(f"every segment is longer than 4 w = {4 * window:,.0f} rounds", shortest_segment > 4 * window),
            Condition(f"the threshold c = {threshold:.3g} is at least {least:.3g}", threshold >= least),
            Condition(
                f"every change shifts the logging policy's mean reward by at least 2 c = {2 * threshold:.3g}",
                None if min_change >= 2 * threshold else False,
            ),
        ),
    )


def ips_error_bound(
    *, n_rounds: int, max_ratio: float, wrong_rounds: float, delta_states: float, delta_rewards: float, reward_range:
    Range = (0.0, 1.0),
) -> Bound:  # fmt: skip
    """|V(Π) - V̂(Π)| for a fixed policy: M ρ ε(δ₁) + M B √(T log(2 / δ₂) / 2), ρ the largest |r|.

    Printed: M ε(δ₁ / 2) + M √(2 T log(4 / δ₂)). ``wrong_rounds`` is ε.
    """
    _check(n_rounds, 1, delta_states, delta_rewards)
    require(max_ratio > 0, f"max_ratio must be positive; got {max_ratio}.")
    statistical = _span(reward_range) * math.sqrt(n_rounds * math.log(2 / delta_rewards) / 2)
    return Bound(
        name="IPS error",
        bounds="|V - V̂| for a fixed policy, in total reward",
        printed=max_ratio * (wrong_rounds + math.sqrt(2 * n_rounds * math.log(4 / delta_rewards))),
        printed_flaw="the second term is more than twice as large as needed; only for rewards in [0, 1]",
        corrected=max_ratio * (_size(reward_range) * wrong_rounds + statistical),
        n_rounds=n_rounds,
        total=n_rounds * _span(reward_range),
        probability=1 - (delta_states + delta_rewards),
        conditions=(),
    )


def optimality_gap_bound(
    *, n_rounds: int, max_ratio: float, wrong_rounds: float, policy_class: PolicyClass, delta_states: float,
    delta_rewards: float, reward_range: Range = (0.0, 1.0), name: str = "optimality gap",
) -> Bound:  # fmt: skip
    """V(Π*) - V(Π̂), the maximizers of V and V̂ over a class: uniform over the class for Π̂, pointwise for Π*.

    2 M ρ ε(δ₁) + M B √(T d / 2) + M B √(T (d + log N) / 2) + s M ρ,  d = log(2 / δ₂) + the price of choosing the class

    log N and s belong to the class (see ``PolicyClass``). Printed: 2 M ε(δ₁ / 2) + 2 M √(2 T log(4 / δ₂)).
    """
    one = ips_error_bound(
        n_rounds=n_rounds, max_ratio=max_ratio, wrong_rounds=wrong_rounds,
        delta_states=delta_states, delta_rewards=delta_rewards, reward_range=reward_range,
    )  # fmt: skip
    span, size = _span(reward_range), _size(reward_range)
    certainty = math.log(2 / delta_rewards) + policy_class.choice_price
    pointwise = math.sqrt(n_rounds * certainty / 2)
    uniform = math.sqrt(n_rounds * (certainty + policy_class.log_size) / 2)
    return replace(
        one,
        name=name,
        bounds="V(Π*) - V(Π̂) with known states, in total reward",
        printed=2 * one.printed,
        printed_flaw="unproved: it applies a lemma for fixed policies to the learned policy",
        corrected=max_ratio * (size * (2 * wrong_rounds + policy_class.slack) + span * (pointwise + uniform)),
        total=n_rounds * (reward_range[1] - reward_range[0]),
    )


def corollary_bound(
    *, n_rounds: int, n_segments: int, shortest_segment: int, min_change: float, max_ratio: float, policy_class:
    PolicyClass, delta_states: float, delta_rewards: float, reward_range: Range = (0.0, 1.0),
) -> Bound:  # fmt: skip
    """The optimality gap with the paper's detector: ε = (S - 1) w, w = ⌈4 R² log(4 T / δ₁) / Δ²⌉, c = Δ / 2.

    Printed: 16 M S log(16 T / δ₁) / Δ² + 2 M √(2 T log(4 / δ₂)).
    """
    window = least_window(n_rounds, min_change, delta_states, reward_range[1] - reward_range[0])
    wrong = (n_segments - 1) * window if n_segments > 1 else 0.0
    gap = optimality_gap_bound(
        n_rounds=n_rounds, max_ratio=max_ratio, wrong_rounds=wrong, policy_class=policy_class,
        delta_states=delta_states, delta_rewards=delta_rewards, reward_range=reward_range, name="corollary",
    )  # fmt: skip
    logarithm = math.log(16 * n_rounds / delta_states)
    states = 16 * max_ratio * n_segments * logarithm / min_change**2 if min_change > 0 else math.inf
    return replace(
        gap,
        bounds="V(Π*) - V(Π̂) with the paper's detector, in total reward",
        printed=states + 2 * max_ratio * math.sqrt(2 * n_rounds * math.log(4 / delta_rewards)),
        conditions=(
            Condition(f"every segment is longer than 4 w = {4 * window:,.0f} rounds", shortest_segment > 4 * window),
        ),
    )


def interval_regret_bound(
    *, length: float, n_states: int, n_actions: int, learning_rate: float, share_rate: float, exploration: float = 0.0,
    reward_length: float = 1.0,
) -> Bound:  # fmt: skip
    """Expected regret of Exp4.S against any single expert over any ℓ consecutive rounds.

    R ((log(L / β) + ℓ log(1 / (1 - β))) / η + η K ℓ / (2 (1 - γ)) + γ ℓ); with β = 1 / ℓ and the η of ``Exp4S``, it is
    below 2 R √(K ℓ (log(L ℓ) + 2)). Printed: √(2 ℓ K log L).
    """
    regret = _regret(length, 1, 0, n_states, n_actions, learning_rate, share_rate, exploration)
    return Bound(
        name="Exp4.S, one interval",
        bounds=f"expected regret against the best expert over {length:,.0f} rounds",
        printed=math.sqrt(2 * length * n_actions * math.log(n_states)),
        printed_flaw="does not follow under either reading of β",
        corrected=reward_length * regret,
        n_rounds=length,
        total=length * reward_length,
        probability=None,
        conditions=(),
    )


def switching_regret_bound(
    *, n_rounds: int, n_segments: int, n_states: int, n_actions: int, learning_rate: float, share_rate: float,
    exploration: float = 0.0, reward_length: float = 1.0,
) -> Bound:  # fmt: skip
    """Expected regret of Exp4.S against the best expert in every segment.

    R ((log L + (S - 1) log(L / β) + T log(1 / (1 - β))) / η + η K T / (2 (1 - γ)) + γ T).
    Printed: 2 √(S T K log L).
    """
    _check(n_rounds, n_segments)
    regret = _regret(n_rounds, n_segments - 1, 1, n_states, n_actions, learning_rate, share_rate, exploration)
    return Bound(
        name="Exp4.S, all segments",
        bounds="expected regret against the best expert in every segment",
        printed=2 * math.sqrt(n_segments * n_rounds * n_actions * math.log(n_states)),
        printed_flaw="the printed lemma gives 2 √(2 S T K log L), and the lemma itself does not follow",
        corrected=reward_length * regret,
        n_rounds=n_rounds,
        total=n_rounds * reward_length,
        probability=None,
        conditions=(),
    )


def regret_bound(gap: Bound, switching: Bound) -> Bound:
    """Regret of deploying the learned policies on the log's states: optimality gap plus switching regret."""
    return Bound(
        name="regret",
        bounds="regret of the deployment against Π* with known states, in total reward",
        printed=gap.printed + switching.printed,
        printed_flaw="the sum of two bounds that do not hold as printed",
        corrected=gap.corrected + switching.corrected,
        n_rounds=gap.n_rounds,
        total=gap.total,
        probability=gap.probability,
        conditions=tuple(dict.fromkeys((*gap.conditions, *switching.conditions))),
    )


def other_states_bound(
    gap: Bound, *, counts: tuple[int, ...], other_counts: tuple[int, ...], reward_length: float = 1.0
) -> Bound:
    """The optimality gap if the states occur T'_z times instead of T_z, as in the log.

    min{gap + R Σ_z max(T'_z - T_z, 0), gap max_z T'_z / T_z}, as Π* gains between 0 and R per round over Π̂.
    Printed: gap + √(L Σ_z (T'_z - T_z)²).
    """
    require(len(counts) == len(other_counts) > 0, "counts and other_counts must both have one entry per state.")
    more = sum(max(other - own, 0) for own, other in zip(counts, other_counts, strict=True))
    squares = sum((other - own) ** 2 for own, other in zip(counts, other_counts, strict=True))
    new = any(own == 0 < other for own, other in zip(counts, other_counts, strict=True))
    shares = [other / own for own, other in zip(counts, other_counts, strict=True) if own > 0]
    stretched = math.inf if new or not shares else gap.corrected * max(shares)
    return Bound(
        name="other states",
        bounds="V'(Π*) - V'(Π̂) on a different sequence of states, in total reward",
        printed=gap.printed + math.sqrt(len(counts) * squares),
        printed_flaw="unproved, like the gap; the added term is right, but at least twice as large as needed",
        corrected=min(gap.corrected + reward_length * more, stretched),
        n_rounds=sum(other_counts),
        total=sum(other_counts) * reward_length,
        probability=gap.probability,
        conditions=gap.conditions,
    )


def _regret(
    length: float, switches: int, starts: int, n_states: int, n_actions: int, rate: float, share: float, explore: float
) -> float:
    """For rewards in [0, 1]: starting from equal weights costs log L, from arbitrary weights log(L / β)."""
    require_count("n_states", n_states)
    require_count("n_actions", n_actions)
    require(rate > 0, f"learning_rate must be positive; got {rate}.")
    require(0 < share <= 1, f"share_rate must be above 0 and at most 1; got {share}.")
    require(0 <= explore < 1, f"exploration must be at least 0 and below 1; got {explore}.")
    if n_states == 1:
        return explore * length
    if share == 1:
        return math.inf
    divergence = starts * math.log(n_states) + switches * math.log(n_states / share) - length * math.log1p(-share)
    return divergence / rate + rate * n_actions * length / (2 * (1 - explore)) + explore * length


def _span(reward_range: Range) -> float:
    """B: the length of the smallest interval that contains the reward range and 0."""
    low, high = reward_range
    require(high > low, f"reward_range must be (least, most); got {reward_range}.")
    return max(high, 0.0) - min(low, 0.0)


def _size(reward_range: Range) -> float:
    """ρ: the largest |r|."""
    return max(abs(reward_range[0]), abs(reward_range[1]))


def _check(n_rounds: int, n_segments: int, *deltas: float) -> None:
    require_count("n_rounds", n_rounds)
    require(
        1 <= n_segments <= n_rounds,
        f"n_segments must be between 1 and {n_rounds}, the number of rounds; got {n_segments}.",
    )
    for delta in deltas:
        require(0 < delta < 1, f"delta must be between 0 and 1; got {delta}.")
