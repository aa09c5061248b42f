"""The paper's bounds, as printed and as they can be proved. Derivations: docs/bounds.md.

Every function takes the quantities of its theorem and returns a ``Bound``. T rounds, S segments, L states, K actions;
rewards from ``low`` to ``high``; B = max(high, 0) - min(low, 0), which is 1 for rewards in [0, 1], is as far as a
reward and 0, or two rewards, can be apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from seachange.evaluation.policy_classes import PolicyClass
from seachange.params import require, require_count

Range = tuple[float, float]


@dataclass(frozen=True)
class Condition:
    """Something that a bound needs."""

    rule: str
    holds: bool | None  # None: a log cannot tell


@dataclass(frozen=True)
class Bound:
    """What a theorem promises for given quantities."""

    name: str
    bounds: str  # what is at most this large
    printed: float  # the paper's formula
    printed_flaw: str  # what is wrong with it; empty where nothing is
    corrected: float  # what can be proved
    n_rounds: float  # that it is about
    total: float  # what is at stake: all rounds, or all the reward there can be
    probability: float | None  # with which the corrected bound holds, at least; None: it holds for the expectation
    conditions: tuple[Condition, ...]

    @property
    def vacuous(self) -> bool:
        """Whether the corrected bound says nothing, being as large as all that is at stake."""
        return not self.corrected < self.total

    @property
    def printed_vacuous(self) -> bool:
        """Whether the printed formula would say nothing, were it right."""
        return not self.printed < self.total

    @property
    def broken(self) -> tuple[Condition, ...]:
        """Conditions that do not hold."""
        return tuple(condition for condition in self.conditions if condition.holds is False)

    @property
    def verdict(self) -> Literal["says nothing", "does not apply", "applies if", "applies"]:
        """In a word: vacuous, a condition broken, conditions that a log cannot tell, or none left."""
        if self.vacuous:
            return "says nothing"
        if self.broken:
            return "does not apply"
        return "applies" if all(condition.holds for condition in self.conditions) else "applies if"


def least_window(n_rounds: int, min_change: float, delta: float, reward_length: float = 1.0) -> float:
    """w = ⌈4 R² log(4 T / δ) / Δ²⌉: the shortest window with which c = Δ / 2 meets ``detector_bound``."""
    require(min_change >= 0, f"min_change must be at least 0; got {min_change}.")
    if min_change == 0:
        return math.inf
    return float(math.ceil(4 * (reward_length / min_change) ** 2 * math.log(4 * n_rounds / delta)))


def detector_bound(
    *,
    n_rounds: int,
    n_segments: int,
    window: float,
    threshold: float,
    min_change: float,
    shortest_segment: int,
    delta: float,
    reward_length: float = 1.0,
) -> Bound:
    """Rounds that the paper's change-point detector labels wrong: (S - 1) w; printed S w.

    Needs Δ / 2 ≥ c ≥ R √(log(4 T / δ) / w), R the range of rewards; printed √(2 log(8 T / δ) / w), for R = 1.
    """
    _check(n_rounds, n_segments, delta)
    least = reward_length * math.sqrt(math.log(4 * n_rounds / delta) / window) if window > 0 else math.inf
    return Bound(
        name="detector error",
        bounds="rounds labelled with another segment",
        printed=n_segments * window,
        printed_flaw="S - 1 changes, not S; for rewards in [0, 1] only",
        corrected=(n_segments - 1) * window if n_segments > 1 else 0.0,
        n_rounds=n_rounds,
        total=float(n_rounds),
        probability=1 - delta,
        conditions=(
            Condition(f"segments are longer than 4 w = {4 * window:,.0f} rounds", shortest_segment > 4 * window),
            Condition(f"the threshold c = {threshold:.3g} is at least {least:.3g}", threshold >= least),
            Condition(
                f"changes move the logging policy's mean reward by at least 2 c = {2 * threshold:.3g}",
                None if min_change >= 2 * threshold else False,
            ),
        ),
    )


def ips_error_bound(
    *,
    n_rounds: int,
    max_ratio: float,
    wrong_rounds: float,
    delta_states: float,
    delta_rewards: float,
    reward_range: Range = (0.0, 1.0),
) -> Bound:
    """|V(Π) - V̂(Π)| of a fixed policy: M ρ ε(δ₁) + M B √(T log(2 / δ₂) / 2), ρ the largest |r|.

    Printed: M ε(δ₁ / 2) + M √(2 T log(4 / δ₂)). ``wrong_rounds`` is ε.
    """
    _check(n_rounds, 1, delta_states, delta_rewards)
    require(max_ratio > 0, f"max_ratio must be positive; got {max_ratio}.")
    statistical = _span(reward_range) * math.sqrt(n_rounds * math.log(2 / delta_rewards) / 2)
    return Bound(
        name="IPS error",
        bounds="|V - V̂| of a fixed policy, in total reward",
        printed=max_ratio * (wrong_rounds + math.sqrt(2 * n_rounds * math.log(4 / delta_rewards))),
        printed_flaw="its second term is more than twice what is needed; for rewards in [0, 1] only",
        corrected=max_ratio * (_size(reward_range) * wrong_rounds + statistical),
        n_rounds=n_rounds,
        total=n_rounds * _span(reward_range),
        probability=1 - (delta_states + delta_rewards),
        conditions=(),
    )


def optimality_gap_bound(
    *,
    n_rounds: int,
    max_ratio: float,
    wrong_rounds: float,
    policy_class: PolicyClass,
    delta_states: float,
    delta_rewards: float,
    reward_range: Range = (0.0, 1.0),
    name: str = "optimality gap",
) -> Bound:
    """V(Π*) - V(Π̂), both the best of a class, by V and by V̂: uniform over the class for Π̂, pointwise for Π*.

    2 M ρ ε(δ₁) + M B √(T d / 2) + M B √(T (d + log N) / 2) + s M ρ,  d = log(2 / δ₂) + what choosing the class costs

    log N and s are the class's (see ``PolicyClass``). Printed: 2 M ε(δ₁ / 2) + 2 M √(2 T log(4 / δ₂)).
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
        bounds="V(Π*) - V(Π̂) with states known, in total reward",
        printed=2 * one.printed,
        printed_flaw="unproved: a lemma for a fixed policy is used for the learned one",
        corrected=max_ratio * (size * (2 * wrong_rounds + policy_class.slack) + span * (pointwise + uniform)),
        total=n_rounds * (reward_range[1] - reward_range[0]),
    )


def corollary_bound(
    *,
    n_rounds: int,
    n_segments: int,
    shortest_segment: int,
    min_change: float,
    max_ratio: float,
    policy_class: PolicyClass,
    delta_states: float,
    delta_rewards: float,
    reward_range: Range = (0.0, 1.0),
) -> Bound:
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
            Condition(f"segments are longer than 4 w = {4 * window:,.0f} rounds", shortest_segment > 4 * window),
        ),
    )


def interval_regret_bound(
    *,
    length: float,
    n_states: int,
    n_actions: int,
    learning_rate: float,
    share_rate: float,
    exploration: float = 0.0,
    reward_length: float = 1.0,
) -> Bound:
    """Expected regret of Exp4.S against any one expert on any ℓ rounds in a row.

    R ((log(L / β) + ℓ log(1 / (1 - β))) / η + η K ℓ / (2 (1 - γ)) + γ ℓ); with β = 1 / ℓ and the η of ``Exp4S`` that is
    below 2 R √(K ℓ (log(L ℓ) + 2)). Printed: √(2 ℓ K log L).
    """
    regret = _regret(length, 1, 0, n_states, n_actions, learning_rate, share_rate, exploration)
    return Bound(
        name="Exp4.S, one interval",
        bounds=f"expected regret against the best expert in {length:,.0f} rounds",
        printed=math.sqrt(2 * length * n_actions * math.log(n_states)),
        printed_flaw="does not follow with either reading of β",
        corrected=reward_length * regret,
        n_rounds=length,
        total=length * reward_length,
        probability=None,
        conditions=(),
    )


def switching_regret_bound(
    *,
    n_rounds: int,
    n_segments: int,
    n_states: int,
    n_actions: int,
    learning_rate: float,
    share_rate: float,
    exploration: float = 0.0,
    reward_length: float = 1.0,
) -> Bound:
    """Expected regret of Exp4.S against the best expert of every segment.

    R ((log L + (S - 1) log(L / β) + T log(1 / (1 - β))) / η + η K T / (2 (1 - γ)) + γ T).
    Printed: 2 √(S T K log L).
    """
    _check(n_rounds, n_segments)
    regret = _regret(n_rounds, n_segments - 1, 1, n_states, n_actions, learning_rate, share_rate, exploration)
    return Bound(
        name="Exp4.S, all segments",
        bounds="expected regret against the best expert of every segment",
        printed=2 * math.sqrt(n_segments * n_rounds * n_actions * math.log(n_states)),
        printed_flaw="the printed lemma gives 2 √(2 S T K log L), and does not follow itself",
        corrected=reward_length * regret,
        n_rounds=n_rounds,
        total=n_rounds * reward_length,
        probability=None,
        conditions=(),
    )


def regret_bound(gap: Bound, switching: Bound) -> Bound:
    """Regret of deploying what was learned, on the log's own states: optimality gap plus switching regret."""
    return Bound(
        name="regret",
        bounds="regret of the deployment against Π* told the states, in total reward",
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
    """The optimality gap where the states come T'_z times, not T_z as in the log.

    min{gap + R Σ_z max(T'_z - T_z, 0), gap max_z T'_z / T_z}: what Π* has over Π̂ in a state is from 0 to R a round.
    Printed: gap + √(L Σ_z (T'_z - T_z)²).
    """
    require(len(counts) == len(other_counts) > 0, "counts must have one entry a state, in both sequences.")
    more = sum(max(other - own, 0) for own, other in zip(counts, other_counts, strict=True))
    squares = sum((other - own) ** 2 for own, other in zip(counts, other_counts, strict=True))
    new = any(own == 0 < other for own, other in zip(counts, other_counts, strict=True))
    shares = [other / own for own, other in zip(counts, other_counts, strict=True) if own > 0]
    stretched = math.inf if new or not shares else gap.corrected * max(shares)
    return Bound(
        name="other states",
        bounds="V'(Π*) - V'(Π̂) on another sequence of states, in total reward",
        printed=gap.printed + math.sqrt(len(counts) * squares),
        printed_flaw="unproved, as the gap is; the addition is right, and at least twice as large as needed",
        corrected=min(gap.corrected + reward_length * more, stretched),
        n_rounds=sum(other_counts),
        total=sum(other_counts) * reward_length,
        probability=gap.probability,
        conditions=gap.conditions,
    )


def _regret(
    length: float, switches: int, starts: int, n_states: int, n_actions: int, rate: float, share: float, explore: float
) -> float:
    """In rewards from 0 to 1: a start from equal weights costs log L, from any weights log(L / β)."""
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
    """B: as far as a reward and 0, or two rewards, can be apart."""
    low, high = reward_range
    require(high > low, f"reward_range must rise; got {reward_range}.")
    return max(high, 0.0) - min(low, 0.0)


def _size(reward_range: Range) -> float:
    """ρ: the largest |r|."""
    return max(abs(reward_range[0]), abs(reward_range[1]))


def _check(n_rounds: int, n_segments: int, *deltas: float) -> None:
    require_count("n_rounds", n_rounds)
    require(1 <= n_segments <= n_rounds, f"n_segments must be from 1 to {n_rounds} rounds; got {n_segments}.")
    for delta in deltas:
        require(0 < delta < 1, f"delta must be between 0 and 1; got {delta}.")
