"""Rounds of a simulated world, and deployments in it."""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.deploy.decision import Trace
from seachange.log.bandit_log import BanditLog
from seachange.params import Brief
from seachange.protocols import Bools, Environment, Floats, Ints


@dataclass(frozen=True, eq=False, repr=False)
class Rounds(Brief):
    """Consecutive rounds with the reward of every action."""

    contexts: Floats  # (n, 0), (n, d) or (n, K, d)
    mean_rewards: Floats  # (n, K) E[r | x_t, a, z_t]
    rewards: Floats  # (n, K) what action a would earn
    states: Ints  # (n,) z_t
    action_mask: Bools | None = None  # (n, K)

    @classmethod
    def with_clicks(
        cls, contexts: Floats, rates: Floats, generator: np.random.Generator, states: Ints | None = None
    ) -> Self:
        """Rounds with clicks drawn at ``rates`` (n, K); without ``states``, all of them are in state 0."""
        clicks = (generator.random(rates.shape) < rates).astype(np.float64)
        return cls(contexts, rates, clicks, np.zeros(len(rates), dtype=np.int64) if states is None else states)

    def __len__(self) -> int:
        """Number of rounds."""
        return len(self.states)

    def logged_by(self, logging_probs: Floats, uniforms: Floats, **columns: Any) -> BanditLog:
        """The log of a policy with these (n, K) probabilities; ``columns`` are passed to ``from_arrays``."""
        n, n_actions = self.rewards.shape
        actions = np.minimum((uniforms[:, None] >= np.cumsum(logging_probs, axis=1)).sum(axis=1), n_actions - 1)
        everyone = np.arange(n)
        return BanditLog.from_arrays(
            actions,
            self.rewards[everyone, actions],
            logging_probs[everyone, actions],
            contexts=self.contexts if self.contexts.ndim == 2 and self.contexts.shape[1] else None,
            action_features=self.contexts if self.contexts.ndim == 3 else None,
            action_mask=self.action_mask,
            logging_probs=logging_probs,
            n_actions=n_actions,
            **columns,
        )


CHUNK_ROUNDS = 1 << 14


def rollout(env: Environment, deployer: BeliefDeployer, seed: int) -> Trace:
    """Deploy in ``env`` from its first round to its horizon.

    Advice is computed chunk by chunk and each chunk runs in one kernel; the result is bit-equal to calling ``act`` and
    ``update`` round by round.
    """
    generator = np.random.default_rng([seed, 4])
    state, traces = deployer.init(), []
    for each in env.rounds(seed, CHUNK_ROUNDS):
        uniforms = generator.random(len(each))
        state, trace = deployer.run(state, each.contexts, each.mean_rewards, each.rewards, uniforms, each.action_mask)
        traces.append(trace)
    return Trace(*(np.concatenate([getattr(trace, field.name) for trace in traces]) for field in fields(Trace)))
