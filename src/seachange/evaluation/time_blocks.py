"""Reward models that never saw the rounds they speak of: each block of time is predicted from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.policies.rewards import RewardModel, fit_rewards
from seachange.protocols import Floats, Ints

BLOCKS = 5
# Pseudo-rounds that pull the reward model to the mean reward.
RIDGE = 1.0


@dataclass(frozen=True, eq=False)
class BlockedRewards:
    """r̂(x_t, a) fitted on all blocks of time but that of round t."""

    blocks: Ints  # (n,) the block of each round
    models: Sequence[RewardModel]

    def predict(self, log: BanditLog, blocks: Ints) -> Floats:
        """r̂(x_t, a) of rounds from these ``blocks``, (n, K)."""
        predicted = np.empty((len(log), log.n_actions))
        for block in np.unique(blocks):
            members = blocks == block
            found = self.models[block].predict(log)
            predicted[members] = found if len(found) == 1 else found[members]
        return predicted


def fit_blocked_rewards(log: BanditLog, n_blocks: int = BLOCKS) -> BlockedRewards:
    """Reward models of a log by least squares, one for the rounds outside each of ``n_blocks`` runs of rounds.

    A sequence is in one block, with all of its rounds.
    """
    places = np.arange(len(log))
    if log.sequences is not None:
        places = np.unique(log.sequences, return_inverse=True)[1]
    blocks = places * min(n_blocks, int(places.max()) + 1) // (int(places.max()) + 1)
    outside = (blocks[:, None] != np.arange(blocks.max() + 1)).astype(np.float64)
    if outside.shape[1] == 1:
        # One round, or one sequence, has no others to learn from: the model knows nothing.
        outside[:] = 0.0
    return BlockedRewards(blocks, fit_rewards(log, outside, RIDGE))
