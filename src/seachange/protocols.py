"""The interface of each part of the pipeline; any object with these methods can take its place."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from seachange.deploy.decision import Decision, DeploymentState
    from seachange.log.bandit_log import BanditLog
    from seachange.simulate.rollout import Rounds
    from seachange.states.labels import StateLabels

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]


@runtime_checkable
class StateOracle(Protocol):
    """Infers the latent state of the world in each round of a log."""

    def fit(self, log: "BanditLog") -> Self:
        """Learn what the states are."""

    def predict(self, log: "BanditLog") -> "StateLabels":
        """Label every round of ``log``."""


@runtime_checkable
class Policy(Protocol):
    """Chooses actions: contexts (n, 0), (n, d) or (n, K, d) to probabilities (n, K)."""

    def predict_proba(self, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None = None) -> Floats:
        """π(a | x) for every row of ``contexts``; 0 for actions that ``action_mask`` excludes."""


@runtime_checkable
class PolicyLearner(Protocol):
    """Learns a policy from weighted rounds of a log."""

    policy_: Any

    def fit(self, log: "BanditLog", weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_`` from ``log``; round t counts ``weights[t]`` times."""


@runtime_checkable
class Deployer(Protocol):
    """Decides online: a frozen configuration and pure functions of a small state."""

    def init(self) -> "DeploymentState":
        """The state before the first round."""

    def act(
        self, state: "DeploymentState", context: npt.ArrayLike | None, uniform: float, action_mask: Any = None
    ) -> "Decision":
        """Decide a round; the same state, context and uniform always give the same decision."""

    def update(self, state: "DeploymentState", decision: "Decision", reward: float | None) -> "DeploymentState":
        """The state after a round; ``reward`` None means that it has not come yet."""

    def amend(self, state: "DeploymentState", decision: "Decision", reward: float) -> "DeploymentState":
        """The state after a late reward, which counts at its own round."""

    def state_probs(self, state: "DeploymentState") -> Floats:
        """(L,) the probability of each state."""


class Environment(Protocol):
    """A simulated world: rounds with every action's mean and sampled reward."""

    @property
    def n_actions(self) -> int:
        """K."""

    @property
    def horizon(self) -> int:
        """T."""

    def rounds(self, seed: int, chunk: int) -> Iterator["Rounds"]:
        """All rounds of the world, in chunks; the same seed gives the same rounds."""
