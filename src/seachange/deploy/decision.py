"""The small records of a deployment: a decision and the state between rounds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Self

import msgspec
import numpy as np

from seachange.errors import ModelFileError
from seachange.protocols import Bools, Floats, Ints


class Snapshot:
    """A record of numbers and arrays that can be written down and goes on to the bit."""

    def to_bytes(self) -> bytes:
        """The record, for ``from_bytes``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return msgspec.msgpack.encode({name: _written(value) for name, value in values.items()})

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> Self:
        """The record that ``to_bytes`` wrote."""
        try:
            written = msgspec.msgpack.decode(snapshot, type=dict[str, Any])
            return cls(**{name: _read(value) for name, value in written.items()})
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
            raise ModelFileError(f"this is not a snapshot of a {cls.__name__}: {error}.") from error


def _written(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.str, "shape": value.shape, "data": value.tobytes()}
    return value


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        dtype = np.dtype(value["dtype"])
        if dtype.kind not in "fib":
            raise ValueError(f"arrays hold numbers, not {dtype}")
        return np.frombuffer(value["data"], dtype=dtype).reshape(value["shape"]).copy()
    return value


@dataclass(frozen=True, eq=False)
class Decision(Snapshot):
    """What was decided in a round, with all that its reward will need whenever it comes."""

    action: int
    propensity: float  # probability with which it was chosen
    probs: Floats  # (K,)
    round: int  # which round of the deployment it is
    by_state: Floats  # (L,) what each state says of the action: π_z(a | x) under Exp4.S, its mean reward under an HMM


@dataclass(frozen=True, eq=False)
class DeploymentState(Snapshot):
    """A deployment between two rounds.

    The evidence of rounds since the oldest one whose reward is still to come is kept, so that a late reward counts at
    its own round.
    """

    belief: Floats  # (L,) Q_t(z) before the coming round
    rounds: int  # rounds that have passed
    anchor: Floats  # (L,) the belief before the oldest round kept
    evidences: Floats  # (m, L) of the rounds kept; ones where the reward has not come
    waiting: Bools  # (m,) whether the reward is still to come


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened in a run of rounds."""

    actions: Ints  # (n,)
    propensities: Floats  # (n,)
    rewards: Floats  # (n,) sampled
    expected_rewards: Floats  # (n,) Σ_a probs(a) μ_t(a)
    state_probs: Floats  # (n, L) the belief each round was decided with
