"""The columns of a log, and the rules that every round must keep.

``columns_from_arrays`` converts whatever arrays a caller has. Each rule is defined once, in ``RULES``: making a
BanditLog raises on the first broken rule or drops the rows that break one; ``seachange.check`` counts them.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from seachange.errors import Fix, LogError, ParameterError, warn
from seachange.log.joint_features import JointFeatures, LogArrays
from seachange.params import require
from seachange.protocols import Bools, Floats, Ints

OnBadRows = Literal["raise", "drop"]
MOST_ACTIONS = 1_000_000  # a larger action is taken for an identifier, not for an index, unless n_actions is given
# Lists of actions are padded to the length of the longest, up to this many numbers; more only if at least one in
# MOST_PADDING of the padded places holds an action.
MOST_NUMBERS, MOST_PADDING = 100_000_000, 100
PROBABILITY_TOLERANCE = 1e-4  # rounding errors of one logged probability; the sum of k has √k times that
LEAST_PROPENSITY = 1e-12  # no real choice is less likely than this, so a smaller propensity is a mistake
LARGEST = 1e100  # squares of rewards and features, and their sums, must stay finite
DROP = Fix('Drop those rows with on_bad_rows="drop".', "Drop those rows with --drop-bad-rows.")
DROP_OR_KEEP = Fix(
    'Drop those rows with on_bad_rows="drop" (or keep them as unobserved rounds with missing_rewards=True).',
    "Drop those rows with --drop-bad-rows.",
)
SHOW = Fix(
    'on_bad_rows="raise" shows the first problem.', "Run the command without --drop-bad-rows to see the first problem."
)
SORT = Fix("Sort the log by time.", "Sort the log by time: seachange check LOG --fix OUT.")


@dataclass(frozen=True)
class Problem:
    """What is wrong with a log, as data; ``sentence`` renders it."""

    rule: str  # the rule's identifier, such as propensity-zero
    requirement: str  # what must hold
    place: str = ""  # of the first offender: "row 17", "line 41 of clicks.jsonl"
    value: str = ""  # its value
    count: int = 0  # offenders
    total: int = 0  # out of this many
    unit: str = "row"
    fix: Fix | None = None

    @property
    def sentence(self) -> str:
        """What is wrong and where, without the fix."""
        value = f" has {self.value}" if self.value else ""
        extent = f" ({self.count:,} of {self.total:,} {self.unit}s)" if self.total else ""
        place = f"; {self.place}{value}" if self.place else ""
        return f"{self.requirement}{place}{extent}."


class ProblemError(LogError):
    """A LogError whose message is made of the fields in ``details``."""

    def __init__(self, details: Problem) -> None:
        super().__init__(details.sentence, details.fix)
        self.details = details

    def __reduce__(self) -> tuple[type[Self], tuple[Problem]]:
        return type(self), (self.details,)


@dataclass(frozen=True)
class Columns:
    """The columns of a log: copied, of equal length, not yet validated."""

    joint: JointFeatures
    rows: Floats  # (n or 1, R, D) contexts as kernels take them
    action_names: Sequence[str] | None
    context_names: Sequence[str] | None
    actions: Floats | Ints  # (n,)
    rewards: Floats  # (n,)
    propensities: Floats | None = None  # (n,)
    action_mask: Bools | None = None  # (n, K)
    logging_probs: Floats | None = None  # (n, K)
    times: npt.NDArray[Any] | None = None  # (n,)
    sequences: npt.NDArray[Any] | None = None  # (n,)

    def __len__(self) -> int:
        return len(self.actions)


# The arrays of a log: number of dimensions, type (_FLOATS keeps float32, None keeps any), and shape, for errors.
_FLOATS, _PER_ROUND = "floats", "one entry per round, shape (n,)"
FORMS: dict[str, tuple[int, Any, str]] = {
    "actions": (1, np.float64, _PER_ROUND),
    "rewards": (1, np.float64, _PER_ROUND),
    "propensities": (1, np.float64, _PER_ROUND),
    "contexts": (2, _FLOATS, "shape (n, d)"),
    "action_features": (3, _FLOATS, "shape (n, K, d) or be (rows, offsets)"),
    "action_mask": (2, bool, "shape (n, K)"),
    "logging_probs": (2, np.float64, "shape (n, K)"),
    "times": (1, None, _PER_ROUND),
    "sequences": (1, None, _PER_ROUND),
}


def columns_from_arrays(
    given: Sequence[Any], n_actions: int | None, action_names: Sequence[str] | None, context_names: Sequence[str] | None
) -> Columns:
    """The arguments of ``BanditLog.from_arrays`` as columns; ``given`` has the arrays in the order of ``FORMS``."""
    arrays = dict(zip(FORMS, given, strict=True))
    both = arrays["contexts"] is not None and arrays["action_features"] is not None
    require(not both, "pass contexts (one vector per round) or action_features (one per action), not both.")
    arrays["actions"] = _array("actions", arrays["actions"], *FORMS["actions"])
    n = len(arrays["actions"])
    require(n > 0, "the log is empty: it needs at least one round.", LogError)
    lists = arrays["action_features"] if isinstance(arrays["action_features"], tuple) else None
    if lists is not None:
        arrays["action_features"] = _padded(lists[0], lists[1], n)
    arrays = {name: _array(name, values, *FORMS[name]) for name, values in arrays.items()}
    for name, array in arrays.items():
        lengths = f"actions has {n} and {name} has {0 if array is None else len(array)}"
        require(array is None or len(array) == n, f"every column must have one entry per round; {lengths}.", LogError)
    times = getattr(arrays["times"], "dtype", np.dtype(float))
    unread = f"times must be numbers (seconds) or datetime64; they are {times}. Parse them first."
    require(times.kind in "iufM", unread, LogError)
    known = _number_of_actions(n_actions, action_names, arrays)
    for name in ("action_mask", "logging_probs"):
        width = known if arrays[name] is None else arrays[name].shape[1]
        wide = f"{name} must have one column per action; it has {width} columns for {known} actions."
        require(width == known, wide, LogError)
    if lists is not None:
        in_list = np.arange(known)[None, :] < np.diff(lists[1])[:, None]
        arrays["action_mask"] = in_list if arrays["action_mask"] is None else arrays["action_mask"] & in_list
    if arrays["propensities"] is None and arrays["logging_probs"] is not None:
        # Rows with invalid actions are bad, whatever is looked up here.
        taken = np.nan_to_num(np.clip(arrays["actions"], 0, known - 1)).astype(np.int64)
        arrays["propensities"] = arrays["logging_probs"][np.arange(n), taken]
    contexts, action_features = arrays.pop("contexts"), arrays.pop("action_features")
    if action_features is None:
        contexts = np.empty((n, 0)) if contexts is None else contexts
        joint = JointFeatures("shared" if contexts.shape[1] else "none", known, contexts.shape[1])
    else:
        contexts, joint = action_features, JointFeatures("per action", known, action_features.shape[2])
    return Columns(joint, joint.rows(contexts), action_names, context_names, **arrays)


def _array(name: str, values: Any, ndim: int, dtype: Any, shape: str) -> Any:
    """A copy of ``values``, checked; features are not copied, because ``JointFeatures.rows`` does."""
    if values is None:
        return None
    features = dtype is _FLOATS
    if features:
        dtype = np.float32 if getattr(values, "dtype", None) == np.float32 else np.float64
    try:
        array = np.asarray(values, dtype=dtype) if features else np.array(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        hint = " For a table with named actions, use BanditLog.from_frame." if name == "actions" else ""
        raise LogError(f"{name} must be numbers: {error}.{hint}") from error
    require(array.ndim == ndim, f"{name} must have {shape}; it has shape {array.shape}.", LogError)
    return array


def _padded(rows: Any, offsets: Any, n: int) -> Floats:
    """(n, K, d): lists of actions, padded with zeros."""
    rows, offsets = _array("action_features rows", rows, *FORMS["contexts"]), np.asarray(offsets)
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) == n + 1
    lengths = np.diff(offsets) if whole else np.zeros(n, dtype=np.int64)
    rule = f"offsets must be {n + 1} increasing integers from 0 to the number of rows ({len(rows)}); "
    increasing = (lengths > 0).all() and offsets[0] == 0 and offsets[-1] == len(rows)
    require(bool(increasing), f"{rule}got {len(offsets)} entries.", LogError)
    shape = n, int(lengths.max()), rows.shape[1]
    require_dense(shape, lengths, "row {}".format)
    features = np.zeros(shape, dtype=rows.dtype)
    place = np.arange(len(rows)) - np.repeat(offsets[:-1], lengths)
    features[np.repeat(np.arange(n), lengths), place] = rows
    return features


def require_dense(shape: tuple[int, int, int], lengths: Ints, where: Callable[[int], str], named: bool = False) -> None:
    """Raise if lists of actions, with these ``lengths``, would be mostly padding in an array of ``shape`` (n, K, d).

    With ``named`` actions, K is the number of names, not the length of the longest list.
    """
    size = math.prod(shape)
    if size <= MOST_NUMBERS or shape[0] * shape[1] <= MOST_PADDING * lengths.sum():
        return
    row = int(lengths.argmax())
    cause = f"the log has {shape[1]:,} different actions" if named else f"{where(row)} lists {lengths[row]:,}"
    fix = "Keep only actions that occur often" if named else "Drop the rounds with very long lists"
    raise LogError(
        f"rounds list {lengths.mean():.3g} actions on average, but {cause}. Every round is padded to that "
        f"length, which takes {size:,} numbers. {fix}."
    )


def _number_of_actions(n_actions: int | None, names: Sequence[str] | None, arrays: dict[str, Any]) -> int:
    whole = n_actions is None or isinstance(n_actions, int | np.integer)
    require(whole, f"n_actions must be an integer; got {n_actions!r}.")
    of_features, *of_others = (
        None if arrays[name] is None else arrays[name].shape[1]
        for name in ("action_features", "action_mask", "logging_probs")
    )
    counts = (of_features, n_actions, None if names is None else len(names), *of_others)
    known = next((count for count in counts if count is not None), None)
    if known is None:
        actions = arrays["actions"]
        taken = actions[np.isfinite(actions) & (actions == np.floor(actions))]
        known, n_distinct = int(taken.max(initial=0)) + 1, len(np.unique(taken))
        fix = "If they are identifiers, use BanditLog.from_frame; if there are that many actions, pass n_actions."
        large = f"actions must be indices from 0; the largest is {known - 1}. {fix}"
        require(known <= MOST_ACTIONS, large, LogError)
        if known > 20 * n_distinct:
            rare = f"actions go up to {known - 1}, but only {n_distinct} of them occur. {fix}"
            warn(rare, stacklevel=5)
    differ = f"n_actions={n_actions}, but action_features has {known} actions."
    require(n_actions in (None, known), differ, LogError)
    require(known >= 1, f"n_actions must be at least 1; got {known}.")
    return int(known)


def integers_below(values: npt.NDArray[Any], ends: int | Ints) -> Bools:
    """(n,) whether each value is an integer from 0 to its end, which is excluded."""
    with np.errstate(invalid="ignore"):
        return np.asarray((values >= 0) & (values < ends) & (values == np.floor(values)))


class Distribution(NamedTuple):
    """Logging distributions, one per round."""

    sums: Floats  # (n,)
    lowest: Floats  # (n,)
    taken: Floats  # (n,) the probability of the action taken
    sizes: int | Ints  # (n,) number of actions


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundValues:
    """What the rules look at: one entry per round, NaN if missing; None if the log does not have the column."""

    actions: Floats | Ints  # (n,) the place of the action among n_actions
    n_actions: int | Ints
    rewards: Floats
    action_rule: str = "actions must be in the round's list of actions"
    text_rewards: Bools | None = None  # (n,) rewards that are text
    propensities: Floats | None = None
    allowed: Bools | None = None  # (n,) whether the action mask allows the action
    distribution: Distribution | None = None
    infinite_contexts: Bools | None = None
    times: npt.NDArray[Any] | None = None
    sequences: npt.NDArray[Any] | None = None
    no_sequence: Bools | None = None  # (n,) sequences that are missing

    @property
    def in_list(self) -> Bools:
        """(n,) whether the action is an integer from 0 to n_actions - 1."""
        return integers_below(self.actions, self.n_actions)


@dataclass(frozen=True)
class Rule:
    """A rule about single rounds: what breaks it, and how errors and findings word it."""

    id: str
    requirement: str  # what must hold; empty: what the values' ``action_rule`` says
    column: str  # of RoundValues, with the value that an error shows
    broken: Callable[[RoundValues], Bools | None]  # (n,) rounds that break it; None: the log lacks the column
    title: str  # of the finding
    evidence: str  # of the finding: 3 of 10,000 rounds (0.03%) …
    advice: str = ""
    fix: Fix = DROP

    @property
    def summary(self) -> str:
        """The title within a sentence: rewards are missing."""
        return self.title[0].lower() + self.title[1:]


def _of(column: str, broken: Callable[[Any], Any]) -> Callable[[RoundValues], Bools | None]:
    """A predicate on one column, if there is one."""
    return lambda values: None if (array := getattr(values, column)) is None else np.asarray(broken(array))


def _missing_rewards(values: RoundValues) -> Bools:
    missing = np.isnan(values.rewards)
    return missing if values.text_rewards is None else missing & ~values.text_rewards


def _wrong_sums(values: RoundValues) -> Bools | None:
    if values.distribution is None:
        return None
    sums, lowest, _, sizes = values.distribution
    return np.asarray(~(np.abs(sums - 1) <= PROBABILITY_TOLERANCE * np.sqrt(sizes)) | (lowest < 0))


def _mismatches(values: RoundValues) -> Bools | None:
    off = _wrong_sums(values)
    if off is None or values.distribution is None or values.propensities is None:
        return None
    gaps = np.abs(values.distribution.taken - values.propensities)
    return np.asarray((gaps > PROBABILITY_TOLERANCE) & values.in_list & ~off)


def _unknown_times(times: npt.NDArray[Any]) -> Bools:
    return np.asarray(np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times))


_REWARDS = f"rewards must be finite and at most {LARGEST:g} in size"
_PROPENSITIES = "propensities must be in (0, 1]"
_LOG_PROBABILITY = "Log the probability that the action was chosen."
_FIND_OUT = "Find out why: dropping rounds because of their action or reward can bias the model."

_ROWS: tuple[tuple[Any, ...], ...] = (
    ("action-missing", "", "actions", _of("actions", np.isnan), "Actions are missing", "have no action", _FIND_OUT),
    ("action-outside-pool", "", "actions", lambda values: ~values.in_list & ~np.isnan(values.actions),
     "Actions are not in their lists", "took an action that is not in the round's list of actions", _FIND_OUT),
    ("reward-text", _REWARDS, "rewards", _of("text_rewards", np.asarray), "Rewards are not numbers",
     "have a reward that is not a number", "Log numbers, such as 1 for yes and 0 for no."),
    ("reward-missing", "rewards must not be missing", "rewards", _missing_rewards, "Rewards are missing",
     "have no reward", f"If a missing reward means 0, log 0. {_FIND_OUT}", DROP_OR_KEEP),
    ("reward-infinite", _REWARDS, "rewards", _of("rewards", lambda r: np.abs(r) > LARGEST), "Rewards are infinite",
     f"have a reward that is infinite or larger than {LARGEST:g} in size", _FIND_OUT),
    ("propensity-missing", _PROPENSITIES, "propensities", _of("propensities", np.isnan), "Propensities are missing",
     "have no propensity, or one that is not a number", _FIND_OUT),
    ("propensity-zero", _PROPENSITIES, "propensities", _of("propensities", lambda p: p == 0), "Propensities are 0",
     "have a propensity of 0 for an action that was taken", _LOG_PROBABILITY),
    ("propensity-negative", _PROPENSITIES, "propensities", _of("propensities", lambda p: p < 0),
     "Propensities are negative", "have a negative propensity", "Log probabilities, not scores or log-probabilities."),
    ("propensity-above-one", _PROPENSITIES, "propensities", _of("propensities", lambda p: p > 1),
     "Propensities are above 1", "have a propensity above 1",
     "Log probabilities, not scores or odds; divide percentages by 100."),
    ("propensity-tiny", f"propensities must be at least {LEAST_PROPENSITY:g}", "propensities",
     _of("propensities", lambda p: (p > 0) & (p < LEAST_PROPENSITY)), "Propensities are too small to be real",
     f"have a propensity below {LEAST_PROPENSITY:g}", _LOG_PROBABILITY),
    ("context-infinite", "contexts must be finite", "", _of("infinite_contexts", np.asarray), "Contexts are infinite",
     "have an infinite number among their contexts"),
    ("action-masked", "action_mask must allow the action that was taken", "actions", _of("allowed", np.logical_not),
     "Masked actions were taken", "took an action that the action mask forbids"),
    ("distribution-sum", "logging_probs must be non-negative and sum to 1", "distribution", _wrong_sums,
     "Logging distributions do not sum to 1", "have a logging distribution that does not sum to 1"),
    ("propensity-mismatch", "logging_probs at the action taken must equal propensities", "distribution", _mismatches,
     "Propensities differ from the logging distribution",
     "have a propensity that differs from their logging distribution",
     "Log the probability of the action that was taken, not of another one."),
    ("time-missing", "times must be known", "times", _of("times", _unknown_times),
     "Timestamps are missing or unreadable", "have no timestamp, or one that cannot be read"),
    ("sequence-missing", "sequences must be known", "sequences", _of("no_sequence", np.asarray),
     "Sequences are missing", "belong to no sequence"),
)  # fmt: skip
RULES = {row[0]: Rule(*row) for row in _ROWS}


def broken_rounds(values: RoundValues) -> dict[str, Bools]:
    """(n,) the rounds that break each rule, by its identifier; without rules about columns that are not there."""
    with np.errstate(invalid="ignore"):
        found = {name: rule.broken(values) for name, rule in RULES.items()}
    return {name: rows for name, rows in found.items() if rows is not None}


class Fault(NamedTuple):
    """The rows that break a rule."""

    rule: Rule
    requirement: str
    rows: Ints
    value: Any  # in the first of them


def faults_of(columns: Columns, missing_rewards: bool) -> list[Fault]:
    """The rules that some rows break, other than those of contexts."""
    return _faults(_values(columns), ("reward-missing",) if missing_rewards else ())


def _faults(values: RoundValues, skipped: Sequence[str] = ()) -> list[Fault]:
    faults = []
    for name, broken in broken_rounds(values).items():
        if name in skipped or not broken.any():
            continue
        rule, rows = RULES[name], np.flatnonzero(broken)
        column = getattr(values, rule.column)
        if isinstance(column, Distribution):
            column = column.sums if name == "distribution-sum" else column.taken
        faults.append(Fault(rule, rule.requirement or values.action_rule, rows, column[rows[0]]))
    return faults


def _context_faults(columns: Columns) -> list[Fault]:
    """The rows whose contexts are not finite."""
    joint, rows = columns.joint, columns.rows
    if joint.kind == "none":
        return []
    bad = (~np.isfinite(rows) | too_large(rows)).reshape(len(rows), -1)
    found = np.flatnonzero(bad.any(axis=1))
    if not len(found):
        return []
    place, names = int(bad[found[0]].argmax()), columns.context_names or ()
    value = rows.reshape(len(rows), -1)[found[0], place]
    if joint.kind == "per action":
        action, feature = divmod(place, joint.n_features + 1)
        return [feature_fault("action_features", f"{action}, {feature}", found, value)]
    column = names[place] if len(names) == joint.n_features else str(place)
    return [feature_fault("contexts", column, found, value)]


def feature_fault(name: str, column: str, rows: Ints, value: Any) -> Fault:
    """Rows whose ``column`` of contexts or action features is infinite or too large."""
    return Fault(RULES["context-infinite"], f"{name} must be finite (column {column})", rows, value)


def too_large(array: npt.NDArray[Any]) -> Bools:
    """Entries that are infinite or too large to work with; in single precision, those are the infinite ones."""
    return np.isinf(array) if array.dtype == np.float32 else np.asarray(np.abs(array) > LARGEST)


def _values(columns: Columns) -> RoundValues:
    n_actions, sequences = columns.joint.n_actions, columns.sequences
    mask, probs = columns.action_mask, columns.logging_probs
    known = f"actions must be one of the {n_actions} known actions"
    taken = np.where(integers_below(columns.actions, n_actions), columns.actions, 0).astype(np.int64)
    return RoundValues(
        actions=columns.actions,
        n_actions=n_actions,
        rewards=columns.rewards,
        action_rule=f"actions must be integers from 0 to {n_actions - 1}" if columns.action_names is None else known,
        propensities=columns.propensities,
        allowed=None if mask is None else mask[np.arange(len(taken)), taken],
        distribution=None if probs is None else _distribution(probs, taken),
        times=columns.times,
        sequences=sequences,
        no_sequence=None if sequences is None else _missing_labels(sequences),
    )


def _distribution(probs: Floats, taken: Ints) -> Distribution:
    return Distribution(probs.sum(axis=1), probs.min(axis=1), probs[np.arange(len(probs)), taken], probs.shape[1])


def _missing_labels(labels: npt.NDArray[Any]) -> Bools:
    missing = np.asarray(labels != labels, dtype=bool)  # NaN and NaT
    return missing | np.asarray(labels == np.array(None), dtype=bool) if labels.dtype.kind == "O" else missing


def validated(columns: Columns, missing_rewards: bool, on_bad_rows: OnBadRows) -> dict[str, Any]:
    """The fields of a BanditLog, or a LogError with the rule, the row, the extent and the fix."""
    faults = faults_of(columns, missing_rewards) + _context_faults(columns)
    return require_rows(without_faults(columns, faults, on_bad_rows), len(columns))


def require_rows(fields: dict[str, Any], n: int) -> dict[str, Any]:
    """The fields of a BanditLog, or a LogError if none of its ``n`` rows is left."""
    if len(fields["arrays"].actions) == 0:
        raise ProblemError(Problem("no-good-rows", f"all {n:,} rows are bad, so none would remain", fix=SHOW))
    return fields


def without_faults(
    columns: Columns, faults: Iterable[Fault], on_bad_rows: OnBadRows, where: Callable[[int], str] = "row {}".format
) -> dict[str, Any]:
    """The fields of a BanditLog without the rows that have ``faults``, or a LogError that says ``where`` they are."""
    if on_bad_rows not in ("raise", "drop"):
        raise ParameterError(f'on_bad_rows must be "raise" or "drop"; got {on_bad_rows!r}.')
    good = np.ones(len(columns), dtype=bool)
    dropped: Counter[str] = Counter()
    for fault in faults:
        if on_bad_rows == "raise":
            # Dropping every row is not a fix.
            advice = Fix(fault.rule.advice) if fault.rule.advice else None
            fix = advice if len(fault.rows) == len(columns) > 1 else fault.rule.fix
            raise ProblemError(_problem(fault, len(columns), where(int(fault.rows[0])), fix))
        if count := int(good[fault.rows].sum()):
            dropped[fault.rule.summary] += count
        good[fault.rows] = False
    _require_time_order(columns.times, columns.sequences, good, where)
    return {**_fields(columns, good if dropped else slice(None)), "dropped": tuple(dropped.items())}


def _problem(fault: Fault, total: int, place: str, fix: Fix | None) -> Problem:
    return Problem(fault.rule.id, fault.requirement, place, _shown(fault.value), len(fault.rows), total, fix=fix)


def require_probabilities(propensities: Floats, logging_probs: Floats | None) -> None:
    """Raise if propensities (n,), or whole logging distributions (n, K), break a rule."""
    n = len(propensities)
    values = RoundValues(
        actions=np.zeros(n),
        n_actions=1,
        rewards=np.zeros(n),
        propensities=propensities,
        distribution=None if logging_probs is None else _distribution(logging_probs, np.zeros(n, dtype=np.int64)),
    )
    for fault in _faults(values, ("propensity-mismatch",)):
        raise ProblemError(_problem(fault, n, f"row {fault.rows[0]}", Fix(_LOG_PROBABILITY, _LOG_PROBABILITY)))


def _fields(columns: Columns, keep: Any) -> dict[str, Any]:
    """The fields of a BanditLog with the rows that are kept."""

    def kept(array: npt.NDArray[Any] | None) -> Any:
        return None if array is None else array[keep]

    actions, mask = columns.actions[keep], kept(columns.action_mask)
    joint, rows = columns.joint, columns.rows
    return {
        "arrays": LogArrays(
            rows if joint.kind == "none" else rows[keep],
            joint.mask(None if mask is None or mask.all() else mask, len(actions)),
            actions.astype(np.int64, copy=False),
            columns.rewards[keep],
            np.full(len(actions), np.nan) if columns.propensities is None else columns.propensities[keep],
        ),
        "joint": joint,
        "action_names": _names("action_names", columns.action_names, joint.n_actions, "action "),
        "context_names": _names("context_names", columns.context_names, joint.n_features, "x"),
        "logging_probs": kept(columns.logging_probs),
        "propensity_source": "unknown" if columns.propensities is None else "logged",
        "times": kept(columns.times),
        "sequences": kept(columns.sequences),
    }


def _require_time_order(times: Any, sequences: Any, good: Bools, where: Callable[[int], str]) -> None:
    """Raise if time goes backwards within a sequence of the ``good`` rows."""
    if times is None:
        return
    rows = np.flatnonzero(good)
    if sequences is not None:
        rows = rows[np.argsort(sequences[rows], kind="stable")]
    kept = times[rows]
    back = kept[1:] < kept[:-1]
    if sequences is not None:
        back &= sequences[rows][1:] == sequences[rows][:-1]
    if back.any():
        earlier, row = rows[int(back.argmax()) :][:2].tolist()
        value = f"{_shown(times[row])} after {_shown(times[earlier])}"
        raise ProblemError(time_problem(where(row), value, int(back.sum()), len(times)))


def time_problem(place: str, value: str, count: int, total: int) -> Problem:
    """Times that go backwards."""
    return Problem("time-backwards", "times must not go backwards", place, value, count, total, fix=SORT)


def _names(what: str, names: Sequence[str] | None, count: int, stem: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{stem}{i}" for i in range(count))
    require(len(names) == count, f"{what} must have {count} names; it has {len(names)}.", LogError)
    if len(set(names)) < count:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise LogError(f"{what} must be distinct; {twice!r} appears twice.")
    return tuple(str(name) for name in names)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
