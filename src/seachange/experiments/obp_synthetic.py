"""Open Bandit Pipeline's synthetic table: seven estimators of a soft policy over 30 actions.

Source: zr-obp, examples/synthetic (README.md and evaluate_off_policy_estimators.py), 10,000 rounds, 30 actions,
5 features, β = -3, 20 runs. Run i draws from seed i in the order of the published script, so seeds from 0 on give the
published worlds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import expit, softmax

from seachange.engine import map_in_order
from seachange.experiments.estimator_errors import Published, cross_fitted_rewards, logistic_regression, relative_errors
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints

PUBLISHED = {
    "dm": Published(0.074390, 0.024525),
    "ips": Published(0.009481, 0.006899),
    "snips": Published(0.006665, 0.004541),
    "dr": Published(0.006175, 0.004245),
    "sndr": Published(0.006118, 0.003997),
    "switch-dr": Published(0.006175, 0.004245),
    "dr-os": Published(0.021951, 0.013337),
}
PUBLISHED_RUNS = 20
N_ROUNDS, N_ACTIONS, N_FEATURES = 10_000, 30, 5
# β: the logging policy prefers actions with low rewards.
INVERSE_TEMPERATURE = -3.0


@dataclass(frozen=True, eq=False)
class Rounds:
    """Logged rounds, with the true mean rewards."""

    contexts: Floats  # (n, d)
    mean_rewards: Floats  # (n, K)
    logging_probs: Floats  # (n, K)
    actions: Ints  # (n,)
    rewards: Floats  # (n,)

    @property
    def propensities(self) -> Floats:
        """(n,) p_t."""
        return self.logging_probs[np.arange(len(self.actions)), self.actions]


class World:
    """P(r = 1 | x, a) = σ(z), z the standardized x̃'θ + ã'ψ + x̃'Mã, where x̃ = (1, x) and ã = (1, one-hot a).

    θ, ψ and M are uniform on (-1, 1), x is normal, π_0 ∝ exp(β P(r = 1 | x, a)).
    """

    def __init__(self, seed: int, n_rounds: int = N_ROUNDS) -> None:
        self.seed, self.n_rounds = seed, n_rounds
        self._generator = np.random.RandomState(seed)

    def rounds(self) -> Rounds:
        """The next rounds. As in the published script, actions use the same uniform numbers each time."""
        contexts = self._generator.normal(size=(self.n_rounds, N_FEATURES))
        mean_rewards = self._mean_rewards(contexts)
        logging_probs = softmax(INVERSE_TEMPERATURE * mean_rewards, axis=1)
        uniforms = np.random.RandomState(self.seed).uniform(size=self.n_rounds)
        actions = (logging_probs.cumsum(axis=1) > uniforms[:, None]).argmax(axis=1)
        rewards = self._generator.binomial(1, mean_rewards[np.arange(self.n_rounds), actions])
        return Rounds(contexts, mean_rewards, logging_probs, actions, rewards.astype(np.float64))

    def _mean_rewards(self, contexts: Floats) -> Floats:
        generator = np.random.RandomState(self.seed)
        context_coefs = generator.uniform(-1, 1, size=N_FEATURES + 1)
        action_coefs = generator.uniform(-1, 1, size=N_ACTIONS + 1)
        joint_coefs = generator.uniform(-1, 1, size=(N_FEATURES + 1, N_ACTIONS + 1))
        extended = np.insert(contexts, 0, 1.0, axis=1)
        one_hot = np.insert(np.eye(N_ACTIONS), 0, 1.0, axis=1)
        scores = (extended @ context_coefs)[:, None] + (action_coefs + extended @ joint_coefs) @ one_hot.T
        means: Floats = expit((scores - scores.mean()) / scores.std())
        return means


def run(seed: int, n_rounds: int = N_ROUNDS) -> dict[str, float]:
    """One run: every estimator's relative error for a policy learned from other rounds of the same world."""
    world = World(seed, n_rounds)
    known, later = world.rounds(), world.rounds()
    probs = learned_probs(known, later.contexts)
    modelled = cross_fitted_rewards(later.contexts, np.eye(N_ACTIONS), later.actions, later.rewards)
    log = BanditLog.from_arrays(later.actions, later.rewards, later.propensities, n_actions=N_ACTIONS)
    value = float(np.einsum("ta,ta->t", probs, later.mean_rewards).mean())
    return relative_errors(log, probs, modelled, value)


def learned_probs(known: Rounds, contexts: Floats) -> Floats:
    """π(a | x) ∝ exp P̂(a | x), P̂ the classifier of the logged actions with the weights r / p."""
    classifier = logistic_regression().fit(known.contexts, known.actions, known.rewards / known.propensities)
    scores = np.zeros((len(contexts), N_ACTIONS))
    scores[:, classifier.classes_] = classifier.predict_proba(contexts)
    probs: Floats = softmax(scores, axis=1)
    return probs


def replicate(seeds: Sequence[int], workers: int, n_rounds: int = N_ROUNDS) -> Iterator[dict[str, float]]:
    """``run`` for every seed, in order."""
    return map_in_order(partial(run, n_rounds=n_rounds), seeds, workers=workers, kind="processes")
