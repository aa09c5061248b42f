"""learn(): log → states → policies → model."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np

from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_propensities, warn_of_estimates
from seachange.model import SwitchingModel
from seachange.params import Auto
from seachange.policies.choice import AutoLearner, choose_objective
from seachange.policies.learners import LEARNERS, DMLearner, require_choices
from seachange.policies.per_state import learn_per_state
from seachange.policies.rewards import RewardKind, RewardModel
from seachange.protocols import PolicyLearner, StateOracle
from seachange.provenance import Provenance
from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import SingleState

OracleName = Literal["hmm", "change-point", "none"]
ObjectiveName = Literal["auto", "ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy"]


def learn(
    log: BanditLog,
    oracle: OracleName | StateOracle = "hmm",
    n_states: int | Auto = "auto",
    objective: ObjectiveName | PolicyLearner = "auto",
    align_to: SwitchingModel | None = None,
    seed: int = 0,
) -> SwitchingModel:
    """Learn from ``log`` a policy that knows how to change its mind.

    ``oracle`` finds the states ("hmm", "change-point", "none", or an oracle of your own), ``n_states`` is their number,
    ``objective`` is what each state's policy maximises ("ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy", or
    a learner of your own); "auto" takes the one that earns most on held-out blocks of time, and ``model.choice`` says
    why. With ``align_to``, an earlier model, the HMM's states that are alike keep their numbers.
    """
    if not isinstance(log, BanditLog):
        raise LogError(
            f"learn needs a BanditLog; a {type(log).__name__} becomes one by BanditLog.from_frame or read_log."
        )
    require_choices(log)
    if isinstance(objective, type):
        raise ParameterError(f"objective must be a name or a learner object: {objective.__name__}(), not the class.")
    if isinstance(align_to, SwitchingModel):
        align_to.require_own_features(log)
    _say_what_is_odd(log)
    state_oracle = oracle_named(oracle, n_states, seed, align_to) if isinstance(oracle, str) else oracle
    learner = learner_named(objective) if isinstance(objective, str) else objective
    if not isinstance(learner, DMLearner) and getattr(learner, "objective", None) != "dm":
        require_propensities(log, 'learning by anything but objective="dm"')
        warn_of_estimates(log, "learning")
    labels = state_oracle.fit(log).predict(log)
    choice = None
    if objective == "auto":
        learner, choice = choose_objective(log, np.ascontiguousarray(labels.weights(soft=False).T))
    policies = learn_per_state(log, labels, learner, reward_models=reward_models_of(state_oracle))
    return SwitchingModel(
        policies=policies, oracle=state_oracle, labels=labels, learner=learner, provenance=Provenance.of(log),
        choice=choice, features=log.features,
    )  # fmt: skip


def _say_what_is_odd(log: BanditLog) -> None:
    """Logs that can be learned from, but hardly in earnest."""
    rewards = log.arrays.rewards
    if rewards.min() == rewards.max():
        warnings.warn(
            f"all rewards are {rewards[0]:g}: every policy earns the same, and there is nothing to learn.",
            SeachangeWarning,
            stacklevel=3,
        )
    n_taken = len(np.unique(log.arrays.actions))
    if log.propensities_known and n_taken > 1 and float(log.arrays.propensities.min()) == 1:
        warnings.warn(
            f"all propensities are 1, yet {n_taken} actions were taken: they look filled in. Leave them out "
            "and estimate them (sc.estimate_propensities, --estimate-propensities), or log the real ones.",
            SeachangeWarning,
            stacklevel=3,
        )


def reward_models_of(oracle: StateOracle) -> list[RewardModel] | None:
    """What an HMM knows of the rewards of each state; None where there is no HMM."""
    if not isinstance(oracle, HMMOracle):
        return None
    model = oracle.model_
    kind: RewardKind = "bernoulli" if model.rewards == "bernoulli" else "gaussian"
    return [
        RewardModel(coefs, np.linalg.pinv(precisions, hermitian=True), kind)
        for coefs, precisions in zip(model.reward_coefs, model.reward_precisions, strict=True)
    ]


def oracle_named(name: str, n_states: int | Auto, seed: int, align_to: SwitchingModel | None = None) -> StateOracle:
    """The oracle that ``learn`` means by a name."""
    if name == "hmm":
        return HMMOracle(n_states=n_states, seed=seed, align_to=align_to)
    if name == "change-point":
        return ChangePointOracle(n_states=n_states, seed=seed)
    if name == "none":
        return SingleState()
    raise ParameterError(f"oracle must be hmm, change-point, none or an oracle object; got {name!r}.")


def learner_named(name: str) -> PolicyLearner:
    """The learner that ``learn`` means by a name."""
    if name == "auto":
        return AutoLearner()
    if name not in LEARNERS:
        raise ParameterError(f"objective must be auto, {', '.join(LEARNERS)} or a learner object; got {name!r}.")
    return LEARNERS[name]()
