"""Differences between fits, their null distribution, and the merging of segments, by brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

import seachange as sc
from properties import examples
from seachange.states.clustering import merge, renumbered
from seachange.states.detector import critical_value, log_p_values, window_grid
from seachange.states.segment_fits import LEAST_ROUNDS, autoregression, difference, log_tail, series_of

pytestmark = pytest.mark.small
KINDS = ("none", "shared", "per action")


def some_log(kind="none", n=200, seed=0, missing=0.0, **more):
    generator = np.random.default_rng(seed)
    if kind == "shared":
        more["contexts"] = generator.normal(size=(n, 2)) * [1, 100]
    if kind == "per action":
        more["action_features"] = generator.normal(size=(n, 2, 3))
    rewards = 3 + generator.normal(size=n)
    rewards[generator.random(n) < missing] = np.nan
    actions = generator.integers(2, size=n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), missing_rewards=True, n_actions=2, **more)


def designs(log):
    """(n, D) chosen features and (n,) block of every round."""
    own, n = log.joint.kind == "per action", len(log)
    contexts = log.contexts[np.arange(n), log.actions] if own else log.contexts
    return np.column_stack([contexts, np.ones(n)]), np.zeros(n, dtype=int) if own else log.actions


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_difference_equals_that_of_least_squares(kind, missing):
    log = some_log(kind, missing=missing)
    series = series_of(log)
    left, right = series.sums(np.array([0]), np.array([70])), series.sums(np.array([70]), np.array([200]))
    statistic, degrees = difference(left, right, series.metric)
    features, blocks = designs(log)
    inside, seen = np.arange(len(log)), ~np.isnan(log.rewards)
    total = expected_degrees = 0.0
    for b in range(log.joint.shape[0]):
        sides = [seen & (blocks == b) & (inside < 70), seen & (blocks == b) & (inside >= 70)]
        both = sides[0] | sides[1]
        common = np.linalg.lstsq(features[both], log.rewards[both], rcond=None)[0]
        n_both, n_features = both.sum(), features.shape[1]
        about = [np.square(log.rewards[side] - features[side] @ common).sum() for side in sides]
        own = [np.linalg.lstsq(features[side], log.rewards[side], rcond=None)[1][0] for side in sides]
        sizes = [side.sum() for side in sides]
        variances = [max(about[i] / sizes[i], sum(about) / n_both) for i in range(2)]
        noise = (variances[0] * sizes[1] + variances[1] * sizes[0]) / n_both * n_both / (n_both - n_features)
        total += (sum(about) - sum(own)) / noise / series.metric.stretch[b]
        expected_degrees += min(series.metric.freedom[b], *sizes)
    assert statistic[0] == pytest.approx(total, rel=1e-6)
    assert degrees[0] == pytest.approx(expected_degrees)


def test_blocks_with_few_rounds_do_not_count():
    actions = np.array([0] * 40 + [1] * 4 + [0] * 40 + [1] * 10)
    log = sc.BanditLog.from_arrays(actions, np.arange(94.0), np.full(94, 0.5))
    series = series_of(log)
    left, right = series.sums(np.array([0]), np.array([44])), series.sums(np.array([44]), np.array([94]))
    assert LEAST_ROUNDS > 4
    assert difference(left, right, series.metric)[1] == 1


@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([1e-8, 1.0, 1e8]), shift=st.sampled_from([0.0, 1e6]))
def test_units_of_rewards_do_not_matter(seed, scale, shift):
    log = some_log(seed=seed, n=60)
    other = log.with_rewards(scale * log.rewards + scale * shift)
    values = []
    for each in (log, other):
        series = series_of(each)
        left, right = series.sums(np.array([0]), np.array([25])), series.sums(np.array([25]), np.array([60]))
        values.append(difference(left, right, series.metric)[0][0])
    assert values[0] == pytest.approx(values[1], rel=1e-5, abs=1e-8)


def test_the_tail_is_that_of_chi_square_even_if_it_underflows():
    degrees = np.array([1.0, 3.0, 24.5])
    for statistic in (0.5, 20.0, 400.0):
        expected = stats.chi2.logsf(statistic, degrees)
        np.testing.assert_allclose(log_tail(np.full(3, statistic), degrees), expected, rtol=1e-6, atol=1e-12)
    # Γ(5/2, x) ≈ x^(3/2) e^(-x) (1 + 3 / (2x)), over Γ(5/2) = 3√π / 4.
    expected = -1500 + 1.5 * np.log(1500) + np.log1p(0.001) - np.log(0.75 * np.sqrt(np.pi))
    assert log_tail(np.array([3000.0]), np.array([5.0]))[0] == pytest.approx(expected, abs=1e-4)
    assert log_tail(np.array([7.0]), np.array([0.0]))[0] == 0


def test_p_values_count_the_comparisons_of_long_chains_only():
    lengths, windows = np.array([1000, 90, 10]), np.array([40, 60])
    statistic, degrees = np.array([30.0]), np.array([5.0])
    value = log_p_values(statistic, degrees, np.array([40]), windows, lengths)[0]
    comparisons = 2 * (2 + (920 + 10) * 1.5 * 25 / 40)
    assert value == pytest.approx(stats.chi2.logsf(30, 5) + np.log(comparisons))
    for threshold in (0.5, 3.0, 30.0):
        least = np.array([critical_value(threshold, 5.0, 40, windows, lengths)])
        value = log_p_values(least, degrees, np.array([40]), windows, lengths)[0]
        assert value == pytest.approx(-threshold, abs=1e-4)


@pytest.mark.parametrize("n", [10, 40, 300, 10_000, 10_000_000])
def test_the_window_grid_reaches_half_of_the_log_in_small_steps(n):
    windows = window_grid(np.array([n]), 3.0, 3.0)
    assert (2 * windows <= n).all()
    if n >= 100:
        assert windows[0] < 60
        assert 2 * windows[-1] > n / 1.6
        assert (windows[1:] / windows[:-1]).max() < 1.6


def test_segments_merge_into_the_states_they_came_from():
    generator = np.random.default_rng(0)
    states = generator.integers(3, size=30)
    actions = generator.integers(2, size=3000)
    means = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]])[np.repeat(states, 100), actions]
    log = sc.BanditLog.from_arrays(actions, means + generator.normal(0, 0.5, 3000), np.full(3000, 0.5))
    series = series_of(log)
    segments = series.sums(np.arange(0, 3000, 100), np.arange(100, 3001, 100))
    for given_number in (None, 3):
        found = merge(segments, series.metric, given_number, 0.05, 0)
        np.testing.assert_array_equal(found, renumbered(states))
    assert merge(segments, series.metric, 2, 0.05, 0).max() == 1


def test_states_are_numbered_by_first_appearance():
    assert renumbered(np.array([5, 5, 2, 9, 2])).tolist() == [0, 0, 1, 2, 1]


@pytest.mark.large
@pytest.mark.parametrize(
    ("ar", "ma"), [([], []), ([0.3], []), ([0.7], []), ([0.5, 0.3], []), ([], [0.8]), ([0.9], [-0.6])]
)
def test_the_long_run_variance_of_noise_is_that_of_its_model(ar, ma):
    """σ² (1 + Σ θ)² / (1 - Σ φ)² over the variance, from many values in chains; 1 for independent noise."""
    noise = lfilter([1, *ma], [1, *(-each for each in ar)], np.random.default_rng(0).normal(size=(20, 2500)), axis=1)
    begins = np.arange(20) * 2500
    weights = lfilter([1, *ma], [1, *(-each for each in ar)], np.eye(1, 500)[0])
    expected = weights.sum() ** 2 / (weights @ weights)
    found = autoregression(noise.ravel(), begins, begins + 2500)
    assert found.ratio == pytest.approx(expected, rel=0.15 if ar or ma else 0)
    assert found.gain == pytest.approx(-50_000 * np.log(weights @ weights), rel=0.05, abs=0)
    correlations = np.correlate(weights, weights, "full")[500:] / (weights @ weights)
    assert found.lasts == pytest.approx((expected - 1) / 2 / max(correlations.max(), 1e-9), rel=0.2, abs=1e-9)
    innovations = np.convolve(noise.ravel() / noise.std(), found.filter, "valid")
    assert np.var(innovations) == pytest.approx(1, rel=0.03)
    assert abs(np.corrcoef(innovations[1:], innovations[:-1])[0, 1]) < 0.03


def test_noise_that_alternates_or_never_varies_is_not_inflated():
    begins, ends = np.array([0]), np.array([400])
    for noise in (np.tile([1.0, -1.0], 200), np.zeros(400)):
        assert autoregression(noise, begins, ends).ratio == 1


@pytest.mark.large
def test_the_noise_of_actions_is_measured_in_their_own_order_too():
    """Each action's own noise is an autoregression by its rounds: between actions, hardly any of it is seen."""
    generator = np.random.default_rng(0)
    actions, noise = generator.integers(4, size=8000), np.empty(8000)
    for action in range(4):
        own = np.flatnonzero(actions == action)
        noise[own] = 10.0**action * lfilter([1.0], [1.0, -0.7], generator.normal(size=len(own)))
    log = sc.BanditLog.from_arrays(actions, noise, np.full(8000, 0.25))
    series = series_of(log)
    errors = series.errors_within(np.array([0]), np.array([8000]))
    found = series.noise_of(errors)
    assert found.within == pytest.approx(1.7 / 0.3, rel=0.15)
    assert found.overall == found.within
    # In rounds of the log: of four rounds, one is an action's own.
    assert found.lasts == pytest.approx(4 / 0.3, rel=0.15)
    for action in range(4):
        assert np.var(found.innovations(errors)[actions == action]) == pytest.approx(1, rel=0.1)
    shared = log.with_rewards(lfilter([1.0], [1.0, -0.7], generator.normal(size=8000)))
    series = series_of(shared)
    found = series.noise_of(series.errors_within(np.array([0]), np.array([8000])))
    assert found.overall == pytest.approx(1.7 / 0.3, rel=0.15)
    # A random quarter of the pairs: 1 + 2 (1/4) Σ 0.7^k.
    assert found.within == pytest.approx(1 + 0.5 * 0.7 / 0.3, rel=0.15)
