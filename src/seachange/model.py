"""SwitchingModel: what ``learn`` returns; save and load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from seachange.deploy.belief import BeliefDeployer
from seachange.deploy.exp4s import Exp4S
from seachange.deploy.posterior import PosteriorSampling
from seachange.deploy.single import SinglePolicy
from seachange.errors import ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.log.joint import JointFeatures
from seachange.policies.per_state import PolicySet
from seachange.protocols import PolicyLearner, StateOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import StateLabels, labels_from_states

DeployerKind = Literal["auto", "posterior", "exp4s"]


@dataclass(frozen=True)
class Provenance:
    """The log a model was learned from."""

    fingerprint: str
    n_rounds: int
    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    mean_reward: float
    reward_range: tuple[float, float]  # (0, 1), or 1st to 99th percentile where rewards leave it
    time_range: tuple[str, str] | None

    @classmethod
    def of(cls, log: BanditLog) -> Provenance:
        """Provenance from ``log``."""
        rewards = log.arrays.rewards
        unit = bool(np.nanmin(rewards) >= 0 and np.nanmax(rewards) <= 1)
        low, high = (0.0, 1.0) if unit else np.nanpercentile(rewards, [1, 99])
        if high <= low:
            high = low + 1.0
        return cls(
            fingerprint=log.fingerprint(),
            n_rounds=len(log),
            joint=log.joint,
            action_names=log.action_names,
            context_names=log.context_names,
            mean_reward=float(np.nanmean(rewards)),
            reward_range=(float(low), float(high)),
            time_range=None if log.times is None else (str(log.times[0]), str(log.times[-1])),
        )


@dataclass(frozen=True, eq=False)
class SwitchingModel:
    """One policy per state, and the oracle that tells the states apart."""

    policies: PolicySet
    oracle: StateOracle
    labels: StateLabels
    learner: PolicyLearner
    provenance: Provenance

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.policies)

    def deployer(self, kind: DeployerKind = "auto") -> BeliefDeployer:
        """A deployer of the policies: posterior sampling where there is an HMM, else Exp4.S, unless ``kind`` says."""
        if kind == "auto":
            kind = "posterior" if isinstance(self.oracle, HMMOracle) else "exp4s"
            if kind == "exp4s" and self.n_states == 1:
                return SinglePolicy(self.policies[0])
        if kind == "posterior":
            if not isinstance(self.oracle, HMMOracle):
                raise ParameterError('kind="posterior" needs a model whose states an HMM found; use "exp4s".')
            return PosteriorSampling(self.policies, self.oracle.model_)
        if kind == "exp4s":
            return Exp4S(self.policies, reward_range=self.provenance.reward_range)
        raise ParameterError(f'kind must be "auto", "posterior" or "exp4s"; got {kind!r}.')

    def label_ahead(self, log: BanditLog) -> StateLabels:
        """Label ``log`` by what was known before each reward where an HMM can say that; else as the oracle predicts.

        A value claim must not weigh rewards by states that were found with their help.
        """
        if not isinstance(self.oracle, HMMOracle):
            return self.oracle.predict(log)
        probs = self.oracle.model_.forecast(log)
        return labels_from_states(np.argmax(probs, axis=1), self.n_states, log, probs)

    def save(self, path: str | Path) -> None:
        """Write the model to one file; ``seachange.load`` reads it."""
        from seachange.model_file import save_model

        save_model(self, path)
