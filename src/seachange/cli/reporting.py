"""report: all that a log and a model tell, to look at."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    app,
)
from seachange.cli.reading import as_said, open_model, read, with_estimates
from seachange.cli.speaking import console_for, finish

if TYPE_CHECKING:
    from seachange.report.findings import Findings


@app.command()
def report(
    log: LogFile,
    model: ModelFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The HTML file to write; report.html beside the model where nothing is said."),
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
    """All that a log and a model tell, in one HTML file to look at: it opens anywhere, without a network."""
    from seachange.outputs import claim_file, written_whole
    from seachange.report.findings import as_document, find
    from seachange.report.page import page_of
    from seachange.report.page.basis import basis_of
    from seachange.report.page.wording import headline, refusal_of
    from seachange.report.progress import working

    console, loaded = console_for(json), open_model(model, log)
    target = claim_file(model.with_name("report.html") if out is None else out, force=force, read=[log, model])
    table = read(log, columns, format, drop_bad_rows, loaded)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    said = as_said(columns, format, estimate_propensities, drop_bad_rows)
    said += ["--confidence", f"{confidence:g}"] if confidence != 0.95 else []
    said += ["--seed", str(seed)] if seed else []
    found = find(
        table,
        loaded,
        log_name=log.name,
        model_name=model.name,
        commands=_commands(log, model, target, said),
        confidence=confidence,
        seed=seed,
    )
    with working("Drawing"), written_whole(target) as beside:
        beside.write_text(page_of(found), encoding="utf-8")
    console.print(" ".join(headline(found)), soft_wrap=True, markup=False)
    if refusal := refusal_of(found):
        console.print(refusal, soft_wrap=True, markup=False)
    if basis := basis_of(found):
        console.print(f"{basis.title}. {basis.told}", soft_wrap=True, markup=False)
    finish(console, json, as_document(found), f"Written: {target} (open it in a browser). {_next(found, log, model)}")


def _commands(log: Path, model: Path, out: Path, said: list[str]) -> list[str]:
    """The command that made the report, and those that ask more of the same."""
    return [
        shlex.join(["seachange", "report", str(log), str(model), "-o", str(out), *said]),
        shlex.join(["seachange", "evaluate", str(log), str(model), "--online", *said]),
    ]


def _next(found: Findings, log: Path, model: Path) -> str:
    """What to do after reading."""
    if found.answer is None or found.answer.switching.estimate is None:
        return f"Next: seachange check {shlex.quote(str(log))} says what this log can support."
    if found.judging.kind == "held out":
        again = f"seachange report LATER_LOG {shlex.quote(str(model))} -o later.html"
        return f"Next: report on a later log, which the model has not seen: {again}"
    return f"Next: deploy it: sc.load({str(model)!r}).deployer()"
