"""Adaptive sampling: every state of the log goes on learning, and an open state learns what no state explains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from seachange.deploy.alerts import Alert, alerts_of, monitors_of
from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.deploy.decision import Decision, DeploymentState
from seachange.deploy.pending_rewards import PendingRewards
from seachange.deploy.posterior import PosteriorSampling, require_clicks
from seachange.errors import ParameterError, warn
from seachange.kernels.adaptive_learning import (
    Learners,
    Rules,
    buffers_of,
    choose,
    follow_adaptive,
    learn,
    predict,
    predictive_evidence,
    renew,
    run_adaptive,
)
from seachange.kernels.belief_updates import weigh
from seachange.kernels.monitors import ROUNDS, watch
from seachange.log.bandit_log import BanditLog
from seachange.log.validation import LARGEST
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Bools, Floats, Ints, Policy
from seachange.registry import DEPLOYERS
from seachange.states.new_states import with_state
from seachange.states.reward_evidence import RewardEvidence, without_rounding
from seachange.states.switching_regression import SwitchingRegression, hmm_of

if TYPE_CHECKING:
    from seachange.model import SwitchingModel

Mode = Literal["frozen", "learning", "drifting", "open"]
MODES: tuple[Mode, ...] = ("frozen", "learning", "drifting", "open")
# With more numbers than this in their covariances, learners keep only the variances.
MOST_NUMBERS = 1 << 20
# Prior precision of the coefficients of a state, in units of features, beside the rounds of the log.
STATE_PRECISION = 1.0


@DEPLOYERS.register("adaptive")
@dataclass(frozen=True, eq=False, repr=False)
class AdaptiveSampling(BeliefDeployer):
    """Posterior sampling over states that go on learning, and an open state for what none of them explains.

    Every state has three modes, and one filter weighs all modes of all states by the likelihood that each gave to a
    reward before learning from it:

    frozen    the reward model and the policy of the log
    learning  starts at the posterior of the log, and learns from every reward, weighted by the probability of its state
    drifting  the same, but old rewards count less and less
    open      of no state: starts from scratch whenever it is entered, forgets, and samples actions (Thompson sampling)

    Learning and drifting modes take the action with the highest mean reward. A late reward counts at its own round in
    the belief; learners take it when it comes.
    """

    policies: PolicySet
    hmm: SwitchingRegression
    evidence: RewardEvidence  # what the log says about the coefficients of ``hmm``
    modes: Sequence[Mode] = MODES
    forgetting: float = 0.998  # λ of the drifting mode and the open state, per reward: lower forgets faster
    mode_change: float = 1e-3  # probability that the mode changes between two rounds
    opening: float = 1e-5  # probability that the open state is entered; higher adapts to new regimes earlier
    closing: float = 1e-3  # probability that it is left
    open_precision: float = 5.0  # of its first guess, the mean reward of the log, in rounds
    boldness: float = 0.5  # of its Thompson sampling: 1 samples from the posterior, less explores less
    false_alarms: float = 1e-6  # of each kind, per round: lower notices changes later
    exploration: float = 0.0  # γ: share of random choices
    memory: int = 100_000  # rounds within which a late reward still counts
    preference: ClassVar[int] = 3
    learns: ClassVar[bool] = True
    kernels: ClassVar[tuple[Any, Any]] = (run_adaptive, follow_adaptive)

    @classmethod
    def suits(cls, model: "SwitchingModel") -> bool:
        """Models whose states an HMM found, unless rewards are purchases."""
        return model.n_states > 1 and (hmm := hmm_of(model.oracle)) is not None and hmm.rewards != "hurdle"

    @classmethod
    def from_model(cls, model: "SwitchingModel", *, exploration: float, memory: int) -> Self:
        """The deployer that goes on from what the model learned."""
        if model.world is None or model.evidence is None:
            raise ParameterError('kind="adaptive" needs a model with reward models; learn it again.')
        return cls(model.policies, model.world, model.evidence, exploration=exploration, memory=memory)

    def without_states(self, policy: Policy) -> Self:
        """The same deployment of one policy, with a reward model of the whole log."""
        alone, evidence = self.evidence.pooled(self.hmm)
        return replace(self, policies=PolicySet((policy,)), hmm=alone, evidence=evidence)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = len(self.modes) > 0 and set(self.modes) <= set(MODES)
        require(known, f"modes must be some of {', '.join(MODES)}; got {self.modes!r}.")
        object.__setattr__(self, "modes", tuple(each for each in MODES if each in self.modes))
        require(0 < self.forgetting <= 1, f"forgetting must be in (0, 1]; got {self.forgetting}.")
        for name in ("mode_change", "opening", "closing"):
            value = getattr(self, name)
            require(0 <= value <= 1, f"{name} is a probability, in [0, 1]; got {value}.")
        require(0 < self.false_alarms < 1, f"false_alarms must be in (0, 1); got {self.false_alarms}.")
        for name in ("open_precision", "boldness"):
            value = getattr(self, name)
            require(0 < value < np.inf, f"{name} must be positive and finite; got {value}.")
        count, n_states = len(self.policies), self.hmm.n_states
        purchases = "amounts of purchases are not learned: adaptive sampling is for Gaussian rewards and clicks"
        require(self.hmm.rewards != "hurdle", f"{purchases}. Use posterior sampling.")
        require(count == n_states, f"the HMM has {n_states} states, but there are {count} policies.")
        shape = (n_states, *self.hmm.joint.shape)
        rule = f"evidence must be of the same log as hmm, with coefficients of shape {shape}"
        require(self.evidence.grams.shape == (*shape, shape[-1]), f"{rule}; got {self.evidence.grams.shape[:-1]}.")
        if not self._full and any(mode != "frozen" for mode in self.modes):
            warn(
                f"{self._n_learners} reward models of {shape[1] * shape[2]:,} coefficients have more than "
                f"{MOST_NUMBERS:,} covariances: only variances are kept, so learning is less precise."
            )

    # Hypotheses

    @cached_property
    def hypotheses(self) -> tuple[tuple[int | None, Mode], ...]:
        """The state and mode of each hypothesis; the open state has no number and comes last."""
        states = range(self.hmm.n_states)
        found: list[tuple[int | None, Mode]] = [(z, mode) for mode in self._state_modes for z in states]
        return (*found, (None, "open")) if "open" in self.modes else tuple(found)

    @cached_property
    def _state_modes(self) -> tuple[Mode, ...]:
        return tuple(mode for mode in self.modes if mode != "open")

    @cached_property
    def _owners(self) -> Ints:
        """(H,) the state of each hypothesis, L for the open state."""
        return np.array([self.hmm.n_states if z is None else z for z, _ in self.hypotheses], dtype=np.int64)

    @cached_property
    def _n_learners(self) -> int:
        return sum(mode != "frozen" for _, mode in self.hypotheses)

    @cached_property
    def _full(self) -> bool:
        n_blocks, n_features = self.hmm.joint.shape
        return self._n_learners * n_blocks * n_features**2 <= MOST_NUMBERS

    @cached_property
    def initial_belief(self) -> Floats:
        """P_0, in equal parts for all modes, and the open state as if entered in the first round."""
        n_modes = max(len(self._state_modes), 1)
        known = np.tile(self.hmm.initial_probs / n_modes, len(self._state_modes))
        if "open" not in self.modes:
            return np.asarray(known / known.sum())
        return np.append(known * (1 - self.opening), self.opening if len(known) else 1.0)

    @cached_property
    def transition(self) -> Floats:
        """(H, H): Φ between states, changes of mode, and moves to and from the open state."""
        n_modes = len(self._state_modes)
        modes = np.full((n_modes, n_modes), self.mode_change / max(n_modes - 1, 1))
        np.fill_diagonal(modes, 1 - self.mode_change if n_modes > 1 else 1.0)
        known = np.kron(modes, self.hmm.transition_matrix)
        if "open" not in self.modes:
            return np.asarray(known)
        if n_modes == 0:
            return np.ones((1, 1))
        after = np.tile(self.hmm.initial_probs / n_modes, n_modes)
        last = np.append(self.closing * after / after.sum(), 1 - self.closing)
        return np.vstack([np.column_stack([known * (1 - self.opening), np.full(len(known), self.opening)]), last])

    # Learning

    @cached_property
    def rules(self) -> Rules:
        """The constants of learning, as the kernels take them."""
        hmm, evidence, learners = self.hmm, self.evidence, [mode for _, mode in self.hypotheses if mode != "frozen"]
        (n_blocks, n_features), modes = hmm.joint.shape, self._state_modes
        n_learned = sum(mode != "frozen" for mode in self._state_modes)
        precisions = evidence.grams + STATE_PRECISION * np.eye(n_features)
        coefs = [np.tile(evidence.units.coefs(hmm.reward_coefs), (n_learned, 1, 1))]
        inverses = np.linalg.inv(precisions)
        covariances = [np.tile((inverses + np.swapaxes(inverses, -1, -2)) / 2, (n_learned, 1, 1, 1))]
        limits = [np.full((n_learned * hmm.n_states, n_features), 1 / STATE_PRECISION)]
        if "open" in self.modes:
            variance = evidence.relative_variance / self.open_precision
            start = np.zeros((1, n_blocks, n_features))
            start[..., -1] = evidence.base_score
            coefs.append(start)
            covariances.append(np.tile(variance * np.eye(n_features), (1, n_blocks, 1, 1)))
            limits.append(np.full((1, n_features), variance))
        spread = np.concatenate(covariances)
        if not self._full:
            spread = np.diagonal(spread, axis1=-2, axis2=-1)[..., None]
        noise = np.append(hmm.noise_variances, np.mean(hmm.noise_variances)) if not hmm.clicks else np.empty(0)
        return Rules(
            frozen_coefs=hmm.reward_coefs if "frozen" in self.modes else np.empty((0, n_blocks, n_features)),
            owners=self._owners,
            forgetting=np.array([1.0 if mode == "learning" else self.forgetting for mode in learners]),
            limits=np.concatenate(limits),
            start=Learners(np.concatenate(coefs), np.ascontiguousarray(spread), monitors_of(hmm.n_states)),
            variances=noise[self._owners] if not hmm.clicks else noise,
            means=evidence.units.means,
            scales=evidence.units.scales,
            has_open="open" in self.modes,
            enter=self.opening,
            leave=self.closing,
            boldness=self.boldness,
            usual=next((modes.index(mode) * hmm.n_states for mode in ("learning", "frozen") if mode in modes), -1),
            drifting=modes.index("drifting") * hmm.n_states if "drifting" in modes else -1,
            alarm=-math.log(self.false_alarms),
        )

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        n_hypotheses, learned = len(self.hypotheses), sum(each.size for each in self.rules.start)
        return {"state": (n_hypotheses, learned), "decision": (2 * n_hypotheses, self.hmm.joint.shape[1])}

    @property
    def _constants(self) -> tuple[Floats, ...]:
        settings = np.array([self.opening, self.closing, self.boldness, self.false_alarms])
        rules = self.rules
        return (
            settings,
            rules.frozen_coefs,
            rules.forgetting,
            rules.variances,
            rules.means,
            rules.scales,
            *rules.start,
        )

    def learners(self, state: DeploymentState) -> Learners:
        """The reward models of the hypotheses that learn, in the order of ``hypotheses``; a copy."""
        return self._views(state.learned.copy())

    @cached_property
    def _places(self) -> list[tuple[slice, tuple[int, ...]]]:
        """Where the arrays of the learners are in ``DeploymentState.learned``, and their shapes."""
        start = self.rules.start
        ends = np.cumsum([0, *(each.size for each in start)]).tolist()
        return [(slice(*span), each.shape) for *span, each in zip(ends[:-1], ends[1:], start, strict=True)]

    def _views(self, learned: Floats) -> Learners:
        """The learners in ``learned``, without copying it."""
        return Learners(*(learned[place].reshape(shape) for place, shape in self._places))

    def init(self) -> DeploymentState:
        """The state before the first round."""
        return self._resumed((self.initial_belief.copy(), self.rules.start), 0)

    def start_from(self, log: BanditLog) -> DeploymentState:
        """The state at the end of ``log``: the states of the log go on, in all modes, with what the model learned."""
        before = PosteriorSampling(self.policies, self.hmm).start_from(log).belief
        known = np.tile(before / max(len(self._state_modes), 1), len(self._state_modes))
        belief = self.initial_belief.copy()
        belief[: len(known)] = known * (1 - (self.opening if "open" in self.modes else 0.0))
        return replace(self.init(), belief=belief)

    def joined(self, state: DeploymentState, other: DeploymentState) -> DeploymentState:
        """``state`` with what ``other`` has learned: for sequences that have their own beliefs and learn together."""
        self._require_own(state)
        self._require_own(other)
        return replace(state, learned=other.learned)

    def live(self, state: DeploymentState) -> tuple[Any, ...]:
        """The belief and the learners."""
        return state.belief.copy(), self.learners(state)

    def _resumed(self, live: tuple[Any, ...], rounds: int) -> DeploymentState:
        return DeploymentState(live[0], rounds, None, self.fingerprint, _flat(live[1]))

    def _of_states(self, beliefs: Floats) -> Floats:
        """(..., L) or, with an open state, (..., L + 1) probabilities of the states, in all modes."""
        of_states = np.zeros((*beliefs.shape[:-1], self._owners.max() + 1))
        for h, owner in enumerate(self._owners):
            of_states[..., owner] += beliefs[..., h]
        return of_states

    def alerts(self, state: DeploymentState) -> list[Alert]:
        """What has changed since the log, as far as rewards show; an alert stays, with its first round, while it holds.

        If nothing has changed, there are on average at least 1 / ``false_alarms`` rounds between false alerts of a
        kind. Rewards that come late are judged when they come.
        """
        self._require_own(state)
        return alerts_of(self.learners(state).monitors)

    def learned_world(self, state: DeploymentState) -> tuple[SwitchingRegression, RewardEvidence, list[int]]:
        """The world as learned so far, its evidence, and the states that need a new policy.

        Every state is as its learning mode knows it or, if it has drifted, its drifting mode. During a new regime, the
        open state is one more state, the last.
        """
        self._require_own(state)
        damaged, learners = "the state is damaged: restore an earlier one.", self.learners(state)
        require(bool(np.isfinite(state.learned).all()), damaged)
        hmm, grams, rules, units = self.hmm, self.evidence.grams, self.rules, self.evidence.units
        alerts = self.alerts(state)
        changed = [alert.state for alert in alerts if alert.kind == "drift" and alert.state is not None]
        modes = np.full(hmm.n_states, rules.usual if rules.usual >= 0 else rules.drifting)
        modes[changed] = rules.drifting
        places = np.where(modes >= 0, modes + np.arange(hmm.n_states), -1)
        if any(alert.kind == "new regime" for alert in alerts):
            changed, places = [*changed, hmm.n_states], np.append(places, len(self.hypotheses) - 1)
            alone = replace(hmm.reordered(np.zeros(1, dtype=np.int64)), noise_variances=rules.variances[-1:])
            # Its rounds were told from those of other states by these probabilities.
            hmm, grams = with_state(hmm, alone, self.opening, self.closing), np.concatenate([grams, grams[:1]])
        n_frozen = len(rules.frozen_coefs)
        learned = places >= n_frozen
        taken = places[learned] - n_frozen
        covariances = learners.covariances[taken]
        if covariances.shape[-1] == 1:
            covariances = covariances * np.eye(covariances.shape[-2])
        values, vectors = np.linalg.eigh(covariances)
        require(bool((values > 0).all()), damaged)
        coefs, precisions, grams = hmm.reward_coefs.copy(), hmm.reward_precisions.copy(), grams.copy()
        coefs[learned] = units.raw_coefs(learners.coefs[taken])
        precisions[learned] = units.raw_grams(_symmetric(vectors, 1 / values))
        # Forgetting can leave less than the prior in some direction.
        grams[learned] = without_rounding(_symmetric(vectors, np.maximum(1 / values - STATE_PRECISION, 0.0)))
        world = replace(hmm, reward_coefs=coefs, reward_precisions=precisions)
        return world, replace(self.evidence, grams=grams), changed

    def mode_probs(self, state: DeploymentState) -> dict[Mode, float]:
        """The probability of each mode, in all states."""
        modes = np.array([mode for _, mode in self.hypotheses])
        return {mode: float(state.belief[modes == mode].sum()) for mode in self.modes}

    def _decided(
        self, state: DeploymentState, contexts: Floats, advice: Floats, allowed: Bools, uniform: float
    ) -> Decision:
        rows, rules, learners = self.hmm.joint.rows(contexts)[0], self.rules, self._views(state.learned)
        require(bool((np.abs(rows) <= LARGEST).all()), "context must be finite.")
        buffers, probs = buffers_of(rules, len(allowed)), np.empty(len(allowed))
        given = state.belief, advice, allowed, self.exploration, uniform, rows
        action = int(choose(*given, learners, rules, buffers, probs))
        predict(rows, action, learners, rules, buffers, buffers.predicted)
        features = buffers.row[action if len(rows) > 1 else 0].copy()
        predicted = buffers.predicted.ravel()
        return Decision(action, float(probs[action]), probs, state.rounds, predicted, self.fingerprint, features)

    def _evidence(self, decision: Decision, reward: float) -> Floats:
        require_clicks(self.hmm, np.array([reward]))
        evidence = np.empty(len(self.hypotheses))
        predicted, n_frozen = decision.by_state.reshape(2, -1), len(self.rules.frozen_coefs)
        predictive_evidence(predicted, reward, n_frozen, self.rules, evidence)
        return evidence

    def _learned(
        self,
        state: DeploymentState,
        decision: Decision,
        reward: float | None,
        evidence: Floats,
        late: PendingRewards | None = None,
    ) -> Floats:
        learned, before, weights = state.learned.copy(), state.belief, state.belief
        learners = self._views(learned)
        if late is not None:
            before, weights = (each(decision.round, self.transition) for each in (late.before, late.smoothed))
            learners.monitors[ROUNDS] -= 1  # its round has been counted
        elif reward is None:
            learners.monitors[ROUNDS] += 1
        else:
            weights = np.empty_like(before)
            weigh(before, evidence, weights)
        if reward is not None:
            paid, predicted = float(reward), decision.by_state.reshape(2, -1)
            watch(before, weights, predicted, evidence, paid, learners, self.rules)
            block, scratch = decision.action if learners.coefs.shape[1] > 1 else 0, np.empty(len(decision.features))
            learn(weights, decision.features, block, paid, learners, self.rules, scratch)
        if late is None:
            renew(weights, learners, self.rules)
        return learned

    def _settings(self, contexts: Floats, rewards: Floats, n_actions: int) -> tuple[Any, ...]:
        require_clicks(self.hmm, rewards)
        return self.hmm.joint.rows(contexts), self.rules, buffers_of(self.rules, n_actions)


def _symmetric(vectors: Floats, values: Floats) -> Floats:
    """The matrices (..., D, D) with these eigenvectors and eigenvalues (..., D)."""
    return np.asarray((vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def _flat(learners: Learners) -> Floats:
    return np.concatenate([each.ravel() for each in learners])
