"""check: is this log sound, and can it support learning?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seachange.cli.arguments import open_log
from seachange.cli.console import console_for, finish
from seachange.cli.options import Columns, Force, Format, Json, LogFile
from seachange.outputs import claim_file


def check(
    log: LogFile,
    columns: Columns = "",
    format: Format = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write a cleaned log (Parquet), and the rejected rows next to it."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Check whether a log is sound and can support learning."""
    from seachange.check import check_log
    from seachange.check.repair import fix_log
    from seachange.cli.check_view import check_document, check_view, exit_code, repair_text
    from seachange.engine import stage

    if fix is not None:
        claim_file(fix, force=force, inputs=[log])
    console, raw, repair = console_for(json), open_log(log, columns, format), None
    with stage("Reading the log"):
        found = check_log(raw, name=str(log))
    console.print(check_view(found, console.width))
    if fix is not None:
        with stage("Writing the cleaned log"):
            repair = fix_log(raw, found, fix, force=force)
    closing = repair_text(repair, found) if repair else f"Next: {found.next_command}" if found.next_command else ""
    finish(console, json, check_document(found, repair), closing)
    raise typer.Exit(exit_code(found))
