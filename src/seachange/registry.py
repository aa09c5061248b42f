"""Registries: parts of the pipeline known by a word, and what a model file keeps of each part.

An oracle, learner, policy or deployer registers itself with one line::

    @ORACLES.register("hmm")
    class HMMOracle(Params): ...

``learn`` finds it by that word, and a model file saves and restores it without knowing its name: ``learned()`` returns
what JSON can hold and a dictionary of arrays, and ``restore(part, joint, labels)`` builds the object again.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from seachange.errors import ModelFileError, ParameterError, did_you_mean, require

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, Array]
Shape: TypeAlias = tuple[int | None, ...]
C = TypeVar("C", bound=type)
T = TypeVar("T")

# The largest number a saved array may hold: sums of a few products must stay finite.
LARGEST_SAVED = 1e250
# Probabilities may miss a sum of 1 by this much.
SUM_TOLERANCE = 1e-8
# The only header that numpy writes for plain arrays of numbers. Nothing in a header is evaluated.
_HEADER = re.compile(
    rb"\{'descr': '(<f8|<f4|<i8|\|i1)', 'fortran_order': False, 'shape': \(((?:\d{1,15}, )*(?:\d{1,15},?)?)\), \} *\n"
)
LONGEST_HEADER = 1024


class Registry:
    """Classes of one kind of part, by the word for each."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.names: list[str] = []  # the words that users can give, in the order of registration
        self._classes: dict[str, Any] = {}

    def register(self, kind: str, *, named: bool = True) -> Callable[[C], C]:
        """Register the decorated class as ``kind``; unless ``named``, users cannot ask for it by that word."""

        def add(cls: C) -> C:
            known = self._classes.get(kind, cls)
            same = known.__qualname__ == cls.__qualname__
            require(same, f"{self.what} {kind!r} is already registered by {known.__name__}.")
            if named and kind not in self.names:
                self.names.append(kind)
            self._classes[kind] = cls
            return cls

        return add

    def __iter__(self) -> Iterator[Any]:
        """All registered classes."""
        return iter(self._classes.values())

    def by_name(self, name: str, choices: str) -> Any:
        """The class for a word of the user's; ``choices`` is what else would be accepted."""
        if name not in self.names:
            hint = did_you_mean(name, self.names) if isinstance(name, str) else ""
            raise ParameterError(f"{self.what} must be {', '.join(self.names)}, {choices}; got {name!r}.{hint}")
        return self._classes[name]

    def by_kind(self, kind: str) -> Any:
        """The class for the word in a model file."""
        require(kind in self._classes, f"its {self.what} is of unknown kind {kind!r}.", ModelFileError)
        return self._classes[kind]

    def kind_of(self, part: object) -> str:
        """The word for the class of ``part``; a subclass must register itself."""
        for kind, cls in self._classes.items():
            if type(part) is cls:
                return kind
        raise ParameterError(
            f"a model file can hold registered {self.what} classes ({', '.join(self._classes)}), not "
            f"{type(part).__name__}. Register the class to save it."
        )


ORACLES = Registry("oracle")
LEARNERS = Registry("objective")
POLICIES = Registry("policy")
DEPLOYERS = Registry("kind")

Setting: TypeAlias = "bool | int | float | str | list[bool | int | float | str | None] | None"


class Description(msgspec.Struct, forbid_unknown_fields=True):
    """A part as the manifest of a model file holds it."""

    kind: str
    params: dict[str, Setting] = {}
    learned: msgspec.Raw = msgspec.Raw(b"null")


def describe(registry: Registry, part: Any) -> tuple[Description, Arrays]:
    """What the manifest says of ``part``, and the arrays it learned."""
    kind = registry.kind_of(part)
    learned, arrays = part.learned()
    plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in getattr(part, "saved_params", dict)().items()}
    # JSON has no infinity.
    params = {name: "inf" if value == math.inf else value for name, value in plain.items()}
    return Description(kind, params, msgspec.Raw(msgspec.json.encode(learned))), arrays


@dataclass(frozen=True)
class SavedPart:
    """One part of a model file. Everything taken from it has been checked."""

    description: Description
    prefix: str
    read: Callable[[str, int | None], bytearray]  # the bytes of an entry, given the most bytes it may have

    def restored(self, cls: type[T]) -> T:
        """``cls`` with the saved hyperparameters, checked against the types of its fields."""
        params, known = self.description.params, {field.name for field in fields(cls)}  # type: ignore[arg-type]
        for name in params:
            require(name in known, f"{cls.__name__} has no parameter {name!r}.", ModelFileError)
        return msgspec.convert({n: math.inf if value == "inf" else value for n, value in params.items()}, cls)

    def learned(self, type: type[T]) -> T:
        """What the part learned, apart from arrays."""
        return msgspec.json.decode(self.description.learned, type=type)

    def floats(
        self, name: str, shape: Shape, *, low: float = -LARGEST_SAVED, high: float = LARGEST_SAVED, nan: bool = False
    ) -> npt.NDArray[np.float64]:
        """An array of numbers from ``low`` to ``high``; a None in ``shape`` is any length."""
        array = self._array(name, shape, ("<f8",))
        outside = ~(np.abs(array) <= LARGEST_SAVED) | (array < low) | (array > high)
        outside &= ~(nan & np.isnan(array))
        self._require(not outside.any(), name, f"finite numbers from {low:g} to {high:g}")
        return array

    def contexts(self, name: str, shape: Shape) -> Array:
        """An array of finite numbers in single or double precision."""
        array = self._array(name, shape, ("<f8", "<f4"))
        self._require((np.abs(array) <= LARGEST_SAVED).all(), name, "finite numbers")
        return array

    def distributions(self, name: str, shape: Shape) -> npt.NDArray[np.float64]:
        """An array whose last axis holds probabilities."""
        array = self.floats(name, shape, low=0.0, high=1.0 + SUM_TOLERANCE)
        sums = array.sum(axis=-1)
        self._require((np.abs(sums - 1) <= SUM_TOLERANCE).all(), name, "probabilities that sum to 1")
        return array

    def precisions(self, name: str, shape: Shape) -> npt.NDArray[np.float64]:
        """An array of matrices P, in the last two axes, with |P_ij| ≤ √(P_ii P_jj)."""
        array = self.floats(name, shape)
        scales = np.sqrt(np.maximum(np.einsum("...ii->...i", array), 0.0)) * (1 + SUM_TOLERANCE)
        self._require((np.abs(array) <= scales[..., :, None] * scales[..., None, :]).all(), name, "precisions")
        return array

    def indices(self, name: str, n: int | None, low: int, end: int, *, rising: bool = False) -> npt.NDArray[np.int64]:
        """(n,) whole numbers from ``low`` on and below ``end``, strictly increasing if ``rising``."""
        array = self._array(name, (n,), ("<i8",))
        holds = (array >= low).all() and (array < end).all() and not (rising and (np.diff(array) <= 0).any())
        order = " in increasing order" if rising else ""
        self._require(holds, name, f"whole numbers from {low} to {end - 1}{order}")
        return array

    def flags(self, name: str, shape: Shape) -> npt.NDArray[np.bool_]:
        """An array of 0 and 1."""
        array = self._array(name, shape, ("|i1",))
        self._require(((array == 0) | (array == 1)).all(), name, "0 and 1")
        return array.astype(bool)

    def _require(self, holds: bool | np.bool_, name: str, content: str) -> None:
        require(bool(holds), f"{self.prefix}{name} must hold {content}.", ModelFileError)

    def _array(self, name: str, shape: Shape, dtypes: tuple[str, ...]) -> Array:
        name = f"{self.prefix}{name}"
        most = None if None in shape else 8 * math.prod(shape) + LONGEST_HEADER  # type: ignore[arg-type]
        data = self.read(f"{name}.npy", most)
        header = bytes(data[10 : 10 + int.from_bytes(data[8:10], "little")])
        plain = _HEADER.fullmatch(header) if data[:8] == b"\x93NUMPY\x01\x00" and len(header) < LONGEST_HEADER else None
        if plain is None or plain[1].decode() not in dtypes or (10 + len(header)) % 16:
            raise ModelFileError(f"{name}.npy is not a plain array of numbers ({' or '.join(dtypes)}).")
        dtype, lengths = np.dtype(plain[1].decode()), tuple(int(size) for size in re.findall(rb"\d+", plain[2]))
        fits = len(lengths) == len(shape) and all(want in (None, n) for want, n in zip(shape, lengths, strict=True))
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        require(fits, f"{name} has shape {lengths}; it should be ({wanted}).", ModelFileError)
        whole = math.prod(lengths) * dtype.itemsize == len(data) - 10 - len(header)
        require(whole, f"{name}.npy is not as long as its header says.", ModelFileError)
        return np.frombuffer(data, dtype=dtype, offset=10 + len(header)).reshape(lengths)


def npy(array: Array) -> bytes:
    """``array`` in numpy's file format, in one of the types that ``SavedPart`` reads."""
    require(array.dtype.kind in "fib", f"a model file holds arrays of numbers, not of {array.dtype}.")
    dtype = {"f": "<f4" if array.dtype == np.float32 else "<f8", "i": "<i8", "b": "|i1"}[array.dtype.kind]
    plain = np.ascontiguousarray(array, dtype=dtype)
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {plain.shape}, }}".encode()
    header = text.ljust(-(len(text) + 11) % 64 + len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + plain.tobytes()
