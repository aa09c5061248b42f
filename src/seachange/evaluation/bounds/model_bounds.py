"""The paper's bounds, evaluated for a model and a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from seachange.deploy.exp4s import Exp4S
from seachange.evaluation.bounds.theorems import (
    Bound,
    Condition,
    PolicyClass,
    corollary_bound,
    detector_bound,
    finite_class,
    interval_regret_bound,
    ips_error_bound,
    least_window,
    optimality_gap_bound,
    other_states_bound,
    regret_bound,
    softmax_class,
    switching_regret_bound,
    table_class,
)
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.params import require
from seachange.policies.learners import IPSLearner
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularPolicy
from seachange.policies.tabular_learner import TabularLearner
from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import StateLabels

if TYPE_CHECKING:
    from seachange.model import SwitchingModel


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
    reward_range: tuple[float, float]
    delta: float  # δ₁ = δ₂
    deployed_rounds: int  # T', in the log given


@dataclass(frozen=True)
class ModelBounds:
    """Every bound of the paper for one model."""

    quantities: Quantities
    bounds: tuple[Bound, ...]


def model_bounds(
    log: BanditLog,
    model: SwitchingModel,
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
    source = model.provenance
    own, same_log = model.labels, log.fingerprint() == source.fingerprint
    here = model.oracle.predict(log)
    n, n_actions, low_high = source.n_rounds, log.n_actions, source.reward_range
    length = low_high[1] - low_high[0]
    n_segments, shortest = _segments(own)
    change = _least_change(log, here) if min_change is None else min_change
    ratio, ratio_rule = _max_ratio(log, model, max_ratio)
    wrong, wrong_rule = _wrong_rounds(model, here, delta, wrong_rounds)
    policy_class = _policy_class(log, model)
    detector, window = _detector(model, n_segments, shortest, change, delta, length)
    common = [
        Condition(f"rewards always lie between {low_high[0]:g} and {low_high[1]:g}", None),
        Condition("rounds are independent, given the states", None),
    ]
    if log.propensities_estimated:
        common.append(Condition("the estimated propensities are correct", None))
    offline = [*common, ratio_rule, _maximizes(model)]

    gap = _with(
        optimality_gap_bound(
            n_rounds=n, max_ratio=ratio, wrong_rounds=wrong, policy_class=policy_class, delta_states=delta,
            delta_rewards=delta, reward_range=low_high,
        ),
        [*offline, wrong_rule],
    )  # fmt: skip
    corollary = _with(
        corollary_bound(
            n_rounds=n, n_segments=n_segments, shortest_segment=shortest, min_change=change, max_ratio=ratio,
            policy_class=policy_class, delta_states=delta, delta_rewards=delta, reward_range=low_high,
        ),
        [*offline, _detector_settings(model, n_segments, change, delta, length)],
    )  # fmt: skip
    ips = _with(
        ips_error_bound(
            n_rounds=len(log), max_ratio=ratio, wrong_rounds=wrong * len(log) / n, delta_states=delta,
            delta_rewards=delta, reward_range=low_high,
        ),
        [*common, ratio_rule, wrong_rule, Condition("the policy was not learned from this log", not same_log)],
    )  # fmt: skip
    interval, switching = _online(model, n, n_segments, n_actions, length, common)
    counts, others = (tuple(int(count) for count in labels.counts) for labels in (own, here))
    others = (*others, *(0 for _ in range(len(counts) - len(others))))
    other = other_states_bound(gap, counts=counts, other_counts=others, reward_length=length)
    in_rewards = (ips, gap, corollary, interval, switching, regret_bound(gap, switching), other)
    return ModelBounds(
        Quantities(
            n_rounds=n, n_segments=n_segments, shortest_segment=shortest, n_states=model.n_states, n_actions=n_actions,
            max_ratio=ratio, min_change=change, window=window, wrong_rounds=wrong, policy_class=policy_class.name,
            log_class_size=policy_class.log_size, expected_stay=own.expected_stay, reward_range=low_high, delta=delta,
            deployed_rounds=len(log),
        ),
        (detector, *(_relative_to(log, bound) for bound in in_rewards)),
    )  # fmt: skip


def _with(bound: Bound, conditions: list[Condition]) -> Bound:
    return replace(bound, conditions=(*bound.conditions, *conditions))


def _relative_to(log: BanditLog, bound: Bound) -> Bound:
    """The bound with a trivial bound no larger than the log's mean absolute reward times its rounds."""
    return replace(bound, total=min(bound.total, bound.n_rounds * float(np.abs(log.rewards).mean())))


def _segments(labels: StateLabels) -> tuple[int, int]:
    """S, and the length of the shortest segment."""
    edges = np.concatenate([[0], labels.change_points, [len(labels.states)]])
    return len(labels.change_points) + labels.n_chains, int(np.diff(edges).min())


def _least_change(log: BanditLog, labels: StateLabels) -> float:
    """Δ: the smallest difference in mean reward between adjacent segments."""
    if len(labels.change_points) == 0:
        return float(np.ptp(log.rewards))
    starts = np.concatenate([[0], labels.change_points])
    lengths = np.diff(np.append(starts, len(log)))
    means = np.add.reduceat(log.rewards, starts) / lengths
    return float(np.abs(np.diff(means)).min())


def _max_ratio(log: BanditLog, model: SwitchingModel, given: float | None) -> tuple[float, Condition]:
    """M, and the condition behind it."""
    if given is None and isinstance(model.learner, TabularLearner) and model.learner.max_ratio is not None:
        given = model.learner.max_ratio
    if given is not None:
        probs = model.policies.advice(log.contexts, log.action_mask)[np.arange(len(log)), :, log.actions]
        largest = float((probs.max(axis=1) / log.propensities).max())
        rule = f"every policy in the class has π / π_0 of at most M = {given:g} (on the log: {largest:.3g})"
        return given, Condition(rule, None if largest <= given * (1 + 1e-6) else False)
    if log.logging_probs is None:
        least = float(log.propensities.min())
        return 1 / least, Condition(f"no action ever has a propensity below {least:.3g}", None)
    shown = np.broadcast_to(log.arrays.mask, log.logging_probs.shape)
    least = float(log.logging_probs[shown].min())
    ratio = 1 / least if least > 0 else float("inf")
    return ratio, Condition(f"no action has a propensity below {least:.3g}", True)


def _wrong_rounds(
    model: SwitchingModel, here: StateLabels, delta: float, given: float | None
) -> tuple[float, Condition]:
    """ε, and where it comes from."""
    oracle, n = model.oracle, model.provenance.n_rounds
    if given is not None:
        wrong, why = given, "as given"
    elif isinstance(oracle, HMMOracle) and here.state_probs is not None:
        share = float(1 - here.state_probs.max(axis=1).mean())
        # Markov's inequality on the number of wrong rounds.
        wrong, why = (
            min(share * n / delta, float(n)),
            f"the HMM expects a share of {share:.2g}, if the model is correct",
        )
    elif isinstance(oracle, ChangePointOracle):
        cut = oracle.segmentation_
        if cut.statistic == "reward":
            wrong, why = float(len(cut.change_points) * cut.windows[0]), "by the detector theorem, if it applies"
        else:
            wrong = float((cut.high - cut.low).sum())
            why = "if every change is inside its interval and none was missed"
    else:
        wrong, why = 0.0, "states are assumed known"
    return wrong, Condition(f"at most {wrong:,.0f} rounds have a wrong state ({why})", None)


def _detector(
    model: SwitchingModel, n_segments: int, shortest: int, change: float, delta: float, length: float
) -> tuple[Bound, float]:
    """The theorem for the model's window and threshold, or for the ones the theorem requires."""
    n, oracle = model.provenance.n_rounds, model.oracle
    paper = isinstance(oracle, ChangePointOracle) and oracle.segmentation_.statistic == "reward"
    if paper and isinstance(oracle, ChangePointOracle):
        window, threshold = float(oracle.segmentation_.windows[0]), float(oracle.segmentation_.threshold)
    else:
        window, threshold = least_window(n, change, delta, length), change / 2
    bound = detector_bound(
        n_rounds=n, n_segments=n_segments, window=window, threshold=threshold, min_change=change,
        shortest_segment=shortest, delta=delta, reward_length=length,
    )  # fmt: skip
    rule = "the paper's detector finds the states, one per segment"
    return _with(bound, [Condition(rule, paper and model.n_states == n_segments)]), window


def _detector_settings(model: SwitchingModel, n_segments: int, change: float, delta: float, length: float) -> Condition:
    window, oracle = least_window(model.provenance.n_rounds, change, delta, length), model.oracle
    holds = False
    if isinstance(oracle, ChangePointOracle) and oracle.segmentation_.statistic == "reward":
        cut = oracle.segmentation_
        as_required = bool(cut.windows[0] == window and np.isclose(cut.threshold, change / 2))
        holds = as_required and model.n_states == n_segments
    rule = f"the paper's detector finds the states, one per segment, with w = {window:,.0f} and c = {change / 2:.3g}"
    return Condition(rule, holds)


def _online(
    model: SwitchingModel, n: int, n_segments: int, n_actions: int, length: float, common: list[Condition]
) -> tuple[Bound, Bound]:
    deployer = Exp4S(model.policies, reward_range=model.provenance.reward_range)
    rate = deployer.rate(n_actions) if model.n_states > 1 else 1.0
    settings = {
        "n_states": model.n_states,
        "n_actions": n_actions,
        "learning_rate": rate,
        "share_rate": deployer.share_rate,
        "exploration": deployer.exploration,
        "reward_length": length,
    }
    rules = [common[0], Condition('Exp4.S is deployed: model.deployer("exp4s")', None)]
    interval = interval_regret_bound(length=deployer.stay, **settings)  # type: ignore[arg-type]
    switching = switching_regret_bound(n_rounds=n, n_segments=n_segments, **settings)  # type: ignore[arg-type]
    return _with(interval, rules), _with(switching, rules)


def _policy_class(log: BanditLog, model: SwitchingModel) -> PolicyClass:
    policies, joint, n_states = list(model.policies), log.joint, model.n_states
    tables = [policy for policy in policies if isinstance(policy, TabularPolicy)]
    if len(tables) == n_states:
        capped = isinstance(model.learner, TabularLearner) and model.learner.max_ratio is not None
        n_contexts = max(len(policy.probs) for policy in tables)
        return table_class(n_contexts=n_contexts, n_actions=joint.n_actions, n_states=n_states, capped=capped)
    norms = [float(np.linalg.norm(policy.coefs)) for policy in policies if isinstance(policy, SoftmaxPolicy)]
    if len(norms) < n_states:
        return replace(finite_class(1), name="policies from an unknown class")
    rows = log.arrays.rows
    longest = float(np.sqrt(np.einsum("nrd,nrd->nr", rows, rows, dtype=np.float64).max()))
    # f(x, a) and f(x, a') lie in separate blocks, or are any two vectors of that length.
    gap = longest * (2.0 if joint.kind == "per action" else 2.0**0.5)
    return softmax_class(
        n_coefs=joint.size, n_states=n_states, radius=max(norms) * gap, feature_gap=1.0,
        n_rounds=model.provenance.n_rounds,
    )  # fmt: skip


def _maximizes(model: SwitchingModel) -> Condition:
    learner, rule = model.learner, "the policies maximize the IPS estimate over their class"
    if isinstance(learner, TabularLearner):
        return Condition(rule, learner.objective == "ips" and learner.clip is None)
    if type(learner) is IPSLearner:
        return Condition(f"{rule} (a softmax learner finds a local maximum of a penalized estimate)", None)
    return Condition(f"{rule} ({type(learner).__name__} maximizes a different objective)", False)
