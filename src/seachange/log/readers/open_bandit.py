"""The Open Bandit Dataset: a campaign's folder with its log and its items, as ZOZO delivers them.

random/all/all.csv           timestamp, item_id, position, click, propensity_score, user_feature_…, user-item_affinity_…
random/all/item_context.csv  item_id, item_feature_…

User features are hashed words and become categories; so does the position, which was known before the item was chosen.
``item_features`` and ``affinities`` describe the items, a row for every item and round: 80 times as many as rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected
from seachange.log.readers.lines import shown
from seachange.log.readers.places import require_no_columns
from seachange.log.readers.streams import head_of
from seachange.log.readers.text_blocks import line_blocks

if TYPE_CHECKING:
    import polars

COLUMNS = {"action": "item_id", "reward": "click", "propensity": "propensity_score", "time": "timestamp"}
NEEDED = ("item_id", "position", "click", "propensity_score", "timestamp")
USER, AFFINITY, ITEM = "user_feature_", "user-item_affinity_", "item_feature_"
ITEMS = "item_context.csv"
CAMPAIGNS = ("all", "men", "women")
LINE_END, COMMA = ord("\n"), ord(",")
TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2} [0-9]{2}(:[0-5][0-9]){2}(\.[0-9]{1,6})?[+-]([01][0-9]|2[0-3]):[0-5][0-9]$"
WHOLE = r"^[0-9]{1,9}$"
NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"
NO_TEXT = "a line must be UTF-8, with line ends at its end only"
RULES = {
    "timestamp": (TIME, "timestamp must be a time with its zone, as 2019-11-24 00:00:17.004101+00:00"),
    "item_id": (WHOLE, "item_id must be a whole number"),
    "position": (WHOLE, "position must be a whole number"),
    "click": (NUMBER, "click must be a number"),
    "propensity_score": (NUMBER, "propensity_score must be a number"),
}


class OpenBanditLog:
    """A campaign's folder, or its log alone."""

    format = "open-bandit"
    columns: dict[str, str] = COLUMNS

    def __init__(
        self,
        path: str | Path,
        columns: Mapping[str, Any] | None = None,
        *,
        item_features: bool = False,
        affinities: bool = False,
    ) -> None:
        require_no_columns(columns, "the Open Bandit Dataset")
        self.path = Path(path)
        self.item_features = item_features
        self.affinities = affinities

    @cached_property
    def log_path(self) -> Path:
        """The campaign's log."""
        if not self.path.is_dir():
            return self.path
        logs = _logs_in(self.path)
        if len(logs) != 1:
            names = ", ".join(path.name for path in sorted(self.path.iterdir())) or "nothing"
            raise LogError(
                f"the folder of a campaign has one of all.csv, men.csv and women.csv; {str(self.path)!r} has {names}. "
                "Name the folder of one policy and one campaign, as random/all."
            )
        return logs[0]

    @cached_property
    def items(self) -> polars.DataFrame:
        """The items' own features, in the order of their numbers."""
        import polars as pl

        path = self.log_path.with_name(ITEMS)
        if not path.is_file():
            raise LogError(f"there is no file {str(path)!r} with the items' features.")
        try:
            table = pl.read_csv(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise LogError(f"{str(path)!r} cannot be read: {error}.") from error
        if not {"item_id", f"{ITEM}0"} <= set(table.columns):
            raise LogError(f"{str(path)!r} has no columns item_id and {ITEM}0; it has {', '.join(table.columns)}.")
        table = table.sort("item_id")
        if table["item_id"].to_list() != list(range(len(table))):
            raise LogError(f"item_id of {str(path)!r} must count from 0 on, each number once.")
        return table.select(name for name in table.columns if name.startswith(ITEM))

    @cached_property
    def header(self) -> list[str]:
        """The names of the log's columns."""
        header = head_of(self.log_path).split(b"\n")[0].rstrip(b"\r").decode("utf-8", "replace").split(",")
        needed = (*NEEDED, f"{USER}0")
        if absent := [name for name in needed if name not in header]:
            raise LogError(
                f"{str(self.log_path)!r} has no column {absent[0]!r}; a log of the Open Bandit Dataset has "
                f"{', '.join(needed)}."
            )
        if twice := [name for name in header if header.count(name) > 1]:
            raise LogError(f"{str(self.log_path)!r} has the column {twice[0]!r} twice.")
        return header

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, at most ``rows`` at a time."""
        header, line = self.header, 1
        for block in line_blocks(self.log_path):
            text = np.frombuffer(block, dtype=np.uint8)
            ends = np.flatnonzero(text == LINE_END) + 1
            if not block.endswith(b"\n"):
                ends = np.append(ends, len(text))
            for first in range(1 if line == 1 else 0, len(ends), rows):  # the first line of all is the header
                last = min(first + rows, len(ends))
                begin = ends[first - 1] if first else 0
                part = self._part(block[begin : ends[last - 1]], ends[first:last] - begin, line + first, header)
                if len(part) or part.rejected:
                    yield part
            line += len(ends)

    def _part(self, block: bytes, ends: Any, line: int, header: list[str]) -> RawRounds:
        import polars as pl

        kept, lines, rejected = _whole_lines(block, ends, line, len(header), self.log_path.name)
        users = [name for name in header if name.startswith(USER)]
        affinities = [name for name in header if name.startswith(AFFINITY)] if self.affinities else []
        texts = _texts(kept, header, [*NEEDED, *users, *affinities])
        times = pl.col("timestamp").str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", time_unit="us", strict=False)
        typed = texts.with_columns(
            times.dt.replace_time_zone(None),
            pl.col("item_id", "position").cast(pl.Int64, strict=False),
            pl.col("click", "propensity_score", *affinities).cast(pl.Float64, strict=False),
        )
        reasons = self._reasons(texts, typed, affinities)
        sound = reasons.is_null()
        for place in sound.not_().arg_true():
            line_text = shown(",".join(each or "" for each in texts.row(place)).encode())
            rejected.append(Rejected(self.log_path.name, int(lines[place]), reasons[place], line_text))
        typed = typed.filter(sound)
        return RawRounds(
            source=self.log_path.name,
            lines=lines[sound.to_numpy()],
            features=typed.select(*users, pl.col("position").cast(pl.String)),
            action=typed["item_id"].alias("action"),
            reward=typed["click"].alias("reward"),
            propensity=typed["propensity_score"].alias("propensity"),
            time=typed["timestamp"].alias("time"),
            pool=self._pool(typed, affinities) if self.item_features or self.affinities else None,
            rejected=tuple(sorted(rejected, key=lambda each: each.line)),
        )

    def _reasons(self, texts: polars.DataFrame, typed: polars.DataFrame, affinities: list[str]) -> polars.Series:
        """The first rule that each line breaks; null where it breaks none."""
        import polars as pl

        reasons = pl.Series("reason", [None], dtype=pl.String).new_from_index(0, len(texts))
        for name in reversed([*NEEDED, *affinities]):
            form, rule = RULES.get(name, (NUMBER, f"{AFFINITY}… must be numbers"))
            wrong = ~texts[name].str.contains(form).fill_null(False) | typed[name].is_null()
            if typed[name].dtype == pl.Float64:
                wrong |= ~typed[name].is_finite().fill_null(False)
            reasons = reasons.set(wrong, rule)
        if self.item_features or self.affinities:
            unknown = (typed["item_id"] >= self._n_items(affinities)).fill_null(False) & reasons.is_null()
            reasons = reasons.set(unknown, "item_id must be one of the campaign's items")
        return reasons

    def _n_items(self, affinities: list[str]) -> int:
        if self.item_features and self.affinities and len(self.items) != len(affinities):
            raise LogError(
                f"the items must be as many as the affinities; {ITEMS} has {len(self.items)}, "
                f"{self.log_path.name} {len(affinities)}."
            )
        return len(self.items) if self.item_features else len(affinities)

    def _pool(self, typed: polars.DataFrame, affinities: list[str]) -> Pool:
        from polars import DataFrame, Series

        n, n_items = len(typed), self._n_items(affinities)
        numbers = np.tile(np.arange(n_items), n)
        columns = list(self.items[numbers]) if self.item_features else []
        if self.affinities:
            columns.append(Series("affinity", typed.select(affinities).to_numpy().ravel()))
        return Pool(np.arange(n + 1) * n_items, DataFrame(columns), Series("item_id", numbers))


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line names the columns of a campaign's log, or this is a campaign's folder."""
    if path.is_dir():
        return (path / ITEMS).is_file() and len(_logs_in(path)) == 1
    header = head.split(b"\n")[0].rstrip(b"\r").decode("utf-8", "replace").split(",")
    return all(name in header for name in (*NEEDED, f"{USER}0"))


def _logs_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name.split(".")[0] in CAMPAIGNS)


def _whole_lines(block: bytes, ends: Any, line: int, n_columns: int, source: str) -> tuple[bytes, Any, list[Rejected]]:
    """The lines of ``block`` that have as many fields as there are columns, their numbers, and the others."""
    begins = np.append(0, ends[:-1])
    commas = np.searchsorted(np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == COMMA), np.append(0, ends))
    kept = np.diff(commas) == n_columns - 1
    if not block.isascii() or b"\r" in block.replace(b"\r\n", b""):
        for place in range(len(ends)):
            kept[place] &= _is_text(block[begins[place] : ends[place]])
    rejected = []
    for place in np.flatnonzero(~kept).tolist():
        content = block[begins[place] : ends[place]]
        if content.strip():
            fields = content.count(b",") + 1
            reason = f"a line must have {n_columns} fields; this one has {fields}" if fields != n_columns else NO_TEXT
            rejected.append(Rejected(source, line + place, reason, shown(content)))
    whole = block if kept.all() else b"".join(block[begins[i] : ends[i]] for i in np.flatnonzero(kept))
    return whole.replace(b"\r\n", b"\n"), line + np.flatnonzero(kept), rejected


def _is_text(content: bytes) -> bool:
    try:
        return "\r" not in content.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        return False


def _texts(content: bytes, header: list[str], wanted: list[str]) -> polars.DataFrame:
    """The wanted columns of lines that are whole, as text."""
    import polars as pl

    if not content:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.String))
    names = ",".join(header).encode() + b"\n"
    return pl.read_csv(BytesIO(names + content), columns=wanted, infer_schema=False, quote_char=None).select(wanted)
