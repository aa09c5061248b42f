"""inspect: what is in a model."""

from seachange.cli.console import Prose, next_steps
from seachange.cli.options import ModelFile, open_model


def inspect(console: Prose, model: ModelFile) -> None:
    """Show what is in a model and how it was learned."""
    from seachange.cli.tables import model_document, model_view
    from seachange.model_file import read_model

    loaded, written = open_model(model), read_model(model)[1]
    console.print(model_view(loaded, written))
    console.finish(model_document(loaded, written), next_steps(("evaluate", "LATER_LOG", model)))
