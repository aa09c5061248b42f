"""inspect: what is in a model."""

from __future__ import annotations

from seachange.cli.arguments import open_model
from seachange.cli.console import console_for, finish, next_steps
from seachange.cli.options import Json, ModelFile


def inspect(model: ModelFile, json: Json = False) -> None:
    """Show what is in a model and how it was learned."""
    from seachange.cli.model_view import model_document, model_view
    from seachange.model_file import read_written

    console, loaded, written = console_for(json), open_model(model), read_written(model)
    console.print(model_view(loaded, written))
    finish(console, json, model_document(loaded, written), next_steps(("evaluate", "LATER_LOG", model)))
