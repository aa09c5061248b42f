"""The paper's second experiment: clicks of a front page, learned from six days, deployed on them and on the next four.

Every run draws its own visits, one a second, and its own ten documents of each pool. What a method earns is told
relative to documents shown at random, which is how they were logged.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from seachange.engine import map_in_order
from seachange.errors import SeachangeWarning
from seachange.experiments.methods import STATIONARY, SWITCHING, default_methods
from seachange.experiments.run_store import RunStore
from seachange.experiments.yahoo_states import StatesFound, states_found
from seachange.params import require
from seachange.simulate.clickstream import ClickRates, Clickstream, DocumentFeatures
from seachange.simulate.rollout import rollout
from seachange.simulate.visits import Visits
from seachange.states.hmm import HMMOracle

HORIZONS = ("same days", "next days")
# Relative click rates in the paper's table, on the same six days and on the next four.
PAPER = {"IPS": (1.13, 1.12), "DR": (1.16, 1.17), "POEM": (1.13, 1.13), "k-CD": (1.21, 1.21), "k-HMM": (1.25, 1.24)}
PAPER_STATES = 10
# Goes up when a method changes: runs of different ones do not belong into one table.
METHODS_VERSION = 1
PRINTED, ORACLE = "k-CD (as printed)", "oracle"
METHODS = (*STATIONARY, "k-CD", PRINTED, "k-HMM", ORACLE)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the paper says, and what it leaves open."""

    days: int = 6  # to learn from
    next_days: int = 4  # that come after them
    n_documents: int = 10  # K, of each pool
    features: DocumentFeatures = "documents"  # f(x, a); the paper's are the documents' own
    window: float = 43_200.0  # seconds around a round in which a document's click rate is estimated
    smoothing: float = 100.0  # shows at the average rate that are added there
    restarts: int = 1  # of EM
    tolerance: float = 1e-6  # it stops at less log-likelihood gained a round

    def __post_init__(self) -> None:
        require(0 < self.window < np.inf, f"window must be positive; got {self.window / 3600:g} hours.")
        require(0 <= self.smoothing < np.inf, f"smoothing must be at least 0 and finite; got {self.smoothing:g}.")

    @property
    def hmm(self) -> HMMOracle:
        """The oracle of k-HMM."""
        return HMMOracle(restarts=self.restarts, tolerance=self.tolerance)


@dataclass(frozen=True)
class Result:
    """One method over all runs, on one horizon."""

    method: str
    horizon: str
    n_states: int | None
    mean: float  # click rate over that of documents shown at random
    std: float  # over runs
    oracle_share: float  # of what is earned when every click rate is known
    paper: float | None
    data: str  # whose clicks these are


def worlds(visits: Visits, settings: Settings) -> tuple[Clickstream, Clickstream]:
    """The days that are learned from, and the next."""
    rates = ClickRates.of(visits, window=settings.window, smoothing=settings.smoothing)
    spans = ((0, settings.days), (settings.days, settings.days + settings.next_days))
    same, later = (
        Clickstream(
            visits=visits.of_days(*span),
            click_rates=rates,
            n_documents=settings.n_documents,
            features=settings.features,
        )
        for span in spans
    )
    return same, later


Run = tuple[int, int]  # seed and k; k = 0: the methods without states, and the oracle


def run_methods(run: Run, visits: Path, settings: Settings, printed: int) -> dict[str, list[float]]:
    """Relative click rates of the methods of a run, on both horizons; as printed only where k is ``printed``."""
    seed, k = run
    both, log = _world(visits, settings, seed)
    random = [world.logging_value(seed) for world in both]
    names: tuple[str, ...]
    if k == 0:
        names = STATIONARY
        values = {ORACLE: [world.oracle_value(seed) / base for world, base in zip(both, random, strict=True)]}
    else:
        names = (*SWITCHING, *([PRINTED] if k == printed else []))
        values = {}
    methods = default_methods(len(log), settings.hmm)
    for name in names:
        with warnings.catch_warnings():
            # A detector that finds fewer segments than states is part of what the experiment measures.
            warnings.simplefilter("ignore", SeachangeWarning)
            deployer = methods[name](log, max(k, 1))
        earned = (rollout(world, deployer, seed).expected_rewards.mean() for world in both)
        values[name] = [float(value / base) for value, base in zip(earned, random, strict=True)]
    return values


@lru_cache(maxsize=1)
def _world(visits: Path, settings: Settings, seed: int) -> tuple[tuple[Clickstream, Clickstream], Any]:
    both = _worlds(visits, settings)
    return both, both[0].log(seed)


@lru_cache(maxsize=1)
def _worlds(visits: Path, settings: Settings) -> tuple[Clickstream, Clickstream]:
    return worlds(Visits.load(visits), settings)


def replicate(
    store: RunStore, visits: Path, settings: Settings, runs: Sequence[Run], printed: int, workers: int
) -> Iterator[dict[str, list[float]]]:
    """``run_methods`` of every run, those that are done already from ``store``."""
    done = store.done()
    left = [run for run in runs if name_of(run) not in done]
    yield from (done[name_of(run)] for run in runs if name_of(run) in done)
    task = partial(run_methods, visits=visits, settings=settings, printed=printed)
    for run, result in zip(left, map_in_order(task, left, workers=workers, kind="processes"), strict=True):
        store.add(name_of(run), result)
        yield result


def states_of(visits: Path, settings: Settings, seed: int, n_states: int) -> StatesFound:
    """What the HMM finds in the log of a run."""
    return states_found(_worlds(visits, settings)[0], settings.hmm.set_params(n_states=n_states), seed)


def name_of(run: Run) -> str:
    """What a run is called in a store."""
    return f"seed {run[0]}, k {run[1]}"


def summarise(store: RunStore, seeds: Sequence[int], counts: Sequence[int], data: str) -> list[Result]:
    """All methods on both horizons; those with states for every k of ``counts``."""
    done = store.done()
    oracle = np.array([done[name_of((seed, 0))][ORACLE] for seed in seeds])
    results = []
    for name in METHODS:
        switching = name in SWITCHING or name == PRINTED
        for k in counts if switching else (0,):
            found = [done[name_of((seed, k))].get(name) for seed in seeds]
            if None in found:
                continue
            values = np.array(found)
            for i, horizon in enumerate(HORIZONS):
                std = float(values[:, i].std(ddof=1)) if len(values) > 1 else 0.0
                share = float(values[:, i].mean() / oracle[:, i].mean())
                paper = PAPER[name][i] if name in PAPER and k in (0, PAPER_STATES) else None
                mean = float(values[:, i].mean())
                results.append(Result(name, horizon, k if switching else None, mean, std, share, paper, data))
    return results


def left_out(visits: Path, settings: Settings) -> str:
    """What is said of visits whose pools are too small; nothing where there are none."""
    n = sum(world.n_too_small for world in _worlds(visits, settings))
    if not n:
        return ""
    have = "visit is left out: its pool has" if n == 1 else "visits are left out: their pools have"
    return f"{n:,} {have} fewer than {settings.n_documents} documents."


def in_common(settings: Settings, files: Sequence[Path], printed: int) -> dict[str, Any]:
    """What runs in a store have in common."""
    from seachange import __version__

    words = {"next_days": "next days", "n_documents": "documents", "window": "window in seconds"}
    return {words.get(name, name): value for name, value in asdict(settings).items()} | {
        "states of the table": printed,
        "files": [[path.name, path.stat().st_size] for path in files],
        "version": f"{__version__}, methods {METHODS_VERSION}",
    }
