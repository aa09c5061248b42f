"""The E-step: expected sufficient statistics of a log under a switching regression, additive over rounds.

One section of the log is in memory at a time. If chains extend over several sections, a forward pass stores the belief
before each section, and a backward pass recomputes each section from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from seachange.engine import SharedWork, map_in_order
from seachange.kernels.emission import evidences
from seachange.kernels.forward_backward import backward, forward
from seachange.kernels.regression import blocked_sums, logistic_sums, regression_sums
from seachange.protocols import Floats
from seachange.states.chains import Chain, Section, short_chains

if TYPE_CHECKING:
    from seachange.states.switching_regression import SwitchingRegression


Sums = tuple[Floats, Floats, Floats]  # Gram matrices, moments and totals


class Posteriors(Protocol):
    """Receives posteriors of slices of rounds: an array (n, L), or an object with the same item assignment."""

    def __setitem__(self, rounds: slice, posteriors: Floats, /) -> None: ...


class LikeliestStates:
    """Receives posteriors like an array, but stores only the most likely states."""

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
    posteriors: Posteriors | None = None,
    workspace: Workspace | None = None,
    workers: int = 1,
) -> Expectation:
    """The E-step over all chains.

    ``posteriors`` receives p(z_t | all rewards) in the chain's order. Results do not depend on ``workers``.
    """
    e_step = _EStep(model, chain, workspace or Workspace.for_chain(chain, model), posteriors, workers)
    return reduce(add, map(e_step.over, chain.spans))


def log_likelihood(model: SwitchingRegression, chain: Chain, workers: int = 1) -> float:
    """log p(all rewards), by the forward pass alone."""
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
    workspace: Workspace
    posteriors: Posteriors | None
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
            found = self.workspace.part(span[i], rounds).filtered
            first_states += found[self.chain.first_rounds(rounds)].sum(axis=0)
            if self.posteriors is not None:
                self.posteriors[rounds] = found
        grams, moments, totals = (np.add.reduce(parts) for parts in zip(*sums, strict=True))
        transitions = pairs * self.model.transition_matrix
        return Expectation(likelihood, first_states, transitions, grams, moments, totals)

    def short_tile(self, tile: slice) -> Expectation:
        """Statistics of a tile of short chains."""
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
        """Run a section's recursion in the workspace and update ``belief``; return the log-likelihood."""
        # Only the first strand may continue a chain, and only the last may leave one unfinished.
        beliefs = [belief.copy() for _ in section.strands]

        def run(i: int) -> float:
            return self.strand_forward(section, section.strands[i], beliefs[i])

        likelihood = sum(map_in_order(run, range(len(beliefs)), workers=self.workers))
        belief[:] = beliefs[-1]
        return likelihood

    def strand_forward(self, section: Section, strand: Sequence[slice], belief: Floats) -> float:
        """The same for a strand; threads compute the emissions of later tiles during the recursion."""
        model, likelihood = self.model, 0.0
        with SharedWork(partial(self.emit, section), self.helpers(section)) as emissions:
            for tile in strand:
                emissions.give(tile)
            for tile, factor in zip(strand, emissions.results(), strict=True):
                buffers = self.workspace.part(section, tile)
                scale = forward(
                    buffers.evidence, self.chain.starts[tile], model.initial_probs, model.transition_matrix, belief,
                    buffers.filtered, buffers.inverses,
                )  # fmt: skip
                likelihood += factor + scale
        return likelihood

    def backward(self, section: Section, future: Floats) -> list[tuple[Floats, list[Sums]]]:
        """Replace filtered probabilities by posteriors and update ``future``; return pairs and sums."""
        futures = [future.copy() for _ in section.strands]

        def run(i: int) -> tuple[Floats, list[Sums]]:
            return self.strand_backward(section, section.strands[i], futures[i])

        found = list(map_in_order(run, range(len(futures)), workers=self.workers))
        future[:] = futures[0]
        return found

    def strand_backward(self, section: Section, strand: Sequence[slice], future: Floats) -> tuple[Floats, list[Sums]]:
        """The same for a strand; threads compute the sums of finished tiles during the recursion."""
        pairs = np.zeros((self.model.n_states, self.model.n_states))
        with SharedWork(partial(self.sums, section), self.helpers(section)) as sums:
            for tile in reversed(strand):
                buffers = self.workspace.part(section, tile)
                backward(
                    buffers.filtered, buffers.evidence, buffers.inverses, self.chain.next_starts[tile],
                    self.model.transition_matrix, future, buffers.filtered, pairs,
                )  # fmt: skip
                sums.give(tile)
            return pairs, list(sums.results())

    def helpers(self, section: Section) -> int:
        """Threads per strand: all if there is one strand, else one each."""
        return self.workers if len(section.strands) == 1 else 1

    def emit(self, section: Section, tile: slice) -> float:
        """Compute the evidence of a tile in the workspace; return the sum of the log factors left out."""
        arrays, buffers = self.chain.arrays(tile), self.workspace.part(section, tile)
        return float(
            evidences(
                arrays.rows, arrays.actions, arrays.rewards, self.model.reward_coefs, self.model.noise_variances,
                buffers.evidence, buffers.scores,
            )
        )  # fmt: skip

    def sums(self, section: Section, tile: slice) -> Sums:
        """Gram matrices, moments and totals of a tile, weighted by its posteriors."""
        arrays, buffers = self.chain.arrays(tile), self.workspace.part(section, tile)
        rows, actions, rewards, weights = arrays.rows, arrays.actions, arrays.rewards, buffers.filtered
        if self.model.rewards == "bernoulli":
            return logistic_sums(rows, actions, rewards, weights, buffers.scores, self.model.joint.shape[0])  # type: ignore[no-any-return]
        blocks = self.chain.block_sums(tile)
        if blocks is None:
            return regression_sums(rows, actions, rewards, weights, self.model.joint.shape[0])  # type: ignore[no-any-return]
        return blocked_sums(rows, actions, rewards, weights, *blocks)  # type: ignore[no-any-return]
