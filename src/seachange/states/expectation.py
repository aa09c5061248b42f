"""The E-step: expected sufficient statistics of a log under a switching regression. They add up over rounds.

A section of the log is in memory at a time. Where chains run through several sections, one pass forward remembers the
belief before each section, and a second one, backward, works each section out again from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from seachange.engine import SharedWork, map_in_order
from seachange.kernels.chain import backward, forward
from seachange.kernels.emission import evidences
from seachange.kernels.regression import blocked_sums, logistic_sums, regression_sums
from seachange.protocols import Floats
from seachange.states.chain import Chain, Section
from seachange.states.side_by_side import short_chains

if TYPE_CHECKING:
    from seachange.states.switching import SwitchingRegression


Sums = tuple[Floats, Floats, Floats]  # Gram matrices, moments and totals


class Posteriors(Protocol):
    """What takes posteriors of some rounds: an array (n, L), or anything that is written to like one."""

    def __setitem__(self, rounds: slice, posteriors: Floats, /) -> None: ...


class LikeliestStates:
    """Takes posteriors as an array of them would, and keeps only which state is likeliest."""

    def __init__(self, n: int) -> None:
        self.states = np.empty(n, dtype=np.int16)

    def __setitem__(self, rounds: slice, posteriors: Floats) -> None:
        self.states[rounds] = np.argmax(posteriors, axis=1)


@dataclass(frozen=True, eq=False)
class Expectation:
    """Expected sufficient statistics of some rounds. c and s are 1 and r, or of clicks p (1 - p) and r - p."""

    log_likelihood: float
    first_states: Floats  # (L,) expected number of chains that start in z
    transitions: Floats  # (L, L) expected number of moves from i to j
    grams: Floats  # (L, B, D, D) Σ_t Q_t(z) c f f'
    moments: Floats  # (L, B, D) Σ_t Q_t(z) s f
    totals: Floats  # (L, 2) Σ_t Q_t(z) [r², 1]

    def __add__(self, other: Expectation) -> Expectation:
        """The statistics of both."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Expectation(*(mine + theirs for mine, theirs in pairs))


class Workspace(NamedTuple):
    """Room for one section's recursions, kept from one E-step to the next: fresh memory costs more than filling it."""

    filtered: Floats  # (rows, L)
    evidence: Floats  # (rows, L)
    inverses: Floats  # (rows,)
    scores: Floats  # (rows, L) where rewards are clicks, else (0, L)

    @classmethod
    def for_chain(cls, chain: Chain, model: SwitchingRegression) -> Workspace:
        """Room for the longest section of ``chain``."""
        rows, n_states = chain.most_rows, model.n_states
        scores = np.empty((rows if model.rewards == "bernoulli" else 0, n_states))
        return cls(np.empty((rows, n_states)), np.empty((rows, n_states)), np.empty(rows), scores)

    def part(self, section: Section, rounds: slice) -> Workspace:
        """Room for ``rounds`` of ``section``."""
        place = slice(rounds.start - section.rounds.start, rounds.stop - section.rounds.start)
        return Workspace(*(array[place] for array in self))


def expectation(
    model: SwitchingRegression,
    chain: Chain,
    posteriors: Posteriors | None = None,
    workspace: Workspace | None = None,
    workers: int = 1,
) -> Expectation:
    """The E-step over all chains.

    ``posteriors``, where given, receives p(z_t | all rewards) in the chain's order. ``workers`` changes nothing but the
    time.
    """
    room = Workspace.for_chain(chain, model) if workspace is None else workspace
    e_step = _EStep(model, chain, room, posteriors, workers)
    return reduce(add, map(e_step.over, chain.spans))


def log_likelihood(model: SwitchingRegression, chain: Chain, workers: int = 1) -> float:
    """log p(all rewards): the pass forward alone."""
    e_step = _EStep(model, chain, Workspace.for_chain(chain, model), None, workers)
    total = 0.0
    for span in chain.spans:
        belief = model.initial_probs.copy()
        total += sum(e_step.forward(section, belief) for section in span)
    return total


@dataclass(frozen=True)
class _EStep:
    model: SwitchingRegression
    chain: Chain
    room: Workspace
    posteriors: Posteriors | None
    workers: int

    def over(self, span: Sequence[Section]) -> Expectation:
        """The statistics of a group of sections that no chain leaves."""
        if span[0].short:
            return reduce(add, map_in_order(self.side_by_side, span[0].tiles, workers=self.workers))
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
            # Posteriors have taken the place of the filtered probabilities.
            found = self.room.part(span[i], rounds).filtered
            first_states += found[self.chain.first_rounds(rounds)].sum(axis=0)
            if self.posteriors is not None:
                self.posteriors[rounds] = found
        grams, moments, totals = (np.add.reduce(parts) for parts in zip(*sums, strict=True))
        transitions = pairs * self.model.transition_matrix
        return Expectation(likelihood, first_states, transitions, grams, moments, totals)

    def side_by_side(self, tile: slice) -> Expectation:
        """The statistics of a tile of short chains."""
        model = self.model
        posteriors = np.empty((0 if self.posteriors is None else tile.stop - tile.start, model.n_states))
        likelihood, first_states, pairs, *sums = short_chains(
            self.chain.arrays(tile), self.chain.short_chains(tile), model.reward_coefs, model.noise_variances,
            model.initial_probs, model.transition_matrix, posteriors,
        )  # fmt: skip
        if self.posteriors is not None:
            self.posteriors[tile] = posteriors
        return Expectation(likelihood, first_states, pairs * model.transition_matrix, *sums)

    def forward(self, section: Section, belief: Floats) -> float:
        """Fill the room with a section's recursion, move ``belief`` past it; returns its log-likelihood."""
        # Only the first strand goes on with a chain, only the last one may leave one to go on with.
        beliefs = [belief.copy() for _ in section.strands]

        def run(place: int) -> float:
            return self.strand_forward(section, section.strands[place], beliefs[place])

        likelihood = sum(map_in_order(run, range(len(beliefs)), workers=self.workers))
        belief[:] = beliefs[-1]
        return likelihood

    def strand_forward(self, section: Section, strand: Sequence[slice], belief: Floats) -> float:
        """The same for a strand. While the recursion waits for a tile's emissions, later ones are worked out."""
        model, likelihood = self.model, 0.0
        with SharedWork(partial(self.emit, section), self.helpers(section)) as emissions:
            for tile in strand:
                emissions.give(tile)
            for tile, factor in zip(strand, emissions.results(), strict=True):
                room = self.room.part(section, tile)
                scale = forward(
                    room.evidence, self.chain.starts[tile], model.initial_probs, model.transition_matrix, belief,
                    room.filtered, room.inverses,
                )  # fmt: skip
                likelihood += factor + scale
        return likelihood

    def backward(self, section: Section, future: Floats) -> list[tuple[Floats, list[Sums]]]:
        """Posteriors take the place of filtered probabilities, ``future`` moves before the section; pairs and sums."""
        futures = [future.copy() for _ in section.strands]

        def run(place: int) -> tuple[Floats, list[Sums]]:
            return self.strand_backward(section, section.strands[place], futures[place])

        found = list(map_in_order(run, range(len(futures)), workers=self.workers))
        future[:] = futures[0]
        return found

    def strand_backward(self, section: Section, strand: Sequence[slice], future: Floats) -> tuple[Floats, list[Sums]]:
        """The same for a strand. Sums of a tile are worked out while the recursion goes on."""
        pairs = np.zeros((self.model.n_states, self.model.n_states))
        with SharedWork(partial(self.sums, section), self.helpers(section)) as sums:
            for tile in reversed(strand):
                room = self.room.part(section, tile)
                backward(
                    room.filtered, room.evidence, room.inverses, self.chain.next_starts[tile],
                    self.model.transition_matrix, future, room.filtered, pairs,
                )  # fmt: skip
                sums.give(tile)
            return pairs, list(sums.results())

    def helpers(self, section: Section) -> int:
        """Threads that work on one strand: several strands have one each."""
        return self.workers if len(section.strands) == 1 else 1

    def emit(self, section: Section, tile: slice) -> float:
        """Evidence of a tile's rounds into the room; returns the log-product of what was left out of it."""
        arrays, room = self.chain.arrays(tile), self.room.part(section, tile)
        return float(
            evidences(
                arrays.rows, arrays.actions, arrays.rewards, self.model.reward_coefs, self.model.noise_variances,
                room.evidence, room.scores,
            )
        )  # fmt: skip

    def sums(self, section: Section, tile: slice) -> Sums:
        """Gram matrices, moments and totals of a tile, weighed by its posteriors."""
        arrays, room = self.chain.arrays(tile), self.room.part(section, tile)
        rows, actions, rewards, weights = arrays.rows, arrays.actions, arrays.rewards, room.filtered
        if self.model.rewards == "bernoulli":
            return logistic_sums(rows, actions, rewards, weights, room.scores, self.model.joint.shape[0])  # type: ignore[no-any-return]
        blocks = self.chain.block_sums(tile)
        if blocks is None:
            return regression_sums(rows, actions, rewards, weights, self.model.joint.shape[0])  # type: ignore[no-any-return]
        return blocked_sums(rows, actions, rewards, weights, *blocks)  # type: ignore[no-any-return]
