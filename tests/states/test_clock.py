"""States that follow the clock are distinguished from those that do not."""

import numpy as np
import pytest

from seachange.states.labels import clock_of

DAY = 86_400


def times(days, each=200):
    return np.arange(days * each) * (DAY / each) + 12_345 * DAY


def test_three_shifts_per_day_follow_the_hour():
    seconds = times(6)
    shifts = ((seconds % DAY) // (8 * 3_600)).astype(int)
    noisy = np.where(np.random.default_rng(0).random(len(shifts)) < 0.1, 0, shifts)
    clock = clock_of(seconds, noisy)
    assert clock.period == "day"
    assert clock.followed
    assert clock.accuracy == pytest.approx((noisy == shifts).mean())
    assert clock.baseline == (noisy == 0).mean()
    assert "follow the hour of the day: 94% of rounds" in str(clock)


def test_a_weekend_follows_only_the_hour_of_the_week():
    seconds = times(28)
    weekend = ((seconds // DAY) % 7 >= 5).astype(int)
    assert clock_of(seconds, weekend).period == "week"
    assert clock_of(seconds, weekend).followed
    assert not clock_of(seconds[: 9 * 200], weekend[: 9 * 200]).followed


@pytest.mark.parametrize("seed", range(5))
def test_states_that_come_and_go_at_any_hour_do_not_follow_it(seed):
    rng = np.random.default_rng(seed)
    seconds = times(20)
    states = np.cumsum(rng.random(len(seconds)) < 1 / 150) % 3
    assert not clock_of(seconds, states).followed


def test_one_change_in_a_week_does_not_follow_the_clock():
    seconds = times(8)
    assert not clock_of(seconds, (seconds > seconds[700]).astype(int)).followed


def test_two_days_are_too_few():
    assert clock_of(times(2), np.arange(400) % 2) is None


def test_each_day_is_predicted_from_the_others():
    """Every hour has its own state, but a different one each day."""
    seconds = times(3, each=24)
    assert clock_of(seconds, np.arange(72)).accuracy == 0
