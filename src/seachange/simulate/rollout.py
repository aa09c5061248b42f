"""Rounds of a simulated world, and deployments in it."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.deploy.decision import Decision, Trace
from seachange.deploy.rivals.rival import Rival
from seachange.log.bandit_log import BanditLog
from seachange.params import Brief, require
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

    def chunks(self, size: int) -> Iterator[Self]:
        """The rounds in pieces of at most ``size``."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            mask = None if self.action_mask is None else self.action_mask[part]
            yield type(self)(self.contexts[part], self.mean_rewards[part], self.rewards[part], self.states[part], mask)

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


def rollout(env: Environment, deployer: BeliefDeployer | Rival, seed: int, delay: int = 0) -> Trace:
    """Deploy in ``env`` from its first round to its horizon.

    Advice is computed chunk by chunk and each chunk runs in one kernel; the result is bit-equal to calling ``act`` and
    ``update`` round by round. With a ``delay``, rewards arrive that many rounds late, and rounds are taken one by one.
    """
    require(delay >= 0, f"delay must be at least 0; got {delay}.")
    generator = np.random.default_rng([seed, 4])
    state: Any = deployer.init()
    traces, waiting = [], deque[tuple[Decision, float]]()
    for each in env.rounds(seed, CHUNK_ROUNDS):
        uniforms = generator.random(len(each))
        if delay == 0:
            played = each.contexts, each.mean_rewards, each.rewards, uniforms, each.action_mask
            state, trace = deployer.run(state, *played)
        else:
            state, trace = _late_rounds(each, deployer, state, uniforms, waiting, delay)
        traces.append(trace)
    return Trace(*(np.concatenate([getattr(trace, field.name) for trace in traces]) for field in fields(Trace)))


def _late_rounds(
    rounds: Rounds, deployer: Any, state: Any, uniforms: Floats, waiting: deque[tuple[Decision, float]], delay: int
) -> tuple[Any, Trace]:
    """A chunk of rounds whose rewards arrive ``delay`` rounds late; ``waiting`` are those that have not arrived."""
    n, no_context = len(rounds), rounds.contexts.shape[1:] == (0,)
    n_states = len(deployer.state_probs(state))
    trace = Trace(np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n), np.empty((n, n_states)))
    for t in range(n):
        trace.state_probs[t] = deployer.state_probs(state)
        mask = None if rounds.action_mask is None else rounds.action_mask[t]
        decision = deployer.act(state, None if no_context else rounds.contexts[t], uniforms[t], mask)
        reward = float(rounds.rewards[t, decision.action])
        trace.actions[t], trace.propensities[t], trace.rewards[t] = decision.action, decision.propensity, reward
        trace.expected_rewards[t] = decision.probs @ rounds.mean_rewards[t]
        state = deployer.update(state, decision, None)
        waiting.append((decision, reward))
        if len(waiting) > delay:
            state = deployer.amend(state, *waiting.popleft())
    return state, trace
