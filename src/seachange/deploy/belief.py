"""What all deployers that hold a belief over states share: decide, update, amend, run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.deploy.decision import Decision, DeploymentState, Trace
from seachange.errors import ParameterError
from seachange.kernels.adaptive import Acceptance, Followed, LoggedRounds
from seachange.kernels.belief import draw_action, mix_advice, replay
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Floats


class BeliefDeployer(ABC):
    """A frozen configuration and pure functions of a ``DeploymentState``."""

    policies: PolicySet
    exploration: float
    memory: int

    @property
    @abstractmethod
    def transition(self) -> Floats:
        """(L, L) how the world moves between rounds."""

    @property
    @abstractmethod
    def initial_belief(self) -> Floats:
        """(L,) the belief before the first round."""

    @abstractmethod
    def _by_state(self, contexts: Floats, advice: Floats, action: int) -> Floats:
        """(L,) what each state says of ``action``, for one round's contexts (1, …) and advice (L, K)."""

    @abstractmethod
    def _evidence(self, decision: Decision, reward: float) -> Floats:
        """(L,) evidence of ``reward`` for each state, up to a factor."""

    @abstractmethod
    def _run(self, belief: Floats, contexts: Floats, advice: Floats, mask: Bools, uniforms: Floats,
             mean_rewards: Floats, rewards: Floats, trace: Trace) -> None:  # fmt: skip
        """Run a chunk of rounds by kernel: fill ``trace`` (but for its rewards), move ``belief``; both in place."""

    @abstractmethod
    def follow(self, belief: Floats, contexts: Floats, past: LoggedRounds, acceptance: Acceptance,
               found: Followed) -> None:  # fmt: skip
        """Live through a chunk of a log by kernel: fill ``found``, move ``belief`` and ``acceptance``; in place."""

    def init(self) -> DeploymentState:
        """The state before the first round."""
        belief = self.initial_belief.copy()
        return DeploymentState(belief, 0, belief, np.empty((0, len(belief))), np.empty(0, dtype=bool))

    def act(
        self,
        state: DeploymentState,
        context: npt.ArrayLike | None,
        uniform: float,
        action_mask: npt.ArrayLike | None = None,
    ) -> Decision:
        """Decide a round.

        ``context`` is one row of what the log held: (d,), (K, d) or None; ``uniform`` one number in [0, 1), which
        decides between actions: the same number, state and context decide alike.
        """
        self._require_own(state)
        require(0 <= uniform < 1, f"uniform must be in [0, 1); got {uniform}.")
        contexts = np.empty((1, 0)) if context is None else np.asarray(context)[None]
        masks = None if action_mask is None else np.asarray(action_mask, dtype=bool)[None]
        advice = self.policies.advice(contexts, masks)[0]
        require(bool(np.isfinite(advice).all()), "the policies have no advice for this context: is it finite?")
        allowed = np.ones(advice.shape[1], dtype=bool) if masks is None else masks[0]
        require(bool(allowed.any()), "action_mask must allow an action.")
        probs = np.empty(advice.shape[1])
        mix_advice(state.belief, advice, self.exploration, allowed, probs)
        action = int(draw_action(probs, uniform))
        return Decision(action, float(probs[action]), probs, state.rounds, self._by_state(contexts, advice, action))

    def update(self, state: DeploymentState, decision: Decision, reward: float | None) -> DeploymentState:
        """The round passed; ``reward`` None: it has not come yet (``amend`` when it does)."""
        self._require_own(state)
        if decision.round != state.rounds:
            raise ParameterError(
                f"the decision is of round {decision.round}, the deployment is at round {state.rounds}: "
                "update with each decision before the next is made, with None if its reward is still to come."
            )
        evidence = np.ones(len(state.belief)) if reward is None else self._evidence(decision, _number(reward))
        belief = state.belief.copy()
        replay(belief, evidence[None], self.transition)
        evidences = np.concatenate([state.evidences, evidence[None]])
        waiting = np.append(state.waiting, reward is None)
        return self._trimmed(DeploymentState(belief, state.rounds + 1, state.anchor, evidences, waiting))

    def amend(self, state: DeploymentState, decision: Decision, reward: float) -> DeploymentState:
        """A reward that came later counts at its own round: as if it had been there then."""
        self._require_own(state)
        if decision.round >= state.rounds:
            raise ParameterError(f"round {decision.round} has not passed yet: update(state, decision, reward) first.")
        place = decision.round - (state.rounds - len(state.evidences))
        if place >= 0 and not state.waiting[place]:
            raise ParameterError(f"round {decision.round} waits for no reward: it has one.")
        if place < 0:
            raise ParameterError(
                f"round {decision.round} waits for no reward: it has one, or it passed more than memory={self.memory} "
                "rounds ago."
            )
        evidences, waiting = state.evidences.copy(), state.waiting.copy()
        evidences[place], waiting[place] = self._evidence(decision, _number(reward)), False
        belief = state.anchor.copy()
        replay(belief, evidences, self.transition)
        return self._trimmed(DeploymentState(belief, state.rounds, state.anchor, evidences, waiting))

    def _trimmed(self, state: DeploymentState) -> DeploymentState:
        """The same state without the rounds that no late reward can reach any more."""
        known = int(state.waiting.argmax()) if state.waiting.any() else len(state.waiting)
        forgotten = max(known, len(state.waiting) - self.memory)
        # A round that is forgotten before its reward came may leave known ones at the front.
        still = state.waiting[forgotten:]
        forgotten += int(still.argmax()) if still.any() else len(still)
        if forgotten == 0:
            return state
        anchor = state.anchor.copy()
        replay(anchor, state.evidences[:forgotten], self.transition)
        return replace(
            state, anchor=anchor, evidences=state.evidences[forgotten:].copy(), waiting=state.waiting[forgotten:].copy()
        )

    def _require_own(self, state: DeploymentState) -> None:
        if not isinstance(state, DeploymentState):
            raise ParameterError(
                f"state must be what init() or update() returned, a DeploymentState; got a {type(state).__name__}."
            )
        n_states = len(self.initial_belief)
        if len(state.belief) != n_states:
            raise ParameterError(
                f"the state is of a deployment with {len(state.belief)} states; this one has {n_states}."
            )

    def _check_settings(self) -> None:
        """What every deployer asks of its settings."""
        require(0 <= self.exploration <= 1, f"exploration must be in [0, 1]; got {self.exploration}.")
        require(self.memory >= 0, f"memory must be at least 0; got {self.memory}.")

    def state_probs(self, state: DeploymentState) -> Floats:
        """Which world are we in: (L,)."""
        return state.belief.copy()

    def run(
        self,
        state: DeploymentState,
        contexts: Floats,
        mean_rewards: Floats,
        rewards: Floats,
        uniforms: Floats,
        action_mask: Bools | None = None,
    ) -> tuple[DeploymentState, Trace]:
        """Decide and update in every round of a simulated world, where (n, K) ``rewards`` are known for all actions."""
        self._require_own(state)
        require(len(state.evidences) == 0, "a deployment that waits for rewards cannot be run on; amend them first.")
        n, n_actions = rewards.shape
        advice = self.policies.advice(contexts, action_mask)
        mask = np.ones((1, n_actions), dtype=bool) if action_mask is None else action_mask
        belief, n_states = state.belief.copy(), len(state.belief)
        trace = Trace(np.empty(n, np.int64), np.empty(n), np.empty(n), np.zeros(n), np.empty((n, n_states)))
        self._run(belief, contexts, advice, mask, uniforms, mean_rewards, rewards, trace)
        trace.rewards[:] = rewards[np.arange(n), trace.actions]
        return DeploymentState(belief, state.rounds + n, belief, state.evidences, state.waiting), trace


def as_policy_set(policies: Any) -> PolicySet:
    """A ``PolicySet``, from one or from a sequence of policies."""
    return policies if isinstance(policies, PolicySet) else PolicySet(tuple(policies))


def _number(reward: float) -> float:
    try:
        value = float(reward)
    except (TypeError, ValueError):
        value = np.nan
    require(
        bool(np.isfinite(value)), f"a reward must be a finite number; got {reward!r}. update takes None for none yet."
    )
    return value
