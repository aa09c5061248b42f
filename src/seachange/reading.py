"""read_log(): any supported file → BanditLog, and write_log() back. All formats are listed here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seachange.datasets import criteo, open_bandit, yahoo_r6
from seachange.datasets.obp import log_from_obp
from seachange.errors import LogError, did_you_mean
from seachange.formats import csv, decisions, dsjson, json_lines, parquet, vw_text
from seachange.formats.column_roles import Columns
from seachange.formats.decisions import DecisionLog
from seachange.formats.sources import Paths, bare_suffix, files_of, head_of
from seachange.formats.table import FrameLog
from seachange.log.bandit_log import BanditLog, set_frame_reader
from seachange.log.encoding import log_from_raw
from seachange.log.features import FeatureSpec
from seachange.log.raw import PART_ROWS, RawLog, RawRounds
from seachange.log.validation import OnBadRows

__all__ = ["BanditLog", "DecisionLog", "log_from_obp", "read_log", "write_log"]


class Format(NamedTuple):
    """A file format: its name, how to recognize it, and its reader."""

    name: str
    looks_like: Callable[[Path, bytes], bool]  # given a path and the first bytes of the file
    reader: Callable[..., RawLog]
    folders: bool = False  # the reader takes a folder
    many: bool = False  # the reader takes a list of files, and features
    table: bool = False  # columns can be mapped to roles


# Tried in this order: formats with a clear signature first, formats that many files resemble last.
FORMATS = [
    Format("parquet", parquet.looks_like, parquet.ParquetLog, many=True, table=True),
    Format("open-bandit", open_bandit.looks_like, open_bandit.OpenBanditLog, folders=True),
    Format("yahoo-r6a", yahoo_r6.looks_like, yahoo_r6.YahooLog, folders=True),
    Format("yahoo-r6b", yahoo_r6.looks_like, partial(yahoo_r6.YahooLog, release="yahoo-r6b"), folders=True),
    Format("criteo", criteo.looks_like, criteo.CriteoLog),
    Format("decisions", decisions.looks_like, decisions.DecisionsLog, many=True),
    Format("dsjson", dsjson.looks_like, dsjson.DsjsonLog, many=True),
    Format("vw", vw_text.looks_like, vw_text.VwTextLog, many=True),
    Format("json-lines", json_lines.looks_like, json_lines.JsonLinesLog, many=True, table=True),
    Format("csv", csv.looks_like, csv.CsvLog, many=True, table=True),
    Format("tsv", csv.looks_like, csv.CsvLog, many=True, table=True),
]
# The format by file name, for files whose content does not decide.
SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "json-lines",
    ".ndjson": "json-lines", ".json": "json-lines",
}  # fmt: skip
WRITERS: dict[str, Callable[[Any, Path], object]] = {
    ".parquet": parquet.write_parquet, ".dsjson": dsjson.write_dsjson, ".json": dsjson.write_dsjson,
}  # fmt: skip


def open_raw(
    path: Paths, columns: Columns | None = None, *, features: FeatureSpec | None = None, format: str | None = None
) -> RawLog:
    """Open a file, a folder of files or a pattern as a raw log.

    The format is detected from the content, then from the name, unless ``format`` sets it. With ``features``, only the
    columns they use are read from a table.
    """
    if columns is not None and not isinstance(columns, Mapping):
        raise LogError(f'columns must be a dictionary, such as {{"action": "item_id"}}; got {columns!r}.')
    paths = [path] if isinstance(path, str | Path) or not isinstance(path, Sequence) else path
    if not all(isinstance(each, str | Path) for each in paths):
        raise LogError(f"a log is read from a path; got a {type(path).__name__}. For tables, use BanditLog.from_frame.")
    if isinstance(path, str | Path) and Path(path).is_dir():
        folder = Path(path)
        whole = _by_name(format) if format else _detected(folder, b"", columns)
        if whole is not None and whole.folders:
            return whole.reader(folder, columns)
    files = files_of(path)
    found = _by_name(format) if format else _format_of(files, columns)
    if found.table and features is not None:
        columns = features.words(columns)
    one = isinstance(path, str | Path) and Path(path).is_file()
    if found.many:
        return found.reader(files[0] if one else files, columns, features=features)
    logs = [found.reader(file, columns) for file in files]
    return logs[0] if one else ManyFiles(logs)


def read_log(
    path: str | Path | Sequence[str | Path],
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    features: FeatureSpec | None = None,
    format: str | None = None,
    action_names: Sequence[str] | None = None,
    missing_rewards: bool = False,
    on_bad_rows: OnBadRows = "raise",
    on_disk: bool = False,
) -> BanditLog:
    """Read a log from any supported file, folder or pattern.

    ``columns`` maps roles to columns: ``{"action": "item_id", "reward": "click", "propensity": "pscore"}``, and
    optionally ``"time"``, ``"sequence"`` and ``"contexts"`` (a list). Roles that are not mapped are detected by their
    usual names; by default all other columns are contexts. Pass a model's ``features`` to encode the columns as the
    model does; otherwise the encoding is fitted to this log. ``on_disk=True`` keeps the columns of a log larger than
    memory in temporary files. The other parameters are those of ``BanditLog.from_frame``.
    """
    return log_from_raw(
        open_raw(path, columns, features=features, format=format), features, action_names=action_names,
        missing_rewards=missing_rewards, on_bad_rows=on_bad_rows, on_disk=on_disk,
    )  # fmt: skip


def write_log(log: BanditLog, path: str | Path) -> None:
    """Write a log in the format of the file name: Parquet or dsjson. The file appears whole or not at all."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise LogError(f"cannot write {str(path)!r}: the name must end in {', '.join(WRITERS)}.")
    WRITERS[suffix](log, Path(path))


class ManyFiles:
    """Several files of one format, read one after another."""

    def __init__(self, logs: Sequence[RawLog]) -> None:
        self.logs = logs
        self.format = logs[0].format
        self.columns = logs[0].columns

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, at most ``rows`` at a time."""
        for log in self.logs:
            yield from log.parts(rows)


def _by_name(name: str) -> Format:
    known = {one.name: one for one in FORMATS}
    if name not in known:
        raise LogError(f"format must be one of {', '.join(known)}; got {name!r}.{did_you_mean(name, known)}")
    return known[name]


def _format_of(files: Sequence[Path], columns: Columns | None) -> Format:
    """The format of all ``files``."""
    formats = [_format_of_file(file, columns) for file in files]
    other = next((i for i, each in enumerate(formats) if each.reader is not formats[0].reader), None)
    if other is None:
        return formats[0]
    if campaigns := [file.parent for file, each in zip(files, formats, strict=True) if each.name == "open-bandit"]:
        raise LogError(
            "a log of the Open Bandit Dataset is the folder of one policy and one campaign. Pass "
            f"{str(campaigns[0])!r}, or another of its {len(campaigns)}."
        )
    raise LogError(
        f"all files of a log must have the same format; {files[0].name!r} is {formats[0].name} and "
        f"{files[other].name!r} is {formats[other].name}. Select the files of one format with a pattern: "
        "'logs/*.parquet'."
    )


def _detected(path: Path, head: bytes, columns: Columns | None) -> Format | None:
    """The first format that fits; only tables have columns to map."""
    return next((one for one in FORMATS if (one.table or not columns) and one.looks_like(path, head)), None)


def _format_of_file(file: Path, columns: Columns | None) -> Format:
    found = _detected(file, head_of(file), columns)
    if found is None and (name := SUFFIXES.get(bare_suffix(file))):
        found = _by_name(name)
    if found is None:
        excel = bare_suffix(file).startswith(".xls")
        hint = " Excel workbooks are not supported: save the sheet as CSV." if excel else ""
        names = ", ".join(one.name for one in FORMATS)
        raise LogError(
            f"the format of {str(file)!r} could not be detected.{hint} Set it with format=... (--format): {names}."
        )
    return found


def _log_from_frame(frame: Any, columns: Any, *, features: Any, **options: Any) -> BanditLog:
    return log_from_raw(FrameLog(frame, columns or {}, features), features, **options)


set_frame_reader(_log_from_frame)
