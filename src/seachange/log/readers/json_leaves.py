"""Blocks of JSON lines, taken apart."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from seachange.kernels import json_lines as kernel
from seachange.kernels.decimals import powers_of_five
from seachange.kernels.letters import PADDING, address_of
from seachange.log.readers.leaves import Leaves, room_for, without_bad_letters

NO_TEXT = 100
FAULTS = {
    kernel.SYNTAX: "no valid JSON",
    kernel.NO_OBJECT: "an object { … } is expected",
    kernel.TWICE: "a key stands twice in an object",
    kernel.TOO_DEEP: f"objects and arrays are nested more than {kernel.MOST_DEPTH} deep",
    kernel.NESTED_ARRAYS: "arrays are nested in arrays",
    kernel.NO_VALUE: "an object or an array is where one value is expected",
    kernel.TOO_LARGE: "a number is larger than any double",
    kernel.ESCAPED_KEY: "a key has ASCII letters written as \\u00…",
    NO_TEXT: "letters are not UTF-8",
}


@dataclass(eq=False)
class Wanted:
    """What is taken from every line: keys at its top, the features below one of them, and the items below those."""

    values: Sequence[str]  # keys with a number, a time or a truth value
    texts: Sequence[str]  # keys with a text that is kept
    lists: Sequence[str]  # keys with one of them or with a list
    objects: Sequence[str]
    refused: Sequence[str]  # keys that a line may not have
    inner: Sequence[tuple[str, str]]  # keys with a value below those of objects
    features: str
    items: str
    underscored: Sequence[str]  # features whose names begin with an underscore; all others of that kind are passed over
    forbidden: Mapping[str, str]  # how a feature may not begin, and what that means

    def paths(self) -> tuple[Any, dict[str, int]]:
        """Room for paths with those that are known, and their numbers."""
        paths, numbers = self._known
        return kernel.Paths(*(array.copy() for array in paths)), numbers

    @cached_property
    def _known(self) -> tuple[Any, dict[str, int]]:
        paths = kernel.no_paths()
        numbers = {key: entered(paths, 0, key, kernel.VALUE) for key in self.values}
        numbers |= {key: entered(paths, 0, key, kernel.FEATURES) for key in self.texts}
        numbers |= {key: entered(paths, 0, key, kernel.LIST) for key in self.lists}
        numbers |= {key: entered(paths, 0, key, kernel.KNOWN) for key in self.objects}
        for key in self.refused:
            entered(paths, 0, key, kernel.FORBIDDEN)
        numbers |= {f"{outer}.{key}": entered(paths, numbers[outer], key, kernel.VALUE) for outer, key in self.inner}
        numbers[self.features] = entered(paths, 0, self.features, kernel.FEATURES)
        numbers[self.items] = entered(paths, numbers[self.features], self.items, kernel.FEATURES)
        return paths, numbers


class JsonLeaves(Leaves):
    """Leaves of JSON lines."""

    repeated = ("number", "truth", "text")  # in several objects of an array

    def __init__(self, text: bytes | bytearray, wanted: Wanted) -> None:
        self.original = text
        self.text, no_text = without_bad_letters(text)
        letters = np.frombuffer(self.text, np.uint8)
        n_lines, most_leaves, most_strings = kernel.counted(letters)
        paths, self.known = wanted.paths()
        tape, strings = room_for(most_leaves, most_strings)
        words = _arrays(wanted.underscored), _arrays(wanted.forbidden)
        self.starts, self.faults, self.places, self.n_items, n_leaves, n_strings = kernel.flatten(
            address_of(letters), n_lines, paths, self.known[wanted.items], tape, strings, *words, powers_of_five()
        )
        self.faults[no_text] = NO_TEXT
        self.keep(paths, tape, n_leaves, strings.spans[:n_strings])

    def key(self, path: int) -> str:
        """The last word of a path; half a pair of surrogates as it is written."""
        return _unescaped(self.keys[path])


def entered(paths: Any, parent: int, key: str, mode: int) -> int:
    """The path of a key below ``parent``, put among those that are known."""
    letters = np.frombuffer(key.encode() + PADDING, np.uint8)
    return int(kernel.enter(paths, parent, address_of(letters), np.uint64(0), len(key), mode))


@lru_cache(1 << 14)
def _unescaped(key: bytes) -> str:
    return str(json.loads(b'"%s"' % key).encode(errors="backslashreplace").decode())


def _arrays(words: Iterable[str]) -> tuple[Any, ...]:
    return tuple(np.frombuffer(word.encode(), np.uint8) for word in words)
