"""The days of Yahoo!'s R6A or R6B, as delivered, or those of an invented front page, as visits."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from seachange.engine import stage
from seachange.errors import LogError
from seachange.log.readers.yahoo import R6A, YahooLog, days_of
from seachange.outputs import written_whole
from seachange.simulate.clickstream import DocumentFeatures
from seachange.simulate.front_page import FrontPage
from seachange.simulate.front_page_files import write_days
from seachange.simulate.visits import Visits, visits_of

DATE = re.compile(r"\.(\d{4})(\d{2})(\d{2})(\.gz)?$")
INVENTED = "an invented front page (not Yahoo!'s data)"
# What the days of such a page have beside them, so that nobody takes them for others.
MARK = "NOT YAHOO'S DATA.txt"


@dataclass(frozen=True)
class Days:
    """Visits in a file, and where they come from."""

    visits: Path
    data: str  # whose they are
    told: str  # what was read


def invented_days(folder: Path, n_days: int, seed: int) -> Path:
    """A folder within ``folder`` with days of a front page, which are written unless they are there."""
    days = folder / f"{n_days} invented days, seed {seed}"
    days.mkdir(parents=True, exist_ok=True)
    (days / MARK).write_text("These days are invented: seachange replicate yahoo --standin wrote them.\n")
    if len([path for path in days.iterdir() if path.suffix == ".gz"]) < n_days:
        with stage("Writing days"):
            write_days(FrontPage(seed=seed, n_days=n_days).visits(), days, seed=seed)
    return days


def read_days(source: Path, n_days: int, kept: Path, *, features: DocumentFeatures, invented: bool) -> Days:
    """The first ``n_days`` days in ``source``, which must follow each other; what was read is ``kept`` in a folder."""
    files = files_of(source, n_days)
    invented = invented or (source / MARK).exists()
    stamps = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    raw, with_users = YahooLog(source, n_days=n_days), features == "crossed"
    if raw.format != R6A and features != "identity":
        raise LogError(
            f'{str(source)!r} holds R6B, whose documents have no features: features="identity" tells them apart.'
        )
    read = {"files": stamps, "with_users": with_users, "invented": invented}
    visits, about = kept / "visits.npz", kept / "visits.json"
    if about.exists() and visits.exists():
        earlier = json.loads(about.read_text())
        if earlier["read"] == read:
            return Days(visits, earlier["data"], earlier["told"])
    rejected = Counter[str]()
    with stage("Reading days"):
        found = visits_of(raw, with_users=with_users, rejected=rejected)
    n_found = int(found.days.max()) + 1
    if n_found < n_days:
        raise LogError(f"every day must have visits; only {n_found} of the {n_days} files in {str(source)!r} have any.")
    _require_order(found, files)
    release = "R6A" if raw.format == R6A else "R6B"
    days = Days(visits, INVENTED if invented else f"Yahoo! {release}", _told(found, files, rejected))
    with written_whole(visits) as beside:
        found.save(beside)
    with written_whole(about) as beside:
        beside.write_text(json.dumps({"read": read, "data": days.data, "told": days.told}))
    return days


def files_of(source: Path, n_days: int) -> list[Path]:
    """The files of the first ``n_days`` days in ``source``."""
    if not source.is_dir():
        raise LogError(f"{str(source)!r} is no folder; name the one that holds the days.")
    files = days_of(source)
    dates = [_date(path) for path in files]
    told = f"{str(source)!r} has {len(files)} day{'s' * (len(files) > 1)}, {dates[0]} to {dates[-1]}"
    if len(files) < n_days:
        raise LogError(f"the experiment needs {n_days} days; {told}. Take fewer with --days and --next-days.")
    for earlier, later in pairwise(dates[:n_days]):
        if later != earlier + dt.timedelta(1):
            raise LogError(f"days must follow each other; {told}, but none for {earlier + dt.timedelta(1)}.")
    return files[:n_days]


def _date(path: Path) -> dt.date:
    found = DATE.search(path.name)
    try:
        return dt.date(*(int(word) for word in found.groups()[:3]))  # type: ignore[union-attr]
    except ValueError as error:
        raise LogError(f"{path.name!r} is not named by a day: {error}.") from error


def _require_order(visits: Visits, files: list[Path]) -> None:
    """Raise where days are not what their names say; a few visits on the wrong side of midnight do no harm."""
    middles = [float(np.median(visits.times[visits.days == day])) for day in range(len(files))]
    for early, (before, after) in enumerate(pairwise(middles)):
        if after <= before:
            raise LogError(
                f"the visits of a day must come after those of the days before; most of {files[early + 1].name!r} are "
                f"from before those of {files[early].name!r}: are the files named by their days?"
            )


def _told(visits: Visits, files: list[Path], rejected: Counter[str]) -> str:
    lines = f"; {rejected.total():,} lines are no visits ({_most(rejected)})" if rejected else ""
    return (
        f"{len(visits):,} visits of {len(files)} days ({_date(files[0])} to {_date(files[-1])}), "
        f"{len(np.unique(visits.document_ids)):,} documents, {visits.pool_sizes[visits.pools].mean():.1f} at a time, "
        f"{visits.clicks.mean():.2%} clicked{lines}."
    )


def _most(rejected: Counter[str]) -> str:
    reasons = Counter[str]()
    for reason, count in rejected.items():
        reasons[reason.split(";")[0]] += count
    return "; ".join(f"{reason}: {count:,}" for reason, count in reasons.most_common(3))
