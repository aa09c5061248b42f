"""bounds: the paper's theoretical bounds for a model."""

from __future__ import annotations

from typing import Annotated

import typer

from seachange.cli.arguments import open_model, read, with_estimates
from seachange.cli.console import console_for, finish
from seachange.cli.options import Columns, DropBadRows, EstimatePropensities, Format, Json, LogFile, ModelFile, Seed


def bounds(
    log: LogFile,
    model: ModelFile,
    columns: Columns = "",
    format: Format = None,
    delta: Annotated[
        float, typer.Option(metavar="SHARE", help="Set δ, the failure probability for states and for rewards.")
    ] = 0.05,
    max_ratio: Annotated[
        float | None, typer.Option(metavar="M", help="Set M, the largest π / π_0 (default: 1 / smallest propensity).")
    ] = None,
    min_change: Annotated[
        float | None,
        typer.Option(metavar="GAP", help="Set Δ, the smallest change of mean reward (default: as found)."),
    ] = None,
    wrong_rounds: Annotated[
        float | None,
        typer.Option(metavar="N", help="Set ε, the rounds in a wrong state (default: as estimated)."),
    ] = None,
    estimate_propensities: EstimatePropensities = False,
    drop_bad_rows: DropBadRows = False,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Compute the paper's bounds for a model, as printed and corrected."""
    from seachange.analysis.formatting import bounds_document
    from seachange.cli.value_tables import bounds_view
    from seachange.evaluation import model_bounds

    console, loaded = console_for(json), open_model(model, log)
    table = read(log, columns, format, drop_bad_rows, loaded)
    if estimate_propensities:
        table = with_estimates(table, seed, console)
    found = model_bounds(
        table, loaded, delta=delta, max_ratio=max_ratio, min_change=min_change, wrong_rounds=wrong_rounds
    )
    console.print(bounds_view(found))
    finish(console, json, bounds_document(found))
