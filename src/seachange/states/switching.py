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
from seachange.params import require_count
from seachange.protocols import Floats, Ints
from seachange.states.chain import TILES_A_SECTION, Chain
from seachange.states.expectation import LikeliestStates, Workspace, expectation, log_likelihood

Rewards = Literal["gaussian", "gaussian per state", "bernoulli"]
# No start and no move is less likely.
LEAST_PROBABILITY = 1e-30


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

    def __post_init__(self) -> None:
        # Evidence must be able to overrule any probability: none is 0.
        for name in ("initial_probs", "transition_matrix"):
            object.__setattr__(self, name, np.maximum(getattr(self, name), LEAST_PROBABILITY))

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
        posteriors = log.room(len(log), self.n_states)
        expectation(self, chain, posteriors, workers=workers)
        return chain.in_log_order(posteriors)

    def likeliest_states(self, log: BanditLog, workers: int = 1) -> Ints:
        """(n,) argmax_z p(z_t = z | all rewards), round by round."""
        chain, found = self._chain(log), LikeliestStates(len(log))
        expectation(self, chain, found, workers=workers)
        return chain.in_log_order(found.states.astype(np.int64))

    def filter(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | r_1:t)."""
        chain, found = self._chain(log, 1), log.room(len(log), self.n_states)
        for rounds, filtered in self._filtered(chain):
            found[rounds] = filtered
        return chain.in_log_order(found)

    def forecast(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | r_1:t-1): what was known before each reward, fit for value claims."""
        chain, found = self._chain(log, 1), log.room(len(log), self.n_states)
        for rounds, known in self._forecasts(chain):
            found[rounds] = known
        return chain.in_log_order(found)

    def predict_rewards(self, log: BanditLog, ahead: int = 1) -> Floats:
        """(n,) E[r_t | x_t, a_t, r_1:t-h]: what each reward was expected to be h = ``ahead`` rounds before it came."""
        require_count("ahead", ahead)
        chain, found = self._chain(log, 1), log.room(len(log))
        for rounds, known in self._forecasts(chain, ahead):
            found[rounds] = np.sum(known * self.mean_rewards(chain.log[rounds]), axis=1)
        return chain.in_log_order(found)

    def mean_rewards(self, log: BanditLog) -> Floats:
        """(n, L) E[r_t | x_t, a_t, z]: what the action that was taken earns in each state."""
        scores = np.empty((len(log), self.n_states))
        round_scores(log.arrays.rows, log.arrays.actions, self.reward_coefs, scores)
        return np.asarray(expit(scores)) if self.rewards == "bernoulli" else scores

    def likeliest_path(self, log: BanditLog) -> Ints:
        """(n,) argmax over paths of p(z_1:n | all rewards), by Viterbi's recursion."""
        chain, n = self._chain(log, 1), len(log)
        path, origins = np.empty(n, np.int64), np.zeros((n, self.n_states), np.int16)
        best = np.zeros(self.n_states)
        for rounds, evidence in self._evidences(chain):
            likeliest_forward(
                evidence, chain.starts[rounds], chain.next_starts[rounds], self.initial_probs,
                self.transition_matrix, best, origins[rounds], path[rounds],
            )  # fmt: skip
        likeliest_backward(origins, chain.next_starts, path)
        return chain.in_log_order(path)

    def log_likelihood(self, log: BanditLog, workers: int = 1) -> float:
        """log p(r_1:n | x_1:n, a_1:n)."""
        return log_likelihood(self, self._chain(log), workers)

    def _chain(self, log: BanditLog, tiles_a_section: int = TILES_A_SECTION) -> Chain:
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
        return Chain(log, tiles_a_section=tiles_a_section)

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

    def _filtered(self, chain: Chain) -> Iterator[tuple[slice, Floats]]:
        """p(z_t | r_1:t) of each section of the chain, in order."""
        belief = self.initial_probs.copy()
        for rounds, evidence in self._evidences(chain):
            filtered = np.empty_like(evidence)
            filter_rounds(evidence, chain.starts[rounds], self.initial_probs, self.transition_matrix, belief, filtered)
            yield rounds, filtered

    def _forecasts(self, chain: Chain, ahead: int = 1) -> Iterator[tuple[slice, Floats]]:
        """p(z_t | r_1:t-h) of each section of the chain, in order."""
        moves = np.linalg.matrix_power(self.transition_matrix, ahead)
        # Where a chain is younger than h rounds nothing is known but how it started.
        young = np.stack([self.initial_probs @ np.linalg.matrix_power(self.transition_matrix, i) for i in range(ahead)])
        before = np.zeros((0, self.n_states))
        for rounds, filtered in self._filtered(chain):
            # What was known h rounds before a section lies in those before it, of which the last h rounds are kept.
            joined = np.concatenate([before, filtered])[-(len(filtered) + ahead) :]
            missing = len(filtered) + ahead - len(joined)
            known = np.concatenate([np.zeros((missing, self.n_states)), joined])[: len(filtered)] @ moves
            age = chain.ages(rounds)
            known[age < ahead] = young[age[age < ahead]]
            before = joined
            yield rounds, known
