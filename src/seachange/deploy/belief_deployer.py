"""The base of all deployers that hold a belief over states: decide, update, amend, run."""

import hashlib
import math
from abc import ABC, abstractmethod
from dataclasses import MISSING, fields, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from seachange.deploy.decision import Decision, DeploymentState, Trace
from seachange.deploy.pending_rewards import PendingRewards
from seachange.errors import ParameterError
from seachange.kernels.belief_updates import decide, is_distribution, is_evidence, is_finite, replay
from seachange.kernels.replay_steps import Acceptance, Followed, LoggedRounds
from seachange.log.bandit_log import BanditLog, require_log
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Floats

if TYPE_CHECKING:
    from seachange.deploy.alerts import Alert
    from seachange.model import SwitchingModel

MEMORY = 100_000  # rounds within which a late reward still counts, unless set
CHUNK_ROUNDS = 1 << 14  # rounds of a log whose evidence is in memory at a time
RECORDS = (("state", DeploymentState, "init() or update()"), ("decision", Decision, "act()"))


class BeliefDeployer(ABC):
    """A frozen configuration and pure functions of a ``DeploymentState``.

    States and decisions carry the ``fingerprint`` of their deployer, which refuses those of another one.

    A registered deployer also says which models it ``suits`` and how to make it ``from_model``; of those that suit a
    model, ``kind="auto"`` takes the one with the highest ``preference``.
    """

    preference: ClassVar[int] = 0
    learns: ClassVar[bool] = False  # whether its hypotheses change their minds about actions
    # To run a simulated world, and to follow a log. Without them, rounds are taken one by one, far more slowly.
    kernels: ClassVar[tuple[Any, Any] | None] = None
    policies: PolicySet
    exploration: float
    memory: int  # rounds within which a late reward still counts

    @classmethod
    def suits(cls, model: "SwitchingModel") -> bool:
        """Whether ``from_model`` works for ``model``."""
        return False

    @classmethod
    def from_model(cls, model: "SwitchingModel", *, exploration: float, memory: int) -> Self:
        """The deployer of the policies of ``model``."""
        raise NotImplementedError

    @property
    @abstractmethod
    def transition(self) -> Floats:
        """(L, L) transition probabilities between rounds."""

    @property
    @abstractmethod
    def initial_belief(self) -> Floats:
        """(L,) the belief before the first round."""

    @abstractmethod
    def _evidence(self, decision: Decision, reward: float) -> Floats:
        """(L,) evidence of ``reward`` for each state, up to a factor."""

    def _by_state(self, contexts: Floats, advice: Floats, action: int) -> Floats:
        """(L,) what ``Decision.by_state`` keeps of ``action``, given one round's contexts (1, …) and advice (L, K)."""
        return np.ascontiguousarray(advice[:, action])

    def _settings(self, contexts: Floats, rewards: Floats, n_actions: int) -> tuple[Any, ...]:
        """What the kernels need to turn ``rewards`` into evidence, between the exploration and the transition."""
        return ()

    def __post_init__(self) -> None:
        if not isinstance(self.policies, PolicySet):
            object.__setattr__(self, "policies", PolicySet(tuple(self.policies)))
        require(0 <= self.exploration <= 1, f"exploration must be in [0, 1]; got {self.exploration}.")
        require(self.memory >= 0, f"memory must be at least 0; got {self.memory}.")

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the policies and of how states follow each other; exploration and memory may change."""
        digest = hashlib.blake2b(type(self).__name__.encode(), digest_size=8)
        arrays = [self.transition, self.initial_belief, *self._constants]
        for policy in self.policies:
            digest.update(type(policy).__name__.encode())
            # Policies of other packages are known by their class only.
            arrays += policy.learned()[1].values() if hasattr(policy, "learned") else []
        for array in arrays:
            digest.update(array.tobytes())
        return digest.hexdigest()

    @property
    def _constants(self) -> tuple[Floats, ...]:
        """What else a snapshot depends on."""
        return ()

    def __repr__(self) -> str:
        """Sizes, and settings that are not the usual ones."""
        joint, n_states = getattr(self.policies[0], "joint", None), len(self.policies)
        sizes = [f"{n_states} state{'' if n_states == 1 else 's'}", *([f"{joint.n_actions} actions"] if joint else [])]
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.name in ("exploration", "memory") or (field.default is not MISSING and value != field.default):
                shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join([*sizes, *shown])})"

    def init(self) -> DeploymentState:
        """The state before the first round."""
        return DeploymentState(self.initial_belief.copy(), 0, None, self.fingerprint)

    def act(
        self,
        state: DeploymentState,
        context: npt.ArrayLike | None,
        uniform: float,
        action_mask: npt.ArrayLike | None = None,
    ) -> Decision:
        """Decide a round.

        ``context`` is as in the log: (d,), (K, d) or None. ``uniform`` is one number in [0, 1) that draws the action:
        the same state, context and number always make the same decision.
        """
        self._require_own(state)
        if not (isinstance(uniform, Real) and 0 <= uniform < 1):
            raise ParameterError(f"uniform must be in [0, 1); got {uniform!r}.")
        try:
            contexts = np.empty((1, 0)) if context is None else np.asarray(context)[None]
        except ValueError as error:
            raise ParameterError(f"context must be an array of numbers: {error}.") from error
        masks = None if action_mask is None else np.asarray(action_mask, dtype=bool)[None]
        advice = self.policies.advice(contexts, masks)[0]
        if not is_finite(advice):
            raise ParameterError("the policies return NaN for this context. Is it finite?")
        n_actions = advice.shape[1]
        if masks is None:
            allowed = np.ones(n_actions, dtype=bool)
        else:
            allowed = masks[0]
            rule = f"action_mask must have one entry for each of the {n_actions} actions; it has shape {allowed.shape}."
            require(allowed.shape == (n_actions,), rule)
            require(bool(allowed.any()), "action_mask must allow an action.")
        return self._decided(state, contexts, advice, allowed, float(uniform))

    def _decided(
        self, state: DeploymentState, contexts: Floats, advice: Floats, allowed: Bools, uniform: float
    ) -> Decision:
        """The decision in one round with contexts (1, …) and advice (L, K)."""
        probs = np.empty(len(allowed))
        action = decide(state.belief, advice, self.exploration, allowed, uniform, probs)
        by_state = self._by_state(contexts, advice, action)
        return Decision(action, float(probs[action]), probs, state.rounds, by_state, self.fingerprint)

    def update(self, state: DeploymentState, decision: Decision, reward: float | None) -> DeploymentState:
        """The state after a round; a ``reward`` of None means that it has not arrived yet (``amend`` when it does)."""
        self._require_own(state, decision)
        if decision.round != state.rounds:
            raise ParameterError(
                f"the decision is of round {decision.round}, but the deployment is at round {state.rounds}. Update "
                "with each decision before making the next; pass None if its reward has not arrived yet."
            )
        evidence = np.ones(len(state.belief)) if reward is None else self._checked_evidence(decision, reward)
        belief, pending = self._replayed(state.belief, evidence[None]), state.pending
        if pending is not None:
            pending = pending.appended(evidence, reward is None).trimmed(self.memory, self.transition)
        elif reward is None and self.memory > 0:
            pending = PendingRewards.of_rounds(state.belief, state.rounds, evidence[None], np.ones(1, dtype=bool))
        learned = self._learned(state, decision, reward, evidence)
        return DeploymentState(belief, state.rounds + 1, pending, self.fingerprint, learned)

    def amend(self, state: DeploymentState, decision: Decision, reward: float) -> DeploymentState:
        """The state after a late reward, which counts as if it had come in its own round."""
        self._require_own(state, decision)
        passed = decision.round < state.rounds
        require(passed, f"round {decision.round} has not passed yet; call update(state, decision, None) first.")
        pending = state.pending
        if pending is None or decision.round < pending.first or not pending.waits(decision.round):
            known = pending is not None and decision.round >= pending.first
            late = f", or it passed more than memory={self.memory} rounds ago. Raise memory if rewards come later"
            raise ParameterError(f"round {decision.round} already has a reward{'' if known else late}.")
        evidence = self._checked_evidence(decision, reward)
        amended = pending.amended(decision.round, evidence)
        belief = _require_belief(amended.before(amended.end, self.transition))
        learned = self._learned(state, decision, reward, evidence, amended)
        kept = amended.trimmed(self.memory, self.transition)
        return DeploymentState(belief, state.rounds, kept, self.fingerprint, learned)

    def _learned(
        self,
        state: DeploymentState,
        decision: Decision,
        reward: float | None,
        evidence: Floats,
        late: PendingRewards | None = None,
    ) -> Floats:
        """What is learned once a round has passed, or its ``late`` reward has come: ``DeploymentState.learned``."""
        return state.learned

    def start_from(self, log: BanditLog) -> DeploymentState:
        """The state at the end of ``log``, with which a deployment goes on instead of starting with ``init()``.

        Its belief is the one that the log's actions, propensities, and rewards lead to; its rounds are counted from 0.
        """
        require_log(log, "start_from")
        if log.sequences is not None:
            raise ParameterError(
                "every sequence of a log starts anew, so a log with sequences has no state at its end. Start with "
                "init(), or leave the sequences out if the world changes for all of them at once."
            )
        belief = self.initial_belief
        for part in log.chunks(CHUNK_ROUNDS):
            belief = self._replayed(belief, self._logged_evidence(part))
        return DeploymentState(belief, 0, None, self.fingerprint)

    def _logged_evidence(self, log: BanditLog) -> Floats:
        """(n, L) evidence of the rewards of ``log``; ones for missing rewards."""
        advice, propensities = self.logged_advice(log), log.propensities
        probs = np.repeat((1 - propensities[:, None]) / max(log.n_actions - 1, 1), log.n_actions, axis=1)
        probs[np.arange(len(log)), log.actions] = propensities
        evidences = np.ones(advice.shape[:2])
        for t in np.flatnonzero(~np.isnan(log.rewards)).tolist():
            action = int(log.actions[t])
            by_state = self._by_state(log.contexts[t : t + 1], advice[t], action)
            decision = Decision(action, float(propensities[t]), probs[t], t, by_state, self.fingerprint)
            evidences[t] = self._checked_evidence(decision, log.rewards[t])
        return evidences

    def logged_advice(self, log: BanditLog) -> Floats:
        """(n, L, K) the policies' advice in the rounds of ``log``."""
        advice = np.ascontiguousarray(self.policies.advice(log.contexts, log.action_mask), dtype=np.float64)
        expected = (len(log), len(self.policies), log.n_actions)
        rule = f"the deployer's policies must give advice of shape {expected} for this log; got {advice.shape}. "
        require(advice.shape == expected, f"{rule}Use a deployer learned from a log with the same actions.")
        return advice

    def alerts(self, state: DeploymentState) -> list["Alert"]:
        """What has changed since the log: nothing is watched for, unless a deployer says otherwise."""
        self._require_own(state)
        return []

    def _require_own(self, *records: Any) -> None:
        """Raise unless the state, and the decision if there is one, were made by this deployer."""
        for given, (what, kind, maker) in zip(records, RECORDS, strict=False):
            if not isinstance(given, kind):
                raise ParameterError(f"{what} must be what {maker} returned; got a {type(given).__name__}.")
            if given.deployer != self.fingerprint:
                raise ParameterError(
                    f"the {what} belongs to another deployer, of another model or kind. Use it with that one, or "
                    "start again with init()."
                )
            if not given.fits(*self._sizes[what]):
                raise ParameterError(f"the {what} is damaged: restore an earlier one.")

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Lengths of the belief and of what is learned, and of ``Decision.by_state`` and ``Decision.features``."""
        return {"state": (len(self.initial_belief), 0), "decision": (len(self.initial_belief), 0)}

    def _checked_evidence(self, decision: Decision, reward: float) -> Floats:
        try:
            value = float(reward)
        except (TypeError, ValueError, OverflowError):
            value = np.nan
        if not math.isfinite(value):
            raise ParameterError(
                f"reward must be a finite number; got {reward!r}. Pass None to update if it has not arrived yet."
            )
        evidence = np.ascontiguousarray(self._evidence(decision, value), dtype=np.float64)
        if not is_evidence(evidence):
            raise ParameterError(f"reward {reward!r} of round {decision.round} gives no finite evidence.")
        return evidence

    def _replayed(self, belief: Floats, evidences: Floats) -> Floats:
        after = belief.copy()
        replay(after, evidences, self.transition)
        return _require_belief(after)

    def state_probs(self, state: DeploymentState) -> Floats:
        """(L,) the probability of each state, given all rewards so far."""
        return self._of_states(state.belief.copy())

    def run(
        self,
        state: DeploymentState,
        contexts: Floats,
        mean_rewards: Floats,
        rewards: Floats,
        uniforms: Floats,
        action_mask: Bools | None = None,
        starts: Bools | None = None,
    ) -> tuple[DeploymentState, Trace]:
        """Decide and update in every round of a simulated world whose (n, K) ``rewards`` are known for all actions.

        In rounds with ``starts`` (n,), a new sequence starts: the deployment begins anew. A reward that is NaN is
        missing for good: the round passes as with ``update(state, decision, None)``, and no amendment is awaited.
        """
        self._require_own(state)
        require(state.pending is None, "run needs a state without pending rewards; amend them first.")
        (n, n_actions), rounds = rewards.shape, state.rounds
        advice = self.policies.advice(contexts, action_mask)
        fits = advice.shape == (n, len(self.policies), n_actions) and mean_rewards.shape == rewards.shape
        starts = np.zeros(n, dtype=bool) if starts is None else starts
        masked = (action_mask is None or action_mask.shape == rewards.shape) and starts.shape == (n,)
        same = f"contexts, mean_rewards, rewards, uniforms, action_mask, and starts must all have {n:,} rounds"
        require(fits and masked and uniforms.shape == (n,), f"{same} and the policies' actions.")
        require(bool(((uniforms >= 0) & (uniforms < 1)).all()), "uniforms must be in [0, 1).")
        require(not np.isinf(rewards).any(), "rewards must be finite, or NaN if they never come.")
        live = self.live(state)
        trace = Trace(np.empty(n, np.int64), np.empty(n), np.empty(n), np.zeros(n), np.empty((n, len(live[0]))))
        if self.kernels is not None:
            mask = np.ones((1, n_actions), dtype=bool) if action_mask is None else action_mask
            self.kernels[0](
                *live, starts, self.initial_belief, advice, mask, uniforms, mean_rewards, rewards,
                self.exploration, *self._settings(contexts, rewards, n_actions), self.transition, trace.state_probs,
                trace.actions, trace.propensities, trace.expected_rewards,
            )  # fmt: skip
        else:
            for t, uniform in enumerate(uniforms.tolist()):
                state = self.init() if starts[t] else state
                decision = self.act(state, contexts[t], uniform, None if action_mask is None else action_mask[t])
                trace.state_probs[t], trace.actions[t] = state.belief, decision.action
                trace.propensities[t], trace.expected_rewards[t] = decision.propensity, decision.probs @ mean_rewards[t]
                reward = rewards[t, decision.action]
                state = replace(self.update(state, decision, None if np.isnan(reward) else reward), pending=None)
            live = self.live(state)
        trace.rewards[:] = rewards[np.arange(n), trace.actions]
        return self._resumed(live, rounds + n), replace(trace, state_probs=self._of_states(trace.state_probs))

    def live(self, state: DeploymentState) -> tuple[Any, ...]:
        """Copies of what changes from round to round, for kernels to change in place; the belief comes first."""
        return (state.belief.copy(),)

    def _resumed(self, live: tuple[Any, ...], rounds: int) -> DeploymentState:
        """The state after ``rounds``, without pending rewards."""
        return DeploymentState(live[0], rounds, None, self.fingerprint)

    def _of_states(self, beliefs: Floats) -> Floats:
        """(..., L) probabilities of states from beliefs."""
        return beliefs

    def follow(self, live: tuple[Any, ...], contexts: Floats, past: LoggedRounds, acceptance: Acceptance,
               found: Followed) -> None:  # fmt: skip
        """Follow a chunk of a log: fill ``found``, update ``live`` and ``acceptance``, all in place."""
        settings = self._settings(contexts, past.rewards, past.advice.shape[2])
        assert self.kernels is not None, "without kernels, rounds are followed one by one"
        rates = self.exploration, *settings, self.transition
        self.kernels[1](*live, self.initial_belief, past, acceptance, found, *rates)


def _require_belief(belief: Floats) -> Floats:
    """Raise unless ``belief`` is a distribution."""
    if not is_distribution(belief):
        raise ParameterError("no state explains these rewards, so the belief is undefined. Restore an earlier state.")
    return belief
