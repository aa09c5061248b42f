"""Values along a log: windows, fading, periods, by the sums they are."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from seachange.errors import LogError, ParameterError
from seachange.evaluation.over_time import known_errors


class Fixed:
    """The same probabilities in every round."""

    def __init__(self, *probs):
        self.probs = np.array(probs)

    def predict_proba(self, contexts, action_mask=None):
        return np.tile(self.probs, (len(contexts), 1))


POLICY = Fixed(0.2, 0.3, 0.5)


def brute_force(above, below, shares):
    """Value and standard error of Σ u above / Σ u below, without the correction for few rounds."""
    value = (shares @ above) / (shares @ below)
    return value, np.sqrt(np.sum(np.square(shares * (above - value * below)))) / (shares @ below)


def terms(log, estimator):
    weights = POLICY.probs[log.actions] / log.propensities
    return (weights * log.rewards, weights) if estimator == "snips" else (weights * log.rewards, np.ones(len(log)))


@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("setting", [{"window": 37}, {"half_life": 25.0}, {"window": 500}], ids=str)
def test_values_are_the_weighted_means_they_say(make_log, estimator, setting):
    log = make_log("none", 200, seed=1)
    found = sc.evaluate_over_time(log, POLICY, estimator, points=200, **setting)
    assert found.rounds.tolist() == list(range(200))
    above, below = terms(log, estimator)
    for t in (40, 41, 77, 130, 199):
        ages = t - np.arange(t + 1)
        shares = 1.0 * (ages < setting["window"]) if "window" in setting else 0.5 ** (ages / setting["half_life"])
        value, error = brute_force(above[: t + 1], below[: t + 1], shares)
        heard = shares * (POLICY.probs[log.actions] / log.propensities)[: t + 1]
        effective = heard.sum() ** 2 / np.square(heard).sum()
        assert found.values[t] == pytest.approx(value, abs=1e-10)
        assert found.effective_samples[t] == pytest.approx(effective, rel=1e-9)
        assert found.std_errors[t] == pytest.approx(known_errors(error, np.array(effective)), rel=1e-7)
        assert found.high[t] - found.values[t] == pytest.approx(1.959964 * found.std_errors[t], rel=1e-6)


def test_a_window_of_the_whole_log_is_evaluate(make_log):
    log = make_log("shared", 600, seed=2)
    for name in ("ips", "snips", "dr"):
        (whole,) = sc.evaluate(log, POLICY, (name,))
        last = sc.evaluate_over_time(log, POLICY, name, window=600)
        assert last.values[-1] == pytest.approx(whole.value, abs=1e-10)
        assert last.std_errors[-1] == pytest.approx(whole.std_error, rel=5e-3)
        period = sc.evaluate_by_period(log, POLICY, 600, name)
        assert period.values.tolist() == pytest.approx([whole.value], abs=1e-10)


@given(st.integers(1, 60), st.integers(2, 60))
@settings(max_examples=20, deadline=None)
def test_periods_are_logs_of_their_own(length, n):
    from conftest import build_log

    log = build_log("none", n, seed=n)
    found = sc.evaluate_by_period(log, POLICY, length, "snips")
    above, below = terms(log, "snips")
    for i, start in enumerate(range(0, n, length)):
        part = slice(start, min(start + length, n))
        assert found.rounds[i] == part.stop - 1
        assert found.values[i] == pytest.approx(above[part].sum() / below[part].sum(), abs=1e-10)
    assert found.periods.tolist() == list(range(len(found.values)))


def test_auto_forgets_where_the_world_changes_and_not_where_it_stays():
    states = np.arange(20_000) // 1_000 % 2
    means = np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
    changing = sc.simulate.Synthetic(
        n_actions=3, n_states=2, horizon=20_000, states=states, mean_rewards=means, noise=0.3
    )
    staying = sc.simulate.Synthetic(n_actions=3, n_states=1, horizon=20_000, mean_rewards=means[:1], noise=0.3)
    for name in ("window", "half_life"):
        short = sc.evaluate_over_time(changing.log(0), POLICY, **{name: "auto"})
        assert getattr(short, name) < 1_000
        assert "better than the whole log" in short.reason
        lengths = [getattr(sc.evaluate_over_time(staying.log(s), POLICY, **{name: "auto"}), name) for s in range(10)]
        assert np.median(lengths) >= 10_000
    truth = (POLICY.probs @ means.T)[states]
    short = sc.evaluate_over_time(changing.log(0), POLICY)
    # The chosen window is near the value of its time, and nearer than an average over the whole log.
    error = np.mean(np.square(short.values - truth[short.rounds]))
    assert error < 0.25 * np.mean(np.square(truth.mean() - truth[short.rounds]))


def test_intervals_cover_a_value_that_stays():
    env = sc.simulate.Synthetic(n_actions=3, n_states=1, horizon=4_000, mean_rewards=[[0.9, 0.5, 0.1]])
    truth = POLICY.probs @ np.array([0.9, 0.5, 0.1])
    covered = []
    for run in range(120):
        found = sc.evaluate_over_time(env.log(run), POLICY, window=500, points=8)
        covered += ((found.low <= truth) & (truth <= found.high)).tolist()
    # Eight windows of 500 rounds that do not overlap: independent.
    assert abs(np.mean(covered) - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / len(covered))


def test_time_decides_the_order_where_sequences_lie_side_by_side(make_log):
    log = make_log("none", 300, seed=3)
    times = np.arange(300) * 60
    plain = sc.evaluate_over_time(log, POLICY, "ips", window=30)
    apart = np.argsort(np.arange(300) % 2, kind="stable")
    mixed = replace(log, times=times, sequences=np.arange(300) % 2).take(apart)
    assert np.array_equal(sc.evaluate_over_time(mixed, POLICY, "ips", window=30).values, plain.values)
    with pytest.raises(LogError, match="need times where the log has sequences"):
        sc.evaluate_over_time(replace(log, sequences=np.arange(300) % 2), POLICY)


def test_periods_by_the_calendar(make_log):
    # Monday the 5th of January 2026, 22:00; an hour a round.
    times = np.datetime64("2026-01-05T22:00") + np.arange(24 * 9).astype("timedelta64[h]")
    log = replace(make_log("none", 24 * 9), times=times)
    days, weeks = (sc.evaluate_by_period(log, POLICY, period, "ips") for period in ("day", "week"))
    assert days.rounds.tolist()[:3] == [1, 25, 49]
    assert weeks.rounds.tolist() == [24 * 6 + 1, 24 * 9 - 1]
    late = log.take(np.flatnonzero((np.arange(len(log)) < 26) | (np.arange(len(log)) >= 50)))
    assert sc.evaluate_by_period(late, POLICY, "day", "ips").periods.tolist() == [0, 1, *range(3, 10)]
    with pytest.raises(LogError, match="needs the times of the rounds"):
        sc.evaluate_by_period(make_log("none", 100), POLICY, "day")


def test_nothing_is_claimed_of_windows_that_do_not_speak_for_the_policy(make_log):
    log = make_log("none", 90)
    only = log.take(np.flatnonzero(log.actions < 2))
    found = sc.evaluate_over_time(only, Fixed(0.0, 0.0, 1.0), "snips", window=10)
    assert np.isinf(found.std_errors).all()
    assert not np.isnan(found.values).any()


def test_bad_settings_are_refused(make_log):
    log = make_log("none", 90)
    for bad, message in (
        ({"window": 5, "half_life": 3.0}, "give window or half_life, not both"),
        ({"window": 0}, "window must be at least 1"),
        ({"half_life": -1.0}, "half_life must be positive"),
        ({"estimator": "magic"}, 'estimator must be "ips", "snips" or "dr"'),
        ({"points": 0}, "points must be at least 1"),
        ({"confidence": 2.0}, "confidence must be between"),
    ):
        with pytest.raises(ParameterError, match=message):
            sc.evaluate_over_time(log, POLICY, **bad)
    with pytest.raises(ParameterError, match="period must be a number of rounds or one of hour, day, week"):
        sc.evaluate_by_period(log, POLICY, "month")
