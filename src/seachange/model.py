"""SwitchingModel: what ``learn`` returns; save and load."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seachange.deploy.belief import BeliefDeployer
from seachange.deploy.decision import Decision, DeploymentState
from seachange.deploy.exp4s import Exp4S
from seachange.deploy.posterior import PosteriorSampling
from seachange.deploy.single import SinglePolicy
from seachange.errors import ParameterError, SeachangeWarning
from seachange.log.bandit_log import BanditLog
from seachange.log.features import Encoded, FeatureSpec, plain_features
from seachange.log.readers import read_log
from seachange.log.validation import OnBadRows
from seachange.model_file import ModelParts, read_parts, write_parts
from seachange.states.hmm import HMMOracle
from seachange.states.labels import StateLabels, labels_from_states

DeployerKind = Literal["auto", "posterior", "exp4s"]


@dataclass(frozen=True, eq=False, repr=False)
class SwitchingModel(ModelParts):
    """One policy per state, and the oracle that tells the states apart."""

    def read_log(
        self,
        path: str | Path,
        columns: Mapping[str, str | Sequence[str]] | None = None,
        *,
        format: str | None = None,
        missing_rewards: bool = False,
        on_bad_rows: OnBadRows = "raise",
    ) -> BanditLog:
        """Read a log as the model's own was read: the same columns, the same features, the same actions.

        ``columns`` need only say what has another name now.
        """
        return read_log(
            path,
            columns,
            features=self.encoding,
            format=format,
            missing_rewards=missing_rewards,
            on_bad_rows=on_bad_rows,
        )

    @property
    def encoding(self) -> FeatureSpec:
        """How raw columns become features; where the model was learned from arrays, numbers are taken as they are."""
        if self.features is not None:
            return self.features
        if self.provenance.joint.kind == "per action":
            raise ParameterError(
                "this model was learned from arrays with features of each action, which no raw column says; give "
                "arrays to BanditLog.from_arrays and to deployer.act."
            )
        return plain_features(self.provenance.context_names, self.provenance.action_names)

    def decide(
        self, deployer: BeliefDeployer, state: DeploymentState, record: Mapping[str, Any], uniform: float
    ) -> Decision:
        """Decide a round from a raw record, as the log's row or JSON object held it (``FeatureSpec.encode_record``)."""
        if not (
            isinstance(deployer, BeliefDeployer)
            and isinstance(state, DeploymentState)
            and isinstance(record, Mapping)
            and isinstance(uniform, int | float | np.number)
        ):
            raise _misplaced(deployer=deployer, state=state, record=record, uniform=uniform)
        context, action_mask = self._encode_record(record)
        return deployer.act(state, context, uniform, action_mask)

    @cached_property
    def _encode_record(self) -> Callable[[Mapping[str, Any]], Encoded]:
        return self.encoding.encode_record

    def action_name(self, decision: Decision) -> str:
        """The name of the action that was decided for; of lists, its place."""
        return self.provenance.action_names[decision.action]

    def require_own_features(self, log: BanditLog) -> None:
        """Raise where ``log`` was encoded by other features than the model's."""
        for what in ("action_names", "context_names"):
            ours, theirs = getattr(self.provenance, what), getattr(log, what)
            if ours != theirs:
                raise ParameterError(
                    f"{what} of the log are {', '.join(theirs)}; the model's are {', '.join(ours)}. "
                    "model.read_log reads a file as the model needs it."
                )
        if self.features is not None and log.features is not None and not self.features.encodes_like(log.features):
            raise ParameterError(
                "the log's features are in units of its own, not in those of the model; model.read_log reads a file as "
                "the model needs it, and features=model.features does so in read_log and BanditLog.from_frame."
            )

    def deployer(self, kind: DeployerKind = "auto", *, exploration: float = 0.0) -> BeliefDeployer:
        """A deployer of the policies: posterior sampling where there is an HMM, else Exp4.S, unless ``kind`` says.

        ``exploration`` is γ, the share of choices at random: each of k actions that may be shown has at least
        probability γ / k. A log without it can hardly be learned from again; it costs γ of what choosing well gains.
        """
        if kind == "auto":
            kind = "posterior" if isinstance(self.oracle, HMMOracle) else "exp4s"
            if kind == "exp4s" and self.n_states == 1:
                return SinglePolicy(self.policies[0], exploration=exploration)
        if kind == "posterior":
            if not isinstance(self.oracle, HMMOracle):
                raise ParameterError('kind="posterior" needs a model whose states an HMM found; use "exp4s".')
            return PosteriorSampling(self.policies, self.oracle.model_, exploration=exploration)
        if kind == "exp4s":
            made_of = self.provenance
            return Exp4S(
                self.policies,
                reward_range=made_of.reward_range,
                mean_reward=made_of.mean_reward,
                exploration=exploration,
            )
        raise ParameterError(f'kind must be "auto", "posterior" or "exp4s"; got {kind!r}.')

    def label_ahead(self, log: BanditLog) -> StateLabels:
        """Label ``log`` by what was known before each reward where an HMM can say that; else as the oracle predicts.

        A value claim must not weigh rewards by states that were found with their help.
        """
        self.require_own_features(log)
        n_sequences = 1 if log.sequences is None else len(np.unique(log.sequences))
        if self.n_states > 1 and self.labels.n_chains == 1 and n_sequences > 1:
            _warn(
                f"the model was learned from one sequence of rounds; this log has {n_sequences:,}, in each of which "
                "states start anew. Where sequences are users of one world that changes for all, leave them out."
            )
        if not isinstance(self.oracle, HMMOracle):
            labels = self.oracle.predict(log)
            if labels.from_rewards and self.n_states > 1:
                _warn(
                    f"a {type(self.oracle).__name__} finds states with the help of the rewards: values by them are "
                    "those of a policy that is told the states. evaluate_online(log, model.deployer()) says what the "
                    "deployment would earn."
                )
            return labels
        probs = self.oracle.model_.forecast(log)
        return labels_from_states(np.argmax(probs, axis=1), self.n_states, log, probs)

    def __repr__(self) -> str:
        """Sizes at a glance."""
        oracle, log = type(self.oracle).__name__, self.provenance
        sizes = f"{len(log.action_names)} actions, {log.n_rounds:,} rounds"
        return f"SwitchingModel({self.n_states} states by {oracle}, {sizes})"

    def save(self, path: str | Path) -> None:
        """Write the model to one file; ``seachange.load`` reads it."""
        write_parts(self, path)


def load(path: str | Path) -> SwitchingModel:
    """Read a model that ``SwitchingModel.save`` wrote; a file from a stranger is safe to load."""
    return SwitchingModel(**vars(read_parts(path)))


def _misplaced(**given: object) -> ParameterError:
    """What is said of arguments of ``decide`` that are not what their place asks for."""
    kinds = ", ".join(f"{name} is a {type(value).__name__}" for name, value in given.items())
    return ParameterError(
        "decide(deployer, state, record, uniform) takes a deployer of the model, the state that its init() or update() "
        f"returned, a mapping of columns to values and a number in [0, 1); {kinds}."
    )


def _warn(said: str) -> None:
    warnings.warn(said, SeachangeWarning, stacklevel=3)
