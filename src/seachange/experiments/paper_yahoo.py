"""The paper's second experiment: clicks on Yahoo!'s front page, next to the published table.

A folder keeps what was read (``read_days``) and every run (``RunStore``), so an interrupted experiment resumes.
"""

import datetime as dt
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from seachange.analysis.formatting import count_of
from seachange.datasets.yahoo_r6 import R6A, YahooLog, days_of
from seachange.engine import map_in_order, stage
from seachange.errors import LogError, OutputError, SeachangeWarning
from seachange.experiments.paper_synthetic import STATIONARY, SWITCHING, build_quietly, default_methods, std_of
from seachange.log.bandit_log import BanditLog
from seachange.outputs import written_whole
from seachange.params import require
from seachange.protocols import Floats, Ints
from seachange.simulate import ClickRates, Clickstream, FrontPage, Visits, rollout
from seachange.simulate.clickstream import IDENTITY_FIX, STEP, DocumentFeatures, visits_of
from seachange.simulate.front_page import write_days
from seachange.states.hmm import HMMOracle

HORIZONS = ("same days", "next days")
# Relative click rates in the paper's table, on the same six days and on the next four.
PAPER = {"IPS": (1.13, 1.12), "DR": (1.16, 1.17), "POEM": (1.13, 1.13), "k-CD": (1.21, 1.21), "k-HMM": (1.25, 1.24)}
PAPER_STATES = 10
METHODS_VERSION = 1  # increase it when a method changes: runs of different versions do not belong in one table
PRINTED, ORACLE = "k-CD (as printed)", "oracle"
METHODS = (*STATIONARY, "k-CD", PRINTED, "k-HMM", ORACLE)

DATE = re.compile(r"\.(\d{4})(\d{2})(\d{2})(\.gz)?$")
SIMULATED = "a simulated front page (not Yahoo!'s data)"
MARK = "NOT YAHOO'S DATA.txt"  # a file next to simulated days, so that nobody mistakes them for real ones
HOUR, HOURS = 3_600, 24
LEADERS = 3  # documents listed for each state


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the paper says, and what it leaves open."""

    days: int = 6  # to learn from
    next_days: int = 4  # after them
    n_documents: int = 10  # K, from each pool
    features: DocumentFeatures = "documents"  # f(x, a); the paper uses the documents' own
    window: float = 43_200.0  # seconds around a round over which a document's click rate is estimated
    smoothing: float = 100.0  # impressions at the average rate that are added there
    restarts: int = 1  # of EM
    tolerance: float = 1e-6  # EM stops at a smaller log-likelihood gain per round

    def __post_init__(self) -> None:
        require(0 < self.window < np.inf, f"window must be positive; got {self.window / 3600:g} hours.")
        require(0 <= self.smoothing < np.inf, f"smoothing must be at least 0 and finite; got {self.smoothing:g}.")

    @property
    def hmm(self) -> HMMOracle:
        """The oracle of k-HMM."""
        return HMMOracle(restarts=self.restarts, tolerance=self.tolerance)


# Days


@dataclass(frozen=True)
class Days:
    """Visits in a file, and where they come from."""

    visits: Path
    data: str  # the source of the data
    summary: str  # what was read


def simulated_days(folder: Path, n_days: int, seed: int) -> Path:
    """A folder inside ``folder`` with days of a simulated front page; it is filled on first use."""
    days = folder / f"{n_days} simulated days, seed {seed}"
    days.mkdir(parents=True, exist_ok=True)
    (days / MARK).write_text("These days are simulated; `seachange replicate yahoo --standin` wrote them.\n")
    if len([path for path in days.iterdir() if path.suffix == ".gz"]) < n_days:
        with stage("Writing days"):
            write_days(FrontPage(seed=seed, n_days=n_days).visits(), days, seed=seed)
    return days


def read_days(source: Path, n_days: int, cache: Path, *, features: DocumentFeatures, simulated: bool) -> Days:
    """Read the first ``n_days`` consecutive days in ``source``, and keep the visits in the folder ``cache``."""
    files = files_of(source, n_days)
    simulated = simulated or (source / MARK).exists()
    stamps = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    raw, with_users = YahooLog(source, n_days=n_days), features == "crossed"
    if raw.format != R6A and features != "identity":
        raise LogError(f"{str(source)!r} holds R6B, whose documents have no features.", IDENTITY_FIX)
    key = {"files": stamps, "with_users": with_users, "simulated": simulated}
    visits, about = cache / "visits.npz", cache / "visits.json"
    earlier = json.loads(about.read_text()) if about.exists() and visits.exists() else {}
    if earlier.pop("key", None) == key:
        return Days(visits, **earlier)
    rejected = Counter[str]()
    with stage("Reading days"):
        found = visits_of(raw, with_users=with_users, rejected=rejected)
    n_found = int(found.days.max()) + 1
    if n_found < n_days:
        raise LogError(f"only {n_found} of the {n_days} files in {str(source)!r} have visits; every day needs some.")
    middles = [float(np.median(found.times[found.days == day])) for day in range(n_days)]
    for (early, before), (late, after) in pairwise(zip(files, middles, strict=True)):
        if after <= before:  # a few visits on the wrong side of midnight are fine
            problem = f"most visits in {late.name!r} are earlier than those in {early.name!r}"
            raise LogError(f"{problem}; files must be named after their day.")
    data = SIMULATED if simulated else f"Yahoo! {'R6A' if raw.format == R6A else 'R6B'}"
    facts = {"data": data, "summary": _summary(found, files, rejected)}
    with written_whole(visits) as temporary:
        found.save(temporary)
    with written_whole(about) as temporary:
        temporary.write_text(json.dumps({"key": key} | facts))
    return Days(visits, **facts)


def files_of(source: Path, n_days: int) -> list[Path]:
    """The files of the first ``n_days`` days in ``source``."""
    if not source.is_dir():
        raise LogError(f"{str(source)!r} is not a folder; name the folder that holds the days.")
    files = days_of(source)
    dates = [_date(path) for path in files]
    have = f"{str(source)!r} has {count_of(len(files), 'day')}, {dates[0]} to {dates[-1]}"
    if len(files) < n_days:
        raise LogError(f"the experiment needs {n_days} days; {have}. Use fewer with --days and --next-days.")
    for i, date in enumerate(dates[:n_days]):
        if date != (expected := dates[0] + dt.timedelta(i)):
            raise LogError(f"days must be consecutive; {have}, but {expected} is missing.")
    return files[:n_days]


def _date(path: Path) -> dt.date:
    found = DATE.search(path.name)
    try:
        return dt.date(*(int(word) for word in found.groups()[:3]))  # type: ignore[union-attr]
    except ValueError as error:
        raise LogError(f"the name {path.name!r} has no valid date: {error}.") from error


def _summary(visits: Visits, files: list[Path], rejected: Counter[str]) -> str:
    most = ", ".join(reason for reason, _ in rejected.most_common(1))
    lines = f"; {count_of(rejected.total(), 'line')} rejected (most often: {most})" if rejected else ""
    return (
        f"{len(visits):,} visits on {len(files)} days ({_date(files[0])} to {_date(files[-1])}), "
        f"{len(np.unique(visits.document_ids)):,} documents, {visits.pool_sizes[visits.pools].mean():.1f} at a time, "
        f"click rate {visits.clicks.mean():.2%}{lines}."
    )


# Runs


class RunStore:
    """The results of the runs in ``folder``, one line each; a folder holds runs of one experiment only."""

    def __init__(self, folder: Path, experiment: dict[str, Any]) -> None:
        self._runs, settings = folder / "runs.jsonl", folder / "settings.json"
        if not (settings.exists() and self._runs.exists()):
            with written_whole(settings) as temporary:
                temporary.write_text(json.dumps(experiment, indent=1))
            return
        earlier = json.loads(settings.read_text())
        both = [(name, earlier.get(name), experiment.get(name)) for name in sorted({*earlier, *experiment})]
        changes = "; ".join(
            f"different {name}" if isinstance(theirs, list) else f"{name} is {theirs} there and {ours} here"
            for name, theirs, ours in both
            if theirs != ours
        )
        if changes:
            raise OutputError(f"{str(folder)!r} has runs of another experiment ({changes}). Use another folder.")

    def done(self) -> dict[str, Any]:
        """The results so far, by the name of the run."""
        results = {}
        for line in self._runs.read_text().splitlines() if self._runs.exists() else ():
            with suppress(json.JSONDecodeError):  # the line was being written when the work stopped
                found = json.loads(line)
                results[found["run"]] = found["result"]
        return results

    def add(self, run: str, result: Any) -> None:
        """Store the result of a run."""
        torn = self._runs.exists() and not self._runs.read_bytes().endswith(b"\n")
        with self._runs.open("a") as file:
            file.write("\n" * torn + json.dumps({"run": run, "result": result}) + "\n")


def identity(settings: Settings, files: Sequence[Path], printed: int) -> dict[str, Any]:
    """What the runs of one experiment have in common."""
    from seachange import __version__

    words = {"next_days": "next days", "n_documents": "documents", "window": "window in seconds"}
    return {words.get(name, name): value for name, value in asdict(settings).items()} | {
        "states of the table": printed,
        "files": [[path.name, path.stat().st_size] for path in files],
        "version": f"{__version__}, methods {METHODS_VERSION}",
    }


def worlds(visits: Visits, settings: Settings) -> tuple[Clickstream, Clickstream]:
    """The days to learn from, and the next days."""
    rates = ClickRates.of(visits, window=settings.window, smoothing=settings.smoothing)
    shared: dict[str, Any] = {"click_rates": rates, "n_documents": settings.n_documents, "features": settings.features}
    parts = visits.of_days(0, settings.days), visits.of_days(settings.days, settings.days + settings.next_days)
    return Clickstream(visits=parts[0], **shared), Clickstream(visits=parts[1], **shared)


Run = tuple[int, int]  # seed and k; k = 0 stands for the methods without states and the oracle


def run_methods(run: Run, visits: Path, settings: Settings, printed: int) -> dict[str, list[float]]:
    """Relative click rates of the methods of a run on both horizons; PRINTED runs only if k is ``printed``."""
    seed, k = run
    both, log = _worlds(visits, settings), _log(visits, settings, seed)
    random = np.array([world.logging_value(seed) for world in both])
    values = {} if k else {ORACLE: (np.array([world.oracle_value(seed) for world in both]) / random).tolist()}
    methods = default_methods(len(log), settings.hmm)
    for name in (*SWITCHING, *([PRINTED] if k == printed else [])) if k else STATIONARY:
        deployer = build_quietly(methods[name], log, max(k, 1))
        earned = np.array([rollout(world, deployer, seed).expected_rewards.mean() for world in both])
        values[name] = (earned / random).tolist()
    return values


@lru_cache(maxsize=1)
def _log(visits: Path, settings: Settings, seed: int) -> BanditLog:
    return _worlds(visits, settings)[0].log(seed)


@lru_cache(maxsize=1)
def _worlds(visits: Path, settings: Settings) -> tuple[Clickstream, Clickstream]:
    return worlds(Visits.load(visits), settings)


def replicate(
    store: RunStore, visits: Path, settings: Settings, runs: Sequence[Run], printed: int, workers: int
) -> Iterator[dict[str, list[float]]]:
    """``run_methods`` for every run; finished runs come from ``store``."""
    done = store.done()
    left = [run for run in runs if name_of(run) not in done]
    yield from (done[name_of(run)] for run in runs if name_of(run) in done)
    task = partial(run_methods, visits=visits, settings=settings, printed=printed)
    for run, result in zip(left, map_in_order(task, left, workers=workers, kind="processes"), strict=True):
        store.add(name_of(run), result)
        yield result


def name_of(run: Run) -> str:
    """The name of a run in a store."""
    return f"seed {run[0]}, k {run[1]}"


def excluded_visits(visits: Path, settings: Settings) -> str:
    """A sentence about visits whose pools are too small; empty if there are none."""
    n = sum(world.n_too_small for world in _worlds(visits, settings))
    return f"{count_of(n, 'visit')} excluded: fewer than {settings.n_documents} documents in the pool." if n else ""


# Results


@dataclass(frozen=True)
class Result:
    """One method over all runs, on one horizon."""

    method: str
    horizon: str
    n_states: int | None
    mean: float  # click rate, relative to documents shown at random
    std: float  # over runs
    oracle_share: float  # mean relative to a policy that knows every click rate
    paper: float | None
    data: str  # the source of the data


def summarize(store: RunStore, seeds: Sequence[int], counts: Sequence[int], data: str) -> list[Result]:
    """All methods on both horizons, those with states for every k in ``counts``."""
    done, results = store.done(), []
    oracle = np.mean([done[name_of((seed, 0))][ORACLE] for seed in seeds], axis=0)
    for name in METHODS:
        for k in counts if name in (*SWITCHING, PRINTED) else (0,):
            found = [done[name_of((seed, k))].get(name) for seed in seeds]
            if None in found:
                continue
            papers = PAPER[name] if name in PAPER and k in (0, PAPER_STATES) else (None, None)
            for horizon, values, best, paper in zip(HORIZONS, np.transpose(found), oracle, papers, strict=True):
                mean = float(values.mean())
                results.append(Result(name, horizon, k or None, mean, std_of(values), float(mean / best), paper, data))
    return results


Span = tuple[int, float, float, int]  # a day, the hours from and to which it was in a state, and that state


@dataclass(frozen=True)
class StatesByHour:
    """The states of a log."""

    n_days: int
    n_states: int
    spans: list[Span]
    leaders: list[list[tuple[int, float]]]  # by state: the documents that led most often, and their share of its time
    hour_share: float  # share of rounds in the most frequent state of their hour of the day
    most_common_share: float  # share of rounds in the most frequent state


def states_of(visits: Path, settings: Settings, seed: int, n_states: int) -> StatesByHour:
    """The states that the HMM finds in the log of a run."""
    world, log = _worlds(visits, settings)[0], _log(visits, settings, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        states = settings.hmm.set_params(n_states=n_states).fit(log).predict(log).states
    times = np.asarray(log.times)
    hours, n_states = (times - times[0]) / HOUR, int(states.max()) + 1
    counts = np.histogram2d(hours % HOURS, states, bins=(range(HOURS + 1), range(n_states + 1)))[0]
    return StatesByHour(
        n_days=int(hours[-1] // HOURS) + 1,
        n_states=n_states,
        spans=_spans(hours, states),
        leaders=_leaders(world, times, states, n_states),
        hour_share=float(counts.max(axis=1).sum() / len(times)),
        most_common_share=float(counts.sum(axis=0).max() / len(times)),
    )


def _spans(hours: Floats, states: Ints) -> list[Span]:
    """Runs of rounds in one state, split at midnight."""
    days = (hours // HOURS).astype(np.int64)
    firsts = np.flatnonzero((np.diff(states, prepend=-1) != 0) | (np.diff(days, prepend=-1) != 0))
    ends = np.append(hours[firsts[1:]], hours[-1])
    spans = zip(days[firsts].tolist(), hours[firsts].tolist(), ends.tolist(), states[firsts].tolist(), strict=True)
    return [(day, first - HOURS * day, min(end - HOURS * day, HOURS), state) for day, first, end, state in spans]


def _leaders(world: Clickstream, times: Ints, states: Ints, n_states: int) -> list[list[tuple[int, float]]]:
    """The documents with the highest click rate in their pool, by state."""
    visits = world.visits
    first = np.flatnonzero(np.diff(visits.times // STEP, prepend=-1))  # one visit per minute
    pools = visits.pool_documents[visits.pools[first]]
    rates = np.where(pools >= 0, world.click_rates.at(np.maximum(pools, 0), visits.times[first]), -1.0)
    best = visits.document_ids[pools[np.arange(len(pools)), rates.argmax(axis=1)]]
    minute_states = states[np.minimum(np.searchsorted(times, visits.times[first]), len(states) - 1)]
    counts = [Counter(best[minute_states == state].tolist()) for state in range(n_states)]
    return [[(document, n / each.total()) for document, n in each.most_common(LEADERS)] for each in counts]
