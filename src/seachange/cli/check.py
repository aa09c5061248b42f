"""check: is this log sound, and can it support learning?"""

from pathlib import Path
from typing import Annotated

import typer

from seachange.cli.console import Prose
from seachange.cli.options import Force, RawLogInput, option
from seachange.engine import stage
from seachange.outputs import claim_file


def check(
    console: Prose,
    given: RawLogInput,
    fix: Annotated[
        Path | None, option("OUT", "Write a cleaned log (Parquet), and the rejected rounds next to it.")
    ] = None,
    force: Force = False,
) -> None:
    """Check whether a log is sound and can support learning."""
    from seachange.check import check_log
    from seachange.check.repair import fix_log
    from seachange.cli.check_view import check_document, check_view, exit_code, next_text, repair_text

    if fix is not None:
        claim_file(fix, force=force, inputs=[given.log])
    raw, repair = given.open(), None
    with stage("Reading the log"):
        found = check_log(raw, name=str(given.log))
    console.print(check_view(found, console.width))
    if fix is not None:
        with stage("Writing the cleaned log"):
            repair = fix_log(raw, found, fix, force=force)
    console.finish(check_document(found, repair), repair_text(repair, found) if repair else next_text(found))
    raise typer.Exit(exit_code(found))
