"""What commands are given: logs, models, and output files."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile, is_zipfile

import typer
from rich.console import Console

from seachange.cli.app import listed
from seachange.cli.console import note, say
from seachange.cli.options import parse_columns
from seachange.errors import LogError, ModelFileError
from seachange.outputs import claim_file

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog
    from seachange.log.features import FeatureSpec
    from seachange.log.raw import RawLog
    from seachange.log.validation import OnBadRows
    from seachange.model import SwitchingModel


def read(
    path: Path,
    columns: str,
    format: str | None,
    drop_bad_rows: bool,
    model: SwitchingModel | None = None,
    missing_rewards: bool = False,
) -> BanditLog:
    """Read the log at ``path``, with the actions and features of ``model`` if there is one."""
    from seachange.engine import stage
    from seachange.log.encoding import log_from_raw

    features = None if model is None else model.encoding
    raw = open_log(path, columns, format, features)
    with stage("Reading the log"):
        on_bad_rows: OnBadRows = "drop" if drop_bad_rows else "raise"
        log = log_from_raw(raw, features, missing_rewards=missing_rewards, on_bad_rows=on_bad_rows)
    for rule, count in log.dropped:
        note(f"dropped {count:,} {'row' if count == 1 else 'rows'}: {rule}.")
    return log


def open_log(path: Path, columns: str, format: str | None, features: FeatureSpec | None = None) -> RawLog:
    """Open the log at ``path``, and list the columns that were detected."""
    from seachange.reading import open_raw

    if _is_model(path):
        raise LogError(f"{str(path)!r} is a model, not a log. Name the log first, then the model.")
    raw = open_raw(path, parse_columns(columns), features=features, format=format)
    if found := getattr(raw, "found", None):
        detected = ", ".join(f"{role}={column}" for role, column in found.items())
        note(f"detected columns: {detected}. Use --columns to change them.")
    for text in getattr(raw, "notes", ()):
        note(text)
    return raw


def log_options(
    columns: str = "", format: str | None = None, estimate_propensities: bool = False, drop_bad_rows: bool = False
) -> list[str]:
    """The options about the log that this command was given, for the next one."""
    options = ["--columns", columns] if columns else []
    options += ["--format", format] if format else []
    options += ["--estimate-propensities"] if estimate_propensities else []
    return [*options, "--drop-bad-rows"] if drop_bad_rows else options


def open_model(path: Path, log: Path | None = None) -> SwitchingModel:
    """Load the model at ``path``; ``log`` is the other argument, in case the two were swapped."""
    from seachange.formats.sources import near_file
    from seachange.model import load

    if path.is_dir():
        raise ModelFileError(f"{str(path)!r} is a folder; a model is one file.")
    if near := near_file(path):
        raise ModelFileError(f"there is no file {str(path)!r}.{near}")
    if path.is_file() and not is_zipfile(path):
        if log is not None and _is_model(log):
            raise ModelFileError(
                f"the log and the model are swapped: {str(path)!r} is a log and {str(log)!r} is a model. "
                f"Use {shlex.join([str(path), str(log)])}."
            )
        raise ModelFileError(f"{str(path)!r} is not a model file. `seachange learn LOG -o MODEL` writes one.")
    return load(path)


def _is_model(path: Path) -> bool:
    try:
        with ZipFile(path) as archive:
            return "manifest.json" in archive.namelist()
    except (BadZipFile, OSError):
        return False


def with_estimates(log: BanditLog, seed: int, console: Console) -> BanditLog:
    """The log with estimated propensities, and a summary of how good they are."""
    from seachange.cli.tables import propensities_text
    from seachange.engine import stage
    from seachange.propensities import estimate_logging_probs, propensity_report

    if log.propensities_known:
        note("this log has propensities; --estimate-propensities has no effect.")
        return log
    with stage("Estimating propensities"):
        probs = estimate_logging_probs(log, seed=seed)
        report = propensity_report(log, probs)
    say(console, propensities_text(report), "")
    return log.with_propensities(probs, estimated=True)


def claim_output(path: Path, endings: Sequence[str], option: str, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Check that a file with one of these endings can be written, without overwriting an input."""
    if path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{str(path)!r} should end in {listed(endings)}", param_hint=option)
    claim_file(path, force=force, inputs=inputs)
