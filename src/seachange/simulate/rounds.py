"""Rounds of a simulated world: what an environment gives and what a log of it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Rounds:
    """A run of rounds in which every action's reward is known."""

    contexts: Floats  # (n, 0), (n, d) or (n, K, d)
    mean_rewards: Floats  # (n, K) E[r | x_t, a, z_t]
    rewards: Floats  # (n, K) what action a would earn
    states: Ints  # (n,) z_t
    action_mask: Bools | None = None  # (n, K)

    def __len__(self) -> int:
        """Number of rounds."""
        return len(self.states)

    def logged_by(self, logging_probs: Floats, uniforms: Floats, **columns: Any) -> BanditLog:
        """The log a policy with these (n, K) probabilities leaves behind; ``columns`` are those of ``from_arrays``."""
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
