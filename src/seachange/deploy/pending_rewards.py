"""The rounds since the oldest one whose reward is still to come, as a persistent tree.

Leaves hold the evidence of up to ``LEAF_ROUNDS`` rounds. Every node keeps its transfer (see
``seachange.kernels.transfers``), so that a late reward changes one leaf and the products above it. Nodes never change;
a new tree shares with the old one what they have in common.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self, TypeAlias

import numpy as np

from seachange.kernels.belief_updates import replay
from seachange.kernels.transfers import (
    pass_back,
    pass_through,
    product_of_transfers,
    smoothing_weights,
    transfer_of_rounds,
)
from seachange.protocols import Bools, Floats

LEAF_ROUNDS = 16  # rounds of a leaf: a power of 2


@dataclass(frozen=True, eq=False, repr=False)
class PendingRewards:
    """The belief before the oldest round kept, and the rounds from there on.

    Rounds are numbered as in the deployment. ``transition`` is that of the deployer, the same in every call.
    """

    anchor: Floats  # (L,)
    tree: "Node"
    end: int  # the round after the last one kept

    @classmethod
    def of_rounds(cls, anchor: Floats, first: int, evidences: Floats, waiting: Bools) -> Self:
        """Rounds from ``first`` on, with evidences (m, L), which are ones while a reward is ``waiting`` (m,)."""
        return cls(anchor, _tree_of(first, evidences, waiting.tobytes()), first + len(evidences))

    @property
    def first(self) -> int:
        """The oldest round kept."""
        return self.tree.first

    @property
    def evidences(self) -> Floats:
        """(m, L) of the rounds kept."""
        return np.concatenate([leaf.evidences for leaf in self.tree.leaves()])

    @property
    def waiting(self) -> Bools:
        """(m,) whether the reward of a round is still missing."""
        return np.frombuffer(b"".join(leaf.waiting for leaf in self.tree.leaves()), dtype=bool)

    def waits(self, round: int) -> bool:
        """Whether the reward of a round that is kept is still missing."""
        return self.tree.oldest_waiting(round) == round

    def appended(self, evidence: Floats, waits: bool) -> "PendingRewards":
        """With one more round at the end."""
        return PendingRewards(self.anchor, self.tree.appended(self.end, evidence, waits), self.end + 1)

    def amended(self, round: int, evidence: Floats) -> "PendingRewards":
        """With the evidence of a reward that was missing."""
        return PendingRewards(self.anchor, self.tree.amended(round, evidence), self.end)

    def trimmed(self, memory: int, transition: Floats) -> "PendingRewards | None":
        """Without the rounds before the first of the last ``memory`` whose reward is missing; None if all have come."""
        oldest = self.tree.oldest_waiting(self.end - memory)
        if oldest is None:
            return None
        if oldest == self.first:
            return self
        return PendingRewards(self.before(oldest, transition), self.tree.cut(oldest), self.end)

    def before(self, round: int, transition: Floats) -> Floats:
        """(L,) the belief before a round, given the rewards of earlier rounds; ``end`` is the round that comes next."""
        belief, node = self.anchor.copy(), self.tree
        while isinstance(node, Branch):
            if round <= node.split:
                node = node.left
            else:
                after = np.empty_like(belief)
                pass_through(belief, node.left.transfer(transition), after)
                belief, node = after, node.right
        replay(belief, node.evidences[: round - node.first], transition)
        return belief

    def smoothed(self, round: int, transition: Floats) -> Floats:
        """(L,) p(z_t | all rewards that have come) for a round t that is kept."""
        later, node = np.zeros(len(self.anchor)), self.tree
        while isinstance(node, Branch):
            if round < node.split:
                later, node = pass_back(node.right.transfer(transition), later), node.left
            else:
                node = node.right
        belief = self.before(round, transition)
        weights: Floats = smoothing_weights(belief, node.evidences[round - node.first :], transition, later)
        return weights


@dataclass(slots=True, eq=False, repr=False)
class Leaf:
    """Rounds of one block of ``LEAF_ROUNDS``; blocks start at multiples of it."""

    first: int
    evidences: Floats  # (m, L)
    waiting: bytes  # (m,) 1 if the reward of a round is still missing, else 0
    _transfer: Floats | None = field(default=None, init=False)  # computed when first needed

    @property
    def waits(self) -> bool:
        """Whether any reward is missing."""
        return 1 in self.waiting

    def leaves(self) -> Iterator["Leaf"]:
        """The leaf itself."""
        yield self

    def transfer(self, transition: Floats) -> Floats:
        """(L, L + 1) of its rounds."""
        if self._transfer is None:
            self._transfer = transfer_of_rounds(self.evidences, transition)
        return self._transfer

    def oldest_waiting(self, start: int) -> int | None:
        """The first round from ``start`` on whose reward is missing."""
        place = self.waiting.find(1, max(start - self.first, 0))
        return None if place < 0 else self.first + place

    def appended(self, round: int, evidence: Floats, waits: bool) -> "Node":
        """With one more round, in a leaf of its own if a new block starts."""
        if round % LEAF_ROUNDS == 0:
            return Branch(self, Leaf(round, evidence[None], bytes([waits])), round)
        return Leaf(self.first, np.concatenate((self.evidences, evidence[None])), self.waiting + bytes([waits]))

    def amended(self, round: int, evidence: Floats) -> "Leaf":
        """With the evidence of a reward that was missing."""
        place, evidences = round - self.first, self.evidences.copy()
        evidences[place] = evidence
        return Leaf(self.first, evidences, self.waiting[:place] + b"\0" + self.waiting[place + 1 :])

    def cut(self, first: int) -> "Leaf":
        """Without the rounds before ``first``."""
        place = first - self.first
        if place == 0:
            return self
        return Leaf(first, self.evidences[place:].copy(), self.waiting[place:])


class Branch:
    """Two nodes, divided at the multiple of the highest power of 2.

    So the tree depends only on the rounds in it, not on the order in which they and their rewards came, and a restored
    one has the same rounding errors. Its depth is logarithmic in their number.
    """

    __slots__ = ("_transfer", "first", "left", "right", "split", "waits")

    def __init__(self, left: "Node", right: "Node", split: int) -> None:
        self.left, self.right, self.split = left, right, split
        self.first: int = left.first
        self.waits: bool = left.waits or right.waits
        self._transfer: Floats | None = None

    def leaves(self) -> Iterator[Leaf]:
        """All leaves, in order."""
        yield from self.left.leaves()
        yield from self.right.leaves()

    def transfer(self, transition: Floats) -> Floats:
        """(L, L + 1) of its rounds."""
        if self._transfer is None:
            self._transfer = product_of_transfers(self.left.transfer(transition), self.right.transfer(transition))
        return self._transfer

    def oldest_waiting(self, start: int) -> int | None:
        """The first round from ``start`` on whose reward is missing."""
        found = self.left.oldest_waiting(start) if start < self.split and self.left.waits else None
        return self.right.oldest_waiting(start) if found is None and self.right.waits else found

    def appended(self, round: int, evidence: Floats, waits: bool) -> "Branch":
        """With one more round."""
        if _power(round) > _power(self.split):
            return Branch(self, Leaf(round, evidence[None], bytes([waits])), round)
        return Branch(self.left, self.right.appended(round, evidence, waits), self.split)

    def amended(self, round: int, evidence: Floats) -> "Branch":
        """With the evidence of a reward that was missing."""
        if round < self.split:
            return Branch(self.left.amended(round, evidence), self.right, self.split)
        return Branch(self.left, self.right.amended(round, evidence), self.split)

    def cut(self, first: int) -> "Node":
        """Without the rounds before ``first``."""
        if first >= self.split:
            return self.right.cut(first)
        if first == self.first:
            return self
        return Branch(self.left.cut(first), self.right, self.split)


Node: TypeAlias = Leaf | Branch


def _power(round: int) -> int:
    """The highest power of 2 that divides ``round``."""
    return round & -round


def _tree_of(first: int, evidences: Floats, waiting: bytes) -> Node:
    start, last = first // LEAF_ROUNDS, (first + len(waiting) - 1) // LEAF_ROUNDS
    if start == last:
        return Leaf(first, evidences, waiting)
    high = (start ^ last).bit_length() - 1
    split = (last >> high << high) * LEAF_ROUNDS
    place = split - first
    left, right = (
        _tree_of(first, evidences[:place], waiting[:place]),
        _tree_of(split, evidences[place:], waiting[place:]),
    )
    return Branch(left, right, split)
