"""bounds: the paper's theoretical bounds for a model."""

from typing import Annotated

from seachange.cli.console import Prose
from seachange.cli.options import ModelFile, Seed, WeightedLogInput, open_model, option


def bounds(
    console: Prose,
    given: WeightedLogInput,
    model: ModelFile,
    delta: Annotated[float, option("SHARE", "Set δ, the failure probability for states and for rewards.")] = 0.05,
    max_ratio: Annotated[
        float | None, option("M", "Set M, the largest π / π_0 (default: 1 / smallest propensity).")
    ] = None,
    min_change: Annotated[
        float | None, option("GAP", "Set Δ, the smallest change in mean reward (default: from the log).")
    ] = None,
    wrong_rounds: Annotated[
        float | None, option("N", "Set ε, the rounds in a wrong state (default: as estimated).")
    ] = None,
    exploration: Annotated[float, option("SHARE", "Set γ, the share of random choices of Exp4.S.")] = 0.0,
    seed: Seed = 0,
) -> None:
    """Compute the paper's bounds for a model, as published and corrected."""
    from seachange.cli.value_tables import bounds_document, bounds_view
    from seachange.evaluation import model_bounds

    loaded = open_model(model, given.log)
    log = given.read_weighted(console, seed, loaded.encoding)
    settings = {"max_ratio": max_ratio, "min_change": min_change, "wrong_rounds": wrong_rounds}
    found = model_bounds(log, loaded, delta=delta, exploration=exploration, **settings)
    console.print(bounds_view(found))
    console.finish(bounds_document(found))
