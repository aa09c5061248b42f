"""BanditLog: logged bandit feedback, validated once, immutable, sliced without copying."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.log.columns import columns_from_arrays
from seachange.log.joint import JointFeatures, LogArrays
from seachange.log.validation import OnBadRows, require_probabilities, validated
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

    from seachange.log.features import FeatureSpec
    from seachange.log.spool import Spool

CHUNK_ROWS = 1 << 17
PROPENSITY_CURE = (
    'columns={"propensity": ...}, or estimate them: '
    "log.with_propensities(sc.estimate_propensities(log), estimated=True)"
)
PropensitySource = Literal["logged", "estimated", "unknown"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BanditLog:
    """Rounds of (context, action, reward, propensity), in time order.

    Make one with ``from_arrays``, ``from_frame`` or ``read_log``; the constructor itself checks nothing.
    """

    arrays: LogArrays
    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    logging_probs: Floats | None = None
    propensity_source: PropensitySource = "logged"
    times: npt.NDArray[Any] | None = None
    sequences: npt.NDArray[Any] | None = None
    dropped: tuple[tuple[str, int], ...] = ()  # rules that rows broke which were left out, and how many did
    spool: Spool | None = None  # where the columns are, if on disk
    features: FeatureSpec | None = None  # how the features came of raw columns; None where they were given as arrays

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", LogArrays(*(_read_only(array) for array in self.arrays)))
        for name in ("logging_probs", "times", "sequences"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _read_only(getattr(self, name)))

    @classmethod
    def from_arrays(
        cls,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        propensities: npt.ArrayLike | None = None,
        *,
        contexts: npt.ArrayLike | None = None,
        action_features: Any = None,
        action_mask: npt.ArrayLike | None = None,
        logging_probs: npt.ArrayLike | None = None,
        times: npt.ArrayLike | None = None,
        sequences: npt.ArrayLike | None = None,
        missing_rewards: bool = False,
        n_actions: int | None = None,
        on_bad_rows: OnBadRows = "raise",
        action_names: Sequence[str] | None = None,
        context_names: Sequence[str] | None = None,
    ) -> BanditLog:
        """Check arrays and copy them into a log.

        propensities     (n,): None where nobody wrote them down; ``estimate_propensities`` may then stand in for them
        contexts         (n, d): one vector a round, shared by all actions, f(x, a) = [x, 1] in action a's block
        action_features  (n, K, d): one vector an action and round, f(x, a) = that vector; or (rows, offsets) where
                         round t has the actions rows[offsets[t]:offsets[t + 1]] and an action is a place in its list
        action_mask      (n, K): which actions could be shown
        logging_probs    (n, K): the whole logging distribution, where it is known
        times            (n,): seconds or datetime64, non-decreasing (within each sequence)
        sequences        (n,): which independent chain (user, session) a round belongs to
        missing_rewards  NaN rewards stand for rounds nobody observed (oracles only)
        on_bad_rows      "drop" leaves out the rows that break a rule instead of raising
        """
        columns = columns_from_arrays(
            actions=actions,
            rewards=rewards,
            propensities=propensities,
            contexts=contexts,
            action_features=action_features,
            action_mask=action_mask,
            logging_probs=logging_probs,
            times=times,
            sequences=sequences,
            n_actions=n_actions,
            action_names=action_names,
            context_names=context_names,
        )
        return cls(**validated(columns, missing_rewards, on_bad_rows))

    @classmethod
    def from_frame(
        cls,
        frame: IntoDataFrame,
        columns: Mapping[str, str | Sequence[str]] | None = None,
        *,
        features: FeatureSpec | None = None,
        action_names: Sequence[str] | None = None,
        missing_rewards: bool = False,
        on_bad_rows: OnBadRows = "raise",
    ) -> BanditLog:
        """Read a log from a pandas, polars or arrow table.

        ``columns`` says where things are: ``{"action": "item_id", "reward": "click", "propensity": "pscore"}``, and
        where there are any ``"time"``, ``"sequence"`` and ``"contexts"`` (a list). Words left out are looked for under
        their own name, and a table without propensities becomes a log without them; contexts left out are all other
        columns but those that are of no use, which a warning names: the index of a table, identifiers, constants, what
        may be propensities under another name. ``log.features`` says what became of each; given as ``features`` (a
        model's, say), the table is encoded by them. ``action_names`` fixes the order of the actions; otherwise it is
        the sorted order of those that occur.
        """
        from seachange.log.encoding import log_from_raw
        from seachange.log.readers.frame import FrameLog

        return log_from_raw(
            FrameLog(frame, columns or {}, features),
            features,
            action_names=action_names,
            missing_rewards=missing_rewards,
            on_bad_rows=on_bad_rows,
        )

    @property
    def n_actions(self) -> int:
        """K."""
        return self.joint.n_actions

    @property
    def actions(self) -> Ints:
        """(n,) a_t."""
        return self.arrays.actions

    @property
    def rewards(self) -> Floats:
        """(n,) r_t."""
        return self.arrays.rewards

    @property
    def propensities(self) -> Floats:
        """(n,) p_t = π_0(a_t | x_t)."""
        require_propensities(self, "log.propensities")
        return self.arrays.propensities

    @property
    def propensities_known(self) -> bool:
        """Whether there are propensities, logged or estimated."""
        return self.propensity_source != "unknown"

    @property
    def propensities_estimated(self) -> bool:
        """Whether the propensities are estimates of what nobody wrote down."""
        return self.propensity_source == "estimated"

    @property
    def contexts(self) -> Floats:
        """(n, 0), (n, d) or (n, K, d), as policies take them."""
        if self.joint.kind == "none":
            return np.empty((len(self), 0))
        return self.arrays.rows if self.joint.kind == "per action" else self.arrays.rows[:, 0, :-1]

    @property
    def action_mask(self) -> Bools | None:
        """(n, K), or None where every action could be shown."""
        return self.arrays.mask if self.masked else None

    @property
    def masked(self) -> bool:
        """Whether some actions could not be shown."""
        return not (len(self.arrays.mask) == 1 and bool(self.arrays.mask.all()))

    @property
    def has_missing_rewards(self) -> bool:
        """Whether some rounds were not observed."""
        return bool(np.isnan(self.arrays.rewards).any())

    def __len__(self) -> int:
        """Number of rounds: n."""
        return len(self.arrays.actions)

    def __getitem__(self, rounds: slice) -> BanditLog:
        """A run of rounds, sharing memory with this log."""
        if not isinstance(rounds, slice):
            raise ParameterError(f"a log is sliced by rounds, log[a:b]; got log[{rounds!r}].")
        if rounds.step not in (None, 1):
            raise ParameterError(f"a log keeps its time order; slice it without a step, not with {rounds.step}.")
        return self._select(rounds)

    def with_rewards(self, rewards: Floats) -> BanditLog:
        """The same rounds with other rewards."""
        return replace(self, arrays=self.arrays._replace(rewards=np.ascontiguousarray(rewards, dtype=np.float64)))

    def with_propensities(self, propensities: npt.ArrayLike, *, estimated: bool = False) -> BanditLog:
        """The same rounds with other propensities, (n,), or the whole logging distribution, (n, K)."""
        given = np.array(propensities, dtype=np.float64)
        if given.shape not in ((len(self),), (len(self), self.n_actions)):
            raise LogError(
                f"propensities must have shape ({len(self)},), or ({len(self)}, {self.n_actions}) for the whole "
                f"logging distribution; they have {given.shape}."
            )
        whole = given if given.ndim == 2 else None
        taken = given if whole is None else whole[np.arange(len(self)), self.actions]
        require_probabilities(taken, whole)
        return replace(
            self,
            arrays=self.arrays._replace(propensities=np.ascontiguousarray(taken)),
            logging_probs=whole,
            propensity_source="estimated" if estimated else "logged",
        )

    def take(self, rounds: Ints) -> BanditLog:
        """The rounds with these indices, copied: to disk where sequences come from there."""
        if self.spool is None or self.sequences is None:
            return self._select(rounds)
        from seachange.log.spool import spooled

        starts = range(0, len(rounds), CHUNK_ROWS)
        parts = (self._select(rounds[start : start + CHUNK_ROWS]) for start in starts)
        return replace(spooled(parts), dropped=self.dropped)

    def _select(self, rounds: slice | Ints) -> BanditLog:
        def part(array: npt.NDArray[Any] | None) -> Any:
            return None if array is None else array[rounds]

        arrays = self.arrays
        mask = arrays.mask[rounds] if self.masked else arrays.mask
        return BanditLog(
            arrays=LogArrays(
                arrays.rows if self.joint.kind == "none" else arrays.rows[rounds],
                mask if len(mask) == 0 or not mask.all() else np.ones((1, self.n_actions), dtype=bool),
                arrays.actions[rounds],
                arrays.rewards[rounds],
                arrays.propensities[rounds],
            ),
            joint=self.joint,
            action_names=self.action_names,
            context_names=self.context_names,
            logging_probs=part(self.logging_probs),
            propensity_source=self.propensity_source,
            times=part(self.times),
            sequences=part(self.sequences),
            spool=self.spool,
            features=self.features,
        )

    @cached_property
    def scales(self) -> Floats:
        """(D,) the unit that each feature is measured in: its root mean square."""
        return _read_only(self.joint.scales(self.arrays.rows))

    def room(self, *shape: int) -> Floats:
        """An array to be filled, where the log's own columns are: in memory or on disk."""
        return np.empty(shape) if self.spool is None else self.spool.room(shape)

    def split(self, share: float) -> tuple[BanditLog, BanditLog]:
        """The first ``share`` of the rounds, and the rest."""
        if not 0 < share < 1:
            raise ParameterError(f"share must be between 0 and 1; got {share}.")
        cut = round(share * len(self))
        return self[:cut], self[cut:]

    def chunk_slices(self, rows: int = CHUNK_ROWS) -> list[slice]:
        """Where ``chunks`` cuts."""
        if rows < 1:
            raise ParameterError(f"a chunk needs at least 1 row; got {rows}.")
        return [slice(start, min(start + rows, len(self))) for start in range(0, len(self), rows)]

    def chunks(self, rows: int = CHUNK_ROWS) -> Iterator[BanditLog]:
        """The log in runs of at most ``rows`` rounds."""
        return (self[rounds] for rounds in self.chunk_slices(rows))

    def fingerprint(self) -> str:
        """A digest of everything that is learned from."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.arrays:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        if self.sequences is not None:
            chains = np.unique(self.sequences, return_inverse=True)[1]
            digest.update(np.ascontiguousarray(chains, dtype=np.int64).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        """Sizes and rates at a glance."""
        seen = self.arrays.rewards[~np.isnan(self.arrays.rewards)]
        mean = float(seen.mean()) if len(seen) else float("nan")
        sizes = f"{len(self):,} rounds, {self.n_actions} actions, {self.joint.description}"
        return f"BanditLog({sizes}, mean reward {mean:.4g})"


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def require_log(log: Any, purpose: str) -> None:
    """Raise where ``purpose`` is asked of something else than a log."""
    if not isinstance(log, BanditLog):
        raise LogError(
            f"{purpose} needs a BanditLog; got a {type(log).__name__}. "
            "Tables become one with BanditLog.from_frame, arrays with BanditLog.from_arrays."
        )


def require_rounds(log: BanditLog, purpose: str) -> None:
    """Raise where ``purpose`` is asked of a log without rounds."""
    require_log(log, purpose)
    if len(log) == 0:
        raise LogError(f"{purpose} needs at least one round; the log is empty.")


def first_that_is_no_click(log: BanditLog) -> float | None:
    """The first reward that is neither 0 nor 1 nor missing; None where all are clicks."""
    rewards = (log.arrays.rewards[rounds] for rounds in log.chunk_slices())
    others = (part[np.isfinite(part) & (part != 0) & (part != 1)] for part in rewards)
    return next((float(part[0]) for part in others if len(part)), None)


def require_rewards(log: BanditLog, purpose: str) -> None:
    """Raise where ``purpose`` needs rounds or rewards that the log does not have."""
    require_rounds(log, purpose)
    if log.has_missing_rewards:
        missing = int(np.isnan(log.arrays.rewards).sum())
        raise LogError(
            f"{purpose} needs a reward in every round; {missing} of {len(log)} have none. "
            "Leave those rounds out with log.take(numpy.flatnonzero(~numpy.isnan(log.rewards)))."
        )


def require_propensities(log: BanditLog, purpose: str) -> None:
    """Raise where ``purpose`` needs propensities that the log does not have."""
    require_log(log, purpose)
    if not log.propensities_known:
        raise LogError(
            f"{purpose} needs the propensities of the actions taken, and this log has none. Name their column, "
            f"{PROPENSITY_CURE}."
        )


def warn_of_estimates(log: BanditLog, purpose: str) -> None:
    """Say that ``purpose`` rests on estimated propensities, where it does; for functions that a user calls."""
    if log.propensities_estimated:
        warnings.warn(
            f"{purpose} uses estimated propensities: it is as right as they are, and no interval counts their error. "
            "sc.propensity_report says how well they are calibrated.",
            SeachangeWarning,
            stacklevel=3,
        )
