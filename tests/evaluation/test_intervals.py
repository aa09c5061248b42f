"""Intervals: exact where they must be, equal to brute force where that can be had, and clustered by sequence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from seachange.errors import ParameterError
from seachange.evaluation.formulas import Parts
from seachange.evaluation.value_estimate import (
    bernstein_interval,
    bootstrap_interval,
    draw_counts,
    influences,
    running_interval,
    standard_error,
    stitched_boundary,
)
from seachange.log.clusters import Clusters

pytestmark = pytest.mark.small
INTERVALS = ("normal", "bootstrap", "bernstein", "sequence")


def log_of(rewards, sequences=None, seed=0, **columns):
    n = len(rewards)
    actions = np.random.default_rng(seed).integers(2, size=n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), n_actions=2, sequences=sequences, **columns)


def mostly(action, n):
    return np.tile(np.where(np.arange(2) == action, 0.8, 0.2), (n, 1))


@pytest.mark.parametrize("reward", [1.0, 0.1, -3.0])
@pytest.mark.parametrize("sequences", [None, np.repeat(np.arange(50), 4)])
@pytest.mark.parametrize("interval", ["normal", "bootstrap"])
def test_equal_rewards_have_exactly_their_own_value_by_snips(interval, sequences, reward):
    log = log_of(np.full(200, reward), sequences)
    (estimate,) = sc.evaluate(log, mostly(0, 200), ("snips",), interval=interval)
    assert (estimate.value, estimate.low, estimate.high) == (reward, reward, reward)


@pytest.mark.parametrize("interval", INTERVALS)
def test_equal_rewards_break_no_interval(interval):
    log = log_of(np.ones(200))
    names = ("ips", "dr", "mrdr") if interval in ("bernstein", "sequence") else tuple(sc.evaluation.ESTIMATORS)
    for estimate in sc.evaluate(log, mostly(0, 200), names, interval=interval):
        assert np.isfinite([estimate.value, estimate.std_error, estimate.low, estimate.high]).all()
        assert estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize("kind", ["mean", "ratio", "both"])
@pytest.mark.parametrize("clustered", [False, True])
def test_the_bootstrap_is_that_of_resampled_logs(kind, clustered):
    """The same resamples, taken of the log itself, one by one."""
    n, generator = 120, np.random.default_rng(3)
    log = log_of(generator.random(n), np.sort(generator.integers(30, size=n)) if clustered else None)
    plain = generator.random(n) if kind != "ratio" else None
    above, below = (None, None) if kind == "mean" else generator.random((2, n))
    clusters, parts = Clusters(log), Parts(plain, above, below)
    groups = np.arange(n) if clusters.places is None else clusters.places
    members = [np.flatnonzero(groups == g) for g in range(groups.max() + 1)]
    value, error = parts.value, standard_error(influences(parts, clusters))
    resamples, scores = draw_counts(len(members), seed=0)[:100], []
    for counts in resamples:
        drawn = [members[g] for g in np.repeat(np.arange(len(members)), counts.astype(int))]
        rounds = np.concatenate(drawn)
        again = Parts(*(None if column is None else column[rounds] for column in (plain, above, below)))
        # Drawn twice, a sequence is two sequences.
        names = np.repeat(np.arange(len(drawn)), [len(each) for each in drawn])
        resampled = Clusters(log_of(np.ones(len(rounds)), names))
        scores.append((again.value - value) / standard_error(influences(again, resampled)))
    upper, lower = np.quantile(scores, [0.95, 0.05])
    expected = value - upper * error, value - lower * error
    assert bootstrap_interval(parts, value, error, clusters, 0.9, resamples) == pytest.approx(expected, abs=1e-12)


def test_groups_of_neighbours_have_the_width_of_single_rounds():
    generator = np.random.default_rng(8)
    n = 40_000
    parts, clusters = Parts(generator.exponential(size=n)), Clusters(log_of(np.ones(n)))
    error = standard_error(influences(parts, clusters))
    low, high = bootstrap_interval(parts, parts.value, error, clusters, 0.95, draw_counts(n, seed=0))
    # Quantiles of 1,000 resamples are known to about 4 in 100, the spread of 4,096 groups to 1 in 100.
    assert (high - low) / (2 * 1.96 * error) == pytest.approx(1, abs=0.15)


@given(st.integers(0, 2**32), st.integers(2, 40))
@settings(max_examples=25, deadline=None)
def test_sequences_of_one_round_are_not_sequences(seed, n):
    generator = np.random.default_rng(seed)
    rewards = generator.random(n)
    alone, named = log_of(rewards), log_of(rewards, generator.permutation(n))
    parts = Parts(generator.random(n), generator.random(n), generator.random(n))
    errors = [standard_error(influences(parts, Clusters(each))) for each in (named, alone)]
    assert errors[0] == pytest.approx(errors[1], rel=1e-12)


def test_rounds_logged_twice_count_once_within_a_sequence():
    rewards = np.random.default_rng(0).random(100)
    once, twice = log_of(rewards), np.repeat(np.arange(100), 2)
    log = sc.BanditLog.from_arrays(
        np.repeat(once.actions, 2), np.repeat(rewards, 2), np.full(200, 0.5), n_actions=2, sequences=twice
    )
    for interval in ("normal", "bootstrap"):
        (one,) = sc.evaluate(once, mostly(0, 100), ("snips",), interval=interval)
        (two,) = sc.evaluate(log, mostly(0, 200), ("snips",), interval=interval)
        assert (two.value, two.low, two.high) == pytest.approx((one.value, one.low, one.high), rel=1e-9)
    (one,) = sc.evaluate(once, mostly(0, 100), ("ips",), interval="bernstein", reward_range=(0, 1))
    (two,) = sc.evaluate(log, mostly(0, 200), ("ips",), interval="bernstein", reward_range=(0, 1))
    assert (two.low, two.high) == pytest.approx((one.low, one.high), rel=1e-9)


def test_the_bernstein_interval_is_its_formula():
    terms = np.random.default_rng(1).random(500) * 3
    low, high = bernstein_interval(terms, (0.0, 4.0), Clusters(log_of(np.ones(500))), 0.9)
    depth = np.log(4 / 0.1)
    radius = np.sqrt(2 * terms.var(ddof=1) * depth / 500) + 7 * 4 * depth / (3 * 499)
    assert (low, high) == pytest.approx((terms.mean() - radius, terms.mean() + radius), rel=1e-12)


@pytest.mark.parametrize("known", [False, True])
def test_bernstein_counts_on_the_largest_weight_that_could_have_been(known):
    """One round could have taken an action 20 times as often as it was; its propensity, 0.95, does not tell."""
    generator, n = np.random.default_rng(3), 400
    logging, probs = np.full((n, 2), 0.5), np.full((n, 2), 0.5)
    logging[7], probs[7] = [0.95, 0.05], [0.0, 1.0]
    actions = generator.integers(2, size=n)
    actions[7] = 0
    rewards = (generator.random(n) < 0.3).astype(float)
    log = sc.BanditLog.from_arrays(
        actions, rewards, logging[np.arange(n), actions], n_actions=2, logging_probs=logging if known else None
    )
    (found,) = sc.evaluate(log, probs, ("ips",), interval="bernstein")
    terms = probs[np.arange(n), actions] / log.propensities * rewards
    depth, largest = np.log(4 / 0.05), 20 if known else 2
    radius = np.sqrt(2 * terms.var(ddof=1) * depth / n) + 7 * largest * depth / (3 * (n - 1))
    # No policy earns less than the least reward.
    assert (found.low, found.high) == pytest.approx((max(terms.mean() - radius, 0), terms.mean() + radius), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "left"),
    [("switch-dr", lambda w: w * (w <= 1.7)), ("dr-os", lambda w: w * 7.0 / (w**2 + 7.0)), ("dr", lambda w: w)],
)
def test_bernstein_counts_on_what_a_setting_leaves_of_any_weight(name, left):
    """The most that it leaves is found by trying all weights that the least propensity, 1/8, allows."""
    generator, n = np.random.default_rng(4), 500
    first = generator.choice([0.125, 0.5, 0.875], size=n)
    actions = (generator.random(n) > first).astype(int)
    propensities = np.where(actions == 0, first, 1 - first)
    log = sc.BanditLog.from_arrays(actions, (generator.random(n) < 0.4).astype(float), propensities, n_actions=2)
    probs, predicted_rewards = mostly(0, n), generator.random((n, 2))
    (found,) = sc.evaluate(
        log, probs, (name,), interval="bernstein", predicted_rewards=predicted_rewards, switch=1.7, shrinkage=7.0
    )
    everyone = np.arange(n)
    w = left(probs[everyone, log.actions] / propensities)
    terms = (probs * predicted_rewards).sum(axis=1) + w * (log.rewards - predicted_rewards[everyone, log.actions])
    most = left(np.linspace(0, 8, 800_001)).max()
    depth = np.log(4 / 0.05)
    radius = np.sqrt(2 * terms.var(ddof=1) * depth / n) + 7 * (1 + 2 * most) * depth / (3 * (n - 1))
    assert (found.low, found.high) == pytest.approx((max(terms.mean() - radius, 0), terms.mean() + radius), rel=1e-5)


@pytest.mark.parametrize("interval", ["bernstein", "sequence"])
@pytest.mark.parametrize("reward_range", [(0.0, 1.0), (-2.0, 3.0), (0.5, 1.0)])
def test_no_interval_leaves_what_a_policy_can_earn(interval, reward_range):
    """Clipped rewards of at least 0.5 may be worth less than that, but not less than 0."""
    generator, (least, most) = np.random.default_rng(0), reward_range
    log = log_of(generator.uniform(max(least, 0.5), min(most, 1), 50))
    (found,) = sc.evaluate(log, mostly(0, 50), ("ips",), interval=interval, reward_range=reward_range, confidence=0.999)
    assert found.low >= min(least, 0)
    assert found.high <= most
    assert found.high == most or found.low == min(least, 0)


def test_a_normal_interval_of_few_rewards_is_reported_as_too_short():
    rewards = np.zeros(1000)
    rewards[[5, 300, 700]] = 1.0
    with pytest.warns(sc.SeachangeWarning, match=r'The effective sample size behind.*pass interval="bootstrap"'):
        sc.evaluate(log_of(rewards), mostly(0, 1000), ("ips",))
    rewards[::10] = 1.0
    sc.evaluate(log_of(rewards), mostly(0, 1000), ("ips",))


def test_the_bernstein_interval_of_snips_ends_where_the_mean_of_w_r_less_v_leaves_its_radius():
    generator = np.random.default_rng(2)
    log = log_of((generator.random(2000) < 0.3).astype(float))
    probs = mostly(0, 2000)
    (found,) = sc.evaluate(log, probs, ("snips",), interval="bernstein")
    w = probs[np.arange(2000), log.actions] / log.propensities
    depth = np.log(4 / 0.05)
    for end in (found.low, found.high):
        terms = w * (log.rewards - end)
        # The least propensity in the log is 1/2, so no weight is taken to be above 2.
        radius = np.sqrt(2 * terms.var(ddof=1) * depth / 2000) + 7 * 2 * depth / (3 * 1999)
        assert abs(terms.mean()) == pytest.approx(radius, rel=1e-6)


def test_the_stitched_boundary_is_the_published_one():
    """Howard et al. (2021), equation 11: 1.7 √(v (log log(2 v) + 0.72 log(5.2 / α))) of the part without scale."""
    v = np.array([10.0, 1e3, 1e5]) * 1e12
    published = 1.7 * np.sqrt(v * (np.log(np.log(2 * v)) + 0.72 * np.log(5.2 / 0.025)))
    assert stitched_boundary(v, 1.0, 0.025) == pytest.approx(published, rel=0.01)


def test_a_confidence_sequence_is_no_wider_for_what_comes_later():
    terms = np.random.default_rng(4).random(300)
    whole = running_interval(terms, (0.0, 1.0), (0.0, 1.0), Clusters(log_of(np.ones(300))), 0.95)
    part = running_interval(terms[:100], (0.0, 1.0), (0.0, 1.0), Clusters(log_of(np.ones(100))), 0.95)
    assert whole.low[:100] == pytest.approx(part.low, rel=1e-12)
    assert whole.high[:100] == pytest.approx(part.high, rel=1e-12)
    assert whole.values == pytest.approx(np.cumsum(terms) / np.arange(1, 301))


def test_the_last_of_what_is_watched_is_the_interval():
    log = log_of((np.random.default_rng(5).random(400) < 0.4).astype(float))
    for name in ("ips", "dr"):
        (estimate,) = sc.evaluate(log, mostly(0, 400), (name,), interval="sequence")
        watched = sc.watch(log, mostly(0, 400), name)
        assert (watched.low[-1], watched.high[-1]) == (estimate.low, estimate.high)
        assert len(watched.values) == 400


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"interval": "magic"}, "interval must be one of normal, bootstrap"),
        ({"interval": "bernstein"}, r"needs reward_range=\(least, most\).*range from"),
        ({"interval": "bernstein", "reward_range": (0, 0.5)}, "must contain all rewards"),
        ({"interval": "sequence", "reward_range": (1, 0)}, r"must be \(least, most\)"),
        ({"interval": "sequence", "reward_range": (0, 1), "estimators": ("snips",)}, "not available for snips"),
        ({"interval": "bernstein", "reward_range": (0, 1), "estimators": ("dm",)}, "not available for dm"),
        ({"interval": "bernstein", "reward_range": (0, 1), "estimators": ("dr-os",)}, "pass shrinkage as a number"),
        (
            {"interval": "bernstein", "reward_range": (0, 1), "predicted_rewards": np.full((50, 2), 2.0)},
            "needs predicted_rewards within reward_range",
        ),
    ],
)
def test_intervals_that_cannot_be_had_are_named(words, message):
    log = log_of(np.linspace(0.1, 0.9, 50))
    with pytest.raises(ParameterError, match=message):
        sc.evaluate(log, mostly(0, 50), **{"estimators": ("dr",), **words})


@pytest.mark.parametrize("interval", INTERVALS)
def test_the_logging_policy_has_every_interval_and_it_is_that_of_weights_of_one(interval):
    log = log_of((np.random.default_rng(6).random(400) < 0.4).astype(float))
    logged = sc.evaluation.evaluate_logging(log, interval=interval)
    (judged,) = sc.evaluate(log, np.full((400, 2), 0.5), ("ips",), interval=interval)
    assert logged.low <= logged.value <= logged.high
    if interval in ("normal", "bootstrap"):
        assert (logged.low, logged.high) == pytest.approx((judged.low, judged.high))
    else:
        # That no weight was above 1 is known of the one and not of the other.
        assert judged.low <= logged.low < logged.high < judged.high
