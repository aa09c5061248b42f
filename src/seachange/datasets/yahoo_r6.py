"""Yahoo!'s front page clicks: releases R6A and R6B of Webscope, as delivered.

    R6A  time id click |user i:v … (six) |id i:v … (six) |id …       i from 1 to 6, v a decimal number
    R6B  time id-n click |user i … (at least one) |id-n |id-n …      i from 1 to 136

One line is one visit. The article was drawn uniformly from the pool on its line, so its propensity is one over the
number of articles in the pool. Articles repeat from line to line, so the text of each is parsed once.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from seachange.errors import LogError
from seachange.formats.action_lists import line_batches
from seachange.formats.column_roles import Columns, require_no_columns
from seachange.formats.sources import blocks_of, head_of, shown
from seachange.log.raw import PART_ROWS, Pool, RawRounds, Rejected
from seachange.protocols import Floats

R6A, R6B = "yahoo-r6a", "yahoo-r6b"
PREFIX = {R6A: b"", R6B: b"id-"}  # of article ids
DAYS = {
    release: re.compile(rf"ydata-fp-td-clicks-v{version}_0\.\d{{8}}(\.gz)?")
    for release, version in ((R6A, 1), (R6B, 2))
}
EXPECTED = "ydata-fp-td-clicks-v1_0.200905DD(.gz) for R6A or ydata-fp-td-clicks-v2_0.201110DD(.gz) for R6B"
FIRST_WORDS = {
    release: re.compile(rb"\s*\d+\s+" + prefix + rb"\d+\s+[01]\s+\|user\s") for release, prefix in PREFIX.items()
}
HEAD_LINES = 20  # the release is that of most of the first lines
COLUMNS = {"action": "article shown", "reward": "click", "propensity": "1 / articles in pool", "time": "unix time"}
MAX_ARTICLES, MAX_POOLS = 1 << 16, 1 << 10  # texts of articles and of pools that are kept
MAX_POOL_BYTES = 1 << 14  # longer ones are not kept
N_USER_FEATURES = 136
INDICES = (b"1", b"2", b"3", b"4", b"5", b"6")
BLANK, WHOLE, DECIMAL = rb"[ \t]+", rb"[0-9]{1,18}", rb"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
END = rb"(?![^ \t])"  # of a word
PAIRS = (BLANK + rb"([1-6]):(" + DECIMAL + rb")") * len(INDICES) + END
USER = {R6A: PAIRS, R6B: rb"((?:" + BLANK + WHOLE + rb")+)" + END}
ARTICLE = {
    R6A: re.compile(rb"(" + WHOLE + rb")" + PAIRS + BLANK),
    R6B: re.compile(rb"id-(" + WHOLE + rb")" + BLANK),
}
ID = {R6A: "a whole number", R6B: "id- and a whole number"}
SIX_FEATURES = "six features, each an index from 1 to 6, a colon and a decimal number"
BAD_USER = {
    R6A: f"a user must have {SIX_FEATURES}",
    R6B: f"a user must have features, each a whole number from 1 to {N_USER_FEATURES}",
}
BAD_ARTICLE = {
    R6A: f"an article of the pool must be | and {ID[R6A]}, with {SIX_FEATURES}",
    R6B: f"an article of the pool must be | and {ID[R6B]}",
}
REPEATED_INDEX = "an index occurs twice"
# A line up to the first article of its pool, piece by piece, with the rule that a line breaks if the piece is missing.
PIECES = {
    release: (
        (rb"[ \t]*(" + WHOLE + rb")" + END, "the time must be a whole number of seconds"),
        (BLANK + prefix + rb"(" + WHOLE + rb")" + END, f"the article shown must be {ID[release]}"),
        (BLANK + rb"([01])" + END, "the click must be 0 or 1"),
        (BLANK + rb"\|user" + END, "the fourth field must be |user"),
        (USER[release], BAD_USER[release]),
        (BLANK + rb"\|", "the pool must follow the user's features"),
    )
    for release, prefix in PREFIX.items()
}
VISIT = {release: re.compile(b"".join(form for form, _ in pieces)) for release, pieces in PIECES.items()}


class Visit(NamedTuple):
    """A valid line."""

    line: int
    time: int
    place: int  # of the article shown, in the pool
    click: int
    user: Sequence[Any]  # R6A: the six values; R6B: the features that the user has
    ids: tuple[int, ...]
    articles: Floats  # (len(ids), 6), or (len(ids), 0) in R6B


class YahooLog:
    """One day's file, or a folder of days, read in the order of their dates: the first ``n_days``, or all.

    ``release`` rejects files of the other release; by default, the first lines decide.
    """

    columns: dict[str, str] = COLUMNS

    def __init__(
        self, path: str | Path, columns: Columns | None = None, *, release: str | None = None, n_days: int | None = None
    ) -> None:
        require_no_columns(columns, "Yahoo!'s R6 format")
        if release not in (None, R6A, R6B):
            raise LogError(f"release must be {R6A!r} or {R6B!r}; got {release!r}.")
        self.release = release
        self.days = days_of(Path(path))[:n_days] if Path(path).is_dir() else [Path(path)]

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
        pool = lru_cache(MAX_POOLS)(partial(_pool, lru_cache(MAX_ARTICLES)(partial(_article, self.format))))
        visits: list[Visit] = []
        rejected: list[Rejected] = []
        for batch in line_batches(blocks_of(day)):
            for number, text in enumerate(batch.lines, batch.first):
                line = text.removesuffix(b"\r")
                if not line.strip(b" \t"):
                    continue
                try:
                    visits.append(_visit(number, line, self.format, pool))
                except ValueError as error:
                    rejected.append(Rejected(day.name, number, str(error), shown(line)))
                if len(visits) == rows:
                    yield _rounds(day.name, self.format, visits, rejected)
                    visits, rejected = [], []
            if visits or rejected:
                yield _rounds(day.name, self.format, visits, rejected)
                visits, rejected = [], []


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
        content = f"it has {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else "it is empty"
        raise LogError(f"{str(folder)!r} has no files named {EXPECTED}; {content}.")
    if found[R6A] and found[R6B]:
        raise LogError(f"{str(folder)!r} has days of R6A and of R6B; use a separate folder for each release.")
    for name in days:
        if f"{name}.gz" in days:
            raise LogError(f"{str(folder)!r} has {name!r} twice, plain and as .gz; delete one of them.")
    return [folder / name for name in days]


def _visit(number: int, line: bytes, release: str, pool: Any) -> Visit:
    """Read a line; a ValueError names the rule that it breaks."""
    head = VISIT[release].match(line)
    if head is None:
        raise ValueError(_broken_rule(line, release))
    time, shown_id, click, *features = head.groups()
    user = _values(features) if release == R6A else _places(features[0])
    text = line[head.end() :]
    ids, articles = (pool if len(text) <= MAX_POOL_BYTES else pool.__wrapped__)(text)
    if (article := int(shown_id)) not in ids:
        raise ValueError("the article shown is not in the pool")
    return Visit(number, int(time), ids.index(article), int(click), user, ids, articles)


def _pool(article: Callable[[bytes], tuple[int, Sequence[float]]], text: bytes) -> tuple[tuple[int, ...], Floats]:
    """The ids and features of the articles in a pool."""
    ids, features = zip(*map(article, (text + b" ").split(b"|")), strict=True)
    if len({*ids}) < len(ids):
        raise ValueError("an article is in the pool twice")
    return ids, np.array(features, np.float64)


def _article(release: str, text: bytes) -> tuple[int, Sequence[float]]:
    article = ARTICLE[release].fullmatch(text)
    if article is None:
        raise ValueError(BAD_ARTICLE[release])
    return int(article[1]), _values(article.groups()[1:]) if release == R6A else ()


def _rounds(source: str, release: str, visits: list[Visit], rejected: list[Rejected]) -> RawRounds:
    lengths = [len(visit.ids) for visit in visits]
    users = [visit.user for visit in visits]
    if release == R6A:
        user_columns = np.array(users, np.float64).reshape(-1, len(INDICES)).T
    else:
        user_columns = np.zeros((N_USER_FEATURES, len(users)), np.uint8)
        rounds = np.repeat(np.arange(len(users)), [len(places) for places in users])
        user_columns[[place - 1 for places in users for place in places], rounds] = 1
    articles = np.concatenate([visit.articles for visit in visits]) if visits else np.zeros((0, 0))
    return RawRounds(
        source=source,
        lines=np.array([visit.line for visit in visits], np.int64),
        features=pl.DataFrame({f"user.{i}": column for i, column in enumerate(user_columns, 1)}),
        action=pl.Series("action", [visit.place for visit in visits], pl.Int64),
        reward=pl.Series("reward", [visit.click for visit in visits], pl.Int64),
        propensity=pl.Series("propensity", 1.0 / np.array(lengths)),
        time=pl.Series("time", [visit.time for visit in visits], pl.Int64),
        pool=Pool(
            np.cumsum([0, *lengths]),
            pl.DataFrame({f"article.{i}": column for i, column in enumerate(articles.T, 1)}),
            pl.Series("article", np.fromiter((id for visit in visits for id in visit.ids), np.int64, sum(lengths))),
        ),
        rejected=tuple(rejected),
    )


def _values(pairs: Sequence[bytes]) -> tuple[float, ...]:
    """Values in the order of their indices."""
    values = dict(zip(pairs[::2], map(float, pairs[1::2]), strict=True))
    if len(values) < len(INDICES):
        raise ValueError(REPEATED_INDEX)
    return tuple(map(values.__getitem__, INDICES))


def _places(text: bytes) -> list[int]:
    """The features that a user of R6B has."""
    places = [*map(int, text.split())]
    if not all(1 <= place <= N_USER_FEATURES for place in places):
        raise ValueError(BAD_USER[R6B])
    if len({*places}) < len(places):
        raise ValueError(REPEATED_INDEX)
    if 1 not in places:
        raise ValueError("user feature 1 is missing")
    return places


def _broken_rule(line: bytes, release: str) -> str:
    """The rule that a line breaks before the first article of its pool."""
    if (other := release_of(line)) not in (None, release):
        return f"the line is of {other}"
    matched = [
        re.match(b"".join(form for form, _ in PIECES[release][:n]), line) for n in range(1, len(PIECES[release]))
    ]
    return PIECES[release][sum(match is not None for match in matched)][1]
