"""states: when the state changed, how probable that is, and how the states differ."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seachange.cli.console import Prose, note
from seachange.cli.options import (
    THE_LOG,
    Force,
    LogInput,
    Seed,
    States,
    choice,
    claim_output,
    flag,
    learn_again,
    open_model,
    option,
)
from seachange.engine import stage

Oracle = Literal["hmm", "change-point"]
Rewards = Literal["auto", "gaussian", "bernoulli", "hurdle"]


def states(
    console: Prose,
    given: LogInput,
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="Use the states of this model (default: find states).")
    ] = None,
    oracle: Annotated[Oracle, choice(Oracle, "Choose how to find states: hmm or change-point.")] = "hmm",
    states: States = "auto",
    rewards: Annotated[
        Rewards,
        choice(Rewards, "Model rewards as gaussian, clicks (bernoulli), or purchases (hurdle); hmm only."),
    ] = "auto",
    figure: Annotated[Path | None, option("FILE.png", "Draw the states as a PNG file.")] = None,
    out: Annotated[
        Path | None, option("FILE", "Write the state of every round to a .csv or .parquet file.", "--out", "-o")
    ] = None,
    missing_rewards: Annotated[
        bool, flag("--missing-rewards", help="Keep rounds whose reward was not observed.", panel=THE_LOG)
    ] = False,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Show when the state changed, how certain each change is, and how the states differ."""
    from seachange import learning
    from seachange.analysis.states_summary import as_document, summarize_states
    from seachange.cli.states_view import states_view, write_states
    from seachange.figures import draw_states

    if figure is not None:
        claim_output(figure, (".png",), "--figure", force)
    if out is not None:
        claim_output(out, (".csv", ".parquet"), "--out", force, inputs=[given.log])
    loaded = None if model is None else open_model(model, given.log)
    if oracle != "hmm" and rewards != "auto":
        raise typer.BadParameter("only --oracle hmm models the distribution of rewards", param_hint="--rewards")
    settings: dict[str, Any] = {"n_states": states, "rewards": rewards, "seed": seed}
    finder: Any = learning.oracle_named(oracle, **settings) if loaded is None else loaded.oracle
    if loaded is not None and (oracle, states, rewards) != ("hmm", "auto", "auto"):
        note("the states are the model's; --oracle, --states and --rewards have no effect.")
    log = given.read(None if loaded is None else loaded.encoding, missing_rewards=missing_rewards)
    with stage("Finding the states"):
        if loaded is None:
            finder.fit(log)
        fitted_here = loaded is None or log.fingerprint() == loaded.provenance.fingerprint
        labels = finder.predict(log)
        regimes = () if loaded is None else loaded.new_regimes(log)
        summary = summarize_states(log, finder, labels, fitted_here=fitted_here, new_regimes=regimes)
    console.print(states_view(summary, console.width))
    if figure is not None:
        draw_states(figure, summary)
    if out is not None:
        write_states(out, log, labels)
    written = " and ".join(str(path) for path in (figure, out) if path is not None)
    closing = [f"Wrote {written}."] if written else []
    if loaded is not None and model is not None and regimes:
        closing.append(learn_again(given, model, loaded, log))
    console.finish(as_document(summary), "\n".join(closing))
