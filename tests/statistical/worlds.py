"""Simulated worlds of many kinds, and what a deployment truly earns in them.

``make_world(family, seed)`` draws everything about a world from its seed: actions, states, mean rewards, noise, lengths
of stay, logging policy, rounds. ``true_values(world, deployer, single)`` simulates the deployment on the later rounds
of the log with their own states, and along fresh paths of states. Nothing here uses how a value is estimated.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
from scipy.special import softmax

import seachange as sc

LEARNED_SHARE = 0.6  # of the rounds are learned from; the rest are judged on


@dataclass(frozen=True, eq=False, kw_only=True)
class World:
    """r_t ~ noise around state_means[z_t, t, a] + walk[t, a], logged at random with known propensities."""

    family: str
    seed: int
    contexts: np.ndarray  # (n, 0), (n, d) or (n, K, d)
    state_means: np.ndarray  # (L, n, K) mean reward of every action in every round, if it were in state z
    stays: np.ndarray  # (L,) mean rounds in each state
    path: Literal["geometric", "fixed", "segments"] = "geometric"  # how long a stay is; "fixed" is also in fixed order
    step: float = 0.0  # standard deviation of a step of each mean's random walk
    rewards: Literal["gaussian", "clicks", "orders"] = "gaussian"
    noise: float = 0.0  # σ of Gaussian rewards, or of the logarithm of an order
    order: float = 1.0  # mean of an order
    explored: float = 0.2  # the least share of rounds that are logged uniformly at random; up to twice as many are
    settings: dict[str, Any] = field(default_factory=dict)  # of sc.learn

    @property
    def n_rounds(self) -> int:
        return self.state_means.shape[1]

    @property
    def n_states(self) -> int:
        return self.state_means.shape[0]

    @property
    def n_actions(self) -> int:
        return self.state_means.shape[2]

    @property
    def start(self) -> int:
        """The first round that is judged on."""
        return int(LEARNED_SHARE * self.n_rounds)

    def generator(self, purpose: int) -> np.random.Generator:
        """Random numbers of their own for each purpose."""
        return np.random.default_rng([self.seed, crc32(self.family.encode()), purpose])

    @property
    def state_shares(self) -> np.ndarray:
        """(L,) the probability of each state in any round: jumps go to any other state alike."""
        return self.stays / self.stays.sum()

    def draw_states(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """(n,) a path of states; every round has the probabilities ``state_shares``."""
        n_states = self.n_states
        if n_states == 1:
            return np.zeros(n, dtype=np.int64)
        if self.path == "fixed":
            stay = int(self.stays[0])
            return (np.arange(n) + generator.integers(stay * n_states)) // stay % n_states
        states, state = np.empty(n, dtype=np.int64), int(generator.choice(n_states, p=self.state_shares))
        t = 0
        while t < n:
            stay = self.stays[state]
            drawn = generator.geometric(1 / stay) if self.path == "geometric" else generator.uniform(0.6, 1.4) * stay
            states[t : t + int(drawn)] = state
            t, state = t + int(drawn), (state + int(generator.integers(1, n_states))) % n_states
        return states

    def draw_walk(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """(n, K) a random walk of every mean, from 0 before the first round."""
        return np.cumsum(self.step * generator.normal(size=(n, self.n_actions)), axis=0)

    @cached_property
    def states(self) -> np.ndarray:
        """(n,) z_t of the log."""
        return self.draw_states(self.n_rounds, self.generator(0))

    @cached_property
    def walk(self) -> np.ndarray | None:
        """(n, K) of the log; None if means do not drift."""
        return self.draw_walk(self.n_rounds, self.generator(1)) if self.step else None

    @cached_property
    def means(self) -> np.ndarray:
        """(n, K) mean rewards of the rounds of the log."""
        means = self.state_means[self.states, np.arange(self.n_rounds)]
        return means if self.walk is None else means + self.walk

    def draw_rewards(self, means: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Rewards with these means."""
        if self.rewards == "gaussian":
            return means + self.noise * generator.normal(size=means.shape)
        came = (generator.random(means.shape) < means / self.order).astype(np.float64)
        if self.rewards == "orders":
            came *= self.order * np.exp(self.noise * generator.normal(size=means.shape) - self.noise**2 / 2)
        return came

    @cached_property
    def logging_probs(self) -> np.ndarray:
        """(n, K) of a policy that guesses the means over all states: nearly greedy, softmax, or without a guess."""
        generator = self.generator(2)
        average = np.tensordot(self.state_means.mean(axis=1), self.state_shares, (0, 0))
        spread = max(float(self.state_means.std(axis=2).mean()), 1e-12)
        guess = np.tensordot(self.state_shares, self.state_means, 1) + spread * generator.normal(size=average.shape)
        kind, floor = generator.integers(3), generator.uniform(1, 2) * self.explored
        if kind == 0:
            mix = np.eye(self.n_actions)[guess.argmax(axis=1)]
        elif kind == 1:
            mix = softmax(generator.uniform(0.5, 1.5) * guess / spread, axis=1)
        else:
            mix = np.tile(generator.dirichlet(np.full(self.n_actions, 2.0)), (self.n_rounds, 1))
        return (1 - floor) * mix + floor / self.n_actions

    @cached_property
    def log(self) -> sc.BanditLog:
        """The log, with the propensities of the actions taken."""
        generator = self.generator(3)
        rewards, every = self.draw_rewards(self.means, generator), np.arange(self.n_rounds)
        below = generator.random(self.n_rounds)[:, None] >= np.cumsum(self.logging_probs, axis=1)[:, :-1]
        actions = below.sum(axis=1)
        columns = {}
        if self.contexts.ndim == 3:
            columns["action_features"] = self.contexts
        elif self.contexts.shape[1]:
            columns["contexts"] = self.contexts
        taken = self.logging_probs[every, actions]
        return sc.BanditLog.from_arrays(actions, rewards[every, actions], taken, n_actions=self.n_actions, **columns)

    @property
    def first(self) -> sc.BanditLog:
        """The rounds to learn from."""
        return self.log[: self.start]

    @property
    def later(self) -> sc.BanditLog:
        """The rounds to judge on."""
        return self.log[self.start :]


# ---------------------------------------------------------------------------------------------------------------------
# The truth.


class Simulated(NamedTuple):
    """A mean over simulations, and its standard error."""

    value: float
    error: float


class TrueValues(NamedTuple):
    """Mean reward per round on the later rounds of a world (``same``) and on fresh paths of its states (``fresh``)."""

    same: Simulated  # of the deployment; contexts and states as in the log, rewards drawn again
    fresh: Simulated  # of the deployment; contexts as in the log, states drawn again
    single_same: float  # of the single policy, exact
    single_fresh: float
    oracle_same: float  # of the best action in every round, for someone who knows the means
    oracle_fresh: Simulated


def true_values(world: World, deployer: Any, single: Any, repetitions: int = 300, seed: int = 0) -> TrueValues:
    """What ``deployer``, started afresh, and the policy ``single`` earn on the later rounds of ``world``."""
    contexts, means = world.later.contexts, world.means[world.start :]
    probs = np.broadcast_to(single.predict_proba(contexts, None), means.shape)
    generator = world.generator(4 + seed)
    same = [deployed(world, deployer, contexts, means, generator) for _ in range(repetitions)]
    values, best, controls = [], [], []
    for _ in range(repetitions):
        drawn, known = fresh_means(world, generator)
        values.append(deployed(world, deployer, contexts, drawn, generator))
        best.append(drawn.max(axis=1).mean())
        controls.append(known)
    return TrueValues(
        Simulated(float(np.mean(same)), standard_error(same)),
        controlled_mean(np.array(values), np.array(controls)),
        float(np.sum(probs * means, axis=1).mean()),
        float(np.sum(probs * expected_means(world), axis=1).mean()),
        float(means.max(axis=1).mean()),
        controlled_mean(np.array(best), np.array(controls)),
    )


def deployed(world, deployer, contexts, means, generator) -> float:
    """Mean expected reward of one deployment: it sees the rewards of its own actions only."""
    rewards, uniforms = world.draw_rewards(means, generator), generator.random(len(means))
    return float(deployer.run(deployer.init(), contexts, means, rewards, uniforms)[1].expected_rewards.mean())


def fresh_means(world: World, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The (m, K) means of the later rounds along a fresh path, and what of the path has a known mean of 0."""
    later = np.arange(world.start, world.n_rounds)
    states = world.draw_states(len(later), generator)
    means = world.state_means[states, later]
    shares = np.bincount(states, minlength=world.n_states) / len(later) - world.state_shares
    if world.walk is None:
        return means, shares[1:]
    walk = world.draw_walk(len(later), generator)
    return means + world.walk[world.start - 1] + walk, np.concatenate([shares[1:], walk.mean(axis=0)])


def expected_means(world: World) -> np.ndarray:
    """(m, K) the expectation of ``fresh_means`` over paths."""
    means = np.tensordot(world.state_shares, world.state_means[:, world.start :], 1)
    return means if world.walk is None else means + world.walk[world.start - 1]


def controlled_mean(values: np.ndarray, controls: np.ndarray) -> Simulated:
    """The mean of ``values``, less what a regression on ``controls``, whose means are 0, explains of it."""
    design = np.column_stack([np.ones(len(values)), controls])
    coefs, *_ = np.linalg.lstsq(design, values, rcond=None)
    residuals = values - design @ coefs
    variance = np.sum(residuals**2) / (len(values) - design.shape[1])
    return Simulated(float(coefs[0]), float(np.sqrt(variance * np.linalg.pinv(design.T @ design)[0, 0])))


def standard_error(values) -> float:
    """Of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


# ---------------------------------------------------------------------------------------------------------------------
# Families of worlds. Each function gets random numbers and returns what a World needs.

FAMILIES: dict[str, Callable[[np.random.Generator], dict[str, Any]]] = {}


def family(function):
    """Register a family under its name in words."""
    FAMILIES[function.__name__.replace("_", " ")] = function
    return function


def make_world(name: str, seed: int) -> World:
    """The world of a family with this seed."""
    return World(family=name, seed=seed, **FAMILIES[name](np.random.default_rng([seed, crc32(name.encode())])))


def drawn_sizes(g, most_states=4):
    """Rounds, actions and states."""
    n_actions = int(g.integers(3, 7))
    return int(g.integers(10_000, 20_001)), n_actions, int(g.integers(2, min(most_states, n_actions) + 1))


def drawn_means(g, n_states, n_actions, gap=0.15):
    """(L, K) means in [0, 1]; every state has a best action of its own, better than the next by ``gap``."""
    while True:
        means = g.random((n_states, n_actions))
        ordered = np.sort(means, axis=1)
        if len(set(means.argmax(axis=1))) == n_states and (ordered[:, -1] - ordered[:, -2]).min() >= gap:
            return means


def without_contexts(means, n):
    """A world's arrays for (L, K) means."""
    return {
        "contexts": np.empty((n, 0)),
        "state_means": np.broadcast_to(means[:, None], (len(means), n, means.shape[1])),
    }


def long_stay(g, n_states):
    """(L,) mean stays of 500 to 1,500 rounds."""
    return g.uniform(500, 1500, n_states)


@family
def long_stays(g):
    """Stays of 500 to 1,500 rounds on average, of random length."""
    n, n_actions, n_states = drawn_sizes(g)
    means = drawn_means(g, n_states, n_actions)
    return {**without_contexts(means, n), "stays": long_stay(g, n_states), "noise": g.uniform(0.3, 0.8)}


@family
def short_stays(g):
    """Stays of 30 to 80 rounds on average, of random length."""
    n, n_actions, n_states = drawn_sizes(g)
    means = drawn_means(g, n_states, n_actions, 0.2)
    return {**without_contexts(means, n), "stays": g.uniform(30, 80, n_states), "noise": g.uniform(0.2, 0.5)}


@family
def cycles(g):
    """Each state lasts 30 rounds, always in the same order."""
    n, n_actions, n_states = drawn_sizes(g)
    means, noise = drawn_means(g, n_states, n_actions, 0.2), g.uniform(0.2, 0.5)
    return {**without_contexts(means, n), "stays": np.full(n_states, 30.0), "path": "fixed", "noise": noise}


def revealing(g, information):
    """Good actions differ so little that playing one for a stay gives ``information`` nats; poor ones differ a lot."""
    n, _, n_states = drawn_sizes(g, 3)
    n_actions = n_states + int(g.integers(1, 3))
    gap, ratio = g.uniform(0.15, 0.35), g.uniform(2.5, 4)
    noise, stays = ratio * gap, 2 * information * ratio**2 * g.uniform(0.8, 1.2, n_states)
    means = np.ones((n_states, n_actions))
    means[np.arange(n_states), np.arange(n_states)] += gap
    levels = np.stack([g.permutation(n_states) for _ in range(n_actions - n_states)], axis=1)
    means[:, n_states:] = 1 - 0.5 * gap - g.uniform(2, 4) * noise * (levels + g.uniform(0, 0.3, levels.shape))
    shuffled = means[:, g.permutation(n_actions)]
    return {**without_contexts(shuffled, n), "stays": stays, "noise": noise, "explored": 0.3}


@family
def revealing_actions_strong(g):
    """Only actions that are never the best tell the states apart."""
    return revealing(g, g.uniform(1, 2))


@family
def revealing_actions_mild(g):
    """Actions that are never the best tell the states apart much better than the others."""
    return revealing(g, g.uniform(4, 8))


@family
def change_points(g):
    """Long segments, found by comparing the rounds before and after each round."""
    n, n_actions, n_states = drawn_sizes(g, 3)
    means, stays = drawn_means(g, n_states, n_actions), np.full(n_states, g.uniform(1000, 2000))
    settings = {"oracle": "change-point"}
    drawn = {"stays": stays, "path": "segments", "noise": g.uniform(0.3, 0.6), "settings": settings}
    return {**without_contexts(means, n), **drawn}


@family
def features_per_action(g):
    """Mean rewards are linear in the features of an action, with coefficients that depend on the state."""
    n, n_actions, n_states = drawn_sizes(g)
    features = g.normal(size=(n, n_actions, int(g.integers(3, 6))))
    features[:, :, 0] = 1
    coefs = g.uniform(0.2, 0.6) * g.normal(size=(n_states, features.shape[2]))
    drawn = {"contexts": features, "state_means": np.einsum("nkd,zd->znk", features, coefs)}
    return {**drawn, "stays": long_stay(g, n_states), "noise": g.uniform(0.5, 1.0)}


def linear_in_contexts(g, n, means):
    """A world's arrays: (L, K) means plus effects of shared contexts, different for each state and action."""
    contexts = g.normal(size=(n, int(g.integers(2, 5))))
    coefs = g.uniform(0.1, 0.4) * g.normal(size=(*means.shape, contexts.shape[1]))
    return {"contexts": contexts, "state_means": means[:, None] + np.einsum("nd,zkd->znk", contexts, coefs)}


@family
def shared_contexts(g):
    """Mean rewards are linear in contexts shared by all actions, with coefficients that depend on the state."""
    n, n_actions, n_states = drawn_sizes(g)
    drawn = linear_in_contexts(g, n, drawn_means(g, n_states, n_actions))
    return {**drawn, "stays": long_stay(g, n_states), "noise": g.uniform(0.4, 0.8)}


def rare(g, n_states, n_actions, average):
    """(L, K) rates; the best action of each state is several times as good as the others."""
    rates = g.uniform(0.3, 1.0, (n_states, n_actions))
    rates[np.arange(n_states), g.permutation(n_actions)[:n_states]] = g.uniform(2.0, 3.5, n_states)
    return average * rates / rates.mean()


@family
def clicks(g):
    """5% of the rounds have a click."""
    _, n_actions, n_states = drawn_sizes(g, 3)
    rates = rare(g, n_states, n_actions, 0.05)
    return {**without_contexts(rates, 20_000), "stays": long_stay(g, n_states), "rewards": "clicks"}


@family
def revenue(g):
    """3% of the rounds have a buyer; orders are lognormal."""
    _, n_actions, n_states = drawn_sizes(g, 3)
    order = g.uniform(20, 60)
    means = order * rare(g, n_states, n_actions, 0.03)
    drawn = {"stays": long_stay(g, n_states), "rewards": "orders", "noise": g.uniform(0.5, 0.9), "order": order}
    return {**without_contexts(means, 20_000), **drawn}


@family
def stationary(g):
    """One state: Gaussian rewards, clicks, or rewards that depend on contexts."""
    n, n_actions, _ = drawn_sizes(g)
    means, kind = drawn_means(g, 1, n_actions, 0.05), g.integers(3)
    if kind == 0:
        return {**without_contexts(0.1 + 0.5 * means, n), "stays": np.ones(1), "rewards": "clicks"}
    arrays = without_contexts(means, n) if kind == 1 else linear_in_contexts(g, n, means)
    return {**arrays, "stays": np.ones(1), "noise": g.uniform(0.4, 0.8)}


@family
def same_best_action(g):
    """The states differ, but not in their best action: switching cannot pay."""
    n, n_actions, n_states = drawn_sizes(g)
    means = g.uniform(0, 0.6, (n_states, n_actions))
    means[:, g.integers(n_actions)] = 0.6 + g.uniform(0.05, 0.3, n_states)
    means += g.uniform(-0.5, 0.5, (n_states, 1))
    return {**without_contexts(means, n), "stays": long_stay(g, n_states), "noise": g.uniform(0.3, 0.8)}


@family
def fleeting_states(g):
    """Stays of 4 to 12 rounds in much noise: a deployment can hardly follow, so switching hardly pays."""
    n, n_actions, n_states = drawn_sizes(g, 3)
    means = drawn_means(g, n_states, n_actions)
    return {**without_contexts(means, n), "stays": g.uniform(4, 12, n_states), "noise": g.uniform(0.6, 1.0)}


@family
def drifting_means(g):
    """Every mean is a random walk, so there are no states."""
    n, n_actions, _ = drawn_sizes(g)
    means, noise = drawn_means(g, 1, n_actions, 0.05), g.uniform(0.3, 0.8)
    step = g.uniform(0.2, 0.5) / np.sqrt(n)  # standard deviation of the whole walk: 0.2 to 0.5
    return {**without_contexts(means, n), "stays": np.ones(1), "noise": noise, "step": step}


PAYS = ("long stays", "short stays", "cycles", "shared contexts", "clicks")
CANNOT_PAY = ("stationary", "same best action")


@family
def mixed(g):
    """Half of the worlds from families in which switching pays, half from those in which it hardly does or cannot."""
    names = PAYS if g.random() < 0.5 else (*CANNOT_PAY, "fleeting states", "revealing actions strong")
    return FAMILIES[names[g.integers(len(names))]](g)
