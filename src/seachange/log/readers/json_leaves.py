"""Blocks of JSON lines as leaves, sorted by their path, and those of a path as a column."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.kernels import json_lines as kernel
from seachange.kernels.decimals import powers_of_five
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

Bytes = npt.NDArray[np.uint8]
NO_TEXT = 100
FAULTS = {
    kernel.SYNTAX: "no valid JSON",
    kernel.NO_OBJECT: "an object { … } is expected",
    kernel.TWICE: "a key stands twice in an object",
    kernel.TOO_DEEP: f"objects and arrays are nested more than {kernel.MOST_DEPTH} deep",
    kernel.NESTED_ARRAYS: "arrays are nested in arrays",
    kernel.TOO_LARGE: "a number is larger than any double",
    NO_TEXT: "letters are not UTF-8",
    kernel.ESCAPED_KEY: "a key has ASCII letters written as \\u00…",
}


class Found(NamedTuple):
    """The leaves of a path, or of several that have one name, in the order of their rows."""

    rows: Ints
    kinds: npt.NDArray[np.int8]  # without the mark of arrays
    in_array: Bools
    numbers: Floats
    spots: Ints  # in the tape of leaves


@dataclass(frozen=True)
class Wanted:
    """What is taken from every line: keys at its top, the features below one of them, and the items below those."""

    known: Sequence[str]
    refused: Sequence[str]  # keys that a line may not have
    inner: Sequence[tuple[str, str]]  # keys below a known one
    features: str
    items: str
    underscored: Sequence[str]  # features whose names begin with an underscore; all others of that kind are passed over
    forbidden: Mapping[str, str]  # how a feature may not begin, and what that means

    def paths(self) -> tuple[Any, dict[str, int]]:
        """Room for paths with those that are known, and their numbers."""
        paths = kernel.no_paths()
        numbers = {key: _enter(paths, 0, key, kernel.KNOWN) for key in self.known}
        for key in self.refused:
            _enter(paths, 0, key, kernel.FORBIDDEN)
        numbers |= {f"{outer}.{key}": _enter(paths, numbers[outer], key, kernel.KNOWN) for outer, key in self.inner}
        numbers[self.features] = _enter(paths, 0, self.features, kernel.FEATURES)
        numbers[self.items] = _enter(paths, numbers[self.features], self.items, kernel.FEATURES)
        return paths, numbers


class Flat:
    """A block of lines, flattened."""

    def __init__(self, text: bytes, wanted: Wanted) -> None:
        self.text, no_text = _without_bad_letters(text)
        letters = np.frombuffer(self.text, np.uint8)
        ends = np.flatnonzero(letters == 10)
        self.starts: Ints = np.concatenate([[0], ends[:-1] + 1])
        self.ends: Ints = ends
        paths, self.known = wanted.paths()
        leaves = kernel.room_for(letters)
        most = int(np.count_nonzero(letters == kernel.QUOTE)) // 2 + 1
        spans = np.empty((most, 3), np.int64)
        slots = np.full(1 << (2 * most).bit_length(), -1, np.int32)
        taken, forbidden = (tuple(map(_letters, words)) for words in (wanted.underscored, wanted.forbidden))
        self.faults, self.places, self.n_items, n_leaves, n_strings = kernel.flatten(
            letters, self.starts, paths, 0, self.known[wanted.items], leaves, spans, slots, taken, forbidden, powers_of_five()
        )
        self.faults[no_text] = NO_TEXT
        if (self.faults == kernel.TOO_MANY).any():
            raise LogError(
                f"the features of a log become columns, at most {kernel.MOST_PATHS:,} of them; "
                f"line {int(self.faults.argmax()) + 1} of a block has still another name. "
                "Names that are values (words, identifiers) belong into an array or a string."
            )
        n_paths = int(paths.counts[0])
        self.parents = paths.parents[:n_paths]
        keys = paths.keys.tobytes()
        self.keys = [keys[start : start + size] for start, size in zip(paths.starts, paths.sizes, strict=True)][:n_paths]
        self._spans, self._tape = spans[:n_strings], leaves
        self._bounds, *self._sorted = kernel.by_path(leaves, n_leaves, n_paths)
        self._read_long_numbers()

    def __len__(self) -> int:
        """Lines."""
        return len(self.starts)

    def n_leaves(self, path: int) -> int:
        """How many leaves a path has."""
        return int(self._bounds[path + 1] - self._bounds[path])

    def found(self, *paths: int) -> Found:
        """The leaves of these paths."""
        parts = [slice(*self._bounds[path : path + 2]) for path in paths]
        rows, kinds, numbers, spots = (_joined([column[part] for part in parts]) for column in self._sorted)
        if len(paths) > 1:
            order = np.argsort(spots)
            rows, kinds, numbers, spots = rows[order], kinds[order], numbers[order], spots[order]
        return Found(rows, kinds & (kernel.IN_ARRAY - 1), kinds >= kernel.IN_ARRAY, numbers, spots)

    @cached_property
    def strings(self) -> polars.Series:
        """The different strings; null where one is no text, which half a pair of surrogates is not."""
        import polars

        text = self.text
        whole = [text[start + 1 : stop - 1] for start, stop, _ in self._spans.tolist()]
        for k in np.flatnonzero(self._spans[:, 2]).tolist():
            try:
                whole[k] = json.loads(b'"%s"' % whole[k]).encode()
            except UnicodeEncodeError:
                whole[k] = None  # type: ignore[call-overload]
        return polars.Series(whole, dtype=polars.Binary).cast(polars.String)

    def written(self, spots: Ints) -> list[str]:
        """Leaves as they are written."""
        starts, stops = self._tape.starts[spots].tolist(), self._tape.stops[spots].tolist()
        return [self.text[start:stop].decode() for start, stop in zip(starts, stops, strict=True)]

    def line(self, k: int, most: int = 200) -> str:
        """What stands in a line, cut to a bearable length."""
        text = self.text[self.starts[k] : min(self.ends[k], self.starts[k] + 4 * most)].decode(errors="replace").strip()
        return text if len(text) <= most else text[: most - 1] + "…"

    def _read_long_numbers(self) -> None:
        """Numbers that the kernel left: too long, too small or too large for it."""
        rows, kinds, numbers, spots = self._sorted
        left = np.flatnonzero(kinds & (kernel.IN_ARRAY - 1) == kernel.LONG_NUMBER)
        if len(left) == 0:
            return
        numbers[left] = [float(text) for text in self.written(spots[left])]
        kinds[left] -= kernel.LONG_NUMBER - kernel.NUMBER
        starts = self._tape.starts[spots[left[np.isinf(numbers[left])]]]
        self.faults[np.searchsorted(self.starts, starts, side="right") - 1] = kernel.TOO_LARGE


def _without_bad_letters(text: bytes) -> tuple[bytes, list[int]]:
    """The text with blanks for lines that are not UTF-8, and which those are."""
    try:
        text.decode()
        return text, []
    except UnicodeDecodeError:
        lines, bad = text.split(b"\n"), []
        for k, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError:
                lines[k] = b" " * len(line)
                bad.append(k)
        return b"\n".join(lines), bad


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _letters(word: str) -> Bytes:
    return np.frombuffer(word.encode(), np.uint8)


def _enter(paths: Any, parent: int, key: str, mode: int) -> int:
    return int(kernel.enter(paths, parent, _letters(key), 0, len(key), mode))
