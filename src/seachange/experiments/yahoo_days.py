"""The days of Yahoo!'s R6A or R6B, as delivered, as visits."""

from __future__ import annotations

import datetime as dt
import re
from itertools import pairwise
from pathlib import Path

import numpy as np

from seachange.errors import LogError
from seachange.log.readers.yahoo import YahooLog, days_of
from seachange.simulate.visits import Visits, visits_of

DATE = re.compile(r"\.(\d{4})(\d{2})(\d{2})(\.gz)?$")


def read_days(folder: Path, n_days: int, *, with_users: bool) -> Visits:
    """The visits of the first ``n_days`` days in ``folder``, which must follow each other."""
    if not folder.is_dir():
        raise LogError(f"{str(folder)!r} is no folder; name the one that holds the days.")
    files = days_of(folder)
    dates = [_date(path) for path in files]
    told = f"{str(folder)!r} has {len(files)} days, {dates[0]} to {dates[-1]}"
    if len(files) < n_days:
        raise LogError(f"the experiment needs {n_days} days; {told}. Take fewer with --days and --next-days.")
    for earlier, later in pairwise(dates[:n_days]):
        if later != earlier + dt.timedelta(1):
            raise LogError(f"days must follow each other; {told}, but none for {earlier + dt.timedelta(1)}.")
    visits = visits_of(YahooLog(folder, n_days=n_days), with_users=with_users)
    if (back := np.flatnonzero(np.diff(visits.days) < 0)).size:
        early, late = (files[visits.days[row]].name for row in (back[0] + 1, back[0]))
        raise LogError(
            f"the visits of a day must come after those of the days before; {late!r} has some from before the last of "
            f"{early!r}: are the files named by their days?"
        )
    return visits


def _date(path: Path) -> dt.date:
    found = DATE.search(path.name)
    try:
        return dt.date(*(int(word) for word in found.groups()[:3]))  # type: ignore[union-attr]
    except ValueError as error:
        raise LogError(f"{path.name!r} is not named by a day: {error}.") from error
