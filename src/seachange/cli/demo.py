"""demo: the whole loop on built-in data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seachange.cli.console import console_for, finish, next_steps
from seachange.cli.options import Force, Json, Seed
from seachange.outputs import claim_folder


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Write the figure and the model into this folder.")
    ] = Path("demo-output"),
    seed: Seed = 0,
    force: Force = False,
    json: Json = False,
) -> None:
    """Run the whole loop on built-in data, in seconds."""
    from seachange.cli.shop_demo import run_demo

    console = console_for(json)

    def show(heading: str, shown: Any) -> None:
        console.print(f"\n[bold cyan]{heading}[/]\n")
        console.print(shown)

    result = run_demo(claim_folder(out, force=force), seed, show)
    steps = next_steps(("inspect", result.model), ("check", "YOUR_LOG"))
    finish(console, json, result, f"Wrote {result.figure} and {result.model}.\n{steps}")
