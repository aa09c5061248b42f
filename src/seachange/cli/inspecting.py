"""inspect: what is in a model."""

from __future__ import annotations

from seachange.cli.options import Json, ModelFile, app
from seachange.cli.reading import open_model
from seachange.cli.speaking import console_for, finish, next_steps


@app.command()
def inspect(model: ModelFile, json: Json = False) -> None:
    """What is in a model, how it was learned, and on what."""
    from seachange.model_file import read_written
    from seachange.report.inspecting import model_document, model_view

    console, loaded, written = console_for(json), open_model(model), read_written(model)
    console.print(model_view(loaded, written))
    finish(
        console, json, model_document(loaded, written), next_steps(("evaluate", "LATER_LOG", model, "on later rounds"))
    )
