"""Replay and DR-ns against deployments in the same worlds, which miss as many of their rewards."""

import numpy as np
import pytest
from scipy.stats import binom

import seachange as sc
from seachange.policies import SoftmaxPolicy
from seachange.simulate import Shop, Synthetic, rollout


def experts(env, seed):
    """Three policies for a shop with one state: a right one and two wrong ones."""
    generator, joint = np.random.default_rng(seed), env.log(0).joint
    coefs = [2.0 * env.coefs[0] + mistake * generator.normal(0, 1.5, env.coefs[0].shape) for mistake in (0, 1, 1)]
    return sc.PolicySet(tuple(SoftmaxPolicy(each, joint) for each in coefs))


def earned(deployer, state, rounds, share, generator):
    """The state after these rounds, and what they earn, if the deployment sees this share of its rewards."""
    seen, uniforms = generator.random((len(rounds), 1)) < share, generator.random(len(rounds))
    rewards = np.where(seen, rounds.rewards, np.nan)
    state, trace = deployer.run(state, rounds.contexts, rounds.mean_rewards, rewards, uniforms, rounds.action_mask)
    return state, trace.expected_rewards


def earned_with_missing_rewards(env, deployer, share, runs):
    """(runs,) what deployments earn per round if they see this share of their rewards."""
    means = []
    for run in range(runs):
        generator, state, parts = np.random.default_rng([run, 8]), deployer.init(), []
        for each in env.rounds(run, 1 << 14):
            state, part = earned(deployer, state, each, share, generator)
            parts.append(part)
        means.append(np.concatenate(parts).mean())
    return np.array(means)


def stationary(n_logs, seed, horizon=6_000):
    """Values and errors of both methods, (n_logs, 2), and what deployments earn that see as many rewards."""
    env = Shop(seed=seed, n_states=1, horizon=horizon)
    deployer = sc.Exp4S(experts(env, seed), expected_stay=1_000, learning_rate=0.1, exploration=0.05)
    found = {method: [] for method in ("replay", "dr-ns")}
    for log in map(env.log, range(n_logs)):
        for method, estimates in found.items():
            # Of the few logs that say too little, too: leaving them out would be a choice of values.
            estimates.append(sc.evaluate_online(log, deployer, method, seed=seed, force=True))
    truths = {}
    for method, estimates in found.items():
        share = np.mean([each.acceptance_rate for each in estimates])
        truths[method] = earned_with_missing_rewards(env, deployer, share, 300)
    return found, truths


def agrees(n_logs, seed):
    found, truths = stationary(n_logs, seed)
    variances = {}
    for method, estimates in found.items():
        values, errors = (np.array([getattr(each, name) for each in estimates]) for name in ("value", "std_error"))
        truth = truths[method]
        z = (values.mean() - truth.mean()) / np.hypot(values.std() / np.sqrt(n_logs), truth.std() / np.sqrt(len(truth)))
        assert abs(z) < 4.5, (method, z)
        scores = (values - truth.mean()) / errors
        # Errors are honest: no larger than said. They may be smaller, as the variance of beliefs is that of one replay.
        assert np.sqrt(np.mean(scores**2)) < 1 + 4.5 / np.sqrt(2 * n_logs), method
        variances[method] = values.var(ddof=1)
    return variances["dr-ns"] / variances["replay"]


def test_both_agree_with_deployments_and_dr_ns_varies_half_as_much():
    assert agrees(40, seed=1) < 0.5


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:forced:seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_agree_with_deployments_over_200_logs(seed):
    assert agrees(200, seed) < 0.5


def test_in_a_changing_world_replay_is_a_deployment_that_misses_rewards():
    """It notices changes later than a deployment that sees all of its rewards, which earns more."""
    means = np.array([[0.9, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.9]])
    states = (np.arange(24_000) // 400) % 2
    env = Synthetic(n_actions=4, n_states=2, horizon=len(states), states=states, mean_rewards=means, logging_noise=0.0)
    joint = env.log(0).joint
    policies = sc.PolicySet(tuple(SoftmaxPolicy(np.array([[b], [0.0], [0.0], [-b]]), joint) for b in (5.0, -5.0)))
    deployer = sc.Exp4S(policies, expected_stay=100, learning_rate=0.15)
    estimates = [sc.evaluate_online(env.log(run), deployer) for run in range(12)]
    share = np.mean([each.acceptance_rate for each in estimates])
    missing, full = (earned_with_missing_rewards(env, deployer, each, 40) for each in (share, 1.0))
    values = np.array([each.value for each in estimates])
    error = np.hypot(values.std(ddof=1) / np.sqrt(12), missing.std() / np.sqrt(40))
    assert abs(values.mean() - missing.mean()) < 4.5 * error
    assert values.mean() < full.mean() - 10 * error
    for each in estimates:
        assert f"saw the rewards of only {each.acceptance_rate:.1%} of the rounds" in each.notes[0]


@pytest.mark.long
@pytest.mark.parametrize("method", ["replay", "dr-ns"])
def test_a_learned_switching_policy_is_evaluated_like_a_deployment_that_misses_rewards(method):
    """Contexts, an HMM and unequal propensities, compared with deployments through each log's states."""
    env = Shop(seed=0, horizon=12_000)
    deployer = sc.learn(env.log(0)).deployer("posterior")
    gaps, full = [], np.mean([rollout(env, deployer, run).expected_rewards.mean() for run in range(20)])
    for run in range(1, 25):
        estimate = sc.evaluate_online(env.log(run), deployer, method)
        generator = np.random.default_rng([run, 0])
        rounds = env._rounds(env.log_states(run), generator)
        missing = earned(deployer, deployer.init(), rounds, estimate.acceptance_rate, generator)[1].mean()
        gaps.append((estimate.value - missing, full - estimate.value))
    alike, missing = np.mean(gaps, axis=0)
    error = np.std(gaps, axis=0, ddof=1) / np.sqrt(len(gaps))
    assert abs(alike) < 4.5 * error[0]
    assert missing > 4.5 * error[1]


TWO = [[0.8, 0.3, 0.1], [0.05, 0.1, 0.4]]  # mean rewards by state and action
LENGTH, STAY = 6_000, 500
WORLDS = {  # mean rewards, and the states of all logs and deployments; models know the first two states
    "recurring": (TWO, np.arange(LENGTH) // STAY % 2),
    "new regime": ([*TWO, [0.1, 0.7, 0.1]], np.repeat([0, 1, 2, 0], LENGTH // 4)),
    "drift": ([*TWO, *np.linspace(TWO[0], [0.3, 0.3, 0.7], LENGTH)], np.arange(LENGTH) + 2),
}


def synthetic(means, states):
    settings = {"n_states": len(means), "mean_rewards": means, "states": states, "logging_noise": 0.3}
    return Synthetic(n_actions=3, horizon=len(states), **settings)


def require_coverage(world, method, n_logs, n_truths):
    """Fail if a bias or coverage outside 95 ± 2% is significant; print what was found."""
    means, states = WORLDS[world]
    env, known = synthetic(means, states), synthetic(TWO, np.arange(2 * LENGTH) // STAY % 2)
    # Its logs come from seeds of their own.
    deployer = sc.learn(known.log(10**6), n_states=2, objective="dm").deployer("adaptive")
    estimates = [sc.evaluate_online(env.log(run), deployer, method, seed=run) for run in range(1000, 1000 + n_logs)]
    values, errors = (np.array([getattr(each, name) for each in estimates]) for name in ("value", "std_error"))
    truths = earned_with_missing_rewards(env, deployer, np.mean([each.acceptance_rate for each in estimates]), n_truths)
    truth = truths.mean()
    z = (values.mean() - truth) / np.hypot(values.std(ddof=1) / n_logs**0.5, truths.std(ddof=1) / n_truths**0.5)
    covered = sum(each.low <= truth <= each.high for each in estimates)
    size = np.sqrt(np.mean(((values - truth) / errors) ** 2))
    found = f"z = {z:.2f}, {covered} of {n_logs} covered, errors {size:.2f} times as large as said"
    print(f"{world}, {method}: {found}")  # noqa: T201
    assert abs(z) < 4.5
    assert binom.cdf(covered, n_logs, 0.93) > 0.01
    assert binom.sf(covered - 1, n_logs, 0.97) > 0.01
    # Normal errors of 0.90 and 1.08 times the size would be covered in 97% and 93%.
    assert 0.90 - 2.58 / np.sqrt(2 * n_logs) < size < 1.08 + 2.58 / np.sqrt(2 * n_logs)


@pytest.mark.parametrize("method", ["replay", "dr-ns"])
def test_intervals_of_adaptive_deployments_cover(method):
    require_coverage("recurring", method, 20, 20)


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("method", ["replay", "dr-ns"])
def test_intervals_of_adaptive_deployments_cover_in_95_percent_of_200_logs(world, method):
    require_coverage(world, method, 200, 400)
