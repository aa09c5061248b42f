"""learn(): log → states → policies → model."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from seachange.errors import Fix, LogError, ParameterError, require, warn
from seachange.log.bandit_log import BanditLog, require_propensities, warn_of_estimates
from seachange.model import SwitchingModel
from seachange.model_file import Provenance
from seachange.params import Auto
from seachange.policies.learners import DMLearner, require_choices
from seachange.policies.objective_choice import choose_objective
from seachange.policies.per_state import learn_per_state
from seachange.policies.reward_models import RewardKind, RewardModel
from seachange.protocols import PolicyLearner, StateOracle
from seachange.registry import LEARNERS, ORACLES
from seachange.states.switching_regression import SwitchingRegression

FEWEST_ROUNDS = 30  # in shorter logs, held-out values are noise, so "auto" does not compare objectives by them


def learn(
    log: BanditLog,
    oracle: str | StateOracle = "hmm",
    n_states: int | Auto = "auto",
    objective: str | PolicyLearner = "auto",
    align_to: SwitchingModel | None = None,
    seed: int = 0,
) -> SwitchingModel:
    """Find the states of ``log`` and learn one policy per state.

    ``oracle`` finds the states: "hmm", "change-point", "none", or an oracle object. ``n_states`` is their number.
    ``objective`` is what each policy maximizes: "ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy", or a
    learner object. "auto" chooses the objective with the highest value on held-out blocks of time; ``model.choice``
    says why (logs of fewer than 30 rounds use "dm"). ``align_to`` is an earlier model: states of the HMM that match one
    of its states keep their number.

    >>> import numpy as np
    >>> import seachange as sc
    >>> rng = np.random.default_rng(0)
    >>> actions, best = rng.integers(2, size=400), np.arange(400) // 200
    >>> log = sc.BanditLog.from_arrays(actions, (actions == best) + rng.normal(0, 0.1, 400), np.full(400, 0.5))
    >>> sc.learn(log, n_states=2, objective="dr")
    SwitchingModel(2 states by HMMOracle, 2 actions, 400 rounds)
    """
    wrong = f"learn needs a BanditLog; got a {type(log).__name__}. Make one with BanditLog.from_frame or read_log."
    require(isinstance(log, BanditLog), wrong, LogError)
    require_choices(log)
    if isinstance(objective, type):
        raise ParameterError(f"objective must be a name or a learner object: {objective.__name__}(), not the class.")
    if isinstance(align_to, SwitchingModel):
        align_to.require_own_features(log)
    rewards, n_taken = log.arrays.rewards, len(np.unique(log.arrays.actions))
    if rewards.min() == rewards.max():
        warn(f"all rewards are {rewards[0]:g}: every policy earns the same, and there is nothing to learn.")
    if log.propensities_known and n_taken > 1 and float(log.arrays.propensities.min()) == 1:
        warn(
            f"all propensities are 1, yet {n_taken} actions were taken: they look filled in. Log the real ones, or "
            "leave them out and estimate them (sc.estimate_propensities, --estimate-propensities)."
        )
    if isinstance(oracle, str):
        oracle = oracle_named(oracle, n_states=n_states, seed=seed, align_to=align_to)
    learner = LEARNERS.by_name(objective, "a learner object")() if isinstance(objective, str) else objective
    if not isinstance(learner, DMLearner) and getattr(learner, "objective", None) != "dm":
        without = Fix('Or use objective="dm", which needs none.', "Or use --objective dm, which needs none.")
        require_propensities(log, "learning", without)
        warn_of_estimates(log, "learning")
    labels, choice = oracle.fit(log).predict(log), None
    if objective == "auto" and len(log) < FEWEST_ROUNDS:
        rounds = f"the log has only {len(log)} rounds, too few to compare objectives"
        warn(f'{rounds}: "dm" is used. With fewer than {FEWEST_ROUNDS} rounds, policies mostly fit noise.')
        learner = DMLearner()
    elif objective == "auto":
        learner, choice = choose_objective(log, np.ascontiguousarray(labels.weights(soft=False).T))
    policies = learn_per_state(log, labels, learner, reward_models=reward_models_of(oracle))
    model = getattr(oracle, "model_", None)
    if isinstance(model, SwitchingRegression) and labels.n_chains == 1:
        # The model's stays include segments that are too short to be found.
        n_changes = max(float(labels.counts @ (1 / model.expected_stays)), 1.0)
        policies = replace(policies, expected_stay=len(log) / n_changes)
    return SwitchingModel(
        policies=policies, oracle=oracle, labels=labels, learner=learner, provenance=Provenance.of(log),
        choice=choice, features=log.features,
    )  # fmt: skip


def reward_models_of(oracle: StateOracle) -> list[RewardModel] | None:
    """The HMM's reward model of each state; None if the oracle has no HMM."""
    model = getattr(oracle, "model_", None)
    if not isinstance(model, SwitchingRegression):
        return None
    kind: RewardKind = "bernoulli" if model.rewards == "bernoulli" else "gaussian"
    return [RewardModel(coefs, kind) for coefs in model.reward_coefs]


def oracle_named(name: str, **settings: Any) -> StateOracle:
    """The registered oracle ``name``, with those of the settings that it has."""
    cls = ORACLES.by_name(name, "an oracle object")
    oracle: StateOracle = cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})
    return oracle
