"""learn(): log → states → policies → model."""

import warnings
from copy import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np

from seachange.engine import stage
from seachange.errors import (
    Fix,
    LogError,
    NoChangeWarning,
    ParameterError,
    SeachangeError,
    SeachangeWarning,
    UnmatchedStatesWarning,
    require,
    warn,
)
from seachange.evaluation.deployment import evaluate_deployment
from seachange.log.bandit_log import BanditLog, require_propensities, warn_of_estimates
from seachange.model import SwitchingModel
from seachange.model_file import Provenance, Trial
from seachange.params import Auto
from seachange.policies.learners import DMLearner, logged_action_probs, require_choices
from seachange.policies.objective_choice import Choice, choose_objective
from seachange.policies.per_state import PolicySet, learn_per_state
from seachange.policies.reward_models import RewardKind, RewardModel
from seachange.protocols import PolicyLearner, StateOracle
from seachange.registry import LEARNERS, ORACLES
from seachange.states.hmm import HMMOracle
from seachange.states.hmm_fitting import Fitter
from seachange.states.labels import KnownStates, SingleState, StateLabels
from seachange.states.new_states import new_regimes
from seachange.states.reward_evidence import RewardEvidence
from seachange.states.switching_regression import SwitchingRegression, bought, hmm_of, state_rewards

# A model is tried out by learning a similar one from this share of the log and evaluating it on the rest.
TRAINING_SHARE = 0.6
MOST_NEW = 0.05  # share of held-out rounds whose states may be new in a trial
LEAST_GAIN = 1e-4  # of switching over a single policy, in standard deviations of the rewards
FEWEST_ROUNDS = 30  # in shorter logs, held-out values are noise, so "auto" does not compare objectives by them


def learn(
    log: BanditLog | list[BanditLog] | tuple[BanditLog, ...],
    oracle: str | StateOracle = "hmm",
    n_states: int | Auto = "auto",
    objective: str | PolicyLearner = "auto",
    align_to: SwitchingModel | None = None,
    seed: int = 0,
) -> SwitchingModel:
    """Find the states of ``log`` and learn one policy per state. A list of logs is joined (``BanditLog.joined``).

    ``oracle`` finds the states: "hmm", "change-point", "none", or an oracle object. ``n_states`` is their number.
    ``objective`` is what each policy maximizes: "ips", "snips", "dm", "dr", "mrdr", "poem", "cross-entropy", or a
    learner object. "auto" chooses the objective with the highest value on held-out blocks of time; ``model.choice``
    says why (logs of fewer than 30 rounds use "dm"). ``align_to`` is an earlier model: states of the HMM that match one
    of its states keep their number.

    If the number of states is "auto", switching must pay: a similar model is learned from the first 60% of the log and
    evaluated on the rest (``model.trial``). Unless it earns more there than the best single policy, fewer states are
    tried, too. If none would earn more than that policy, the model is that policy.

    >>> import numpy as np
    >>> import seachange as sc
    >>> rng = np.random.default_rng(0)
    >>> actions, best = rng.integers(2, size=400), np.arange(400) // 200
    >>> log = sc.BanditLog.from_arrays(actions, (actions == best) + rng.normal(0, 0.1, 400), np.full(400, 0.5))
    >>> sc.learn(log, n_states=2, objective="dr")
    SwitchingModel(2 states by HMMOracle, 2 actions, 400 rounds)
    """
    if isinstance(log, list | tuple):
        log = BanditLog.joined(log)
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
    learner = LEARNERS.by_name(objective, "or a learner object")() if isinstance(objective, str) else objective
    if not isinstance(learner, DMLearner) and getattr(learner, "objective", None) != "dm":
        without = Fix('Or use objective="dm", which needs none.', "Or use --objective dm, which needs none.")
        require_propensities(log, "learning", without)
        warn_of_estimates(log, "learning")
    labels = oracle.fit(log).predict(log)
    learner, choice = _objective(log, labels, learner, auto=objective == "auto")
    model = _model_of(log, oracle, labels, learner, choice, seed)
    if model.n_states == 1 or getattr(oracle, "n_states", None) != "auto":
        return model
    model = _most_valuable(log, model, seed)
    trial = model.trial
    if trial is None or _pays(trial, log):
        return model
    if _has_new_states(model, trial.n_learned) or (_was_alike(trial, log) and not _are_alike(model.policies, log)):
        warn(
            f"switching could not be tried out: some of the {model.n_states} states occur almost only in the last "
            f"{trial.n_evaluated:,} rounds, from which a trial must not learn."
        )
        return model
    rounds, switching, single = f"the last {trial.n_evaluated:,} rounds", trial.switching[0], trial.single[0]
    warn(
        f"switching among {model.n_states} states does not pay. Learned without {rounds}, it would earn "
        f"{switching:.4g} per round on them, and the best single policy {single:.4g}. Together with simulated "
        f"deployments, the expected gain is {trial.expected_gain:+.2g}. The model is the single policy.",
        Fix(f"Pass n_states={model.n_states} to switch anyway.", f"Pass --states {model.n_states} to switch anyway."),
    )
    alone = SingleState().fit(log)
    labels = alone.predict(log)
    learner, choice = _objective(log, labels, learner, auto=objective == "auto")
    return replace(_model_of(log, alone, labels, learner, choice), trial=trial)


def _has_new_states(model: SwitchingModel, cut: int) -> bool:
    """Whether many rounds from ``cut`` on are in states with few rounds before it: no trial can say what they earn."""
    before = np.bincount(model.labels.states[:cut], minlength=model.n_states)
    new = before[model.labels.states[cut:]] < FEWEST_ROUNDS
    return bool(new.mean() > MOST_NEW)


def _was_alike(trial: Trial, log: BanditLog) -> bool:
    """Whether the states of the trial had the same policy: it says nothing about states whose policies differ."""
    return max(abs(trial.gain[0]), abs(trial.expected_gain)) <= LEAST_GAIN * float(log.arrays.rewards.std())


def _are_alike(policies: PolicySet, log: BanditLog) -> bool:
    """Whether policies take the actions of ``log`` with the same probabilities."""
    first, *others = (logged_action_probs(log, policy) for policy in policies)
    return all(np.allclose(first, each, atol=1e-9) for each in others)


def _most_valuable(log: BanditLog, model: SwitchingModel, seed: int) -> SwitchingModel:
    """``model``, tried out; if it does not earn more than a single policy, models with fewer states are tried too.

    Those are the numbers of states that also predicted held-out rewards better than all smaller ones.
    """
    best, oracle = replace(model, trial=try_out(log, model, seed)), model.oracle
    if best.trial is None or _pays(best.trial, log) or not isinstance(oracle, HMMOracle):
        return best
    for count in oracle.report_.state_counts:
        if count.better and 1 < count.n_states < model.n_states:
            fewer = oracle.clone().set_params(n_states=count.n_states).fit(log)
            other = _model_of(log, fewer, fewer.predict(log), model.learner, model.choice, seed)
            trial = try_out(log, other, seed)
            if trial is not None and trial.expected_gain > best.trial.expected_gain:
                best = replace(other, trial=trial)
    return best


def _pays(trial: Trial, log: BanditLog) -> bool:
    """Whether switching is expected to earn more than a single policy."""
    return trial.expected_gain > LEAST_GAIN * float(log.arrays.rewards.std())


def _objective(
    log: BanditLog, labels: StateLabels, learner: PolicyLearner, *, auto: bool
) -> tuple[PolicyLearner, Choice | None]:
    """The learner to use and, if ``auto``, how its objective was chosen."""
    if not auto:
        return learner, None
    if len(log) < FEWEST_ROUNDS:
        rounds = f"the log has only {len(log)} rounds, too few to compare objectives"
        warn(f'{rounds}: "dm" is used. With fewer than {FEWEST_ROUNDS} rounds, policies mostly fit noise.')
        return DMLearner(), None
    return choose_objective(log, np.ascontiguousarray(labels.weights(soft=False).T))


def _model_of(
    log: BanditLog,
    oracle: StateOracle,
    labels: StateLabels,
    learner: PolicyLearner,
    choice: Choice | None,
    seed: int = 0,
) -> SwitchingModel:
    """The model with these states: their policies, the single policy, learned the same way, and the world."""
    policies = learn_per_state(log, labels, learner, reward_models=reward_models_of(oracle))
    single, hmm = policies[0], hmm_of(oracle)
    if hmm is not None and labels.n_chains == 1:
        # The model's stays include segments that are too short to be found.
        n_changes = max(float(labels.counts @ (1 / hmm.expected_stays)), 1.0)
        policies = replace(policies, expected_stay=len(log) / n_changes)
    if labels.n_states > 1:
        with warnings.catch_warnings():
            # Learning the policies of the states has given these warnings.
            warnings.simplefilter("ignore", SeachangeWarning)
            alone = copy(learner) if choice is None else choose_objective(log, np.ones((len(log), 1)))[0]
            single = alone.fit(log).policy_
    world = hmm or _fitted_world(log, labels, seed)
    evidence = RewardEvidence.of(world, log)
    evidence = replace(evidence, complete=not new_regimes(world, evidence, log))
    return SwitchingModel(
        policies=policies, oracle=oracle, labels=labels, learner=learner, provenance=Provenance.of(log),
        single=single, world=world, evidence=evidence, choice=choice, features=log.features,
    )  # fmt: skip


def _fitted_world(log: BanditLog, labels: StateLabels, seed: int) -> SwitchingRegression:
    """A switching regression with the states that an oracle without one has found, refined by EM."""
    settings = HMMOracle(n_states=labels.n_states, seed=seed)
    rewards = state_rewards(log, "auto")
    if rewards == "hurdle":
        clicks = Fitter.of(bought(log), "bernoulli", settings).fit_from(labels.states, labels.n_states).model
        return SwitchingRegression.of_purchases(clicks, log)
    return Fitter.of(log, rewards, settings).fit_from(labels.states, labels.n_states).model


def try_out(log: BanditLog, model: SwitchingModel, seed: int = 0) -> Trial | None:
    """A similar model, learned from the first rounds of ``log`` and evaluated on the rest; None if the log is unfit."""
    cut = round(TRAINING_SHARE * len(log))
    try:
        with stage("Trying out the policies"), warnings.catch_warnings():
            warnings.simplefilter("ignore", SeachangeWarning)
            similar = relearn(log, model, cut, seed)
            found = evaluate_deployment(log[cut:], similar, unseen=True, seed=seed)
    except SeachangeError:
        return None
    frozen = found.frozen or found
    parts = (frozen, found.single, found.logging, frozen.gain)
    switching, single, logging, gain = ((each.value, each.low, each.high) for each in parts)
    if similar.n_states < min(model.n_states, 2) or not np.isfinite((switching, single, logging, gain)).all():
        return None
    learning = [(each.value, each.low, each.high) for each in (found, found.learning_single) if each is not None]
    sizes = model.n_states, cut, len(log) - cut, found.confidence
    trial = Trial(*sizes, switching, single, logging, gain, frozen.expected_gain)
    return trial if found.frozen is None else replace(trial, learning=learning[0], learning_single=learning[1])


def relearn(log: BanditLog, model: SwitchingModel, cut: int, seed: int = 0) -> SwitchingModel:
    """A model learned in the same way as ``model``, from the rounds of ``log`` before ``cut``.

    The number of states of an HMM is that of ``model``; all else is chosen again.
    """
    training, oracle = log[:cut], model.oracle
    if isinstance(oracle, KnownStates):
        same = model.labels.n_rounds == len(log)
        require(same, f"the model knows the states of {model.labels.n_rounds:,} rounds; the log has {len(log):,}.")
        fresh: Any = KnownStates(model.labels.states[:cut])
    else:
        fresh = oracle.clone()  # type: ignore[attr-defined]
    if isinstance(oracle, HMMOracle):  # the same numbering of states
        fresh.set_params(n_states=model.n_states, align_to=oracle, **_usual_effort(oracle))
    with warnings.catch_warnings():
        # The model itself has given warnings of no change, and only its state numbers are reused.
        for category in (NoChangeWarning, UnmatchedStatesWarning):
            warnings.simplefilter("ignore", category)
        labels = fresh.fit(training).predict(training)
    auto = model.choice is not None and len(training) >= FEWEST_ROUNDS
    return _model_of(training, fresh, labels, *_objective(training, labels, model.learner, auto=auto), seed)


def _usual_effort(oracle: HMMOracle) -> dict[str, int]:
    """No more restarts and iterations than by default: a model file from a stranger may ask for any number."""
    usual = HMMOracle()
    return {name: min(getattr(oracle, name), getattr(usual, name)) for name in ("restarts", "max_iterations")}


def reward_models_of(oracle: StateOracle) -> list[RewardModel] | None:
    """The HMM's reward model of each state; None if the oracle has no HMM, or one of purchases but not of amounts."""
    if (model := hmm_of(oracle)) is None or model.rewards == "hurdle":
        return None
    kind: RewardKind = "bernoulli" if model.rewards == "bernoulli" else "gaussian"
    return [RewardModel(coefs, kind) for coefs in model.reward_coefs]


def oracle_named(name: str, **settings: Any) -> StateOracle:
    """The registered oracle ``name``, with those of the settings that it has."""
    cls = ORACLES.by_name(name, "or an oracle object")
    oracle: StateOracle = cls(**{field.name: settings[field.name] for field in fields(cls) if field.name in settings})
    return oracle
