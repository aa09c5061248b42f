"""The paper's theorems: each bound as printed, as it can be proved, and its conditions, evaluated for a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from seachange.deploy.exp4s import Exp4S
from seachange.evaluation.terms import Range
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.params import require, require_count, table_of
from seachange.policies.learners import IPSLearner
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularLearner, TabularPolicy
from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import StateLabels

if TYPE_CHECKING:
    from seachange.model import SwitchingModel


@dataclass(frozen=True)
class PolicyClass:
    """A class of policies over which V̂ - V is bounded uniformly, by a union bound over N of its members."""

    name: str
    log_size: float  # log N
    slack: float = 0.0  # s: how far other members may differ from those, in units of M ρ over all rounds
    choice_price: float = 0.0  # added to log(1 / δ) if the class itself was chosen after seeing the log


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
    name = f"softmax policies with {n_coefs} coefficients, norm up to {2**power:,}"
    log_size = n_states * n_coefs * math.log1p(2 * 2.0**power / net)
    return PolicyClass(name, log_size, slack=2.0, choice_price=math.log(math.pi**2 * (power + 1) ** 2 / 6))


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
    probability: float | None = None  # with which the corrected bound holds at least; None: it holds in expectation
    conditions: tuple[Condition, ...] = ()

    @property
    def vacuous(self) -> bool:
        """Whether the corrected bound is no better than the trivial one."""
        return not self.corrected < self.total

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

    def under(self, *conditions: Condition) -> Self:
        """The bound with more conditions."""
        return replace(self, conditions=(*self.conditions, *conditions))


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
    _require_valid(n_rounds, n_segments, delta)
    least = reward_length * math.sqrt(math.log(4 * n_rounds / delta) / window) if window > 0 else math.inf
    conditions = (
        _long_segments(shortest_segment, window),
        Condition(f"the threshold c = {threshold:.3g} is at least {least:.3g}", threshold >= least),
        Condition(
            f"every change shifts the logging policy's mean reward by at least 2 c = {2 * threshold:.3g}",
            None if min_change >= 2 * threshold else False,
        ),
    )
    flaw = "there are S - 1 changes, not S; only for rewards in [0, 1]"
    numbers = (n_segments * window, flaw, _mislabeled(n_segments, window), n_rounds, float(n_rounds), 1 - delta)
    return Bound("detector error", "mislabeled rounds", *numbers, conditions)


def _mislabeled(n_segments: int, window: float) -> float:
    return (n_segments - 1) * window if n_segments > 1 else 0.0


def _long_segments(shortest: int, window: float) -> Condition:
    return Condition(f"every segment is longer than 4 w = {4 * window:,.0f} rounds", shortest > 4 * window)


def ips_error_bound(
    *, n_rounds: int, max_ratio: float, wrong_rounds: float, delta_states: float, delta_rewards: float, reward_range:
    Range = (0.0, 1.0),
) -> Bound:  # fmt: skip
    """|V(Π) - V̂(Π)| for a fixed policy: M ρ ε(δ₁) + M B √(T log(2 / δ₂) / 2), ρ the largest |r|.

    Printed: M ε(δ₁ / 2) + M √(2 T log(4 / δ₂)). ``wrong_rounds`` is ε.
    """
    _require_valid(n_rounds, 1, delta_states, delta_rewards)
    require(max_ratio > 0, f"max_ratio must be positive; got {max_ratio}.")
    printed = max_ratio * (wrong_rounds + math.sqrt(2 * n_rounds * math.log(4 / delta_rewards)))
    flaw = "the second term is more than twice as large as needed; only for rewards in [0, 1]"
    (span, largest), probability = _scales(reward_range), 1 - (delta_states + delta_rewards)
    corrected = max_ratio * (largest * wrong_rounds + span * math.sqrt(n_rounds * math.log(2 / delta_rewards) / 2))
    bounded = "|V - V̂| for a fixed policy, in total reward"
    return Bound("IPS error", bounded, printed, flaw, corrected, n_rounds, n_rounds * span, probability)


def optimality_gap_bound(
    *, n_rounds: int, max_ratio: float, wrong_rounds: float, policy_class: PolicyClass, delta_states: float,
    delta_rewards: float, reward_range: Range = (0.0, 1.0),
) -> Bound:  # fmt: skip
    """V(Π*) - V(Π̂), the maximizers of V and V̂ over a class: uniform over the class for Π̂, pointwise for Π*.

    2 M ρ ε(δ₁) + M B √(T d / 2) + M B √(T (d + log N) / 2) + s M ρ,  d = log(2 / δ₂) + the price of choosing the class

    log N and s belong to the class (see ``PolicyClass``). Printed: 2 M ε(δ₁ / 2) + 2 M √(2 T log(4 / δ₂)).
    """
    one = ips_error_bound(
        n_rounds=n_rounds, max_ratio=max_ratio, wrong_rounds=wrong_rounds,
        delta_states=delta_states, delta_rewards=delta_rewards, reward_range=reward_range,
    )  # fmt: skip
    (span, largest), certainty = _scales(reward_range), math.log(2 / delta_rewards) + policy_class.choice_price
    pointwise, uniform = (math.sqrt(n_rounds * depth / 2) for depth in (certainty, certainty + policy_class.log_size))
    return replace(
        one,
        name="optimality gap",
        bounds="V(Π*) - V(Π̂) with known states, in total reward",
        printed=2 * one.printed,
        printed_flaw="unproved: it applies a lemma for fixed policies to the learned policy",
        corrected=max_ratio * (largest * (2 * wrong_rounds + policy_class.slack) + span * (pointwise + uniform)),
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
    gap = optimality_gap_bound(
        n_rounds=n_rounds, max_ratio=max_ratio, wrong_rounds=_mislabeled(n_segments, window), policy_class=policy_class,
        delta_states=delta_states, delta_rewards=delta_rewards, reward_range=reward_range,
    )  # fmt: skip
    logarithm = math.log(16 * n_rounds / delta_states)
    states = 16 * max_ratio * n_segments * logarithm / min_change**2 if min_change > 0 else math.inf
    printed = states + 2 * max_ratio * math.sqrt(2 * n_rounds * math.log(4 / delta_rewards))
    bounded = "V(Π*) - V(Π̂) with the paper's detector, in total reward"
    conditions = (_long_segments(shortest_segment, window),)
    return replace(gap, name="corollary", bounds=bounded, printed=printed, conditions=conditions)


def interval_regret_bound(
    *, length: float, n_states: int, n_actions: int, learning_rate: float, share_rate: float, exploration: float = 0.0,
    reward_length: float = 1.0,
) -> Bound:  # fmt: skip
    """Expected regret of Exp4.S against any single expert over any ℓ consecutive rounds.

    R ((log(L / β) + ℓ log(1 / (1 - β))) / η + η K ℓ / (2 (1 - γ)) + γ ℓ); with β = 1 / ℓ and the η of ``Exp4S``, it is
    below 2 R √(K ℓ (log(L ℓ) + 2)). Printed: √(2 ℓ K log L).
    """
    regret = reward_length * _regret(length, 1, 0, n_states, n_actions, learning_rate, share_rate, exploration)
    bounded = f"expected regret against the best expert over {length:,.0f} rounds"
    printed, flaw = math.sqrt(2 * length * n_actions * math.log(n_states)), "does not follow under either reading of β"
    return Bound("Exp4.S, one interval", bounded, printed, flaw, regret, length, length * reward_length)


def switching_regret_bound(
    *, n_rounds: int, n_segments: int, n_states: int, n_actions: int, learning_rate: float, share_rate: float,
    exploration: float = 0.0, reward_length: float = 1.0,
) -> Bound:  # fmt: skip
    """Expected regret of Exp4.S against the best expert in every segment.

    R ((log L + (S - 1) log(L / β) + T log(1 / (1 - β))) / η + η K T / (2 (1 - γ)) + γ T).
    Printed: 2 √(S T K log L).
    """
    _require_valid(n_rounds, n_segments)
    rates = (learning_rate, share_rate, exploration)
    regret = reward_length * _regret(n_rounds, n_segments - 1, 1, n_states, n_actions, *rates)
    bounded = "expected regret against the best expert in every segment"
    printed = 2 * math.sqrt(n_segments * n_rounds * n_actions * math.log(n_states))
    flaw = "the printed lemma gives 2 √(2 S T K log L), and the lemma itself does not follow"
    return Bound("Exp4.S, all segments", bounded, printed, flaw, regret, n_rounds, n_rounds * reward_length)


def regret_bound(gap: Bound, switching: Bound) -> Bound:
    """Regret of deploying the learned policies on the log's states: optimality gap plus switching regret."""
    return replace(
        gap,
        name="regret",
        bounds="regret of the deployment against Π* with known states, in total reward",
        printed=gap.printed + switching.printed,
        printed_flaw="the sum of two bounds that do not hold as printed",
        corrected=gap.corrected + switching.corrected,
        conditions=tuple(dict.fromkeys((*gap.conditions, *switching.conditions))),
    )


def other_states_bound(
    gap: Bound, *, counts: Sequence[int], other_counts: Sequence[int], reward_length: float = 1.0
) -> Bound:
    """The optimality gap if the states occur T'_z times instead of T_z, as in the log.

    min{gap + R Σ_z max(T'_z - T_z, 0), gap max_z T'_z / T_z}, as Π* gains between 0 and R per round over Π̂.
    Printed: gap + √(L Σ_z (T'_z - T_z)²).
    """
    require(len(counts) == len(other_counts) > 0, "counts and other_counts must both have one entry per state.")
    pairs = list(zip(counts, other_counts, strict=True))
    changes = [other - own for own, other in pairs]
    more = reward_length * sum(max(change, 0) for change in changes)
    new, shares = any(own == 0 < other for own, other in pairs), [other / own for own, other in pairs if own > 0]
    return replace(
        gap,
        name="other states",
        bounds="V'(Π*) - V'(Π̂) on a different sequence of states, in total reward",
        printed=gap.printed + math.sqrt(len(counts) * sum(change**2 for change in changes)),
        printed_flaw="unproved, like the gap; the added term is right, but at least twice as large as needed",
        corrected=min(gap.corrected + more, math.inf if new or not shares else gap.corrected * max(shares)),
        n_rounds=sum(other_counts),
        total=sum(other_counts) * reward_length,
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


def _scales(reward_range: Range) -> tuple[float, float]:
    """B, the length of the smallest interval that contains the reward range and 0, and ρ, the largest |r|."""
    low, high = reward_range
    require(high > low, f"reward_range must be (least, most); got {reward_range}.")
    return max(high, 0.0) - min(low, 0.0), max(abs(low), abs(high))


def _require_valid(n_rounds: int, n_segments: int, *deltas: float) -> None:
    require_count("n_rounds", n_rounds)
    rule = f"n_segments must be between 1 and {n_rounds}, the number of rounds; got {n_segments}."
    require(1 <= n_segments <= n_rounds, rule)
    for delta in deltas:
        require(0 < delta < 1, f"delta must be between 0 and 1; got {delta}.")


@dataclass(frozen=True)
class Quantities:
    """The quantities in a model's bounds."""

    n_rounds: int  # T, in the log the model was learned from
    n_segments: int  # S
    shortest_segment: int
    n_states: int  # L
    n_actions: int  # K
    max_ratio: float  # M
    min_change: float  # Δ
    window: float  # w of the detector
    wrong_rounds: float  # ε
    policy_class: str
    log_class_size: float  # log N
    expected_stay: float  # ℓ
    reward_range: Range
    delta: float  # δ₁ = δ₂
    deployed_rounds: int  # T', in the log given


@dataclass(frozen=True, repr=False)
class ModelBounds:
    """Every bound of the paper for one model."""

    quantities: Quantities
    bounds: tuple[Bound, ...]

    def __repr__(self) -> str:
        rows = [(each.name, f"{each.corrected:,.4g}", f"{each.total:,.4g}", each.verdict) for each in self.bounds]
        return table_of("ModelBounds", ("", "bound", "trivial", ""), rows)


def model_bounds(
    log: BanditLog,
    model: "SwitchingModel",
    *,
    delta: float = 0.05,
    max_ratio: float | None = None,
    min_change: float | None = None,
    wrong_rounds: float | None = None,
) -> ModelBounds:
    """Evaluate the paper's bounds for ``model`` and for a deployment on rounds like those of ``log``.

    ``delta`` is the failure probability for each source of randomness, states and rewards. ``max_ratio`` (M)
    defaults to 1 / the smallest propensity, which no policy exceeds; ``min_change`` (Δ) to the smallest change of mean
    reward between segments of ``log``; ``wrong_rounds`` (ε) to the oracle's own estimate, which is proved only for the
    paper's detector.
    """
    require_rewards(log, "evaluating bounds")
    require_propensities(log, "evaluating bounds")
    require(0 < delta < 1, f"delta must be between 0 and 1; got {delta}.")
    source, own, here = model.provenance, model.labels, model.oracle.predict(log)
    n, (low, high) = source.n_rounds, source.reward_range
    edges = np.concatenate([[0], own.change_points, [len(own.states)]])
    n_segments, shortest = len(own.change_points) + own.n_chains, int(np.diff(edges).min())
    change = _least_change(log, here) if min_change is None else min_change
    ratio, ratio_rule = _max_ratio(log, model, max_ratio)
    wrong, wrong_rule = _wrong_rounds(model, here, delta, wrong_rounds)
    policy_class = _policy_class(log, model)
    bounded = Condition(f"rewards always lie between {low:g} and {high:g}", None)
    common = [bounded, Condition("rounds are independent, given the states", None)]
    if log.propensities_estimated:
        common.append(Condition("the estimated propensities are correct", None))
    offline = [*common, ratio_rule, _maximizes(model, low)]
    detector, window, rule = _detector(model, n_segments, shortest, change, delta)

    shared: dict[str, Any] = {"max_ratio": ratio, "reward_range": (low, high)}
    shared |= {"delta_states": delta, "delta_rewards": delta}
    gap = optimality_gap_bound(n_rounds=n, wrong_rounds=wrong, policy_class=policy_class, **shared)
    gap = gap.under(*offline, wrong_rule)
    corollary = corollary_bound(
        n_rounds=n, n_segments=n_segments, shortest_segment=shortest, min_change=change, policy_class=policy_class,
        **shared,
    ).under(*offline, rule)  # fmt: skip
    new = Condition("the policy was not learned from this log", log.fingerprint() != source.fingerprint)
    ips = ips_error_bound(n_rounds=len(log), wrong_rounds=wrong * len(log) / n, **shared)
    ips = ips.under(*common, ratio_rule, wrong_rule, new)
    exp4s = Exp4S(model.policies, reward_range=(low, high))
    deployed = Condition('Exp4.S is deployed: model.deployer("exp4s")', None)
    rate = exp4s.rate(log.n_actions) if model.n_states > 1 else 1.0
    settings: dict[str, Any] = {"n_states": model.n_states, "n_actions": log.n_actions, "reward_length": high - low}
    settings |= {"learning_rate": rate, "share_rate": exp4s.share_rate, "exploration": exp4s.exploration}
    interval = interval_regret_bound(length=exp4s.stay, **settings).under(bounded, deployed)
    switching = switching_regret_bound(n_rounds=n, n_segments=n_segments, **settings).under(bounded, deployed)
    counts, others = own.counts.tolist(), here.counts.tolist()
    others += [0] * (len(counts) - len(others))
    other = other_states_bound(gap, counts=counts, other_counts=others, reward_length=high - low)
    in_rewards = (ips, gap, corollary, interval, switching, regret_bound(gap, switching), other)
    # No bound on a reward is worth more than the log's mean absolute reward times its rounds.
    earned = float(np.abs(log.rewards).mean())
    quantities = Quantities(
        n_rounds=n, n_segments=n_segments, shortest_segment=shortest, n_states=model.n_states, n_actions=log.n_actions,
        max_ratio=ratio, min_change=change, window=window, wrong_rounds=wrong, policy_class=policy_class.name,
        log_class_size=policy_class.log_size, expected_stay=own.expected_stay, reward_range=(low, high), delta=delta,
        deployed_rounds=len(log),
    )  # fmt: skip
    limited = (replace(each, total=min(each.total, each.n_rounds * earned)) for each in in_rewards)
    return ModelBounds(quantities, (detector, *limited))


def _least_change(log: BanditLog, labels: StateLabels) -> float:
    """Δ: the smallest difference in mean reward between adjacent segments."""
    if len(labels.change_points) == 0:
        return float(np.ptp(log.rewards))
    starts = np.concatenate([[0], labels.change_points])
    means = np.add.reduceat(log.rewards, starts) / np.diff(starts, append=len(log))
    return float(np.abs(np.diff(means)).min())


def _max_ratio(log: BanditLog, model: "SwitchingModel", given: float | None) -> tuple[float, Condition]:
    """M, and the condition behind it."""
    if given is None and isinstance(model.learner, TabularLearner):
        given = model.learner.max_ratio
    if given is not None:
        probs = model.policies.advice(log.contexts, log.action_mask)[np.arange(len(log)), :, log.actions]
        largest = float((probs.max(axis=1) / log.propensities).max())
        rule = f"every policy in the class has π / π_0 of at most M = {given:g} (on the log: {largest:.3g})"
        return given, Condition(rule, None if largest <= given * (1 + 1e-6) else False)
    if log.logging_probs is None:
        least = float(log.propensities.min())
        return 1 / least, Condition(f"no action ever has a propensity below {least:.3g}", None)
    least = float(log.logging_probs[np.broadcast_to(log.arrays.mask, log.logging_probs.shape)].min())
    ratio = 1 / least if least > 0 else float("inf")
    return ratio, Condition(f"no action has a propensity below {least:.3g}", True)


def _wrong_rounds(
    model: "SwitchingModel", here: StateLabels, delta: float, given: float | None
) -> tuple[float, Condition]:
    """ε, and where it comes from."""
    oracle, n = model.oracle, model.provenance.n_rounds
    wrong, why = 0.0, "states are assumed known"
    if given is not None:
        wrong, why = given, "as given"
    elif isinstance(oracle, HMMOracle) and here.state_probs is not None:
        share = float(1 - here.state_probs.max(axis=1).mean())
        # Markov's inequality on the number of wrong rounds.
        wrong = min(share * n / delta, float(n))
        why = f"the HMM expects a share of {share:.2g}, if the model is correct"
    elif isinstance(oracle, ChangePointOracle):
        found = oracle.segmentation_
        if found.statistic == "reward":
            wrong, why = len(found.change_points) * float(found.windows[0]), "by the detector theorem, if it applies"
        else:
            wrong, why = float((found.high - found.low).sum()), "if every change is in its interval and none was missed"
    return wrong, Condition(f"at most {wrong:,.0f} rounds have a wrong state ({why})", None)


def _detector(
    model: "SwitchingModel", n_segments: int, shortest: int, change: float, delta: float
) -> tuple[Bound, float, Condition]:
    """The detector's theorem, its window, and the corollary's condition that the detector has the required settings.

    Window and threshold are those the theorem requires, unless the paper's detector found the model's states.
    """
    oracle, n, (low, high) = model.oracle, model.provenance.n_rounds, model.provenance.reward_range
    required = window = least_window(n, change, delta, high - low)
    threshold, paper = change / 2, False
    if isinstance(oracle, ChangePointOracle) and oracle.segmentation_.statistic == "reward":
        window, threshold = float(oracle.segmentation_.windows[0]), float(oracle.segmentation_.threshold)
        paper = model.n_states == n_segments
    bound = detector_bound(
        n_rounds=n, n_segments=n_segments, window=window, threshold=threshold, min_change=change,
        shortest_segment=shortest, delta=delta, reward_length=high - low,
    )  # fmt: skip
    rule = "the paper's detector finds the states, one per segment"
    as_required = paper and bool(window == required and np.isclose(threshold, change / 2))
    settings = Condition(f"{rule}, with w = {required:,.0f} and c = {change / 2:.3g}", as_required)
    return bound.under(Condition(rule, paper)), window, settings


def _policy_class(log: BanditLog, model: "SwitchingModel") -> PolicyClass:
    policies, joint, n_states = list(model.policies), log.joint, model.n_states
    tables = [policy for policy in policies if isinstance(policy, TabularPolicy)]
    if len(tables) == n_states:
        capped = isinstance(model.learner, TabularLearner) and model.learner.max_ratio is not None
        n_contexts = max(len(policy.probs) for policy in tables)
        return table_class(n_contexts=n_contexts, n_actions=joint.n_actions, n_states=n_states, capped=capped)
    norms = [float(np.linalg.norm(policy.coefs)) for policy in policies if isinstance(policy, SoftmaxPolicy)]
    if len(norms) < n_states:
        return PolicyClass("policies from an unknown class", 0.0)
    rows, n = log.arrays.rows, model.provenance.n_rounds
    longest = float(np.sqrt(np.einsum("nrd,nrd->nr", rows, rows, dtype=np.float64).max()))
    # f(x, a) and f(x, a') lie in separate blocks, or are any two vectors of that length.
    radius = max(norms) * (longest * (2.0 if joint.kind == "per action" else 2.0**0.5))
    return softmax_class(n_coefs=joint.size, n_states=n_states, radius=radius, feature_gap=1.0, n_rounds=n)


def _maximizes(model: "SwitchingModel", low: float) -> Condition:
    learner, rule = model.learner, "the policies maximize the IPS estimate over their class"
    if isinstance(learner, TabularLearner):
        # Rewards are relative to the smallest: if that is at least 0, they stay in the range that the bounds allow for.
        return Condition(rule, learner.objective == "ips" and learner.clip is None and low >= 0)
    if type(learner) is IPSLearner:
        return Condition(f"{rule} (a softmax learner finds a local maximum of a penalized estimate)", None)
    return Condition(f"{rule} ({type(learner).__name__} maximizes a different objective)", False)
