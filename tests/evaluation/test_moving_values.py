"""Values along a log: windows, fading, periods, by the sums they are."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

import seachange as sc
from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.kernels.action_probs import clustered_products


class Fixed:
    """The same probabilities in every round."""

    def __init__(self, *probs):
        self.probs = np.array(probs)

    def predict_proba(self, contexts, action_mask=None):
        return np.tile(self.probs, (len(contexts), 1))


POLICY = Fixed(0.2, 0.3, 0.5)


def brute_force(above, below, weights, shares, places):
    """Value, standard error, reach of a 95 % interval and effective rounds of Σ u above / Σ u below, by the sums."""
    value, heard = (shares @ above) / (shares @ below), shares * weights
    moves = shares * (above - value * below) / (shares @ below)
    together = [moves[places == g].sum() for g in np.unique(places)]
    speaking = np.array([heard[places == g].sum() for g in np.unique(places)])
    independent = speaking.sum() ** 2 / np.square(speaking).sum()
    error = np.sqrt(np.sum(np.square(together)) * independent / (independent - 1))
    return value, error, student.ppf(0.975, independent - 1) * error, heard.sum() ** 2 / np.square(heard).sum()


def terms(log, estimator):
    weights = POLICY.probs[log.actions] / log.propensities
    return weights * log.rewards, weights if estimator == "snips" else np.ones(len(log)), weights


def of_users(n, seed=1, n_users=7):
    """A log of users side by side, with the user of each round."""
    from conftest import build_log

    users = np.random.default_rng(seed).integers(n_users, size=n)
    return build_log("none", n, seed=seed, sequences=users, times=np.arange(n)), users


@pytest.mark.parametrize("users", [False, True])
@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("setting", [{"window": 37}, {"half_life": 25.0}, {"window": 500}], ids=str)
def test_values_are_the_weighted_means_they_say(make_log, estimator, setting, users):
    log, places = of_users(200) if users else (make_log("none", 200, seed=1), np.arange(200))
    found = sc.evaluate_over_time(log, POLICY, estimator, points=200, **setting)
    assert found.rounds.tolist() == list(range(200))
    above, below, weights = terms(log, estimator)
    for t in (40, 41, 77, 130, 199):
        ages = t - np.arange(t + 1)
        shares = 1.0 * (ages < setting["window"]) if "window" in setting else 0.5 ** (ages / setting["half_life"])
        until = slice(0, t + 1)
        value, error, reach, effective = brute_force(above[until], below[until], weights[until], shares, places[until])
        assert found.values[t] == pytest.approx(value, abs=1e-10)
        assert found.effective_samples[t] == pytest.approx(effective, rel=1e-9)
        assert found.std_errors[t] == pytest.approx(error, rel=1e-7)
        assert found.high[t] - found.values[t] == pytest.approx(reach, rel=1e-6)
        assert found.values[t] - found.low[t] == pytest.approx(reach, rel=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.floats(-3, 3), st.floats(-3, 3)), min_size=1, max_size=40),
    st.integers(1, 45), st.sampled_from([1.0, 0.9, 0.3]),
)  # fmt: skip
@pytest.mark.small
@settings(max_examples=60, deadline=None)
def test_products_of_sums_are_kept_along_the_way(rounds, window, fade):
    places, first, second = (np.array(column) for column in zip(*rounds, strict=True))
    found = clustered_products(places, 5, first, second, fade, window)
    for t in range(len(rounds)):
        s = np.arange(max(t - window + 1, 0), t + 1)
        sums = [np.bincount(places[s], fade ** (t - s) * each[s], minlength=5) for each in (first, second)]
        assert found[t] == pytest.approx(sums[0] @ sums[1], abs=1e-10)


def test_five_rounds_have_the_error_of_a_mean_of_five():
    """Where the policy is that of the log, weights are 1 and a period is a sample: its error, with m - 1 below."""
    from conftest import build_log

    log = build_log("none", 60)
    uniform = Fixed(1 / 3, 1 / 3, 1 / 3)
    for found in (sc.evaluate_by_period(log, uniform, 5, "ips"), sc.evaluate_over_time(log, uniform, "ips", window=5)):
        for i, last in enumerate(found.rounds):
            rewards = log.rewards[last - 4 : last + 1]
            if len(rewards) == 5:
                error = rewards.std(ddof=1) / np.sqrt(5)
                assert found.std_errors[i] == pytest.approx(error, abs=1e-7)
                assert found.high[i] - found.values[i] == pytest.approx(student.ppf(0.975, 4) * error, abs=1e-6)


@given(st.integers(5, 60), st.integers(2, 60))
@settings(max_examples=20, deadline=None)
def test_periods_count_the_rounds_of_a_user_together(length, n):
    log, users = of_users(n, seed=n)
    above, below, weights = terms(log, "snips")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        found = sc.evaluate_by_period(log, POLICY, length, "snips", force=True)
    for i, start in enumerate(range(0, n, length)):
        part = slice(start, min(start + length, n))
        shares = np.ones(part.stop - start)
        if np.isinf(found.std_errors[i]):
            continue
        value, error, reach, _ = brute_force(above[part], below[part], weights[part], shares, users[part])
        assert found.values[i] == pytest.approx(value, abs=1e-10)
        assert found.std_errors[i] == pytest.approx(error, abs=1e-10)
        assert found.high[i] == pytest.approx(value + reach, abs=1e-9)
        moved = found.influences.influences[found.influences.values == i]
        assert len(moved) == len(np.unique(users[part]))
        speaking = np.bincount(users[part], weights[part])
        independent = speaking.sum() ** 2 / np.square(speaking).sum()
        assert np.sqrt(np.sum(moved**2) * independent / (independent - 1)) == pytest.approx(error, abs=1e-10)


def test_one_user_has_no_others_to_be_compared_with():
    log, _ = of_users(200, n_users=1)
    (whole,) = sc.evaluate(log, POLICY, ("ips",))
    for found in (
        sc.evaluate_over_time(log, POLICY, "ips", window=50),
        sc.evaluate_over_time(log, POLICY, "ips", half_life=50.0),
        sc.evaluate_by_period(log, POLICY, 50, "ips"),
    ):
        assert np.isinf(whole.std_error)
        assert np.isinf(found.std_errors).all()
        assert np.isfinite(found.values).all()


def world_of_users(seed, n_users=100, per_user=20):
    """Users who click more or less readily, side by side; whatever is shown earns 0.5 on average."""
    generator = np.random.default_rng(seed)
    n = n_users * per_user
    users, readiness = generator.permutation(np.repeat(np.arange(n_users), per_user)), generator.random(n_users)
    clicks = (generator.random(n) < readiness[users]).astype(float)
    return sc.BanditLog.from_arrays(
        generator.integers(2, size=n), clicks, np.full(n, 0.5), sequences=users, times=np.arange(n) * 60
    )


def shares_covered(n_logs):
    """How many of 95 % intervals hold 0.5, by judge."""
    covered = {}
    for log in map(world_of_users, range(n_logs)):
        n = len(log)
        either = np.full((n, 2), 0.5)
        for name, found in {
            "window": sc.evaluate_over_time(log, either, window=n, points=1),
            "half": sc.evaluate_over_time(log, either, window=n // 2, points=1),
            "half-life": sc.evaluate_over_time(log, either, half_life=n / 3, points=1),
            "snips": sc.evaluate_by_period(log, either, n // 2, "snips"),
            "period": sc.evaluate_by_period(log, either, n),
            "forecast": sc.forecast(sc.evaluate_by_period(log, either, n // 20)),
        }.items():
            covered.setdefault(name, []).append(float(np.mean((found.low <= 0.5) & (found.high >= 0.5))))
    return {name: np.mean(each) for name, each in covered.items()}


def assert_covered(shares, n_logs):
    for name, share in shares.items():
        error = np.sqrt(0.95 * 0.05 / n_logs)
        assert share > 0.95 - 4.5 * error, name
        # Forecasts add what users do to all periods to what past forecasts missed, which may be too much.
        assert share < 0.95 + 4.5 * error or name == "forecast", name


def test_intervals_cover_where_rounds_of_a_user_depend_on_each_other():
    assert_covered(shares_covered(40), 40)


@pytest.mark.long
def test_intervals_cover_where_rounds_of_a_user_depend_on_each_other_over_300_logs():
    assert_covered(shares_covered(300), 300)


@pytest.mark.long
def test_forecasts_cover_what_users_do_to_all_periods():
    """With a hundred rounds a user nearly all error is common to all periods."""
    covered = []
    for seed in range(200):
        log = world_of_users(seed, per_user=100)
        told = sc.forecast(sc.evaluate_by_period(log, np.full((len(log), 2), 0.5), len(log) // 20))
        covered.append(told.low <= 0.5 <= told.high)
    assert np.mean(covered) > 0.92


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        found = sc.evaluate_by_period(log, POLICY, length, "snips", force=True)
    above, below, _ = terms(log, "snips")
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
    with pytest.raises(LogError, match="with sequences needs the times of the rounds"):
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
    with pytest.warns(SeachangeWarning, match="Forced"):
        found = sc.evaluate_over_time(only, Fixed(0.0, 0.0, 1.0), "snips", window=10, force=True)
    assert np.isinf(found.std_errors).all()
    assert not np.isnan(found.values).any()


def test_a_window_without_weight_after_one_with_much_is_empty():
    actions = np.repeat([0, 1, 0], 100)
    log = sc.BanditLog.from_arrays(actions, np.linspace(0.1, 0.9, 300), np.full(300, 0.7), n_actions=2)
    found = sc.evaluate_over_time(log, np.tile([1.0, 0.0], (300, 1)), "snips", window=20, points=300)
    empty = (found.rounds >= 119) & (found.rounds < 200)
    assert np.isinf(found.std_errors[empty]).all()
    assert (found.effective_samples[empty] == 0).all()
    assert np.abs(found.values).max() < 1


def test_bad_settings_are_refused(make_log):
    log = make_log("none", 90)
    for bad, message in (
        ({"window": 5, "half_life": 3.0}, "pass window or half_life, not both"),
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
