"""demo: the whole loop on built-in data."""

from pathlib import Path
from typing import Annotated, Any

from seachange.cli.console import Prose, next_steps
from seachange.cli.options import Force, Seed, option
from seachange.outputs import claim_folder

CONFIDENCE = 0.95
LEARNED_SHARE = 0.6


def demo(
    console: Prose,
    out: Annotated[Path, option("FOLDER", "Write the figure and the model into this folder.", "--out", "-o")] = Path(
        "demo-output"
    ),
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Run the whole loop on built-in data, in seconds."""
    import numpy as np

    from seachange.cli.tables import log_table, states_table, table
    from seachange.cli.value_tables import deployment_rows, estimates_table
    from seachange.evaluation.deployment import evaluate_deployment
    from seachange.figures import draw_recovery
    from seachange.learning import learn
    from seachange.simulate.click_worlds import Shop
    from seachange.simulate.rollout import rollout
    from seachange.states.labels import share_right

    def show(heading: str, shown: Any) -> None:
        console.print(f"\n[bold cyan]{heading}[/]\n")
        console.print(shown)

    folder, shop = claim_folder(out, force=force), Shop(seed=seed)
    log, truth = shop.log(seed), shop.log_states(seed)
    show("1. A click log from a shop whose visitors' mood changes; the mood is not in the log", log_table(log))

    known, later = log.split(LEARNED_SHARE)
    model = learn(known, oracle="hmm", n_states="auto", seed=seed)
    right = share_right(model.labels.states, truth[: len(known)])
    heading = f"2. States found in the first {LEARNED_SHARE:.0%} of the log, right in {right:.1%} of its rounds"
    show(heading, states_table(known, model.labels))

    found = evaluate_deployment(later, model, confidence=CONFIDENCE, seed=seed)
    estimates = deployment_rows(found)
    show(
        "3. What each policy would earn on the rest, before it is deployed",
        estimates_table("Estimates", estimates, CONFIDENCE),
    )

    world_seed = seed + 1
    world = next(iter(shop.rounds(world_seed, shop.horizon)))
    switching = rollout(shop, model.deployer(), world_seed)
    rewards = {
        "switching policy": switching.expected_rewards,
        "best single policy": rollout(shop, model.deployer("single"), world_seed).expected_rewards,
        "logging policy": np.einsum("nk,nk->n", shop.logging_probs(world.contexts), world.mean_rewards),
        "knows every mood": world.mean_rewards.max(axis=1),
    }
    means = {name: float(series.mean()) for name, series in rewards.items()}
    rows = [(name, f"{mean:.4f}", f"{mean / means['knows every mood']:.1%}") for name, mean in means.items()]
    show(
        f"4. Deployment for {shop.horizon:,} new rounds with {np.count_nonzero(np.diff(world.states))} changes of mood",
        table("Clicks per round", ("policy", "mean", "share of best"), rows),
    )

    figure, saved = folder / "recovery.png", folder / "shop.seachange"
    draw_recovery(figure, rewards, world.states, switching.state_probs, smoothing=300, unit="clicks per round")
    model.save(saved)
    result = {"n_rounds": len(log), "n_states": model.n_states, "states_right": right, "estimates": estimates}
    result |= {"deployed": means, "figure": str(figure), "model": str(saved)}
    console.finish(result, f"Wrote {figure} and {saved}.\n{next_steps(('inspect', saved), ('check', 'YOUR_LOG'))}")
