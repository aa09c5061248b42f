"""learn(): log → states → policies → model."""

from __future__ import annotations

from typing import Literal

from seachange.errors import LogError, ParameterError
from seachange.log.bandit_log import BanditLog, require_propensities, warn_of_estimates
from seachange.model import SwitchingModel
from seachange.params import Auto
from seachange.policies.learners import LEARNERS, DMLearner, require_choices
from seachange.policies.per_state import learn_per_state
from seachange.protocols import PolicyLearner, StateOracle
from seachange.provenance import Provenance
from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import SingleState

OracleName = Literal["hmm", "change-point", "none"]
ObjectiveName = Literal["ips", "dm", "dr", "poem"]


def learn(
    log: BanditLog,
    oracle: OracleName | StateOracle = "hmm",
    n_states: int | Auto = "auto",
    objective: ObjectiveName | PolicyLearner = "dr",
    align_to: SwitchingModel | None = None,
    seed: int = 0,
) -> SwitchingModel:
    """Learn from ``log`` a policy that knows how to change its mind.

    ``oracle`` finds the states ("hmm", "change-point", "none", or an oracle of your own), ``n_states`` is their number,
    ``objective`` is what each state's policy maximises ("ips", "dm", "dr", "poem", or a learner of your own). With
    ``align_to``, an earlier model, the HMM's states that are alike keep their numbers.
    """
    if not isinstance(log, BanditLog):
        raise LogError(
            f"learn needs a BanditLog; a {type(log).__name__} becomes one by BanditLog.from_frame or read_log."
        )
    require_choices(log)
    state_oracle = oracle_named(oracle, n_states, seed, align_to) if isinstance(oracle, str) else oracle
    learner = learner_named(objective) if isinstance(objective, str) else objective
    if not isinstance(learner, DMLearner) and getattr(learner, "objective", None) != "dm":
        require_propensities(log, 'learning by anything but objective="dm"')
        warn_of_estimates(log, "learning")
    labels = state_oracle.fit(log).predict(log)
    policies = learn_per_state(log, labels, learner)
    return SwitchingModel(
        policies=policies, oracle=state_oracle, labels=labels, learner=learner, provenance=Provenance.of(log)
    )


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
    if name not in LEARNERS:
        raise ParameterError(f"objective must be {', '.join(LEARNERS)} or a learner object; got {name!r}.")
    return LEARNERS[name]()
