"""A switching regression: the hidden Markov model that the HMM oracle learns, and inference in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import expit

from seachange.errors import ParameterError
from seachange.kernels.chain import filter_rounds, likeliest_backward, likeliest_forward
from seachange.kernels.emission import evidences, round_scores
from seachange.log.bandit_log import BanditLog
from seachange.log.joint import JointFeatures
from seachange.protocols import Floats, Ints
from seachange.states.chain import Chain
from seachange.states.expectation import Workspace, expectation, log_likelihood

Rewards = Literal["gaussian", "gaussian per state", "bernoulli"]


@dataclass(frozen=True, eq=False)
class SwitchingRegression:
    """z_1 ~ P_0, z_t+1 ~ Φ(z_t, ·), and a reward whose mean is linear in β_z · f(x_t, a_t).

    gaussian            r_t ~ N(β_z · f, σ²)
    gaussian per state  r_t ~ N(β_z · f, σ²_z)
    bernoulli           r_t = 1 with probability 1 / (1 + exp(-β_z · f)), else 0
    """

    initial_probs: Floats  # (L,) P_0
    transition_matrix: Floats  # (L, L) Φ, row = from
    reward_coefs: Floats  # (L, B, D) β_z
    reward_precisions: Floats  # (L, B, D, D) precision of β_z, in units of 1 / σ²_z where rewards are Gaussian
    noise_variances: Floats  # (L,) σ²_z; (0,) where rewards are clicks
    joint: JointFeatures
    rewards: Rewards = "gaussian"

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.initial_probs)

    @property
    def shortest_stay(self) -> float:
        """Expected rounds in the state that is left soonest."""
        return float(self.expected_stays.min())

    @property
    def expected_stays(self) -> Floats:
        """(L,) expected rounds in a state: 1 / (1 - Φ(z, z))."""
        return np.asarray(1 / np.maximum(1 - np.diag(self.transition_matrix), 1e-300))

    @property
    def n_parameters(self) -> int:
        """Free parameters, for information criteria."""
        n_variances = {"gaussian": 1, "gaussian per state": self.n_states, "bernoulli": 0}[self.rewards]
        return self.reward_coefs.size + n_variances + (self.n_states - 1) + self.n_states * (self.n_states - 1)

    def reordered(self, order: Ints) -> SwitchingRegression:
        """The same model with state ``order[i]`` called i."""
        return replace(
            self,
            initial_probs=self.initial_probs[order],
            transition_matrix=np.ascontiguousarray(self.transition_matrix[np.ix_(order, order)]),
            reward_coefs=self.reward_coefs[order],
            reward_precisions=self.reward_precisions[order],
            noise_variances=self.noise_variances[order] if len(self.noise_variances) else self.noise_variances,
        )

    def shifted(self, coefs: Floats) -> SwitchingRegression:
        """The same model with scores that are larger by coefs · f(x, a)."""
        return replace(self, reward_coefs=self.reward_coefs + coefs)

    def smooth(self, log: BanditLog, workers: int = 1) -> Floats:
        """(n, L) p(z_t | all rewards)."""
        chain = self._chain(log)
        posteriors = np.empty((len(log), self.n_states))
        expectation(self, chain, posteriors, workers=workers)
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

    def predict_rewards(self, log: BanditLog) -> Floats:
        """(n,) E[r_t | x_t, a_t, r_1:t-1]: what each reward was expected to be just before it came."""
        return np.asarray(np.sum(self.forecast(log) * self.mean_rewards(log), axis=1))

    def mean_rewards(self, log: BanditLog) -> Floats:
        """(n, L) E[r_t | x_t, a_t, z]: what the action that was taken earns in each state."""
        scores = np.empty((len(log), self.n_states))
        round_scores(log.arrays.rows, log.arrays.actions, self.reward_coefs, scores)
        return np.asarray(expit(scores)) if self.rewards == "bernoulli" else scores

    def likeliest_path(self, log: BanditLog) -> Ints:
        """(n,) argmax over paths of p(z_1:n | all rewards), by Viterbi's recursion."""
        chain, n = self._chain(log), len(log)
        path, origins = np.empty(n, np.int64), np.zeros((n, self.n_states), np.int16)
        best = np.zeros(self.n_states)
        for rounds, evidence in self._evidences(chain):
            likeliest_forward(
                evidence, chain.starts[rounds], chain.next_starts[rounds], self.initial_probs,
                np.maximum(self.transition_matrix, 1e-300), best, origins[rounds], path[rounds],
            )  # fmt: skip
        likeliest_backward(origins, chain.next_starts, path)
        return chain.in_log_order(path)

    def log_likelihood(self, log: BanditLog, workers: int = 1) -> float:
        """log p(r_1:n | x_1:n, a_1:n)."""
        return log_likelihood(self, self._chain(log), workers)

    def _chain(self, log: BanditLog) -> Chain:
        if log.joint != self.joint:
            raise ParameterError(f"the model is of {self.joint}; this log has {log.joint}.")
        if self.rewards == "bernoulli":
            odd = np.flatnonzero(~np.isin(log.arrays.rewards, (0.0, 1.0)) & ~np.isnan(log.arrays.rewards))
            if len(odd):
                row = int(odd[0])
                raise ParameterError(
                    f"the model is of clicks, rewards of 0 or 1; row {row} of this log has {log.arrays.rewards[row]:g} "
                    f"({len(odd)} of {len(log)} rows do not fit)."
                )
        return Chain(log)

    def _evidences(self, chain: Chain) -> Iterator[tuple[slice, Floats]]:
        """The evidence of each section of the chain, in order."""
        room = Workspace.for_chain(chain, self)
        for section in (section for span in chain.spans for section in span):
            arrays, part = chain.arrays(section.rounds), room.part(section, section.rounds)
            evidences(
                arrays.rows, arrays.actions, arrays.rewards, self.reward_coefs, self.noise_variances,
                part.evidence, part.scores,
            )  # fmt: skip
            yield section.rounds, part.evidence

    def _filtered(self, chain: Chain) -> Floats:
        belief, filtered = self.initial_probs.copy(), np.empty((len(chain.log), self.n_states))
        for rounds, evidence in self._evidences(chain):
            starts = chain.starts[rounds]
            filter_rounds(evidence, starts, self.initial_probs, self.transition_matrix, belief, filtered[rounds])
        return filtered
