"""The E-step: expected sufficient statistics of a log under a switching regression, additive over rounds.

A log is a sequence of Markov chains, split into tiles (the work of one thread) and sections (what is in memory at a
time). If chains extend over several sections, a forward pass stores the belief before each section, and a backward pass
recomputes each section from there. Short chains are run in batches instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby
from operator import add
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from seachange.engine import map_in_order
from seachange.kernels.emission import evidences
from seachange.kernels.forward_backward import backward, forward, run_groups
from seachange.kernels.lanes import LANES, column_buffer
from seachange.kernels.regression import (
    BLOCK,
    blocked_sums,
    blocks_of,
    regression_sums,
    unpacked,
    unweighted_sums,
)
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.joint_features import JointFeatures, LogArrays
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import chains

if TYPE_CHECKING:
    from seachange.states.switching_regression import SwitchingRegression

Number = TypeVar("Number", np.float64, np.int64)
Result = TypeVar("Result")
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

    strands: Sequence[Sequence[slice]]  # runs of consecutive tiles that share a chain
    short: bool  # whether the tiles hold whole short chains, run in batches

    @property
    def tiles(self) -> list[slice]:
        """All tiles, in order."""
        return [tile for strand in self.strands for tile in strand]

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


def _spans(firsts: Ints, tiles: Sequence[slice], short: Sequence[bool], tiles_per_section: int) -> list[list[Section]]:
    """Sections of short chains or of others, in groups that each begin at the start of a chain."""
    spans: list[list[Section]] = []
    starting = np.isin([tile.start for tile in tiles], firsts)
    for is_short, group in groupby(range(len(tiles)), key=short.__getitem__):
        members = list(group)
        for first in range(0, len(members), tiles_per_section):
            strands: list[list[slice]] = []
            for i in members[first : first + tiles_per_section]:
                if starting[i] or not strands:
                    strands.append([])
                strands[-1].append(tiles[i])
            if starting[members[first]]:
                spans.append([])
            spans[-1].append(Section(strands, is_short))
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

    def __add__(self, other: Expectation) -> Expectation:
        """The statistics of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Expectation(*(mine + theirs for mine, theirs in pairs))


class Workspace(NamedTuple):
    """Buffers for the recursions of one section, reused by all E-steps because allocating them is slow."""

    filtered: Floats  # (rows, L)
    evidence: Floats  # (rows, L)
    inverses: Floats  # (rows,)
    scores: Floats  # (rows, L) for clicks, else (0, L)

    @classmethod
    def for_chain(cls, chain: Chain, model: SwitchingRegression) -> Workspace:
        """Buffers for the longest section of ``chain``."""
        rows, n_states = chain.most_rows, model.n_states
        scores = np.empty((rows if model.rewards == "bernoulli" else 0, n_states))
        return cls(np.empty((rows, n_states)), np.empty((rows, n_states)), np.empty(rows), scores)

    def part(self, section: Section, rounds: slice) -> Workspace:
        """Views for ``rounds`` of ``section``."""
        offsets = slice(rounds.start - section.rounds.start, rounds.stop - section.rounds.start)
        return Workspace(*(array[offsets] for array in self))


def expectation(
    model: SwitchingRegression,
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


def short_chains(model: SwitchingRegression, arrays: LogArrays, chains: ShortChains, posteriors: Floats) -> Expectation:
    """The E-step over whole chains of features in one block (B = 1).

    ``posteriors`` (n, L) receives p(z_t | all rewards), unless its shape is (0, L).
    """
    n_states, n_features = model.n_states, model.joint.shape[1]
    longest, variances = chains.widths.shape[1], model.noise_variances
    features, filtered = column_buffer(n_features, longest), column_buffer(n_states, longest)
    seen, inverses = column_buffer(1, longest)[0], np.empty((longest, LANES))
    evidence = np.empty((longest, n_states, LANES))
    scores = np.empty((longest if model.rewards == "bernoulli" else 0, n_states, LANES))
    first_states, pairs = np.zeros(n_states), np.zeros((n_states, n_states))
    sums, totals = np.zeros((n_states, n_features * (n_features + 3) // 2)), np.zeros((n_states, 2))
    likelihood = run_groups(
        arrays.rows, arrays.actions, arrays.rewards, *chains, model.reward_coefs, 0.5 / variances,
        0.5 * np.log(variances), model.initial_probs, model.transition_matrix, model.transition_matrix.T.copy(),
        features, seen, evidence, filtered, inverses, scores, np.empty(sums.shape), posteriors, first_states, pairs,
        sums, totals,
    )  # fmt: skip
    grams, moments = unpacked(sums, n_features)
    transitions = pairs * model.transition_matrix
    return Expectation(likelihood, first_states, transitions, grams[:, None], moments[:, None], totals)


def emit(model: SwitchingRegression, arrays: LogArrays, buffers: Workspace) -> float:
    """Write the evidence of these rounds to ``buffers``; return the sum of the log factors left out."""
    data = arrays.rows, arrays.actions, arrays.rewards
    return float(evidences(*data, model.reward_coefs, model.noise_variances, buffers.evidence, buffers.scores))


@dataclass(frozen=True)
class _EStep:
    model: SwitchingRegression
    chain: Chain
    workspace: Workspace
    posteriors: Floats | LikeliestStates | None
    workers: int

    def over(self, span: Sequence[Section]) -> Expectation:
        """Statistics of a group of sections that contains whole chains."""
        if span[0].short:
            return reduce(add, map_in_order(self.short_tile, span[0].tiles, workers=self.workers))
        belief, future = self.model.initial_probs.copy(), np.ones(self.model.n_states)
        entering, likelihood = [], 0.0
        for section in span:
            entering.append(belief.copy())
            likelihood += self.forward(section, belief)
        first_states, pairs = np.zeros(self.model.n_states), np.zeros((self.model.n_states, self.model.n_states))
        sums: list[Sums] = []
        for i in range(len(span) - 1, -1, -1):
            if i < len(span) - 1:
                self.forward(span[i], entering[i])
            for strand_pairs, strand_sums in self.backward(span[i], future):
                pairs += strand_pairs
                sums += strand_sums
            rounds = span[i].rounds
            # The backward pass has overwritten filtered probabilities by posteriors.
            smoothed = self.workspace.part(span[i], rounds).filtered
            first_states += smoothed[self.chain.first_rounds(rounds)].sum(axis=0)
            if self.posteriors is not None:
                self.posteriors[rounds] = smoothed
        grams, moments, totals = (np.add.reduce(parts) for parts in zip(*sums, strict=True))
        transitions = pairs * self.model.transition_matrix
        return Expectation(likelihood, first_states, transitions, grams, moments, totals)

    def short_tile(self, tile: slice) -> Expectation:
        """Statistics of a tile of short chains."""
        posteriors = np.empty((0 if self.posteriors is None else tile.stop - tile.start, self.model.n_states))
        found = short_chains(self.model, self.chain.arrays(tile), self.chain.short_chains(tile), posteriors)
        if self.posteriors is not None:
            self.posteriors[tile] = posteriors
        return found

    def forward(self, section: Section, belief: Floats) -> float:
        """Run a section's recursion in the workspace and update ``belief``; return the log-likelihood."""
        # Only the first strand may continue a chain, and only the last may leave one unfinished.
        beliefs = [belief.copy() for _ in section.strands]
        likelihoods = self.each_strand(self.strand_forward, section, beliefs)
        belief[:] = beliefs[-1]
        return sum(likelihoods)

    def backward(self, section: Section, future: Floats) -> list[tuple[Floats, list[Sums]]]:
        """Replace filtered probabilities by posteriors and update ``future``; return pairs and sums."""
        futures = [future.copy() for _ in section.strands]
        found = self.each_strand(self.strand_backward, section, futures)
        future[:] = futures[0]
        return found

    def each_strand(
        self, run: Callable[[Section, Sequence[slice], Floats], Result], section: Section, edges: Sequence[Floats]
    ) -> list[Result]:
        """Apply ``run`` to each strand and the belief, or future, at its edge."""
        places = range(len(edges))
        return list(map_in_order(lambda i: run(section, section.strands[i], edges[i]), places, workers=self.workers))

    def strand_forward(self, section: Section, strand: Sequence[slice], belief: Floats) -> float:
        """Forward recursion of a strand; threads compute the emissions of later tiles meanwhile."""
        model, likelihood = self.model, 0.0
        emissions = map_in_order(partial(self.emit, section), strand, workers=self.helpers(section))
        for tile, factor in zip(strand, emissions, strict=True):
            buffers = self.workspace.part(section, tile)
            scale = forward(
                buffers.evidence, self.chain.starts[tile], model.initial_probs, model.transition_matrix, belief,
                buffers.filtered, buffers.inverses,
            )  # fmt: skip
            likelihood += factor + scale
        return likelihood

    def strand_backward(self, section: Section, strand: Sequence[slice], future: Floats) -> tuple[Floats, list[Sums]]:
        """Backward recursion of a strand; threads compute the sums of finished tiles meanwhile."""
        pairs = np.zeros((self.model.n_states, self.model.n_states))

        def smoothed() -> Iterator[slice]:
            for tile in reversed(strand):
                buffers = self.workspace.part(section, tile)
                backward(
                    buffers.filtered, buffers.evidence, buffers.inverses, self.chain.next_starts[tile],
                    self.model.transition_matrix, future, buffers.filtered, pairs,
                )  # fmt: skip
                yield tile

        return pairs, list(map_in_order(partial(self.sums, section), smoothed(), workers=self.helpers(section)))

    def helpers(self, section: Section) -> int:
        """Threads per strand: all if there is one strand, else one each."""
        return self.workers if len(section.strands) == 1 else 1

    def emit(self, section: Section, tile: slice) -> float:
        return emit(self.model, self.chain.arrays(tile), self.workspace.part(section, tile))

    def sums(self, section: Section, tile: slice) -> Sums:
        """Gram matrices, moments and totals of a tile, weighted by its posteriors."""
        arrays, buffers = self.chain.arrays(tile), self.workspace.part(section, tile)
        data, n_blocks = (arrays.rows, arrays.actions, arrays.rewards, buffers.filtered), self.model.joint.shape[0]
        blocks = self.chain.block_sums(tile) if self.model.rewards != "bernoulli" else None
        if blocks is None:
            return regression_sums(*data, n_blocks, buffers.scores)  # type: ignore[no-any-return]
        return blocked_sums(*data, *blocks)  # type: ignore[no-any-return]
