"""Yahoo!'s front page clicks: releases R6A and R6B of Webscope, as delivered.

    R6A  time id click |user i:v … (six) |id i:v … (six) |id …       i from 1 to 6, v a decimal number
    R6B  time id-n click |user i … (at least one) |id-n |id-n …      i from 1 to 136

One line is one visit. The article was drawn uniformly from the pool on its line, so its propensity is one over the
number of articles in the pool. Articles repeat from line to line, so the text of each is parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError
from seachange.formats.action_lists import line_batches
from seachange.formats.column_roles import require_no_columns
from seachange.formats.sources import blocks_of, head_of, shown
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected

if TYPE_CHECKING:
    import polars

R6A, R6B = "yahoo-r6a", "yahoo-r6b"
DAYS = {
    R6A: re.compile(r"ydata-fp-td-clicks-v1_0\.\d{8}(\.gz)?"),
    R6B: re.compile(r"ydata-fp-td-clicks-v2_0\.\d{8}(\.gz)?"),
}
EXPECTED = "ydata-fp-td-clicks-v1_0.200905DD(.gz) for R6A or ydata-fp-td-clicks-v2_0.201110DD(.gz) for R6B"
FIRST_WORDS = {
    R6A: re.compile(rb"\s*\d+\s+\d+\s+[01]\s+\|user\s"),
    R6B: re.compile(rb"\s*\d+\s+id-\d+\s+[01]\s+\|user\s"),
}
HEAD_LINES = 20  # the release is that of most of the first lines
COLUMNS = {
    "action": "the article shown",
    "reward": "click",
    "propensity": "1 / articles in the pool",
    "time": "unix time",
}
N_VALUES, N_USER_FEATURES = 6, 136
INDICES = tuple(str(i).encode() for i in range(1, N_VALUES + 1))
MAX_DIGITS = 18  # of whole numbers
MAX_ARTICLES, MAX_POOLS = 1 << 16, 1 << 10  # texts of articles and of pools that are kept
MAX_POOL_BYTES = 1 << 14  # longer ones are not kept
DECIMAL = re.compile(rb"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
# A line of R6A up to its pool, as nearly all are.
USUAL_LINE = re.compile(
    rb"([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]+([01])[ \t]+\|user"
    + rb"[ \t]+([1-6]):(-?[0-9]+\.?[0-9]*)" * 6
    + rb"[ \t]+\|"
)
# Characters that bytes.split takes for blanks, though only spaces and tabs are.
OTHER_BLANKS = bytes.maketrans(b"\r\x0b\x0c", b"???")

OTHER_RELEASE = "the line is of {release}"
WRONG_FIELDS = "a visit has 10 fields and 7 more per article; this line has {n}"
BAD_TIME = "the time must be a whole number of seconds"
BAD_SHOWN = "the article shown must be {article}"
BAD_CLICK = "the click must be 0 or 1"
NO_USER = "the fourth field must be |user"
NOT_PAIR = "a feature must be an index, a colon and a value"
BAD_VALUE = "the value of a feature must be a decimal number"
BAD_INDEX = "the index of a feature must be a whole number from 1 to {most}"
REPEATED_INDEX = "an index occurs twice"
MISSING_VALUES = "one of the six features is missing"
MISSING_CONSTANT = "user feature 1 is missing"
BAD_ARTICLE = "an article of the pool must be | and {article}"
EMPTY_POOL = "the pool is empty"
REPEATED_ARTICLE = "an article is in the pool twice"
NOT_IN_POOL = "the article shown is not in the pool"
ARTICLE = {R6A: "a whole number", R6B: "id- and a whole number"}


class YahooLog:
    """One day's file, or a folder of days, read in the order of their dates: the first ``n_days``, or all.

    ``release`` rejects files of the other release; by default, the first lines decide.
    """

    columns: dict[str, str] = COLUMNS

    def __init__(
        self,
        path: str | Path,
        columns: Mapping[str, Any] | None = None,
        *,
        release: str | None = None,
        n_days: int | None = None,
    ) -> None:
        require_no_columns(columns, "Yahoo!'s R6 format")
        if release not in (None, R6A, R6B):
            raise LogError(f"release must be {R6A!r} or {R6B!r}; got {release!r}.")
        self.path = Path(path)
        self.release = release
        self.n_days = n_days

    @cached_property
    def days(self) -> list[Path]:
        """The files."""
        return days_of(self.path)[: self.n_days] if self.path.is_dir() else [self.path]

    @cached_property
    def format(self) -> str:
        """The release: yahoo-r6a or yahoo-r6b."""
        release = release_of(head_of(self.days[0]))
        if release is None:
            raise LogError(
                f"{str(self.days[0])!r} is not a file of R6A or R6B: none of its first lines starts with a time, an "
                "article, a click and |user."
            )
        if self.release not in (None, release):
            raise LogError(f"{str(self.days[0])!r} is a file of {release}, not of {self.release}.")
        return release

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, at most ``rows`` at a time."""
        rounds = 0
        for day in self.days:
            try:
                if (found := release_of(head_of(day))) not in (None, self.format):
                    raise LogError(
                        f"{str(day)!r} is a file of {found}, but {str(self.days[0])!r} is one of {self.format}. "
                        "Read each release separately."
                    )
                for part in self._parts_of(day, rows):
                    rounds += len(part)
                    yield part
            except LogError as error:
                raise LogError(f"{error} {rounds:,} rounds were read before.") from error

    def _parts_of(self, day: Path, rows: int) -> Iterator[RawRounds]:
        visits = _Visits() if self.format == R6A else _R6bVisits()
        for batch in line_batches(blocks_of(day)):
            text = batch.text
            if any(blank in text for blank in (b"\r", b"\x0b", b"\x0c")):
                text = (text + b"\n").replace(b"\r\n", b"\n")[:-1].translate(OTHER_BLANKS)
            for number, line in enumerate(text.split(b"\n"), batch.first):
                if line and not line.isspace():
                    visits.add(number, line)
                    if len(visits.lines) == rows:
                        yield visits.rounds(day.name)
            if visits.lines or visits.rejected:
                yield visits.rounds(day.name)


def looks_like(path: Path, head: bytes) -> bool:
    """Whether these are the first lines of R6A or R6B, or a folder of their days."""
    if path.is_dir():
        return any(day.fullmatch(file.name) for file in path.iterdir() for day in DAYS.values())
    return release_of(head) is not None


def release_of(head: bytes) -> str | None:
    """The release of most of the first lines."""
    lines = head.splitlines()[:HEAD_LINES]
    found = {release: sum(words.match(line) is not None for line in lines) for release, words in FIRST_WORDS.items()}
    return max(found, key=lambda release: found[release]) if any(found.values()) else None


def days_of(folder: Path) -> list[Path]:
    """The days in a folder of one release, in order."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    found = {release: [name for name in names if day.fullmatch(name)] for release, day in DAYS.items()}
    days = found[R6A] or found[R6B]
    if not days:
        held = f"it has {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else "it is empty"
        raise LogError(f"{str(folder)!r} has no files named {EXPECTED}; {held}.")
    if found[R6A] and found[R6B]:
        raise LogError(f"{str(folder)!r} has days of R6A and of R6B; use a separate folder for each release.")
    for name in days:
        if f"{name}.gz" in days:
            raise LogError(f"{str(folder)!r} has {name!r} twice, plain and as .gz; delete one of them.")
    return [folder / name for name in days]


class _BadLineError(Exception):
    """A line that is rejected; the argument is the reason."""


class _Visits:
    """The visits of R6A that the next part will hold."""

    release = R6A

    def __init__(self) -> None:
        self.codes: dict[bytes, int] = {}  # text of an article → its place in the next two lists
        self.ids: list[int] = []
        self.values: list[tuple[float, ...]] = []
        self.known_pools: dict[bytes, tuple[list[int], list[int]]] = {}
        self._clear()

    def _clear(self) -> None:
        self.lines: list[int] = []
        self.rejected: list[tuple[int, str, bytes]] = []
        self.heads: list[tuple[int, int, int, int]] = []  # time, place of the article, click, articles in the pool
        self.users: list[Any] = []
        self.pools: list[int] = []
        if len(self.codes) > MAX_ARTICLES:
            self.codes, self.ids, self.values = {}, [], []
        if not self.codes or len(self.known_pools) > MAX_POOLS:
            self.known_pools = {}

    def add(self, number: int, line: bytes) -> None:
        """Add a visit, or reject its line."""
        try:
            self._add(line)
            self.lines.append(number)
        except _BadLineError as error:
            reason = str(error)
            if (release := release_of(line)) not in (None, self.release):
                reason = OTHER_RELEASE.format(release=release)
            elif self.release == R6A and (len(line.split()) - 10) % 7:
                reason = WRONG_FIELDS.format(n=len(line.split()))
            self.rejected.append((number, reason, line))

    def _add(self, line: bytes) -> None:
        time, shown_id, click, user, text = self._usual_line(line) or self._parsed(line)
        codes, ids = self.known_pools.get(text) or self._pool(text)
        if shown_id not in ids:
            raise _BadLineError(NOT_IN_POOL)
        self.heads.append((time, ids.index(shown_id), click, len(ids)))
        self.users.append(user)
        self.pools += codes

    def _pool(self, text: bytes) -> tuple[list[int], list[int]]:
        """Codes and ids of the articles in a pool."""
        codes = [self._code(article) for article in (text + b" ").split(b"|")] if text else []
        ids = [self.ids[code] for code in codes]
        if not ids:
            raise _BadLineError(EMPTY_POOL)
        if len(set(ids)) < len(ids):
            raise _BadLineError(REPEATED_ARTICLE)
        if len(text) <= MAX_POOL_BYTES:
            self.known_pools[text] = codes, ids
        return codes, ids

    def _usual_line(self, line: bytes) -> tuple[int, int, int, Any, bytes] | None:
        """What ``_parsed`` returns, sooner, for lines in the usual form; None for others."""
        if (found := USUAL_LINE.match(line)) is None:
            return None
        time, shown_id, click, *pairs = found.groups()
        values = dict(zip(pairs[::2], map(float, pairs[1::2]), strict=True))
        if len(values) < N_VALUES:
            return None
        user = tuple(map(values.__getitem__, INDICES))
        return int(time), int(shown_id), int(click), user, line[found.end() :]

    def _parsed(self, line: bytes) -> tuple[int, int, int, Any, bytes]:
        """Time, article shown, click, user, and the text of the pool after its first bar."""
        head, *parts = (line + b" ").split(b"|", 2)
        words = head.split()
        if not words or not _is_whole(words[0]):
            raise _BadLineError(BAD_TIME)
        if len(words) < 2 or (shown_id := self._id(words[1])) is None:
            raise _BadLineError(BAD_SHOWN.format(article=ARTICLE[self.release]))
        if len(words) < 3 or words[2] not in (b"0", b"1"):
            raise _BadLineError(BAD_CLICK)
        if len(words) > 3 or not head[-1:].isspace() or not parts or not parts[0].startswith((b"user ", b"user\t")):
            raise _BadLineError(NO_USER)
        return int(words[0]), shown_id, int(words[2]), self._user(parts[0]), b"".join(parts[1:])[:-1]

    def _code(self, text: bytes) -> int:
        if text not in self.codes:
            words = text.split()
            number = self._id(words[0]) if words and not text[:1].isspace() else None
            if number is None or not text[-1:].isspace():
                raise _BadLineError(BAD_ARTICLE.format(article=ARTICLE[self.release]))
            self.values.append(self._article(words[1:]))
            self.ids.append(number)
            self.codes[text] = len(self.codes)
        return self.codes[text]

    def rounds(self, source: str) -> RawRounds:
        """The next part."""
        from polars import DataFrame, Series

        heads = np.array(self.heads, np.int64).reshape(-1, 4)
        pools, table = np.array(self.pools, np.int64), np.array(self.values, np.float64)
        values = table.reshape(len(self.ids), -1)[pools] if len(self.ids) else np.zeros((0, 0))
        part = RawRounds(
            source=source,
            lines=np.array(self.lines, np.int64),
            features=self._user_frame(),
            action=Series("action", heads[:, 1]),
            reward=Series("reward", heads[:, 2]),
            propensity=Series("propensity", 1.0 / heads[:, 3]),
            time=Series("time", heads[:, 0]),
            pool=Pool(
                np.concatenate([[0], np.cumsum(heads[:, 3])]),
                DataFrame({f"article.{i}": column for i, column in enumerate(values.T, 1)}),
                Series("article", np.array(self.ids, np.int64)[pools]),
            ),
            rejected=tuple(Rejected(source, number, reason, shown(line)) for number, reason, line in self.rejected),
        )
        self._clear()
        return part

    def _id(self, word: bytes) -> int | None:
        return int(word) if _is_whole(word) else None

    def _user(self, part: bytes) -> Any:
        return self._article(part.split()[1:], part[-1:].isspace())

    def _article(self, words: list[bytes], ended: bool = True) -> tuple[float, ...]:
        """Six pairs of index and value, as values in the order of the indices."""
        values: dict[bytes, float] = {}
        for word in words[:N_VALUES]:
            index, colon, value = word.partition(b":")
            if not colon:
                raise _BadLineError(NOT_PAIR)
            if not _is_whole(index) or not 1 <= int(index) <= N_VALUES:
                raise _BadLineError(BAD_INDEX.format(most=N_VALUES))
            if index in values:
                raise _BadLineError(REPEATED_INDEX)
            if not DECIMAL.fullmatch(value):
                raise _BadLineError(BAD_VALUE)
            values[index] = float(value)
        if not ended:
            raise _BadLineError(BAD_VALUE)
        if len(values) < N_VALUES:
            raise _BadLineError(MISSING_VALUES)
        if len(words) > N_VALUES:
            raise _BadLineError(BAD_ARTICLE.format(article=ARTICLE[R6A]))
        try:
            return tuple(map(values.__getitem__, INDICES))
        except KeyError:  # an index such as 01
            raise _BadLineError(BAD_INDEX.format(most=N_VALUES)) from None

    def _user_frame(self) -> polars.DataFrame:
        from polars import DataFrame

        values = np.array(self.users, np.float64).reshape(-1, N_VALUES)
        return DataFrame({f"user.{i}": column for i, column in enumerate(values.T, 1)})


class _R6bVisits(_Visits):
    """The visits of R6B that the next part will hold."""

    release = R6B

    def _usual_line(self, line: bytes) -> None:
        return None

    def _id(self, word: bytes) -> int | None:
        return int(word[3:]) if word.startswith(b"id-") and _is_whole(word[3:]) else None

    def _user(self, part: bytes) -> list[int]:
        """Places of the features that the user has."""
        places: list[int] = []
        for word in part.split()[1:]:
            if not _is_whole(word) or not 1 <= int(word) <= N_USER_FEATURES:
                raise _BadLineError(BAD_INDEX.format(most=N_USER_FEATURES))
            places.append(int(word) - 1)
        if len(set(places)) < len(places):
            raise _BadLineError(REPEATED_INDEX)
        if not part[-1:].isspace():
            raise _BadLineError(BAD_INDEX.format(most=N_USER_FEATURES))
        if 0 not in places:
            raise _BadLineError(MISSING_CONSTANT)
        return places

    def _article(self, words: list[bytes], ended: bool = True) -> tuple[float, ...]:
        if words:
            raise _BadLineError(BAD_ARTICLE.format(article=ARTICLE[R6B]))
        return ()

    def _user_frame(self) -> polars.DataFrame:
        from polars import DataFrame

        table = np.zeros((N_USER_FEATURES, len(self.users)), np.uint8)
        columns = np.repeat(np.arange(len(self.users)), [len(places) for places in self.users])
        table[[place for places in self.users for place in places], columns] = 1
        return DataFrame({f"user.{i}": row for i, row in enumerate(table, 1)})


def _is_whole(word: bytes) -> bool:
    return word.isdigit() and len(word) <= MAX_DIGITS
