"""The number of states, chosen by the likelihood of held-out rewards.

The log is split into blocks of time, and every third block is held out in turn: a model is fitted without the rewards
of those blocks, filters the whole log round by round, and predicts each held-out reward some rounds ahead. States that
only fit noise do not improve these predictions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from seachange.engine import map_in_order, stage
from seachange.errors import ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats
from seachange.states.hmm_fitting import Fit, Fitter
from seachange.states.labels import chains, places_in_chains
from seachange.states.switching_regression import SwitchingRegression

MOST_STATES = 12
# The search stops after this many larger numbers in a row without a better held-out likelihood.
PATIENCE = 2
FOLDS = 3
# During the search, EM stops when an iteration gains less log-likelihood per round: scores do not need precise fits.
# Initializations are compared at gains per round and in total of less than this, as superfluous states converge slowly.
SEARCH_TOLERANCE, START_TOLERANCES = 1e-6, (1e-5, 0.1)
# Blocks are 1/100 of the log, but not shorter than this unless the log is, and not longer than a sequence.
BLOCKS, SHORTEST_BLOCK = 100, 25
# Rewards are predicted a shortest stay ahead: short-lived autocorrelation is not a state. Autocorrelated noise shifts
# the rewards of all actions alike, so differences between actions can be predicted from as close as this many rounds.
SHORT_HORIZON = 3
# With fewer blocks, only one state is fitted.
FEWEST_BLOCKS = 20
# More states must gain this many standard errors, and this much log-likelihood in total: with strong shrinkage, nearly
# equal states can be significantly better by a millionth. A large gain counts from one standard error on: that of a
# state with a single segment is concentrated in a few blocks, so its standard error is large.
MIN_STANDARD_ERRORS, MIN_GAIN, LARGE_GAIN = 2.5, 1.0, 10.0


@dataclass(frozen=True)
class StateCount:
    """Evidence for one number of states."""

    n_states: int
    log_likelihood: float  # of the whole log, in sample
    bic: float  # lower is better
    predictive: float  # log-likelihood of held-out rewards, up to a constant; higher is better
    gain: float  # of ``predictive`` over the best smaller number
    gain_error: float  # standard error of the gain

    @property
    def better(self) -> bool:
        """Whether the gain is too large for chance."""
        significant = self.gain > max(MIN_STANDARD_ERRORS * self.gain_error, MIN_GAIN)
        return significant or self.gain > max(self.gain_error, LARGE_GAIN)


def choose_n_states(log: BanditLog, fitter: Fitter) -> tuple[Fit, tuple[StateCount, ...]]:
    """Fit 1, 2, … states until more do not predict held-out rewards better; the chosen fit, and the evidence."""
    chosen = fitter.fit(1)
    blocks = _blocks(log)
    rewarded = np.zeros(int(blocks.max()) + 1, dtype=bool)
    for rounds in log.chunk_slices():
        rewarded[blocks[rounds][np.isfinite(log.arrays.rewards[rounds])]] = True
    if np.count_nonzero(rewarded) < FEWEST_BLOCKS:
        return chosen, (StateCount(1, chosen.run.log_likelihood, chosen.bic, 0.0, 0.0, 0.0),)
    rough, start = (
        max(fitter.settings.tolerance, SEARCH_TOLERANCE),
        min(START_TOLERANCES[0], START_TOLERANCES[1] / len(log)),
    )
    final = fitter
    fitter = replace(fitter, settings=replace(fitter.settings, tolerance=rough), start_tolerance=start)
    held_out_scores = _held_out_scores(log, fitter, blocks)
    best, _ = held_out_scores(1)
    counts = [StateCount(1, chosen.run.log_likelihood, chosen.bic, float(best[0].sum()), 0.0, 0.0)]
    with stage("Finding the states") as search:
        for n_states in range(2, MOST_STATES + 1):
            last = min(chosen.model.n_states + PATIENCE, MOST_STATES)
            # The time of a fit is roughly proportional to its states; the search continues at least to ``last``.
            search.expect(sum(range(2, last + 1)), step=n_states, detail=f"trying {n_states}")
            try:
                with stage("", 1 + FOLDS) as fits:
                    fit = fitter.fit(n_states)
                    fits.advance()
                    fits.step = FOLDS
                    scores, merged = held_out_scores(n_states)
            except ParameterError:
                break
            search.advance(n_states)
            # Better than fewer states, and than with two of them alike: copies that improve the timing do not count.
            gain, error = max(map(_gain, scores, best, merged), key=lambda found: found[0] / max(found[1], 1e-300))
            predictive = counts[chosen.model.n_states - 1].predictive + gain
            counts.append(StateCount(n_states, fit.run.log_likelihood, fit.bic, predictive, gain, error))
            if counts[-1].better:
                chosen, best = fit, scores
            elif n_states - chosen.model.n_states >= PATIENCE:
                break
    return final.fit(chosen.model.n_states), tuple(counts)


def _gain(scores: Floats, best: Floats, merged: Floats) -> tuple[float, float]:
    """By how much ``scores`` of blocks exceed the others in total, and its standard error."""
    gains = scores - max(best, merged, key=np.sum)
    return float(gains.sum()), float(np.std(gains) * math.sqrt(len(gains)))


def _held_out_scores(log: BanditLog, fitter: Fitter, blocks: npt.NDArray[np.int32]) -> Callable[[int], Floats]:
    """A function of the number of states: (2, 2, blocks) scores of each block's rewards, by the fold without them.

    The first axis is the model as it is and with its two most similar states merged, the second the horizon.
    """
    workers, clicks = fitter.settings.workers, fitter.starts.rewards == "bernoulli"
    settings = replace(fitter.settings, workers=1)

    def fold(number: int) -> Fitter:
        rewards = log.new_array(len(log))
        for rounds in log.chunk_slices():
            rewards[rounds] = np.where(blocks[rounds] % FOLDS == number, np.nan, log.arrays.rewards[rounds])
        found = Fitter.of(log.with_rewards(rewards), fitter.starts.rewards, settings)
        return replace(found, start_tolerance=fitter.start_tolerance)

    folds = list(map_in_order(fold, range(FOLDS), workers=workers))

    def score(rewards: Floats, expected: Floats) -> Floats:
        """log p(r) for clicks, else the squared error in units of the noise, for noise of any distribution."""
        if clicks:
            return np.asarray(np.log(np.maximum(np.where(rewards > 0.5, expected, 1 - expected), 1e-300)))
        return np.asarray(-np.square(rewards - expected) / (2 * fitter.starts.spread))

    def block_scores(number: int, model: SwitchingRegression, ahead: int) -> Floats:
        totals, expected = np.zeros(int(blocks.max()) + 1), model.predict_rewards(log, ahead)
        for rounds in log.chunk_slices():
            rewards = log.arrays.rewards[rounds]
            held_out = (blocks[rounds] % FOLDS == number) & np.isfinite(rewards)
            scored = score(rewards[held_out], expected[rounds][held_out])
            totals += np.bincount(blocks[rounds][held_out], scored, len(totals))
        return totals

    def fold_scores(number: int, n_states: int) -> Floats:
        fit, far = folds[number].fit(n_states), fitter.shortest_stay
        near, merged, leveled = min(far, SHORT_HORIZON), fit.merged(), fit.merged(levels=True)
        tried = (fit.model, far), (fit.model, near), (merged, far), (leveled, near)
        return np.array([block_scores(number, *each) for each in tried]).reshape(2, 2, -1)

    def scores(n_states: int) -> Floats:
        totals = np.zeros((2, 2, int(blocks.max()) + 1))
        with stage("", FOLDS) as progress:
            for found in map_in_order(partial(fold_scores, n_states=n_states), range(FOLDS), workers=workers):
                totals += found
                progress.advance()
        return totals

    return scores


def _blocks(log: BanditLog) -> npt.NDArray[np.int32]:
    """(n,) block of each round: consecutive rounds of one sequence."""
    order, starts = chains(log)
    length = max(len(log) // BLOCKS, min(SHORTEST_BLOCK, len(log) // (2 * FEWEST_BLOCKS)), 1)
    blocks = np.empty(len(log), dtype=np.int32)
    blocks[order] = np.cumsum(places_in_chains(np.flatnonzero(starts), len(log)) % length == 0, dtype=np.int32) - 1
    return blocks
