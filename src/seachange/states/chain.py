"""A log as hidden Markov chains see it: every sequence in one piece, cut so that memory and threads are used well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from seachange.kernels.regression import BLOCK, blocks_of, plain_sums
from seachange.kernels.rows import SIDE_BY_SIDE
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.joint import JointFeatures, LogArrays
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import chains
from seachange.states.side_by_side import ShortChains

Number = TypeVar("Number", np.float64, np.int64)

# Rounds that one thread works on at a time, of long chains and of short ones.
TILE_ROWS, SHORT_CHAINS_TILE_ROWS = 1 << 14, 1 << 16
# Tiles whose recursions are in memory at a time.
TILES_A_SECTION = 8
# Chains of up to so many rounds, on average, are worth running side by side: a tile holds many of them. All of a tile
# have to: room is made for the longest.
SHORT_ON_AVERAGE, SHORT_AT_MOST = 2 * TILE_ROWS // SIDE_BY_SIDE, 8 * TILE_ROWS // SIDE_BY_SIDE
# Sums of blocks of rounds are kept where they save work, and take at most a quarter of the features' memory.
LEAST_BLOCK_FEATURES, MOST_BLOCK_FEATURES = 16, BLOCK // 2
LEAST_CHAIN_ROUNDS = 2 / SIDE_BY_SIDE  # of short chains, a feature


@dataclass(frozen=True)
class Section:
    """Rounds whose recursions are in memory at one time."""

    strands: tuple[tuple[slice, ...], ...]  # tiles, together where a chain runs on from one to the next
    short: bool  # whether the tiles hold whole chains that run side by side

    @property
    def tiles(self) -> tuple[slice, ...]:
        """What threads share out."""
        return tuple(tile for strand in self.strands for tile in strand)

    @property
    def rounds(self) -> slice:
        """From the first to the last."""
        return slice(self.strands[0][0].start, self.strands[-1][-1].stop)


@dataclass(eq=False)
class Chain:
    """Chains, one after the other. Cuts are where a chain starts if possible: what lies between is then independent."""

    log: BanditLog
    tile_rows: int | None = None  # as many as serve the chains best
    tiles_a_section: int = TILES_A_SECTION
    _blocks: dict[int, tuple[Floats, Bools]] = field(default_factory=dict, init=False)
    _short: dict[int, ShortChains] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require_rounds(self.log, "a hidden Markov model")
        self.starts: Bools = np.zeros(len(self.log), dtype=bool)
        self.starts[0] = True
        self._order: Ints | None = None
        if self.log.sequences is not None:
            order, self.starts = chains(self.log)
            if (np.diff(order) < 0).any():
                self._order, self.log = order, self.log.take(order)
        self.next_starts: Bools = np.append(self.starts[1:], True)
        self.firsts: Ints = np.flatnonzero(self.starts)
        tile_rows = self.tile_rows or (SHORT_CHAINS_TILE_ROWS if self._side_by_side else TILE_ROWS)
        tiles = _tiles(self.firsts, len(self.log), tile_rows)
        self.spans = _spans(self.firsts, tiles, [self._are_short(tile) for tile in tiles], self.tiles_a_section)

    @property
    def joint(self) -> JointFeatures:
        """Of the log."""
        return self.log.joint

    @property
    def _side_by_side(self) -> bool:
        """Whether running chains side by side would pay: they are short, and actions share their coefficients."""
        return len(self.log) <= SHORT_ON_AVERAGE * len(self.firsts) and self.joint.shape[0] == 1

    @property
    def most_rows(self) -> int:
        """Rounds of the longest section."""
        return max(int(section.rounds.stop - section.rounds.start) for span in self.spans for section in span)

    def arrays(self, rounds: slice) -> LogArrays:
        """The log's columns of these rounds."""
        rows, mask, actions, rewards, propensities = self.log.arrays
        rows = rows if self.joint.kind == "none" else rows[rounds]
        return LogArrays(rows, mask, actions[rounds], rewards[rounds], propensities[rounds])

    def first_rounds(self, rounds: slice) -> Ints:
        """Where chains start, as places in ``rounds``."""
        low, high = np.searchsorted(self.firsts, (rounds.start, rounds.stop))
        return np.asarray(self.firsts[low:high] - rounds.start)

    def ages(self, rounds: slice) -> Ints:
        """How many rounds of its chain came before each of ``rounds``."""
        places = np.arange(rounds.start, rounds.stop)
        return np.asarray(places - self.firsts[np.searchsorted(self.firsts, places, side="right") - 1])

    def short_chains(self, tile: slice) -> ShortChains:
        """Its chains, with first rounds as places in ``tile``."""
        if tile.start not in self._short:
            n = tile.stop - tile.start
            found = ShortChains.of(self.first_rounds(tile), n)
            if self.log.spool is None and n >= LEAST_CHAIN_ROUNDS * self.joint.shape[1] * len(found.firsts):
                found = found.with_sums(self.arrays(tile))
            self._short[tile.start] = found
        return self._short[tile.start]

    def _are_short(self, tile: slice) -> bool:
        """Whether the tile holds whole chains that are worth running side by side."""
        if not (self._side_by_side and self.starts[tile.start] and self.next_starts[tile.stop - 1]):
            return False
        return int(np.diff(self.first_rounds(tile), append=tile.stop - tile.start).max()) <= SHORT_AT_MOST

    def block_sums(self, tile: slice) -> tuple[Floats, Bools] | None:
        """Sums of the tile's blocks of rounds, which every E-step can use again; None where they would not pay.

        What is on disk leaves nothing in memory.
        """
        n_blocks, n_features = self.joint.shape
        if self.log.spool is not None or n_blocks > 1 or not LEAST_BLOCK_FEATURES <= n_features <= MOST_BLOCK_FEATURES:
            return None
        if tile.start not in self._blocks:
            arrays, blocks = self.arrays(tile), blocks_of(tile.stop - tile.start)
            self._blocks[tile.start] = plain_sums(arrays.rows, arrays.actions, arrays.rewards, blocks)
        return self._blocks[tile.start]

    def in_log_order(self, ordered: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Rows of ``ordered`` back where the log has them."""
        if self._order is None:
            return ordered
        result = np.empty_like(ordered)
        result[self._order] = ordered
        return result


def _spans(
    firsts: Ints, tiles: Sequence[slice], short: Sequence[bool], tiles_a_section: int
) -> Sequence[Sequence[Section]]:
    """Sections, of short chains or of others, grouped so that every group starts where a chain does."""
    spans: list[list[Section]] = []
    starting = np.isin([tile.start for tile in tiles], firsts)
    first = 0
    while first < len(tiles):
        last = first + 1
        while last < min(first + tiles_a_section, len(tiles)) and short[last] == short[first]:
            last += 1
        strands: list[tuple[slice, ...]] = []
        for tile, starts in zip(tiles[first:last], starting[first:last], strict=True):
            if starts or not strands:
                strands.append((tile,))
            else:
                strands[-1] += (tile,)
        section = Section(tuple(strands), short[first])
        if starting[first]:
            spans.append([section])
        else:
            spans[-1].append(section)
        first = last
    return spans


def _tiles(firsts: Ints, n: int, tile_rows: int) -> list[slice]:
    """Runs of at most ``tile_rows`` rounds that end where a chain does, if one does."""
    tiles, start = [], 0
    while start < n:
        stop = min(start + tile_rows, n)
        if stop < n:
            last = int(firsts[np.searchsorted(firsts, stop, side="right") - 1])
            stop = last if last > start else stop
        tiles.append(slice(start, stop))
        start = stop
    return tiles
