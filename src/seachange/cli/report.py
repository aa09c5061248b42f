"""report: everything about a log and a model, on one page."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from seachange.cli.arguments import log_options, open_model, read, with_estimates
from seachange.cli.console import console_for, finish, next_steps, say
from seachange.cli.options import (
    Columns,
    Confidence,
    DropBadRows,
    EstimatePropensities,
    Force,
    Format,
    Json,
    LogFile,
    ModelFile,
    Seed,
)
from seachange.outputs import claim_file, written_whole

if TYPE_CHECKING:
    from seachange.analysis.report_content import ReportContent


def report(
    log: LogFile,
    model: ModelFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write to this file; default: report.html next to MODEL."),
    ] = None,
    columns: Columns = "",
    format: Format = None,
    confidence: Confidence = 0.95,
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Write an HTML report on a log and a model."""
    from seachange.analysis.report_content import as_document, report_content
    from seachange.engine import stage
    from seachange.report.layout import basis_of, reasons_text, refusals_of
    from seachange.report.page import page_of
    from seachange.report.summary_section import headline

    console, loaded = console_for(json), open_model(model, log)
    target = claim_file(model.with_name("report.html") if out is None else out, force=force, inputs=[log, model])
    table = read(log, columns, format, drop_bad_rows, loaded)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    options = log_options(columns, format, estimate_propensities, drop_bad_rows)
    options += ["--confidence", f"{confidence:g}"] if confidence != 0.95 else []
    options += ["--seed", str(seed)] if seed else []
    # The command that makes the report, and one that goes further.
    commands = [("report", log, model, "-o", target, *options), ("evaluate", log, model, "--online", *options)]
    found = report_content(
        table,
        loaded,
        log_name=log.name,
        model_name=model.name,
        commands=[shlex.join(["seachange", *map(str, words)]) for words in commands],
        confidence=confidence,
        seed=seed,
    )
    with stage("Drawing"), written_whole(target) as temporary:
        temporary.write_text(page_of(found), encoding="utf-8")
    say(console, " ".join(headline(found)))
    if refusal := reasons_text(refusals_of(found)):
        say(console, refusal)
    if basis := basis_of(found):
        say(console, f"{basis.title}. {basis.text}")
    finish(console, json, as_document(found), f"Wrote {target}. Open it in a browser.\n{_next(found, log, model)}")


def _next(found: ReportContent, log: Path, model: Path) -> str:
    if found.comparison is None or found.comparison.switching.estimate is None:
        return next_steps(("check", log))
    if found.holdout.kind == "held out":
        return next_steps(("report", "LATER_LOG", model, "-o", "later.html"))
    return f"Next: deploy the model in Python with sc.load({str(model)!r}).deployer()"
