"""Replay and DR-ns against deployments in the same worlds."""

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


def stationary(n_logs, seed, horizon=6_000):
    """Values and errors of both methods, (n_logs, 2), and what deployments of those lengths earn."""
    env = Shop(seed=seed, n_states=1, horizon=horizon)
    deployer = sc.Exp4S(experts(env, seed), expected_stay=1_000, learning_rate=0.1, exploration=0.05)
    found = {method: [] for method in ("replay", "dr-ns")}
    for log in map(env.log, range(n_logs)):
        for method, estimates in found.items():
            # Of the few logs that say too little, too: leaving them out would be a choice of values.
            estimates.append(sc.evaluate_online(log, deployer, method, seed=seed, force=True))
    truths = {}
    for method, estimates in found.items():
        length = round(np.mean([each.n_accepted for each in estimates]))
        shorter = Shop(seed=seed, n_states=1, horizon=length)
        truths[method] = np.array([rollout(shorter, deployer, run).expected_rewards.mean() for run in range(300)])
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


def test_in_a_changing_world_replay_is_the_thinned_deployment():
    """Thinning makes the states change faster by the same factor; a full deployment earns more."""
    means = np.array([[0.9, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.9]])
    states = (np.arange(24_000) // 400) % 2
    env = Synthetic(n_actions=4, n_states=2, horizon=len(states), states=states, mean_rewards=means, logging_noise=0.0)
    joint = env.log(0).joint
    policies = sc.PolicySet(tuple(SoftmaxPolicy(np.array([[b], [0.0], [0.0], [-b]]), joint) for b in (5.0, -5.0)))
    deployer = sc.Exp4S(policies, expected_stay=100, learning_rate=0.15)
    estimates = [sc.evaluate_online(env.log(run), deployer) for run in range(12)]
    share = np.mean([each.acceptance_rate for each in estimates])
    thinned = states[np.round(np.arange(round(share * len(states))) / share).astype(int).clip(max=len(states) - 1)]
    faster = Synthetic(n_actions=4, n_states=2, horizon=len(thinned), states=thinned, mean_rewards=means)
    earned = {
        name: np.array([rollout(world, deployer, run).expected_rewards.mean() for run in range(40)])
        for name, world in (("full", env), ("thinned", faster))
    }
    values = np.array([each.value for each in estimates])
    error = np.hypot(values.std(ddof=1) / np.sqrt(12), earned["thinned"].std() / np.sqrt(40))
    assert abs(values.mean() - earned["thinned"].mean()) < 4.5 * error
    assert values.mean() < earned["full"].mean() - 10 * error
    for each in estimates:
        assert f"seemed to change {1 / each.acceptance_rate:.3g} times as fast" in each.notes[0]


@pytest.mark.long
@pytest.mark.parametrize("method", ["replay", "dr-ns"])
def test_a_learned_switching_policy_is_evaluated_like_its_thinned_deployment(method):
    """Contexts, an HMM and unequal propensities, compared with thinned deployments through each log's states."""
    env = Shop(seed=0)
    deployer = sc.learn(env.log(0)).deployer()
    gaps, full = [], np.mean([rollout(env, deployer, run).expected_rewards.mean() for run in range(20)])
    for run in range(1, 25):
        estimate = sc.evaluate_online(env.log(run), deployer, method)
        earned = []
        for again in range(5):
            generator = np.random.default_rng([run, again])
            # A round is accepted as by a coin, whatever it holds.
            moods = env.log_states(run)[generator.random(env.horizon) < estimate.acceptance_rate]
            rounds = env._rounds(moods, generator)
            uniforms = generator.random(len(moods))
            _, trace = deployer.run(deployer.init(), rounds.contexts, rounds.mean_rewards, rounds.rewards, uniforms)
            earned.append(trace.expected_rewards.mean())
        gaps.append((estimate.value - np.mean(earned), full - estimate.value))
    thinned, missing = np.mean(gaps, axis=0)
    error = np.std(gaps, axis=0, ddof=1) / np.sqrt(len(gaps))
    assert abs(thinned) < 4.5 * error[0]
    assert missing > 4.5 * error[1]
