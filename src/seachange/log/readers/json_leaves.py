"""Blocks of JSON lines as leaves, sorted by their path, and those of a path as a column."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import local
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.kernels import json_lines as kernel
from seachange.kernels.decimals import powers_of_five
from seachange.kernels.letters import PADDING, address_of
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

Bytes = npt.NDArray[np.uint8]
NO_TEXT = 100
WORD = re.compile(rb"[^,}\]\s]+")  # a number, true or false
ROOM = local()
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
    """The leaves of a path, or of several that have one name, in the order of the text."""

    rows: Ints
    kinds: npt.NDArray[np.int8]  # with the mark of those in arrays
    numbers: Floats
    starts: Ints  # in the text

    def of_kind(self, kind: int) -> Bools:
        """Which leaves are of a kind, in an array or not."""
        return (self.kinds & (kernel.IN_ARRAY - 1)) == kind


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
        self.text, no_text = _without_bad_letters(text)  # with padding behind it
        letters = np.frombuffer(self.text, np.uint8)
        n_lines, most_leaves, most_strings = kernel.counted(letters)
        paths, self.known = wanted.paths()
        tape, strings = _room(most_leaves, most_strings)
        taken, forbidden = (tuple(map(_letters, words)) for words in (wanted.underscored, wanted.forbidden))
        self.starts, self.faults, self.places, self.n_items, n_leaves, n_strings = kernel.flatten(
            address_of(letters), n_lines, paths, self.known[wanted.items], tape, strings, taken, forbidden, powers_of_five()
        )
        if (self.faults == kernel.TOO_MANY).any():
            raise LogError(
                f"the features of a log become columns, at most {kernel.MOST_PATHS:,} of them, and this file has more: "
                f"{self.line(int(np.argmax(self.faults == kernel.TOO_MANY)))!r} has new ones still. "
                "Names that are values (words, identifiers) belong into a string or an array."
            )
        self.faults[no_text] = NO_TEXT
        n_paths = int(paths.counts[0])
        self.parents = paths.parents[:n_paths]
        keys = paths.keys.tobytes()
        self.keys = [keys[paths.starts[path] : paths.starts[path] + paths.sizes[path]] for path in range(n_paths)]
        self._spans = strings.spans[:n_strings].copy()
        self._bounds, self._kinds, self._leaves = kernel.by_path(tape, n_leaves, n_paths)
        self._read_long_numbers()

    def __len__(self) -> int:
        """Lines."""
        return len(self.n_items)

    def n_leaves(self, path: int) -> int:
        """How many leaves a path has."""
        return int(self._bounds[path + 1] - self._bounds[path])

    def kinds(self, *paths: int) -> int:
        """The kinds of leaves that these paths have, a bit each."""
        return int(np.bitwise_or.reduce(self._kinds[list(paths)]))

    def found(self, *paths: int) -> Found:
        """The leaves of these paths."""
        parts = [slice(*self._bounds[path : path + 2]) for path in paths if self.n_leaves(path)] or [slice(0, 0)]
        if len(parts) == 1:
            return Found(*(column[parts[0]] for column in self._leaves))
        columns = [np.concatenate([column[part] for part in parts]) for column in self._leaves]
        order = np.argsort(columns[-1])
        return Found(*(column[order] for column in columns))

    @cached_property
    def strings(self) -> polars.Series:
        """The different strings; null where one is no text, which half a pair of surrogates is not."""
        import polars

        text = kernel.copied(np.frombuffer(self.text, np.uint8), self._spans).tobytes().decode()
        strings = polars.Series([text]).str.split("\n").explode().head(len(self._spans))
        escaped = np.flatnonzero(self._spans[:, 2])
        if len(escaped) == 0:
            return strings
        words = [_unescaped(self.text[start:stop]) for start, stop, _ in self._spans[escaped].tolist()]
        return strings.scatter(escaped, polars.Series(words, dtype=polars.String))

    def written(self, starts: Ints) -> list[str]:
        """Numbers and truth values as they are written."""
        return [WORD.match(self.text, start)[0].decode() for start in starts.tolist()]  # type: ignore[index]

    def line(self, k: int, most: int = 200) -> str:
        """What stands in a line, cut to a bearable length."""
        text = self.text[self.starts[k] : min(self.starts[k + 1], self.starts[k] + 4 * most)].decode(errors="replace").strip()
        return text if len(text) <= most else text[: most - 1] + "…"

    def _read_long_numbers(self) -> None:
        """Numbers that the kernel left: too long, too small or too large for it."""
        _, kinds, numbers, starts = self._leaves
        left = np.flatnonzero(kinds & (kernel.IN_ARRAY - 1) == kernel.LONG_NUMBER)
        if len(left) == 0:
            return
        numbers[left] = [float(text) for text in self.written(starts[left])]
        kinds[left] -= kernel.LONG_NUMBER - kernel.NUMBER
        for mark in (0, kernel.IN_ARRAY):
            self._kinds |= ((self._kinds >> (kernel.LONG_NUMBER + mark)) & 1) << (kernel.NUMBER + mark)
            self._kinds &= ~(1 << (kernel.LONG_NUMBER + mark))
        endless = starts[left[np.isinf(numbers[left])]]
        self.faults[np.searchsorted(self.starts, endless, side="right") - 1] = kernel.TOO_LARGE


def kinds_of(found: Found) -> int:
    """The kinds of leaves, a bit each, and whether two are in a row."""
    kinds = sum(1 << int(kind) for kind in np.unique(found.kinds))
    return kinds | int((found.rows[1:] == found.rows[:-1]).any()) << kernel.TWICE_IN_ROW


def _room(most_leaves: int, most_strings: int) -> tuple[Any, Any]:
    """Room for leaves and strings, kept by each thread: asking for new memory takes as long as filling it."""
    n_slots = 1 << (2 * most_strings).bit_length()
    kept = getattr(ROOM, "kept", None)
    if kept is None or len(kept[0].paths) < most_leaves or len(kept[1]) < most_strings or len(kept[2]) < n_slots:
        ROOM.kept = kept = (
            kernel.room_for(most_leaves * 5 // 4),
            np.empty((most_strings * 5 // 4, 3), np.int64),
            np.empty(n_slots, np.int32),
        )
    return kept[0], kernel.Strings(kept[1], kept[2][:n_slots])


def _unescaped(string: bytes) -> str | None:
    try:
        return str(json.loads(string).encode().decode())
    except UnicodeEncodeError:
        return None


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


def _letters(word: str) -> Bytes:
    return np.frombuffer(word.encode(), np.uint8)


def _enter(paths: Any, parent: int, key: str, mode: int) -> int:
    letters = np.frombuffer(key.encode() + PADDING, np.uint8)
    return int(kernel.enter(paths, parent, address_of(letters), np.uint64(0), len(key), mode))
