"""Replaying a deployment on a log: with a kernel if it holds a belief, else with its own ``act`` and ``update``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.engine import stage
from seachange.errors import ParameterError
from seachange.evaluation.support import SupportSums
from seachange.evaluation.terms import CrossFit
from seachange.kernels.replay_steps import Acceptance, Followed, LoggedRounds, include, largest_ratios
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.params import require
from seachange.protocols import Bools, Deployer, Floats

CHUNK_ROUNDS = 1 << 14


def in_sequence(log: BanditLog) -> BanditLog:
    """The log sorted by sequence, in order of first appearance, each in time order."""
    places = Clusters(log).places
    if places is None or bool((np.diff(places) >= 0).all()):
        return log
    return log.take(np.argsort(places, kind="stable"))


def _starts(log: BanditLog) -> Bools:
    """(n,) whether a sequence starts, for a log that is ``in_sequence``."""
    starts = np.zeros(len(log), dtype=bool) if log.sequences is None else log.sequences != np.roll(log.sequences, 1)
    starts[0] = True
    return starts


def fixed_acceptance(rate: float) -> Acceptance:
    """c = ``rate`` in every round."""
    return Acceptance(np.array([rate]), rate, 0.0, np.empty(0), np.empty(0), np.zeros(2, np.int64))


def adaptive_acceptance(highest: float, quantile: float, n: int) -> Acceptance:
    """c = the smaller of ``highest`` and the ``quantile`` of p / π over at most ``n`` rounds."""
    return Acceptance(np.array([highest]), highest, quantile, np.empty(n), np.empty(n), np.zeros(2, np.int64))


def follow(
    log: BanditLog,
    deployer: Deployer,
    acceptances: Sequence[Acceptance],
    seeds: Sequence[int],
    rewards: CrossFit | None = None,
) -> tuple[list[Followed], Floats]:
    """What ``deployer`` would have done in each round of ``log``, updated with the rounds accepted so far.

    The log must be ``in_sequence``; the deployer is reset at every sequence. There is one replay per acceptance, each
    with its own seed. Also returns r̂(x_t, a_t), (n,), which is 0 without ``rewards``.
    """
    n, starts, sums = len(log), _starts(log), SupportSums(log)
    replays = [
        Followed(np.empty(n), np.zeros(n), np.zeros(n), np.empty(n), np.empty(n, dtype=bool)) for _ in acceptances
    ]
    generators = [np.random.default_rng([seed, 5]) for seed in seeds]
    states: list[Any] = [None] * len(replays)
    modelled = np.zeros(n)
    step = _by_kernel if isinstance(deployer, BeliefDeployer) else _by_hand
    with stage("Replaying the deployment on the log", n * len(replays)) as progress:
        for rounds in log.chunk_slices(CHUNK_ROUNDS):
            chunk, advice = log[rounds], np.empty((0, 0, 0))
            arrays, logging = chunk.arrays, chunk.logging_probs
            beyond = sums.never_taken[None] if logging is None else (logging <= 0).astype(np.float64)
            predicted = np.zeros((1, log.n_actions))
            if rewards is not None:
                predicted = rewards.predict(rounds)
                modelled[rounds] = predicted[np.arange(len(chunk)), arrays.actions]
            if isinstance(deployer, BeliefDeployer):
                advice = _advice(deployer, rounds, sums)
            for i, (acceptance, replay) in enumerate(zip(acceptances, replays, strict=True)):
                past = LoggedRounds(
                    starts[rounds], advice, arrays.mask, arrays.actions, arrays.rewards, arrays.propensities,
                    generators[i].random(len(chunk)), predicted, beyond,
                )  # fmt: skip
                part = Followed(*(array[rounds] for array in replay))  # type: ignore[arg-type]
                states[i], probs = step(deployer, states[i], chunk, past, acceptance, part)
                progress.advance(len(chunk))
                if probs is not None:
                    sums.add(rounds, probs)
    return replays, modelled


def ratio_bounds(log: BanditLog, deployer: Deployer) -> Floats:
    """(n,) the largest π_t(a_t | x_t) / p_t under any belief of ``deployer``; 1 / p_t if it has no belief."""
    if not isinstance(deployer, BeliefDeployer):
        return np.asarray(1 / log.arrays.propensities)
    ratios, sums = np.zeros(len(log)), SupportSums(log)
    for rounds in log.chunk_slices(CHUNK_ROUNDS):
        chunk = log[rounds]
        mask, actions, propensities = chunk.arrays.mask, chunk.arrays.actions, chunk.arrays.propensities
        largest_ratios(
            _advice(deployer, rounds, sums), mask, deployer.exploration, actions, propensities, ratios[rounds]
        )
    return ratios


def _advice(deployer: BeliefDeployer, rounds: slice, sums: SupportSums) -> Floats:
    """(m, L, K) the experts' advice in ``rounds``, each expert validated by ``sums``."""
    chunk = sums.log[rounds]
    advice = np.ascontiguousarray(deployer.policies.advice(chunk.contexts, chunk.action_mask), dtype=np.float64)
    expected = (len(chunk), len(deployer.initial_belief), chunk.n_actions)
    if advice.shape != expected:
        raise ParameterError(
            f"the deployer's policies must give advice of shape {expected} for this log; got {advice.shape}. "
            "Use a deployer learned from a log with the same actions."
        )
    for state in range(advice.shape[1]):
        sums.add(rounds, np.ascontiguousarray(advice[:, state]))
    return advice


def _by_kernel(
    deployer: Any, belief: Any, chunk: BanditLog, past: LoggedRounds, acceptance: Acceptance, found: Followed
) -> tuple[Any, None]:
    belief = deployer.initial_belief.copy() if belief is None else belief
    deployer.follow(belief, chunk.contexts, past, acceptance, found)
    return belief, None


def _by_hand(
    deployer: Any, state: Any, chunk: BanditLog, past: LoggedRounds, acceptance: Acceptance, found: Followed
) -> tuple[Any, Floats]:
    """The same round by round for anything with ``init``, ``act`` and ``update``; also returns its probabilities."""
    contexts, masks, all_probs = chunk.contexts, chunk.action_mask, np.empty((len(chunk), chunk.n_actions))
    for t, action in enumerate(past.actions):
        if past.starts[t]:
            state = deployer.init()
        context = None if chunk.joint.kind == "none" else contexts[t]
        mask = None if masks is None else masks[t]
        probs = deployer.act(state, context, 0.5, mask).probs
        expected = (chunk.n_actions,)
        found_shape = np.shape(probs)
        require(found_shape == expected, f"decisions must have probs of shape {expected}; got {found_shape}.")
        all_probs[t] = probs
        found.chosen[t], found.rates[t] = probs[action], acceptance.rate[0]
        found.direct[t] = probs @ past.modelled[t if len(past.modelled) > 1 else 0]
        found.beyond[t] = probs @ past.beyond[t if len(past.beyond) > 1 else 0]
        found.accepted[t] = past.uniforms[t] * past.propensities[t] < acceptance.rate[0] * probs[action]
        if found.accepted[t]:
            # A uniform in the middle of the action's share reproduces the logged action.
            decision = deployer.act(state, context, float(probs[:action].sum() + probs[action] / 2), mask)
            if decision.action != action:
                raise ParameterError(
                    f"{type(deployer).__name__} cannot be replayed: act() must choose the first action whose "
                    f"cumulative probability exceeds the uniform; it chose {decision.action} instead of {action}."
                )
            state = deployer.update(state, decision, float(past.rewards[t]))
        if acceptance.upper.size > 0:
            ratio = past.propensities[t] / probs[action] if probs[action] > 0 else np.inf
            include(acceptance.lower, acceptance.upper, acceptance.sizes, acceptance.quantile, ratio)
            acceptance.rate[0] = min(acceptance.highest, -acceptance.lower[0])
    return state, all_probs
