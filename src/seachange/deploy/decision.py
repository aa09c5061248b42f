"""The small records of a deployment: a decision and the state between rounds."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from seachange.errors import ModelFileError
from seachange.protocols import Floats, Ints


@dataclass(frozen=True, eq=False)
class Decision:
    """What was decided in a round, with all that its reward will need whenever it comes."""

    action: int
    propensity: float  # probability with which it was chosen
    probs: Floats  # (K,)
    round: int  # which round of the deployment it is
    by_state: Floats  # (L,) what each state says of the action: π_z(a | x) under Exp4.S, its mean reward under an HMM


@dataclass(frozen=True, eq=False)
class DeploymentState:
    """A deployment between two rounds.

    The evidence of rounds since the oldest one whose reward is still to come is kept, so that a late reward counts at
    its own round.
    """

    belief: Floats  # (L,) Q_t(z) before the coming round
    rounds: int  # rounds that have passed
    anchor: Floats  # (L,) the belief before the oldest round kept
    evidences: Floats  # (m, L) of the rounds kept; NaN where the reward has not come

    def to_bytes(self) -> bytes:
        """A snapshot; ``from_bytes`` goes on from it to the bit."""
        return msgspec.msgpack.encode(
            {
                "rounds": self.rounds,
                "belief": self.belief.astype("<f8").tobytes(),
                "anchor": self.anchor.astype("<f8").tobytes(),
                "evidences": self.evidences.astype("<f8").tobytes(),
            }
        )

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> DeploymentState:
        """The state that ``to_bytes`` wrote."""
        try:
            fields = msgspec.msgpack.decode(snapshot, type=_Snapshot)
            belief, anchor = (np.frombuffer(array, dtype="<f8").copy() for array in (fields.belief, fields.anchor))
            evidences = np.frombuffer(fields.evidences, dtype="<f8").reshape(-1, len(belief)).copy()
        except (msgspec.MsgspecError, ValueError) as error:
            raise ModelFileError(f"this is not a snapshot of a deployment: {error}.") from error
        return cls(belief, fields.rounds, anchor, evidences)


class _Snapshot(msgspec.Struct):
    rounds: int
    belief: bytes
    anchor: bytes
    evidences: bytes


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened in a run of rounds."""

    actions: Ints  # (n,)
    propensities: Floats  # (n,)
    rewards: Floats  # (n,) sampled
    expected_rewards: Floats  # (n,) Σ_a probs(a) μ_t(a)
    state_probs: Floats  # (n, L) the belief each round was decided with
