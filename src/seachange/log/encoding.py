"""Raw logs to BanditLogs: fit a FeatureSpec, encode part by part, validate."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, product
from typing import Any

import numpy as np
import numpy.typing as npt
import polars

from seachange.engine import cores, map_in_order
from seachange.errors import LogError, ParameterError
from seachange.kernels.feature_rows import cross, one_hot, standardize
from seachange.log import validation
from seachange.log.bandit_log import BanditLog, log_on_disk
from seachange.log.feature_fitting import fit_features
from seachange.log.features import Category, Feature, FeatureSpec, Flag, Hashed, Number, code_of, code_of_missing
from seachange.log.joint_features import ContextKind, JointFeatures
from seachange.log.raw import (
    PART_ROWS,
    Kind,
    RawColumn,
    RawLog,
    RawRounds,
    Rejected,
    as_lists,
    coded,
    distinct_texts,
    numbers_of,
    raw_columns,
)
from seachange.protocols import Bools, Floats, Ints

TooLarge = tuple[str, Ints, Any]  # rows of a column with numbers that are too large or infinite, and the first of them
BLOCK_ROWS = 1 << 13  # rows that are standardized at a time
MOST_REASONS, OTHER_REASONS = 100, "other reasons"  # different reasons for rejecting lines that are counted one by one
ROW_FORMATS = ("frame", "parquet", "arrow", "obp")  # their places are rows of a table; in others, lines of text
# Columns that a log may lack.
OPTIONAL: dict[str, Callable[[RawRounds], bool]] = {
    "a propensity": lambda rounds: rounds.propensity is not None,
    "a time": lambda rounds: rounds.time is not None,
    "a sequence": lambda rounds: rounds.sequence is not None,
    "a list of actions": lambda rounds: rounds.pool is not None,
    "a logging distribution": lambda rounds: rounds.pool is not None and rounds.pool.probs is not None,
}


def log_from_raw(
    raw: RawLog,
    features: FeatureSpec | None = None,
    *,
    action_names: Sequence[str] | None = None,
    missing_rewards: bool = False,
    on_bad_rows: validation.OnBadRows = "raise",
    on_disk: bool = False,
) -> BanditLog:
    """The rounds of ``raw``, encoded with ``features``, or with features fitted on all of them.

    ``on_disk`` keeps the log's columns in temporary files and reads ``raw`` twice, so that neither needs to fit into
    memory.
    """
    if features is not None and action_names is not None and tuple(action_names) != features.action_names:
        raise ParameterError(
            f"action_names must be those of features: {', '.join(features.action_names)}. Pass only one of the two."
        )
    rejected = _RejectedLines()
    parts = [] if on_disk else [rejected.taken_from(part) for part in raw.parts(PART_ROWS)]
    spec = features or fit_features(raw, raw.parts(PART_ROWS) if on_disk else parts, action_names=action_names)
    sources = _sources_in(parts)

    def encoded_parts() -> Iterator[BanditLog]:
        first: list[RawRounds] = []
        for part in raw.parts(PART_ROWS):
            _require_same_columns(raw, [*first, part])
            first = first or ([_without_values(part)] if len(part) else [])
            sources.update(_sources_in([part]))
            lines = _RejectedLines()
            yield BanditLog(**_encoded(raw, spec, [lines.taken_from(part)], lines, missing_rewards, on_bad_rows))

    log = log_on_disk(encoded_parts()) if on_disk else None
    absent = [name for name in spec.sources if name not in sources] if features is not None else []
    if absent:
        raise LogError(
            f"the features need the column {absent[0]!r}, which this log does not have ({len(absent)} of "
            f"{len(spec.sources)} columns are missing). It has {', '.join(sorted(sources)) or 'none'}."
        )
    if log is not None:
        return log
    n = sum(map(len, parts))
    if n == 0:
        raise LogError("the log is empty: it needs at least one round.")
    _require_same_columns(raw, parts)
    return BanditLog(**validation.require_rows(_encoded(raw, spec, parts, rejected, missing_rewards, on_bad_rows), n))


def _sources_in(parts: Sequence[RawRounds]) -> set[str]:
    """The raw columns that any of the parts has."""
    frames = [part.features for part in parts] + [part.pool.features for part in parts if part.pool is not None]
    distinct = {tuple(frame.schema.items()): frame for frame in frames}
    return {name for frame in distinct.values() for name in raw_columns(frame)}


def _require_same_columns(raw: RawLog, parts: Sequence[RawRounds]) -> None:
    """Raise if a part has an optional column that another part lacks."""
    first, *others = [part for part in parts if len(part)] or parts
    for part, (what, has) in product(others, OPTIONAL.items()):
        if has(part) != has(first):
            without, with_it = (part, first) if has(first) else (first, part)
            raise LogError(
                f"either every round of a log has {what} or none does; {_place(raw, without.source, without.lines[0])} "
                f"has none, unlike {_place(raw, with_it.source, with_it.lines[0])}. Read the files that have them "
                "separately."
            )


def _unit(raw: RawLog) -> str:
    return "row" if raw.format in ROW_FORMATS else "line"


def _place(raw: RawLog, source: str, line: int) -> str:
    return f"{_unit(raw)} {line}" + (f" of {source}" if source else "")


class _RejectedLines:
    """Lines that could not be read: the first one, and their number by reason. Millions of them take no memory."""

    def __init__(self) -> None:
        self.first: Rejected | None = None
        self.rules: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def taken_from(self, part: RawRounds) -> RawRounds:
        """Count the rejected lines of a part; the part returned no longer holds them."""
        for line in part.rejected:
            self.first = self.first or line
            self.rules[line.rule] += 1
            rule = validation.RULES.get(line.rule)
            if rule is not None:
                self.reasons[rule.summary] += 1
                continue
            known = line.reason in self.reasons or len(self.reasons) < MOST_REASONS
            self.reasons[line.reason if known else OTHER_REASONS] += 1
        return replace(part, rejected=())


def _encoded(
    raw: RawLog,
    spec: FeatureSpec,
    parts: list[RawRounds],
    rejected: _RejectedLines,
    missing_rewards: bool,
    on_bad_rows: validation.OnBadRows,
) -> dict[str, Any]:
    """The fields of a BanditLog, possibly without any rounds. ``parts`` lose their features on the way."""
    starts = list(accumulate((len(part) for part in parts), initial=0))
    if rejected.first is not None and on_bad_rows == "raise":
        one = rejected.first
        place, value = _place(raw, one.source, one.line), repr(one.text) if one.text else ""
        counts = rejected.rules[one.rule], starts[-1] + rejected.rules.total()
        problem = validation.Problem(one.rule, one.reason, place, value, *counts, _unit(raw), validation.DROP)
        raise validation.ProblemError(problem)

    def where(row: int) -> str:
        place = bisect_right(starts, row) - 1
        return _place(raw, parts[place].source, parts[place].lines[row - starts[place]])

    kind: ContextKind = "per action" if spec.pool else "shared" if spec.context_names else "none"
    joint = JointFeatures(kind, spec.n_actions, len(spec.context_names))
    shape = (spec.n_actions if spec.pool else 1, joint.n_features + 1)
    if spec.pool:
        lengths = np.concatenate([np.zeros(0, np.int64) if part.pool is None else part.pool.lengths for part in parts])
        validation.require_dense((starts[-1], *shape), lengths, where, spec.named)
    rows = np.ones((1, 1, 1)) if kind == "none" else np.zeros((starts[-1], *shape), dtype=spec.precision)

    def encode(place: int) -> tuple[dict[str, Any], list[TooLarge]]:
        part, own = parts[place], rows[starts[place] : starts[place + 1]]
        large = []
        if spec.pool:
            large = _fill_pools(spec, part, own)
        elif spec.context_names:
            large = fill(spec.shared, part.features, own[:, 0])
        parts[place] = _without_values(part)  # makes room for what is still to be encoded
        return _columns(spec, part), [(name, np.unique(bad) + starts[place], value) for name, bad, value in large]

    encoded = list(map_in_order(encode, range(len(parts)), workers=cores()))
    if on_bad_rows == "raise" and spec.named and any(np.isnan(columns["actions"]).any() for columns, _ in encoded):
        _require_known_actions(spec, parts)
    # A part without rounds may lack columns.
    filled = [columns for columns, _ in encoded if len(columns["actions"])] or [encoded[0][0]]
    present = [name for name, column in filled[0].items() if column is not None]
    joined: dict[str, Any] = {name: np.concatenate([part[name] for part in filled]) for name in present}
    columns = validation.Columns(joint, rows, spec.action_names, spec.context_names, **joined)
    infinite: dict[str, validation.Fault] = {}
    for name, bad, value in (each for _, large in encoded for each in large):
        kind_of_rows = "action_features" if spec.pool else "contexts"
        first = infinite.get(name) or validation.feature_fault(kind_of_rows, name, bad[:0], value)
        infinite[name] = first._replace(rows=np.concatenate([first.rows, bad]))
    faults = [*validation.faults_of(columns, missing_rewards), *infinite.values()]

    fields = validation.without_faults(columns, faults, on_bad_rows, where)
    dropped = rejected.reasons + Counter(dict(fields["dropped"]))
    return fields | {"dropped": tuple(dropped.items()), "features": spec}


def _without_values(part: RawRounds) -> RawRounds:
    """The part without the values of its features."""
    pool = None if part.pool is None else replace(part.pool, features=part.pool.features.clear())
    return replace(part, features=part.features.clear(), pool=pool)


def _require_known_actions(spec: FeatureSpec, parts: Sequence[RawRounds]) -> None:
    """Raise if a named action is not one of the spec's."""
    columns = (part.action if part.pool is None else part.pool.names for part in parts)
    taken = {name for column in columns if column is not None for name in distinct_texts(column)}
    unknown = sorted(taken - set(spec.action_names))
    if unknown:
        known = f"action {unknown[0]!r} is not one of {', '.join(spec.action_names)} ({len(unknown)} unknown in all)"
        raise validation.ProblemError(validation.Problem("action-unknown", known, fix=validation.DROP))


def fill(features: Sequence[Feature], frame: polars.DataFrame, rows: Floats) -> list[TooLarge]:
    """Write the features of each row of ``frame`` to ``rows`` (n, at least their number), followed by ones."""
    # The type of a column without values means nothing.
    filled = {name: each for name, each in raw_columns(frame).items() if each.values.null_count() < len(each.values)}
    columns = {name: column for name, column in filled.items() if column.kind != "nothing"}
    numbers: list[tuple[Number | Flag, int]] = []
    first = 0
    for feature in features:
        column = columns.get(feature.column)
        if isinstance(feature, Number | Flag):
            numbers.append((feature, first))
        elif column is None:
            one_hot(np.full(len(rows), code_of_missing(feature)), first, feature.width, rows)
        elif feature.several:
            _fill_lists(feature, column, rows, first)
        else:
            _require_kind(column, feature, "text", "text", "number")
            codes = coded(column.values, code_of(feature))
            one_hot(np.where(codes < 0, code_of_missing(feature), codes), first, feature.width, rows)
        first += feature.width
    rows[:, first:] = 1.0
    return _fill_numbers(numbers, columns, rows) if numbers else []


def _require_kind(column: RawColumn, feature: Feature, wanted: str, *kinds: Kind) -> None:
    if column.kind not in kinds:
        raise LogError(f"column {feature.column!r} must hold {wanted}; it holds {column.values.dtype}.")


def _fill_lists(feature: Category | Hashed, column: RawColumn, rows: Floats, first: int) -> None:
    _require_kind(column, feature, "lists of text", "texts", "numbers")
    lists = as_lists(column.values)
    lengths = lists.list.len().fill_null(0).to_numpy().astype(np.int64)
    codes = coded(lists.filter(lists.list.len() > 0).explode(), code_of(feature))
    owners = np.repeat(np.arange(len(rows)), lengths)
    rows[:, first : first + feature.width] = 0.0
    rows[owners[codes >= 0], first + codes[codes >= 0]] = 1.0
    if feature.marked:
        rows[lists.is_null().to_numpy(), first + feature.width - 1] = 1.0


def _fill_numbers(
    numbers: Sequence[tuple[Number | Flag, int]], columns: Mapping[str, RawColumn], rows: Floats
) -> list[TooLarge]:
    arrays = [_numbers(feature, columns.get(feature.column), len(rows)) for feature, _ in numbers]
    places = np.array([place for _, place in numbers])
    marks = np.array([place + 1 if feature.marked else -1 for feature, place in numbers])
    means, scales = np.array([(feature.mean, feature.scale) for feature, _ in numbers]).T
    # One row more than a small log has: slices have one memory layout, and compiled code one version.
    block = np.empty((len(numbers), min(BLOCK_ROWS, len(rows) + 1)))
    largest, n_large = validation.LARGEST, 0
    for start in range(0, len(rows), BLOCK_ROWS):
        end = min(start + BLOCK_ROWS, len(rows))
        for j, array in enumerate(arrays):
            block[j, : end - start] = array[start:end]
        n_large += standardize(block[:, : end - start], means, scales, places, marks, largest, rows[start:end])
    if n_large == 0:
        return []
    large = [np.flatnonzero(np.abs(array.astype(np.float64)) > largest) for array in arrays]
    bad = zip(numbers, arrays, large, strict=True)
    return [(feature.names[0], found, array[found[0]]) for (feature, _), array, found in bad if len(found)]


def _numbers(feature: Number | Flag, column: RawColumn | None, n: int) -> npt.NDArray[Any]:
    """(n,) the raw numbers of a feature, NaN if missing."""
    if column is None:
        return np.full(n, np.nan)
    if feature.place is None:
        _require_kind(column, feature, "numbers", "number", "time")
        return numbers_of(column.values)
    _require_kind(column, feature, "lists of numbers", "numbers")
    return numbers_of(as_lists(column.values).list.get(feature.place, null_on_oob=True))


def _fill_pools(spec: FeatureSpec, rounds: RawRounds, rows: Floats) -> list[TooLarge]:
    """Write the features of each action of each round to ``rows`` (n, K, d + 1), which are zeros, followed by ones."""
    pool = rounds.pool
    if pool is None:
        raise LogError("these features describe lists of actions, but this log does not list actions.")
    own = np.empty((len(pool.features), len(spec.pool_names)), dtype=spec.precision)
    large = [(name, pool.owners[bad], value) for name, bad, value in fill(spec.pool, pool.features, own)]
    shared = np.empty((len(rounds), len(spec.shared_names) if spec.crossed else 0), dtype=spec.precision)
    if spec.crossed:
        large += fill(spec.shared, rounds.features, shared)
    cross(own, shared, pool.owners, pool.places, rows)
    rows[..., -1] = 1.0
    return large


def _choices(spec: FeatureSpec, rounds: RawRounds) -> tuple[Floats | Ints, Bools | None, Floats | None]:
    """The actions that were taken (n,), those that could be (n, K), and their probabilities (n, K).

    Actions that ``spec`` does not know are NaN, as are all in a round whose list is longer than it allows.
    """
    numbers = {name: place for place, name in enumerate(spec.action_names)}
    pool = rounds.pool
    if pool is None:
        codes = coded(rounds.action, lambda name: numbers.get(name, -1))
        return (codes if codes.min(initial=0) >= 0 else np.where(codes < 0, np.nan, codes)), None, None
    taken = _floats("actions", rounds.action)
    inside = validation.integers_below(taken, pool.lengths)
    if spec.named:
        if pool.names is None:
            raise LogError("these features have named actions, but this log does not name the actions in its lists.")
        columns = coded(pool.names, lambda name: numbers.get(name, -1))
        known = columns >= 0
        chosen = np.where(inside, pool.offsets[:-1] + np.where(inside, taken, 0), 0).astype(np.int64)
        taken = np.where(inside & known[chosen], columns[chosen], np.nan)
    else:
        columns, known = pool.places, pool.places < spec.n_actions
        taken = np.where(inside & (pool.lengths <= spec.n_actions), taken, np.nan)
    cells = pool.owners[known], columns[known]
    mask = np.zeros((len(rounds), spec.n_actions), dtype=bool)
    mask[cells] = True
    if pool.probs is None:
        return taken, mask, None
    probs = np.zeros(mask.shape)
    np.add.at(probs, cells, pool.probs[known])
    return taken, mask, probs


def _floats(name: str, series: polars.Series) -> Floats:
    """(n,) a column of numbers as float64, NaN if missing."""
    try:
        return np.asarray(series.cast(polars.Float64).to_numpy(), dtype=np.float64)
    except polars.exceptions.PolarsError as error:
        raise LogError(f"{name} must be numbers: {error}.") from error


def times_of(series: polars.Series) -> npt.NDArray[Any]:
    """(n,) times, parsed if they are text."""
    if series.dtype.is_numeric() or series.dtype in (polars.Date, polars.Datetime):
        return np.asarray(series.to_numpy())
    try:
        return np.asarray(series.cast(polars.String).str.to_datetime().to_numpy())
    except polars.exceptions.PolarsError as error:
        raise LogError(f"times must be numbers (seconds) or dates; {series.name!r} is neither: {error}.") from error


def _columns(spec: FeatureSpec, rounds: RawRounds) -> dict[str, Any]:
    """The columns of ``rounds`` with one entry per round, except the contexts."""
    taken, mask, probs = _choices(spec, rounds)
    propensities = None if rounds.propensity is None else _floats("propensities", rounds.propensity)
    if propensities is None and probs is not None:
        propensities = probs[np.arange(len(rounds)), np.nan_to_num(taken).astype(np.int64)]
    return {
        "actions": taken,
        "rewards": _floats("rewards", rounds.reward),
        "propensities": propensities,
        "action_mask": mask,
        "logging_probs": probs,
        "times": None if rounds.time is None else times_of(rounds.time),
        "sequences": None if rounds.sequence is None else np.asarray(rounds.sequence.to_numpy()),
    }
