"""The three problems of the EM benchmarks, with their true parameters and a common start.

S  the paper's synthetic log: 100,000 rounds, 5 actions, 5 states that last 10,000 rounds
Y  one long chain: 518,400 rounds, 60 dense features (including an intercept), 10 states that last 5,000 rounds
M  many short chains: 20,000 chains of 50 rounds, 8 features, 4 states that last 25 rounds

In Y and M, a state's coefficients explain as much of the reward's variance as the noise. The start differs from the
truth by half a standard deviation of the coefficients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import seachange as sc
from seachange.states.em import Prior
from seachange.states.switching_regression import SwitchingRegression

RIDGE = 1e-9  # negligible; the peers have no prior on the weights
START_ERROR = 0.5  # of the coefficients, in standard deviations


@dataclass(frozen=True)
class Form:
    """A problem in the form that one side uses."""

    name: str
    log: sc.BanditLog
    start: SwitchingRegression


@dataclass(frozen=True)
class Problem:
    """Data, start, and prior. The first form is our natural one; the last is shared with the peers."""

    title: str
    forms: tuple[Form, ...]
    features: np.ndarray  # (n, M) the peers' inputs, without an intercept, which they add
    length: int  # rounds per chain
    prior: Prior
    iterations: int  # of EM per measurement

    @property
    def n_states(self) -> int:
        """L."""
        return self.forms[0].start.n_states

    def write(self, path: Path) -> None:
        """Write the peer's input: data, start, priors, likelihoods."""
        log, start = self.forms[-1].log, self.forms[-1].start
        surprise = np.square(log.rewards[:, None] - start.mean_rewards(log)) / start.noise_variances
        np.savez(
            path,
            features=self.features.reshape(-1, self.length, self.features.shape[1]),
            rewards=log.rewards.reshape(-1, self.length, 1),
            log_likelihoods=-0.5 * (surprise + np.log(2 * np.pi * start.noise_variances)),
            initial_probs=start.initial_probs,
            transition_matrix=start.transition_matrix,
            weights=start.reward_coefs[:, 0, :-1],
            biases=start.reward_coefs[:, 0, -1],
            noise_variances=start.noise_variances,
            first_counts=self.prior.first_counts(self.n_states),
            transition_counts=self.prior.transition_counts(self.n_states),
        )


def synthetic() -> Problem:
    """S, as a log and as a matrix with an intercept and indicators of all actions but the last."""
    world = sc.simulate.Synthetic(seed=0)
    log, generator = world.log(seed=0), np.random.default_rng(0)
    levels = world.state_means + generator.normal(0, START_ERROR * world.state_means.std(), world.state_means.shape)
    start = sticky_model(log, levels[:, :, None], stay=world.segment_length, noise=world.noise)
    # With indicators of all actions and an intercept, the peer's M-step would be singular.
    features = np.eye(log.n_actions)[log.actions][:, :-1]
    matrix = one_action_log(features, log.rewards)
    coefs = np.concatenate([levels[:, :-1] - levels[:, -1:], levels[:, -1:]], axis=1)
    forms = (
        Form("the log as it is", log, start),
        Form("as a matrix", matrix, sticky_model(matrix, coefs[:, None], stay=world.segment_length, noise=world.noise)),
    )
    return Problem(
        f"S: {len(log):,} rounds, 5 actions, 5 states", forms, features, len(log), prior(log, world.segment_length), 10
    )


def long_chain(n: int = 518_400) -> Problem:
    """Y."""
    return _drawn("Y", n_chains=1, length=n, n_features=60, n_states=10, stay=5_000, iterations=2)


def many_chains(n_chains: int = 20_000) -> Problem:
    """M."""
    return _drawn("M", n_chains=n_chains, length=50, n_features=8, n_states=4, stay=25, iterations=5)


PROBLEMS: dict[str, Callable[[], Problem]] = {"S": synthetic, "Y": long_chain, "M": many_chains}


def _drawn(
    name: str, *, n_chains: int, length: int, n_features: int, n_states: int, stay: int, iterations: int
) -> Problem:
    """A switching regression: r = β_z · [x, 1] + N(0, 1), entries of x and √D β from N(0, 1)."""
    generator = np.random.default_rng(0)
    n, deviation = n_chains * length, 1 / np.sqrt(n_features)
    coefs = generator.normal(0, deviation, (n_states, n_features))
    features = generator.normal(0, 1, (n, n_features - 1))
    states = _states(generator, n, n_states, stay, np.arange(0, n, length))
    rewards = np.einsum("ni,ni->n", features, coefs[states, :-1]) + coefs[states, -1] + generator.normal(0, 1, n)
    sequences = np.repeat(np.arange(n_chains), length) if n_chains > 1 else None
    log = one_action_log(features, rewards, sequences)
    start = sticky_model(
        log, (coefs + generator.normal(0, START_ERROR * deviation, coefs.shape))[:, None], stay, noise=1.0
    )
    chains = f"{n_chains:,} chains of {length} rounds" if n_chains > 1 else f"{n:,} rounds"
    title = f"{name}: {chains}, {n_features} features, {n_states} states"
    return Problem(title, (Form("as a matrix", log, start),), features, length, prior(log, stay), iterations)


def _states(generator: np.random.Generator, n: int, n_states: int, stay: int, firsts: np.ndarray) -> np.ndarray:
    """(n,) a state path that moves to another state with probability 1 / stay and restarts at ``firsts``."""
    steps = np.where(generator.random(n) < 1 / stay, generator.integers(1, n_states, n), 0)
    steps[firsts] = generator.integers(0, n_states, len(firsts))
    return np.cumsum(steps) % n_states


def one_action_log(features: np.ndarray, rewards: np.ndarray, sequences: np.ndarray | None = None) -> sc.BanditLog:
    """A plain regression as a log with a single action."""
    zeros = np.zeros(len(rewards), dtype=np.int64)
    return sc.BanditLog.from_arrays(zeros, rewards, zeros + 1.0, contexts=features, n_actions=1, sequences=sequences)


def sticky_model(log: sc.BanditLog, coefs: np.ndarray, stay: float, noise: float) -> SwitchingRegression:
    """A model with coefficients (L, B, D) whose states last ``stay`` rounds on average."""
    n_states, n_blocks, n_features = coefs.shape
    transition = np.full((n_states, n_states), 1 / (stay * (n_states - 1)))
    np.fill_diagonal(transition, 1 - 1 / stay)
    return SwitchingRegression(
        initial_probs=np.full(n_states, 1 / n_states),
        transition_matrix=transition,
        reward_coefs=np.ascontiguousarray(coefs),
        reward_precisions=np.zeros((n_states, n_blocks, n_features, n_features)),
        noise_variances=np.full(n_states, noise**2),
        joint=log.joint,
    )


def prior(log: sc.BanditLog, stay: float) -> Prior:
    """The prior of both sides on initial states and transitions; negligible on the weights."""
    return Prior(ridge=RIDGE, visits=1.0, stay=float(stay), units=log.units)
