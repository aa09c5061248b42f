"""The paper's detector against the published algorithm."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.errors import NoChangeWarning, ParameterError, SeachangeWarning

pytestmark = pytest.mark.small


PaperDetector = functools.partial(sc.ChangePointOracle, statistic="reward")


def as_printed(rewards, window, threshold):
    """Algorithm 1 as printed, with rounds 1 … T; returns 0-based first rounds of new segments."""
    horizon = len(rewards)
    reward = dict(enumerate(rewards, 1))
    shift = {}
    for t in range(window + 1, horizon - window + 2):
        before = sum(reward[i] for i in range(t - window, t)) / window
        after = sum(reward[i] for i in range(t, t + window)) / window
        shift[t] = abs(before - after)
    candidates = {t for t in shift if shift[t] >= threshold}
    change_points = set()
    while candidates:
        best = max(candidates, key=lambda t: (round(shift[t], 9), -t))
        candidates -= set(range(best - 2 * window, best + 2 * window + 1))
        change_points.add(best)
    return sorted(t - 1 for t in change_points)


def log_of(rewards):
    n = len(rewards)
    return sc.BanditLog.from_arrays(np.zeros(n), rewards, np.ones(n))


@settings(max_examples=examples(60), deadline=None)
@given(
    rewards=st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=6, max_size=60),
    window=st.integers(1, 6),
    threshold=st.sampled_from([0.1, 0.3, 0.6, 0.9]),
)
@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_change_points_are_those_of_the_printed_algorithm(rewards, window, threshold):
    if 2 * window > len(rewards):
        return
    # Odd thousandths keep ties, where the text does not say which round wins, out of the comparison.
    rewards = [r + 1e-4 * math.sin(7.3 * i * i) for i, r in enumerate(rewards)]
    labels = PaperDetector(window=window, threshold=threshold).fit(log_of(rewards)).predict(log_of(rewards))
    assert labels.change_points.tolist() == as_printed(rewards, window, threshold)


def test_the_change_point_is_the_first_round_of_the_new_segment():
    log = log_of([0.0] * 50 + [1.0] * 50)
    labels = PaperDetector(window=10, threshold=0.5).fit(log).predict(log)
    assert labels.change_points.tolist() == [50]
    assert labels.states.tolist() == [0] * 50 + [1] * 50
    assert labels.expected_stay == 50


def test_segments_with_equal_rewards_share_a_state():
    log = log_of([0.0] * 50 + [1.0] * 50 + [0.0] * 50 + [0.5] * 50)
    labels = PaperDetector(window=10, threshold=0.4, n_states=3).fit(log).predict(log)
    assert labels.change_points.tolist() == [50, 100, 150]
    assert labels.states[[0, 60, 110, 160]].tolist() == [0, 1, 0, 2]


def test_a_later_log_gets_the_states_of_the_first():
    log = log_of([0.0] * 50 + [1.0] * 50)
    later = log_of([0.9] * 60 + [0.1] * 60)
    labels = PaperDetector(window=10, threshold=0.5, n_states=2).fit(log).predict(later)
    assert labels.states[[0, 119]].tolist() == [1, 0]


def test_auto_settings_are_those_of_the_theorem():
    log = log_of(np.resize([0.0, 1.0], 20_000))
    oracle = PaperDetector(min_change=0.5, delta=0.1, reward_range=(0, 1))
    (window,), threshold = oracle.settings_for(log)
    assert window == math.ceil(8 * math.log(16 * 20_000 / 0.1) / 0.5**2)
    assert threshold == 0.25
    assert threshold >= math.sqrt(2 * math.log(8 * 20_000 / 0.1) / window)
    (wider,), _ = PaperDetector(min_change=0.5, delta=0.1, reward_range=(0, 2)).settings_for(log)
    assert wider == math.ceil(4 * 8 * math.log(16 * 20_000 / 0.1) / 0.5**2)


def test_auto_settings_without_min_change_prevent_false_alarms():
    log = log_of(np.resize([0.0, 1.0], 4_000))
    (window,), threshold = PaperDetector(delta=0.05).settings_for(log)
    assert window == 100
    assert 2 * 4_000 * math.exp(-window * threshold**2) == pytest.approx(0.05)


def test_rewards_outside_the_unit_interval_use_their_standard_deviation():
    log = log_of(np.resize([-3.0, 3.0], 4_000))
    _, threshold = PaperDetector().settings_for(log)
    _, unit = PaperDetector(reward_range=(0, 1)).settings_for(log)
    assert threshold == pytest.approx(6 * unit)


def test_no_change_raises_a_warning():
    log = log_of([0.5] * 100)
    with pytest.warns(NoChangeWarning, match="no evidence of change"):
        oracle = PaperDetector(window=10, threshold=0.2).fit(log)
    assert oracle.predict(log).n_states == 1


def test_too_few_distinct_segments_raise_a_warning():
    log = log_of([0.0] * 50 + [1.0] * 50 + [0.0] * 50)
    with pytest.warns(SeachangeWarning, match="the 3 segments of the log form only 2 distinct states"):
        labels = PaperDetector(window=10, threshold=0.5, n_states=3).fit(log).predict(log)
    assert labels.counts.tolist() == [100, 50, 0]


def test_the_value_of_a_state_is_the_mean_reward_of_its_rounds():
    log = log_of([0.0] * 50 + [1.0] * 50 + [0.1] * 150)
    cut = PaperDetector(window=10, threshold=0.5, n_states=2).fit(log).segmentation_
    assert cut.segment_states.tolist() == [0, 1, 0]
    assert cut.state_values == pytest.approx([0.075, 1.0])


@settings(max_examples=examples(60), deadline=None)
@given(
    segments=st.lists(st.tuples(st.integers(15, 120), st.floats(0, 1)), min_size=1, max_size=12),
    noise=st.sampled_from([0.0, 0.1, 0.3]),
    n_states=st.sampled_from(["auto", 1, 2, 3]),
    seed=st.integers(0, 99),
)
@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_predictions_on_the_fitted_log_equal_the_fit(segments, noise, n_states, seed):
    lengths, levels = zip(*segments, strict=True)
    rewards = np.repeat(levels, lengths)
    log = log_of(rewards + noise * np.random.default_rng(seed).normal(size=len(rewards)))
    oracle = PaperDetector(window=7, threshold=0.15, n_states=n_states).fit(log)
    cut, labels = oracle.segmentation_, oracle.predict(log)
    np.testing.assert_array_equal(labels.change_points, cut.change_points)
    np.testing.assert_array_equal(labels.states[cut.segment_starts], cut.segment_states)
    for state in np.unique(labels.states):
        assert cut.state_values[state] == pytest.approx(log.rewards[labels.states == state].mean(), abs=1e-9)


def test_empty_states_keep_their_slots_with_a_warning():
    log = log_of([0.0] * 50 + [1.0] * 50)
    with pytest.warns(SeachangeWarning, match="only 2 segments"):
        labels = PaperDetector(window=10, threshold=0.5, n_states=4).fit(log).predict(log)
    assert labels.n_states == 4
    assert labels.counts.tolist() == [50, 50, 0, 0]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"window": 60}, "window=60 needs at least 120 rounds; the log has 100"),
        ({"window": 0}, "window must be at least 1"),
        ({"threshold": -1.0}, "threshold must be positive"),
        ({"min_change": 0.01}, "larger min_change"),
        ({"delta": 0.0}, "delta must be in"),
        ({"reward_range": (1, 0)}, "reward_range must be"),
    ],
)
def test_invalid_settings_are_named(params, message):
    with pytest.raises(ParameterError, match=message):
        PaperDetector(**params).fit(log_of([0.0] * 50 + [1.0] * 50))


def test_sequences_are_split_separately_and_share_their_states():
    rewards = np.concatenate([[0.0] * 50 + [1.0] * 50, [1.0] * 50 + [0.0] * 50, [1.0] * 10])
    sequences = np.repeat([7, 3, 5], [100, 100, 10])
    mixed = np.argsort(np.concatenate([np.arange(100), np.arange(100), np.arange(10)]), kind="stable")
    together = sc.BanditLog.from_arrays(np.zeros(210), rewards, np.ones(210), sequences=sequences)
    labels = PaperDetector(window=10, threshold=0.5).fit(together).predict(together)
    assert labels.change_points.tolist() == [50, 150]
    assert labels.n_chains == 3
    np.testing.assert_array_equal(labels.states, labels.states[0] ^ rewards.astype(int))
    interleaved = together.take(mixed)
    again = PaperDetector(window=10, threshold=0.5).fit(interleaved).predict(interleaved)
    np.testing.assert_array_equal(again.states, labels.states[mixed])
    assert sorted(mixed[again.change_points].tolist()) == [50, 150]


def test_segments_with_equal_rewards_are_one_state_by_default():
    log = log_of([0.0] * 50 + [1.0] * 50 + [0.0] * 50)
    labels = PaperDetector(window=10, threshold=0.5).fit(log).predict(log)
    assert labels.n_states == 2
    assert labels.states[[0, 60, 110]].tolist() == [0, 1, 0]
    assert labels.change_points.tolist() == [50, 100]


def test_p_values_are_the_bound_on_a_shift_and_intervals_contain_positions():
    log = log_of(np.resize([0.0, 0.1], 100).tolist() + np.resize([0.9, 1.0], 100).tolist())
    cut = PaperDetector(window=20, threshold=0.5).fit(log).segmentation_
    assert cut.p_values == pytest.approx([400 * math.exp(-20 * 0.9**2)])
    assert cut.low[0] <= cut.change_points[0] <= cut.high[0]


def test_a_window_too_short_for_the_theorem_raises_a_warning():
    log = log_of(np.resize([0.0, 1.0], 4_000))
    with pytest.warns(SeachangeWarning, match="Expect false alarms"):
        PaperDetector(window=50, min_change=0.2).settings_for(log)


def test_a_log_too_short_for_any_change_raises_a_warning():
    log = log_of([0.0] * 100 + [1.0] * 100)
    with pytest.warns(NoChangeWarning, match="too short for delta"):
        PaperDetector().fit(log)
