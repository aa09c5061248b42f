"""Labels: the state of every round, and the two oracles that need not look for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog, require_log, require_rounds
from seachange.params import Params
from seachange.protocols import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class StateLabels:
    """The state of every round, as an oracle sees it."""

    states: Ints  # (n,) z_t
    n_states: int  # L; a state may have no rounds
    change_points: Ints  # first round of each new segment
    n_chains: int = 1  # independent sequences, each of which starts a segment of its own
    state_probs: Floats | None = None  # (n, L) Q_t(z), where the oracle is not certain
    from_rewards: bool = False  # whether a round's own reward, or later ones, helped to find its state

    @property
    def expected_stay(self) -> float:
        """Mean length of a segment, in rounds."""
        return len(self.states) / (len(self.change_points) + self.n_chains)

    @property
    def counts(self) -> Ints:
        """(L,) rounds of each state."""
        return np.bincount(self.states, minlength=self.n_states)

    def weights(self, soft: bool) -> Floats:
        """(L, n): how much round t counts for state z; 0 or 1 unless ``soft``."""
        if soft and self.state_probs is not None:
            return np.ascontiguousarray(self.state_probs.T)
        return np.asarray(self.states == np.arange(self.n_states)[:, None], dtype=np.float64)


def labels_from_states(
    states: Ints,
    n_states: int,
    log: BanditLog,
    state_probs: Floats | None = None,
    change_points: Ints | None = None,
    *,
    from_rewards: bool = False,
) -> StateLabels:
    """Labels whose change-points, unless given, are the rounds whose state differs from the one before in its chain."""
    require_rounds(log, "an oracle")
    order, starts = chains(log)
    changed = states[order][1:] != states[order][:-1]
    found = np.sort(order[1:][changed & ~starts[1:]])
    return StateLabels(
        states,
        n_states,
        found if change_points is None else change_points,
        int(starts.sum()),
        state_probs,
        from_rewards,
    )


def chains(log: BanditLog) -> tuple[Ints, Bools]:
    """An order of rounds that puts each sequence in one piece, and which of the ordered rounds start one."""
    starts = np.zeros(len(log), dtype=bool)
    starts[0] = True
    if log.sequences is None:
        return np.arange(len(log)), starts
    order = np.argsort(log.sequences, kind="stable")
    ordered = log.sequences[order]
    starts[1:] = ordered[1:] != ordered[:-1]
    return order, starts


def by_first_appearance(states: Ints, n_states: int) -> Ints:
    """The order in which states first occur; those that never do come last."""
    found = (states == state for state in range(n_states))
    first = [int(rounds.argmax()) if rounds.any() else len(states) for rounds in found]
    return np.argsort(first, kind="stable")


def share_right(found: Ints, truth: Ints) -> float:
    """Share of rounds whose state is right, under the numbering of states that agrees best."""
    from scipy.optimize import linear_sum_assignment

    n_states = int(max(found.max(), truth.max())) + 1
    agreement = np.zeros((n_states, n_states))
    np.add.at(agreement, (found, truth), 1)
    return float(agreement[linear_sum_assignment(-agreement)].sum() / len(truth))


@dataclass(kw_only=True, eq=False, repr=False)
class SingleState(Params):
    """The world never changes: one state for the whole log."""

    def fit(self, log: BanditLog) -> Self:
        """Nothing to learn."""
        require_log(log, "an oracle")
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """State 0 in every round."""
        return labels_from_states(np.zeros(len(log), dtype=np.int64), 1, log)


@dataclass(eq=False, repr=False)
class KnownStates(Params):
    """The states are known: a label for every round of the log."""

    states: npt.ArrayLike

    def fit(self, log: BanditLog) -> Self:
        """Check that the labels fit the log."""
        self._checked(log)
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """The states that were given."""
        states = self._checked(log)
        return labels_from_states(states, int(states.max()) + 1, log)

    def _checked(self, log: BanditLog) -> Ints:
        require_log(log, "an oracle")
        given: npt.NDArray[Any] = np.asarray(self.states)
        if given.shape != (len(log),):
            raise LogError(f"states must have one entry a round; it has shape {given.shape} for {len(log)} rounds.")
        if given.dtype.kind not in "iub" or (given < 0).any():
            raise LogError("states must be whole numbers from 0 on.")
        return given.astype(np.int64)
