"""The Open Bandit Dataset: the folder of a campaign with its log and its items, as ZOZO delivers them.

random/all/all.csv           timestamp, item_id, position, click, propensity_score, user_feature_…, user-item_affinity_…
random/all/item_context.csv  item_id, item_feature_…

User features are hashed words and become categories, and so does the position, which was known before the item was
chosen. ``item_features`` and ``affinities`` describe the items with one row per item and round, 80 times the rounds.
"""

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from seachange.errors import LogError
from seachange.formats.action_lists import MAX_LINES, line_batches
from seachange.formats.column_roles import Columns, require_no_columns
from seachange.formats.sources import blocks_of, head_of, is_utf8, shown
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected

COLUMNS = {"action": "item_id", "reward": "click", "propensity": "propensity_score", "time": "timestamp"}
NEEDED = ("item_id", "position", "click", "propensity_score", "timestamp")
USER, AFFINITY, ITEM = "user_feature_", "user-item_affinity_", "item_feature_"
EXPECTED = (*NEEDED, f"{USER}0")
ITEMS = "item_context.csv"
CAMPAIGNS = ("all", "men", "women")
TIME = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2} [0-9]{2}(:[0-5][0-9]){2}(\.[0-9]{1,6})?[+-]([01][0-9]|2[0-3]):[0-5][0-9]$"
WHOLE = r"^[0-9]{1,9}$"
NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?$"
# The form and the rule of each column; columns of affinities have the last ones.
RULES = {
    "item_id": (WHOLE, "item_id must be a whole number"),
    "position": (WHOLE, "position must be a whole number"),
    "click": (NUMBER, "click must be a number"),
    "propensity_score": (NUMBER, "propensity_score must be a number"),
    "timestamp": (TIME, "timestamp must be a time with its zone, such as 2019-11-24 00:00:17.004101+00:00"),
    AFFINITY: (NUMBER, f"{AFFINITY}… must be numbers"),
}


class OpenBanditLog:
    """The folder of a campaign, or just its log."""

    format = "open-bandit"
    columns: dict[str, str] = COLUMNS

    def __init__(
        self,
        path: str | Path,
        columns: Columns | None = None,
        *,
        item_features: bool = False,
        affinities: bool = False,
    ) -> None:
        require_no_columns(columns, "the Open Bandit Dataset")
        self.path, self.item_features, self.affinities = Path(path), item_features, affinities

    @cached_property
    def log_path(self) -> Path:
        """The log file."""
        if not self.path.is_dir():
            return self.path
        logs = _logs_in(self.path)
        if len(logs) != 1:
            names = ", ".join(path.name for path in sorted(self.path.iterdir())) or "nothing"
            raise LogError(
                f"the folder of a campaign must have one of all.csv, men.csv and women.csv; {str(self.path)!r} has "
                f"{names}. Name the folder of one policy and one campaign, such as random/all."
            )
        return logs[0]

    @cached_property
    def items(self) -> pl.DataFrame:
        """The features of the items, ordered by item_id."""
        path = self.log_path.with_name(ITEMS)
        if not path.is_file():
            raise LogError(f"item_features needs the file {str(path)!r}, which does not exist.")
        try:
            table = pl.read_csv(path)
        except (pl.exceptions.PolarsError, OSError) as error:
            raise LogError(f"{str(path)!r} cannot be read: {error}.") from error
        if not {"item_id", f"{ITEM}0"} <= set(table.columns):
            raise LogError(f"{str(path)!r} has no columns item_id and {ITEM}0; it has {', '.join(table.columns)}.")
        table = table.sort("item_id")
        if table["item_id"].to_list() != list(range(len(table))):
            raise LogError(f"item_id of {str(path)!r} must have each number from 0 up once.")
        if self.affinities and len(table) != len(self.affinity_columns):
            raise LogError(
                f"the number of items must be the same in both files; {ITEMS} has {len(table)}, "
                f"{self.log_path.name} has affinities for {len(self.affinity_columns)}."
            )
        return table.select(name for name in table.columns if name.startswith(ITEM))

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns."""
        header = _header(head_of(self.log_path))
        if absent := [name for name in EXPECTED if name not in header]:
            raise LogError(
                f"{str(self.log_path)!r} has no column {absent[0]!r}; a log of the Open Bandit Dataset has "
                f"{', '.join(EXPECTED)}."
            )
        name, count = Counter(header).most_common(1)[0]
        if count > 1:
            raise LogError(f"{str(self.log_path)!r} has the column {name!r} twice.")
        return header

    @property
    def affinity_columns(self) -> list[str]:
        """The columns of affinities that are read: one per item."""
        return [name for name in self.header if name.startswith(AFFINITY) and self.affinities]

    @property
    def n_items(self) -> int:
        """The number of items whose features or affinities are read."""
        return len(self.items) if self.item_features else len(self.affinity_columns)

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, at most ``rows`` at a time."""
        for batch in line_batches(blocks_of(self.log_path), min(rows, MAX_LINES)):
            skipped = int(batch.first == 1)  # the header
            part = self._part(list(enumerate(batch.lines, batch.first))[skipped:])
            if len(part) or part.rejected:
                yield part

    def _part(self, numbered: list[tuple[int, bytes]]) -> RawRounds:
        header, kept, rejected = self.header, [], []
        for number, content in numbered:
            line = content.removesuffix(b"\r")
            if (n_fields := line.count(b",") + 1) != len(header):
                reason = f"a line must have {len(header)} fields; this one has {n_fields}"
            elif b"\r" in line or not is_utf8(line):
                reason = "the line is not UTF-8 text, or has a carriage return within"
            else:
                kept.append((number, line))
                continue
            if line.strip():
                rejected.append(Rejected(self.log_path.name, number, reason, shown(line)))
        lines = np.array([number for number, _ in kept], np.int64)
        users = [name for name in header if name.startswith(USER)]
        checked = {name: RULES.get(name, RULES[AFFINITY]) for name in (*NEEDED, *self.affinity_columns)}
        texts = _texts(b"".join(line + b"\n" for _, line in kept), header, [*checked, *users])
        typed = texts.with_columns(_typed(name, form) for name, (form, _) in checked.items())
        broken = [pl.when(pl.col(name).is_null()).then(pl.lit(rule)) for name, (_, rule) in checked.items()]
        pooled = self.item_features or self.affinities
        if pooled:
            unknown = pl.lit("item_id must be one of the campaign's items")
            broken.append(pl.when(pl.col("item_id") >= self.n_items).then(unknown))
        reasons = typed.select(reason=pl.coalesce(broken))["reason"]
        sound = reasons.is_null()
        for place in sound.not_().arg_true():
            number, line = kept[place]
            rejected.append(Rejected(self.log_path.name, number, reasons[place], shown(line)))
        typed = typed.filter(sound)
        return RawRounds(
            source=self.log_path.name,
            lines=lines[sound.to_numpy()],
            features=typed.select(*users, pl.col("position").cast(pl.String)),
            action=typed["item_id"].alias("action"),
            reward=typed["click"].alias("reward"),
            propensity=typed["propensity_score"].alias("propensity"),
            time=typed["timestamp"].alias("time"),
            pool=self._pool(typed) if pooled else None,
            rejected=tuple(sorted(rejected, key=lambda each: each.line)),
        )

    def _pool(self, typed: pl.DataFrame) -> Pool:
        n, n_items = len(typed), self.n_items
        numbers = np.tile(np.arange(n_items), n)
        columns = list(self.items[numbers]) if self.item_features else []
        if self.affinities:
            columns.append(pl.Series("affinity", typed.select(self.affinity_columns).to_numpy().ravel()))
        return Pool(np.arange(n + 1) * n_items, pl.DataFrame(columns), pl.Series("item_id", numbers))


def looks_like(path: Path, head: bytes) -> bool:
    """Whether the first line has the columns of a campaign's log, or this is the folder of a campaign."""
    if path.is_dir():
        return (path / ITEMS).is_file() and len(_logs_in(path)) == 1
    return {*EXPECTED} <= {*_header(head)}


def _header(head: bytes) -> list[str]:
    return head.split(b"\n")[0].rstrip(b"\r").decode("utf-8", "replace").split(",")


def _logs_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name.split(".")[0] in CAMPAIGNS)


def _texts(content: bytes, header: list[str], wanted: list[str]) -> pl.DataFrame:
    """The wanted columns of whole lines, as text."""
    if not content:
        return pl.DataFrame(schema=dict.fromkeys(wanted, pl.String))
    names = ",".join(header).encode() + b"\n"
    return pl.read_csv(BytesIO(names + content), columns=wanted, infer_schema=False, quote_char=None).select(wanted)


def _typed(name: str, form: str) -> pl.Expr:
    """The values of a column of texts; null if they do not have the form."""
    texts = pl.col(name)
    values = {
        TIME: texts.str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", time_unit="us", strict=False).dt.replace_time_zone(None),
        WHOLE: texts.cast(pl.Int64, strict=False),
        NUMBER: texts.cast(pl.Float64, strict=False).replace([math.inf, -math.inf], None),
    }
    return pl.when(texts.str.contains(form)).then(values[form]).alias(name)
