"""What the command line is given: logs, and words that stand for numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import typer
from rich.console import Console

from seachange.cli.help import listed
from seachange.cli.speaking import in_options, note, say
from seachange.errors import LogError, ModelFileError, ParameterError, did_you_mean

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog
    from seachange.log.features import FeatureSpec
    from seachange.log.raw import RawLog
    from seachange.model import SwitchingModel


def read(
    path: Path,
    columns: str,
    format: str | None,
    drop_bad_rows: bool,
    model: SwitchingModel | None = None,
    missing_rewards: bool = False,
) -> BanditLog:
    """The log at ``path``; with a model, its actions and its features."""
    from seachange.log.encoding import log_from_raw
    from seachange.report.progress import working

    features = None if model is None else model.encoding
    raw = open_log(path, columns, format, features)
    with working("Reading the log"):
        log = log_from_raw(
            raw, features, missing_rewards=missing_rewards, on_bad_rows="drop" if drop_bad_rows else "raise"
        )
    for rule, count in log.dropped:
        note(in_options(f"{count:,} {'row' if count == 1 else 'rows'} left out: {rule}."))
    return log


def open_log(path: Path, columns: str, format: str | None, features: FeatureSpec | None = None) -> RawLog:
    """The log at ``path`` as it is stored; what was found by its usual names is told."""
    from seachange.log.readers import open_raw

    require_log_file(path)
    raw = open_raw(path, places_of(columns), features=features, format=format)
    if found := getattr(raw, "found", None):
        told = ", ".join(f"{word}={column}" for word, column in found.items())
        note(f"found by usual names: {told}. --columns says otherwise.")
    for text in getattr(raw, "notes", ()):
        note(text)
    return raw


def as_said(
    columns: str = "",
    format: str | None = None,
    estimate_propensities: bool = False,
    drop_bad_rows: bool = False,
) -> list[str]:
    """The options about a log that a command was given, for the next."""
    said = ["--columns", columns] if columns else []
    said += ["--format", format] if format else []
    said += ["--estimate-propensities"] if estimate_propensities else []
    return [*said, "--drop-bad-rows"] if drop_bad_rows else said


def places_of(columns: str) -> dict[str, str | Sequence[str]]:
    """Which column holds what, from ``WORD=COLUMN,…``."""
    from seachange.log.readers.places import USUAL_NAMES

    words, mapping = (*USUAL_NAMES, "contexts"), dict[str, str | Sequence[str]]()
    for pair in filter(None, columns.split(",")):
        word, _, place = (part.strip() for part in pair.partition("="))
        word = word.lower()
        if not place or word in mapping:
            raise typer.BadParameter(f"{pair!r} should be WORD=COLUMN, each word once", param_hint="--columns")
        if word not in words:
            raise typer.BadParameter(
                f"{word!r} is not one of its words, {listed([*words])}.{did_you_mean(word, words)}",
                param_hint="--columns",
            )
        mapping[word] = place.split("+") if word == "contexts" else place
    return mapping


def open_model(path: Path, log: Path | None = None) -> SwitchingModel:
    """The model at ``path``; a ``log`` that stands in its place, or it in the log's, is told."""
    from seachange.log.readers.sources import near_file
    from seachange.model import load

    if path.is_dir():
        raise ModelFileError(f"{str(path)!r} is a folder; a model is one file.")
    if near := near_file(path):
        raise ModelFileError(f"there is no file {str(path)!r}.{near}")
    if path.is_file() and not is_zipfile(path):
        if log is not None and _is_model(log):
            raise ModelFileError(
                f"{str(path)!r} is a log, not a model, and {str(log)!r} is a model: did you swap them? "
                f"Say {shlex.join([str(path), str(log)])}."
            )
        raise ModelFileError(f"{str(path)!r} is no model file: `seachange learn LOG -o MODEL` writes one.")
    return load(path)


def require_log_file(path: Path) -> None:
    """Raise where a model stands in the place of a log."""
    if _is_model(path):
        raise LogError(f"{str(path)!r} is a model, not a log: a log comes first, then the model.")


def _is_model(path: Path) -> bool:
    try:
        with ZipFile(path) as archive:
            return "manifest.json" in archive.namelist()
    except (BadZipFile, OSError):
        return False


def words_among(text: str, known: Sequence[str], option: str) -> list[str]:
    """Words with commas between them, each of which must be known, in whatever case."""
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise typer.BadParameter(
                f"{word!r} is not one of {listed([*known])}.{did_you_mean(word, known)}", param_hint=option
            )
    return words


def with_estimates(log: BanditLog, seed: int, console: Console) -> BanditLog:
    """The log with estimated propensities, which are shown beside what was taken."""
    from seachange.log import estimate_logging_probs, propensity_report
    from seachange.report.progress import working
    from seachange.report.propensities import propensities_told

    if log.propensities_known:
        note("this log has propensities of its own; --estimate-propensities changes nothing.")
        return log
    with working("Estimating propensities"):
        probs = estimate_logging_probs(log, seed=seed)
        report = propensity_report(log, probs)
    say(console, propensities_told(report), "")
    return log.with_propensities(probs, estimated=True)


def state_count(text: str) -> Any:
    """A number of states, or auto."""
    if text.lower() == "auto":
        return "auto"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} should be auto or a number from 1 on", param_hint="--states")
    return int(text)


def period_of(text: str) -> Any:
    """A period of time or a number of rounds; nothing where there is none."""
    if text.lower() in ("", "hour", "day", "week"):
        return text.lower()
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(
            f"{text!r} should be hour, day, week or a number of rounds from 1 on."
            f"{did_you_mean(text, ('hour', 'day', 'week'))}",
            param_hint="--over-time",
        )
    return int(text)


def times_to_come(text: str) -> Any:
    """Times, all of them dates or all of them seconds; nothing where there are none."""
    import numpy as np

    from seachange.evaluation.time_features import moments_of

    parts = [part.strip() for part in text.split(",")] if text else []
    try:
        seconds = np.array(parts, dtype=np.float64)
        if np.isfinite(seconds).all():
            return seconds
    except ValueError:
        pass
    try:
        return moments_of(parts)
    except ParameterError as error:
        raise typer.BadParameter(
            f"{text!r} should be times such as 2026-02-21T12:00, or seconds since 1970, with commas between them",
            param_hint="--at",
        ) from error


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
    claim_ending(figure, (".png",), "--figure", force)


def claim_ending(path: Path, endings: Sequence[str], option: str, force: bool, read: Iterable[Path] = ()) -> None:
    """Make sure that a file of one of these kinds can be written, and over nothing that is ``read``."""
    from seachange.outputs import claim_file

    if path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{str(path)!r} should end in {listed([*endings])}", param_hint=option)
    claim_file(path, force=force, read=read)
