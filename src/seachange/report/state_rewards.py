"""What every action earned in every state, with intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import StateLabels

# Of a state and an action that met in fewer rounds, little can be said.
FEW_ROUNDS = 20.0


@dataclass(frozen=True, eq=False)
class RewardCells:
    """Mean reward of each action in each state, over the rounds (and the contexts) in which the log took it there."""

    rounds: Floats  # (L, K) rounds with a reward, each counted with its probability of the state
    means: Floats  # (L, K) NaN where there are none
    std_errors: Floats  # (L, K) of the mean; NaN where there are fewer than two rounds
    low: Floats  # (L, K) interval of the mean; NaN where there are fewer than two rounds
    high: Floats  # (L, K)

    @property
    def rare(self) -> Bools:
        """(L, K) whether there are too few rounds to rely on."""
        return self.rounds < FEW_ROUNDS

    @property
    def best(self) -> list[int | None]:
        """The action that earned most in each state, of those that are not rare."""
        return [_largest(means) for means in np.where(self.rare, np.nan, self.means)]

    @property
    def best_of_few(self) -> list[int | None]:
        """The rare action that earned more than that in each state, if one did."""
        found: list[int | None] = []
        for state, best in enumerate(self.best):
            shown = self.rare[state] & (self.rounds[state] >= 1)
            least = -np.inf if best is None else self.means[state, best]
            with np.errstate(invalid="ignore"):
                found.append(_largest(np.where(shown & (self.means[state] > least), self.means[state], np.nan)))
        return found


def _largest(means: Floats) -> int | None:
    return None if np.isnan(means).all() else int(np.nanargmax(means))


def reward_cells(log: BanditLog, labels: StateLabels, confidence: float) -> RewardCells:
    """Means weighed by the probability of the state, m = Σ_t Q_t(z) r_t / Σ_t Q_t(z) over the rounds of an action.

    An interval counts Σ_t Q_t(z) rounds, not more: it is Wilson's where all rewards are 0 or 1, else Student's. It is
    one of the mean given the states, which were found from the same rewards.
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
    seen = log.rewards[~np.isnan(log.rewards)]
    clicks = bool(((seen == 0) | (seen == 1)).all())
    enough = np.where(rounds >= 2, rounds, np.nan)
    errors = np.sqrt(squares / (enough - 1) / enough)
    low, high = _wilson(means, enough, confidence) if clicks else _student(means, enough, errors, confidence)
    return RewardCells(rounds, means, errors, low, high)


def _parts(log: BanditLog, labels: StateLabels) -> Iterator[tuple[int, Floats, Ints, Floats]]:
    """A state, its probabilities, the actions and the rewards of some rounds that have one, for all of both."""
    for chunk in log.chunk_slices():
        seen = ~np.isnan(log.rewards[chunk])
        actions, rewards = log.actions[chunk][seen], log.rewards[chunk][seen]
        for state in range(labels.n_states):
            if labels.state_probs is None:
                probs = (labels.states[chunk][seen] == state).astype(np.float64)
            else:
                probs = labels.state_probs[chunk][seen, state]
            yield state, probs, actions, rewards


def _wilson(means: Floats, n: Floats, confidence: float) -> tuple[Floats, Floats]:
    from scipy.stats import norm

    z = float(norm.ppf(0.5 + confidence / 2))
    rates = np.clip(means, 0.0, 1.0)
    centre = (rates + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(rates * (1 - rates) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return np.asarray(centre - half), np.asarray(centre + half)


def _student(means: Floats, n: Floats, errors: Floats, confidence: float) -> tuple[Floats, Floats]:
    from scipy.stats import t

    half = t.ppf(0.5 + confidence / 2, n - 1) * errors
    return np.asarray(means - half), np.asarray(means + half)
