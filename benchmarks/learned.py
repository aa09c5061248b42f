"""Input and output of the peers that learn policies.

PROBLEM.npz (input):  contexts (T, d), actions (T,), nonnegative rewards (T,), propensities (T,), test_contexts (m, d),
                      n_actions ().
OUT.npz (output):     actions (m,) of the greedy policy on test_contexts; probs (m, K), or scores if there are none.
Standard output:      one line with {"side", "way", "policy": OUT.npz, "versions"}, then the seconds of one training run
                      for every line read (see ``peers.Peer``). Reading PROBLEM.npz and predicting are not timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np


@dataclass(frozen=True)
class Problem:
    """A log to learn from and contexts to predict on."""

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    propensities: np.ndarray
    test_contexts: np.ndarray
    n_actions: int

    @classmethod
    def read(cls, path: str) -> Self:
        """Read PROBLEM.npz."""
        file = np.load(path)
        columns = {name: np.asarray(file[name], dtype=np.float64) for name in ("contexts", "test_contexts", "rewards")}
        return cls(
            actions=file["actions"].astype(np.int64),
            propensities=file["propensities"].astype(np.float64),
            n_actions=int(file["n_actions"]),
            **columns,
        )


def write_policy(path: str, probs: np.ndarray) -> None:
    """Write OUT.npz."""
    np.savez(path, probs=probs, actions=probs.argmax(axis=1))


def answer_of(side: str, way: str, out: str, versions: dict[str, str]) -> dict[str, Any]:
    """The first line of output."""
    return {"side": side, "way": way, "policy": out, "versions": versions}
