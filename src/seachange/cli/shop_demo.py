"""The demo: the whole loop on a simulated click log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import RenderableType

from seachange.cli.tables import estimates_table, log_table, states_table, table
from seachange.deploy.single import SinglePolicy
from seachange.evaluation.estimators import ValueEstimate, evaluate, evaluate_logging
from seachange.figures import draw_recovery
from seachange.learning import learn
from seachange.simulate.click_worlds import Shop
from seachange.simulate.rollout import rollout
from seachange.states.labels import share_right

CONFIDENCE = 0.95
LEARNED_SHARE = 0.6


@dataclass(frozen=True)
class DemoResult:
    """The numbers of the demo."""

    n_rounds: int
    n_states: int
    states_right: float  # share of rounds whose state was identified
    estimates: list[tuple[str, ValueEstimate]]  # on held-out rounds
    deployed: dict[str, float]  # mean expected reward
    figure: str
    model: str


def run_demo(folder: Path, seed: int, show: Callable[[str, RenderableType], None]) -> DemoResult:
    """Find states, learn, evaluate, deploy; ``show`` gets the heading and the table of each step."""
    shop = Shop(seed=seed)
    log, truth = shop.log(seed), shop.log_states(seed)
    show("1. A click log from a shop whose visitors change their mood; the mood is not in the log", log_table(log))

    known, later = log.split(LEARNED_SHARE)
    model = learn(known, oracle="hmm", n_states="auto", seed=seed)
    right = share_right(model.labels.states, truth[: len(known)])
    heading = f"2. States found in the first {LEARNED_SHARE:.0%} of the log; {right:.1%} of rounds are correct"
    show(heading, states_table(known, model.labels))

    single = learn(known, oracle="none").policies[0]
    labels = model.label_ahead(later)
    estimates = [
        ("logging policy", evaluate_logging(later, CONFIDENCE)),
        ("best single policy", evaluate(later, single, ("dr",), confidence=CONFIDENCE)[0]),
        ("switching policy", evaluate(later, model.policies, ("dr",), confidence=CONFIDENCE, labels=labels)[0]),
    ]
    show(
        "3. What each policy would have earned on the rest, with states inferred from earlier rewards",
        estimates_table("Estimates", estimates, CONFIDENCE),
    )

    world_seed = seed + 1
    worlds = list(shop.rounds(world_seed, shop.horizon))
    means, states, contexts = worlds[0].mean_rewards, worlds[0].states, worlds[0].contexts
    switching = rollout(shop, model.deployer(), world_seed)
    rewards = {
        "switching policy": switching.expected_rewards,
        "best single policy": rollout(shop, SinglePolicy(single), world_seed).expected_rewards,
        "logging policy": np.einsum("nk,nk->n", shop.logging_probs(contexts), means),
        "knows every mood": means.max(axis=1),
    }
    best = rewards["knows every mood"].mean()
    rows = [(name, f"{series.mean():.4f}", f"{series.mean() / best:.1%}") for name, series in rewards.items()]
    show(
        f"4. Deployment for {shop.horizon:,} new rounds with {np.count_nonzero(np.diff(states))} changes of mood",
        table("Clicks per round", ("policy", "mean", "of the best possible"), rows),
    )

    figure, saved = folder / "recovery.png", folder / "shop.seachange"
    draw_recovery(figure, rewards, states, switching.state_probs, smoothing=300, unit="clicks per round")
    model.save(saved)
    return DemoResult(
        n_rounds=len(log),
        n_states=model.n_states,
        states_right=right,
        estimates=estimates,
        deployed={name: float(series.mean()) for name, series in rewards.items()},
        figure=str(figure),
        model=str(saved),
    )
