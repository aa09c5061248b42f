"""How many states does a log have: as many as help to foresee rewards that the fit has not seen.

The log is cut into blocks along time, every few-th of which is held out in turn: a model is fitted without the rewards
of those blocks, then follows the whole log round by round, and its forecast of each held-out reward, made some rounds
before it comes, is scored. States that follow noise foresee nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from seachange.engine import map_in_order, stage
from seachange.errors import ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats
from seachange.states.fitting import Fit, Fitter
from seachange.states.labels import chains

MOST_STATES = 12
# The search ends when this many more states in a row have not foreseen rewards better.
PATIENCE = 2
FOLDS = 3
# Scores need no more exact fits than this (the tolerance of EM).
FOLD_TOLERANCE = 1e-6
# Blocks are a hundredth of the log, but no shorter than this unless the log is, and no longer than a sequence.
BLOCKS, SHORTEST_BLOCK = 100, 25
# Rewards are forecast so many rounds before they come, but at most a fifth of a sequence: noise that lingers for a few
# rounds is no state of the world.
AHEAD, ROUNDS_AHEAD = 10, 5
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
    rewarded = np.zeros(int(blocks.max()) + 1, dtype=bool)
    for rounds in log.chunk_slices():
        rewarded[blocks[rounds][np.isfinite(log.arrays.rewards[rounds])]] = True
    if np.count_nonzero(rewarded) < FEWEST_BLOCKS:
        return chosen, (StateCount(1, chosen.run.log_likelihood, chosen.bic, 0.0, 0.0, 0.0),)
    held_out = _HeldOut.of(log, fitter, blocks)
    best = held_out.scores(1)
    counts = [StateCount(1, chosen.run.log_likelihood, chosen.bic, float(best.sum()), 0.0, 0.0)]
    with stage("Finding the states") as search:
        for n_states in range(2, MOST_STATES + 1):
            last = min(chosen.model.n_states + PATIENCE, MOST_STATES)
            # A fit takes about as long as it has states; the search ends no sooner than with the last.
            search.expect(sum(range(2, last + 1)), step=n_states, told=f"trying {n_states}")
            try:
                fit, scores = _fit_and_scores(fitter, held_out, n_states)
            except ParameterError:
                break
            search.advance(n_states)
            gain, error = _difference(scores, best)
            counts.append(StateCount(n_states, fit.run.log_likelihood, fit.bic, float(scores.sum()), gain, error))
            if gain > max(SURE * error, LEAST_GAIN):
                chosen, best = fit, scores
            elif n_states - chosen.model.n_states >= PATIENCE:
                break
    return chosen, tuple(counts)


def _fit_and_scores(fitter: Fitter, held_out: _HeldOut, n_states: int) -> tuple[Fit, Floats]:
    with stage("", 1 + FOLDS) as fits:
        fit = fitter.fit(n_states)
        fits.advance()
        fits.step = FOLDS
        return fit, held_out.scores(n_states)


@dataclass(frozen=True)
class _HeldOut:
    """The log with some blocks held out, in every fold others."""

    log: BanditLog
    folds: tuple[Fitter, ...]
    blocks: npt.NDArray[np.int32]  # (n,) number of the block that a round belongs to
    noise: float  # variance of the rewards that one state leaves unexplained
    ahead: int  # rounds before a reward at which it is forecast
    workers: int

    @classmethod
    def of(cls, log: BanditLog, fitter: Fitter, blocks: npt.NDArray[np.int32]) -> _HeldOut:
        """Fitters of the folds."""
        tolerance = max(fitter.settings.tolerance, FOLD_TOLERANCE)
        settings = fitter.settings._replace(workers=1, tolerance=tolerance)

        def fold(number: int) -> Fitter:
            seen = log.room(len(log))
            for rounds in log.chunk_slices():
                seen[rounds] = np.where(blocks[rounds] % FOLDS == number, np.nan, log.arrays.rewards[rounds])
            return Fitter.of(log.with_rewards(seen), fitter.starts.rewards, settings)

        folds = tuple(map_in_order(fold, range(FOLDS), workers=fitter.settings.workers))
        length = len(log) // len(fitter.chain.firsts)
        ahead = max(1, min(AHEAD, length // ROUNDS_AHEAD))
        return cls(log, folds, blocks, fitter.starts.spread, ahead, fitter.settings.workers)

    def scores(self, n_states: int) -> Floats:
        """Of every block, the log-likelihood of its rewards as forecast by the fold that did not see them."""

        def forecast(number: int) -> Floats:
            fold = self.folds[number]
            return fold.fit(n_states).model.predict_rewards(self.log, self.ahead)

        scores = np.zeros(int(self.blocks.max()) + 1)
        with stage("", FOLDS) as folds:
            for number, expected in enumerate(map_in_order(forecast, range(FOLDS), workers=self.workers)):
                folds.advance()
                for rounds in self.log.chunk_slices():
                    blocks, rewards = self.blocks[rounds], self.log.arrays.rewards[rounds]
                    mine = (blocks % FOLDS == number) & np.isfinite(rewards)
                    scored = self._score(rewards[mine], expected[rounds][mine])
                    scores += np.bincount(blocks[mine], scored, len(scores))
        return scores

    def _score(self, rewards: Floats, expected: Floats) -> Floats:
        """log p(r) of clicks; else the squared error in units of the noise, whatever its shape."""
        if self.folds[0].starts.rewards == "bernoulli":
            return np.asarray(np.log(np.maximum(np.where(rewards > 0.5, expected, 1 - expected), 1e-300)))
        return np.asarray(-np.square(rewards - expected) / (2 * self.noise))


def _difference(scores: Floats, others: Floats) -> tuple[float, float]:
    """How much better the ``scores`` of blocks are in all, and the standard error of that."""
    gains = scores - others
    return float(gains.sum()), float(np.std(gains) * math.sqrt(len(gains)))


def _blocks(log: BanditLog) -> npt.NDArray[np.int32]:
    """(n,) runs of rounds of one sequence, numbered."""
    order, starts = chains(log)
    length = max(len(log) // BLOCKS, min(SHORTEST_BLOCK, len(log) // (2 * FEWEST_BLOCKS)), 1)
    firsts = np.flatnonzero(starts)
    lengths = np.diff(firsts, append=len(log))
    counts = -(-lengths // length)
    sizes = np.full(int(counts.sum()), length)
    sizes[np.cumsum(counts) - 1] = lengths - (counts - 1) * length
    blocks = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    if log.sequences is None:
        return blocks
    in_log_order = np.empty_like(blocks)
    in_log_order[order] = blocks
    return in_log_order
