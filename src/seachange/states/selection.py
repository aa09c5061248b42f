"""How many states does a log have: as many as help to foresee rewards that the fit has not seen.

The log is cut into blocks along time, every few-th of which is held out in turn: a model is fitted without the rewards
of those blocks, then follows the whole log round by round, and its forecast of each held-out reward, made from the
rewards before it, is scored. States that follow noise foresee nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from seachange.engine import map_in_order
from seachange.errors import ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints
from seachange.states.fitting import Fit, Fitter
from seachange.states.labels import chains

MOST_STATES = 12
# The search ends when this many more states in a row have not foreseen rewards better.
PATIENCE = 2
FOLDS = 3
# Blocks are a hundredth of the log, but no shorter than this unless the log is, and no longer than a sequence.
BLOCKS, SHORTEST_BLOCK = 100, 25
# With fewer blocks nothing can be said about more than one state.
FEWEST_BLOCKS = 20
# More states must foresee better by this many standard errors, and by so much log-likelihood in all: where a ridge has
# drawn states together but for a trace, they may be surely better by a millionth.
SURE, LEAST_GAIN = 2.5, 1.0


@dataclass(frozen=True)
class StateCount:
    """Evidence for one number of states."""

    n_states: int
    log_likelihood: float  # of the whole log, in the fit to it
    bic: float  # lower is better
    predictive: float  # log-likelihood of held-out rewards, up to a constant; higher is better
    gain: float  # of that over the best smaller number
    gain_error: float  # standard error of the gain


def choose_n_states(log: BanditLog, fitter: Fitter) -> tuple[Fit, tuple[StateCount, ...]]:
    """Fit 1, 2, … states until more have stopped to foresee better; the chosen fit, and what was seen on the way."""
    chosen = fitter.fit(1)
    blocks = _blocks(log)
    rewarded = np.unique(blocks[np.isfinite(log.arrays.rewards)])
    if len(rewarded) < FEWEST_BLOCKS:
        return chosen, (StateCount(1, chosen.run.log_likelihood, chosen.bic, 0.0, 0.0, 0.0),)
    held_out = _HeldOut.of(log, fitter, blocks)
    best = held_out.scores(1)
    counts = [StateCount(1, chosen.run.log_likelihood, chosen.bic, float(best.sum()), 0.0, 0.0)]
    for n_states in range(2, MOST_STATES + 1):
        try:
            fit, scores = fitter.fit(n_states), held_out.scores(n_states)
        except ParameterError:
            break
        gain, error = held_out.difference(scores, best)
        counts.append(StateCount(n_states, fit.run.log_likelihood, fit.bic, float(scores.sum()), gain, error))
        if gain > max(SURE * error, LEAST_GAIN):
            chosen, best = fit, scores
        elif n_states - chosen.model.n_states >= PATIENCE:
            break
    return chosen, tuple(counts)


@dataclass(frozen=True)
class _HeldOut:
    """The log with some blocks held out, in every fold others."""

    log: BanditLog
    folds: tuple[Fitter, ...]
    blocks: Ints  # (n,) number of the block that a round belongs to
    noise: float  # variance of the rewards that one state leaves unexplained
    workers: int

    @classmethod
    def of(cls, log: BanditLog, fitter: Fitter, blocks: Ints) -> _HeldOut:
        """Fitters of the folds."""
        settings = fitter.settings._replace(workers=1)

        def fold(number: int) -> Fitter:
            seen = np.where(blocks % FOLDS == number, np.nan, log.arrays.rewards)
            return Fitter.of(log.with_rewards(seen), fitter.starts.rewards, settings)

        folds = tuple(map_in_order(fold, range(FOLDS), workers=fitter.settings.workers))
        noise = max(float(np.nanvar(fitter.starts.residuals)), 1e-300)
        return cls(log, folds, blocks, noise, fitter.settings.workers)

    def scores(self, n_states: int) -> Floats:
        """(n,) log-likelihood of each reward's forecast by the fold that did not see it; 0 where there is no reward."""

        def forecast(number: int) -> tuple[int, Floats]:
            fold = self.folds[number]
            return number, fold.fit(n_states).model.predict_rewards(self.log)

        scores = np.zeros(len(self.log))
        for number, expected in map_in_order(forecast, range(FOLDS), workers=self.workers):
            mine = (self.blocks % FOLDS == number) & np.isfinite(self.log.arrays.rewards)
            scores[mine] = self._score(self.log.arrays.rewards[mine], expected[mine])
        return scores

    def difference(self, scores: Floats, others: Floats) -> tuple[float, float]:
        """How much better ``scores`` are in all, and the standard error of that, by blocks."""
        by_block = np.bincount(self.blocks, scores - others)
        return float(by_block.sum()), float(np.std(by_block) * math.sqrt(len(by_block)))

    def _score(self, rewards: Floats, expected: Floats) -> Floats:
        """log p(r) of clicks; else the squared error in units of the noise, whatever its shape."""
        if self.folds[0].starts.rewards == "bernoulli":
            return np.asarray(np.log(np.maximum(np.where(rewards > 0.5, expected, 1 - expected), 1e-300)))
        return np.asarray(-np.square(rewards - expected) / (2 * self.noise))


def _blocks(log: BanditLog) -> Ints:
    """(n,) runs of rounds of one sequence."""
    order, starts = chains(log)
    length = max(len(log) // BLOCKS, min(SHORTEST_BLOCK, len(log) // (2 * FEWEST_BLOCKS)), 1)
    places = np.arange(len(log))
    first = np.maximum.accumulate(np.where(starts, places, 0))
    blocks = np.empty(len(log), dtype=np.int64)
    blocks[order] = np.cumsum((places - first) % length == 0) - 1
    return blocks
