"""Leading a deployment along a log: by kernel where it holds a belief, by its own ``act`` and ``update`` where not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seachange.deploy.belief import BeliefDeployer
from seachange.errors import ParameterError
from seachange.evaluation.time_blocks import BlockedRewards
from seachange.kernels.adaptive import Acceptance, Followed, LoggedRounds, include, largest_ratios
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Deployer, Floats, Ints

CHUNK_ROUNDS = 1 << 14


@dataclass(frozen=True, eq=False)
class Course:
    """The order in which a deployment meets the rounds of a log: one sequence after the other, each along time."""

    order: Ints | None  # (n,) which round comes when; None: as they are
    starts: Bools  # (n,) whether a sequence starts, in that order
    chains: Ints  # (n,) the number of the sequence, in that order

    def chunks(self, log: BanditLog) -> Iterator[tuple[slice, BanditLog]]:
        """The log in this order, with the place of each chunk."""
        for rounds in log.chunk_slices(CHUNK_ROUNDS):
            yield rounds, log[rounds] if self.order is None else log.take(self.order[rounds])

    def along(self, column: Any) -> Any:
        """A column of the log in this order."""
        return column if self.order is None else column[self.order]


def course_of(log: BanditLog) -> Course:
    """A log's sequences one after the other; a log without is one sequence."""
    chains, order = np.zeros(len(log), dtype=np.int64), None
    if log.sequences is not None:
        chains = np.unique(log.sequences, return_inverse=True)[1]
        order = np.argsort(chains, kind="stable")
        chains = chains[order]
    starts = np.concatenate([[True], np.diff(chains) > 0])
    return Course(order, starts, chains)


def fixed_acceptance(rate: float) -> Acceptance:
    """c = ``rate``, whatever comes."""
    return Acceptance(np.array([rate]), rate, 0.0, np.empty(0), np.empty(0), np.zeros(2, np.int64))


def adaptive_acceptance(highest: float, quantile: float, n: int) -> Acceptance:
    """c = the smaller of ``highest`` and the ``quantile`` of p / π over at most ``n`` rounds."""
    return Acceptance(np.array([highest]), highest, quantile, np.empty(n), np.empty(n), np.zeros(2, np.int64))


def follow(
    log: BanditLog,
    deployer: Deployer,
    course: Course,
    acceptances: Sequence[Acceptance],
    seeds: Sequence[int],
    rewards: BlockedRewards | None = None,
) -> tuple[list[Followed], Floats]:
    """What ``deployer`` would have done in each round of ``course``, had it lived through the accepted ones before.

    It starts anew with every sequence. One walk for each acceptance, its uniform numbers by a seed of its own; with
    them r̂(x_t, a_t), (n,), which is 0 without ``rewards``.
    """
    n = len(log)
    walks = [Followed(np.empty(n), np.zeros(n), np.empty(n), np.empty(n, dtype=bool)) for _ in acceptances]
    generators = [np.random.default_rng([seed, 5]) for seed in seeds]
    states: list[Any] = [None] * len(walks)
    modelled = np.zeros(n)
    blocks: Any = None if rewards is None else course.along(rewards.blocks)
    step = _by_kernel if isinstance(deployer, BeliefDeployer) else _by_hand
    for rounds, chunk in course.chunks(log):
        predicted = np.zeros((1, log.n_actions))
        if rewards is not None:
            predicted = rewards.predict(chunk, blocks[rounds])
            modelled[rounds] = predicted[np.arange(len(chunk)), chunk.arrays.actions]
        advice = _advice(deployer, chunk) if isinstance(deployer, BeliefDeployer) else np.empty((0, 0, 0))
        for i, (acceptance, walk) in enumerate(zip(acceptances, walks, strict=True)):
            past = LoggedRounds(
                course.starts[rounds], advice, chunk.arrays.mask, chunk.arrays.actions, chunk.arrays.rewards,
                chunk.arrays.propensities, generators[i].random(len(chunk)), predicted,
            )  # fmt: skip
            part = Followed(*(array[rounds] for array in walk))  # type: ignore[arg-type]
            states[i] = step(deployer, states[i], chunk, past, acceptance, part)
    return walks, modelled


def ratio_bounds(log: BanditLog, deployer: BeliefDeployer, course: Course) -> Floats:
    """(n,) the largest π_t(a_t | x_t) / p_t that any belief of ``deployer`` could give."""
    ratios = np.zeros(len(log))
    for rounds, chunk in course.chunks(log):
        arrays, advice = chunk.arrays, _advice(deployer, chunk)
        largest_ratios(
            advice, arrays.mask, deployer.exploration, arrays.actions, arrays.propensities, ratios[rounds]
        )  # fmt: skip
    return ratios


def _advice(deployer: BeliefDeployer, chunk: BanditLog) -> Floats:
    advice = np.ascontiguousarray(deployer.policies.advice(chunk.contexts, chunk.action_mask), dtype=np.float64)
    expected = (len(chunk), len(deployer.initial_belief), chunk.n_actions)
    if advice.shape != expected:
        raise ParameterError(
            f"the deployer's policies must give advice {expected} for this log; it is {advice.shape}. "
            "Was it learned from a log with the same actions?"
        )
    if not np.isfinite(advice).all():
        row = int((~np.isfinite(advice)).any(axis=(1, 2)).argmax())
        raise ParameterError(
            f"the deployer's policies must advise finite probabilities; row {row} of a chunk has none."
        )
    return advice


def _by_kernel(
    deployer: Any, belief: Any, chunk: BanditLog, past: LoggedRounds, acceptance: Acceptance, found: Followed
) -> Any:
    belief = deployer.initial_belief.copy() if belief is None else belief
    deployer.follow(belief, chunk.contexts, past, acceptance, found)
    return belief


def _by_hand(
    deployer: Any, state: Any, chunk: BanditLog, past: LoggedRounds, acceptance: Acceptance, found: Followed
) -> Any:
    """The same for whatever has ``init``, ``act`` and ``update``, round by round."""
    contexts, masks = chunk.contexts, chunk.action_mask
    for t, action in enumerate(past.actions):
        if past.starts[t]:
            state = deployer.init()
        context = None if chunk.joint.kind == "none" else contexts[t]
        mask = None if masks is None else masks[t]
        probs = deployer.act(state, context, 0.5, mask).probs
        found.chosen[t], found.rates[t] = probs[action], acceptance.rate[0]
        found.direct[t] = probs @ past.modelled[t if len(past.modelled) > 1 else 0]
        found.accepted[t] = past.uniforms[t] * past.propensities[t] < acceptance.rate[0] * probs[action]
        if found.accepted[t]:
            # In the middle of the action's share, which makes the decision the one that was logged.
            decision = deployer.act(state, context, float(probs[:action].sum() + probs[action] / 2), mask)
            if decision.action != action:
                raise ParameterError(
                    f"{type(deployer).__name__} cannot be led along a log: act() must choose the first action whose "
                    f"cumulative probability exceeds its uniform number; in place of {action} it chose "
                    f"{decision.action}."
                )
            state = deployer.update(state, decision, float(past.rewards[t]))
        if acceptance.upper.size > 0:
            ratio = past.propensities[t] / probs[action] if probs[action] > 0 else np.inf
            include(acceptance.lower, acceptance.upper, acceptance.sizes, acceptance.quantile, ratio)
            if found.accepted[t]:
                acceptance.rate[0] = min(acceptance.highest, -acceptance.lower[0])
    return state
