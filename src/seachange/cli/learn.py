"""learn: from a log to a model."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from seachange.cli.console import Prose, next_steps, note
from seachange.cli.options import Force, Seed, States, WeightedLogInput, choice, open_model, option
from seachange.engine import stage
from seachange.outputs import claim_file


def _names(registry: str) -> Sequence[str]:
    import seachange.learning  # noqa: F401 - fills the registries
    from seachange import registry as registries

    names: list[str] = getattr(registries, registry).names
    return names


_ORACLES, _OBJECTIVES = partial(_names, "ORACLES"), partial(_names, "LEARNERS")


def learn(
    console: Prose,
    given: WeightedLogInput,
    out: Annotated[Path, option("MODEL", "Write the model to this file.", "--out", "-o")],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="LOG", help="More logs with the same actions, in any order.")
    ] = None,
    start_from: Annotated[
        Path | None, option("MODEL", "Keep the columns, features, and state numbers of this model.")
    ] = None,
    oracle: Annotated[str, choice(_ORACLES, "Choose how to find states: hmm, change-point, or none.")] = "hmm",
    states: States = "auto",
    objective: Annotated[
        str, choice(_OBJECTIVES, "Maximize ips, snips, dm, dr, mrdr, poem, or cross-entropy; auto picks the best.")
    ] = "auto",
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Learn a switching policy from one or more logs."""
    from seachange import learning
    from seachange.analysis.states_summary import clock_in
    from seachange.cli.tables import log_table, states_table
    from seachange.cli.value_tables import trial_text

    logs = [given.log, *(more or ())]
    target = claim_file(out, force=force, inputs=[*logs, *([] if start_from is None else [start_from])])
    earlier = None if start_from is None else open_model(start_from)
    if earlier is not None and oracle != "hmm":
        note("states keep their numbers only with --oracle hmm.")
    log, latest = given.read_joined(logs[1:], console, seed, None if earlier is None else earlier.encoding)
    console.print(log_table(log), "")
    with stage("Learning"):
        model = learning.learn(log, oracle, states, objective, align_to=earlier, seed=seed)
    console.print(states_table(log, model.labels))
    clock = clock_in(log, model.labels)
    if clock is not None and clock.followed:
        console.say(f"\n{clock}")
    if model.choice is not None:
        console.say(f"\nObjective: {model.choice.reason}")
    trial = model.trial or learning.try_out(log, model)
    if trial is not None:
        console.say(f"\n{trial_text(trial)}")
    elif model.n_states > 1:
        note("this log cannot show whether switching earns more than a single policy.")
    model.save(target)
    result = {"model": str(target), "n_states": model.n_states, "changes": len(model.labels.change_points)}
    options = given.options(columns=start_from is not None)
    steps = next_steps(
        ("report", latest, target, *options, "-o", target.with_suffix(".html")),
        ("evaluate", "LATER_LOG", target, *options),
        ("inspect", target),
    )
    console.finish({**result, "clock": clock, "choice": model.choice, "trial": trial}, f"Wrote {target}.\n{steps}")
