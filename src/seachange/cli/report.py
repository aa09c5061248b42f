"""report: everything about a log and a model, on one page."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from seachange.cli.console import Prose, next_steps
from seachange.cli.options import Confidence, Force, ModelFile, Seed, WeightedLogInput, learn_again, open_model, option
from seachange.engine import stage
from seachange.outputs import claim_file, written_whole

if TYPE_CHECKING:
    from seachange.analysis.report_content import ReportContent


def report(
    console: Prose,
    given: WeightedLogInput,
    model: ModelFile,
    out: Annotated[
        Path | None, option("FILE", "Write to this file; default: report.html next to MODEL.", "--out", "-o")
    ] = None,
    confidence: Confidence = 0.95,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Write an HTML report on a log and a model."""
    from seachange.analysis.report_content import as_document, report_content
    from seachange.report.layout import basis_of, reasons_text, refusals_of
    from seachange.report.page import page_of
    from seachange.report.summary_section import headline

    log, loaded = given.log, open_model(model, given.log)
    target = claim_file(model.with_name("report.html") if out is None else out, force=force, inputs=[log, model])
    rounds = given.read_weighted(console, seed, loaded.encoding)
    options = given.options()
    options += ["--confidence", f"{confidence:g}"] if confidence != 0.95 else []
    options += ["--seed", str(seed)] if seed else []
    # The command that makes the report, and one that goes further.
    commands = [("report", log, model, "-o", target, *options), ("evaluate", log, model, "--online", *options)]
    found = report_content(
        rounds,
        loaded,
        log_name=log.name,
        model_name=model.name,
        commands=[shlex.join(["seachange", *map(str, words)]) for words in commands],
        confidence=confidence,
        seed=seed,
    )
    with stage("Drawing"), written_whole(target) as temporary:
        temporary.write_text(page_of(found), encoding="utf-8")
    console.say(" ".join(headline(found)))
    if found.news:
        console.say(found.news)
    if refusal := reasons_text(refusals_of(found)):
        console.say(refusal)
    if basis := basis_of(found):
        console.say(f"{basis.title}. {basis.text}")
    following = learn_again(given, model, loaded, rounds) if found.news else _next(found, log, model)
    console.finish(as_document(found), f"Wrote {target}. Open it in a browser.\n{following}")


def _next(found: "ReportContent", log: Path, model: Path) -> str:
    if found.comparison is None or found.comparison.switching.estimate is None:
        return next_steps(("check", log))
    if found.holdout.kind == "held out":
        return next_steps(("report", "LATER_LOG", model, "-o", "later.html"))
    return f"Next: deploy the model in Python with sc.load({str(model)!r}).deployer()"
