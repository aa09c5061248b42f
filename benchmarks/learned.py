"""What peers that learn policies read and write.

In, PROBLEM.npz:  contexts (T, d), actions (T,), rewards (T,) from 0 on, propensities (T,), test_contexts (m, d),
                  n_actions ().
Out, OUT.npz:     actions (m,), the greedy policy's on test_contexts; probs (m, K), or scores where it has none.
First line said:  {"side", "way", "policy": OUT.npz, "versions"}; then seconds of one training for every line read
                  (``peers.Peer`` is the other end). Reading PROBLEM.npz and predicting are off the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class Problem:
    """A log to learn from, and contexts to decide on."""

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    propensities: np.ndarray
    test_contexts: np.ndarray
    n_actions: int

    @classmethod
    def read(cls, path: str) -> Self:
        """From PROBLEM.npz."""
        held = np.load(path)
        columns = {name: np.asarray(held[name], dtype=np.float64) for name in ("contexts", "test_contexts", "rewards")}
        return cls(
            actions=held["actions"].astype(np.int64),
            propensities=held["propensities"].astype(np.float64),
            n_actions=int(held["n_actions"]),
            **columns,
        )


def write_policy(path: str, probs: np.ndarray) -> None:
    """OUT.npz."""
    np.savez(path, probs=probs, actions=probs.argmax(axis=1))


def answer_of(side: str, way: str, out: str, versions: dict[str, str]) -> dict[str, Any]:
    """The first line."""
    return {"side": side, "way": way, "policy": out, "versions": versions}
