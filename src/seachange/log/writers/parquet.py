"""Logs as Parquet files: a row a round, under the names that their columns had."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import RawLog, RawRounds
from seachange.log.readers.kinds import NAMELY_WHOLE
from seachange.outputs import written_whole

if TYPE_CHECKING:
    import polars

WORDS = ("action", "reward", "propensity", "time", "sequence")


def write_parquet(
    log: BanditLog | RawLog | Iterable[RawRounds], path: str | Path, columns: Mapping[str, str] | None = None
) -> None:
    """Write the rounds of a log, raw or not, a part at a time; the file appears whole or not at all.

    ``columns`` names the columns of the action, the reward and so on; without it they are called as they are in a
    RawLog, and by these words otherwise. A BanditLog's contexts are written as numbers, and what was logged of actions
    not taken is left out.
    """
    import polars

    names = dict(columns or (log.columns if not isinstance(log, BanditLog) and hasattr(log, "columns") else {}))
    with written_whole(path) as beside, TemporaryDirectory(prefix="seachange-") as folder:
        parts = []
        for i, frame in enumerate(_frames(log, names)):
            parts.append(Path(folder) / f"{i}.parquet")
            frame.write_parquet(parts[-1])
        if not parts:
            raise LogError("the log is empty: there is nothing to write.")
        # Parts may differ: what was whole in one has decimals in the next, and files of a set may lack columns.
        polars.concat([polars.scan_parquet(part) for part in parts], how="diagonal_relaxed").sink_parquet(beside)


def _frames(log: BanditLog | RawLog | Iterable[RawRounds], names: Mapping[str, str]) -> Iterator[polars.DataFrame]:
    if isinstance(log, BanditLog):
        called = _action_column(log)
        yield from (_frame_of_log(part, names, called) for part in log.chunks())
        return
    for rounds in log.parts() if hasattr(log, "parts") else log:
        if rounds.pool is not None:
            raise LogError(
                "a table has no place for rounds that each have a list of actions of their own; write them as .dsjson."
            )
        held = {word: getattr(rounds, word) for word in WORDS}
        if len(rounds):
            yield _frame({word: column for word, column in held.items() if column is not None}, rounds.features, names)


def _frame_of_log(log: BanditLog, names: Mapping[str, str], called: polars.Series) -> polars.DataFrame:
    import polars

    if log.joint.kind == "per action" or log.masked:
        raise LogError(
            "a table has no place for features of each action or for actions that could not be shown; "
            "write such a log as .dsjson."
        )
    held: dict[str, Any] = {
        "action": called.gather(log.actions),
        "reward": log.rewards,
        "propensity": log.propensities if log.propensities_known else None,
        "time": log.times,
        "sequence": log.sequences,
    }
    series = {word: polars.Series(column) for word, column in held.items() if column is not None}
    return _frame(series, polars.DataFrame(log.contexts, schema=list(log.context_names)), names)


def _frame(
    places: Mapping[str, polars.Series], features: polars.DataFrame, names: Mapping[str, str]
) -> polars.DataFrame:
    """A table of rounds; the places first, each under the name of its column."""
    import polars

    renamed = [column.alias(names.get(word, word)) for word, column in places.items()]
    for column in renamed:
        if column.name in features.columns:
            raise LogError(
                f"two columns cannot have one name; there is also a feature {column.name!r}. Name the others."
            )
    return polars.DataFrame([*renamed, *features.get_columns()])


def _action_column(log: BanditLog) -> polars.Series:
    """The names of the actions; as numbers where all are, so that they keep their order when they are read."""
    import polars

    if all(re.fullmatch(NAMELY_WHOLE, name) for name in log.action_names):
        return polars.Series([int(name) for name in log.action_names])
    return polars.Series(list(log.action_names))
