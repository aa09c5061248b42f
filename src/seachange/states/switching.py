"""A switching regression: the hidden Markov model that the HMM oracle learns, and inference in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from seachange.errors import ParameterError
from seachange.kernels.chain import backward, filter_rounds, forward, gaussian_evidences
from seachange.kernels.regression import regression_sums
from seachange.log.bandit_log import CHUNK_ROWS, BanditLog, require_rounds
from seachange.log.joint import JointFeatures
from seachange.protocols import Floats, Ints
from seachange.states.labels import chains


@dataclass(frozen=True, eq=False)
class SwitchingRegression:
    """z_1 ~ P_0, z_t+1 ~ Φ(z_t, ·), r_t ~ N(β_z · f(x_t, a_t), σ²)."""

    initial_probs: Floats  # (L,) P_0
    transition_matrix: Floats  # (L, L) Φ, row = from
    reward_coefs: Floats  # (L, B, D) β_z
    reward_precisions: Floats  # (L, B, D, D) precision of β_z in units of 1 / σ²
    noise_variance: float  # σ²
    joint: JointFeatures

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.initial_probs)

    @property
    def shortest_stay(self) -> float:
        """Expected rounds in the state that is left soonest: 1 / (1 - Φ(z, z))."""
        return 1 / max(1 - float(np.diag(self.transition_matrix).min()), 1e-300)

    @property
    def n_parameters(self) -> int:
        """Free parameters, for information criteria."""
        return self.reward_coefs.size + 1 + (self.n_states - 1) + self.n_states * (self.n_states - 1)

    def reordered(self, order: Ints) -> SwitchingRegression:
        """The same model with state ``order[i]`` called i."""
        return replace(
            self,
            initial_probs=self.initial_probs[order],
            transition_matrix=np.ascontiguousarray(self.transition_matrix[np.ix_(order, order)]),
            reward_coefs=self.reward_coefs[order],
            reward_precisions=self.reward_precisions[order],
        )

    def shifted(self, coefs: Floats) -> SwitchingRegression:
        """The same model of rewards that are larger by coefs · f(x, a)."""
        return replace(self, reward_coefs=self.reward_coefs + coefs)

    def smooth(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | all rewards)."""
        chain = self._chain(log)
        posteriors = np.empty((len(log), self.n_states))
        expectation(self, chain, posteriors)
        return chain.in_log_order(posteriors)

    def filter(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | r_1:t)."""
        chain = self._chain(log)
        return chain.in_log_order(self._filtered(chain))

    def forecast(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | r_1:t-1): what was known before each reward, fit for value claims."""
        chain = self._chain(log)
        known = np.roll(self._filtered(chain) @ self.transition_matrix, 1, axis=0)
        known[chain.starts] = self.initial_probs
        return chain.in_log_order(known)

    def log_likelihood(self, log: BanditLog) -> float:
        """log p(r_1:n | x_1:n, a_1:n)."""
        chain = self._chain(log)
        belief, room = self.initial_probs.copy(), Workspace.for_chain(chain, self.n_states)
        return sum(_forward(self, chain, rounds, belief, room) for rounds in chain.slices)

    def _chain(self, log: BanditLog) -> Chain:
        if log.joint != self.joint:
            raise ParameterError(f"the model is of {self.joint}; this log has {log.joint}.")
        return Chain(log)

    def _filtered(self, chain: Chain) -> Floats:
        belief, room = self.initial_probs.copy(), Workspace.for_chain(chain, self.n_states)
        filtered = np.empty((len(chain.log), self.n_states))
        for rounds in chain.slices:
            arrays, evidence = chain.log[rounds].arrays, room.evidence[: rounds.stop - rounds.start]
            gaussian_evidences(
                arrays.rows, arrays.actions, arrays.rewards, self.reward_coefs, self.noise_variance, evidence
            )
            starts = chain.starts[rounds]
            filter_rounds(evidence, starts, self.initial_probs, self.transition_matrix, belief, filtered[rounds])
        return filtered


class Chain:
    """A log as one run of chains: each sequence in one piece, cut into chunks."""

    def __init__(self, log: BanditLog, chunk_rows: int = CHUNK_ROWS) -> None:
        require_rounds(log, "a hidden Markov model")
        self.order, self.starts = chains(log)
        self.log = log if log.sequences is None else log.take(self.order)
        self.next_starts = np.append(self.starts[1:], True)
        self.firsts = np.flatnonzero(self.starts)
        self.slices = log.chunk_slices(chunk_rows)

    def first_rounds(self, rounds: slice) -> Ints:
        """Where chains start, as places in the chunk ``rounds``."""
        low, high = np.searchsorted(self.firsts, (rounds.start, rounds.stop))
        return np.asarray(self.firsts[low:high] - rounds.start)

    def in_log_order(self, ordered: Floats) -> Floats:
        """Rows of ``ordered`` back where the log has them."""
        if self.log.sequences is None:
            return ordered
        result = np.empty_like(ordered)
        result[self.order] = ordered
        return result


class Workspace(NamedTuple):
    """Room for one chunk's recursions, kept from one E-step to the next: fresh memory costs more than filling it."""

    filtered: Floats  # (rows, L)
    evidence: Floats  # (rows, L)
    inverses: Floats  # (rows,)

    @classmethod
    def for_chain(cls, chain: Chain, n_states: int) -> Workspace:
        """Room for the longest chunk of ``chain``."""
        rows = chain.slices[0].stop
        return cls(np.empty((rows, n_states)), np.empty((rows, n_states)), np.empty(rows))

    def first(self, rows: int) -> Workspace:
        """Room for a chunk of ``rows`` rounds."""
        return Workspace(self.filtered[:rows], self.evidence[:rows], self.inverses[:rows])


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected sufficient statistics of a log under a model; they add up over chunks."""

    log_likelihood: float
    first_states: Floats  # (L,) expected number of chains that start in z
    transitions: Floats  # (L, L) expected number of moves from i to j
    grams: Floats  # (L, B, D, D) Σ_t Q_t(z) f f'
    moments: Floats  # (L, B, D) Σ_t Q_t(z) f r
    totals: Floats  # (L, 2) Σ_t Q_t(z) [r², 1]


def expectation(
    model: SwitchingRegression, chain: Chain, posteriors: Floats | None = None, workspace: Workspace | None = None
) -> Expectation:
    """The E-step: one pass forward, which remembers the belief before each chunk, and one backward.

    ``posteriors``, where given, receives p(z_t | all rewards) in the chain's order.
    """
    n_states = model.n_states
    room = Workspace.for_chain(chain, n_states) if workspace is None else workspace
    belief = model.initial_probs.copy()
    entering, log_likelihood = [], 0.0
    for rounds in chain.slices:
        entering.append(belief.copy())
        log_likelihood += _forward(model, chain, rounds, belief, room)

    first_states, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
    grams = np.zeros((n_states, *model.joint.shape, model.joint.shape[1]))
    moments, totals = np.zeros((n_states, *model.joint.shape)), np.zeros((n_states, 2))
    future = np.ones(n_states)
    for i in range(len(chain.slices) - 1, -1, -1):
        rounds = chain.slices[i]
        filtered, evidence, inverses = room.first(rounds.stop - rounds.start)
        if i < len(chain.slices) - 1:
            _forward(model, chain, rounds, entering[i], room)
        # The posteriors take the place of the filtered probabilities, which each round needs only for itself.
        transition = model.transition_matrix
        backward(filtered, evidence, inverses, chain.next_starts[rounds], transition, future, filtered, pairs)
        first_states += filtered[chain.first_rounds(rounds)].sum(axis=0)
        arrays = chain.log[rounds].arrays
        sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, filtered, model.joint.shape[0])
        grams += sums[0]
        moments += sums[1]
        totals += sums[2]
        if posteriors is not None:
            posteriors[rounds] = filtered
    return Expectation(log_likelihood, first_states, pairs * model.transition_matrix, grams, moments, totals)


def _forward(model: SwitchingRegression, chain: Chain, rounds: slice, belief: Floats, room: Workspace) -> float:
    """Fill ``room`` with a chunk's recursion, move ``belief`` past it; returns its log-likelihood."""
    arrays = chain.log[rounds].arrays
    filtered, evidence, inverses = room.first(len(arrays.actions))
    factors = gaussian_evidences(
        arrays.rows, arrays.actions, arrays.rewards, model.reward_coefs, model.noise_variance, evidence
    )
    sums = forward(
        evidence, chain.starts[rounds], model.initial_probs, model.transition_matrix, belief, filtered, inverses
    )
    return float(factors + sums)
