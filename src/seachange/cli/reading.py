"""What the command line is given: logs, and words that stand for numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from seachange.cli.speaking import note

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog


def read(path: Path, columns: str, drop_bad_rows: bool, model: Any = None, missing_rewards: bool = False) -> BanditLog:
    """The log at ``path``; with a model, its actions and its contexts."""
    from seachange.log.readers import read_log

    mapping = places_of(columns)
    reader = read_log if model is None else model.read_log
    log: BanditLog = reader(
        path, mapping, missing_rewards=missing_rewards, on_bad_rows="drop" if drop_bad_rows else "raise"
    )
    for rule, count in log.dropped:
        note(f"{count:,} rows left out: {rule}.")
    return log


def places_of(columns: str) -> dict[str, str | Sequence[str]]:
    """Which column holds what, from ``WORD=COLUMN,…``."""
    mapping: dict[str, str | Sequence[str]] = {}
    for pair in filter(None, columns.split(",")):
        word, _, place = (part.strip() for part in pair.partition("="))
        if not place or word in mapping:
            raise typer.BadParameter(f"{pair!r} should be WORD=COLUMN, each word once", param_hint="--columns")
        mapping[word] = place.split("+") if word == "contexts" else place
    return mapping


def with_estimates(log: BanditLog, seed: int, console: Console) -> BanditLog:
    """The log with estimated propensities, which are shown beside what was taken."""
    from seachange.log import estimate_logging_probs, propensity_report
    from seachange.report.progress import working
    from seachange.report.propensities import propensities_view

    if log.propensities_known:
        note("this log has propensities of its own; --estimate-propensities changes nothing.")
        return log
    with working("Estimating propensities"):
        probs = estimate_logging_probs(log, seed=seed)
    console.print(propensities_view(propensity_report(log, probs)), "")
    return log.with_propensities(probs, estimated=True)


def state_count(text: str) -> Any:
    """A number of states, or auto."""
    if text == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} should be auto or a number from 1 on", param_hint="--states")
    return int(text)


def period_of(text: str) -> Any:
    """A period of time or a number of rounds; nothing where there is none."""
    if text in ("", "hour", "day", "week"):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(
            f"{text!r} should be hour, day, week or a number of rounds from 1 on", param_hint="--over-time"
        )
    return int(text)


def times_to_come(text: str) -> Any:
    """Times, all of them dates or all of them seconds; nothing where there are none."""
    import numpy as np

    parts = [part.strip() for part in text.split(",")] if text else []
    for kind in ("float64", "datetime64[s]"):
        try:
            times = np.array(parts).astype(kind)
        except ValueError:
            continue
        if np.isfinite(times).all():
            return times
    raise typer.BadParameter(
        f"{text!r} should be times such as 2026-02-21T12:00, or seconds since 1970, with commas between them",
        param_hint="--at",
    )


def range_of(text: str) -> tuple[float, float] | None:
    """Two ends."""
    if not text:
        return None
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be LEAST,MOST", param_hint="--reward-range") from error
    return low, high


def claim_png(figure: Path, force: bool) -> None:
    """Make sure that a figure can be written."""
    from seachange.outputs import claim_file

    if figure.suffix != ".png":
        raise typer.BadParameter(f"{str(figure)!r} should end in .png", param_hint="--figure")
    claim_file(figure, force=force)
