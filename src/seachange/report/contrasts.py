"""What distinguishes a state: the actions and features whose effect differs most from that in the other states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit
from scipy.stats import norm

from seachange.kernels.regression import scaled_inverse
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats
from seachange.report.state_rewards import RewardCells

Scale = Literal["reward", "log-odds"]
Unit = Literal["", "0 to 1", "standard deviation"]
# Averages over contexts are taken over so many rounds at most.
MOST_ROWS = 10_000
# Differences that chance makes anywhere in the table with more than this probability are left out.
CHANCE = 0.05


@dataclass(frozen=True, eq=False)
class StateFits:
    """A regression of the reward on f(x, a) for each state, and how well its coefficients are known."""

    coefs: Floats  # (L, B, D); NaN for a state without rounds
    covariances: Floats  # (L, B, D, D)
    clicks: bool  # the regression is of the log-odds


@dataclass(frozen=True)
class Contrast:
    """One way in which a state differs from the others."""

    state: int
    action: str | None  # None: of any action, where features belong to actions
    feature: str | None  # None: it is the reward itself, on average over the contexts of the log
    here: float  # mean reward, or what one unit of the feature adds to it (in log-odds, where ``scale`` says so)
    elsewhere: float  # the same in the other states, weighed by their rounds
    std_errors: float  # the difference, in its standard errors
    scale: Scale
    unit: Unit  # of the feature
    step: float | None = None  # how much of the raw number one unit is, where it is one


def fits_of(oracle: Any, cells: RewardCells) -> StateFits:
    """The regressions that an oracle has learned; where it has none, the mean rewards of the log by action."""
    model, cut = getattr(oracle, "model_", None), getattr(oracle, "segmentation_", None)
    if model is not None:
        logistic = model.rewards == "bernoulli"
        noise = np.ones(model.n_states) if logistic else model.noise_variances
        return StateFits(model.reward_coefs, noise[:, None, None, None] * _inverse(model.reward_precisions), logistic)
    if cut is not None and getattr(cut, "statistic", "reward") == "fit":
        return StateFits(cut.state_coefs, cut.noise_variances[:, None, None] * _inverse(cut.state_precisions), False)
    return StateFits(cells.means[:, :, None], np.square(cells.std_errors)[:, :, None, None], False)


def contrasts(log: BanditLog, fits: StateFits, rounds: Floats, most: int = 5) -> tuple[Contrast, ...]:
    """For each state the ``most`` differences that stand out most, in standard errors.

    d = e_z - Σ_y w_y e_y over the other states y, weighed by their ``rounds`` (L,), where e is what an action earns on
    average over the contexts of the log, or what one unit of a feature adds to β · f(x, a). The standard error is that
    of the coefficients, given the states. What chance would show somewhere in a table of this size is left out
    (Bonferroni).
    """
    known = (rounds > 0) & ~np.isnan(fits.coefs).any(axis=(1, 2)) if len(rounds) > 1 else np.zeros(1, dtype=bool)
    if known.sum() < 2:
        return ()
    compared = _compared(log, fits)
    effects, variances = compared.effects, compared.variances
    found: list[Contrast] = []
    cutoff = float(norm.isf(CHANCE / 2 / effects[known].size))
    for state in np.flatnonzero(known):
        weights = np.where(known & (np.arange(len(rounds)) != state), rounds, 0.0)
        weights = weights / weights.sum()
        others = np.einsum("z,zbm->bm", weights[known], effects[known])
        variance = variances[state] + np.einsum("z,zbm->bm", np.square(weights[known]), variances[known])
        with np.errstate(invalid="ignore", divide="ignore"):
            errors = np.nan_to_num((effects[state] - others) / np.sqrt(variance), nan=0.0, posinf=0.0, neginf=0.0)
        largest = np.argsort(-np.abs(errors), axis=None, kind="stable")[:most]
        for block, place in zip(*np.unravel_index(largest, errors.shape), strict=True):
            if abs(errors[block, place]) >= cutoff:
                here, there = float(effects[state, block, place]), float(others[block, place])
                found.append(compared.contrast(int(state), block, place, here, there, float(errors[block, place])))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Compared:
    """Effects of every state side by side: first what actions earn, then what features add."""

    effects: Floats  # (L, B, M)
    variances: Floats  # (L, B, M)
    actions: tuple[str | None, ...]  # (B,)
    features: tuple[str | None, ...]  # (M,)
    units: tuple[Unit, ...]  # (M,)
    steps: tuple[float | None, ...]  # (M,)
    clicks: bool

    def contrast(self, state: int, block: int, place: int, here: float, there: float, errors: float) -> Contrast:
        """The record of one difference."""
        feature = self.features[place]
        scale: Scale = "log-odds" if self.clicks and feature is not None else "reward"
        unit, step = self.units[place], self.steps[place]
        return Contrast(state, self.actions[block], feature, here, there, errors, scale, unit, step)


def _compared(log: BanditLog, fits: StateFits) -> _Compared:
    actions: tuple[str | None, ...] = (None,)
    parts: list[tuple[Floats, Floats]] = []
    features: list[str | None] = []
    units: list[Unit] = []
    steps: list[float | None] = []
    if len(log.action_names) == fits.coefs.shape[1]:
        actions = log.action_names
        parts.append(_levels(_sample(log, fits), fits))
        features.append(None)
        units.append("")
        steps.append(None)
    if log.joint.kind != "none" and fits.coefs.shape[1:] == log.joint.shape:
        deviations, binary = _spreads(log)
        for i, name in enumerate(log.context_names):
            if deviations[i] > 0:
                unit = 1.0 if binary[i] else deviations[i]
                parts.append((unit * fits.coefs[:, :, i], unit**2 * fits.covariances[:, :, i, i]))
                features.append(name)
                units.append("0 to 1" if binary[i] else "standard deviation")
                raw = 1.0 if log.features is None else log.features.unit_of(name)
                steps.append(None if binary[i] or raw is None else float(raw * deviations[i]))
    effects, variances = (np.stack(each, axis=2) for each in zip(*parts, strict=True))
    return _Compared(effects, variances, actions, tuple(features), tuple(units), tuple(steps), fits.clicks)


def _levels(rows: Floats, fits: StateFits) -> tuple[Floats, Floats]:
    """(L, B) mean over ``rows`` (m, D) of what each action earns in each state, and its variance by the delta method.

    e = mean of μ(β · f), Var e = g' Cov(β) g with g = mean of μ'(β · f) f, where μ is the identity, or of clicks the
    logistic function.
    """
    if not fits.clicks:
        levels, slopes = fits.coefs @ rows.mean(axis=0), np.broadcast_to(rows.mean(axis=0), fits.coefs.shape)
    else:
        rates = expit(np.einsum("md,zbd->zbm", rows, fits.coefs))
        levels, slopes = rates.mean(axis=2), (rates * (1 - rates)) @ rows / len(rows)
    return np.asarray(levels), np.einsum("zbi,zbij,zbj->zb", slopes, fits.covariances, slopes)


def _sample(log: BanditLog, fits: StateFits) -> Floats:
    """(m, D) rows of rounds spread evenly over the log; of mean rewards alone, a one."""
    if log.joint.kind != "shared" or fits.coefs.shape[2] == 1:
        return np.ones((1, 1))
    return log.arrays.rows[:: -(-len(log) // MOST_ROWS), 0].astype(np.float64)


def _spreads(log: BanditLog) -> tuple[Floats, Bools]:
    """(D,) standard deviation of each feature over all rounds and actions, and whether it is only 0 or 1."""
    parts = [log.arrays.rows[part] for part in log.chunk_slices()]
    count = sum(part.shape[0] * part.shape[1] for part in parts)
    means = np.sum([part.sum(axis=(0, 1), dtype=np.float64) for part in parts], axis=0) / count
    squares = np.sum([np.square(part - means).sum(axis=(0, 1)) for part in parts], axis=0)
    binary = np.all([((part == 0) | (part == 1)).all(axis=(0, 1)) for part in parts], axis=0)
    return np.sqrt(squares / count), binary


def _inverse(precisions: Floats) -> Floats:
    """Covariances from precisions, of features of any scale; infinite where nothing is known."""
    unknown = np.einsum("...ii->...i", precisions) <= 0
    inverses = scaled_inverse(precisions)
    np.copyto(np.einsum("...ii->...i", inverses), np.inf, where=unknown)
    return np.asarray(inverses)
