"""The E-step: expected sufficient statistics of a log under a switching regression, additive over rounds.

A log is a sequence of Markov chains, split into tiles (the work of one thread) and sections (what is in memory at a
time). If chains extend over several sections, a forward pass stores the belief before each section, and a backward pass
recomputes each section from there. Short chains are run in batches instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from seachange.engine import map_in_order
from seachange.kernels.emission import evidences
from seachange.kernels.forward_backward import backward, forward, run_groups
from seachange.kernels.lanes import LANES
from seachange.kernels.regression import BLOCK, blocked_sums, blocks_of, regression_sums, unpacked, unweighted_sums
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.joint_features import LogArrays
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import in_chains

if TYPE_CHECKING:
    from seachange.states.switching_regression import SwitchingRegression

Number = TypeVar("Number", np.float64, np.int64)
Sums = tuple[Floats, Floats, Floats]  # Gram matrices, moments and totals

# Rounds per tile, the unit of work of a thread: for long chains and for short ones.
TILE_ROWS, SHORT_CHAINS_TILE_ROWS = 1 << 14, 1 << 16
# Tiles whose recursions are in memory at a time.
TILES_PER_SECTION = 8
# Chains are run in batches if they have at most this many rounds on average, so that a tile holds many of them. The
# longest chain of a tile is limited too, because buffers are that long.
MAX_MEAN_LENGTH, MAX_LENGTH = 2 * TILE_ROWS // LANES, 8 * TILE_ROWS // LANES
# Sums over blocks of rounds are kept if they save work; they take at most a quarter of the memory of the features.
MIN_BLOCK_FEATURES, MAX_BLOCK_FEATURES = 16, BLOCK // 2
# Rounds per short chain and feature from which sums are kept.
MIN_CHAIN_ROUNDS = 2 / LANES


class Section(NamedTuple):
    """Rounds whose recursions are in memory at one time."""

    tiles: Sequence[slice]
    short: bool  # whether the tiles hold whole short chains, run in batches

    @property
    def rounds(self) -> slice:
        """All rounds of the section."""
        return slice(self.tiles[0].start, self.tiles[-1].stop)


@dataclass(eq=False)
class Chain:
    """The chains of a log, one after another, split into tiles at starts of chains if possible.

    ``spans`` are groups of sections that each begin at the start of a chain.
    """

    log: BanditLog
    tile_rows: int | None = None  # None: by the length of the chains
    tiles_per_section: int = TILES_PER_SECTION
    _blocks: dict[int, tuple[Floats, Bools]] = field(default_factory=dict, init=False)
    _short: dict[int, "ShortChains"] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require_rounds(self.log, "a hidden Markov model")
        self.log, self._order, self.starts = in_chains(self.log)
        self.next_starts: Bools = np.append(self.starts[1:], True)
        self.firsts: Ints = np.flatnonzero(self.starts)
        # Run chains in batches if they are short and actions share their coefficients.
        batched = len(self.log) <= MAX_MEAN_LENGTH * len(self.firsts) and self.log.joint.shape[0] == 1

        def are_short(tile: slice) -> bool:
            whole = batched and self.starts[tile.start] and self.next_starts[tile.stop - 1]
            return whole and np.diff(self.first_rounds(tile), append=tile.stop - tile.start).max() <= MAX_LENGTH

        self.spans: list[list[Section]] = []
        tile_rows = self.tile_rows or (SHORT_CHAINS_TILE_ROWS if batched else TILE_ROWS)
        for short, group in groupby(_tiles(self.firsts, len(self.log), tile_rows), key=are_short):
            tiles = list(group)
            for first in range(0, len(tiles), self.tiles_per_section):
                section = Section(tiles[first : first + self.tiles_per_section], short)
                if self.starts[section.rounds.start]:
                    self.spans.append([])
                self.spans[-1].append(section)

    def arrays(self, rounds: slice) -> LogArrays:
        """The columns of these rounds."""
        rows, mask, actions, rewards, propensities = self.log.arrays
        rows = rows if self.log.joint.kind == "none" else rows[rounds]
        return LogArrays(rows, mask, actions[rounds], rewards[rounds], propensities[rounds])

    def first_rounds(self, rounds: slice) -> Ints:
        """Starts of chains, as offsets in ``rounds``."""
        low, high = np.searchsorted(self.firsts, (rounds.start, rounds.stop))
        return np.asarray(self.firsts[low:high] - rounds.start)

    def short_chains(self, tile: slice) -> "ShortChains":
        """The short chains of a tile."""
        if tile.start not in self._short:
            n = tile.stop - tile.start
            found = ShortChains.of(self.first_rounds(tile), n)
            if self.log.disk is None and n >= MIN_CHAIN_ROUNDS * self.log.joint.shape[1] * len(found.firsts):
                found = found.with_sums(self.arrays(tile))
            self._short[tile.start] = found
        return self._short[tile.start]

    def block_sums(self, tile: slice) -> tuple[Floats, Bools] | None:
        """Sums over blocks of rounds, kept for all E-steps; None if they save no work or the log is on disk."""
        n_blocks, n_features = self.log.joint.shape
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
    def of(cls, firsts: Ints, n: int) -> Self:
        """Consecutive chains that start at ``firsts``; the last one ends at ``n``."""
        lengths = np.diff(firsts, append=n)
        order = np.argsort(-lengths, kind="stable")
        n_groups = -(-len(firsts) // LANES)
        widths = np.zeros((n_groups, lengths[order[0]]), dtype=np.int64)
        for group in range(n_groups):
            own = lengths[order[group * LANES : (group + 1) * LANES]]
            widths[group, : own[0]] = np.searchsorted(-own, -np.arange(own[0]))
        return cls(firsts[order], widths, np.empty((n_groups, 0)), np.zeros(n_groups, dtype=bool))

    def with_sums(self, arrays: LogArrays) -> Self:
        """The same with unweighted sums."""
        heads = [self.firsts[group * LANES :] for group in range(len(self.widths))]
        rounds = [
            np.concatenate([firsts[:width] + t for t, width in enumerate(widths)])
            for firsts, widths in zip(heads, self.widths, strict=True)
        ]
        sums, subtractable = unweighted_sums(arrays.rows, arrays.actions, arrays.rewards, rounds)
        return self._replace(unweighted_sums=sums, subtractable=subtractable)


class LikeliestStates:
    """Receives posteriors by slices of rounds, like an array, but stores only the most likely states."""

    def __init__(self, n: int) -> None:
        self.states = np.empty(n, dtype=np.int16)

    def __setitem__(self, rounds: slice, posteriors: Floats) -> None:
        self.states[rounds] = np.argmax(posteriors, axis=1)


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected sufficient statistics. c and s are 1 and r for Gaussian rewards, p (1 - p) and r - p for clicks."""

    log_likelihood: float
    first_states: Floats  # (L,) expected number of chains that start in z
    transitions: Floats  # (L, L) expected number of transitions from i to j
    grams: Floats  # (L, B, D, D) Σ_t Q_t(z) c f f'
    moments: Floats  # (L, B, D) Σ_t Q_t(z) s f
    totals: Floats  # (L, 2) Σ_t Q_t(z) [r², 1]

    def __add__(self, other: Self) -> Self:
        """The statistics of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine + theirs for mine, theirs in pairs))


class Workspace(NamedTuple):
    """Buffers for the recursions of one section, reused by all E-steps because allocating them is slow."""

    filtered: Floats  # (rows, L)
    evidence: Floats  # (rows, L)
    inverses: Floats  # (rows,)
    scores: Floats  # (rows, L) for clicks, else (0, L)

    @classmethod
    def for_chain(cls, chain: Chain, model: "SwitchingRegression") -> Self:
        """Buffers for the longest section of ``chain``."""
        sections, n_states = (section.rounds for span in chain.spans for section in span), model.n_states
        rows = max(section.stop - section.start for section in sections)
        scores = np.empty((rows if model.rewards == "bernoulli" else 0, n_states))
        return cls(np.empty((rows, n_states)), np.empty((rows, n_states)), np.empty(rows), scores)

    def part(self, section: Section, rounds: slice) -> Self:
        """Views for ``rounds`` of ``section``."""
        offsets = slice(rounds.start - section.rounds.start, rounds.stop - section.rounds.start)
        return type(self)(*(array[offsets] for array in self))


def expectation(
    model: "SwitchingRegression",
    chain: Chain,
    posteriors: Floats | LikeliestStates | None = None,
    workspace: Workspace | None = None,
    workers: int = 1,
) -> Expectation:
    """The E-step over all chains.

    ``posteriors`` receives p(z_t | all rewards) in the chain's order. Results do not depend on ``workers``.
    """
    e_step = _EStep(model, chain, workspace or Workspace.for_chain(chain, model), posteriors, workers)
    return reduce(add, map(e_step.over, chain.spans))


def emit(model: "SwitchingRegression", arrays: LogArrays, buffers: Workspace) -> float:
    """Write the evidence of these rounds to ``buffers``; return the sum of the log factors left out."""
    data = arrays.rows, arrays.actions, arrays.rewards
    return float(evidences(*data, model.reward_coefs, model.noise_variances, buffers.evidence, buffers.scores))


@dataclass(frozen=True)
class _EStep:
    model: "SwitchingRegression"
    chain: Chain
    workspace: Workspace
    posteriors: Floats | LikeliestStates | None
    workers: int

    def over(self, span: Sequence[Section]) -> Expectation:
        """Statistics of a group of sections that contains whole chains."""
        if span[0].short:
            return reduce(add, map_in_order(self.short_tile, span[0].tiles, workers=self.workers))
        n_states, sums = self.model.n_states, list[Sums]()
        belief, future, likelihood = self.model.initial_probs.copy(), np.ones(n_states), 0.0
        first_states, pairs, entering = np.zeros(n_states), np.zeros((n_states, n_states)), []
        for section in span:
            entering.append(belief.copy())
            likelihood += self.forward(section, belief)
        for section, before in zip(reversed(span), reversed(entering), strict=True):
            if section is not span[-1]:
                self.forward(section, before)
            sums += self.backward(section, future, pairs)
            # The backward pass has overwritten filtered probabilities by posteriors.
            smoothed = self.workspace.part(section, section.rounds).filtered
            first_states += smoothed[self.chain.first_rounds(section.rounds)].sum(axis=0)
            if self.posteriors is not None:
                self.posteriors[section.rounds] = smoothed
        grams, moments, totals = (np.add.reduce(parts) for parts in zip(*sums, strict=True))
        transitions = pairs * self.model.transition_matrix
        return Expectation(likelihood, first_states, transitions, grams, moments, totals)

    def short_tile(self, tile: slice) -> Expectation:
        """Statistics of a tile of short chains."""
        model, arrays = self.model, self.chain.arrays(tile)
        posteriors = np.empty((0 if self.posteriors is None else tile.stop - tile.start, model.n_states))
        likelihood, first_states, pairs, sums, totals = run_groups(
            arrays.rows, arrays.actions, arrays.rewards, *self.chain.short_chains(tile), model.reward_coefs,
            model.noise_variances, model.initial_probs, model.transition_matrix, posteriors,
        )  # fmt: skip
        if self.posteriors is not None:
            self.posteriors[tile] = posteriors
        grams, moments = (each[:, None] for each in unpacked(sums, model.joint.shape[1]))
        return Expectation(likelihood, first_states, pairs * model.transition_matrix, grams, moments, totals)

    def forward(self, section: Section, belief: Floats) -> float:
        """Forward recursion: updates ``belief``, returns the log-likelihood. Threads emit later tiles meanwhile."""
        model, likelihood = self.model, 0.0
        factors = map_in_order(
            lambda tile: emit(model, self.chain.arrays(tile), self.workspace.part(section, tile)),
            section.tiles,
            workers=self.workers,
        )
        for tile, factor in zip(section.tiles, factors, strict=True):
            buffers = self.workspace.part(section, tile)
            likelihood += factor + forward(
                buffers.evidence, self.chain.starts[tile], model.initial_probs, model.transition_matrix, belief,
                buffers.filtered, buffers.inverses,
            )  # fmt: skip
        return likelihood

    def backward(self, section: Section, future: Floats, pairs: Floats) -> list[Sums]:
        """Backward recursion: updates ``future`` and ``pairs``. Threads sum finished tiles meanwhile."""

        def smoothed() -> Iterator[slice]:
            for tile in reversed(section.tiles):
                buffers = self.workspace.part(section, tile)
                backward(
                    buffers.filtered, buffers.evidence, buffers.inverses, self.chain.next_starts[tile],
                    self.model.transition_matrix, future, buffers.filtered, pairs,
                )  # fmt: skip
                yield tile

        return list(map_in_order(partial(self.sums, section), smoothed(), workers=self.workers))

    def sums(self, section: Section, tile: slice) -> Sums:
        """Gram matrices, moments and totals of a tile, weighted by its posteriors."""
        arrays, buffers = self.chain.arrays(tile), self.workspace.part(section, tile)
        data = arrays.rows, arrays.actions, arrays.rewards, buffers.filtered
        blocks = self.chain.block_sums(tile) if self.model.rewards != "bernoulli" else None
        if blocks is None:
            return regression_sums(*data, self.model.joint.shape[0], buffers.scores)  # type: ignore[no-any-return]
        return blocked_sums(*data, *blocks)  # type: ignore[no-any-return]
