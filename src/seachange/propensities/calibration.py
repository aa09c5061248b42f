"""Calibration of propensities: predicted against observed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.validation import require_probabilities
from seachange.params import require_count, table_of
from seachange.propensities.estimation import ChoiceModel, ChoiceSample
from seachange.protocols import Bools, Floats, Ints

REACH = 1.959963984540054  # normal quantile of 95% intervals
SHOWN = 10  # actions printed in a report


@dataclass(frozen=True)
class ReliabilityBin:
    """Choices with about this propensity, and how often they were taken."""

    low: float
    high: float
    n_choices: int  # pairs of a round and an action
    predicted: float  # mean propensity
    observed: float  # share taken
    observed_low: float  # 95% interval (Wilson)
    observed_high: float


@dataclass(frozen=True)
class ActionCalibration:
    """One action: Σ 1 / p over the rounds that took it should equal the number of rounds that could."""

    action: str
    n_taken: int
    predicted_taken: float  # Σ_t p_t(a)
    mean_weight: float  # Σ_{t: a_t = a} 1 / p_t over the rounds that could take it; 1 expected
    mean_weight_error: float  # standard error of that


@dataclass(frozen=True, repr=False)
class PropensityReport:
    """Calibration of propensities on a log."""

    n_rounds: int
    calibration_error: float  # Σ over bins of their share of choices × |observed - predicted|
    error_by_chance: float  # its expected value if the propensities were right
    log_loss: float  # mean of -log p_t
    marginal_log_loss: float  # the same for the overall frequencies of actions
    least: float  # smallest p_t
    bins: tuple[ReliabilityBin, ...]
    actions: tuple[ActionCalibration, ...]

    def __repr__(self) -> str:
        """Overall calibration, by propensity, and by action."""
        rows = [
            ("calibration error", f"{self.calibration_error:.4f} (expected by chance: {self.error_by_chance:.4f})"),
            ("log-loss", f"{self.log_loss:.4f} (of action frequencies: {self.marginal_log_loss:.4f})"),
            ("smallest propensity", f"{self.least:.3g}"),
        ]
        actions = [
            (a.action, f"{a.n_taken:,}", f"{a.predicted_taken:,.0f}",
             f"{a.mean_weight:.3f} ± {a.mean_weight_error:.3f}")
            for a in self.actions[:SHOWN]
        ]  # fmt: skip
        bins = [
            (f"{b.low:.4f} to {b.high:.4f}", f"{b.n_choices:,}", f"{b.predicted:.4f}", f"{b.observed:.4f}",
             f"{b.observed_low:.4f} to {b.observed_high:.4f}")
            for b in self.bins
        ]  # fmt: skip
        by_propensity = table_of("By propensity", ("", "choices", "predicted", "taken", "95% interval"), bins)
        more = f", the first {SHOWN} of {len(self.actions)}" if len(self.actions) > SHOWN else ""
        columns = ("", "taken", "predicted", "mean weight")
        summary = table_of(f"PropensityReport: {self.n_rounds:,} rounds", [], rows)
        return f"{summary}\n{by_propensity}\n{table_of(f'By action{more}', columns, actions)}"


def propensity_report(log: BanditLog, probs: npt.ArrayLike, *, bins: int = 10) -> PropensityReport:
    """Compare ``probs`` (n, K), from ``estimate_logging_probs`` or a log's own ``logging_probs``, with ``log``.

    Bins have equal shares of Σ p, so that each expects the same number of taken actions. The whole distribution is
    needed: the propensities of the actions taken do not show how often equally likely actions were not taken.
    """
    require_rounds(log, "a propensity report")
    require_count("bins", bins)
    given = np.asarray(probs, dtype=np.float64)
    if given.shape != (expected := (len(log), log.n_actions)):
        rule = f"a propensity report needs the whole logging distribution, shape {expected}; got {given.shape}."
        raise LogError(f"{rule} Estimate it with sc.estimate_logging_probs.")
    sample = ChoiceSample(log, np.arange(len(log)))
    taken = given[sample.rounds, log.actions]
    require_probabilities(taken, given)
    allowed = np.broadcast_to(log.arrays.mask, given.shape)
    hits = log.actions[:, None] == np.arange(log.n_actions)
    table = _reliability(given[allowed], hits[allowed], bins)
    total = sum(row.n_choices for row in table)
    errors = [row.n_choices * abs(row.observed - row.predicted) for row in table]
    # E|Z| for a normal Z with the standard error of the observed share.
    by_chance = [np.sqrt(2 / np.pi * row.predicted * (1 - row.predicted) * row.n_choices) for row in table]
    return PropensityReport(
        n_rounds=len(log),
        calibration_error=sum(errors) / total,
        error_by_chance=float(sum(by_chance)) / total,
        log_loss=float(-np.log(taken).mean()),
        marginal_log_loss=ChoiceModel.plain(sample, sample.prior).log_loss(sample) / len(log),
        least=float(taken.min()),
        bins=table,
        actions=_by_action(log, given, taken),
    )


def _reliability(probs: Floats, hits: Bools, n_bins: int) -> tuple[ReliabilityBin, ...]:
    order = np.argsort(probs, kind="stable")
    ordered, mass = probs[order], np.cumsum(probs[order])
    cuts = np.searchsorted(mass, mass[-1] * np.arange(1, n_bins) / n_bins)
    # Equal propensities share a bin.
    ends = np.searchsorted(ordered, ordered[np.minimum(cuts, len(ordered) - 1)], side="right")
    starts = np.unique(np.concatenate([[0], ends[ends < len(ordered)]]))
    counts = np.diff(starts, append=len(ordered))
    predicted, observed = (np.add.reduceat(each, starts) / counts for each in (ordered, hits[order].astype(float)))
    low, high = wilson_interval(observed, counts, REACH)
    columns = (ordered[starts], ordered[starts + counts - 1], counts, predicted, observed)
    limits = (np.maximum(low, 0.0), np.minimum(high, 1.0))
    return tuple(ReliabilityBin(*row) for row in zip(*(each.tolist() for each in (*columns, *limits)), strict=True))


def wilson_interval(shares: Floats, counts: Floats | Ints, z: float) -> tuple[Floats, Floats]:
    """Intervals for shares of ``counts`` trials, ``z`` the normal quantile."""
    center = (shares + z**2 / (2 * counts)) / (1 + z**2 / counts)
    half = z * np.sqrt(shares * (1 - shares) / counts + z**2 / (4 * counts**2)) / (1 + z**2 / counts)
    return np.asarray(center - half), np.asarray(center + half)


def _by_action(log: BanditLog, probs: Floats, taken: Floats) -> tuple[ActionCalibration, ...]:
    rounds = np.maximum(np.broadcast_to(log.arrays.mask, probs.shape).sum(axis=0), 1)
    counts, inverse, squares = (
        np.bincount(log.actions, weights, log.n_actions) for weights in (None, 1 / taken, 1 / np.square(taken))
    )
    means, predicted = inverse / rounds, probs.sum(axis=0)
    errors = np.sqrt(np.maximum(squares / rounds - np.square(means), 0.0) / rounds)
    return tuple(
        ActionCalibration(name, int(counts[a]), float(predicted[a]), float(means[a]), float(errors[a]))
        for a, name in enumerate(log.action_names)
    )
