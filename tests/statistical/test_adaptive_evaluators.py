"""Replay and DR-ns against deployments in the same worlds, which miss as many of their rewards."""

import numpy as np
import pytest

import seachange as sc
from seachange.policies import SoftmaxPolicy
from seachange.simulate import Shop, Synthetic, rollout


def experts(env, seed):
    """Three policies for a shop with one state: a right one and two wrong ones."""
    generator, joint = np.random.default_rng(seed), env.log(0).joint
    coefs = [2.0 * env.coefs[0] + mistake * generator.normal(0, 1.5, env.coefs[0].shape) for mistake in (0, 1, 1)]
    return sc.PolicySet(tuple(SoftmaxPolicy(each, joint) for each in coefs))


def earned_with_missing_rewards(env, deployer, share, runs):
    """(runs,) what deployments of Exp4.S earn per round if they see this share of their rewards.

    The highest reward costs nothing, so it tells Exp4.S as much as a missing one: that a round passed.
    """
    earned = []
    for run in range(runs):
        generator, state, parts = np.random.default_rng([run, 8]), deployer.init(), []
        for each in env.rounds(run, 1 << 14):
            seen = generator.random((len(each), 1)) < share
            rewards, uniforms = np.where(seen, each.rewards, deployer.reward_range[1]), generator.random(len(each))
            state, trace = deployer.run(state, each.contexts, each.mean_rewards, rewards, uniforms, each.action_mask)
            parts.append(trace.expected_rewards)
        earned.append(np.concatenate(parts).mean())
    return np.array(earned)


def test_the_highest_reward_tells_exp4s_what_a_missing_one_does():
    env = Shop(seed=1, n_states=1, horizon=50)
    deployer, (rounds,) = sc.Exp4S(experts(env, 1), expected_stay=100, learning_rate=0.4), env.rounds(0, 50)
    one = other = deployer.init()
    for t, context in enumerate(rounds.contexts):
        decision = deployer.act(one, context, 0.02 * t)
        reward = rounds.rewards[t, decision.action] if t % 3 else None
        one = deployer.update(one, decision, reward)
        other = deployer.update(other, deployer.act(other, context, 0.02 * t), 1.0 if reward is None else reward)
        np.testing.assert_allclose(deployer.state_probs(one), deployer.state_probs(other), rtol=1e-12)


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
        # Errors are honest: no larger than said. They may be smaller, as both of their sources are added up.
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
        generator, state, earned = np.random.default_rng([run, 0]), deployer.init(), 0.0
        rounds = env._rounds(env.log_states(run), generator)
        seen = generator.random(env.horizon) < estimate.acceptance_rate  # as by a coin, whatever a round holds
        for t, uniform in enumerate(generator.random(env.horizon)):
            decision = deployer.act(state, rounds.contexts[t], uniform)
            earned += decision.probs @ rounds.mean_rewards[t]
            state = deployer.update(state, decision, rounds.rewards[t, decision.action] if seen[t] else None)
        gaps.append((estimate.value - earned / env.horizon, full - estimate.value))
    alike, missing = np.mean(gaps, axis=0)
    error = np.std(gaps, axis=0, ddof=1) / np.sqrt(len(gaps))
    assert abs(alike) < 4.5 * error[0]
    assert missing > 4.5 * error[1]
