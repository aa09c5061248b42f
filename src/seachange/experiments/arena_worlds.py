"""The environments of the arena: a log, the world to deploy in, and how late rewards are."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.protocols import Environment, Ints
from seachange.simulate.clickstream import ClickRates, Clickstream
from seachange.simulate.drifting import MovingLinear, RandomWalk
from seachange.simulate.front_page import FrontPage
from seachange.simulate.piecewise import PiecewiseBernoulli
from seachange.simulate.stream import Stream
from seachange.simulate.synthetic import Synthetic, paper_states

N_SEGMENTS, N_STEPS = 10, 20  # of the paper's world, and of each gradual change
CLICK_RATES = (0.02, 0.08)  # of rare clicks: 5% on average
# Action 0 is never the best, but tells the states apart 16 times as fast as the others.
REVEALING_MEANS = ((0.0, 0.6, 0.5), (0.4, 0.5, 0.6))
EVERY = 8  # of the front page's visits, one in so many


@dataclass(frozen=True)
class Arena:
    """An environment."""

    log: BanditLog
    world: Environment
    delay: int = 0
    log_states: Ints | None = None  # (n,) the regimes of the log, if they recur in the world
    states: Ints | None = None  # (T,) the regimes of the world


def _paper(seed: int, n_rounds: int, delay: int = 0) -> Arena:
    world = Synthetic(seed=seed, horizon=n_rounds, segment_length=n_rounds // N_SEGMENTS)
    return Arena(world.log(seed), world, delay, world.state_sequence, world.state_sequence)


def _unchanged(seed: int, n_rounds: int) -> Arena:
    """A single state."""
    world = Synthetic(seed=seed, n_states=1, horizon=n_rounds)
    return Arena(world.log(seed), world, 0, world.state_sequence, world.state_sequence)


def _other_order(seed: int, n_rounds: int) -> Arena:
    arena, generator = _paper(seed, n_rounds), np.random.default_rng([seed, 5])
    order = [int(generator.integers(5))]
    while len(order) < N_SEGMENTS:
        order.append(int((order[-1] + generator.integers(1, 5)) % 5))
    states = np.array(order)[np.arange(n_rounds) * N_SEGMENTS // n_rounds]
    return replace(arena, world=replace(arena.world, states=states), states=states)  # type: ignore[type-var]


def _gradual(seed: int, n_rounds: int) -> Arena:
    """Mean rewards move from those of a segment to those of the next, without a stop."""
    arena: Any = _paper(seed, n_rounds)
    states = arena.log_states[np.arange(N_SEGMENTS) * n_rounds // N_SEGMENTS]
    places = np.linspace(0, N_SEGMENTS - 1, N_SEGMENTS * N_STEPS)
    below, share = np.floor(places).astype(np.int64), (places % 1)[:, None]
    ends = arena.world.state_means[states]
    means = (1 - share) * ends[below] + share * ends[np.minimum(below + 1, N_SEGMENTS - 1)]
    steps = np.arange(n_rounds) * len(means) // n_rounds
    return Arena(arena.log, replace(arena.world, n_states=len(means), states=steps, mean_rewards=means))


def _new_state(seed: int, n_rounds: int) -> Arena:
    """The last state of the world is not in the log."""
    arena: Any = _paper(seed, n_rounds)
    seen = paper_states(n_rounds, 4, n_rounds // 8)
    return Arena(replace(arena.world, states=seen).log(seed), arena.world)


def _rare_clicks(seed: int, n_rounds: int) -> Arena:
    means = np.random.default_rng([seed, 0]).uniform(*CLICK_RATES, (5, 5))
    world = PiecewiseBernoulli(segment_means=means[paper_states(N_SEGMENTS, 5, 1)], horizon=n_rounds)
    states = paper_states(N_SEGMENTS, 5, 1)[world.state_sequence]
    return Arena(world.log(seed), world, 0, states, states)


def _revealing(seed: int, n_rounds: int) -> Arena:
    world = Synthetic(
        seed=seed, n_actions=3, n_states=2, horizon=n_rounds, segment_length=n_rounds // N_SEGMENTS,
        mean_rewards=REVEALING_MEANS, states=np.arange(n_rounds) * N_SEGMENTS // n_rounds % 2,
    )  # fmt: skip
    return Arena(world.log(seed), world, 0, world.state_sequence, world.state_sequence)


def _walk(seed: int, n_rounds: int, noise: float | None = None) -> Arena:
    world = RandomWalk(horizon=n_rounds // 2, noise=noise)
    return Arena(world.log(seed), world)


def _linear(seed: int, n_rounds: int, path: Any) -> Arena:
    world = MovingLinear(path=path, horizon=3 * n_rounds // 10)
    return Arena(world.log(seed), world)


def _front_page(seed: int, n_rounds: int) -> Arena:
    """One day of clicks, and the next."""
    visits = FrontPage(seed=seed, n_days=2).visits()
    rates, thinned = ClickRates.of(visits), visits.where(slice(None, None, EVERY))
    worlds = [Clickstream(visits=thinned.of_days(day, day + 1), click_rates=rates) for day in (0, 1)]
    return Arena(worlds[0].log(seed), worlds[1])


def _stream(seed: int, n_rounds: int, path: Path) -> Arena:
    world = Stream.read(path)
    (rounds,) = world.rounds(seed, world.horizon)
    return Arena(world.log(seed), world, 0, world.log_states(seed), rounds.states)


WORLDS: dict[str, Callable[[int, int], Arena]] = {
    "paper": _paper,
    "unchanged": _unchanged,
    "other-order": _other_order,
    "gradual": _gradual,
    "new-state": _new_state,
    "delay-10": partial(_paper, delay=10),
    "delay-1000": partial(_paper, delay=1000),
    "rare-clicks": _rare_clicks,
    "revealing": _revealing,
    "walk": _walk,
    "noisy-walk": partial(_walk, noise=0.5),
    "jumps": partial(_linear, path="jumps"),
    "turn": partial(_linear, path="turn"),
    "front-page": _front_page,
}


def arena_named(name: str, seed: int, n_rounds: int) -> Arena:
    """One of ``WORLDS``, or the stream in a file."""
    return WORLDS[name](seed, n_rounds) if name in WORLDS else _stream(seed, n_rounds, Path(name))
