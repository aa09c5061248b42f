"""Yahoo!'s front page clicks: the releases R6A and R6B of Webscope, as they are delivered.

A line is a visit. The article shown was drawn uniformly from the pool on the line, so that its propensity is one over
the number of articles there. A line that breaks a rule of its release is no round and is named with the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
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

R6A, R6B = "yahoo-r6a", "yahoo-r6b"
DAYS = {
    R6A: re.compile(r"ydata-fp-td-clicks-v1_0\.\d{8}(\.gz)?"),
    R6B: re.compile(r"ydata-fp-td-clicks-v2_0\.\d{8}(\.gz)?"),
}
EXPECTED = "ydata-fp-td-clicks-v1_0.200905DD(.gz) of R6A or ydata-fp-td-clicks-v2_0.201110DD(.gz) of R6B"
FIRST_WORDS = {
    R6A: re.compile(rb"\s*\d+\s+\d+\s+[01]\s+\|user\s"),
    R6B: re.compile(rb"\s*\d+\s+id-\d+\s+[01]\s+\|user\s"),
}
# Among so many lines at the start of a file most are sound, if any are.
LINES_LOOKED_AT = 20
COLUMNS = {
    "action": "the article shown",
    "reward": "click",
    "propensity": "1 / articles in the pool",
    "time": "unix time",
}


class YahooLog:
    """One day's file, or a folder of days, of which the first ``n_days`` are read in the order of their dates, or all.

    ``release`` refuses files of the other one; left out, it is told by the first lines.
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
            raise LogError(f"the releases are {R6A} and {R6B}; got {release!r}.")
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
                f"{str(self.days[0])!r} holds no visits of R6A or R6B: none of its first lines begins with a time, "
                "an article, a click and |user."
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
                        f"{str(day)!r} is a file of {found}, but {str(self.days[0])!r} is one of {self.format}: "
                        "read the releases apart."
                    )
                for part in _parts_of_day(day, self.format, rows):
                    rounds += len(part)
                    yield part
            except LogError as error:
                raise LogError(f"{error} {rounds:,} rounds were read before.") from error


def looks_like(path: Path, head: bytes) -> bool:
    """Whether these are the first lines of R6A or R6B, or this a folder of their days."""
    if path.is_dir():
        return any(day.fullmatch(file.name) for file in path.iterdir() for day in DAYS.values())
    return release_of(head) is not None


def release_of(head: bytes) -> str | None:
    """The release that most of the first lines are of."""
    lines = head.splitlines()[:LINES_LOOKED_AT]
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
        raise LogError(f"{str(folder)!r} has days of R6A and of R6B; keep each release in a folder of its own.")
    for name in days:
        if f"{name}.gz" in days:
            raise LogError(f"{str(folder)!r} has {name!r} twice, plain and as .gz; keep one of them.")
    return [folder / name for name in days]


def _parts_of_day(day: Path, release: str, rows: int) -> Iterator[RawRounds]:
    from seachange.kernels import click_lines

    line = 1
    for block in line_blocks(day):
        text = np.frombuffer(block, dtype=np.uint8)
        begin = 0
        while begin < len(text):
            end, n_lines, n_bars = click_lines.stretch(text, begin, rows)
            part = _PARSERS[release](day.name, text, begin, end, line, n_lines, n_bars)
            if len(part) or part.rejected:
                yield part
            begin = end
            line += n_lines


def _r6a(source: str, text: Any, begin: int, end: int, line: int, n_lines: int, n_bars: int) -> RawRounds:
    from polars import DataFrame

    from seachange.kernels import click_lines

    room = _Room(n_lines, n_bars)
    user, articles = np.empty((click_lines.N_VALUES, n_lines)), np.empty((click_lines.N_VALUES, n_bars))
    read: Any = click_lines.r6a_rounds
    n, n_bad = read(text, begin, end, line, *room.heads, user, room.offsets, room.ids, articles, room.bad)
    shown = room.offsets[n]
    return room.rounds(
        source,
        DataFrame({f"user.{i}": values[:n] for i, values in enumerate(user, 1)}),
        DataFrame({f"article.{i}": values[:shown] for i, values in enumerate(articles, 1)}),
        n,
        tuple(_rejected(source, text, R6A, *row) for row in room.bad[:n_bad].tolist()),
    )


def _r6b(source: str, text: Any, begin: int, end: int, line: int, n_lines: int, n_bars: int) -> RawRounds:
    from polars import DataFrame

    from seachange.kernels import click_lines

    room = _Room(n_lines, n_bars)
    user = np.zeros((click_lines.N_USER_FEATURES, n_lines), dtype=np.uint8)
    read: Any = click_lines.r6b_rounds
    n, n_bad = read(text, begin, end, line, *room.heads, user, room.offsets, room.ids, room.bad)
    return room.rounds(
        source,
        DataFrame({f"user.{i}": values[:n] for i, values in enumerate(user, 1)}),
        DataFrame(),
        n,
        tuple(_rejected(source, text, R6B, *row) for row in room.bad[:n_bad].tolist()),
    )


_PARSERS: dict[str, Callable[..., RawRounds]] = {R6A: _r6a, R6B: _r6b}


class _Room:
    """Arrays for what the kernels read."""

    def __init__(self, n_lines: int, n_bars: int) -> None:
        self.heads = tuple(np.empty(n_lines, dtype=np.int64) for _ in ("times", "places", "clicks", "lines"))
        self.offsets = np.empty(n_lines + 1, dtype=np.int64)
        self.ids = np.empty(n_bars, dtype=np.int64)
        self.bad = np.empty((n_lines, 4), dtype=np.int64)

    def rounds(
        self,
        source: str,
        features: polars.DataFrame,
        articles: polars.DataFrame,
        n: int,
        rejected: tuple[Rejected, ...],
    ) -> RawRounds:
        """The first ``n`` rounds of what was read."""
        from polars import Series

        times, places, clicks, lines = (column[:n] for column in self.heads)
        offsets = self.offsets[: n + 1]
        return RawRounds(
            source=source,
            lines=lines,
            features=features,
            action=Series("action", places),
            reward=Series("reward", clicks),
            propensity=Series("propensity", 1.0 / np.diff(offsets)),
            time=Series("time", times),
            pool=Pool(offsets, articles, Series("article", self.ids[: offsets[-1]])),
            rejected=rejected,
        )


def _rejected(source: str, text: Any, release: str, line: int, begin: int, end: int, fault: int) -> Rejected:
    content = text[begin:end].tobytes()
    if release_of(content) not in (None, release):
        reason = f"this is a line of {release_of(content)}"
    elif release == R6A and ((n_fields := len(re.split(rb"[ \t]+", content.strip(b" \t")))) - 10) % 7 != 0:
        reason = f"a visit has 10 fields and 7 for every article; this one has {n_fields}"
    else:
        reason = _reasons(release)[fault]
    return Rejected(source, line, reason, shown(content))


def _reasons(release: str) -> dict[int, str]:
    """The rules that the kernels name by number."""
    from seachange.kernels import click_lines as kernel

    article = "a whole number" if release == R6A else "id- and a whole number"
    most = kernel.N_VALUES if release == R6A else kernel.N_USER_FEATURES
    return {
        kernel.TIME: "the time must be a whole number of seconds",
        kernel.SHOWN: f"the article shown must be {article}",
        kernel.CLICK: "the click must be 0 or 1",
        kernel.NO_USER: "the fourth field must be |user",
        kernel.PAIR: "a feature must be an index, a colon and a value",
        kernel.VALUE: f"a value must be a number of at most {kernel.DECIMAL_DIGITS} digits",
        kernel.INDEX: f"the index of a feature must be a whole number from 1 to {most}",
        kernel.TWICE: "an index must not be there twice",
        kernel.MISSING: "all six features must be there" if release == R6A else "user feature 1 must be there",
        kernel.ARTICLE: f"an article of the pool must be | and {article}",
        kernel.EMPTY_POOL: "the pool must not be empty",
        kernel.TWINS: "an article must not be in the pool twice",
        kernel.NOT_IN_POOL: "the article shown must be in the pool",
    }
