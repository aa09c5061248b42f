"""Arguments and options that commands share: the parsers of their values, logs, models, and output files."""

import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args
from zipfile import BadZipFile, ZipFile, is_zipfile

import typer

from seachange.cli.console import Prose, next_steps, note
from seachange.engine import cores, stage
from seachange.errors import LogError, ModelFileError, did_you_mean, require
from seachange.outputs import claim_file

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog
    from seachange.log.features import FeatureSpec
    from seachange.log.raw import RawLog
    from seachange.model import SwitchingModel

THE_LOG, OUTPUT = "The log", "Output"
CORES = cores()
COLUMNS = (
    "Map roles to columns, as in action=item,contexts=age+hour. Roles: action, reward, propensity, time, sequence, "
    "contexts. Columns with common names are detected; all others become contexts."
)


def listed(words: Iterable[str]) -> str:
    """``a, b or 'c d'``."""
    return " or ".join(", ".join(repr(word) if " " in word else word for word in words).rsplit(", ", 1))


def option(metavar: str, help: str, *names: str, panel: str | None = None, parser: Any = None, **settings: Any) -> Any:
    """An option with a value, which ``parser`` makes of its text if it is given."""
    settings |= {"metavar": metavar, "help": help, "rich_help_panel": panel, "parser": parser}
    return typer.Option(*names, show_default=parser is None, **settings)


def flag(*names: str, help: str, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(*names, help=help, rich_help_panel=panel)


def choice(known: Any, help: str, panel: str | None = None) -> Any:
    """An option that takes one of the ``known`` words, in any case: a ``Literal``, or a function that returns them."""

    def words() -> Sequence[str]:
        return get_args(known) or known()

    def parse(text: str) -> str:
        return known_word(text, words())

    def complete(incomplete: str) -> list[str]:
        return [word for word in words() if word.startswith(incomplete)]

    return typer.Option(parser=parse, autocompletion=complete, metavar="NAME", help=help, rich_help_panel=panel)


def known_word(text: str, known: Sequence[str]) -> str:
    """The one of the ``known`` words that ``text`` is, in any case."""
    if text.lower() not in known:
        raise typer.BadParameter(f"{text!r} is not one of {listed(known)}.{did_you_mean(text, known)}")
    return text.lower()


def parse_columns(text: str) -> dict[str, str | Sequence[str]]:
    """Columns by role, from ``ROLE=COLUMN,…``."""
    from seachange.formats.column_roles import USUAL_NAMES

    roles, columns = (*USUAL_NAMES, "contexts"), dict[str, str | Sequence[str]]()
    for pair in filter(None, text.split(",")):
        role, _, column = (part.strip() for part in pair.partition("="))
        role = role.lower()
        if not column or role in columns:
            raise typer.BadParameter(
                f"{pair!r} should be ROLE=COLUMN, each role once; contexts are joined by + as in contexts=A+B",
                param_hint="--columns",
            )
        if role not in roles:
            problem = f"{role!r} is not a role; roles are {listed(roles)}.{did_you_mean(role, roles)}"
            raise typer.BadParameter(problem, param_hint="--columns")
        columns[role] = column.split("+") if role == "contexts" else column
    return columns


def word_or_count(text: str, words: Sequence[str], expected: str) -> Any:
    """One of ``words``, in any case, or a number of at least 1."""
    if text.lower() in words:
        return text.lower()
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} should be {expected}.{did_you_mean(text, words)}")
    return int(text)


ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by `seachange learn`.")]
COUNT = partial(word_or_count, words=("auto",), expected="auto or a number of at least 1")
States = Annotated[Any, option("N", "Set the number of states (default: auto, by predicted rewards).", parser=COUNT)]
Workers = Annotated[int, option("N", "Run this many processes; results do not change.", min=1)]
Confidence = Annotated[float, option("SHARE", "Set the confidence level of intervals.")]
Seed = Annotated[int, option("N", "Set the random seed; the same seed gives the same results.", panel=OUTPUT)]
Force = Annotated[bool, flag("--force", help="Overwrite existing files.", panel=OUTPUT)]
Json = Annotated[bool, flag("--json", help="Print one JSON document on stdout; text goes to stderr.", panel=OUTPUT)]
Quiet = Annotated[bool, flag("--quiet", "-q", help="Print only errors and, with --json, the document.", panel=OUTPUT)]


@dataclass(frozen=True, kw_only=True)
class RawLogInput:
    """A log, as commands take it that look at raw columns."""

    log: Annotated[
        Path, typer.Argument(metavar="LOG", help="A log in time order: a file, a folder, or a quoted pattern.")
    ]
    columns: Annotated[str, option("ROLE=COL,…", COLUMNS, panel=THE_LOG, parser=str)] = ""
    format: Annotated[
        str | None, option("NAME", "Set the format: csv, json-lines, dsjson, vw, … (default: detect).", panel=THE_LOG)
    ] = None

    def open(self, features: "FeatureSpec | None" = None) -> "RawLog":
        """Open the log, and list the columns that were detected."""
        from seachange.reading import open_raw

        if _is_model(self.log):
            raise LogError(f"{str(self.log)!r} is a model, not a log. Name the log first, then the model.")
        raw = open_raw(self.log, parse_columns(self.columns), features=features, format=self.format)
        if found := getattr(raw, "found", None):
            detected = ", ".join(f"{role}={column}" for role, column in found.items())
            note(f"detected columns: {detected}. Use --columns to change them.")
        return raw


@dataclass(frozen=True, kw_only=True)
class LogInput(RawLogInput):
    """A log whose rows keep the rules."""

    drop_bad_rows: Annotated[bool, flag("--drop-bad-rows", help="Drop rounds that are bad.", panel=THE_LOG)] = False

    def read(self, features: "FeatureSpec | None" = None, *, missing_rewards: bool = False) -> "BanditLog":
        """Read the log, with the actions and encoding of ``features`` if they are given."""
        from seachange.log.encoding import log_from_raw

        raw = self.open(features)
        with stage("Reading the log"):
            log = log_from_raw(
                raw, features, missing_rewards=missing_rewards, on_bad_rows="drop" if self.drop_bad_rows else "raise"
            )
        if log.dropped:
            n_dropped = sum(count for _, count in log.dropped)
            rules = "; ".join(f"{rule} ({count:,})" for rule, count in log.dropped)
            note(f"dropped {n_dropped:,} of {len(log) + n_dropped:,} rounds: {rules}.")
        return log

    def options(self, *, columns: bool = True) -> list[str]:
        """These options, for the next command."""
        values = {"--columns": self.columns if columns else "", "--format": self.format}
        given = [word for name, value in values.items() if value for word in (name, value)]
        return [*given, *["--drop-bad-rows"] * self.drop_bad_rows]


@dataclass(frozen=True, kw_only=True)
class WeightedLogInput(LogInput):
    """A log with propensities, which can be estimated."""

    estimate_propensities: Annotated[
        bool, flag("--estimate-propensities", help="Estimate propensities, replacing any in the log.", panel=THE_LOG)
    ] = False

    def read_weighted(self, console: Prose, seed: int, features: "FeatureSpec | None" = None) -> "BanditLog":
        """Read the log; if its propensities are estimated, say how good they are."""
        log = self.read(features)
        if not self.estimate_propensities:
            return log
        from seachange.cli.tables import estimated_propensities

        if log.propensities_known:
            note("--estimate-propensities replaces the propensities in the log.")
        with stage("Estimating propensities"):
            probs, _, text = estimated_propensities(log, seed)
        console.say(text, "")
        return log.with_propensities(probs, estimated=True)

    def read_joined(
        self, more: Sequence[Path], console: Prose, seed: int, features: "FeatureSpec | None" = None
    ) -> "tuple[BanditLog, Path]":
        """Join this log with ``more``; also the latest of them. The features are given, or those of the earliest."""
        from seachange.log.bandit_log import BanditLog

        if not more:
            return self.read_weighted(console, seed, features), self.log
        for path in more:
            swapped = f"{str(path)!r} is a model, not a log. To keep its state numbers, use --start-from {path}."
            require(not _is_model(path), swapped, LogError)
        inputs = [self, *(replace(self, log=path) for path in more)]
        starts = {each.log: each._start(features) for each in inputs}
        if None not in starts.values():
            inputs.sort(key=lambda each: (starts[each.log], each.log))
        logs: list[BanditLog] = []
        for each in inputs:
            try:
                logs.append(each.read_weighted(console, seed, features))
            except LogError as error:
                raise LogError(f"{str(each.log)!r}: {error.problem}", error.fix) from error
            features = features or logs[0].features
        try:
            return BanditLog.joined(logs), inputs[-1].log
        except LogError as error:
            names = ", ".join(f"log {number} is {str(each.log)!r}" for number, each in enumerate(inputs, 1))
            raise LogError(f"{error.problem.rstrip('.')} ({names}).", error.fix) from error

    def _start(self, features: "FeatureSpec | None") -> float | None:
        """When the first rounds start, in seconds; None if that is unknown."""
        from seachange.log.encoding import times_of
        from seachange.log.fingerprint import seconds_of
        from seachange.reading import open_raw

        with suppress(LogError):  # reading the log will say what is wrong
            raw = open_raw(self.log, parse_columns(self.columns), features=features, format=self.format)
            part = next((part for part in raw.parts() if len(part)), None)
            if part is not None and part.time is not None:
                times = times_of(part.time)
                return float(seconds_of(times[times == times]).min(initial=float("inf")))
        return None

    def options(self, *, columns: bool = True) -> list[str]:
        """These options, for the next command."""
        return [*super().options(columns=columns), *["--estimate-propensities"] * self.estimate_propensities]


def open_model(path: Path, log: Path | None = None) -> "SwitchingModel":
    """Load the model at ``path``; ``log`` is the other argument, in case the two were swapped."""
    from seachange.formats.sources import near_file
    from seachange.model import load

    name, near = repr(str(path)), near_file(path)
    require(not path.is_dir(), f"{name} is a folder; a model is one file.", ModelFileError)
    require(not near, f"there is no file {name}.{near}", ModelFileError)
    if path.is_file() and not is_zipfile(path):
        if log is not None and _is_model(log):
            swapped = f"the log and the model are swapped: {name} is a log and {str(log)!r} is a model"
            raise ModelFileError(f"{swapped}. Use {shlex.join([str(path), str(log)])}.")
        raise ModelFileError(f"{name} is not a model file. `seachange learn LOG -o MODEL` writes one.")
    return load(path)


def learn_again(given: LogInput, path: Path, model: "SwitchingModel", log: "BanditLog") -> str:
    """How to go on if ``log`` holds a new regime: learn it. ``path`` is the file of ``model``."""
    earlier = [] if model.provenance.rounds_seen(log) else ["OLD_LOG"]
    newer = path.with_name(f"{path.stem}-new{path.suffix}")
    step = next_steps(("learn", *earlier, given.log, "--start-from", path, *given.options(), "-o", newer))
    if not model.deployer().learns:
        return f"Do not deploy this model: it does not know the new regime and would not learn it.\n{step}"
    learns = f"sc.load({str(path)!r}).deployer() goes on learning"
    return f"Do not deploy the model frozen: {learns}. You can also learn again.\n{step}"


def _is_model(path: Path) -> bool:
    try:
        with ZipFile(path) as archive:
            return "manifest.json" in archive.namelist()
    except (BadZipFile, OSError):
        return False


def claim_output(path: Path, endings: Sequence[str], option: str, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Check that a file with one of these endings can be written, without overwriting an input."""
    if path.suffix.lower() not in endings:
        raise typer.BadParameter(f"{str(path)!r} should end in {listed(endings)}", param_hint=option)
    claim_file(path, force=force, inputs=inputs)
