"""A second generator of simulated worlds, and of the truth in them, that shares no code with ``worlds``.

An estimator that was developed on one generator may have learned its habits. Here states last for any distribution of
rounds, contexts are flags, skewed, cyclic, or autocorrelated, noise is not always Gaussian, mean rewards are not always
linear, and logging policies depend on contexts and are replaced from time to time.
"""

from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

import seachange as sc

Rng = np.random.Generator
FIRST = 0.6  # share of the rounds that are learned from
NOISES: dict[str, Callable[[Rng, int], np.ndarray]] = {  # all of variance 1
    "gaussian": lambda rng, n: rng.standard_normal(n),
    "laplace": lambda rng, n: rng.laplace(size=n) / np.sqrt(2),
    "uniform": lambda rng, n: rng.uniform(-np.sqrt(3), np.sqrt(3), n),
    "skewed": lambda rng, n: rng.gamma(4.0, size=n) / 2 - 2,
}


@dataclass(frozen=True)
class Stays:
    """A semi-Markov process of states."""

    means: np.ndarray  # (S,) rounds per stay
    follow: np.ndarray  # (S, S) the next state, given this one
    shape: str = "geometric"  # or "negative binomial", "uniform", "fixed"
    least: int = 1  # rounds

    def path(self, rng: Rng, n: int) -> np.ndarray:
        """(n,) states of a process that has been running for long."""
        if len(self.means) == 1:
            return np.zeros(n, dtype=np.int64)
        skipped = int(rng.integers(20 * int(self.means.sum())))
        states, state, cumulative = [], int(rng.integers(len(self.means))), np.cumsum(self.follow, axis=1).tolist()
        for uniform in rng.random(int(3 * (n + skipped) / self.means.min()) + 9).tolist():
            states.append(state)
            state = min(bisect(cumulative[state], uniform), len(cumulative) - 1)
        path = np.repeat(states, self.lengths(rng, np.array(states)))
        assert len(path) >= n + skipped, "too few stays were drawn"
        return path[skipped : skipped + n]

    fresh = path  # rounds that follow a log are like those of the log

    def lengths(self, rng: Rng, states: np.ndarray) -> np.ndarray:
        """How long each of a sequence of states lasts."""
        extra = self.means[states] - self.least
        if self.shape == "fixed":
            return np.round(self.means[states]).astype(np.int64)
        if self.shape == "uniform":
            return self.least + rng.integers(0, np.round(2 * extra).astype(np.int64) + 1)
        successes = 1 if self.shape == "geometric" else 3
        return self.least + rng.negative_binomial(successes, successes / (successes + extra))


@dataclass(frozen=True)
class Regimes:
    """Regimes that never return."""

    n_first: int  # rounds of the log that is learned from
    seen: int  # regimes in it; the later rounds start with the last of them
    later_changes: int

    def path(self, rng: Rng, n: int) -> np.ndarray:
        """(n,) the regimes of all rounds."""
        ends = np.cumsum(rng.dirichlet(np.full(self.seen, 5.0)))[:-1] * self.n_first
        first = np.searchsorted(ends, np.arange(self.n_first), side="right")
        return np.concatenate([first, self.fresh(rng, n - self.n_first)])

    def fresh(self, rng: Rng, n: int) -> np.ndarray:
        """(n,) the regimes of the later rounds; changes can come at any time."""
        ends = np.sort(rng.uniform(0, n, self.later_changes))
        return self.seen - 1 + np.searchsorted(ends, np.arange(n), side="right")


@dataclass(frozen=True)
class Rewards:
    """Rewards of each action in each state: a link of w(z, a)'x + b(z, a), and noise."""

    intercepts: np.ndarray  # (S, K)
    weights: np.ndarray  # (S, K, d)
    noise: str = "gaussian"  # a key of NOISES, or "clicks": rewards are 0 or 1, and the link is logistic
    sd: np.ndarray = field(default_factory=lambda: np.ones(1))  # (K,) or (1,)
    curved: bool = False  # the link bends, so that linear reward models are wrong
    offset: float = 0.0

    def means(self, contexts: np.ndarray) -> np.ndarray:
        """(S, n, K) mean rewards in every state, for contexts (n, d) or (n, K, d)."""
        rows = "nkd" if contexts.ndim == 3 else "nd"
        scores = np.einsum(f"{rows},skd->snk", contexts, self.weights) + self.intercepts[:, None]
        if self.noise == "clicks":
            return 1 / (1 + np.exp(-scores))
        return self.offset + (2 * np.tanh(scores / 2) if self.curved else scores)

    def draw(self, rng: Rng, means: np.ndarray) -> np.ndarray:
        """(n, K) rewards. The noise of a round is the same for all actions, of which only one is ever seen."""
        if self.noise == "clicks":
            return (rng.random(len(means))[:, None] < means).astype(np.float64)
        return means + NOISES[self.noise](rng, len(means))[:, None] * self.sd


@dataclass(frozen=True)
class World:
    """A log and everything that made it."""

    family: str
    seed: int
    n_states: int  # in the rounds that are learned from
    process: Stays | Regimes
    rewards: Rewards
    contexts: np.ndarray  # (n, 0), (n, d), or (n, K, d)
    states: np.ndarray  # (n,)
    logging_probs: np.ndarray  # (n, K)
    settings: dict[str, Any]  # of sc.learn

    @property
    def n_rounds(self) -> int:
        """Rounds of the whole log."""
        return len(self.states)

    @property
    def n_actions(self) -> int:
        """K."""
        return self.logging_probs.shape[1]

    @property
    def cut(self) -> int:
        """The first of the later rounds."""
        return round(FIRST * self.n_rounds)

    @cached_property
    def log(self) -> sc.BanditLog:
        """The log: actions by the logging policy, and their rewards."""
        rng, n = generator(self.family, self.seed, 1), np.arange(self.n_rounds)
        actions = (self.logging_probs.cumsum(axis=1) < rng.random(len(n))[:, None]).sum(axis=1)
        actions = np.minimum(actions, self.n_actions - 1)  # sums of probabilities can be below 1 by rounding
        rewards = self.rewards.draw(rng, self.rewards.means(self.contexts)[self.states, n])[n, actions]
        name = "action_features" if self.contexts.ndim == 3 else "contexts"
        given = {name: self.contexts} if self.contexts.shape[-1] else {}
        return sc.BanditLog.from_arrays(
            actions, rewards, self.logging_probs[n, actions], n_actions=self.n_actions, **given
        )

    @property
    def first(self) -> sc.BanditLog:
        """The rounds that are learned from."""
        return self.log[: self.cut]

    @property
    def later(self) -> sc.BanditLog:
        """The rounds on which a deployment is evaluated."""
        return self.log[self.cut :]


def generator(family: str, seed: int, purpose: int) -> Rng:
    """Random numbers of a world, the same in every process."""
    return np.random.default_rng([seed, crc32(family.encode()), purpose])


def some_contexts(rng: Rng, n: int, d: int) -> np.ndarray:
    """(n, d) columns of different kinds, all with a standard deviation near 1."""

    def column() -> np.ndarray:
        kind, time = rng.choice(["normal", "uniform", "flag", "skewed", "cyclic", "autocorrelated"]), np.arange(n)
        if kind == "flag":
            share = rng.uniform(0.1, 0.9)
            return (rng.random(n) < share) / np.sqrt(share * (1 - share))
        if kind == "skewed":
            return np.minimum(rng.exponential(size=n), 5)
        if kind == "cyclic":  # such as the time of day
            return np.sin(2 * np.pi * time / rng.uniform(200, 2000)) + 0.7 * rng.standard_normal(n)
        if kind == "autocorrelated":
            recent = np.convolve(rng.standard_normal(n + 49), np.ones(50) / np.sqrt(50), "valid")
            return 0.7 * recent + 0.7 * rng.standard_normal(n)
        return rng.uniform(-1.7, 1.7, n) if kind == "uniform" else rng.standard_normal(n)

    return np.stack([column() for _ in range(d)], axis=1) if d else np.empty((n, 0))


def some_rewards(
    rng: Rng, n_states: int, n_actions: int, d: int, signal: float, *, clicks: float | None = None
) -> Rewards:
    """Rewards whose means differ between states by about ``signal`` times the noise; of ``clicks``, in log-odds."""
    sd = 1.0 if clicks is not None else float(rng.uniform(0.5, 1.2))
    alike = rng.uniform(0.1, 0.6) * rng.standard_normal(n_actions)
    shared = rng.uniform(0.1, 0.5) * rng.standard_normal((n_actions, d))
    by_state = signal * rng.standard_normal((n_states, n_actions))
    own = rng.uniform(0, 1) * signal * rng.standard_normal((n_states, n_actions, d)) / np.sqrt(max(d, 1))
    intercepts, weights = sd * (alike + by_state), sd * (shared + own)
    if clicks is not None:
        return Rewards(intercepts + np.log(clicks / (1 - clicks)), weights, "clicks")
    noise = str(rng.choice(list(NOISES), p=[0.55, 0.15, 0.15, 0.15]))
    sds = sd * (rng.uniform(0.8, 1.2, n_actions) if rng.random() < 0.3 else np.ones(1))  # some actions are noisier
    return Rewards(intercepts, weights, noise, sds, bool(rng.random() < 0.3), float(rng.uniform(-1, 3)))


def some_stays(rng: Rng, n_states: int, shortest: float, longest: float, least: int = 1) -> Stays:
    """States that last for ``shortest`` to ``longest`` rounds on average."""
    means = np.exp(rng.uniform(np.log(shortest), np.log(longest), n_states))
    follow = np.zeros((n_states, n_states))
    for state in range(n_states if n_states > 1 else 0):
        follow[state, np.arange(n_states) != state] = rng.dirichlet(np.full(n_states - 1, 2.0))
    return Stays(means, follow, str(rng.choice(["geometric", "negative binomial", "uniform"])), least)


def some_logging(rng: Rng, means: np.ndarray, n_actions: int) -> np.ndarray:
    """(n, K) probabilities: uniform, or by a rough idea of the rewards that may be replaced a few times.

    ``means`` (n, K) are averages over states. At least a tenth of the choices are random.
    """
    n, kind = len(means), rng.choice(["uniform", "epsilon-greedy", "softmax"], p=[0.3, 0.3, 0.4])
    if kind == "uniform":
        return np.full((n, n_actions), 1 / n_actions)
    versions = rng.normal(0, 1, (int(rng.integers(1, 5)), n_actions))
    in_use = np.sort(rng.integers(0, len(versions), n)) if rng.random() < 0.5 else np.zeros(n, dtype=np.int64)
    ideas = means / max(means.std(), 1e-9) + versions[in_use]
    if kind == "softmax":
        weights = np.exp(rng.uniform(0.3, 1.5) * ideas)
        chosen, floor = weights / weights.sum(axis=1, keepdims=True), rng.uniform(0.1, 0.3)
    else:
        chosen, floor = (ideas == ideas.max(axis=1, keepdims=True)).astype(np.float64), rng.uniform(0.15, 0.5)
    return (1 - floor) * chosen + floor / n_actions


def assembled(rng: Rng, process: Stays | Regimes, rewards: Rewards, contexts: np.ndarray, **settings: Any) -> dict:
    """The fields of a world with a path of states and a logging policy."""
    states = process.path(rng, len(contexts))
    average = rewards.means(contexts).mean(axis=0)
    n_states = process.seen if isinstance(process, Regimes) else len(process.means)
    return {
        "process": process, "rewards": rewards, "contexts": contexts, "states": states, "settings": settings,
        "n_states": n_states, "logging_probs": some_logging(rng, average, average.shape[1]),
    }  # fmt: skip


def some_size(rng: Rng) -> int:
    """Rounds of a log."""
    return int(rng.integers(10_000, 20_001))


def strength(rng: Rng, weak: float, strong: float) -> float:
    """A signal between the two, as likely to be twice as half as strong."""
    return float(np.exp(rng.uniform(np.log(weak), np.log(strong))))


def long_stays(rng: Rng) -> dict:
    """Every stay has 500 rounds or more; 2 to 4 states."""
    s, k, d = rng.integers(2, 5), rng.integers(2, 8), rng.integers(0, 5)
    stays = some_stays(rng, s, 700, 2500, least=500)
    rewards = some_rewards(rng, s, k, d, strength(rng, 0.3, 1.5))
    return assembled(rng, stays, rewards, some_contexts(rng, some_size(rng), d))


def short_stays(rng: Rng) -> dict:
    """States last for 30 to 80 rounds on average; 2 or 3 states."""
    s, k, d = rng.integers(2, 4), rng.integers(2, 6), rng.integers(0, 4)
    stays = some_stays(rng, s, 30, 80)
    rewards = some_rewards(rng, s, k, d, strength(rng, 0.4, 1.5))
    return assembled(rng, stays, rewards, some_contexts(rng, some_size(rng), d))


def fixed_cycles(rng: Rng) -> dict:
    """A fixed order of states: 2 or 3 that last for exactly 30 rounds, or 2 that share a cycle of 30 rounds."""
    s, k, d = rng.integers(2, 4), rng.integers(2, 6), rng.integers(0, 4)
    means = np.full(s, 30.0)
    if rng.random() < 0.4:
        part = int(rng.integers(10, 16))
        s, means = 2, np.array([part, 30.0 - part])
    stays = Stays(means, np.roll(np.eye(s), 1, axis=1), "fixed")
    rewards = some_rewards(rng, s, k, d, strength(rng, 0.4, 1.5))
    return assembled(rng, stays, rewards, some_contexts(rng, some_size(rng), d))


def poor_actions_tell(rng: Rng, spread: float) -> dict:
    """A world in which actions that are never best tell the state by ``spread`` noises, the others hardly or not."""
    s, n_poor, d, sd = rng.integers(2, 4), rng.integers(1, 3), rng.integers(0, 3), rng.uniform(0.5, 1.2)
    n_good = s + rng.integers(0, 2)
    gap = 0.0 if rng.random() < 0.25 else rng.uniform(0.1, 0.35)  # without a gap, no action is better than another
    good = np.zeros((s, n_good)) + gap * np.eye(s, n_good)
    told = np.stack([rng.permutation(s) / (s - 1) for _ in range(n_poor)], axis=1)
    order = rng.permutation(n_good + n_poor)
    intercepts = np.hstack([good, spread * (told - 1) - rng.uniform(0.2, 0.5)])[:, order]
    weights = np.broadcast_to(rng.uniform(0.1, 0.4) * rng.standard_normal(d), (s, n_good + n_poor, d))
    rewards = Rewards(sd * intercepts, sd * weights, "gaussian", np.full(1, sd), offset=rng.uniform(-1, 3))
    return assembled(rng, some_stays(rng, s, 60, 800), rewards, some_contexts(rng, some_size(rng), d))


def poor_tell_strongly(rng: Rng) -> dict:
    """Actions that are never best tell the state by 2 to 4 standard deviations of the noise, others by 0.35 at most."""
    return poor_actions_tell(rng, rng.uniform(2, 4))


def poor_tell_mildly(rng: Rng) -> dict:
    """The same, but poor actions tell the state by only 0.6 to 1.2 standard deviations."""
    return poor_actions_tell(rng, rng.uniform(0.6, 1.2))


def new_regimes(rng: Rng) -> dict:
    """Regimes that never return, learned with change points: 2 to 4 in the first rounds, 0 to 2 new ones later."""
    seen, new, k, d, n = rng.integers(2, 5), rng.integers(0, 3), rng.integers(2, 7), rng.integers(0, 4), some_size(rng)
    regimes = Regimes(round(FIRST * n), int(seen), int(new))
    rewards = some_rewards(rng, seen + new, k, d, strength(rng, 0.3, 1.2))
    return assembled(rng, regimes, rewards, some_contexts(rng, n, d), oracle="change-point")


def item_features(rng: Rng) -> dict:
    """Features per action, with weights by state; half of the worlds also have effects of the actions themselves."""
    s, k, d, n = rng.integers(2, 4), rng.integers(3, 8), rng.integers(2, 6), some_size(rng)
    rewards = some_rewards(rng, s, 1, d, strength(rng, 0.4, 1.2))
    effects = rng.choice([0.0, 0.2]) * rng.standard_normal(k)
    weights = np.broadcast_to(rewards.weights, (s, k, d))
    rewards = replace(rewards, intercepts=rewards.intercepts + effects, weights=weights)
    own, by_round = rng.standard_normal((k, d)), np.stack([some_contexts(rng, n, d) for _ in range(k)], axis=1)
    return assembled(rng, some_stays(rng, s, 80, 1500), rewards, 0.6 * own + 0.8 * by_round)


def rare_clicks(rng: Rng) -> dict:
    """Clicks in 5% of the logged rounds; 2 or 3 states that last for 150 to 2,000 rounds on average."""
    s, k, d, n = rng.integers(2, 4), rng.integers(2, 7), rng.integers(0, 4), some_size(rng)
    rewards = some_rewards(rng, s, k, d, strength(rng, 0.4, 1.2), clicks=0.05)
    made = assembled(rng, some_stays(rng, s, 150, 2000), rewards, some_contexts(rng, n, d))
    for _ in range(30):  # move all log-odds until the mean is right
        means = rewards.means(made["contexts"])[made["states"], np.arange(n)]
        rate = (made["logging_probs"] * means).sum(axis=1).mean()
        rewards = replace(rewards, intercepts=rewards.intercepts - np.log(19 * rate / (1 - rate)))
    return made | {"rewards": rewards}


def mixed(rng: Rng) -> dict:
    """Anything: 1 to 4 states (1 in a sixth of worlds), 2 to 10 actions, stays of 30 to 3,000 rounds, clicks or not."""
    s, k, d = rng.choice([1, 2, 3, 4], p=[1 / 6, 1 / 3, 0.3, 0.2]), rng.integers(2, 11), rng.integers(0, 7)
    clicks = rng.uniform(0.03, 0.6) if rng.random() < 0.5 else None
    mean = strength(rng, 30, 3000)  # states of a world last similarly long
    rewards = some_rewards(rng, s, k, d, strength(rng, 0.1, 2.0), clicks=clicks)
    stays = some_stays(rng, s, max(mean / 2, 30), min(2 * mean, 3000))
    return assembled(rng, stays, rewards, some_contexts(rng, some_size(rng), d))


FAMILIES: dict[str, Callable[[Rng], dict]] = {
    "stays of 500 or more": long_stays, "stays of 30 to 80": short_stays, "fixed cycles": fixed_cycles,
    "poor actions tell": poor_tell_strongly, "poor actions tell mildly": poor_tell_mildly, "new regimes": new_regimes,
    "features per action": item_features, "clicks at 5%": rare_clicks, "mixed": mixed,
}  # fmt: skip


def make_world(family: str, seed: int) -> World:
    """The world of a family and seed."""
    return World(family, seed, **FAMILIES[family](generator(family, seed, 0)))


@dataclass(frozen=True)
class Simulated:
    """A mean over simulations and its standard error."""

    value: float
    error: float


@dataclass(frozen=True)
class Truth:
    """Mean rewards per later round, with the states of the log and with fresh ones, both with the log's contexts."""

    same: Simulated  # of the deployment
    fresh: Simulated
    single_same: float  # of the single policy
    single_fresh: float
    oracle_same: float  # of someone who knows every mean reward
    oracle_fresh: Simulated


def true_values(world: World, deployer: Any, single: Any, repetitions: int) -> Truth:
    """Deploy ``repetitions`` times on the later rounds of ``world``, from the start and with new rewards."""
    rng = generator(world.family, world.seed, 2)
    contexts, states = world.contexts[world.cut :], world.states[world.cut :]
    rounds, means = np.arange(len(contexts)), world.rewards.means(contexts)
    choices = np.broadcast_to(single.predict_proba(contexts), means.shape[1:])
    of_single, of_oracle = np.einsum("snk,nk->sn", means, choices), means.max(axis=2)

    def deployed(path: np.ndarray) -> float:
        now = means[path, rounds]
        _, trace = deployer.run(deployer.init(), contexts, now, world.rewards.draw(rng, now), rng.random(len(rounds)))
        return float(trace.expected_rewards.mean())

    paths = [world.process.fresh(rng, len(rounds)) for _ in range(repetitions)]
    oracle = simulated([of_oracle[path, rounds].mean() for path in paths])
    return Truth(
        same=simulated([deployed(states) for _ in paths]), fresh=simulated([deployed(path) for path in paths]),
        single_same=float(of_single[states, rounds].mean()),
        single_fresh=float(np.mean([of_single[path, rounds].mean() for path in paths])),
        oracle_same=float(of_oracle[states, rounds].mean()), oracle_fresh=oracle,
    )  # fmt: skip


def simulated(values: list[float]) -> Simulated:
    """The mean of independent simulations."""
    return Simulated(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))
