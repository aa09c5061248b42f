"""From files to logs: one file a format."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seachange.errors import LogError, did_you_mean
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, RawLog, RawRounds
from seachange.log.readers import (
    criteo,
    csv,
    decisions,
    dsjson,
    json_lines,
    open_bandit,
    parquet,
    vw_text,
    yahoo,
)
from seachange.log.readers.sources import files_of
from seachange.log.readers.streams import bare_suffix, head_of, require_narrow
from seachange.log.validation import OnBadRows

if TYPE_CHECKING:
    from seachange.log.features import FeatureSpec


class Format(NamedTuple):
    """A word, how to tell it, and what reads it."""

    word: str
    looks_like: Callable[[Path, bytes], bool]
    reader: Callable[..., RawLog]
    folders: bool = False  # the reader takes a folder
    many: bool = False  # it takes a list of files
    table: bool = False  # whose columns can be named
    told_names: bool = False  # features tell the reader whether actions have names


# In the order in which they are tried: what is told by a mark comes first, what many files look like last.
FORMATS = (
    Format("parquet", parquet.looks_like, parquet.ParquetLog, many=True, table=True),
    Format("open-bandit", open_bandit.looks_like, open_bandit.OpenBanditLog, folders=True),
    Format("yahoo-r6a", yahoo.looks_like, yahoo.YahooLog, folders=True),
    Format("yahoo-r6b", yahoo.looks_like, partial(yahoo.YahooLog, release="yahoo-r6b"), folders=True),
    Format("criteo", criteo.looks_like, criteo.CriteoLog),
    Format("decisions", decisions.looks_like, decisions.DecisionsLog, many=True),
    Format("dsjson", dsjson.looks_like, dsjson.DsjsonLog, many=True, told_names=True),
    Format("vw", vw_text.looks_like, vw_text.VwTextLog, many=True, told_names=True),
    Format("json-lines", json_lines.looks_like, json_lines.JsonLinesLog, many=True, table=True),
    Format("csv", csv.looks_like, csv.CsvLog, many=True, table=True),
    Format("tsv", csv.looks_like, csv.CsvLog, many=True, table=True),
)
# What a name says where the content does not.
SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "json-lines",
    ".ndjson": "json-lines",
    ".json": "json-lines",
}


def open_raw(
    path: str | Path | Sequence[str | Path],
    columns: Mapping[str, str | Sequence[str]] | None = None,
    *,
    features: FeatureSpec | None = None,
    format: str | None = None,
) -> RawLog:
    """The log in a file, a folder of files or all files called like a pattern, as it is stored.

    The format is told by the content and then by the name; ``format`` says it where that is wrong. Of a table only what
    ``features`` are made of is read, where they are given; of lists of actions, they say whether these have names.
    """
    if isinstance(path, str | Path) and Path(path).is_dir():
        folder = Path(path)
        whole = _named(format) if format else _told(folder, b"", columns)
        if whole is not None and whole.folders:
            return whole.reader(folder, columns)
    files = files_of(path)
    told = _named(format) if format else _format_of(files, columns)
    if told.table and features is not None:
        columns = features.words(columns)  # of a table, only what the features are made of need be read
    # What features are made of also says what the texts of a table are, and whether actions have names.
    reader = partial(told.reader, features=features) if told.table or told.told_names else told.reader
    if isinstance(path, str | Path) and Path(path).is_file():
        return reader(files[0], columns)
    return reader(files, columns) if told.many else ManyFiles([reader(file, columns) for file in files])


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

    ``columns`` says where things are: ``{"action": "item_id", "reward": "click", "propensity": "pscore"}``, and where
    there are any ``"time"``, ``"sequence"`` and ``"contexts"`` (a list). Words left out are looked for under their
    usual names; contexts left out are all other columns. ``features`` is a model's FeatureSpec: the same raw columns
    then become the same vector; without one, it is fitted on the log. ``on_disk`` is for logs larger than memory: their
    columns are kept in temporary files and read there. The other words are those of ``BanditLog.from_frame``.
    """
    from seachange.log.encoding import log_from_raw

    return log_from_raw(
        open_raw(path, columns, features=features, format=format),
        features,
        action_names=action_names,
        missing_rewards=missing_rewards,
        on_bad_rows=on_bad_rows,
        on_disk=on_disk,
    )


class ManyFiles:
    """Logs of one format that follow each other."""

    def __init__(self, logs: Sequence[RawLog]) -> None:
        self.logs = logs
        self.format = logs[0].format
        self.columns = logs[0].columns

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """The rounds of one file after another."""
        for log in self.logs:
            yield from log.parts(rows)


def _named(word: str) -> Format:
    by_word = {one.word: one for one in FORMATS}
    if word not in by_word:
        raise LogError(f"format knows {', '.join(by_word)}; it does not know {word!r}.{did_you_mean(word, by_word)}")
    return by_word[word]


def _format_of(files: Sequence[Path], columns: Mapping[str, str | Sequence[str]] | None) -> Format:
    """The format that all files have."""
    told = [_format_of_file(file, columns) for file in files]
    for file, one in zip(files, told, strict=True):
        if one.reader is not told[0].reader:
            campaigns = [file.parent for file, each in zip(files, told, strict=True) if each.word == "open-bandit"]
            if campaigns:
                raise LogError(
                    "of the Open Bandit Dataset, a log is the folder of one policy and one campaign: name "
                    f"{str(campaigns[0])!r}, or another of its {len(campaigns)}."
                )
            raise LogError(
                f"all files of a log must have one format; {files[0].name!r} is {told[0].word} and {file.name!r} is "
                f"{one.word}. Name the files that belong together, as a pattern: 'logs/*.parquet'."
            )
    return told[0]


def _told(path: Path, head: bytes, columns: Mapping[str, str | Sequence[str]] | None) -> Format | None:
    """The first format that looks like it; whoever names columns has a table."""
    return next((one for one in FORMATS if (one.table or not columns) and one.looks_like(path, head)), None)


def _format_of_file(file: Path, columns: Mapping[str, str | Sequence[str]] | None) -> Format:
    head = head_of(file)
    found = _told(file, head, columns)
    if found is None and (word := SUFFIXES.get(bare_suffix(file))):
        found = _named(word)
    if found is None:
        require_narrow(file, head)
        words = ", ".join(one.word for one in FORMATS)
        excel = " Workbooks are not read: save the sheet as CSV." if bare_suffix(file) in (".xlsx", ".xls") else ""
        raise LogError(f"cannot tell the format of {str(file)!r}.{excel} Say it with format=..., or --format: {words}.")
    return found
