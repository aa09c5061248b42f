"""The E-step: expected sufficient statistics of a log under a switching regression, additive over rounds.

A log is a sequence of Markov chains, split into tiles (the work of one thread) and sections (what is in memory at a
time). If chains extend over several sections, a forward pass stores the belief before each section, and a backward pass
recomputes each section from there. Short chains are run in batches instead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from seachange.engine import map_in_order
from seachange.kernels.emission import evidences
from seachange.kernels.forward_backward import backward, forward
from seachange.kernels.regression import BLOCK, blocked_sums, blocks_of, regression_sums, unweighted_sums
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.joint_features import LogArrays
from seachange.protocols import Bools, Floats, Ints
from seachange.states.labels import in_chains

if TYPE_CHECKING:
    from seachange.states.switching_regression import SwitchingRegression

Number = TypeVar("Number", np.float64, np.int64)
Sums = tuple[Floats, Floats, Floats]  # Gram matrices, moments and totals

# Rounds per tile, the unit of work of a thread.
TILE_ROWS = 1 << 14
# Tiles whose recursions are in memory at a time.
TILES_PER_SECTION = 8
# Sums over blocks of rounds are kept if they save work; they take at most a quarter of the memory of the features.
MIN_BLOCK_FEATURES, MAX_BLOCK_FEATURES = 16, BLOCK // 2


class Section(NamedTuple):
    """Rounds whose recursions are in memory at one time."""

    tiles: Sequence[slice]

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
    tile_rows: int = TILE_ROWS
    tiles_per_section: int = TILES_PER_SECTION
    _blocks: dict[int, tuple[Floats, Bools]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require_rounds(self.log, "a hidden Markov model")
        self.log, self._order, self.starts = in_chains(self.log)
        self.next_starts: Bools = np.append(self.starts[1:], True)
        self.firsts: Ints = np.flatnonzero(self.starts)
        self.spans: list[list[Section]] = []
        tiles = _tiles(self.firsts, len(self.log), self.tile_rows)
        for first in range(0, len(tiles), self.tiles_per_section):
            section = Section(tiles[first : first + self.tiles_per_section])
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

    def block_sums(self, tile: slice) -> tuple[Floats, Bools] | None:
        """Sums over blocks of rounds, kept for all E-steps; None if they save no work or the log is on disk."""
        n_blocks, n_features = self.log.joint.shape
        if self.log.disk is not None or n_blocks > 1 or not MIN_BLOCK_FEATURES <= n_features <= MAX_BLOCK_FEATURES:
            return None
        if tile.start not in self._blocks:
            arrays, blocks = self.arrays(tile), blocks_of(tile.stop - tile.start)
            self._blocks[tile.start] = unweighted_sums(arrays.rows, arrays.actions, arrays.rewards, blocks)
        return self._blocks[tile.start]

    def in_chain_order(self, given: npt.NDArray[Number]) -> npt.NDArray[Number]:
        """Rows of ``given`` in the order of the chain."""
        return given if self._order is None else given[self._order]

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
        scores = np.empty((rows if model.clicks else 0, n_states))
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
        blocks = self.chain.block_sums(tile) if not self.model.clicks else None
        if blocks is None:
            return regression_sums(*data, self.model.joint.shape[0], buffers.scores)  # type: ignore[no-any-return]
        return blocked_sums(*data, *blocks)  # type: ignore[no-any-return]
