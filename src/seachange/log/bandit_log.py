"""BanditLog: logged bandit feedback, validated once, immutable, sliced without copying.

The columns of a log that is larger than memory are in temporary files, mapped into memory when read.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Literal, Self
from weakref import finalize

import numpy as np
import numpy.typing as npt

from seachange.errors import Fix, LogError, warn
from seachange.log import validation
from seachange.log.fingerprint import LogIdentity, dates_of
from seachange.log.joint_features import JointFeatures, LogArrays
from seachange.log.units import Units
from seachange.params import require
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    from narwhals.typing import IntoDataFrame

    from seachange.log.features import FeatureSpec
    from seachange.model_file import Provenance

CHUNK_ROWS = 1 << 17
PROPENSITY_FIX = Fix(
    'Name their column with columns={"propensity": ...}, or estimate them with '
    "log.with_propensities(sc.estimate_propensities(log), estimated=True).",
    "Name their column with --columns propensity=..., or estimate them with --estimate-propensities.",
)
PropensitySource = Literal["logged", "estimated", "unknown"]
_OPTIONAL = ("logging_probs", "times", "sequences")  # per-round fields of a log outside its arrays
_frame_readers: list[Callable[..., "BanditLog"]] = []  # reads tables for ``from_frame``: set by the layer above


@dataclass(eq=False)
class DiskFolder:
    """A temporary folder that is deleted when no log uses it anymore."""

    path: Path = field(default_factory=lambda: Path(mkdtemp(prefix="seachange-")))
    numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        finalize(self, rmtree, self.path, ignore_errors=True)

    def new_array(self, shape: tuple[int, ...]) -> Floats:
        """A writable array on disk."""
        path = self.path / f"array-{next(self.numbers)}"
        return np.asarray(np.memmap(path, dtype=np.float64, mode="w+", shape=shape))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BanditLog:
    """Rounds of (context, action, reward, propensity), in time order.

    Create one with ``from_arrays``, ``from_frame`` or ``read_log``; the constructor does not validate.
    """

    arrays: LogArrays
    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    logging_probs: Floats | None = None
    propensity_source: PropensitySource = "logged"
    times: npt.NDArray[Any] | None = None
    sequences: npt.NDArray[Any] | None = None
    dropped: tuple[tuple[str, int], ...] = ()  # rules that dropped rows broke, and how many rows
    disk: DiskFolder | None = None  # where the columns are, if on disk
    features: "FeatureSpec | None" = None  # how raw columns became features; None if they were passed as arrays
    parts: tuple[LogIdentity, ...] = ()  # the logs it was joined from

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", LogArrays(*(_read_only(array) for array in self.arrays)))
        for name in _OPTIONAL:
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
        on_bad_rows: validation.OnBadRows = "raise",
        action_names: Sequence[str] | None = None,
        context_names: Sequence[str] | None = None,
    ) -> Self:
        """Validate arrays and copy them into a log.

        propensities     (n,): None if they were not logged; see ``estimate_propensities``
        contexts         (n, d): one vector per round, shared by all actions, f(x, a) = [x, 1] in action a's block
        action_features  (n, K, d): one vector per action and round, f(x, a) = [x_a, 1]; or (rows, offsets), if round t
                         has the actions rows[offsets[t]:offsets[t + 1]] and an action is an index into them
        action_mask      (n, K): which actions could be shown
        logging_probs    (n, K): the whole logging distribution, if it is known
        times            (n,): seconds or datetime64, non-decreasing (within each sequence)
        sequences        (n,): which independent sequence (user, session) a round belongs to
        missing_rewards  NaN rewards mark unobserved rounds (oracles only)
        on_bad_rows      "drop" drops the rows that break a rule instead of raising
        """
        per_round = (actions, rewards, propensities, contexts, action_features, action_mask, logging_probs)
        columns = validation.columns_from_arrays((*per_round, times, sequences), n_actions, action_names, context_names)
        return cls(**validation.validated(columns, missing_rewards, on_bad_rows))

    @classmethod
    def from_frame(
        cls,
        frame: "IntoDataFrame",
        columns: Mapping[str, str | Sequence[str]] | None = None,
        *,
        features: "FeatureSpec | None" = None,
        action_names: Sequence[str] | None = None,
        missing_rewards: bool = False,
        on_bad_rows: validation.OnBadRows = "raise",
    ) -> "BanditLog":
        """Read a log from a pandas, polars or arrow table.

        ``columns`` maps roles to columns: ``{"action": "item_id", "reward": "click", "propensity": "pscore"}``, and
        optionally ``"time"``, ``"sequence"`` and ``"contexts"`` (a list). Roles that are not mapped are detected by
        their usual names; a table without propensities becomes a log without them. By default, the contexts are all
        other columns except useless ones, which a warning lists: a table's index, identifiers, constants, and columns
        that may be propensities. ``log.features`` records how each column is encoded; pass it (or a model's) as
        ``features`` to encode another table the same way. ``action_names`` sets the order of the actions; by default
        they are sorted.
        """
        (read,) = _frame_readers
        return read(
            frame,
            columns,
            features=features,
            action_names=action_names,
            missing_rewards=missing_rewards,
            on_bad_rows=on_bad_rows,
        )

    @classmethod
    def joined(cls, logs: "Sequence[BanditLog]") -> "BanditLog":
        """Join logs with the same actions and features into one, in time order.

        Read the first log, and the others with its encoding: ``read_log(path, features=first.features)``, or
        ``model.read_log(path)``. Their formats and logging policies may differ. If some propensities are estimated,
        those of the joined log count as estimated.

        Logs that have times (dates, or seconds since 1970) are joined in the order of their times. If some have none,
        logs are joined in the order given, and the joined log has none. Logs may overlap in time only if they have
        sequences; all rounds are then sorted by time. A sequence that is in several logs continues from one to the
        next. A log without an action mask allows all actions. If one log is on disk, so is the joined log.
        """
        for log in logs:
            require_rounds(log, "BanditLog.joined")
        require(len(logs) > 0, "BanditLog.joined needs at least one log.", LogError)
        return logs[0] if len(logs) == 1 else _joined(logs)

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
        """Whether the log has propensities, logged or estimated."""
        return self.propensity_source != "unknown"

    @property
    def propensities_estimated(self) -> bool:
        """Whether the propensities were estimated, not logged."""
        return self.propensity_source == "estimated"

    @property
    def contexts(self) -> Floats:
        """(n, 0), (n, d) or (n, K, d), as policies take them."""
        if self.joint.kind == "none":
            return np.empty((len(self), 0))
        features = self.arrays.rows[..., :-1]
        return features if self.joint.kind == "per action" else features[:, 0]

    @property
    def action_mask(self) -> Bools | None:
        """(n, K), or None if every action could be shown."""
        return self.arrays.mask if self.masked else None

    @property
    def masked(self) -> bool:
        """Whether some actions could not be shown."""
        return not (len(self.arrays.mask) == 1 and bool(self.arrays.mask.all()))

    def __len__(self) -> int:
        return len(self.arrays.actions)

    def __getitem__(self, rounds: slice) -> Self:
        require(isinstance(rounds, slice), f"slice a log by rounds, log[a:b]; got log[{rounds!r}].")
        require(rounds.step in (None, 1), f"a log keeps its time order, so slices have no step; got {rounds.step}.")
        return self._select(rounds)

    def with_rewards(self, rewards: Floats) -> Self:
        """The same rounds with other rewards."""
        return replace(self, arrays=self.arrays._replace(rewards=np.ascontiguousarray(rewards, dtype=np.float64)))

    def with_propensities(self, propensities: npt.ArrayLike, *, estimated: bool = False) -> Self:
        """The same rounds with other propensities, (n,), or the whole logging distribution, (n, K)."""
        given = np.array(propensities, dtype=np.float64)
        shapes = (len(self),), (len(self), self.n_actions)
        rule = f"propensities must have shape {shapes[0]}, or {shapes[1]} for the whole logging distribution"
        require(given.shape in shapes, f"{rule}; they have shape {given.shape}.", LogError)
        whole = given if given.ndim == 2 else None
        taken = given if whole is None else whole[np.arange(len(self)), self.actions]
        validation.require_probabilities(taken, whole)
        return replace(
            self,
            arrays=self.arrays._replace(propensities=np.ascontiguousarray(taken)),
            logging_probs=whole,
            propensity_source="estimated" if estimated else "logged",
        )

    def take(self, rounds: Ints) -> "BanditLog":
        """The rounds with these indices, copied; if the log is on disk and has sequences, to disk."""
        if self.disk is None or self.sequences is None:
            return self._select(rounds)
        starts = range(0, len(rounds), CHUNK_ROWS)
        parts = (self._select(rounds[start : start + CHUNK_ROWS]) for start in starts)
        return replace(log_on_disk(parts), dropped=self.dropped)

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays with one row per round."""
        columns = {**self.arrays._asdict(), **{name: getattr(self, name) for name in _OPTIONAL}}
        absent = {"rows": self.joint.kind == "none", "mask": not self.masked}
        return {name: array for name, array in columns.items() if array is not None and not absent.get(name)}

    def _with_columns(self, columns: Mapping[str, Any], **changes: Any) -> Self:
        arrays = self.arrays._replace(**{name: columns[name] for name in LogArrays._fields if name in columns})
        changes |= {name: columns.get(name) for name in _OPTIONAL}
        return replace(self, arrays=arrays, **changes)

    def _select(self, rounds: slice | Ints) -> Self:
        columns = {name: array[rounds] for name, array in self._columns().items()}
        if len(columns.get("mask", ())) and columns["mask"].all():
            columns["mask"] = np.ones((1, self.n_actions), dtype=bool)
        return self._with_columns(columns, dropped=(), parts=())

    @cached_property
    def units(self) -> Units:
        """The origin and scale of each feature."""
        return Units.of(self.arrays.rows, self.arrays.mask)

    def new_array(self, *shape: int) -> Floats:
        """A writable array, in memory or on disk like the log's own columns."""
        return np.empty(shape) if self.disk is None else self.disk.new_array(shape)

    def times_at(self, rounds: Ints | list[int]) -> list[Any]:
        """Times of ``rounds``, dates as text; None without times."""
        if self.times is None:
            return [None] * len(rounds)
        times = np.asarray(self.times[rounds])
        return (np.datetime_as_string(times, unit="auto") if times.dtype.kind == "M" else times).tolist()  # type: ignore[no-any-return]

    def split(self, share: float) -> tuple[Self, Self]:
        """The first ``share`` of the rounds, and the rest."""
        require(0 < share < 1, f"share must be between 0 and 1; got {share}.")
        cut = round(share * len(self))
        return self[:cut], self[cut:]

    def chunk_slices(self, rows: int = CHUNK_ROWS) -> list[slice]:
        """The slices that ``chunks`` returns."""
        require(rows >= 1, f"rows must be at least 1; got {rows}.")
        return [slice(start, min(start + rows, len(self))) for start in range(0, len(self), rows)]

    def chunks(self, rows: int = CHUNK_ROWS) -> Iterator[Self]:
        """The log in slices of at most ``rows`` rounds."""
        return (self[rounds] for rounds in self.chunk_slices(rows))

    def fingerprint(self) -> str:
        """A digest of everything that learning uses."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.arrays:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        if self.sequences is not None:
            chains = np.unique(self.sequences, return_inverse=True)[1]
            digest.update(np.ascontiguousarray(chains, dtype=np.int64).data)
        return digest.hexdigest()

    def __repr__(self) -> str:
        seen = self.arrays.rewards[~np.isnan(self.arrays.rewards)]
        mean = float(seen.mean()) if len(seen) else float("nan")
        sizes = f"{len(self):,} rounds, {self.n_actions} actions, {self.joint.description}"
        return f"BanditLog({sizes}, mean reward {mean:.4g})"


def log_on_disk(parts: Iterable[BanditLog]) -> BanditLog:
    """One log from consecutive parts, of which only one needs to be in memory at a time."""
    folder = DiskFolder()
    shapes: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    first: BanditLog | None = None
    last_time: Any = None
    dropped: Counter[str] = Counter()
    rounds = 0
    with ExitStack() as files:
        opened: dict[str, Any] = {}
        for part in parts:
            dropped.update(dict(part.dropped))
            if len(part) == 0:
                continue
            first = part if first is None else first
            _require_same_columns(first, part)
            if part.times is not None and part.sequences is None:
                if last_time is not None and part.times[0] < last_time:
                    times = f"{part.times[0]} after {last_time}"
                    raise validation.ProblemError(validation.time_problem(f"row {rounds}", times, 0, 0))
                last_time = part.times[-1]
            for name, array in part._columns().items():
                if name not in opened:
                    opened[name] = files.enter_context((folder.path / name).open("wb"))
                    shapes[name] = (array.dtype, array.shape[1:])
                # datetime64 arrays have no buffer interface, but tofile works.
                np.ascontiguousarray(array, dtype=shapes[name][0]).tofile(opened[name])
            rounds += len(part)
    if first is None:
        reasons = "; ".join(f"{rows:,} rows were dropped: {rule}" for rule, rows in dropped.items())
        raise LogError(f"the log is empty: it needs at least one good round{f' ({reasons})' if reasons else ''}.")
    columns = {
        name: np.asarray(np.memmap(folder.path / name, dtype=dtype, mode="r", shape=(rounds, *rest)))
        for name, (dtype, rest) in shapes.items()
    }
    return first._with_columns(columns, dropped=tuple(dropped.items()), disk=folder)


def _require_same_columns(first: BanditLog, part: BanditLog) -> None:
    features = f"all parts of a log must have the same features; one has {part.joint}, another {first.joint}."
    require(part.joint == first.joint, features, LogError)
    require(not part.masked, "a log on disk cannot have an action mask. Read it without on_disk=True.", LogError)
    numeric = part.sequences is None or part.sequences.dtype.kind in "iuf"
    require(numeric, "a log on disk needs numeric sequences. Read it without on_disk=True.", LogError)


def _joined(logs: Sequence[BanditLog]) -> BanditLog:
    """Several logs as one."""
    identities = [LogIdentity.of(log) for log in logs]
    if any(log.times is not None and log.times.dtype.kind == "M" for log in logs):
        logs = [log if log.times is None else replace(log, times=dates_of(log.times)) for log in logs]
    _require_one_kind(logs, identities)
    order, overlap = _order_in_time(logs, identities)
    ordered = [logs[i] for i in order]
    first, masked, every = ordered[0], any(log.masked for log in logs), [log._columns() for log in ordered]
    kept = [name for name in every[0] if name != "mask" and all(name in columns for columns in every)]
    types = {name: np.result_type(*(columns[name] for columns in every)) for name in kept}

    def columns_of(log: BanditLog) -> dict[str, Any]:
        """The columns that all logs have, as types that suit all of them."""
        columns = {
            name: array.astype(types[name], copy=False) for name, array in log._columns().items() if name in types
        }
        return columns | ({"mask": np.broadcast_to(log.arrays.mask, (len(log), log.n_actions))} if masked else {})

    if any(log.disk is not None for log in logs):
        chunks = (chunk for log in ordered for chunk in log.chunks())
        joined = log_on_disk(chunk._with_columns(columns_of(chunk)) for chunk in chunks)
    else:
        every = [columns_of(log) for log in ordered]
        joined = first._with_columns({name: np.concatenate([each[name] for each in every]) for name in every[0]})
    if overlap:
        joined = joined.take(np.argsort(np.asarray(joined.times), kind="stable"))
    return replace(
        joined,
        propensity_source="estimated" if any(log.propensities_estimated for log in logs) else first.propensity_source,
        dropped=tuple(sum((Counter(dict(log.dropped)) for log in ordered), Counter()).items()),
        features=next((log.features for log in ordered if log.features is not None), None),
        parts=tuple(part for i in order for part in logs[i].parts or (identities[i],)),
    )


def _require_one_kind(logs: Sequence[BanditLog], identities: Sequence[LogIdentity]) -> None:
    """Raise if the logs cannot be joined, whatever their times."""
    first, seen = logs[0], list[str]()
    for number, (log, identity) in enumerate(zip(logs, identities, strict=True), 1):
        if problem := encoding_difference(log, first, first.features, "log 1"):
            python = "Pass the same n_actions, action_names, and context_names for all logs."
            if log.features is not None:
                python = "Read it with features=log_1.features, or read all logs with model.read_log."
            raise LogError(f"log {number} {problem}.", Fix(python))
        if identity.fingerprint in seen:
            raise LogError(f"log {number} is the same as log {seen.index(identity.fingerprint) + 1}.")
        seen.append(identity.fingerprint)
    kinds = [
        "" if log.sequences is None else "numbers" if log.sequences.dtype.kind in "iuf" else "text" for log in logs
    ]
    sequences = Fix(
        'Name their column with columns={"sequence": ...}.', "Name their column with --columns sequence=..."
    )
    for what, has, fix in (
        ("propensities", [log.propensities_known for log in logs], PROPENSITY_FIX),
        ("sequences", [kind != "" for kind in kinds], sequences),
    ):
        if len({*has}) > 1:
            with_it, without = has.index(True) + 1, has.index(False) + 1
            raise LogError(f"log {without} has no {what}, unlike log {with_it}.", fix)
    require(len({*kinds}) == 1, "sequences are numbers in some logs and text in others.", LogError)


def _order_in_time(logs: Sequence[BanditLog], identities: Sequence[LogIdentity]) -> tuple[Sequence[int], bool]:
    """The order of the logs, and whether they overlap."""
    times = [log.times for log in logs if log.times is not None]
    if len(times) < len(logs):
        if times:
            warn("some of the logs have no times: they are joined in the order given, without times.", stacklevel=4)
        return range(len(logs)), False
    spans = [(each.min(), each.max()) for each in times]
    order = sorted(range(len(logs)), key=lambda i: (*spans[i], identities[i].fingerprint))
    overlap = [(i, j) for i, j in pairwise(order) if spans[j][0] < spans[i][1]]
    if overlap and logs[0].sequences is None:
        i, j = overlap[0]
        raise LogError(
            f"the logs overlap in time: log {j + 1} starts at {spans[j][0]}, before log {i + 1} ends at {spans[i][1]}. "
            "If all their rounds share the same states, merge the files in time order. If each log has states of its "
            "own, give each its own sequence."
        )
    return order, bool(overlap)


def encoding_difference(
    log: BanditLog, other: "BanditLog | Provenance", features: "FeatureSpec | None", name: str
) -> str | None:
    """What the actions and features of ``log`` have that those of ``other``, called ``name``, do not; None if equal."""
    for what, ours, theirs in (
        ("action", log.action_names, other.action_names),
        ("feature", log.context_names, other.context_names),
    ):
        if ours == theirs:
            continue
        pairs = (ours, {*theirs}), (theirs, {*ours})
        new, gone = (next((each for each in names if each not in others), None) for names, others in pairs)
        if new is not None:
            return f"has the {what} {new!r}, which {name} does not have"
        if gone is not None:
            return f"does not have the {what} {gone!r} of {name}"
        return f"has the {what}s of {name} in another order"
    if log.joint != other.joint:
        return f"has {log.joint.description}, and {name} has {other.joint.description}"
    if features is not None and log.features is not None and not features.encodes_like(log.features):
        return f"encodes its columns differently from {name}"
    return None


def set_frame_reader(read: Callable[..., BanditLog]) -> None:
    """Set the function behind ``BanditLog.from_frame``, which takes the same arguments."""
    _frame_readers[:] = [read]


def _read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view


def require_log(log: Any, purpose: str) -> None:
    """Raise if ``log``, which ``purpose`` needs, is not a BanditLog."""
    fix = "Create one with BanditLog.from_frame (tables) or BanditLog.from_arrays (arrays)."
    require(isinstance(log, BanditLog), f"{purpose} needs a BanditLog; got a {type(log).__name__}. {fix}", LogError)


def require_rounds(log: BanditLog, purpose: str) -> None:
    """Raise if ``log``, which ``purpose`` needs, has no rounds."""
    require_log(log, purpose)
    require(len(log) > 0, f"{purpose} needs at least one round; the log is empty.", LogError)


def reward_distribution(log: BanditLog, wanted: Any) -> Any:
    """``wanted``, after checking that it suits the rewards; "auto": "bernoulli" if all are 0 or 1, else "gaussian"."""
    if wanted not in ("auto", "bernoulli"):
        return wanted
    rewards = (log.arrays.rewards[rounds] for rounds in log.chunk_slices())
    others = (part[np.isfinite(part) & (part != 0) & (part != 1)] for part in rewards)
    other = next((float(part[0]) for part in others if len(part)), None)
    require(wanted == "auto" or other is None, f'rewards="bernoulli" needs rewards of 0 or 1; the log has {other}.')
    return "bernoulli" if other is None else "gaussian"


def require_rewards(log: BanditLog, purpose: str) -> None:
    """Raise if the log lacks rounds or rewards that ``purpose`` needs."""
    require_rounds(log, purpose)
    missing = int(np.isnan(log.arrays.rewards).sum())
    fix = "Drop those rounds with log.take(numpy.flatnonzero(~numpy.isnan(log.rewards)))."
    rule = f"{purpose} needs a reward in every round; {missing:,} of {len(log):,} have none."
    require(not missing, f"{rule} {fix}", LogError)


def require_propensities(log: BanditLog, purpose: str, without: Fix | None = None) -> None:
    """Raise if the log lacks propensities, which ``purpose`` needs; ``without`` is another way out."""
    require_log(log, purpose)
    if not log.propensities_known:
        missing, fix = f"{purpose} needs the propensities of the actions taken, but this log has none", PROPENSITY_FIX
        if without is not None:
            fix = Fix(f"{fix.python} {without.python}", f"{fix.shell} {without.shell or without.python}")
        raise validation.ProblemError(validation.Problem("no-propensities", missing, fix=fix))


def warn_of_estimates(log: BanditLog, purpose: str) -> None:
    """Warn if ``purpose`` relies on estimated propensities; for functions that users call."""
    if log.propensities_estimated:
        warn(
            f"{purpose} uses estimated propensities: results are only as accurate as they are. "
            "sc.propensity_report shows how well they are calibrated.",
            stacklevel=3,
        )
