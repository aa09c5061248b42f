"""check: is this log sound, and can it support learning?"""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seachange.cli.console import Prose
from seachange.cli.options import Force, RawLogInput, option
from seachange.engine import stage
from seachange.errors import SeachangeError, SeachangeWarning
from seachange.outputs import claim_file

if TYPE_CHECKING:
    from seachange.log.raw import RawLog

MOST_ESTIMATED = 200_000  # rounds of a log whose propensities are estimated to see how well that works


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
    from seachange.check.log_check import MADE_UP
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
    document = check_document(found, repair)
    if found.worst != "error" and found.rules() & MADE_UP and found.n_rounds <= MOST_ESTIMATED:
        document["estimated_propensities"], text = _estimated(raw)
        console.say(*["", text] * bool(text))
    console.finish(document, repair_text(repair, found) if repair else next_text(found))
    raise typer.Exit(exit_code(found))


def _estimated(raw: "RawLog") -> tuple[dict[str, Any] | None, str]:
    """How well the propensities of a log can be estimated; nothing if it cannot be read as it is."""
    from seachange.cli.tables import estimated_propensities
    from seachange.log.encoding import log_from_raw

    with warnings.catch_warnings(), stage("Estimating propensities"):
        warnings.simplefilter("ignore", SeachangeWarning)
        try:
            return estimated_propensities(log_from_raw(raw, on_bad_rows="drop"))[1:]
        except SeachangeError:
            return None, ""
