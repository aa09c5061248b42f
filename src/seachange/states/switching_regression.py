"""Switching regression: the hidden Markov model learned by ``HMMOracle``, inference in it, and a live filter."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from seachange.errors import ParameterError
from seachange.kernels.belief_updates import is_distribution, move, weigh
from seachange.kernels.emission import reward_evidence, round_scores, state_scores
from seachange.kernels.forward_backward import filter_rounds
from seachange.log.bandit_log import BanditLog, reward_distribution
from seachange.log.joint_features import JointFeatures
from seachange.log.validation import LARGEST
from seachange.params import Auto, Brief, require, require_count
from seachange.protocols import Floats, Ints
from seachange.registry import Arrays, SavedPart
from seachange.states.expectation import Chain, LikeliestStates, Workspace, emit, expectation
from seachange.states.pooled_regression import linear_fits

Rewards = Literal["gaussian", "gaussian per state", "bernoulli", "hurdle"]
# With rewards="auto", rewards of which at least this share is 0 are a hurdle.
LEAST_ZERO = 0.5
# A few refunds count as rounds without a purchase: at most this share of the rewards.
MOST_NEGATIVE = 0.01
# Lower bound on initial and transition probabilities, so that evidence can overrule any of them.
LEAST_PROBABILITY = 1e-30
# Noise variances in a model file are at least this: 1 / σ² must stay finite.
LEAST_VARIANCE = 1e-300
SAVED_ARRAYS = ("initial_probs", "transition_matrix", "reward_coefs", "reward_precisions", "noise_variances")


@dataclass(frozen=True, eq=False, repr=False)
class SwitchingRegression(Brief):
    """z_1 ~ P_0, z_t+1 ~ Φ(z_t, ·), and a reward whose mean is linear in β_z · f(x_t, a_t).

    gaussian            r_t ~ N(β_z · f, σ²)
    gaussian per state  r_t ~ N(β_z · f, σ²_z)
    bernoulli           r_t = 1 with probability 1 / (1 + exp(-β_z · f)), else 0
    hurdle              r_t > 0 with that probability, else 0; its mean is then α · f in every state
    """

    initial_probs: Floats  # (L,) P_0
    transition_matrix: Floats  # (L, L) Φ, row = from
    reward_coefs: Floats  # (L, B, D) β_z
    reward_precisions: Floats  # (L, B, D, D) precision of β_z, in units of 1 / σ²_z for Gaussian rewards
    noise_variances: Floats  # (L,) σ²_z; (0,) for clicks
    joint: JointFeatures
    rewards: Rewards = "gaussian"
    amounts: Floats | None = None  # (B, D) α, if rewards are a hurdle

    def __post_init__(self) -> None:
        for name in ("initial_probs", "transition_matrix"):
            object.__setattr__(self, name, np.maximum(getattr(self, name), LEAST_PROBABILITY))

    def saved_arrays(self) -> Arrays:
        """What a model file keeps."""
        amounts = {} if self.amounts is None else {"amounts": self.amounts}
        return {name: getattr(self, name) for name in SAVED_ARRAYS} | amounts

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, n_states: int, rewards: Rewards) -> Self:
        """The model that a model file holds."""
        shape = (n_states, *joint.shape)
        return cls(
            initial_probs=part.distributions("initial_probs", (n_states,)),
            transition_matrix=part.distributions("transition_matrix", (n_states, n_states)),
            reward_coefs=part.floats("reward_coefs", shape),
            reward_precisions=part.precisions("reward_precisions", (*shape, shape[2])),
            noise_variances=part.floats(
                "noise_variances", (0 if rewards in ("bernoulli", "hurdle") else n_states,), low=LEAST_VARIANCE
            ),
            joint=joint,
            rewards=rewards,
            amounts=part.floats("amounts", joint.shape) if rewards == "hurdle" else None,
        )

    @classmethod
    def of_purchases(cls, clicks: "SwitchingRegression", log: BanditLog) -> Self:
        """A hurdle: whether there is a reward as in ``clicks``, and the mean of those in ``log``."""
        amounts = linear_fits(log, (log.arrays.rewards > 0).astype(np.float64)[:, None])[0].coefs
        return replace(clicks, rewards="hurdle", amounts=amounts)  # type: ignore[return-value]

    @property
    def clicks(self) -> bool:
        """Whether the state only decides if there is a reward."""
        return len(self.noise_variances) == 0

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.initial_probs)

    @property
    def evidence_variances(self) -> Floats:
        """``noise_variances`` as ``reward_evidence`` expects them."""
        return np.array([-1.0]) if self.rewards == "hurdle" else self.noise_variances

    @property
    def expected_stays(self) -> Floats:
        """(L,) expected rounds per visit to a state: 1 / (1 - Φ(z, z))."""
        return np.asarray(1 / np.maximum(1 - np.diag(self.transition_matrix), 1e-300))

    @property
    def n_parameters(self) -> int:
        """Free parameters, for information criteria."""
        n_variances = {"gaussian": 1, "gaussian per state": self.n_states}.get(self.rewards, 0)
        return self.reward_coefs.size + n_variances + (self.n_states - 1) + self.n_states * (self.n_states - 1)

    def reordered(self, order: Ints) -> Self:
        """The same model with state ``order[i]`` renumbered i."""
        arrays: dict[str, Any] = {name: getattr(self, name)[order] for name in SAVED_ARRAYS[: 4 if self.clicks else 5]}
        arrays["transition_matrix"] = np.ascontiguousarray(self.transition_matrix[np.ix_(order, order)])
        return replace(self, **arrays)

    def shifted(self, coefs: Floats) -> Self:
        """The same model with coefs · f(x, a) added to all scores."""
        return replace(self, reward_coefs=self.reward_coefs + coefs)

    def smooth(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | all rewards)."""
        chain = self._chain(log)
        posteriors = log.new_array(len(log), self.n_states)
        expectation(self, chain, posteriors)
        return chain.in_log_order(posteriors)

    def likeliest_states(self, log: BanditLog) -> Ints:
        """(n,) argmax_z p(z_t = z | all rewards), round by round."""
        chain, found = self._chain(log), LikeliestStates(len(log))
        expectation(self, chain, found)
        return chain.in_log_order(found.states.astype(np.int64))

    def filter(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | r_1:t)."""
        chain = self._chain(log, by_tile=True)
        return _collected(chain, self._filtered(chain), self.n_states)

    def forecast(self, log: BanditLog) -> Floats:
        """(n, L) p(z_t | r_1:t-1): the belief before each reward, valid for off-policy evaluation."""
        chain = self._chain(log, by_tile=True)
        return _collected(chain, self._forecasts(chain), self.n_states)

    def predict_rewards(self, log: BanditLog, ahead: int = 1) -> Floats:
        """(n,) E[r_t | x_t, a_t, r_1:t-h]: predictions of rewards h = ``ahead`` rounds ahead."""
        require_count("ahead", ahead)
        chain = self._chain(log, by_tile=True)
        forecasts = self._forecasts(chain, ahead)
        expected = ((each, np.sum(known * self.mean_rewards(chain.log[each]), axis=1)) for each, known in forecasts)
        return _collected(chain, expected)

    def log_predictive(self, log: BanditLog) -> Floats:
        """(n,) log p(r_t | x_t, a_t, r_1:t-1), 0 without a reward; the sum is ``log_likelihood``."""
        chain = self._chain(log, by_tile=True)
        densities = ((each, self.log_densities(chain.log[each], known)) for each, known in self._forecasts(chain))
        return _collected(chain, densities)

    def log_densities(self, log: BanditLog, beliefs: Floats) -> Floats:
        """(n,) log Σ_z b(z) p(r | x, a, z) for ``beliefs`` b (n, L), 0 without a reward."""
        means, rewards = self._signal_means(log), log.arrays.rewards[:, None]
        if self.clicks:
            logs = np.log(np.maximum(np.where(rewards > 0.5, means, 1 - means), LEAST_PROBABILITY))
        else:
            variances = self.noise_variances
            logs = -0.5 * (np.square(rewards - means) / variances + np.log(2 * np.pi * variances))
        highest = logs.max(axis=1, keepdims=True)
        densities = highest[:, 0] + np.log(np.sum(beliefs * np.exp(logs - highest), axis=1))
        return np.where(np.isnan(rewards[:, 0]), 0.0, densities)

    def mean_rewards(self, log: BanditLog) -> Floats:
        """(n, L) E[r_t | x_t, a_t, z]: the expected reward of the logged action in each state."""
        means = self._signal_means(log)
        if self.amounts is not None:
            amounts = np.empty((len(log), 1))
            round_scores(log.arrays.rows, log.arrays.actions, self.amounts[None], amounts)
            means = means * np.maximum(amounts, 0.0)
        return means

    def _signal_means(self, log: BanditLog) -> Floats:
        """(n, L) the mean of what tells states apart: the reward, or whether there is one."""
        scores = np.empty((len(log), self.n_states))
        round_scores(log.arrays.rows, log.arrays.actions, self.reward_coefs, scores)
        return np.asarray(expit(scores)) if self.clicks else scores

    def shortest_segment(self, log: BanditLog) -> float:
        """Rounds after which any two states can be told apart: max_ij log(s_i s_j) / KL_ij, with s the expected stays.

        A shorter segment of j within i is less likely than none: KL_ij ≈ E (m_i - m_j)² / 2 σ² is the log-likelihood
        that an average round adds, and two more changes cost log(s_i s_j).
        """
        evidence, stays = np.full((self.n_states, self.n_states), 1e-300), np.log(self.expected_stays)
        for rounds in log.chunk_slices():
            means = self._signal_means(log[rounds])
            variances = np.maximum(means * (1 - means), 1e-9) if self.clicks else self.noise_variances
            squares = [np.sum(np.square(means - own[:, None]) / variances, axis=0) for own in means.T]
            evidence += np.array(squares) / (2 * len(log))
        np.fill_diagonal(evidence, np.inf)
        return float(np.max(np.add.outer(stays, stays) / evidence))

    def log_likelihood(self, log: BanditLog) -> float:
        """log p(r_1:n | x_1:n, a_1:n); of a hurdle, only of whether there is a reward."""
        return expectation(self, self._chain(log)).log_likelihood

    def _chain(self, log: BanditLog, *, by_tile: bool = False) -> Chain:
        if log.joint != self.joint:
            raise ParameterError(f"the model was fitted with {self.joint}; this log has {log.joint}.")
        if self.rewards == "hurdle":
            log = bought(log)
        if self.rewards == "bernoulli":
            invalid = np.flatnonzero(~np.isin(log.arrays.rewards, (0.0, 1.0)) & ~np.isnan(log.arrays.rewards))
            if len(invalid):
                row = int(invalid[0])
                raise ParameterError(
                    f"the model is for clicks and needs rewards of 0 or 1; row {row} of this log has "
                    f"{log.arrays.rewards[row]:g} ({len(invalid)} of {len(log)} rows are invalid)."
                )
        return Chain(log, tiles_per_section=1) if by_tile else Chain(log)

    def _filtered(self, chain: Chain) -> Iterator[tuple[slice, Floats]]:
        """p(z_t | r_1:t) of each section of the chain, in order."""
        belief, workspace = self.initial_probs.copy(), Workspace.for_chain(chain, self)
        for section in (section for span in chain.spans for section in span):
            rounds, buffers = section.rounds, workspace.part(section, section.rounds)
            emit(self, chain.arrays(rounds), buffers)
            moves, filtered = (self.initial_probs, self.transition_matrix), np.empty_like(buffers.evidence)
            filter_rounds(buffers.evidence, chain.starts[rounds], *moves, belief, filtered)
            yield rounds, filtered

    def _forecasts(self, chain: Chain, ahead: int = 1) -> Iterator[tuple[slice, Floats]]:
        """p(z_t | r_1:t-h) of each section of the chain, in order."""
        moves = np.linalg.matrix_power(self.transition_matrix, ahead)
        # In the first h rounds of a chain, only the initial distribution is known.
        young = np.stack([self.initial_probs @ np.linalg.matrix_power(self.transition_matrix, i) for i in range(ahead)])
        before = np.zeros((0, self.n_states))
        for rounds, filtered in self._filtered(chain):
            # The beliefs h rounds earlier include the last h rounds of the previous sections.
            joined = np.concatenate([before, filtered])[-(len(filtered) + ahead) :]
            missing = len(filtered) + ahead - len(joined)
            known = np.concatenate([np.zeros((missing, self.n_states)), joined])[: len(filtered)] @ moves
            each = np.arange(rounds.start, rounds.stop)
            age = each - chain.firsts[np.searchsorted(chain.firsts, each, side="right") - 1]
            known[age < ahead] = young[age[age < ahead]]
            before = joined
            yield rounds, known


def _collected(chain: Chain, parts: Iterable[tuple[slice, Floats]], *shape: int) -> Floats:
    """(n, *shape) values of all rounds, in the order of the log."""
    found = chain.log.new_array(len(chain.log), *shape)
    for rounds, values in parts:
        found[rounds] = values
    return chain.in_log_order(found)


def state_rewards(log: BanditLog, wanted: Rewards | Auto) -> Rewards:
    """The reward distribution of an HMM of ``log``: ``wanted``, after checking that it suits the rewards."""
    found: Rewards = reward_distribution(log, wanted)
    if "hurdle" not in (wanted, found) and (wanted, found) != ("auto", "gaussian"):
        return found
    totals = np.zeros(3, dtype=np.int64)
    for rounds in log.chunk_slices():
        rewards = log.arrays.rewards[rounds]
        totals += [np.count_nonzero(each) for each in (rewards == 0, rewards < 0, np.isfinite(rewards))]
    n_zero, n_negative, n_seen = totals.tolist()
    if wanted == "hurdle":
        rule = 'rewards="hurdle" needs rewards of at least 0, except for a few refunds'
        require(n_negative <= MOST_NEGATIVE * n_seen, f"{rule}; {n_negative:,} are negative.")
    elif n_negative > MOST_NEGATIVE * n_seen or n_zero < LEAST_ZERO * n_seen:
        return found
    return "hurdle"


def bought(log: BanditLog) -> BanditLog:
    """The log with rewards of 1 for those above 0."""
    rewards = log.arrays.rewards
    return log.with_rewards(np.where(np.isnan(rewards), rewards, rewards > 0))


def hmm_of(oracle: Any) -> SwitchingRegression | None:
    """The HMM of a fitted oracle, if it has one."""
    found = getattr(oracle, "model_", None)
    return found if isinstance(found, SwitchingRegression) else None


def regression_of(given: Any, needed: str) -> SwitchingRegression:
    """The switching regression of a model or an oracle, or ``given`` itself."""
    found = hmm_of(given) or getattr(given, "world", given)
    if not isinstance(found, SwitchingRegression):
        raise ParameterError(f"{needed} a model, or a fitted HMMOracle; got {given!r}.")
    return found


@dataclass(frozen=True, eq=False, repr=False)
class LiveState(Brief):
    """The belief after some rounds."""

    state_probs: Floats  # (L,) p(z_t | r_1:t); P_0 before the first round
    forecast: Floats  # (L,) p(z_t+1 | r_1:t): for the next round
    rounds: int  # t


@dataclass(frozen=True, eq=False, repr=False)
class LiveFilter(Brief):
    """Filter a log while it is being written. Equals ``SwitchingRegression.filter`` to the bit.

    >>> live = LiveFilter(oracle)  # doctest: +SKIP
    >>> state = live.init()  # doctest: +SKIP
    >>> state = live.update(state, context, action, reward)  # doctest: +SKIP
    """

    hmm: SwitchingRegression  # or a fitted HMMOracle

    def __post_init__(self) -> None:
        object.__setattr__(self, "hmm", regression_of(self.hmm, "LiveFilter needs"))

    def init(self) -> LiveState:
        """The state before the first round."""
        return LiveState(self.hmm.initial_probs.copy(), self.hmm.initial_probs.copy(), 0)

    def update(self, state: LiveState, context: npt.ArrayLike | None, action: int, reward: float | None) -> LiveState:
        """The state after a round. ``context`` is as in the log; ``reward`` None means it was not observed."""
        n_actions, n_states = self.hmm.joint.n_actions, self.hmm.n_states
        require(
            isinstance(state, LiveState) and state.forecast.shape == (n_states,) and is_distribution(state.forecast),
            f"state must be what init() or update() of a filter with {n_states} states returned; got {state!r}.",
        )
        require(
            isinstance(action, int | Integral) and 0 <= action < n_actions,
            f"action must be an index into the log's action_names, 0 to {n_actions - 1}; got {action!r}.",
        )
        finite = isinstance(reward, Real) and math.isfinite(reward)
        require(reward is None or finite, f"reward must be a finite number or None; got {reward}.")
        require(
            reward is None or self.hmm.rewards != "bernoulli" or reward in (0, 1),
            f"the model expects rewards of 0 or 1; got {reward}.",
        )
        evidence = np.ones(n_states)
        if reward is not None:
            contexts = np.empty((1, 0)) if context is None else np.asarray(context)[None]
            scores = np.empty(n_states)
            rows = self.hmm.joint.rows(contexts)
            require(bool((np.abs(rows) <= LARGEST).all()), f"context must be finite; got {context!r}.")
            state_scores(rows[0], action, self.hmm.reward_coefs, scores)
            reward_evidence(scores, float(reward), self.hmm.evidence_variances, evidence)
        probs, forecast = np.empty(n_states), np.empty(n_states)
        weigh(state.forecast, evidence, probs)
        move(probs, self.hmm.transition_matrix, forecast)
        return LiveState(probs, forecast, state.rounds + 1)
