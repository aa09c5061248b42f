"""Bootstrap intervals where few rounds make all of the spread."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import seachange as sc
from seachange.evaluation.formulas import Parts
from seachange.evaluation.value_estimate import (
    bootstrap_interval,
    draw_counts,
    gamma_interval,
    influences,
    standard_error,
)
from seachange.log.clusters import Clusters

pytestmark = pytest.mark.small
K = 4
ALL = tuple(sc.evaluation.ESTIMATORS)


def few_clicks(n, clicks, seed=0, **columns):
    """A log of uniform choices with that many clicks, and a policy that weighs its rounds from 0 to 4."""
    generator = np.random.default_rng(seed)
    rewards = np.zeros(n)
    rewards[generator.choice(n, clicks, replace=False)] = 1.0
    log = sc.BanditLog.from_arrays(generator.integers(K, size=n), rewards, np.full(n, 1 / K), n_actions=K, **columns)
    return log, generator.dirichlet(np.ones(K), size=n)


@pytest.mark.large
@pytest.mark.parametrize("sequences", [None, 10])
@pytest.mark.parametrize("clicks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("n", [1_000, 20_000])
def test_few_clicks_have_finite_intervals_about_the_value(n, clicks, sequences):
    log, probs = few_clicks(n, clicks, sequences=None if sequences is None else np.arange(n) // sequences)
    for found in sc.evaluate(log, probs, ALL, interval="bootstrap"):
        assert -1 / n < found.low < found.value < found.high
        # All weights are at most 4, and 12 are more clicks than 5 can be by chance: P(N ≤ 5 | 12) < 0.025.
        assert found.high < 12 * 4 / n


@pytest.mark.large
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("clicks", [1, 2, 3, 4, 5])
def test_clicks_of_equal_weight_have_the_exact_interval_of_a_poisson_mean(clicks, confidence):
    """Garwood (1936)."""
    n, tail = 20_000, (1 - confidence) / 2
    log, _ = few_clicks(n, clicks)
    same = np.full((n, K), 1 / K)
    exact = chi2.ppf(tail, 2 * clicks) / 2, chi2.ppf(1 - tail, 2 * clicks + 2) / 2
    for found in sc.evaluate(log, same, ("ips", "snips", "dr"), interval="bootstrap", confidence=confidence):
        assert (n * found.low, n * found.high) == pytest.approx(exact, abs=0.01 * clicks)


def test_the_gamma_interval_allows_for_one_more_round_of_the_policy():
    """By hand: one click of weight 1/2, in a log whose weights are 0, 1/2 and 4."""
    weights, n = np.repeat([0.0, 0.5, 4.0], [400, 400, 200]), 1000
    rewards = np.zeros(n)
    rewards[500] = 1.0
    terms = weights * rewards
    low, high = gamma_interval(terms.mean(), (terms - terms.mean()) / n, weights, rewards, 0.9)
    again = (400 * 0.25 + 200 * 16) / (400 * 0.5 + 200 * 4)  # Σ w² / Σ w
    mean, variance, third = 0.5 + again, 0.25 + again**2, 0.125 + again**3
    scale, shape = third / variance, variance**3 / third**2
    drawn = scale * np.random.default_rng(0).gamma(shape, size=2_000_000) + mean - shape * scale
    assert n * high == pytest.approx(np.quantile(drawn, 0.95), rel=0.01)
    # Where rounds lie one thousandth below the mean reward, one more of them moves the lower end by that much.
    assert n * low == pytest.approx(0.5 * chi2.ppf(0.05, 2) / 2 - again / n, rel=0.02)


@given(st.integers(0, 2**32), st.integers(1, 5), st.floats(0.001, 1000), st.floats(-50, 50))
@settings(max_examples=25, deadline=None)
def test_few_rewards_mean_the_same_in_any_unit_and_mirrored(seed, clicks, unit, level):
    log, probs = few_clicks(500, clicks, seed)

    def interval(rewards, name):
        (found,) = sc.evaluate(log.with_rewards(rewards), probs, (name,), interval="bootstrap")
        return np.array([found.low, found.high])

    plain = interval(log.rewards, "snips")
    assert interval(level + unit * log.rewards, "snips") == pytest.approx(level + unit * plain, abs=1e-9 * (50 + unit))
    for name in ("ips", "snips", "dr"):
        mirrored = -interval(-log.rewards, name)[::-1]
        assert mirrored == pytest.approx(interval(log.rewards, name), rel=1e-6, abs=1e-12)


def coverage_of_few(expected, sameness, seeds):
    """The share of logs whose interval holds the value, by estimator, of those with a click, and how many these are.

    Without a click there is nothing to make an interval of.
    """
    n, covered, logs = 1_000, {"ips": 0, "snips": 0, "dr": 0}, 0
    for seed in seeds:
        generator = np.random.default_rng(seed)
        rewards = (generator.random(n) < expected / n).astype(float)
        if not rewards.any():
            continue
        logs += 1
        log = sc.BanditLog.from_arrays(generator.integers(K, size=n), rewards, np.full(n, 1 / K), n_actions=K)
        probs = generator.dirichlet(np.full(K, sameness), size=n)
        for found in sc.evaluate(log, probs, tuple(covered), interval="bootstrap"):
            covered[found.estimator] += found.low <= expected / n <= found.high
    return {name: count / logs for name, count in covered.items()}, logs


@pytest.mark.large
@pytest.mark.parametrize(("expected", "sameness"), [(1.0, 0.3), (3.0, 1.0), (5.0, 0.3), (12.0, 1.0)])
def test_intervals_of_few_clicks_hold_the_value_as_often_as_they_say(expected, sameness):
    found, logs = coverage_of_few(expected, sameness, range(150))
    # At least 95 %, less 4.5 standard errors of a share of so many logs.
    assert min(found.values()) >= 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / logs), found


@pytest.mark.long
@pytest.mark.parametrize("sameness", [0.3, 1.0])
@pytest.mark.parametrize("expected", [1.0, 3.0, 5.0, 12.0])
def test_intervals_of_few_clicks_hold_the_value_in_at_least_95_percent_of_logs(expected, sameness):
    found, _ = coverage_of_few(expected, sameness, range(10_000, 11_000))
    assert min(found.values()) >= 0.95, found


def test_few_heavy_rounds_are_few_though_all_rounds_have_rewards():
    generator = np.random.default_rng(0)
    actions, propensities = np.zeros(2_000, dtype=int), np.full(2_000, 0.999)
    rare = generator.choice(2_000, 4, replace=False)
    actions[rare], propensities[rare] = 1, 0.001
    log = sc.BanditLog.from_arrays(actions, generator.random(2_000), propensities, n_actions=2)
    probs = np.tile([0.98, 0.02], (2_000, 1))
    for found in sc.evaluate(log, probs, ALL, interval="bootstrap"):
        assert -1 < found.low < found.value < found.high < 2
    (ips,) = sc.evaluate(log, probs, ("ips",), interval="bootstrap")
    weights = np.where(actions == 1, 20.0, 0.98 / 0.999)
    terms = weights * log.rewards
    by_hand = gamma_interval(terms.mean(), (terms - terms.mean()) / 2_000, weights, log.rewards, 0.95)
    assert (ips.low, ips.high) == pytest.approx(by_hand, rel=1e-9)


def test_resamples_without_a_reward_count_as_if_they_had_a_tenth_of_the_spread():
    """Three clicks of equal weight: e^-3 of the resamples have none, and nothing but rounding for a spread."""
    n = 3_000
    rewards = np.zeros(n)
    rewards[:3] = 1.0
    log = sc.BanditLog.from_arrays(np.zeros(n, dtype=int), rewards, np.ones(n), n_actions=1)
    for parts in (Parts(rewards), Parts(numerator=rewards, denominator=np.ones(n))):
        clusters = Clusters(log)
        error = standard_error(influences(parts, clusters))
        low, high = bootstrap_interval(parts, parts.value, error, clusters, 0.95, draw_counts(n, seed=0))
        assert 0 < low < parts.value
        # V̂ - s (0 - V̂) / (s / 10)
        assert high == pytest.approx(11 * parts.value, rel=1e-9)
