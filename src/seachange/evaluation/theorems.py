"""The paper's theorems: each bound as printed, as it can be proved, and its conditions, evaluated for a model."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

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


def softmax_class(n_rounds: int, *, n_coefs: int, n_states: int, radius: float) -> PolicyClass:
    """Softmax policies with |θ_z| ≤ W in every state, W = ``radius`` rounded up to a power of 2.

    |log π_θ(a | x) - log π_θ'(a | x)| ≤ G |θ - θ'|, G the largest |f(x, a) - f(x, a')|; θ is in units in which G = 1.
    Policies within r = log(1 + 1 / T) of each other differ by at most M ρ in V̂ and in V over T rounds: s = 2. At most
    (1 + 2 W / r)^d points of a ball are r apart, in each of L states. Choosing W = 2^j among powers of 2
    costs log(π² (j + 1)² / 6).
    """
    power = max(math.ceil(math.log2(radius)), 0) if radius > 1 else 0
    net = math.log1p(1 / n_rounds)
    name = f"softmax policies with {n_coefs} coefficients, norm up to {2**power:,}"
    log_size = n_states * n_coefs * math.log1p(2 * 2.0**power / net)
    return PolicyClass(name, log_size, slack=2.0, choice_price=math.log(math.pi**2 * (power + 1) ** 2 / 6))


@dataclass(frozen=True)
class Condition:
    """A condition of a bound."""

    rule: str
    holds: bool | None  # None: cannot be checked on a log


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """The quantities in the bounds."""

    n_rounds: int  # T, in the log that was learned from
    n_segments: int = 1  # S
    shortest_segment: float = math.inf
    n_states: int = 1  # L
    n_actions: int = 1  # K
    max_ratio: float = 1.0  # M
    min_change: float = 1.0  # Δ
    window: float = 1.0  # w of the detector
    threshold: float = 0.5  # c of the detector
    wrong_rounds: float = 0.0  # ε
    policy_class: PolicyClass = PolicyClass("one policy", 0.0)
    expected_stay: float = 1.0  # ℓ
    learning_rate: float = 1.0  # η
    share_rate: float = 1.0  # β
    exploration: float = 0.0  # γ
    baseline: float = 1.0  # b: the reward that costs 0, for rewards scaled to [0, 1]
    reward_range: Range = (0.0, 1.0)
    delta: float = 0.05  # δ₁ = δ₂: failure probability, for states and for rewards

    def __post_init__(self) -> None:
        for name in ("n_rounds", "n_states", "n_actions"):
            require_count(name, getattr(self, name))
        rule = f"n_segments must be between 1 and {self.n_rounds}, the number of rounds; got {self.n_segments}."
        require(1 <= self.n_segments <= self.n_rounds, rule)
        require(0 < self.delta < 1, f"delta must be between 0 and 1; got {self.delta}.")
        require(self.max_ratio > 0, f"max_ratio must be positive; got {self.max_ratio}.")
        require(self.min_change >= 0, f"min_change must be at least 0; got {self.min_change}.")
        low, high = self.reward_range
        require(high > low, f"reward_range must be (least, most); got {self.reward_range}.")
        require(0 <= self.exploration < 1, f"exploration must be at least 0 and below 1; got {self.exploration}.")

    @property
    def length(self) -> float:
        """R: the length of the reward range."""
        return self.reward_range[1] - self.reward_range[0]

    @property
    def span(self) -> float:
        """B: the length of the smallest interval that contains the reward range and 0."""
        return max(self.reward_range[1], 0.0) - min(self.reward_range[0], 0.0)

    @property
    def largest(self) -> float:
        """ρ: the largest |r|."""
        return max(map(abs, self.reward_range))


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
    informative_from: float | None = None  # rounds in a log from which it would not be vacuous; None: at no length

    @property
    def vacuous(self) -> bool:
        """Whether the corrected bound is no better than the trivial one."""
        return not self.corrected < self.total

    @property
    def n_broken(self) -> int:
        """How many conditions fail."""
        return sum(condition.holds is False for condition in self.conditions)

    @property
    def verdict(self) -> Literal["vacuous", "does not apply", "conditional", "applies"]:
        """In a word: "conditional" means that some conditions cannot be checked on a log."""
        if self.vacuous:
            return "vacuous"
        if self.n_broken:
            return "does not apply"
        return "applies" if all(condition.holds for condition in self.conditions) else "conditional"


def least_window(n_rounds: int, min_change: float, delta: float, length: float = 1.0) -> float:
    """w = ⌈4 R² log(4 T / δ) / Δ²⌉: the shortest window for which c = Δ / 2 satisfies ``detector_bound``."""
    if min_change == 0:
        return math.inf
    return float(math.ceil(4 * (length / min_change) ** 2 * math.log(4 * n_rounds / delta)))


def detector_bound(q: Quantities) -> Bound:
    """Rounds that the paper's change-point detector mislabels: (S - 1) w; printed S w.

    Needs Δ / 2 ≥ c ≥ R √(log(4 T / δ) / w), R the length of the reward range; printed √(2 log(8 T / δ) / w), for R = 1.
    """
    least = q.length * math.sqrt(math.log(4 * q.n_rounds / q.delta) / q.window) if q.window > 0 else math.inf
    shift = f"every change shifts the logging policy's mean reward by at least 2 c = {2 * q.threshold:.3g}"
    conditions = (
        Condition(f"every segment is longer than 4 w = {4 * q.window:,.0f} rounds", q.shortest_segment > 4 * q.window),
        Condition(f"the threshold c = {q.threshold:.3g} is at least {least:.3g}", q.threshold >= least),
        Condition(shift, None if q.min_change >= 2 * q.threshold else False),
    )
    flaw = "there are S - 1 changes, not S; only for rewards in [0, 1]"
    wrong = (q.n_segments - 1) * q.window if q.n_segments > 1 else 0.0
    numbers = (q.n_segments * q.window, flaw, wrong, q.n_rounds, float(q.n_rounds), 1 - q.delta)
    return Bound("detector error", "mislabeled rounds", *numbers, conditions)


def ips_error_bound(q: Quantities) -> Bound:
    """|V(Π) - V̂(Π)| for a fixed policy: M ρ ε(δ₁) + M B √(T log(2 / δ₂) / 2), ρ the largest |r|.

    Printed: M ε(δ₁ / 2) + M √(2 T log(4 / δ₂)).
    """
    printed = q.max_ratio * (q.wrong_rounds + math.sqrt(2 * q.n_rounds * math.log(4 / q.delta)))
    flaw = "the second term is more than twice as large as needed; only for rewards in [0, 1]"
    noise = q.span * math.sqrt(q.n_rounds * math.log(2 / q.delta) / 2)
    bounded = "|V - V̂| for a fixed policy, in total reward"
    numbers = (printed, flaw, q.max_ratio * (q.largest * q.wrong_rounds + noise))
    return Bound("IPS error", bounded, *numbers, q.n_rounds, q.n_rounds * q.span, 1 - 2 * q.delta)


def optimality_gap_bound(q: Quantities) -> Bound:
    """V(Π*) - V(Π̂), the maximizers of V and V̂ over a class: uniform over the class for Π̂, pointwise for Π*.

    2 M ρ ε(δ₁) + M B √(T d / 2) + M B √(T (d + log N) / 2) + s M ρ,  d = log(2 / δ₂) + the price of choosing the class

    log N and s belong to the class (see ``PolicyClass``). Printed: 2 M ε(δ₁ / 2) + 2 M √(2 T log(4 / δ₂)).
    """
    one, certainty = ips_error_bound(q), math.log(2 / q.delta) + q.policy_class.choice_price
    pointwise, uniform = (
        math.sqrt(q.n_rounds * depth / 2) for depth in (certainty, certainty + q.policy_class.log_size)
    )
    return replace(
        one,
        name="optimality gap",
        bounds="V(Π*) - V(Π̂) with known states, in total reward",
        printed=2 * one.printed,
        printed_flaw="unproved: it applies a lemma for fixed policies to the learned policy",
        corrected=q.max_ratio
        * (q.largest * (2 * q.wrong_rounds + q.policy_class.slack) + q.span * (pointwise + uniform)),
        total=q.n_rounds * q.length,
    )


def interval_regret_bound(q: Quantities) -> Bound:
    """Expected regret of Exp4.S against any single expert over any ℓ consecutive rounds.

    R ((log(L / β) + ℓ log(1 / (1 - β))) / η + v ℓ + γ ℓ), with v as in ``_regret``. If b = 1, β = 1 / ℓ and
    η² = (log(L ℓ) + 2) / (K ℓ), it is below 2 R √(K ℓ (log(L ℓ) + 2)). Printed: √(2 ℓ K log L).
    """
    length = q.expected_stay
    bounded = f"expected regret against the best expert over {length:,.0f} rounds"
    printed = math.sqrt(2 * length * q.n_actions * math.log(q.n_states))
    regret, flaw = _regret(q, length, math.log(q.n_states / q.share_rate)), "does not follow under either reading of β"
    return Bound("Exp4.S, one interval", bounded, printed, flaw, regret, length, length * q.length)


def switching_regret_bound(q: Quantities) -> Bound:
    """Expected regret of Exp4.S against the best expert in every segment.

    R ((log L + (S - 1) log(L / β) + T log(1 / (1 - β))) / η + v T + γ T). Printed: 2 √(S T K log L).
    """
    switches = math.log(q.n_states) + (q.n_segments - 1) * math.log(q.n_states / q.share_rate)
    bounded = "expected regret against the best expert in every segment"
    printed = 2 * math.sqrt(q.n_segments * q.n_rounds * q.n_actions * math.log(q.n_states))
    flaw = "the printed lemma gives 2 √(2 S T K log L), and the lemma itself does not follow"
    regret, total = _regret(q, q.n_rounds, switches), q.n_rounds * q.length
    return Bound("Exp4.S, all segments", bounded, printed, flaw, regret, q.n_rounds, total)


def _regret(q: Quantities, length: float, switches: float) -> float:
    """R (divergence / η + v ℓ + γ ℓ). Costs b - r of rewards scaled to [0, 1] are between b - 1 and b, so that

    v = min{η K / (1 - γ) max{b² / 2, (1 - b)² (e^y - 1 - y) / y²},  η K b² / (2 (1 - γ)) + (1 - b) min{K, L}}

    y = η (1 - b) max π_z(a) / 𝓔(a) is the largest logarithm of a gain; the ratio is at most K / γ and L / (β (1 - γ)).
    """
    if q.n_states == 1:
        return q.length * q.exploration * length
    if q.share_rate >= 1:
        return math.inf
    gain, kept = 1 - q.baseline, 1 - q.exploration
    ratio = min(q.n_states / (q.share_rate * kept), q.n_actions / max(q.exploration, 1e-300))
    y = q.learning_rate * gain * ratio
    curvature = (math.expm1(min(y, 700.0)) - y) / y**2 if y > 1e-4 else 0.5 + y
    loss, win = q.baseline**2 / 2, gain**2 * curvature
    scale = q.learning_rate * q.n_actions / kept
    noise = min(scale * max(loss, win), scale * loss + gain * min(q.n_actions, q.n_states))
    divergence = (switches - length * math.log1p(-q.share_rate)) / q.learning_rate
    return q.length * (divergence + (noise + q.exploration) * length)


def regret_bound(q: Quantities) -> Bound:
    """Regret of deploying the learned policies on the log's states: optimality gap plus switching regret."""
    gap, switching = optimality_gap_bound(q), switching_regret_bound(q)
    return replace(
        gap,
        name="regret",
        bounds="regret of the deployment against Π* with known states, in total reward",
        printed=gap.printed + switching.printed,
        printed_flaw="the sum of two bounds that do not hold as printed",
        corrected=gap.corrected + switching.corrected,
    )


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
    exploration: float = 0.0,
) -> ModelBounds:
    """Evaluate the paper's bounds for ``model`` and for a deployment on rounds like those of ``log``.

    ``delta`` is the failure probability for each source of randomness, states and rewards. ``max_ratio`` (M)
    defaults to 1 / the smallest propensity, which no policy exceeds; ``min_change`` (Δ) to the smallest change of mean
    reward between segments of ``log``; ``wrong_rounds`` (ε) to the oracle's own estimate, which is proved only for the
    paper's detector. Exp4.S is ``model.deployer("exp4s", exploration=exploration)``.
    """
    require_rewards(log, "evaluating bounds")
    require_propensities(log, "evaluating bounds")
    require(0 < delta < 1, f"delta must be between 0 and 1; got {delta}.")
    source, own, here = model.provenance, model.labels, model.oracle.predict(log)
    n, (low, high) = source.n_rounds, source.reward_range
    change = _least_change(log, here) if min_change is None else min_change
    ratio, ratio_rule = _max_ratio(log, model, max_ratio)
    wrong, wrong_rule, grows = _wrong_rounds(model, here, delta, wrong_rounds)
    deployer, class_for = Exp4S.from_model(model, exploration=exploration, memory=1), _policy_class(log, model)
    cut = model.oracle.segmentation_ if isinstance(model.oracle, ChangePointOracle) else None
    paper = cut if cut is not None and cut.statistic == "reward" else None
    shortest = int(np.diff(np.concatenate([[0], own.change_points, [len(own.states)]])).min())
    # No bound on a reward is worth more than the log's mean absolute reward times its rounds.
    earned = float(np.abs(log.rewards).mean())

    def quantities(times: float) -> Quantities:
        """The quantities of a log in which every segment is ``times`` as long."""
        slower, n_rounds = replace(deployer, expected_stay=times * deployer.stay), round(times * n)
        required = least_window(n_rounds, change, delta, high - low)
        return Quantities(
            n_rounds=n_rounds, n_segments=len(own.change_points) + own.n_chains, shortest_segment=times * shortest,
            n_states=model.n_states, n_actions=log.n_actions, max_ratio=ratio, min_change=change, delta=delta,
            window=required if paper is None else float(paper.windows[0]),
            threshold=change / 2 if paper is None else paper.threshold,
            wrong_rounds=wrong * (times if grows else 1), policy_class=class_for(n_rounds), reward_range=(low, high),
            expected_stay=slower.stay, learning_rate=slower.rate(log.n_actions), share_rate=slower.share_rate,
            exploration=exploration, baseline=slower.baseline,
        )  # fmt: skip

    def bounds_at(times: float) -> list[Bound]:
        q, share = quantities(times), len(log) / n
        ips = replace(q, n_rounds=round(times * len(log)), n_segments=1, wrong_rounds=share * q.wrong_rounds)
        theorems = (optimality_gap_bound, interval_regret_bound, switching_regret_bound, regret_bound)
        found = [ips_error_bound(ips), *(theorem(q) for theorem in theorems)]
        return [detector_bound(q), *(replace(b, total=min(b.total, b.n_rounds * earned)) for b in found)]

    given = f", exploration={exploration:g}" if exploration else ""
    online = Condition(f'Exp4.S is deployed: model.deployer("exp4s"{given})', None)
    bounded = Condition(f"rewards always lie between {low:g} and {high:g}", None)
    offline = [bounded, Condition("rounds are independent, given the states", None), ratio_rule, wrong_rule]
    if log.propensities_estimated:
        offline.append(Condition("the estimated propensities are correct", None))
    new = Condition("the policy was not learned from this log", not source.holds(log))
    one_each = paper is not None and model.n_states == len(own.change_points) + own.n_chains
    detector = Condition("the paper's detector finds the states, one per segment", one_each)
    gap = [*offline, _maximizes(model, low)]
    conditions = ([detector], [*offline, new], gap, [bounded, online], [bounded, online], [*gap, online])
    found = zip(bounds_at(1), conditions, _informative_from(bounds_at), strict=True)
    return ModelBounds(
        quantities(1),
        tuple(
            replace(each, conditions=(*each.conditions, *more), informative_from=times and times * n)
            for each, more, times in found
        ),
    )


def _informative_from(bounds_at: Callable[[float], list[Bound]]) -> list[float | None]:
    """How many times as long a log must be for each bound not to be vacuous, within 12%; None: at no length."""
    lengths = 10.0 ** np.arange(0, 18, 0.05)
    vacuous = np.array([[bound.vacuous for bound in bounds_at(times)] for times in lengths.tolist()])
    longest = [int(np.flatnonzero(each)[-1]) if each.any() else -1 for each in vacuous.T]
    return [None if last + 1 == len(lengths) else float(lengths[last + 1]) for last in longest]


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
) -> tuple[float, Condition, bool]:
    """ε, where it comes from, and whether it grows with the log."""
    oracle, n, grows = model.oracle, model.provenance.n_rounds, False
    wrong, why = 0.0, "states are assumed known"
    if given is not None:
        wrong, why = given, "as given"
    elif isinstance(oracle, HMMOracle) and here.state_probs is not None:
        share = float(1 - here.state_probs.max(axis=1).mean())
        # Markov's inequality on the number of wrong rounds.
        wrong, grows = min(share * n / delta, float(n)), True
        why = f"the HMM expects a share of {share:.2g}, if the model is correct"
    elif isinstance(oracle, ChangePointOracle):
        found = oracle.segmentation_
        if found.statistic == "reward":
            wrong, why = len(found.change_points) * float(found.windows[0]), "by the detector theorem, if it applies"
        else:
            wrong, why = float((found.high - found.low).sum()), "if every change is in its interval and none was missed"
    return wrong, Condition(f"at most {wrong:,.0f} rounds have a wrong state ({why})", None), grows


def _policy_class(log: BanditLog, model: "SwitchingModel") -> Callable[[int], PolicyClass]:
    """The class of the model's policies, given the number of rounds."""
    policies, joint, n_states = list(model.policies), log.joint, model.n_states
    tables = [policy for policy in policies if isinstance(policy, TabularPolicy)]
    if len(tables) == n_states:
        capped = isinstance(model.learner, TabularLearner) and model.learner.max_ratio is not None
        n_contexts = max(len(policy.probs) for policy in tables)
        tabular = table_class(n_contexts=n_contexts, n_actions=joint.n_actions, n_states=n_states, capped=capped)
        return lambda n_rounds: tabular
    norms = [float(np.linalg.norm(policy.coefs)) for policy in policies if isinstance(policy, SoftmaxPolicy)]
    if len(norms) < n_states:
        return lambda n_rounds: PolicyClass("policies from an unknown class", 0.0)
    rows = log.arrays.rows
    longest = float(np.sqrt(np.einsum("nrd,nrd->nr", rows, rows, dtype=np.float64).max()))
    # f(x, a) and f(x, a') lie in separate blocks, or are any two vectors of that length.
    radius = max(norms) * (longest * (2.0 if joint.kind == "per action" else 2.0**0.5))
    return partial(softmax_class, n_coefs=joint.size, n_states=n_states, radius=radius)


def _maximizes(model: "SwitchingModel", low: float) -> Condition:
    learner, rule = model.learner, "the policies maximize the IPS estimate over their class"
    if isinstance(learner, TabularLearner):
        # Rewards are relative to the smallest: if that is at least 0, they stay in the range that the bounds allow for.
        return Condition(rule, learner.objective == "ips" and learner.clip is None and low >= 0)
    if type(learner) is IPSLearner:
        return Condition(f"{rule} (a softmax learner finds a local maximum of a penalized estimate)", None)
    return Condition(f"{rule} ({type(learner).__name__} maximizes a different objective)", False)
