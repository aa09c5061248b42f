"""A log as Markov chains: tiles and sections of rounds for the E-step, and the E-step over batches of short chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from seachange.kernels.regression import BLOCK, blocks_of, unpacked, unweighted_sums
from seachange.kernels.rows import LANES, column_buffer
from seachange.kernels.short_chains import run_groups
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.joint_features import JointFeatures, LogArrays
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import chains

Number = TypeVar("Number", np.float64, np.int64)

# Rounds per tile, the unit of work of a thread: for long chains and for short ones.
TILE_ROWS, SHORT_CHAINS_TILE_ROWS = 1 << 14, 1 << 16
# Tiles whose recursions are in memory at a time.
TILES_PER_SECTION = 8
# Chains are run in batches if they have at most this many rounds on average, so that a tile holds many of them. The
# longest chain of such a tile is limited too, because buffers are as long as that.
MAX_MEAN_LENGTH, MAX_LENGTH = 2 * TILE_ROWS // LANES, 8 * TILE_ROWS // LANES
# Sums over blocks of rounds are kept if they save work; they take at most a quarter of the memory of the features.
MIN_BLOCK_FEATURES, MAX_BLOCK_FEATURES = 16, BLOCK // 2
# Rounds per short chain and feature from which sums are kept.
MIN_CHAIN_ROUNDS = 2 / LANES


@dataclass(frozen=True)
class Section:
    """Rounds whose recursions are in memory at one time."""

    strands: tuple[tuple[slice, ...], ...]  # runs of consecutive tiles that share a chain
    short: bool  # whether the tiles hold whole short chains, run in batches

    @property
    def tiles(self) -> tuple[slice, ...]:
        """All tiles, in order."""
        return tuple(tile for strand in self.strands for tile in strand)

    @property
    def rounds(self) -> slice:
        """All rounds of the section."""
        return slice(self.strands[0][0].start, self.strands[-1][-1].stop)


@dataclass(eq=False)
class Chain:
    """The chains of a log, one after another, split into tiles at starts of chains if possible."""

    log: BanditLog
    tile_rows: int | None = None  # None: by the length of the chains
    tiles_per_section: int = TILES_PER_SECTION
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
        tile_rows = self.tile_rows or (SHORT_CHAINS_TILE_ROWS if self._batched else TILE_ROWS)
        tiles = _tiles(self.firsts, len(self.log), tile_rows)
        self.spans = _spans(self.firsts, tiles, [self._are_short(tile) for tile in tiles], self.tiles_per_section)

    @property
    def joint(self) -> JointFeatures:
        """The joint features of the log."""
        return self.log.joint

    @property
    def _batched(self) -> bool:
        """Whether to run chains in batches: they are short, and actions share their coefficients."""
        return len(self.log) <= MAX_MEAN_LENGTH * len(self.firsts) and self.joint.shape[0] == 1

    @property
    def most_rows(self) -> int:
        """Rounds of the longest section."""
        return max(int(section.rounds.stop - section.rounds.start) for span in self.spans for section in span)

    def arrays(self, rounds: slice) -> LogArrays:
        """The columns of these rounds."""
        rows, mask, actions, rewards, propensities = self.log.arrays
        rows = rows if self.joint.kind == "none" else rows[rounds]
        return LogArrays(rows, mask, actions[rounds], rewards[rounds], propensities[rounds])

    def first_rounds(self, rounds: slice) -> Ints:
        """Starts of chains, as offsets in ``rounds``."""
        low, high = np.searchsorted(self.firsts, (rounds.start, rounds.stop))
        return np.asarray(self.firsts[low:high] - rounds.start)

    def ages(self, rounds: slice) -> Ints:
        """Number of earlier rounds in the chain of each of ``rounds``."""
        each = np.arange(rounds.start, rounds.stop)
        return np.asarray(each - self.firsts[np.searchsorted(self.firsts, each, side="right") - 1])

    def short_chains(self, tile: slice) -> ShortChains:
        """The short chains of a tile."""
        if tile.start not in self._short:
            n = tile.stop - tile.start
            found = ShortChains.of(self.first_rounds(tile), n)
            if self.log.disk is None and n >= MIN_CHAIN_ROUNDS * self.joint.shape[1] * len(found.firsts):
                found = found.with_sums(self.arrays(tile))
            self._short[tile.start] = found
        return self._short[tile.start]

    def _are_short(self, tile: slice) -> bool:
        """Whether the tile holds whole chains, all short enough to run in batches."""
        if not (self._batched and self.starts[tile.start] and self.next_starts[tile.stop - 1]):
            return False
        return int(np.diff(self.first_rounds(tile), append=tile.stop - tile.start).max()) <= MAX_LENGTH

    def block_sums(self, tile: slice) -> tuple[Floats, Bools] | None:
        """Sums over blocks of rounds, kept for all E-steps; None if they save no work or the log is on disk."""
        n_blocks, n_features = self.joint.shape
        if self.log.disk is not None or n_blocks > 1 or not MIN_BLOCK_FEATURES <= n_features <= MAX_BLOCK_FEATURES:
            return None
        if tile.start not in self._blocks:
            arrays, blocks = self.arrays(tile), blocks_of(tile.stop - tile.start)
            self._blocks[tile.start] = unweighted_sums(arrays.rows, arrays.actions, arrays.rewards, blocks)
        return self._blocks[tile.start]

    def in_log_order(self, ordered: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Rows of ``ordered`` in the order of the log."""
        if self._order is None:
            return ordered
        result = np.empty_like(ordered)
        result[self._order] = ordered
        return result


def _spans(
    firsts: Ints, tiles: Sequence[slice], short: Sequence[bool], tiles_per_section: int
) -> Sequence[Sequence[Section]]:
    """Sections of short chains or of others, in groups that each begin at the start of a chain."""
    spans: list[list[Section]] = []
    starting = np.isin([tile.start for tile in tiles], firsts)
    first = 0
    while first < len(tiles):
        last = first + 1
        while last < min(first + tiles_per_section, len(tiles)) and short[last] == short[first]:
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
    """Slices of at most ``tile_rows`` rounds that end at the end of a chain, if possible."""
    tiles, start = [], 0
    while start < n:
        stop = min(start + tile_rows, n)
        if stop < n:
            last = int(firsts[np.searchsorted(firsts, stop, side="right") - 1])
            stop = last if last > start else stop
        tiles.append(slice(start, stop))
        start = stop
    return tiles


class ShortChains(NamedTuple):
    """Chains of a tile, longest first, in groups of ``LANES``."""

    firsts: Ints  # first rounds, as offsets in the tile
    widths: Ints  # (m, longest) number of chains of a group that have a round t
    unweighted_sums: Floats  # (m, D (D + 3) / 2) of the groups, or (m, 0) if they are not kept
    subtractable: Bools  # (m,) whether the sums can be used

    @classmethod
    def of(cls, firsts: Ints, n: int) -> ShortChains:
        """Consecutive chains that start at ``firsts``; the last one ends at ``n``."""
        lengths = np.diff(firsts, append=n)
        order = np.argsort(-lengths, kind="stable")
        n_groups = -(-len(firsts) // LANES)
        widths = np.zeros((n_groups, lengths[order[0]]), dtype=np.int64)
        for group in range(n_groups):
            own = lengths[order[group * LANES : (group + 1) * LANES]]
            widths[group, : own[0]] = np.searchsorted(-own, -np.arange(own[0]))
        return cls(firsts[order], widths, np.empty((n_groups, 0)), np.zeros(n_groups, dtype=bool))

    def with_sums(self, arrays: LogArrays) -> ShortChains:
        """The same with unweighted sums."""
        sums, subtractable = unweighted_sums(arrays.rows, arrays.actions, arrays.rewards, list(self._rounds()))
        return self._replace(unweighted_sums=sums, subtractable=subtractable)

    def _rounds(self) -> Iterator[Ints]:
        """The rounds of each group."""
        for group, widths in enumerate(self.widths):
            firsts = self.firsts[group * LANES :]
            yield np.concatenate([firsts[:width] + t for t, width in enumerate(widths)])


def short_chains(
    arrays: LogArrays,
    chains: ShortChains,
    coefs: Floats,
    variances: Floats,
    initial: Floats,
    transition: Floats,
    posteriors: Floats,
) -> tuple[float, Floats, Floats, Floats, Floats, Floats]:
    """Log-likelihood, first states (L,), pairs (L, L), Gram matrices, moments and totals of whole chains.

    For features in one block (B = 1). ``posteriors`` (n, L) receives p(z_t | all rewards), unless its shape is (0, L).
    """
    n_states, n_features = coefs.shape[0], coefs.shape[2]
    longest, clicks = chains.widths.shape[1], variances.size == 0
    features, filtered = column_buffer(n_features, longest), column_buffer(n_states, longest)
    seen, inverses = column_buffer(1, longest)[0], np.empty((longest, LANES))
    evidence = np.empty((longest, n_states, LANES))
    scores = np.empty((longest if clicks else 0, n_states, LANES))
    first_states, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
    sums, totals = np.zeros((n_states, n_features * (n_features + 3) // 2)), np.zeros((n_states, 2))
    likelihood = run_groups(
        arrays.rows, arrays.actions, arrays.rewards, *chains, coefs, 0.5 / variances, 0.5 * np.log(variances), initial,
        transition, transition.T.copy(), features, seen, evidence, filtered, inverses, scores, np.empty(sums.shape),
        posteriors, first_states, pairs, sums, totals,
    )  # fmt: skip
    grams, moments = unpacked(sums, n_features)
    return likelihood, first_states, pairs, grams[:, None], moments[:, None], totals
