"""The value at a time to come, from rounds at which the same was expected of the world (OPFV, Shimizu et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from seachange.errors import RefusedError
from seachange.evaluation.cross_fitting import FOLDS
from seachange.evaluation.diagnostics import LEAST_EFFECTIVE, diagnostics_of, require_sound
from seachange.evaluation.formulas import Parts
from seachange.evaluation.intervals import normal_interval, standard_error
from seachange.evaluation.support import (
    Distribution,
    Judged,
    Support,
    SupportSums,
    distribution_of,
    effective_samples,
    membership_of,
    parts_of,
)
from seachange.evaluation.terms import terms_of
from seachange.evaluation.time_features import TimeFeature, features_of, moments_of, times_of
from seachange.evaluation.value_estimate import FEWEST, ValueEstimate
from seachange.log.bandit_log import BanditLog, require_propensities, require_rewards
from seachange.log.clusters import Clusters
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.states.labels import StateLabels

# Pseudo-rounds that pull what an action earns at a time to what it earns at any.
SHRINKAGE = 20.0
# Fewer times that are alike than this do not tell how times differ.
FEW_TIMES = 8
# Standard errors by which contexts of the time to come differ from others more than chance makes them.
SURPRISING = 4.5
# Means that differ by less, as a share of them, do not.
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, repr=False)
class FutureEstimate(ValueEstimate):
    """Mean reward a round that a policy would earn at a time to come."""

    share: float  # of the log's rounds that are like that time
    n_alike: int  # how many those are
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Times:
    """Which rounds are like the time to come."""

    cells: Ints  # (n,) the number of φ(t_i)
    wanted: Floats  # (C,) how often each φ comes at the times to come
    seen: Floats  # (C,) how often each is in the log

    @property
    def weights(self) -> Floats:
        """(n,) 1{φ(t_i) = φ(t')} / p(φ(t')); of several times to come, their mean."""
        return np.asarray((self.wanted / self.seen)[self.cells])


@dataclass(frozen=True, eq=False)
class _Terms:
    """What V̂ is made of."""

    weights: Floats  # (n,) w_i
    residuals: Floats  # (n,) r_i - f̂(x_i, t_i, a_i)
    direct: Floats  # (n,) Σ_a π(a | x_i) f̂(x_i, t', a)
    alike: Floats  # (n,) 1{φ(t_i) = φ(t')} / p̂(φ(t'))
    support: Support  # of the rounds that are alike


def evaluate_future(
    log: BanditLog,
    policy: Judged,
    at: npt.ArrayLike,
    *,
    recurs: TimeFeature = "weekday",
    contexts: Literal["all", "alike"] = "all",
    labels: StateLabels | None = None,
    confidence: float = 0.95,
    force: bool = False,
) -> FutureEstimate:
    """Estimate what ``policy`` would earn a round at the time ``at``, which may be still to come.

    V̂ = 1/n Σ_i [1{φ(t_i) = φ(t')} / p̂(φ(t')) w_i (r_i - f̂(x_i, t_i, a_i)) + Σ_a π(a | x_i) f̂(x_i, t', a)]

    ``recurs`` is φ: "hour", "weekday", "hour of the week", or a function from times to labels (holidays, say); ``at``
    is one time or several (seconds, datetime64, "2026-03-28T12:00"), whose mean value is meant. f̂ = r̂(x, a) + what
    action a earns more at φ, both fitted on other blocks of time. What φ does not tell apart, such as a trend, is not
    foretold.

    ``contexts`` says whose contexts will come: those of "all" rounds, or only of rounds "alike", where they follow φ,
    too; a note says where they do. ``labels`` are for a ``PolicySet``, as in ``evaluate``: the states to come are
    taken to be like those of the log.

    Raises ``RefusedError`` where too few rounds are alike, or where those that are cannot support the policy; ``force``
    answers all the same, with a warning.
    """
    require(contexts in ("all", "alike"), f'contexts must be "all" or "alike"; got {contexts!r}.')
    require(0 < confidence < 1, f"confidence must be between 0 and 1; got {confidence}.")
    require_rewards(log, "evaluating a policy at a time to come")
    require_propensities(log, "evaluating a policy at a time to come")
    logged = times_of(log, "a value at a time to come")
    times = _alike(logged, moments_of(at), recurs)
    probs_of, membership = distribution_of(log, policy, labels, False), membership_of(log, labels, False)
    terms = _terms(log, probs_of, membership, times)
    alike, weights, direct = terms.alike, terms.alike * terms.weights, terms.direct
    effective = effective_samples(weights)
    _require_ground(log, terms, effective, recurs, force)
    clusters, notes = Clusters(log), []
    own = Parts(None, alike * direct, alike)
    gap = standard_error(Parts(direct, -alike * direct, alike), clusters)
    apart = abs(float(direct.mean()) - own.value)
    if contexts == "all" and apart > max(SURPRISING * gap, ROUNDING * abs(own.value)):
        notes.append('contexts differ at that time from those of all rounds: contexts="alike" takes only theirs.')
    here = np.concatenate([[False], alike[np.argsort(logged, kind="stable")] > 0])
    n_times = int((here[1:] & ~here[:-1]).sum())
    if n_times < FEW_TIMES:
        notes.append(
            f"the log has {n_times} such time{'' if n_times == 1 else 's'}: by how much one differs from the next "
            "beyond the noise of rewards is not in the interval. A longer log would tell."
        )
    plain = weights * terms.residuals
    parts = Parts(plain + direct) if contexts == "all" else Parts(plain, alike * direct, alike)
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


def _require_ground(log: BanditLog, terms: _Terms, effective: float, recurs: TimeFeature, force: bool) -> None:
    """Raise where the rounds that are like the time to come cannot speak of the policy."""
    if effective < LEAST_EFFECTIVE and not force:
        more = ", times that recur more often," if recurs != "hour" else ""
        longer = f"A longer log{more} or a policy closer to the one that logged"
        raise RefusedError(
            f"no value: {effective:.1f} effective rounds of {len(log):,} are like that time and speak for this policy, "
            f"and at least {LEAST_EFFECTIVE:.0f} are needed. "
            f"{longer if effective > 0 else 'A policy of actions that the log took at such times'} would cure it. "
            "force=True gives the number all the same."
        )
    part = log.take(np.flatnonzero(terms.alike))
    require_sound(diagnostics_of(part, terms.support, np.inf, clips=False), force)


def _alike(times: npt.NDArray[Any], at: npt.NDArray[Any], recurs: TimeFeature) -> _Times:
    labels, cells = np.unique(features_of(times, recurs), return_inverse=True)
    sought = features_of(at, recurs)
    strange = sought[~np.isin(sought, labels)]
    if len(strange):
        raise RefusedError(
            f"no value: the log has no round whose time is like {strange[0]!s} by recurs={_name(recurs)}; it has "
            f"{', '.join(str(label) for label in labels[:8])}. A longer log, or a coarser recurs, would cure it."
        )
    wanted = np.bincount(np.searchsorted(labels, sought), minlength=len(labels)) / len(sought)
    cells = cells.reshape(-1)
    return _Times(cells, wanted, np.bincount(cells, minlength=len(labels)) / len(cells))


def _terms(log: BanditLog, probs_of: Distribution, membership: Floats, times: _Times) -> _Terms:
    arrays, folds, alike = log.arrays, Clusters(log).folds(FOLDS), times.weights
    terms, _ = terms_of(log, probs_of, membership, np.inf, frozenset({"model"}))
    residuals, direct = terms.rewards - terms.modelled, terms.direct.copy()
    more = _more_at_times(residuals, folds, times.cells, arrays.actions, len(times.seen), log.n_actions)
    # f̂(x, t', a) differs from r̂(x, a) by what a earns more at the times to come.
    expected = np.einsum("c,fca->fa", times.wanted, more)
    sums, before = SupportSums(log.take(np.flatnonzero(alike))), np.concatenate([[0], np.cumsum(alike > 0)])
    for rounds in parts_of(log):
        probs = probs_of(rounds)
        direct[rounds] += np.einsum("ta,ta->t", probs, expected[folds[rounds]])
        within = slice(int(before[rounds.start]), int(before[rounds.stop]))
        sums.add(within, probs[alike[rounds] > 0])
    return _Terms(terms.weights, residuals - more[folds, times.cells, arrays.actions], direct, alike, sums.total())


def _more_at_times(residuals: Floats, folds: Ints, cells: Ints, actions: Ints, n_cells: int, n_actions: int) -> Floats:
    """(folds, C, K) what an action earns more at φ than at any time, by the rounds of other folds; shrunk to 0."""
    n_folds = int(folds.max()) + 1
    shape = (n_folds, n_cells, n_actions)
    places = np.ravel_multi_index((folds, cells, actions), shape)
    sums = np.bincount(places, residuals, minlength=int(np.prod(shape))).reshape(shape)
    counts = np.bincount(places, minlength=int(np.prod(shape))).reshape(shape)
    others, elsewhere = sums.sum(axis=0) - sums, counts.sum(axis=0) - counts
    return np.asarray(others / (elsewhere + SHRINKAGE))


def _name(recurs: TimeFeature) -> str:
    return getattr(recurs, "__name__", "a function") if callable(recurs) else f'"{recurs}"'
