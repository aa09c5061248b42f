"""check: is this log sound, and can it support learning?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seachange.cli.options import Columns, Force, Format, Json, LogFile, app
from seachange.cli.reading import open_log
from seachange.cli.speaking import console_for, finish


@app.command()
def check(
    log: LogFile,
    columns: Columns = "",
    format: Format = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Write the cleaned log here (Parquet), and what was left out beside it."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """What is in a log, is it sound, can it support learning: exit code 0 sound, 1 with warnings, 2 not usable."""
    from seachange.check import check_log
    from seachange.check.fixing import fix_log
    from seachange.outputs import claim_file
    from seachange.report.checking import check_document, check_view, repair_told
    from seachange.report.progress import working

    if fix is not None:
        claim_file(fix, force=force, read=[log])
    console, raw, repair = console_for(json), open_log(log, columns, format), None
    with working("Reading"):
        found = check_log(raw, name=str(log))
    console.print(check_view(found, console.width))
    if fix is not None:
        with working("Writing"):
            repair = fix_log(raw, found, fix, force=force)
    closing = repair_told(repair, found) if repair else f"Next: {found.next_command}" if found.next_command else ""
    finish(console, json, check_document(found, repair), closing)
    raise typer.Exit(found.exit_code)
