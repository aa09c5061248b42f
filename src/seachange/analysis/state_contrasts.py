"""Mean rewards of actions by state, with intervals, and the differences between states."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import expit
from scipy.stats import norm
from scipy.stats import t as student

from seachange.kernels.regression import scaled_inverse
from seachange.log.bandit_log import BanditLog
from seachange.propensities.calibration import wilson_interval
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import StateLabels

FEW_ROUNDS = 20.0  # with fewer rounds, the mean reward of an action in a state is unreliable


@dataclass(frozen=True, eq=False)
class RewardCells:
    """Mean reward of each action in each state, over the rounds (and contexts) in which the log took it there."""

    rounds: Floats  # (L, K) rounds with a reward, weighted by the probability of the state
    means: Floats  # (L, K) NaN without rounds
    std_errors: Floats  # (L, K) of the mean; NaN with fewer than two rounds
    low: Floats  # (L, K) interval of the mean; NaN with fewer than two rounds
    high: Floats  # (L, K)

    @property
    def rare(self) -> Bools:
        """(L, K) whether there are too few rounds for a reliable mean."""
        return self.rounds < FEW_ROUNDS

    @property
    def best(self) -> list[int | None]:
        """The action with the highest mean in each state, among those that are not rare."""
        return [_largest(means) for means in np.where(self.rare, np.nan, self.means)]

    @property
    def best_rare(self) -> list[int | None]:
        """The rare action with a higher mean than that in each state, if any."""
        usual = np.where(self.rare, -np.inf, self.means).max(axis=1, keepdims=True)
        shown = self.rare & (self.rounds >= 1) & (self.means > usual)
        return [_largest(means) for means in np.where(shown, self.means, np.nan)]


def _largest(means: Floats) -> int | None:
    return None if np.isnan(means).all() else int(np.nanargmax(means))


def reward_cells(log: BanditLog, labels: StateLabels, confidence: float) -> RewardCells:
    """Means weighted by the probability of the state, m = Σ_t Q_t(z) r_t / Σ_t Q_t(z) over the rounds of an action.

    Intervals are based on Σ_t Q_t(z) rounds: Wilson's if all rewards are 0 or 1, else Student's. They are conditional
    on the states, which were found from the same rewards.
    """
    shape = (labels.n_states, log.n_actions)
    rounds, sums, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for part, probs, actions, rewards in _parts(log, labels):
        rounds[part] += np.bincount(actions, probs, log.n_actions)
        sums[part] += np.bincount(actions, probs * rewards, log.n_actions)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(rounds > 0, sums / rounds, np.nan)
    for part, probs, actions, rewards in _parts(log, labels):
        squares[part] += np.bincount(actions, probs * np.square(rewards - means[part][actions]), log.n_actions)
    enough = np.where(rounds >= 2, rounds, np.nan)
    errors = np.sqrt(squares / (enough - 1) / enough)
    if np.isin(log.rewards[~np.isnan(log.rewards)], (0, 1)).all():
        low, high = wilson_interval(np.clip(means, 0.0, 1.0), enough, float(norm.ppf(0.5 + confidence / 2)))
        return RewardCells(rounds, means, errors, low, high)
    half = student.ppf(0.5 + confidence / 2, enough - 1) * errors
    return RewardCells(rounds, means, errors, means - half, means + half)


def _parts(log: BanditLog, labels: StateLabels) -> Iterator[tuple[int, Floats, Ints, Floats]]:
    """State, its probabilities, actions and rewards for every chunk of rounds with a reward, and every state."""
    known = labels.state_probs
    for chunk in log.chunk_slices():
        seen = ~np.isnan(log.rewards[chunk])
        actions, rewards = log.actions[chunk][seen], log.rewards[chunk][seen]
        for state in range(labels.n_states):
            probs = labels.states[chunk] == state if known is None else known[chunk, state]
            yield state, probs[seen].astype(np.float64), actions, rewards


Scale = Literal["reward", "log-odds"]
Unit = Literal["", "0 to 1", "standard deviation"]
MOST_ROWS = 10_000  # averages over contexts use at most this many rounds
CHANCE = 0.05  # differences that chance would produce anywhere in the table with a higher probability are left out


@dataclass(frozen=True, eq=False)
class StateFits:
    """A regression of the reward on f(x, a) for each state, with the covariance of its coefficients."""

    coefs: Floats  # (L, B, D); NaN for a state without rounds
    covariances: Floats  # (L, B, D, D)
    logistic: bool  # the regression is on the log-odds


@dataclass(frozen=True)
class Contrast:
    """One difference between a state and the others."""

    state: int
    action: str | None  # None: any action, if features belong to actions
    feature: str | None  # None: the mean reward itself, averaged over the contexts of the log
    here: float  # mean reward, or the effect of one unit of the feature on it (on the ``scale``)
    elsewhere: float  # the same in the other states, weighted by their rounds
    std_errors: float  # the difference, in its standard errors
    scale: Scale
    unit: Unit  # of the feature
    step: float | None = None  # the size of one unit in the raw column, if it is numeric


def fits_of(oracle: Any, cells: RewardCells) -> StateFits:
    """The oracle's regressions, or the log's mean rewards by action if it has none."""
    model, cut = getattr(oracle, "model_", None), getattr(oracle, "segmentation_", None)
    if model is not None and model.rewards != "hurdle":
        logistic = model.clicks
        noise = np.ones(model.n_states) if logistic else model.noise_variances
        return StateFits(model.reward_coefs, noise[:, None, None, None] * _inverse(model.reward_precisions), logistic)
    if cut is not None and getattr(cut, "statistic", "reward") == "fit":
        return StateFits(cut.state_coefs, cut.noise_variances[:, None, None] * _inverse(cut.state_precisions), False)
    return StateFits(cells.means[:, :, None], np.square(cells.std_errors)[:, :, None, None], False)


def contrasts(log: BanditLog, fits: StateFits, rounds: Floats, most: int = 5) -> tuple[Contrast, ...]:
    """For each state, the ``most`` largest differences from the other states, in standard errors.

    d = e_z - Σ_y w_y e_y over the other states y, weighted by their ``rounds`` (L,), where e is an action's mean reward
    over the contexts of the log, or the effect of one unit of a feature on β · f(x, a). Standard errors are those of
    the coefficients, given the states. Differences that are not significant in a table of this size are left out
    (Bonferroni).
    """
    known = (rounds > 0) & ~np.isnan(fits.coefs).any(axis=(1, 2)) if len(rounds) > 1 else np.zeros(1, dtype=bool)
    if known.sum() < 2:
        return ()
    effects, variances, columns = _effects(log, fits)
    actions = log.action_names if len(log.action_names) == effects.shape[1] else (None,)
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
        for block, column in zip(*np.unravel_index(largest, errors.shape), strict=True):
            if abs(errors[block, column]) >= cutoff:
                feature, unit, step = columns[column]
                scale: Scale = "log-odds" if fits.logistic and feature is not None else "reward"
                here, elsewhere, gap = (float(each[block, column]) for each in (effects[state], others, errors))
                found.append(Contrast(int(state), actions[block], feature, here, elsewhere, gap, scale, unit, step))
    return tuple(found)


def _effects(log: BanditLog, fits: StateFits) -> tuple[Floats, Floats, list[tuple[str | None, Unit, float | None]]]:
    """(L, B, m) mean rewards or effects, their variances, and the feature, unit and step of each of the m columns."""
    parts: list[tuple[Floats, Floats]] = []
    columns: list[tuple[str | None, Unit, float | None]] = []
    if len(log.action_names) == fits.coefs.shape[1]:
        # Rounds spread evenly over the log; a single 1 if there are no features.
        shared = log.joint.kind == "shared" and fits.coefs.shape[2] > 1
        rows = log.arrays.rows[:: -(-len(log) // MOST_ROWS), 0].astype(np.float64) if shared else np.ones((1, 1))
        parts.append(_levels(rows, fits))
        columns.append((None, "", None))
    if log.joint.kind != "none" and fits.coefs.shape[1:] == log.joint.shape:
        deviations, binary = _spreads(log)
        for i in np.flatnonzero(deviations > 0):
            name, size = log.context_names[i], 1.0 if binary[i] else float(deviations[i])
            raw = 1.0 if log.features is None else log.features.unit_of(name)
            step = None if binary[i] or raw is None else float(raw * size)
            parts.append((size * fits.coefs[:, :, i], size**2 * fits.covariances[:, :, i, i]))
            columns.append((name, "0 to 1" if binary[i] else "standard deviation", step))
    effects, variances = (np.stack(each, axis=2) for each in zip(*parts, strict=True))
    return effects, variances, columns


def _levels(rows: Floats, fits: StateFits) -> tuple[Floats, Floats]:
    """(L, B) mean reward of each action in each state over ``rows`` (m, D), and its variance by the delta method.

    e = mean of μ(β · f), Var e = g' Cov(β) g with g = mean of μ'(β · f) f, where μ is the identity or, for clicks, the
    logistic function.
    """
    if not fits.logistic:
        levels, slopes = fits.coefs @ rows.mean(axis=0), np.broadcast_to(rows.mean(axis=0), fits.coefs.shape)
    else:
        rates = expit(np.einsum("md,zbd->zbm", rows, fits.coefs))
        levels, slopes = rates.mean(axis=2), (rates * (1 - rates)) @ rows / len(rows)
    return np.asarray(levels), np.einsum("zbi,zbij,zbj->zb", slopes, fits.covariances, slopes)


def _spreads(log: BanditLog) -> tuple[Floats, Bools]:
    """(D,) standard deviation of each feature over all rounds and actions, and whether it is always 0 or 1."""
    parts = [log.arrays.rows[part] for part in log.chunk_slices()]
    count = sum(part.shape[0] * part.shape[1] for part in parts)
    means = np.sum([part.sum(axis=(0, 1), dtype=np.float64) for part in parts], axis=0) / count
    squares = np.sum([np.square(part - means).sum(axis=(0, 1)) for part in parts], axis=0)
    binary = np.all([((part == 0) | (part == 1)).all(axis=(0, 1)) for part in parts], axis=0)
    return np.sqrt(squares / count), binary


def _inverse(precisions: Floats) -> Floats:
    """Covariances from precisions, for features of any scale; infinite where the precision is 0."""
    unknown = np.einsum("...ii->...i", precisions) <= 0
    inverses = scaled_inverse(precisions)
    np.copyto(np.einsum("...ii->...i", inverses), np.inf, where=unknown)
    return np.asarray(inverses)
