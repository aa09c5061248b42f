"""The base of all rivals: the deployer protocol around a memory of numbers and three kernels."""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.deploy.decision import Decision, Snapshot, Trace
from seachange.kernels.belief_updates import draw_action
from seachange.log.joint_features import JointFeatures
from seachange.params import require
from seachange.protocols import Bools, Floats

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class RivalState(Snapshot):
    """A rival between two rounds."""

    memory: Floats  # all arrays of the algorithm, one after the other
    rounds: int  # rounds that have passed
    deployer: str  # the fingerprint of the rival

    @classmethod
    def _rules(cls, *, memory: Any, rounds: Any, deployer: Any) -> Iterator[tuple[str, bool]]:
        plain = isinstance(memory, np.ndarray) and memory.ndim == 1 and memory.dtype == np.float64
        yield "memory must be a vector of numbers", plain and not np.isnan(memory).any()
        yield "rounds must be a whole number from 0 on", type(rounds) is int and rounds >= 0
        yield "deployer must be text", isinstance(deployer, str)


class Rival(ABC):
    """A frozen configuration and pure functions of a ``RivalState``, like every deployer.

    A reward counts when it arrives, however late. There is no belief over states: ``state_probs`` is 1.
    """

    kernels: ClassVar[tuple[Any, Any, Any, Any]]  # probabilities, learning, the end of a round, horizons
    memory_type: ClassVar[Any]  # the named tuple that kernels take
    joint: JointFeatures

    @property
    @abstractmethod
    def shapes(self) -> Shapes:
        """The shapes of the arrays in ``memory_type``."""

    @property
    @abstractmethod
    def rules(self) -> NamedTuple:
        """The configuration as kernels take it."""

    @abstractmethod
    def _begin(self, memory: Any) -> None:
        """Fill the memory, all zeros, with what it holds before the first round."""

    @cached_property
    def fingerprint(self) -> str:
        """A digest of the configuration."""
        digest = hashlib.blake2b(type(self).__name__.encode(), digest_size=8)
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            digest.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
        return digest.hexdigest()

    @cached_property
    def _places(self) -> list[tuple[slice, tuple[int, ...]]]:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()]).tolist()
        starts = [0, *ends[:-1]]
        return [(slice(*ends), shape) for *ends, shape in zip(starts, ends, self.shapes.values(), strict=True)]

    @cached_property
    def _kernel_rules(self) -> Any:
        return self.rules

    def _views(self, memory: Floats) -> Any:
        """The arrays of ``memory``, without copying it."""
        return self.memory_type(*(memory[place].reshape(shape) for place, shape in self._places))

    def init(self) -> RivalState:
        """The state before the first round."""
        memory = np.zeros(self._places[-1][0].stop)
        self._begin(self._views(memory))
        return RivalState(memory, 0, self.fingerprint)

    def act(
        self,
        state: RivalState,
        context: npt.ArrayLike | None,
        uniform: float,
        action_mask: npt.ArrayLike | None = None,
    ) -> Decision:
        """Decide a round, as ``BeliefDeployer.act``."""
        self._require_own(state)
        require(0 <= uniform < 1, f"uniform must be in [0, 1); got {uniform!r}.")
        rows = self.joint.rows(np.empty((1, 0)) if context is None else np.asarray(context)[None]).astype(np.float64)
        allowed = self.joint.mask(None if action_mask is None else np.asarray(action_mask)[None], 1)[0]
        probs = np.empty(self.joint.n_actions)
        self.kernels[0](self._kernel_rules, self._views(state.memory), rows[0], allowed, probs)
        action = int(draw_action(probs, uniform))
        row = rows[0, action if rows.shape[1] > 1 else 0]
        return Decision(action, float(probs[action]), probs, state.rounds, row.copy(), self.fingerprint)

    def update(self, state: RivalState, decision: Decision, reward: float | None) -> RivalState:
        """The state after a round; a ``reward`` of None means that it has not arrived yet (``amend`` when it does)."""
        self._require_own(state, decision)
        rule = f"the decision is of round {decision.round}, but the deployment is at round {state.rounds}."
        require(decision.round == state.rounds, rule)
        after = state if reward is None else self._learned(state, decision, reward)
        memory = after.memory.copy()
        self.kernels[2](self._kernel_rules, self._views(memory))
        return replace(after, memory=memory, rounds=state.rounds + 1)

    def amend(self, state: RivalState, decision: Decision, reward: float) -> RivalState:
        """The state after a late reward."""
        self._require_own(state, decision)
        require(decision.round < state.rounds, f"round {decision.round} has not passed yet; call update first.")
        return self._learned(state, decision, reward)

    def _learned(self, state: RivalState, decision: Decision, reward: float) -> RivalState:
        require(math.isfinite(reward), f"reward must be a finite number; got {reward!r}.")
        memory = state.memory.copy()
        given = decision.by_state, decision.action, decision.propensity, float(reward)
        self.kernels[1](self._kernel_rules, self._views(memory), *given)
        return replace(state, memory=memory)

    def _require_own(self, *records: Any) -> None:
        for record in records:
            require(record.deployer == self.fingerprint, f"the {type(record).__name__} belongs to another deployer.")

    def state_probs(self, state: RivalState) -> Floats:
        """(1,) certainty: there are no states."""
        return np.ones(1)

    def run(
        self,
        state: RivalState,
        contexts: Floats,
        mean_rewards: Floats,
        rewards: Floats,
        uniforms: Floats,
        action_mask: Bools | None = None,
    ) -> tuple[RivalState, Trace]:
        """Decide and update in every round of a simulated world whose (n, K) ``rewards`` are known for all actions."""
        self._require_own(state)
        n, n_actions = rewards.shape
        rows, mask = self.joint.rows(contexts).astype(np.float64, copy=False), self.joint.mask(action_mask, n)
        same = len(contexts) == n and mean_rewards.shape == rewards.shape and uniforms.shape == (n,)
        require(same and n_actions == self.joint.n_actions, "all arrays must have the same rounds and actions.")
        trace = Trace(np.empty(n, np.int64), np.empty(n), np.empty(n), np.zeros(n), np.ones((n, 1)))
        memory = state.memory.copy()
        self.kernels[3](
            self._kernel_rules, self._views(memory), rows, mask, uniforms, mean_rewards, rewards, trace.actions,
            trace.propensities, trace.expected_rewards,
        )  # fmt: skip
        trace.rewards[:] = rewards[np.arange(n), trace.actions]
        return replace(state, memory=memory, rounds=state.rounds + n), trace
