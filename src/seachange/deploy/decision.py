"""The small records of a deployment: a decision and the state between rounds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np

from seachange.deploy.pending_rewards import PendingRewards
from seachange.errors import ModelFileError
from seachange.kernels.belief_updates import is_distribution, is_evidence
from seachange.params import Brief
from seachange.protocols import Floats, Ints

MOST_ROUNDS = 1 << 62  # rounds are counted up to this
nothing = partial(np.empty, 0)


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

    # Pairs of a rule and whether the stored values, its arguments, keep it; most basic rules first.
    _rules: ClassVar[Callable[..., Iterator[tuple[str, bool]]]]

    def to_bytes(self) -> bytes:
        """The record as bytes, for ``from_bytes``."""
        return msgspec.msgpack.encode(
            self._written(), enc_hook=lambda each: _Array(each.dtype.str, each.shape, each.tobytes())
        )

    @classmethod
    def from_bytes(cls, snapshot: bytes) -> Self:
        """The record that ``to_bytes`` wrote; anything else is a ``ModelFileError``."""
        try:
            written = msgspec.msgpack.decode(snapshot, type=dict[str, int | float | str | _Array])
            values = {n: value.array if isinstance(value, _Array) else value for n, value in written.items()}
            broken = next((rule for rule, holds in cls._rules(**values) if not holds), None)
            if not broken:
                return cls._restored(values)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError) as error:
            raise ModelFileError(f"this is not a snapshot of a {cls.__name__}: {error}.") from error
        raise ModelFileError(f"this is not a valid snapshot of a {cls.__name__}: {broken}.")

    def _written(self) -> dict[str, Any]:
        """The numbers, texts and arrays that are stored."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        """The record of what ``_written`` returned."""
        return cls(**values)


@dataclass(frozen=True, eq=False, repr=False)
class Decision(Snapshot):
    """The decision of a round, with everything that its reward will need whenever it arrives."""

    action: int
    propensity: float  # probability with which the action was chosen
    probs: Floats  # (K,)
    round: int  # its round of the deployment
    by_state: Floats  # (L,) π_z(a | x) of the action under Exp4.S, its mean reward under an HMM
    deployer: str  # the fingerprint of the deployer that made it
    features: Floats = field(default_factory=nothing)  # (D,) of the action, for a deployer that learns from its reward

    @classmethod
    def _rules(
        cls, *, action: Any, propensity: Any, probs: Any, round: Any, by_state: Any, deployer: Any, features: Any
    ) -> Iterator[tuple[str, bool]]:
        yield "probs, by_state, and features must be vectors of numbers", all(map(_vector, (probs, by_state, features)))
        yield "round must be a whole number from 0 on", _whole(round, MOST_ROUNDS)
        yield "action must be an index of probs", _whole(action, len(probs))
        yield "probs must sum to 1", is_distribution(probs)
        yield "propensity must be the probability of the action", 0 < propensity == probs[action]
        yield "by_state and features must be finite", bool(np.isfinite([*by_state, *features]).all())
        yield "deployer must be text", isinstance(deployer, str)

    def fits(self, n_by_state: int, n_features: int) -> bool:
        """Whether it can be of a deployer whose decisions have as many ``by_state`` and ``features``."""
        plain = _vector(self.by_state) and _whole(self.round, MOST_ROUNDS) and isinstance(self.propensity, float)
        sizes = plain and _vector(self.features) and (len(self.by_state), len(self.features))
        return sizes == (n_by_state, n_features) and 0 < self.propensity <= 1


@dataclass(frozen=True, eq=False, repr=False)
class DeploymentState(Snapshot):
    """A deployment between two rounds.

    It keeps the evidence of all rounds since the oldest one that still waits for its reward, so that a late reward
    counts at its own round.
    """

    belief: Floats  # (L,) Q_t(z) before the next round
    rounds: int  # rounds that have passed
    pending: PendingRewards | None  # None if no reward is still to come
    deployer: str  # the fingerprint of the deployer it belongs to
    learned: Floats = field(default_factory=nothing)  # from rewards, beside the belief

    def _written(self) -> dict[str, Any]:
        values, pending = super()._written(), self.pending
        del values["pending"]
        if pending is None:
            none = np.empty((0, len(self.belief)))
            return values | {"anchor": self.belief, "evidences": none, "waiting": np.empty(0, dtype=bool)}
        return values | {"anchor": pending.anchor, "evidences": pending.evidences, "waiting": pending.waiting}

    @classmethod
    def _restored(cls, values: dict[str, Any]) -> Self:
        anchor, evidences, waiting = (values.pop(name) for name in ("anchor", "evidences", "waiting"))
        first = values["rounds"] - len(waiting)
        kept = PendingRewards.of_rounds(anchor, first, evidences, waiting) if len(waiting) else None
        return cls(**values, pending=kept)

    @classmethod
    def _rules(
        cls, *, belief: Any, rounds: Any, anchor: Any, evidences: Any, waiting: Any, deployer: Any, learned: Any
    ) -> Iterator[tuple[str, bool]]:
        yield "belief must be a vector of numbers", _vector(belief) and len(belief) > 0
        yield "rounds must be a whole number from 0 on", _whole(rounds, MOST_ROUNDS)
        flags = _vector(belief) and _vector(anchor) and _vector(waiting, np.bool_) and len(anchor) == len(belief)
        shaped = flags and _numbers(evidences) and evidences.shape == (len(waiting), len(belief))
        rule = "belief must sum to 1, waiting must hold flags, and all arrays must have the same length"
        yield rule, shaped and is_distribution(belief)
        yield "no more rounds can be kept than have passed", len(waiting) <= rounds
        yield "anchor must sum to 1", is_distribution(anchor)
        yield "evidence must be finite and not negative", all(is_evidence(each) for each in evidences)
        yield "deployer must be text", isinstance(deployer, str)
        yield "learned must be a vector of finite numbers", _vector(learned) and bool(np.isfinite(learned).all())

    def fits(self, n_states: int, n_learned: int) -> bool:
        """Whether it can be of a deployment with ``n_states`` states that has learned as many numbers."""
        pending, plain = self.pending, _vector(self.belief) and _whole(self.rounds, MOST_ROUNDS)
        plain = plain and _vector(self.learned) and len(self.learned) == n_learned
        if not (plain and len(self.belief) == n_states and is_distribution(self.belief)):
            return False
        return pending is None or (
            isinstance(pending, PendingRewards) and pending.end == self.rounds and len(pending.anchor) == n_states
        )


def _numbers(array: Any, dtype: Any = np.float64) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == dtype


def _vector(array: Any, dtype: Any = np.float64) -> bool:
    return _numbers(array, dtype) and array.ndim == 1


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
