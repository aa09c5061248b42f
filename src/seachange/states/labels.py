"""Labels: the state of every round, how well the hour predicts it, and the two oracles that do not have to infer it."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog, require_log, require_rounds
from seachange.params import Params
from seachange.protocols import Bools, Floats, Ints
from seachange.registry import ORACLES, SavedPart

HOUR, HOURS, DAYS = 3_600.0, 24, 7
# Days, or weeks, needed to measure how well the hour predicts states.
MIN_PERIODS = 3


class Segments(NamedTuple):
    """Runs of rounds in one state."""

    starts: Ints  # first round of each segment
    states: Ints  # state of each segment
    n_rounds: int  # of all segments


@dataclass(frozen=True, eq=False, repr=False)
class StateLabels:
    """The state of every round, according to an oracle."""

    states: Ints  # (n,) z_t
    n_states: int  # L; a state may have no rounds
    change_points: Ints  # first round of each new segment
    n_chains: int = 1  # independent sequences, each of which starts its own segment
    state_probs: Floats | None = None  # (n, L) Q_t(z), if the oracle gives probabilities
    from_rewards: bool = False  # whether the state of a round depends on its own reward or later ones

    @classmethod
    def from_segments(cls, segments: Segments, n_states: int, change_points: Ints, **others: Any) -> Self:
        """Labels of a saved model. ``states`` is expanded to one entry per round only when it is first used."""
        labels = cls(np.empty(0, dtype=np.int64), n_states, change_points, **others)
        vars(labels)["segments"] = segments
        del vars(labels)["states"]
        return labels

    def __getattr__(self, name: str) -> Any:
        """Expand ``states`` from segments, or find segments of ``states``."""
        known = vars(self)
        if name == "states" and "segments" in known:
            starts, states, n_rounds = known["segments"]
            known["states"] = np.repeat(states, np.diff(starts, append=n_rounds))
        elif name == "segments" and "states" in known:
            starts = np.flatnonzero(np.diff(known["states"], prepend=-1))
            known["segments"] = Segments(starts, known["states"][starts], len(known["states"]))
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return known[name]

    def __repr__(self) -> str:
        return f"StateLabels({self.n_rounds:,} rounds, {self.n_states} states, {len(self.change_points)} change points)"

    @property
    def n_rounds(self) -> int:
        """n."""
        return len(self.states) if "states" in vars(self) else int(self.segments.n_rounds)

    @property
    def expected_stay(self) -> float:
        """Mean length of a segment, in rounds."""
        return self.n_rounds / (len(self.change_points) + self.n_chains)

    @property
    def counts(self) -> Ints:
        """(L,) rounds of each state."""
        starts, states, n_rounds = self.segments
        counts = np.zeros(self.n_states, dtype=np.int64)
        np.add.at(counts, states, np.diff(starts, append=n_rounds))
        return counts

    def weights(self, soft: bool) -> Floats:
        """(L, n) weight of round t in state z: 0 or 1, or, with ``soft``, its probability."""
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
    """Labels; change points, unless given, are the rounds whose state differs from the previous one in their chain."""
    require_rounds(log, "an oracle")
    order, starts = chains(log)
    if change_points is None:
        changed = states[order][1:] != states[order][:-1]
        change_points = np.sort(order[1:][changed & ~starts[1:]])
    return StateLabels(states, n_states, change_points, int(starts.sum()), state_probs, from_rewards)


def chains(log: BanditLog) -> tuple[Ints, Bools]:
    """An order of rounds that makes each sequence contiguous, and which of the ordered rounds start a sequence."""
    starts = np.zeros(len(log), dtype=bool)
    starts[0] = True
    if log.sequences is None:
        return np.arange(len(log)), starts
    order = np.argsort(log.sequences, kind="stable")
    ordered = log.sequences[order]
    starts[1:] = ordered[1:] != ordered[:-1]
    return order, starts


def in_chains(log: BanditLog) -> tuple[BanditLog, Ints | None, Bools]:
    """The log with each sequence contiguous, the order of its rounds (None: unchanged), and which start a sequence."""
    order, starts = chains(log)
    if log.sequences is None or (np.diff(order) > 0).all():
        return log, None, starts
    return log.take(order), order, starts


def places_in_chains(firsts: Ints, n: int) -> Ints:
    """(n,) number of earlier rounds in the chain of each round, if chains begin at ``firsts``."""
    return np.asarray(np.arange(n) - np.repeat(firsts, np.diff(firsts, append=n)))


def by_first_appearance(states: Ints, n_states: int) -> Ints:
    """States in order of first appearance; those that never occur come last."""
    found = (states == state for state in range(n_states))
    first = [int(rounds.argmax()) if rounds.any() else len(states) for rounds in found]
    return np.argsort(first, kind="stable")


def share_right(found: Ints, truth: Ints) -> float:
    """Share of rounds with the right state, under the best matching of state numbers."""
    from scipy.optimize import linear_sum_assignment

    n_states = int(max(found.max(), truth.max())) + 1
    agreement = np.zeros((n_states, n_states))
    np.add.at(agreement, (found, truth), 1)
    return float(agreement[linear_sum_assignment(-agreement)].sum() / len(truth))


@dataclass(frozen=True)
class Clock:
    """How well the hour predicts the state of a round, measured on other days or weeks."""

    period: str  # "day" or "week"
    accuracy: float  # share of rounds in the most common state of their hour in other periods
    baseline: float  # share of rounds in the most common state overall

    @property
    def followed(self) -> bool:
        """Whether the hour removes more than half of the baseline's errors."""
        return self.accuracy - self.baseline > 0.5 * (1 - self.baseline)

    def __str__(self) -> str:
        """Two sentences for people."""
        where = "on other days" if self.period == "day" else "in other weeks"
        return (
            f"States follow the hour of the {self.period}: {self.accuracy:.0%} of rounds are in the most common state "
            f"of their hour {where} ({self.baseline:.0%} are in the most common state overall). With the hour as a "
            "context, a single policy may do as well."
        )


def clock_of(seconds: Floats, states: Ints) -> Clock | None:
    """How well the hour of the day predicts states, or that of the week if it is better; None with too few days.

    ``seconds`` (n,) count from some midnight; the week may begin on any day.
    """
    hours = np.floor(seconds / HOUR).astype(np.int64)
    found = [_clock(hours, states, period, length) for period, length in (("day", HOURS), ("week", DAYS * HOURS))]
    return max((clock for clock in found if clock is not None), key=lambda clock: clock.accuracy, default=None)


def _clock(hours: Ints, states: Ints, period: str, length: int) -> Clock | None:
    periods, which = np.unique(hours // length, return_inverse=True)
    if len(periods) < MIN_PERIODS:
        return None
    n_states = int(states.max()) + 1
    cells = (which.reshape(-1) * length + hours % length) * n_states + states
    counts = np.bincount(cells, minlength=len(periods) * length * n_states).reshape(len(periods), length, n_states)
    elsewhere, overall = counts.sum(axis=0) - counts, counts.sum(axis=(0, 1))
    guesses = np.where(elsewhere.any(axis=2), elsewhere.argmax(axis=2), overall.argmax())
    accuracy = np.take_along_axis(counts, guesses[..., None], axis=2).sum() / len(states)
    return Clock(period, float(accuracy), float(overall.max() / len(states)))


@ORACLES.register("none")
@dataclass(kw_only=True, eq=False, repr=False)
class SingleState(Params):
    """The world never changes: one state for the whole log."""

    def fit(self, log: BanditLog) -> Self:
        """Check the log; there is nothing to learn."""
        require_log(log, "an oracle")
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """State 0 in every round."""
        return labels_from_states(np.zeros(len(log), dtype=np.int64), 1, log)


@ORACLES.register("known", named=False)
@dataclass(eq=False, repr=False)
class KnownStates(Params):
    """The states are known: one label for every round of the log."""

    states: npt.ArrayLike | StateLabels

    def fit(self, log: BanditLog) -> Self:
        """Check that there is one label per round."""
        self._checked(log)
        return self

    def predict(self, log: BanditLog) -> StateLabels:
        """The states that were given."""
        states = self._checked(log)
        return labels_from_states(states, int(states.max()) + 1, log)

    def saved_params(self) -> dict[str, Any]:
        """None: a model file keeps the states as its labels."""
        return {}

    @classmethod
    def restore(cls, part: SavedPart, joint: Any, labels: Any) -> Self:
        """The states that the labels of a model file hold."""
        return cls(labels)

    def _checked(self, log: BanditLog) -> Ints:
        require_log(log, "an oracle")
        states = self.states
        if isinstance(states, StateLabels):
            # Labels of a large log are expanded only if they fit this one.
            states = states.states if states.n_rounds == len(log) else np.broadcast_to(0, states.n_rounds)
        given: npt.NDArray[Any] = np.asarray(states)
        if given.shape != (len(log),):
            raise LogError(f"states must have one entry per round; got shape {given.shape} for {len(log)} rounds.")
        if given.dtype.kind not in "iub" or (given < 0).any():
            raise LogError("states must be whole numbers, 0 or larger.")
        return given.astype(np.int64)
