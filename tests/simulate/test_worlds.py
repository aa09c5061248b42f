"""Simulated worlds are what they say."""

import numpy as np
import pytest

import seachange as sc
from seachange.simulate import Shop, Synthetic, paper_states, rollout


def test_the_paper_s_states_go_up_and_down_with_eight_changes():
    states = paper_states()
    assert states[::10_000].tolist() == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]
    assert np.count_nonzero(np.diff(states)) == 8
    assert len(states) == 100_000


def test_the_synthetic_world_has_the_paper_s_constants():
    env = Synthetic(seed=3)
    assert env.state_means.shape == (5, 5)
    assert env.state_means.min() >= 0
    assert env.state_means.max() <= 1
    log = env.log(seed=0)
    assert (len(log), log.n_actions) == (100_000, 5)
    np.testing.assert_allclose(log.propensities, env.logging_policy[log.actions])
    residuals = log.rewards - env.state_means[env.state_sequence, log.actions]
    assert abs(residuals.mean()) / (0.5 / np.sqrt(100_000)) < 4.5
    assert residuals.std() == pytest.approx(0.5, abs=4.5 * 0.5 / np.sqrt(200_000))
    counts = np.bincount(log.actions, minlength=5)
    z = (counts - 100_000 * env.logging_policy) / np.sqrt(100_000 * env.logging_policy * (1 - env.logging_policy))
    assert np.abs(z).max() < 4.5


def test_every_constant_is_a_parameter():
    states = np.array([1, 1, 0, 0, 1])
    env = Synthetic(n_actions=2, n_states=2, horizon=5, noise=0.0, states=states, mean_rewards=[[0.1, 0.9], [0.8, 0.2]])
    log = env.log(seed=0)
    np.testing.assert_allclose(log.rewards, np.array([[0.1, 0.9], [0.8, 0.2]])[states, log.actions])
    assert env.oracle_value() == pytest.approx(np.mean([0.8, 0.8, 0.9, 0.9, 0.8]))
    with pytest.raises(ValueError, match="states must have shape \\(4,\\)"):
        Synthetic(n_states=2, horizon=4, states=states)
    with pytest.raises(ValueError, match="states must be from 0 to 1"):
        Synthetic(n_states=2, horizon=5, states=states + 5)


def test_seeds_decide_everything_and_logs_and_deployments_differ():
    env = Synthetic(seed=1, horizon=1000)
    assert env.log(5).fingerprint() == Synthetic(seed=1, horizon=1000).log(5).fingerprint()
    assert env.log(5).fingerprint() != env.log(6).fingerprint()
    (deployed,) = env.rounds(5, 1000)
    logged = env.log(5)
    assert not np.isclose(deployed.rewards[np.arange(1000), logged.actions], logged.rewards).any()


class Best:
    """Always action 0."""

    def predict_proba(self, contexts, action_mask=None):
        return np.tile([1.0, 0.0, 0.0], (len(contexts), 1))


def test_a_rollout_earns_what_its_actions_are_worth():
    env = Synthetic(seed=0, n_actions=3, horizon=40_000, segment_length=4_000)
    trace = rollout(env, sc.SinglePolicy(Best()), seed=1)
    means = env.state_means[env.state_sequence, 0]
    np.testing.assert_allclose(trace.expected_rewards, means)
    assert (trace.actions == 0).all()
    assert (trace.propensities == 1).all()
    z = (trace.rewards - means).mean() / (0.5 / np.sqrt(40_000))
    assert abs(z) < 4.5


def test_a_logging_policy_s_value_is_what_its_log_earned():
    shop = Shop(seed=2, horizon=20_000)
    log = shop.log(seed=4)
    rates = shop.click_rates(log.contexts, shop.log_states(4))
    expected = rates[np.arange(20_000), log.actions]
    z = (log.rewards - expected).sum() / np.sqrt(np.sum(expected * (1 - expected)))
    assert abs(z) < 4.5
    np.testing.assert_allclose(log.logging_probs.sum(axis=1), 1)
    assert log.action_names[:2] == ("boots", "coats")


def test_a_shop_s_moods_last_as_long_as_they_should():
    shop = Shop(horizon=200_000, expected_stay=500.0, n_states=4)
    states = shop.state_sequence(np.random.default_rng(0))
    changes = np.count_nonzero(np.diff(states))
    assert abs(changes - 400) / 20 < 4.5
    assert set(states) == {0, 1, 2, 3}


def test_bit_equal_rollouts_whatever_the_chunk():
    env = Shop(seed=0, horizon=3000, expected_stay=300.0)
    deployer = sc.learn(env.log(0), oracle=sc.KnownStates(env.log_states(0))).deployer()
    whole = rollout(env, deployer, seed=2)
    (rounds,) = env.rounds(2, 3000)
    uniforms = np.random.default_rng([2, 4]).random(3000)
    state, parts = deployer.init(), []
    for start in range(0, 3000, 700):
        span = slice(start, start + 700)
        state, trace = deployer.run(
            state, rounds.contexts[span], rounds.mean_rewards[span], rounds.rewards[span], uniforms[span]
        )
        parts.append(trace.actions)
    np.testing.assert_array_equal(np.concatenate(parts), whole.actions)
