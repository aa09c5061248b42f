"""Logs as dsjson, for Vowpal Wabbit: ``vw --dsjson --cb_adf -d OUT``.

What is written is what ``seachange.log.readers.dsjson`` reads. Actions that are known by name alone are items with one
feature, ``{"action": {"id": "…"}}``; ``p`` is written where the whole logging distribution is known; labels stand
before ``c``, where Vowpal Wabbit needs them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError, SeachangeWarning
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import Pool, RawLog, RawRounds
from seachange.outputs import written_whole

if TYPE_CHECKING:
    import polars

ROWS_AT_A_TIME = 1 << 14
IDENTIFIER = "action.id"


def write_dsjson(log: BanditLog | RawLog, path: str | Path) -> int:
    """Write a log as dsjson and say how many rounds were written; rounds that could not be read are left out."""
    actions = None if isinstance(log, BanditLog) else _actions(log)
    parts = _raw_parts(log) if isinstance(log, BanditLog) else log.parts(ROWS_AT_A_TIME)
    written, told = 0, False
    with written_whole(path) as beside, beside.open("wb") as file:
        for part in parts:
            if part.sequence is not None and not told:
                told = True
                warnings.warn("dsjson has no place for sequences; they are left out.", SeachangeWarning, stacklevel=2)
            if len(part):
                dsjson_frame(part, actions, first=written).write_ndjson(file)
                written += len(part)
    return written


def dsjson_frame(rounds: RawRounds, actions: Sequence[Any] | None = None, *, first: int = 0) -> polars.DataFrame:
    """Rounds as a table whose rows are lines of dsjson; without a pool every round has the same ``actions``."""
    import polars

    _require_labels(rounds)
    pool = rounds.pool or _pool_of_all(rounds, actions or ())
    chosen = rounds.action.cast(polars.Int64) if rounds.pool is not None else _places(rounds.action, actions or ())
    taken = chosen.to_numpy()
    frame = polars.DataFrame(
        {
            "_label_cost": 0.0 - rounds.reward.cast(polars.Float64).to_numpy(),  # in polars, 0 - 0 is -0
            "_label_probability": rounds.propensity,
            "_label_Action": chosen + 1,
            "_labelIndex": chosen,
        }
    )
    columns: list[polars.Series] = []
    if rounds.time is not None:
        columns.append(_timestamps(rounds.time).alias("Timestamp"))
    numbers = polars.Series("EventId", np.arange(first, first + len(rounds))).cast(polars.String)
    columns.append(numbers if rounds.event is None else rounds.event.fill_null(numbers).alias("EventId"))
    order = _chosen_first(pool, taken)
    places = order - np.repeat(pool.offsets[:-1], pool.lengths)
    columns.append(_lists(polars.Series("a", places + 1), pool))
    if pool.probs is not None:
        columns.append(_lists(polars.Series("p", pool.probs[order]), pool))
    items = pool.features
    if pool.names is not None:
        tag = "_tag" if items.width else IDENTIFIER
        items = items.with_columns(pool.names.cast(polars.String).alias(tag))
    if items.width == 0:
        items = polars.DataFrame({"_": polars.repeat(None, items.height, eager=True)})  # which nobody reads
    multi = _lists(items.select(_nested(items.columns)).to_struct("_multi"), pool)
    shared = rounds.features.with_columns(multi)
    return frame.with_columns(columns).with_columns(shared.select(_nested(shared.columns)).to_struct("c"))


def _require_labels(rounds: RawRounds) -> None:
    import polars

    if rounds.propensity is None:
        raise LogError(
            "dsjson needs the probability of every action taken, and this log has none. Estimate them: "
            "log.with_propensities(sc.estimate_propensities(log), estimated=True)."
        )
    for name, column in (("reward", rounds.reward), ("propensity", rounds.propensity)):
        missing = int(np.isnan(column.cast(polars.Float64).to_numpy()).sum())
        if missing:
            raise LogError(f"dsjson needs a {name} in every round; {missing} of {len(rounds)} rounds here have none.")


def _timestamps(times: polars.Series) -> polars.Series:
    """Moments as text in UTC; numbers are seconds since 1970."""
    import polars

    if times.dtype.is_numeric():
        times = (times * 1_000_000).round().cast(polars.Int64).cast(polars.Datetime("us"))
    return times.cast(polars.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")


def _chosen_first(pool: Pool, taken: Any) -> Any:
    """Rows of the pool, in each round the action taken first."""
    order = np.arange(pool.offsets[-1])
    first, chosen = pool.offsets[:-1], pool.offsets[:-1] + taken
    order[first], order[chosen] = chosen, first
    return order


def _lists(values: polars.Series, pool: Pool) -> polars.Series:
    """Rows of the pool as a list a round."""
    import polars

    rounds = np.repeat(np.arange(len(pool.lengths)), pool.lengths)
    frame = polars.DataFrame({"round": rounds, values.name: values})
    return frame.group_by("round", maintain_order=True).agg(values.name)[values.name]


def _nested(names: Sequence[str], within: str = "") -> list[polars.Expr]:
    """Columns with dots in their names as structs: user.age as age in user."""
    import polars

    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.removeprefix(within).split(".")[0], []).append(name)
    fields: list[polars.Expr] = []
    for key, members in groups.items():
        if within + key in members or not key:  # a value by itself cannot have others in it
            fields += [polars.col(name).alias(name.removeprefix(within)) for name in members]
        else:
            fields.append(polars.struct(_nested(members, f"{within}{key}.")).alias(key))
    return fields


def _actions(raw: RawLog) -> list[Any] | None:
    """All actions of a log in which they are always the same."""
    names: set[Any] = set()
    for part in raw.parts():
        if part.pool is not None:
            return None
        names.update(part.action.unique().drop_nulls())
    return sorted(names, key=lambda name: (str(type(name)), name))


def _places(action: polars.Series, actions: Sequence[Any]) -> polars.Series:
    """Actions as places in the list of all."""
    import polars

    return action.replace_strict(list(actions), list(range(len(actions))), return_dtype=polars.Int64)


def _pool_of_all(rounds: RawRounds, actions: Sequence[Any]) -> Pool:
    import polars

    offsets = len(actions) * np.arange(len(rounds) + 1)
    names = polars.Series([str(name) for name in actions] * len(rounds), dtype=polars.String)
    return Pool(offsets=offsets, features=polars.DataFrame(height=int(offsets[-1])), names=names)


def _raw_parts(log: BanditLog) -> Iterator[RawRounds]:
    """A log as rounds with a pool each."""
    import polars

    propensities = log.propensities if log.propensities_known else None
    for rounds in log.chunk_slices(ROWS_AT_A_TIME):
        part = log[rounds]
        mask = np.broadcast_to(part.arrays.mask, (len(part), log.n_actions))
        where = np.nonzero(mask)
        contexts = part.contexts
        shared = polars.DataFrame(contexts, schema=[f"context.{name}" for name in _names(log)], orient="row") \
            if log.joint.kind == "shared" else polars.DataFrame(height=len(part))  # fmt: skip
        own = polars.DataFrame(contexts[where], schema=[f"action.{name}" for name in _names(log)], orient="row") \
            if log.joint.kind == "per action" else polars.DataFrame(height=len(where[0]))  # fmt: skip
        places = np.cumsum(mask, axis=1) - 1
        yield RawRounds(
            source="log",
            lines=np.arange(rounds.start, rounds.stop) + 1,
            features=shared,
            action=polars.Series(places[np.arange(len(part)), part.actions]),
            reward=polars.Series(part.rewards),
            propensity=None if propensities is None else polars.Series(propensities[rounds]),
            time=None if part.times is None else polars.Series(part.times),
            sequence=None if part.sequences is None else polars.Series(part.sequences),
            pool=Pool(
                offsets=np.concatenate([[0], np.cumsum(mask.sum(axis=1))]),
                features=own,
                names=polars.Series(np.asarray(log.action_names)[where[1]]),
                probs=None if part.logging_probs is None else part.logging_probs[where],
            ),
        )


def _names(log: BanditLog) -> Sequence[str]:
    """Names of the features, numbers where there are none."""
    return log.context_names or [str(j) for j in range(log.joint.n_features)]
