"""Deployments in a simulated world, the whole horizon at once."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from seachange.deploy.belief import BeliefDeployer
from seachange.deploy.decision import Trace
from seachange.protocols import Environment

CHUNK_ROUNDS = 1 << 14


def rollout(env: Environment, deployer: BeliefDeployer, seed: int) -> Trace:
    """Deploy in ``env`` from its first round to its horizon.

    The advice of the experts is computed chunk by chunk, the rounds of a chunk run in one kernel; the result is that of
    ``act`` and ``update`` round by round, to the bit.
    """
    generator = np.random.default_rng([seed, 4])
    state, traces = deployer.init(), []
    for rounds in env.rounds(seed, CHUNK_ROUNDS):
        uniforms = generator.random(len(rounds))
        state, trace = deployer.run(
            state, rounds.contexts, rounds.mean_rewards, rounds.rewards, uniforms, rounds.action_mask
        )
        traces.append(trace)
    return Trace(*(np.concatenate([getattr(trace, field.name) for trace in traces]) for field in fields(Trace)))
