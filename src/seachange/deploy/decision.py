"""The small records of a deployment: a decision and the state between rounds."""

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import msgspec
import numpy as np

from seachange.errors import ModelFileError
from seachange.kernels.belief_updates import is_distribution, is_evidence
from seachange.params import Brief
from seachange.protocols import Bools, Floats, Ints

MOST_ROUNDS = 1 << 62  # rounds are counted up to this


class _Array(msgspec.Struct, forbid_unknown_fields=True):
    """An array in a snapshot."""

    dtype: Literal["<f8", "|b1"]
    shape: tuple[int, ...]
    data: bytes

    @property
    def array(self) -> Any:
        flat = np.frombuffer(self.data, dtype=self.dtype)
        if self.dtype == "|b1" and (flat.view(np.uint8) > 1).any():
            raise ValueError("a flag is neither 0 nor 1")
        if any(size < 0 for size in self.shape):
            raise ValueError("a length is negative")
        return flat.reshape(self.shape).copy()


class Snapshot(Brief):
    """A record of numbers and arrays that can be stored; a restored record continues to the bit.

    >>> import numpy as np
    >>> decision = Decision(1, 0.75, np.array([0.25, 0.75]), round=7, by_state=np.ones(2), deployer="5f2a")
    >>> Decision.from_bytes(decision.to_bytes()).propensity
    0.75
    """

    def to_bytes(self) -> bytes:
        """The record as bytes, for ``from_bytes``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return msgspec.msgpack.encode(values, enc_hook=lambda each: _Array(each.dtype.str, each.shape, each.tobytes()))

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> Self:
        """The record that ``to_bytes`` wrote; anything else is a ``ModelFileError``."""
        try:
            written = msgspec.msgpack.decode(snapshot, type=dict[str, int | float | str | _Array])
            record = cls(**{n: value.array if isinstance(value, _Array) else value for n, value in written.items()})
            broken = next((rule for rule, holds in record._rules() if not holds), None)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelFileError(f"this is not a snapshot of a {cls.__name__}: {error}.") from error
        if broken:
            raise ModelFileError(f"this is not a valid snapshot of a {cls.__name__}: {broken}.")
        return record

    def _rules(self) -> Any:
        """Pairs of a rule and whether the record keeps it, most basic rules first."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class Decision(Snapshot):
    """The decision of a round, with everything that its reward will need whenever it arrives."""

    action: int
    propensity: float  # probability with which the action was chosen
    probs: Floats  # (K,)
    round: int  # its round of the deployment
    by_state: Floats  # (L,) π_z(a | x) of the action under Exp4.S, its mean reward under an HMM
    deployer: str  # the fingerprint of the deployer that made it

    def _rules(self) -> Any:
        yield "probs and by_state must be vectors of numbers", _vector(self.probs) and _vector(self.by_state)
        yield "round must be a whole number from 0 on", _whole(self.round, MOST_ROUNDS)
        yield "action must be an index of probs", _whole(self.action, len(self.probs))
        yield "probs must sum to 1", is_distribution(self.probs)
        yield "propensity must be the probability of the action", 0 < self.propensity == self.probs[self.action]
        yield "by_state must be finite", bool(np.isfinite(self.by_state).all())
        yield "deployer must be text", isinstance(self.deployer, str)

    def fits(self, n_states: int) -> bool:
        """Whether it can be of a deployment with ``n_states`` states."""
        plain = _vector(self.by_state) and _whole(self.round, MOST_ROUNDS) and isinstance(self.propensity, float)
        return plain and len(self.by_state) == n_states and 0 < self.propensity <= 1


@dataclass(frozen=True, eq=False, repr=False)
class DeploymentState(Snapshot):
    """A deployment between two rounds.

    It keeps the evidence of all rounds since the oldest one that still waits for its reward, so that a late reward
    counts at its own round.
    """

    belief: Floats  # (L,) Q_t(z) before the next round
    rounds: int  # rounds that have passed
    anchor: Floats  # (L,) the belief before the oldest round kept
    evidences: Floats  # (m, L) of the rounds kept; ones while a reward is missing
    waiting: Bools  # (m,) whether the reward is still missing
    deployer: str  # the fingerprint of the deployer it belongs to

    def _rules(self) -> Any:
        yield "belief must be a vector of numbers", _vector(self.belief) and len(self.belief) > 0
        yield "rounds must be a whole number from 0 on", _whole(self.rounds, MOST_ROUNDS)
        rule = "belief must sum to 1, waiting must hold flags, and all arrays must have the same length"
        yield rule, self.fits(len(self.belief))
        yield "no more rounds can be kept than have passed", len(self.waiting) <= self.rounds
        yield "anchor must sum to 1", is_distribution(self.anchor)
        yield "evidence must be finite and not negative", all(is_evidence(each) for each in self.evidences)
        yield "deployer must be text", isinstance(self.deployer, str)

    def fits(self, n_states: int) -> bool:
        """Whether it can be of a deployment with ``n_states`` states."""
        plain = _vector(self.belief) and _vector(self.anchor) and _vector(self.waiting, np.bool_)
        kept = plain and isinstance(self.evidences, np.ndarray) and self.evidences.dtype == np.float64
        shapes = kept and self.evidences.shape == (len(self.waiting), n_states) and _whole(self.rounds, MOST_ROUNDS)
        return shapes and len(self.belief) == len(self.anchor) == n_states and is_distribution(self.belief)


def _vector(array: Any, dtype: Any = np.float64) -> bool:
    return isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype == dtype


def _whole(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


@dataclass(frozen=True, eq=False, repr=False)
class Trace(Brief):
    """The course of a run of rounds."""

    actions: Ints  # (n,)
    propensities: Floats  # (n,)
    rewards: Floats  # (n,) sampled
    expected_rewards: Floats  # (n,) Σ_a probs(a) μ_t(a)
    state_probs: Floats  # (n, L) the belief that decided each round
