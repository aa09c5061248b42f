"""Bandit algorithms without contexts, against their formulas."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from seachange.deploy.rivals import CUSUMKLUCB, GLRKLUCB, KLUCB, Exp3S, MonitoredKLUCB
from seachange.kernels.arm_rounds import bernoulli_divergence, kl_bound

pytestmark = pytest.mark.small


def with_rewards(rival, actions, rewards):
    """The memory after these rewards, which come with propensity 1."""
    memory = rival._views(rival.init().memory.copy())
    rules = rival._kernel_rules
    for action, reward in zip(actions, rewards, strict=True):
        rival.kernels[1](rules, memory, np.ones(1), action, 1.0, float(reward))
        rival.kernels[2](rules, memory)
    return memory


def probs_of(rival, memory, allowed=(True, True)):
    probs = np.empty(rival.n_actions)
    rival.kernels[0](rival._kernel_rules, memory, np.ones((1, 1)), np.array(allowed), probs)
    return probs


@settings(max_examples=examples(100), deadline=None)
@given(mean=st.floats(0, 1), level=st.floats(1e-4, 5))
def test_the_kl_bound_is_where_the_divergence_reaches_the_level(mean, level):
    bound = kl_bound(mean, level)
    assert mean - 1e-6 <= bound <= 1
    assert bernoulli_divergence(mean, max(bound - 2e-6, mean)) <= level + 1e-9
    if bound < 1 - 1e-5:
        assert bernoulli_divergence(mean, bound + 2e-6) > level


def test_klucb_takes_the_action_with_the_highest_bound_and_new_ones_first():
    rival = KLUCB(n_actions=3)
    memory = with_rewards(rival, [0, 0, 1], [1, 0, 1])
    np.testing.assert_array_equal(probs_of(rival, memory, (True, True, True)), [0, 0, 1])
    bounds = [kl_bound(0.5, math.log(3) / 2), kl_bound(1.0, math.log(3))]
    expected = np.zeros(3)
    expected[int(np.argmax(bounds))] = 1
    np.testing.assert_array_equal(probs_of(rival, memory, (True, True, False)), expected)


def test_an_oracle_restarts_the_action_before_a_change():
    memory = with_rewards(KLUCB(n_actions=2, restarts=(3,)), [0, 1, 0, 0, 1], [1, 1, 1, 0, 1])
    assert memory.counts.tolist() == [1, 2]
    assert memory.sums.tolist() == [0, 2]


def test_exp3s_has_the_published_weights():
    rival = Exp3S(n_actions=3, horizon=200)
    memory, generator = rival._views(rival.init().memory.copy()), np.random.default_rng(0)
    gamma, alpha, weights = rival._kernel_rules.exploration, 1 / 200, np.full(3, 1.0)
    for _ in range(50):
        action, propensity, reward = int(generator.integers(3)), generator.uniform(0.1, 1), generator.random()
        rival.kernels[1](rival._kernel_rules, memory, np.ones(1), action, propensity, reward)
        share = math.e * alpha / 3 * weights.sum()
        weights[action] *= math.exp(gamma * reward / (3 * propensity))
        weights += share
    expected = (1 - gamma) * weights / weights.sum() + gamma / 3
    np.testing.assert_allclose(probs_of(rival, memory, (True, True, True)), expected, rtol=1e-10)


def first_restart(rival, rewards):
    """The number of rewards of action 0 after which it restarts."""
    for n in range(1, len(rewards) + 1):
        if with_rewards(rival, [0] * n, rewards[:n]).clock[1] > 0:
            return n
    return None


REWARDS = (np.random.default_rng(1).random(120) < np.where(np.arange(120) < 60, 0.1, 0.9)).astype(float)


def test_m_klucb_restarts_when_the_halves_of_its_window_differ():
    rival, w = MonitoredKLUCB(n_actions=2, horizon=200, window=80), 80
    sums = [abs(REWARDS[n - w : n - w // 2].sum() - REWARDS[n - w // 2 : n].sum()) for n in range(w, 121)]
    assert rival.threshold == pytest.approx(math.sqrt(40 * math.log(4 * 200**2)))
    assert first_restart(rival, REWARDS) == w + next(i for i, each in enumerate(sums) if each > rival.threshold)


def test_cusum_restarts_when_a_walk_is_high():
    rival = CUSUMKLUCB(n_actions=2, horizon=200, warmup=20)
    mean, up, down, expected = REWARDS[:20].mean(), 0.0, 0.0, None
    for n, reward in enumerate(REWARDS[20:], 21):
        up, down = max(0.0, up + reward - mean - 0.1), max(0.0, down + mean - reward - 0.1)
        if max(up, down) > math.log(200 / 4):
            expected = n
            break
    assert first_restart(rival, REWARDS) == expected is not None


def test_glr_restarts_when_a_split_explains_the_rewards():
    def ratio(n):
        parts = [(REWARDS[:s], REWARDS[s:n]) for s in range(10, n, 10)]
        total = REWARDS[:n].mean()
        return max((sum(len(p) * bernoulli_divergence(p.mean(), total) for p in pair) for pair in parts), default=0.0)

    expected = next(n for n in range(10, 121, 10) if ratio(n) > 1.5 * math.log(n) + 0.5 * math.log(200))
    assert first_restart(GLRKLUCB(n_actions=2, horizon=200), REWARDS) == expected
