"""SwitchingModel: the result of ``learn``; saved to and loaded from a file."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.deploy import AdaptiveSampling, BeliefDeployer, Decision, DeploymentState
from seachange.deploy.belief_deployer import MEMORY
from seachange.errors import ParameterError, SeachangeWarning, did_you_mean, require, warn
from seachange.formats.column_roles import Columns
from seachange.log.bandit_log import BanditLog, encoding_difference
from seachange.log.features import FeatureSpec, plain_features
from seachange.log.validation import OnBadRows
from seachange.model_file import Provenance, Trial, read_model, write_model
from seachange.policies.learners import greedy_policy
from seachange.policies.objective_choice import Choice
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Policy, PolicyLearner, StateOracle
from seachange.reading import read_log
from seachange.registry import DEPLOYERS
from seachange.states.hmm import HMMOracle
from seachange.states.labels import StateLabels, labels_from_states
from seachange.states.new_states import NewRegime, new_regimes
from seachange.states.reward_evidence import RewardEvidence
from seachange.states.switching_regression import SwitchingRegression

# Allowed actions: their names, a mapping of every name to True or False, or one flag per action.
ActionMask = Collection[str] | Mapping[str, bool] | npt.ArrayLike


@dataclass(frozen=True, eq=False, repr=False)
class SwitchingModel:
    """One policy per state, and the oracle that distinguishes the states.

    >>> import numpy as np
    >>> import seachange as sc
    >>> rng = np.random.default_rng(0)
    >>> actions, best = rng.integers(2, size=400), np.arange(400) // 200
    >>> log = sc.BanditLog.from_arrays(
    ...     actions, (actions == best) + rng.normal(0, 0.1, 400), np.full(400, 0.5), action_names=["boots", "coats"]
    ... )
    >>> model = sc.learn(log, n_states=2, objective="dr")

    The online loop: decide, show the action, and pass the reward on. A reward may come later.

    >>> deployer = model.deployer(exploration=0.1)
    >>> state = deployer.init()
    >>> decision = model.decide(deployer, state, {}, uniform=0.3)
    >>> state = deployer.update(state, decision, None)
    >>> state = deployer.amend(state, decision, reward=1.0)

    States and decisions are small records that can be stored between rounds and continue to the bit.

    >>> restored = sc.DeploymentState.from_bytes(state.to_bytes())
    >>> bool((deployer.state_probs(restored) == deployer.state_probs(state)).all())
    True
    >>> model.action_name(model.decide(deployer, restored, {}, 0.3, action_mask=["coats"]))
    'coats'
    """

    policies: PolicySet
    oracle: StateOracle
    labels: StateLabels
    learner: PolicyLearner
    provenance: Provenance
    single: Policy  # the best policy without states, learned from the same rounds
    world: SwitchingRegression | None = None  # how states follow each other and reward actions
    evidence: RewardEvidence | None = None  # how much the log says about the rewards of ``world``
    choice: Choice | None = None  # how the objective was chosen, if it was
    trial: Trial | None = None  # switching against the single policy on held-out rounds, if both were tried
    features: FeatureSpec | None = None  # how raw columns become features; None if the log was made from arrays

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.policies)

    def read_log(
        self,
        path: str | Path,
        columns: Columns | None = None,
        *,
        format: str | None = None,
        missing_rewards: bool = False,
        on_bad_rows: OnBadRows = "raise",
    ) -> BanditLog:
        """Read a log with the columns, features and actions of the model's own log.

        ``columns`` needs to name only the columns whose names have changed.
        """
        settings: dict[str, Any] = {"missing_rewards": missing_rewards, "on_bad_rows": on_bad_rows}
        return read_log(path, columns, features=self.encoding, format=format, **settings)

    @cached_property
    def encoding(self) -> FeatureSpec:
        """How raw columns become features. A model learned from arrays takes numbers as they are."""
        if self.features is not None:
            return self.features
        if self.provenance.joint.kind == "per action":
            raise ParameterError(
                "this model was learned from arrays with features per action, so it cannot encode raw columns. Pass "
                "arrays to BanditLog.from_arrays and deployer.act."
            )
        return plain_features(self.provenance.context_names, self.provenance.action_names)

    def decide(
        self,
        deployer: BeliefDeployer,
        state: DeploymentState,
        record: Mapping[str, Any],
        uniform: float,
        action_mask: ActionMask | None = None,
    ) -> Decision:
        """Decide a round from a raw record with the columns of the log (see ``FeatureSpec.encode_record``).

        ``action_mask`` restricts the choice: a collection of allowed action names, a mapping of every name to True or
        False, or an array with one flag per action. It is combined with the actions that the record itself lists.
        """
        kinds: tuple[Any, ...] = (BeliefDeployer, DeploymentState, Mapping, int | float | np.number)
        given = (deployer, state, record, uniform)
        if not all(map(isinstance, given, kinds)):
            found = ", ".join(type(each).__name__ for each in given)
            raise ParameterError(
                "decide(deployer, state, record, uniform) takes a deployer of the model, the state that its init() or "
                f"update() returned, a mapping of columns to values and a number in [0, 1); got {found}."
            )
        context, listed = self.encoding.encode_record(record)
        if action_mask is not None:
            allowed = self._mask(action_mask)
            listed = allowed if listed is None else allowed & np.asarray(listed, dtype=bool)
        return deployer.act(state, context, uniform, listed)

    def _mask(self, given: ActionMask) -> Bools:
        """(K,) whether each action is allowed."""
        names = self.provenance.action_names
        listed = isinstance(given, Collection) and not isinstance(given, str) and all(isinstance(n, str) for n in given)
        if not isinstance(given, Mapping) and not listed:
            flags = np.asarray(given)
            if flags.dtype != bool or flags.shape != (len(names),):
                raise ParameterError(
                    "action_mask must be a collection of action names, a mapping of names to True or False, or one "
                    f"True or False for each of the {len(names)} actions; got {given!r}."
                )
            return flags
        allowed = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given, True)  # type: ignore[arg-type]
        known = set(names)
        if unknown := [each for each in allowed if each not in known]:
            hint = did_you_mean(str(unknown[0]), names)
            raise ParameterError(f"action_mask names {unknown[0]!r}, which is not an action of the model.{hint}")
        if isinstance(given, Mapping) and (missing := [each for each in names if each not in given]):
            raise ParameterError(f"action_mask must map every action to True or False; {missing[0]!r} is missing.")
        return np.array([bool(allowed.get(name, False)) for name in names])

    def action_name(self, decision: Decision) -> str:
        """The name of the chosen action; its place, if every round has its own list of actions."""
        wrong = f"action_name needs a decision, as act() and decide() return; got a {type(decision).__name__}."
        require(isinstance(decision, Decision), wrong)
        names, action = self.provenance.action_names, decision.action
        require(0 <= action < len(names), f"the decision is for action {action}; the model has {len(names)} actions.")
        return names[action]

    def require_own_features(self, log: BanditLog) -> None:
        """Raise if ``log`` was not encoded with the features of the model."""
        if problem := encoding_difference(log, self.provenance, self.features, "the model"):
            raise ParameterError(
                f"the log {problem}. Read the file with model.read_log, or pass features=model.features to read_log or "
                "BanditLog.from_frame."
            )

    def deployer(self, kind: str = "auto", *, exploration: float = 0.0, memory: int = MEMORY) -> BeliefDeployer:
        """A deployer of the policies: "adaptive", "posterior", "exp4s", or "single", which plays ``single``.

        "frozen" learns nothing after the log: posterior sampling if an HMM found the states, a single policy if there
        is one state, else Exp4.S. "auto" is adaptive sampling if an HMM found several states, else "frozen"; of
        purchases, amounts are not learned, so it is "frozen" for them, too.
        ``exploration`` is γ, the share of random choices: each of k allowed actions has a probability of at least
        γ / k. Without exploration, the next log can hardly be learned from; it costs γ of the gain from choosing well.
        ``memory`` is the number of rounds within which a late reward still counts at its own round. The deployment
        keeps the rounds since the oldest missing reward, but no more than ``memory``.
        """
        suitable: list[type[BeliefDeployer]] = [each for each in DEPLOYERS if each.suits(self)]
        if kind == "frozen":
            suitable = [each for each in suitable if not each.learns]
        elif kind != "auto":
            suitable = [DEPLOYERS.by_name(kind, "frozen, or auto")]
        chosen = max(suitable, key=lambda each: each.preference)
        return chosen.from_model(self, exploration=exploration, memory=memory)

    def absorb(self, deployer: BeliefDeployer, state: DeploymentState) -> "SwitchingModel":
        """A model that keeps what an adaptive deployment of this one has learned by ``state``.

        Every state has the reward model that the deployment learned, and goes on learning from there. States that have
        drifted (``deployer.alerts``) get the greedy policy of their new reward model; the others keep their policy. A
        new regime that has not ended becomes one more state, of which the log has no rounds. Rewards still to come are
        lost: amend ``state`` with them first. Settings of the deployer are not part of a model.
        """
        if not isinstance(deployer, AdaptiveSampling):
            raise ParameterError(
                f'absorb takes an adaptive deployer, as model.deployer("adaptive") makes; {type(deployer).__name__} '
                "learns nothing that a model could keep."
            )
        if self.world is None or self.evidence is None:
            raise ParameterError("absorb needs a model with reward models; learn it again.")
        purchases = "a model of purchases cannot absorb a deployment: amounts of purchases are not learned."
        require(self.world.rewards != "hurdle", purchases)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SeachangeWarning)  # the deployer has given its own
            own = replace(deployer, policies=self.policies, hmm=self.world, evidence=self.evidence)
        wrong = "the deployer is of another model. Absorb it into the model that made it."
        require(own.fingerprint == deployer.fingerprint, wrong)
        world, evidence, changed = deployer.learned_world(state)
        policies = [
            greedy_policy(world.reward_coefs[z], evidence.units, world.joint) if z in changed else self.policies[z]
            for z in range(world.n_states)
        ]
        labels, oracle = self.labels, self.oracle if isinstance(self.oracle, HMMOracle) else HMMOracle(n_states=1)
        if labels.n_states < world.n_states:
            others = {"n_chains": labels.n_chains, "from_rewards": labels.from_rewards}
            labels = StateLabels.from_segments(labels.segments, world.n_states, labels.change_points, **others)
        return replace(
            self, policies=PolicySet(tuple(policies), self.policies.expected_stay), oracle=oracle.absorbing(world),
            labels=labels, single=self.single if len(policies) > 1 else policies[0], world=world, evidence=evidence,
            trial=None if changed else self.trial,
        )  # fmt: skip

    def label_ahead(self, log: BanditLog) -> StateLabels:
        """Label ``log`` by what was known before each reward: the most likely state, and the belief over states.

        An estimate of value is biased if it weights rewards by states that were inferred from them.
        """
        self.require_own_features(log)
        n_sequences = 1 if log.sequences is None else len(np.unique(log.sequences))
        if self.n_states > 1 and self.labels.n_chains == 1 and n_sequences > 1:
            warn(
                f"the model was learned from one sequence of rounds; this log has {n_sequences:,}, and states start "
                "anew in each. If the world changes for all users at once, leave sequences out."
            )
        if self.world is None or self.n_states == 1:
            return labels_from_states(np.zeros(len(log), dtype=np.int64), 1, log)
        probs = self.world.forecast(log)
        return labels_from_states(np.argmax(probs, axis=1), self.n_states, log, probs)

    def new_regimes(self, log: BanditLog) -> tuple[NewRegime, ...]:
        """Stretches of a later ``log`` that no state of the model explains, oldest first.

        Rounds that the model was learned from are left out. None are found in a log of several sequences, nor if the
        states leave part of their own log unexplained, as too few states do: it may not be new.
        """
        self.require_own_features(log)
        seen = self.provenance.rounds_seen(log)
        if self.world is None or self.evidence is None or not self.evidence.complete or seen == len(log):
            return ()
        if self.trial is not None and self.trial.n_states > self.n_states:  # states were left out: they do not pay
            return ()
        return new_regimes(self.world, self.evidence, log, seen)

    def __repr__(self) -> str:
        """Sizes at a glance."""
        oracle, log = type(self.oracle).__name__, self.provenance
        sizes = f"{len(log.action_names)} actions, {log.n_rounds:,} rounds"
        return f"SwitchingModel({self.n_states} states by {oracle}, {sizes})"

    def save(self, path: str | Path) -> None:
        """Write the model to one file; ``seachange.load`` reads it. Equal models make equal files."""
        write_model(self, path)


def load(path: str | Path) -> SwitchingModel:
    """Read a model that ``SwitchingModel.save`` wrote; a file from a stranger is safe to load."""
    return SwitchingModel(**read_model(path)[0])
