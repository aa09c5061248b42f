"""The arena: every deployer of a model and every rival in every environment, as a share of the best reference."""

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import t as student

from seachange.deploy import rivals
from seachange.engine import one_thread
from seachange.errors import ParameterError, SeachangeWarning
from seachange.experiments.arena_worlds import Arena, arena_named
from seachange.experiments.paper_synthetic import std_of
from seachange.learning import learn
from seachange.log.bandit_log import BanditLog
from seachange.model import SwitchingModel
from seachange.policies.learners import DRLearner
from seachange.policies.per_state import learn_per_state
from seachange.protocols import Floats
from seachange.registry import DEPLOYERS
from seachange.simulate.rollout import CHUNK_ROUNDS, rollout
from seachange.states.labels import KnownStates
from seachange.states.switching_regression import hmm_of

N_POINTS = 200  # of a curve
CONFIDENCE = 0.95
# Of the confidence bounds of linear rivals: with all of the width that theory asks for, they mostly explore.
OPTIMISM = 0.3
TOLD = "regime told"


@dataclass(frozen=True)
class Played:
    """One method in one run."""

    reward: float  # expected, per round
    rounds: tuple[int, ...]  # points of a curve
    regrets: tuple[float, ...]  # against the best action of each round, summed up to each point of the curve


@dataclass(frozen=True)
class ArenaResult:
    """One method in one environment, over all runs."""

    environment: str
    method: str
    is_reference: bool
    reward: float
    share: float  # of the reward of the best reference
    low: float | None  # None for a single run
    high: float | None
    best_reference: str


@dataclass(frozen=True)
class WorstCase:
    """The environment in which a method has its smallest share."""

    method: str
    is_reference: bool
    share: float
    low: float | None
    high: float | None
    environment: str
    mean_share: float  # over environments
    n_environments: int


@dataclass(frozen=True)
class CurvePoint:
    """The mean regret of a method up to a round."""

    environment: str
    method: str
    round: int
    regret: float


def ours(model: SwitchingModel, memory: int) -> dict[str, Any]:
    """The default deployer, and every registered one that the model can make."""
    made: dict[str, Any] = {"default": model.deployer(memory=memory)}
    for kind in DEPLOYERS.names:
        with suppress(ParameterError):
            made[kind] = model.deployer(kind, memory=memory)
    return made


def references(log: BanditLog, model: SwitchingModel, horizon: int, memory: int) -> dict[str, Any]:
    """Every rival, with its published settings for the horizon and the number of changes that the log suggests."""
    stay = model.policies.expected_stay or horizon
    n_changes = max(1, round(horizon / stay))
    discount = 1 - 0.25 * math.sqrt(min(n_changes / horizon, 1))
    window = max(10, int(2 * math.sqrt(horizon * math.log(horizon) / n_changes)))
    noise = _deviation(log)
    linear: dict[str, Any] = {"joint": log.joint, "noise": noise}
    bounds = {**linear, "optimism": OPTIMISM}
    faded: dict[str, Any] = {**linear, "discount": discount}
    hmm = hmm_of(model.oracle)
    frozen: Any = model.deployer("single") if hmm is None else rivals.fixed_state(model.policies, hmm)
    frozen = replace(frozen, memory=memory)
    made: dict[str, Any] = {
        "mTS": frozen,
        "LinUCB": rivals.LinUCB(**bounds),
        "D-LinUCB": rivals.DLinUCB(**bounds, discount=discount),
        "SW-LinUCB": rivals.SWLinUCB(**bounds, window=window),
        "dLinUCB": rivals.DynamicLinUCB(**bounds),
        "LinTS": rivals.LinearThompson(**linear),
        "warm LinTS": rivals.LinearThompson(**linear).start_from(log),
        "D-LinTS": rivals.DiscountedLinearThompson(**faded),
        "warm D-LinTS": rivals.DiscountedLinearThompson(**faded).start_from(log),
        "restarted LinTS": rivals.RestartedLinearThompson(**linear, horizon=horizon),
    }
    if log.joint.kind == "none":
        clicks, mean = bool(np.isin(log.rewards, (0, 1)).all()), float(log.rewards.mean())
        # Scaled rewards vary at most as much as clicks.
        span = (0.0, 1.0) if clicks else (mean - noise, mean + noise)
        arms: dict[str, Any] = {"n_actions": log.n_actions, "reward_range": span}
        planned = {**arms, "horizon": horizon}
        made |= {
            "klUCB": rivals.KLUCB(**arms),
            "D-UCB": rivals.DiscountedUCB(**arms, discount=discount),
            "SW-klUCB": rivals.SlidingWindowKLUCB(**arms, window=window),
            "M-klUCB": rivals.MonitoredKLUCB(**planned, n_changes=n_changes),
            "CUSUM-klUCB": rivals.CUSUMKLUCB(**planned, n_changes=n_changes),
            "GLR-klUCB": rivals.GLRKLUCB(**planned),
            "Exp3.S": rivals.Exp3S(**planned, n_changes=n_changes),
            "D-TS": rivals.DiscountedThompson(**arms, discount=discount),
        }
    return made


def _deviation(log: BanditLog) -> float:
    """The standard deviation of rewards of the same action."""
    actions, rewards = log.actions, log.rewards
    counts = np.bincount(actions, minlength=log.n_actions)
    means = np.bincount(actions, rewards, minlength=log.n_actions) / np.maximum(counts, 1)
    return max(float((rewards - means[actions]).std()), 1e-9)


def play(task: tuple[str, int], n_rounds: int, chosen: Sequence[str] = ()) -> dict[str, tuple[bool, Played]]:
    """One run in an environment: what each method earned, and whether it is a reference; all of them, or ``chosen``."""
    name, seed = task
    arena = arena_named(name, seed, n_rounds)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)  # finding few states is a result here
        model = learn(arena.log, seed=seed)
        told = None if chosen and TOLD not in chosen else _told(arena, seed)
        best = np.concatenate([each.mean_rewards.max(axis=1) for each in arena.world.rounds(seed, CHUNK_ROUNDS)])
        played = {} if told is None else {TOLD: (True, _played(told, best))}
        memory = max(1000, arena.delay + 1)  # rounds that wait for their reward, and this one
        deployers = (False, ours(model, memory)), (True, references(arena.log, model, len(best), memory))
        for is_reference, of_kind in deployers:
            for method, deployer in of_kind.items():
                if not chosen or method in chosen:
                    trace = rollout(arena.world, deployer, seed, arena.delay)
                    played[method] = is_reference, _played(trace.expected_rewards, best)
    return played


def _told(arena: Arena, seed: int) -> Floats | None:
    """(T,) expected rewards of a policy that is told the regime of every round, learned from a log that tells it."""
    if arena.states is None or arena.log_states is None:
        return None
    labels = KnownStates(arena.log_states).fit(arena.log).predict(arena.log)
    policies, start, found = learn_per_state(arena.log, labels, DRLearner()), 0, []
    for each in arena.world.rounds(seed, CHUNK_ROUNDS):
        states = arena.states[start : start + len(each)]
        advice = policies.advice(each.contexts, each.action_mask)
        advice = np.broadcast_to(advice, (len(each), *advice.shape[1:]))[np.arange(len(each)), states]
        found.append(np.einsum("nk,nk->n", advice, each.mean_rewards))
        start += len(each)
    return np.concatenate(found)


def _played(rewards: Floats, best: Floats) -> Played:
    points = np.unique(np.linspace(1, len(best), min(N_POINTS, len(best))).astype(np.int64))
    regrets = np.cumsum(best - rewards)[points - 1]
    return Played(float(rewards.mean()), tuple(points.tolist()), tuple(regrets.tolist()))


def summarize(environment: str, runs: Sequence[dict[str, tuple[bool, Played]]]) -> list[ArenaResult]:
    """The table of an environment, best first; methods that did not apply in every run are left out."""
    names = [name for name in runs[0] if all(name in run for run in runs)]
    rewards = {name: np.array([run[name][1].reward for run in runs]) for name in names}
    of_others = {name: runs[0][name][0] for name in names}
    # Without a reference among the chosen methods, they are compared with the best of themselves.
    compared = [name for name in names if of_others[name]] or names
    reference = max(compared, key=lambda name: float(rewards[name].mean()))
    results = []
    for name in sorted(names, key=lambda name: -float(rewards[name].mean())):
        share, low, high = _share(rewards[name], rewards[reference])
        mean = float(rewards[name].mean())
        results.append(ArenaResult(environment, name, of_others[name], mean, share, low, high, reference))
    return results


def _share(rewards: Floats, reference: Floats) -> tuple[float, float | None, float | None]:
    """Ratio of means over runs, with an interval by its linearization."""
    share, n = float(rewards.mean() / reference.mean()), len(rewards)
    if n == 1:
        return share, None, None
    error = std_of((rewards - share * reference) / reference.mean()) / math.sqrt(n)
    reach = float(student.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    return share, share - reach, share + reach


def worst_cases(results: Sequence[ArenaResult]) -> list[WorstCase]:
    """The smallest share of every method, best method first; of methods in fewer environments last."""
    found = []
    for name in dict.fromkeys(each.method for each in results):
        own = [each for each in results if each.method == name]
        worst, mean = min(own, key=lambda each: each.share), float(np.mean([each.share for each in own]))
        ends = worst.share, worst.low, worst.high
        found.append(WorstCase(name, worst.is_reference, *ends, worst.environment, mean, len(own)))
    return sorted(found, key=lambda each: (-each.n_environments, -each.share))


def curves(environment: str, runs: Sequence[dict[str, tuple[bool, Played]]]) -> list[CurvePoint]:
    """Mean regrets of all methods."""
    points = next(iter(runs[0].values()))[1].rounds
    return [
        CurvePoint(environment, name, point, float(regret))
        for name in runs[0]
        if all(name in run for run in runs)
        for point, regret in zip(points, np.mean([run[name][1].regrets for run in runs], axis=0), strict=True)
    ]
