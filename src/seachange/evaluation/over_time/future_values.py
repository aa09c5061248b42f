"""The value at a future time, from past rounds at similar times (OPFV, Shimizu et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from seachange.evaluation.diagnostics import LEAST_EFFECTIVE, NoEstimateError, Reason, diagnostics_of, require_sound
from seachange.evaluation.formulas import Parts
from seachange.evaluation.intervals import normal_interval, standard_error
from seachange.evaluation.over_time.time_features import TimeFeature, features_of, moments_of, times_of
from seachange.evaluation.support import (
    Distribution,
    PolicyLike,
    Support,
    SupportSums,
    distribution_of,
    effective_samples,
    membership_of,
    slices_of,
)
from seachange.evaluation.terms import FOLDS, terms_of
from seachange.evaluation.value_estimate import FEWEST, ValueEstimate
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels

# Pseudo-rounds that shrink an action's reward at a time toward its reward at any time.
SHRINKAGE = 20.0
# With fewer similar times, the variation between them is unknown.
FEW_TIMES = 8
# Standard errors beyond which contexts at the future time differ from the others by more than chance.
SURPRISING = 4.5
# Relative differences of means below this are rounding.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, repr=False)
class FutureEstimate(ValueEstimate):
    """A policy's mean reward per round at a future time."""

    share: float  # of the log's rounds that are at similar times
    n_alike: int  # how many those are
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Times:
    """Which rounds are at times like the future ones."""

    cells: Ints  # (n,) the index of φ(t_i)
    future: Floats  # (C,) frequency of each φ at the future times
    seen: Floats  # (C,) frequency of each φ in the log

    @property
    def weights(self) -> Floats:
        """(n,) 1{φ(t_i) = φ(t')} / p(φ(t')); the mean over several future times."""
        return np.asarray((self.future / self.seen)[self.cells])


@dataclass(frozen=True, eq=False)
class _Terms:
    """The terms of V̂."""

    weights: Floats  # (n,) w_i
    residuals: Floats  # (n,) r_i - f̂(x_i, t_i, a_i)
    direct: Floats  # (n,) Σ_a π(a | x_i) f̂(x_i, t', a)
    alike: Floats  # (n,) 1{φ(t_i) = φ(t')} / p̂(φ(t'))
    support: Support  # of the rounds at similar times


def evaluate_future(
    log: BanditLog,
    policy: PolicyLike,
    at: npt.ArrayLike,
    *,
    recurs: TimeFeature = "weekday",
    contexts: Literal["all", "alike"] = "all",
    labels: StateLabels | None = None,
    confidence: float = 0.95,
    force: bool = False,
) -> FutureEstimate:
    """Estimate what ``policy`` would earn per round at the time ``at``, which may be in the future.

    V̂ = 1/n Σ_i [1{φ(t_i) = φ(t')} / p̂(φ(t')) w_i (r_i - f̂(x_i, t_i, a_i)) + Σ_a π(a | x_i) f̂(x_i, t', a)]

    ``recurs`` is φ: "hour", "weekday", "hour of the week", or a function from times to labels (holidays, say); ``at``
    is one time or several (seconds, datetime64, "2026-03-28T12:00"), over which the value is averaged. f̂ = r̂(x, a) +
    the extra reward of action a at φ, both fitted on other blocks of time. Anything that φ does not capture, such as a
    trend, is not predicted.

    ``contexts`` says which contexts to expect: those of "all" rounds, or only of rounds at similar times ("alike") if
    contexts also depend on φ; a note says when they do. ``labels`` are for a ``PolicySet``, as in ``evaluate``:
    future states are assumed to be distributed as in the log.

    Raises ``RefusedError`` if too few rounds are at similar times, or if those rounds cannot support the policy;
    ``force`` returns an estimate anyway, with a warning.
    """
    require(contexts in ("all", "alike"), f'contexts must be "all" or "alike"; got {contexts!r}.')
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require_rewards(log, "evaluating a policy at a future time")
    require_propensities(log, "evaluating a policy at a future time")
    logged = times_of(log, "a value at a future time")
    times = _similar_times(logged, moments_of(at), recurs)
    probs_of, membership = distribution_of(log, policy, labels, False), membership_of(log, labels, False)
    terms = _terms(log, probs_of, membership, times)
    alike, weights, direct = terms.alike, terms.alike * terms.weights, terms.direct
    effective = effective_samples(weights)
    _require_support(log, terms, effective, recurs, force)
    clusters, notes = Clusters(log), []
    own = Parts(None, alike * direct, alike)
    gap = standard_error(Parts(direct, -alike * direct, alike), clusters)
    apart = abs(float(direct.mean()) - own.value)
    if contexts == "all" and apart > max(SURPRISING * gap, ROUNDING * abs(own.value)):
        notes.append('Contexts at that time differ from those of all rounds; contexts="alike" uses only theirs.')
    here = np.concatenate([[False], alike[np.argsort(logged, kind="stable")] > 0])
    n_times = int((here[1:] & ~here[:-1]).sum())
    if n_times < FEW_TIMES:
        notes.append(
            f"The log has {n_times} such time{'' if n_times == 1 else 's'}, too few to measure how they differ from "
            "each other; the interval covers only the noise of rewards. Use a longer log."
        )
    corrections = weights * terms.residuals
    parts = Parts(corrections + direct) if contexts == "all" else Parts(corrections, alike * direct, alike)
    known = min(effective, float(weights.sum())) >= FEWEST
    error = standard_error(parts, clusters) if known else np.inf
    low, high = normal_interval(parts.value, error, clusters, confidence)
    return FutureEstimate(
        estimator="opfv",
        value=parts.value,
        std_error=error,
        low=low,
        high=high,
        effective_samples=effective,
        max_weight=float(weights.max()),
        confidence=confidence,
        share=float((alike > 0).mean()),
        n_alike=int((alike > 0).sum()),
        notes=tuple(notes),
    )


def _require_support(log: BanditLog, terms: _Terms, effective: float, recurs: TimeFeature, force: bool) -> None:
    """Raise if the rounds at similar times cannot support the policy."""
    if effective < LEAST_EFFECTIVE and not force:
        fixes = ["use a longer log", "use a policy closer to the logging policy"]
        if recurs != "hour":
            fixes.insert(1, "use times that recur more often")
        problem = (
            f"Only {effective:.1f} effective rounds of {len(log):,} are at similar times; at least "
            f"{LEAST_EFFECTIVE:.0f} are needed."
        )
        none = ("use a policy whose actions the log took at such times",)
        numbers = {"effective_samples": effective, "needed": LEAST_EFFECTIVE}
        reason = Reason("effective sample size", problem, tuple(fixes) if effective > 0 else none, numbers)
        raise NoEstimateError((reason,))
    part = log.take(np.flatnonzero(terms.alike))
    require_sound(diagnostics_of(part, terms.support, np.inf, clips=False), force)


def _similar_times(times: npt.NDArray[Any], at: npt.NDArray[Any], recurs: TimeFeature) -> _Times:
    labels, cells = np.unique(features_of(times, recurs), return_inverse=True)
    requested = features_of(at, recurs)
    missing = requested[~np.isin(requested, labels)]
    if len(missing):
        name = getattr(recurs, "__name__", "a function") if callable(recurs) else f'"{recurs}"'
        problem = (
            f"The log has no rounds at {missing[0]!s} by recurs={name}; it has "
            f"{', '.join(str(label) for label in labels[:8])}."
        )
        reason = Reason("similar times", problem, ("use a longer log", "use a coarser recurs"))
        raise NoEstimateError((reason,), can_force=False)
    future = np.bincount(np.searchsorted(labels, requested), minlength=len(labels)) / len(requested)
    cells = cells.reshape(-1)
    return _Times(cells, future, np.bincount(cells, minlength=len(labels)) / len(cells))


def _terms(log: BanditLog, probs_of: Distribution, membership: Floats, times: _Times) -> _Terms:
    arrays, folds, alike = log.arrays, Clusters(log).folds(FOLDS), times.weights
    terms, _ = terms_of(log, probs_of, membership, np.inf, frozenset({"model"}))
    residuals, direct = terms.rewards - terms.predicted, terms.direct.copy()
    extra = _extra_rewards(residuals, folds, times.cells, arrays.actions, len(times.seen), log.n_actions)
    # f̂(x, t', a) = r̂(x, a) + the extra reward of a at the future times.
    expected = np.einsum("c,fca->fa", times.future, extra)
    sums, before = SupportSums(log.take(np.flatnonzero(alike))), np.concatenate([[0], np.cumsum(alike > 0)])
    for rounds in slices_of(log):
        probs = probs_of(rounds)
        direct[rounds] += np.einsum("ta,ta->t", probs, expected[folds[rounds]])
        within = slice(int(before[rounds.start]), int(before[rounds.stop]))
        sums.add(within, probs[alike[rounds] > 0])
    return _Terms(terms.weights, residuals - extra[folds, times.cells, arrays.actions], direct, alike, sums.total())


def _extra_rewards(residuals: Floats, folds: Ints, cells: Ints, actions: Ints, n_cells: int, n_actions: int) -> Floats:
    """(folds, C, K) what an action earns at φ beyond its usual reward, from other folds; shrunk toward 0."""
    n_folds = int(folds.max()) + 1
    shape = (n_folds, n_cells, n_actions)
    places = np.ravel_multi_index((folds, cells, actions), shape)
    sums = np.bincount(places, residuals, minlength=int(np.prod(shape))).reshape(shape)
    counts = np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
    others, elsewhere = sums.sum(axis=0) - sums, counts.sum(axis=0) - counts
    return np.asarray(others / (elsewhere + SHRINKAGE))
