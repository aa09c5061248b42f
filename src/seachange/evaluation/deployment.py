"""The value of a deployment that switches among policies: estimated from the log, and corrected by simulation."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.engine import one_thread, stage
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
# Simulated worlds: at least and at most this many, with about this many rounds in total.
DRAWS, SIMULATED_ROUNDS = (16, 64), 6_400_000
LEARNING_COST = 8  # how many times as long a round of a deployment that learns takes
LEAST_AMOUNT = 1e-12  # of a simulated purchase: deployments must notice it
SIMULATION_BIAS = 0.5  # share of a simulated gain that the fitted model may get wrong


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
    actions of the log with simulated rewards. A single policy needs no simulation.

    Intervals are from bootstraps of blocks of time as long as an expected stay in a state, or shorter if there would be
    fewer than 30 of them (with sequences: from whole sequences), and are widened by the spread over the ``draws``:
    "auto" is 64, or fewer for logs of more than 100,000 rounds, but at least 16.

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
    world, new_states, labels, blocks, simulated = model.world, 0, None, Clusters(log), np.zeros((1, 2))
    if world is not None and (model.n_states > 1 or deployer.learns):
        labels = model.label_ahead(log) if model.n_states > 1 else None
        chain = Chain(bought(log) if world.rewards == "hurdle" else log)
        world, found = with_new_states(world, expectation(world, chain), chain)
        new_states = world.n_states - model.n_states
        stay = len(log) / (float(found.transitions.sum() - np.trace(found.transitions)) + len(chain.firsts))
        blocks = _blocks(log, starts, stay)
        if len(deployer.policies) > 1 or deployer.learns:
            simulated_rounds = SIMULATED_ROUNDS / (LEARNING_COST if deployer.learns else 1)
            n_draws = int(np.clip(simulated_rounds / len(log), *DRAWS)) if draws == "auto" else draws
            simulated = _simulated(log, world, chain, deployer, model, n_draws, seed)
    request = IntervalRequest("bootstrap", confidence, blocks, (0.0, 1.0), seed)
    rewards = log.arrays.rewards
    values, weights, margin = _terms(log, deployer, labels, force)
    singles, single_weights, single_margin = _terms(log, model.deployer("single"), labels, force)
    difference, simulated_gain = simulated.mean(axis=0).tolist()
    # The spread of one world, and the error of the mean over all of them.
    factor = np.sqrt((len(simulated) + 1) / max(len(simulated) - 1, 1))
    error, gain_error = (factor * simulated.std(axis=0)).tolist()

    def estimate(name: str, terms: Floats, weights: Floats, error: float, shift: float = 0.0) -> ValueEstimate:
        found = request.estimate(name, Parts(terms), weights).widened(error)
        return replace(found, value=found.value + shift, low=found.low + shift, high=found.high + shift)

    def gain(terms: Floats, margin: float) -> Difference:
        found = estimate("dr", terms, weights, float(np.hypot(error, margin)), difference)
        return Difference(found.value, found.std_error, found.low, found.high, confidence)

    return DeploymentEstimate(
        **vars(estimate("deployment", values, weights, float(np.hypot(error, margin)), difference)),
        simulated=difference,
        simulated_error=error,
        simulated_gain=simulated_gain,
        simulated_gain_error=gain_error,
        new_states=new_states,
        single=estimate("dr", singles, single_weights, single_margin),
        logging=estimate("mean", rewards, np.ones(len(log)), 0.0),
        gain=gain(values - singles, margin + single_margin),
        over_logging=gain(values - rewards, margin),
    )


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


def _simulated(
    log: BanditLog,
    world: SwitchingRegression,
    chain: Chain,
    deployer: BeliefDeployer,
    model: "SwitchingModel",
    draws: int,
    seed: int,
) -> Floats:
    """(draws, 2) V_b(deployment) - V_b(π^Q), with Q by the world of ``model``, and V_b(deployment) - V_b(single)."""
    generator, filtered = np.random.default_rng([seed, 7]), world.filter(log)
    roots = inverse_roots(log.units.grams(world.reward_precisions))
    noise = np.ones(world.n_states) if world.clicks else np.sqrt(world.noise_variances)
    found, path = np.empty((draws, 2)), np.empty(len(log), dtype=np.int64)
    with stage("Simulating the deployment", draws) as progress:
        for draw in range(draws):
            sample_path(filtered, chain.next_starts, world.transition_matrix, generator.random(len(log)), path)
            deviations = np.einsum("z,zbij,zbj->zbi", noise, roots, generator.standard_normal(world.reward_coefs.shape))
            drawn = replace(world, reward_coefs=world.reward_coefs + log.units.raw_coefs(deviations))
            found[draw] = _differences_in(drawn, log, chain, path, deployer, model, generator)
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
    deployer: BeliefDeployer,
    model: "SwitchingModel",
    generator: np.random.Generator,
) -> tuple[float, float]:
    """V(deployment) - V(π^Q) and - V(single) in ``world``, whose states are ``path``; all see the same noise."""
    rewards = np.empty(len(log))
    noise = generator.random(len(log)) if world.clicks else generator.standard_normal(len(log))
    uniforms, state, parts = generator.random(len(log)), deployer.init(), []
    earned = alone = mixed = 0.0
    for rounds in log.chunk_slices(CHUNK_ROUNDS):
        part, here, each = log[rounds], path[rounds], noise[rounds, None]
        means = _mean_rewards(world, part, here)
        if world.clicks:
            sampled = (each < means).astype(np.float64)
            if world.amounts is not None:
                # Purchases of the mean amount: their spread tells no states apart.
                amounts = np.maximum(modeled_rewards(part.arrays.rows, world.amounts), LEAST_AMOUNT)
                means, sampled = means * amounts, sampled * amounts
        else:
            sampled = means + np.sqrt(world.noise_variances[here, None]) * each
        rewards[rounds] = sampled[np.arange(len(part)), part.arrays.actions]
        starts = chain.starts[rounds]
        state, trace = deployer.run(state, part.contexts, means, sampled, uniforms[rounds], part.action_mask, starts)
        earned += float(trace.expected_rewards.sum())
        alone += float(np.sum(model.single.predict_proba(part.contexts, part.action_mask) * means))
        parts.append((rounds, means))
    assert model.world is not None, "a single policy is not simulated"
    beliefs = model.world.forecast(log.with_rewards(rewards))
    for rounds, means in parts:
        part = log[rounds]
        advice = deployer.policies.advice(part.contexts, part.action_mask)
        share = np.einsum("tz,tza,ta->", beliefs[rounds], advice, means, optimize=True)
        mixed += (1 - deployer.exploration) * float(share)
        mixed += deployer.exploration * float(np.sum(_uniform(part) * means))
    return (earned - mixed) / len(log), (earned - alone) / len(log)


def _mean_rewards(world: SwitchingRegression, log: BanditLog, path: Ints) -> Floats:
    """(n, K) the mean reward of every action in the state of each round; of a hurdle, the probability of a reward."""
    scores, rows = np.empty((len(log), log.n_actions)), log.arrays.rows
    for state, coefs in enumerate(world.reward_coefs):
        members = np.flatnonzero(path == state)
        if len(members):
            scores[members] = modeled_rewards(rows if len(rows) == 1 else rows[members], coefs)
    return np.asarray(expit(scores)) if world.clicks else scores
