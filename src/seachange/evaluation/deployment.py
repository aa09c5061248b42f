"""The value of a deployment that switches among policies: estimated from the log, and corrected by simulation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from seachange.deploy.adaptive_sampling import AdaptiveSampling
from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.engine import cores, map_in_order, one_thread, stage
from seachange.evaluation.diagnostics import NoEstimateError, Reason
from seachange.evaluation.estimators import robust_terms
from seachange.evaluation.formulas import Parts
from seachange.evaluation.terms import PolicyLike
from seachange.evaluation.value_estimate import IntervalRequest, ValueEstimate, require_evaluable
from seachange.kernels.forward_backward import sample_path
from seachange.kernels.regression import modeled_rewards
from seachange.log.bandit_log import BanditLog, require_rounds, warn_of_estimates
from seachange.log.clusters import Clusters
from seachange.params import Auto, require
from seachange.protocols import Bools, Floats, Ints
from seachange.states.expectation import Chain, expectation
from seachange.states.labels import StateLabels, in_chains, places_in_chains
from seachange.states.new_states import inverse_roots, with_new_states
from seachange.states.switching_regression import SwitchingRegression, bought

if TYPE_CHECKING:
    from seachange.model import SwitchingModel

FEWEST_BLOCKS = 30  # blocks of time behind an interval, at least
CHUNK_ROUNDS = 1 << 14
# Simulated worlds: at least and at most this many, with about this many rounds in total. Learning takes longer.
DRAWS, SIMULATED_ROUNDS = (16, 64), 6_400_000
LEARNING_DRAWS, LEARNING_ROUNDS = (12, 32), 400_000
LEAST_AMOUNT = 1e-12  # of a simulated purchase: deployments must notice it
SIMULATION_BIAS = 0.5  # share of a simulated gain that the fitted model may get wrong
# Columns of simulated differences: of the deployment to π^Q, and to the single policy; the same two of the frozen
# deployment; and of the learning single policy to the single policy.
OWN, FROZEN, ALONE = 0, 2, 4
OVER_LEARNING = 5  # place of the difference of the first and the last of these


@dataclass(frozen=True)
class Difference:
    """How much more one policy earns per round than another."""

    value: float
    std_error: float
    low: float
    high: float
    confidence: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True, repr=False)
class DeploymentEstimate(ValueEstimate):
    """Mean reward per round of a deployment, beside the best single policy and the logging policy."""

    simulated: float  # the part of ``value`` that was simulated; the rest was estimated from the log
    simulated_error: float  # its standard deviation over simulated worlds
    simulated_gain: float  # the gain over the single policy in the simulated worlds; should resemble ``gain``
    simulated_gain_error: float
    new_states: int  # states that the log adds to those of the model, in simulated worlds; the deployment lacks them
    single: ValueEstimate  # the best single policy, learned from the same rounds as the states
    logging: ValueEstimate  # the logging policy
    gain: Difference  # over the best single policy
    over_logging: Difference  # over the logging policy
    # Only of a deployment that learns: the same policies frozen, and the single policy if it learns in the same way.
    frozen: "DeploymentEstimate | None" = None
    learning_single: ValueEstimate | None = None
    over_learning: Difference | None = None  # the gain over the single policy if it learns, too

    @property
    def expected_gain(self) -> float:
        """The gain over the single policy, by the log and by simulation, each weighted by its precision.

        The log is unbiased but noisy. Simulation is precise, but may be off by ``SIMULATION_BIAS`` of its gain, or by
        as much as it differs from the log beyond noise.
        """
        noise, gap = self.gain.std_error**2, self.gain.value - self.simulated_gain
        bias = self.simulated_gain_error**2 + (SIMULATION_BIAS * self.simulated_gain) ** 2
        if not np.isfinite(noise) or noise + bias == 0:
            return self.simulated_gain
        bias = max(bias, gap**2 - noise)
        return (bias * self.gain.value + noise * self.simulated_gain) / (noise + bias)


@one_thread()
def evaluate_deployment(
    log: BanditLog,
    model: "SwitchingModel",
    kind: str = "auto",
    confidence: float = 0.95,
    *,
    exploration: float = 0.0,
    draws: int | Auto = "auto",
    unseen: bool = False,
    force: bool = False,
    seed: int = 0,
) -> DeploymentEstimate:
    """Estimate what ``model.deployer(kind, exploration=exploration)`` would earn per round on rounds like these.

    V̂ = V̂_DR(π^Q) + mean over draws b of [ V_b(deployment) - V_b(π^Q) ]

    π^Q mixes the policies of the states by Q_t, the belief before round t given the rewards of the log. Its value is
    estimated from the log (doubly robust). A deployment earns something else, because it sees only the rewards of its
    own actions. That difference is simulated: each draw is a world like that of the log, with states drawn given its
    rewards, and reward models drawn from their posterior. In it the deployment runs as it is, and π^Q runs on the
    actions of the log with simulated rewards. A single policy needs no simulation. If the deployment learns, the same
    worlds also show what it would earn without learning, and what the single policy would earn with it.

    Intervals are from bootstraps of blocks of time as long as an expected stay in a state, or shorter if there would be
    fewer than 30 of them (with sequences: from whole sequences), and are widened by the spread over the ``draws``. By
    "auto", there are 64, or at least 16 if the log has more than 100,000 rounds; if the deployment learns, there are
    32, or at least 12 if the log has more than 12,500 rounds.

    Raises ``RefusedError`` if the log cannot support the estimate, or if its rounds, judging by their times and
    contents, are among those that the model was learned from; pass ``unseen`` if they are not. ``force`` returns an
    estimate anyway, with a warning.
    """
    require(draws == "auto" or draws >= 2, f'draws must be at least 2 or "auto"; got {draws!r}.')
    require_rounds(log, "evaluating a deployment")
    wrong = f"evaluate_deployment needs a model, as learn() and load() return; got a {type(model).__name__}."
    require(hasattr(model, "provenance"), wrong)
    overlap = None if unseen or force else model.provenance.overlap(log)
    if overlap is not None:
        problem = f"A model cannot be evaluated on rounds that it was learned from: {overlap}."
        fixes = ("use a later log", "pass unseen=True if these are other rounds")
        raise NoEstimateError((Reason("holdout", problem, fixes),))
    require_evaluable(log, confidence, "evaluating a deployment")
    model.require_own_features(log)
    if not unseen:  # commands that have prepared their rounds give this warning with their other estimates
        warn_of_estimates(log, "evaluating a deployment")
    deployer = model.deployer(kind, exploration=exploration)
    log, _, starts = in_chains(log)
    world, new_states, labels, blocks, simulated = model.world, 0, None, Clusters(log), np.zeros((1, 5))
    others = _others(deployer, model)
    if world is not None and (model.n_states > 1 or deployer.learns):
        labels = model.label_ahead(log) if model.n_states > 1 else None
        chain = Chain(bought(log) if world.rewards == "hurdle" else log)
        world, found = with_new_states(world, expectation(world, chain), chain)
        new_states = world.n_states - model.n_states
        stay = len(log) / (float(found.transitions.sum() - np.trace(found.transitions)) + len(chain.firsts))
        blocks = _blocks(log, starts, stay)
        if len(deployer.policies) > 1 or deployer.learns:
            limits, rounds = (LEARNING_DRAWS, LEARNING_ROUNDS) if deployer.learns else (DRAWS, SIMULATED_ROUNDS)
            n_draws = int(np.clip(rounds / len(log), *limits)) if draws == "auto" else draws
            simulated = _simulated(log, world, chain, (deployer, *others), model, n_draws, seed)
    simulated = np.column_stack([simulated, simulated[:, OWN] - simulated[:, ALONE]])
    request = IntervalRequest("bootstrap", confidence, blocks, (0.0, 1.0), seed)
    rewards = log.arrays.rewards
    values, weights, margin = _terms(log, deployer, labels, force)
    singles, single_weights, single_margin = _terms(log, model.deployer("single"), labels, force)
    differences = simulated.mean(axis=0).tolist()
    # The spread of one world, and the error of the mean over all of them.
    factor = np.sqrt((len(simulated) + 1) / max(len(simulated) - 1, 1))
    errors = (factor * simulated.std(axis=0)).tolist()

    def estimate(name: str, terms: Floats, weights: Floats, margin: float, part: int | None = None) -> ValueEstimate:
        """The estimate of terms, with a difference that was simulated."""
        error, shift = (0.0, 0.0) if part is None else (errors[part], differences[part])
        found = request.estimate(name, Parts(terms), weights).widened(float(np.hypot(error, margin)))
        return replace(found, value=found.value + shift, low=found.low + shift, high=found.high + shift)

    def over(terms: Floats, margin: float, part: int) -> Difference:
        found = estimate("dr", values - terms, weights, margin, part)
        return Difference(found.value, found.std_error, found.low, found.high, confidence)

    single = estimate("dr", singles, single_weights, single_margin)
    logging = estimate("mean", rewards, np.ones(len(log)), 0.0)

    def deployment(part: int, **others: Any) -> DeploymentEstimate:
        return DeploymentEstimate(
            **vars(estimate("deployment", values, weights, margin, part)),
            simulated=differences[part],
            simulated_error=errors[part],
            simulated_gain=differences[part + 1],
            simulated_gain_error=errors[part + 1],
            new_states=new_states,
            single=single,
            logging=logging,
            gain=over(singles, margin + single_margin, part),
            over_logging=over(rewards, margin, part),
            **others,
        )

    if not others:
        return deployment(OWN)
    learning_single = estimate("deployment", singles, single_weights, single_margin, ALONE)
    over_learning = over(singles, margin + single_margin, OVER_LEARNING)
    return deployment(OWN, frozen=deployment(FROZEN), learning_single=learning_single, over_learning=over_learning)


def _terms(
    log: BanditLog, deployer: BeliefDeployer, labels: StateLabels | None, force: bool
) -> tuple[Floats, Floats, float]:
    """``robust_terms`` of the deployer's policies, mixed by the beliefs of ``labels``."""
    several = len(deployer.policies) > 1
    policy: PolicyLike = deployer.policies if several else deployer.policies[0]
    if deployer.exploration > 0:
        policy = _explored(log, deployer, labels if several else None)
    try:
        return robust_terms(log, policy, labels, force)
    except NoEstimateError as refusal:
        if several or labels is None:
            raise
        # Switching may be supported, but without the single policy there is nothing to compare it with.
        reasons = (replace(each, problem=f"The best single policy: {each.problem}") for each in refusal.reasons)
        raise NoEstimateError(tuple(reasons)) from refusal


def _explored(log: BanditLog, deployer: BeliefDeployer, labels: StateLabels | None) -> Floats:
    """(n, K) the belief-weighted mixture of the deployer's policies, with its exploration."""
    probs = np.empty((len(log), log.n_actions))
    beliefs = np.ones((len(log), 1)) if labels is None else labels.state_probs
    assert beliefs is not None, "labels of a world have probabilities"
    for rounds in log.chunk_slices(CHUNK_ROUNDS):
        part = log[rounds]
        advice = deployer.policies.advice(part.contexts, part.action_mask)
        mixed = np.einsum("tz,tza->ta", beliefs[rounds], advice)
        probs[rounds] = (1 - deployer.exploration) * mixed + deployer.exploration * _uniform(part)
    return probs


def _uniform(log: BanditLog) -> Floats:
    """(n or 1, K) equal probabilities of the allowed actions."""
    return np.asarray(log.arrays.mask / log.arrays.mask.sum(axis=1, keepdims=True))


def _blocks(log: BanditLog, starts: Bools, stay: float) -> Clusters:
    """Blocks of rounds as long as ``stay``; whole sequences, if there are enough of them."""
    firsts = np.flatnonzero(starts)
    if len(firsts) >= FEWEST_BLOCKS:
        return Clusters(log)
    length = max(1, int(min(stay, len(log) / FEWEST_BLOCKS)))
    return Clusters(log, np.cumsum(places_in_chains(firsts, len(log)) % length == 0) - 1)


# Simulated worlds


def _others(deployer: BeliefDeployer, model: "SwitchingModel") -> tuple[BeliefDeployer, ...]:
    """What a deployment that learns is compared with: the same policies frozen, and the single policy learning."""
    if not isinstance(deployer, AdaptiveSampling):
        return ()
    return model.deployer("frozen", exploration=deployer.exploration), deployer.without_states(model.single)


def _simulated(
    log: BanditLog,
    world: SwitchingRegression,
    chain: Chain,
    deployers: Sequence[BeliefDeployer],
    model: "SwitchingModel",
    draws: int,
    seed: int,
) -> Floats:
    """(draws, 5) differences of values in each simulated world: from ``OWN``, ``FROZEN`` and ``ALONE`` on."""
    filtered, roots = world.filter(log), inverse_roots(log.units.grams(world.reward_precisions))
    noise = np.ones(world.n_states) if world.clicks else np.sqrt(world.noise_variances)

    def simulate(draw: int) -> Floats:
        generator, path = np.random.default_rng([seed, 7, draw]), np.empty(len(log), dtype=np.int64)
        sample_path(filtered, chain.next_starts, world.transition_matrix, generator.random(len(log)), path)
        deviations = np.einsum("z,zbij,zbj->zbi", noise, roots, generator.standard_normal(world.reward_coefs.shape))
        drawn = replace(world, reward_coefs=world.reward_coefs + log.units.raw_coefs(deviations))
        return _differences_in(drawn, log, chain, path, deployers, model, generator)

    found = np.empty((draws, 5))
    with stage("Simulating the deployment", draws) as progress:
        for draw, differences in enumerate(map_in_order(simulate, range(draws), workers=cores())):
            found[draw] = differences
            progress.advance()
    if not np.isfinite(found).all():
        problem = "The fitted model of rewards gives no finite values, so the deployment cannot be simulated."
        raise NoEstimateError((Reason("simulation", problem, ("learn the model again",)),), can_force=False)
    return found


def _differences_in(
    world: SwitchingRegression,
    log: BanditLog,
    chain: Chain,
    path: Ints,
    deployers: Sequence[BeliefDeployer],
    model: "SwitchingModel",
    generator: np.random.Generator,
) -> Floats:
    """(5,) differences of values in ``world``, whose states are ``path``; all see the same noise."""
    rewards = np.empty(len(log))
    noise = generator.random(len(log)) if world.clicks else generator.standard_normal(len(log))
    uniforms, parts, deployer = generator.random(len(log)), [], deployers[0]
    states, earned = [each.init() for each in deployers], np.zeros(3)
    alone = mixed = 0.0
    for rounds in log.chunk_slices(CHUNK_ROUNDS):
        part, here, shock = log[rounds], path[rounds], noise[rounds, None]
        means = _mean_rewards(world, part, here)
        if world.clicks:
            sampled = (shock < means).astype(np.float64)
            if world.amounts is not None:
                # Purchases of the mean amount: their spread tells no states apart.
                amounts = np.maximum(modeled_rewards(part.arrays.rows, world.amounts), LEAST_AMOUNT)
                means, sampled = means * amounts, sampled * amounts
        else:
            sampled = means + np.sqrt(world.noise_variances[here, None]) * shock
        rewards[rounds] = sampled[np.arange(len(part)), part.arrays.actions]
        starts = chain.starts[rounds]
        shown = part.contexts, means, sampled, uniforms[rounds], part.action_mask, starts
        for i, each in enumerate(deployers):
            states[i], trace = each.run(states[i], *shown)
            earned[i] += float(trace.expected_rewards.sum())
        alone += float(np.sum(model.single.predict_proba(part.contexts, part.action_mask) * means))
        parts.append((rounds, means))
    assert model.world is not None, "a single policy is not simulated"
    beliefs = model.world.forecast(log.with_rewards(rewards)) if len(deployer.policies) > 1 else np.ones((len(log), 1))
    for rounds, means in parts:
        part = log[rounds]
        advice = deployer.policies.advice(part.contexts, part.action_mask)
        share = np.einsum("tz,tza,ta->", beliefs[rounds], advice, means, optimize=True)
        mixed += (1 - deployer.exploration) * float(share)
        mixed += deployer.exploration * float(np.sum(_uniform(part) * means))
    baselines = np.array([mixed, alone, mixed, alone, alone])
    return np.asarray((earned[[0, 0, 1, 1, 2]] - baselines) / len(log))


def _mean_rewards(world: SwitchingRegression, log: BanditLog, path: Ints) -> Floats:
    """(n, K) the mean reward of every action in the state of each round; of a hurdle, the probability of a reward."""
    scores, rows = np.empty((len(log), log.n_actions)), log.arrays.rows
    for state, coefs in enumerate(world.reward_coefs):
        members = np.flatnonzero(path == state)
        if len(members):
            scores[members] = modeled_rewards(rows if len(rows) == 1 else rows[members], coefs)
    return np.asarray(expit(scores)) if world.clicks else scores
