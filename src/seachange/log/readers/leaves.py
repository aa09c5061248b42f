"""Blocks of lines taken apart by a kernel: leaves, sorted by their path."""

from __future__ import annotations

import json
import re
from functools import cached_property
from threading import local
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.kernels import json_lines as kernel
from seachange.kernels.json_tokens import LONG_NUMBER, NUMBER
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

WRITTEN = re.compile(rb"[^,}\]|\s]+")  # or true, or false
ROOM = local()


class Found(NamedTuple):
    """The leaves of a path, or of several that have one name, in the order of the text."""

    rows: Ints
    kinds: npt.NDArray[np.int8]  # with the mark of those in arrays
    numbers: Floats
    starts: Ints  # in the text

    def of_kind(self, kind: int) -> Bools:
        """Which leaves are of a kind, in an array or not."""
        return np.asarray((self.kinds & (kernel.IN_ARRAY - 1)) == kind)

    def where(self, wanted: Bools) -> Found:
        """Only those leaves."""
        return Found(self.rows[wanted], self.kinds[wanted], self.numbers[wanted], self.starts[wanted])

    def all_kinds(self) -> int:
        """The kinds there are, a bit each, and whether two leaves are in a row."""
        kinds = sum(1 << int(kind) for kind in np.unique(self.kinds))
        return kinds | int((self.rows[1:] == self.rows[:-1]).any()) << kernel.TWICE_IN_ROW


class Leaves:
    """What a kernel took from a block of lines, with ``PADDING`` behind its text."""

    repeated: tuple[str, ...] = ()  # the kinds of features that are lists where they stand in a row more than once
    original: bytes | bytearray
    text: bytes | bytearray  # the same with blanks for lines that are none
    starts: Ints  # (lines + 1,)
    faults: npt.NDArray[np.int8]  # of each line; 0 is sound

    def keep(self, paths: Any, tape: Any, n_leaves: int, spans: Ints) -> None:
        """Take over what the kernel left in the room that it works in."""
        n_paths = int(paths.counts[0])
        self.left_out = int(paths.counts[3])  # features for whose names there was no room
        self.parents = paths.parents[:n_paths]
        keys = paths.keys.tobytes()
        self.keys = [keys[paths.starts[path] : paths.starts[path] + paths.sizes[path]] for path in range(n_paths)]
        self._spans = spans.copy()
        self._bounds, self._kinds, self._leaves = kernel.by_path(tape, n_leaves, n_paths)
        self._read_long_numbers()

    def __len__(self) -> int:
        """Lines."""
        return len(self.starts) - 1

    def key(self, path: int) -> str:
        """The last word of a path."""
        return str(self.keys[path], "utf-8")

    def name(self, keys: tuple[str, ...]) -> str:
        """What a feature is called."""
        return ".".join(keys)

    def n_leaves(self, path: int) -> int:
        """How many leaves a path has."""
        return int(self._bounds[path + 1] - self._bounds[path])

    def kinds(self, path: int) -> int:
        """The kinds of leaves that a path has, as in ``Found.all_kinds``."""
        return int(self._kinds[path])

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

        letters = np.frombuffer(self.text, np.uint8)
        text = kernel.copied(letters, self._spans).tobytes().decode()
        strings = polars.Series(text.split("\n")[:-1], dtype=polars.String)
        escaped = np.flatnonzero(self._spans[:, 2])
        if len(escaped) == 0:
            return strings
        words = [_unescaped(self.text[start:stop]) for start, stop, _ in self._spans[escaped].tolist()]
        return strings.scatter(escaped, polars.Series(words, dtype=polars.String))

    def written(self, starts: Ints) -> list[str]:
        """Numbers and truth values as they are written."""
        return [WRITTEN.match(self.text, start)[0].decode() for start in starts.tolist()]  # type: ignore[index]

    def line(self, k: int, most: int = 200) -> str:
        """What stands in a line but blanks around it, cut to a bearable length."""
        line = self.original[self.starts[k] : self.original.find(b"\n", self.starts[k])].strip(b" \t\r")
        text = line[: 4 * most].decode(errors="replace")
        return text if len(text) <= most else text[: most - 1] + "…"

    def line_at(self, places: Ints) -> Ints:
        """The lines in which these places of the text are."""
        return np.searchsorted(self.starts, places, side="right") - 1

    def _read_long_numbers(self) -> None:
        """Numbers that the kernel left: too long, too small or too large for it."""
        _, kinds, numbers, starts = self._leaves
        left = np.flatnonzero(kinds & (kernel.IN_ARRAY - 1) == LONG_NUMBER)
        if len(left) == 0:
            return
        numbers[left] = [float(text) for text in self.written(starts[left])]
        kinds[left] -= LONG_NUMBER - NUMBER
        for mark in (0, kernel.IN_ARRAY):
            self._kinds |= ((self._kinds >> (LONG_NUMBER + mark)) & 1) << (NUMBER + mark)
            self._kinds &= ~(1 << (LONG_NUMBER + mark))
        self.faults[self.line_at(starts[left[np.isinf(numbers[left])]])] = kernel.TOO_LARGE


def room_for(most_leaves: int, most_strings: int) -> tuple[Any, Any]:
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


def without_bad_letters(text: bytes | bytearray, instead: bytes = b" ") -> tuple[bytes | bytearray, list[int]]:
    """The text with another letter all over lines that are not UTF-8, and which those are."""
    try:
        text.decode()
        return text, []
    except UnicodeDecodeError:
        lines, bad = bytes(text).split(b"\n"), []
        for k, line in enumerate(lines):
            try:
                line.decode()
            except UnicodeDecodeError:
                lines[k] = instead * len(line)
                bad.append(k)
        return b"\n".join(lines), bad


def _unescaped(string: bytes | bytearray) -> str | None:
    try:
        return str(json.loads(string).encode().decode())
    except UnicodeEncodeError:
        return None
