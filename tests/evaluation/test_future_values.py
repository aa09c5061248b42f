"""The value at a time to come: OPFV, time features, forecasts."""

from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

import seachange as sc
from seachange.errors import LogError, ParameterError, RefusedError, SeachangeWarning
from seachange.evaluation.over_time import Influences, ValuesOverTime, features_of
from seachange.policies import SoftmaxPolicy
from seachange.simulate import Weekly


def policy_for(env, weekday):
    return SoftmaxPolicy(2.0 * env.coefs[weekday], env.log(0).joint)


def squared_errors(env, n_logs):
    """Mean squared errors by method, over logs and the seven days after them, and z-scores of the future values."""
    policy = policy_for(env, 5)
    truths = [env.value(policy, day) for day in range(7)]
    errors, scores = {name: [] for name in ("opfv", "ips", "window", "half-life")}, []
    for log in map(env.log, range(n_logs)):
        (ips,) = sc.evaluate(log, policy, ("ips",))
        window = sc.evaluate_over_time(log, policy, window="auto", points=1).values[-1]
        fading = sc.evaluate_over_time(log, policy, half_life="auto", points=1).values[-1]
        for day, truth in enumerate(truths):
            later = sc.evaluate_future(log, policy, log.times[-1] + np.timedelta64(day + 1, "D"))
            scores.append((later.value - truth) / later.std_error)
            for name, value in (("opfv", later.value), ("ips", ips.value), ("window", window), ("half-life", fading)):
                errors[name].append((value - truth) ** 2)
    return {name: np.mean(each) for name, each in errors.items()}, np.array(scores)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_future_value_beats_what_forgets_the_rhythm(seed):
    errors, scores = squared_errors(Weekly(seed=seed), 6)
    assert errors["opfv"] < 0.2 * min(errors["ips"], errors["window"], errors["half-life"])
    assert np.sqrt(np.mean(scores**2)) < 1 + 4.5 / np.sqrt(2 * len(scores))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_future_value_beats_what_forgets_the_rhythm_over_100_logs(seed):
    errors, scores = squared_errors(Weekly(seed=seed), 100)
    assert errors["opfv"] < 0.2 * min(errors["ips"], errors["window"], errors["half-life"])
    assert abs(np.mean(np.abs(scores) < 1.96) - 0.95) < 4.5 * np.sqrt(0.05 * 0.95 / len(scores))


def test_without_a_rhythm_it_is_no_worse_than_its_fewer_rounds_make_it():
    env = Weekly(seed=0, rhythm=0.0, weeks=3)
    policy, log = policy_for(env, 0), env.log(0)
    later = sc.evaluate_future(log, policy, log.times[-1] + np.timedelta64(1, "D"))
    assert abs(later.value - env.value(policy, 0)) < 4.5 * later.std_error
    assert later.share == pytest.approx(1 / 7)
    assert later.n_alike == 600


def test_one_label_for_all_times_is_dr(make_log):
    """φ constant: rounds are alike, f̂ corrects r̂ by action means only, and V̂ agrees with DR within both errors."""
    log = replace(make_log("shared", 900, seed=2), times=np.arange(900))
    policy = SoftmaxPolicy(np.eye(3), log.joint)
    later = sc.evaluate_future(log, policy, 10**6, recurs=lambda times: np.zeros(len(times)))
    (dr,) = sc.evaluate(log, policy, ("dr",))
    assert later.value == pytest.approx(dr.value, abs=0.2 * dr.std_error)
    assert later.std_error == pytest.approx(dr.std_error, rel=0.05)
    assert (later.share, later.n_alike) == (1.0, 900)


def test_opfv_is_unbiased_by_enumeration_of_its_formula():
    """E over actions and rewards of one round's term, for any f̂: the value at φ(t') where rounds are alike."""
    logging, target = np.array([0.3, 0.7]), np.array([0.9, 0.1])
    means = np.array([[0.2, 0.6], [0.8, 0.1]])  # by φ and action
    guess = np.array([[0.5, 0.5], [0.3, 0.4]])
    shares = np.array([0.25, 0.75])
    for wanted in (0, 1):
        total = 0.0
        for phi in (0, 1):
            for a in (0, 1):
                alike = (phi == wanted) / shares[wanted]
                term = alike * target[a] / logging[a] * (means[phi, a] - guess[phi, a]) + target @ guess[wanted]
                total += shares[phi] * logging[a] * term
        assert total == pytest.approx(target @ means[wanted], abs=1e-12)


def test_the_estimate_is_its_formula():
    """Against the sums written out, with the same f̂ made by hand for a log without contexts."""
    from seachange.evaluation.future_values import SHRINKAGE
    from seachange.evaluation.terms import FOLDS, RIDGE
    from seachange.log.clusters import Clusters

    generator = np.random.default_rng(0)
    n = 700
    actions, times = generator.integers(2, size=n), np.arange(n) * 7200
    rewards = generator.random(n) + 0.3 * (times // 86_400 % 7 == 2) * actions
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), times=times)
    probs, cells = np.array([0.2, 0.8]), features_of(times, "weekday")
    folds, wanted = Clusters(log).folds(FOLDS), features_of(times[-1] + 86_400, "weekday")[0]
    terms = np.empty(n)
    for i in range(n):
        others = folds != folds[i]
        level = rewards[others].mean()
        mean = np.array([
            level + (rewards[others & (actions == a)] - level).sum() / ((others & (actions == a)).sum() + RIDGE)
            for a in (0, 1)
        ])  # fmt: skip

        def more(phi, a, others=others):
            there = np.flatnonzero(others & (cells == phi) & (actions == a))
            residuals = []
            for j in there:
                inner = folds != folds[j]
                base = rewards[inner].mean()
                own = inner & (actions == a)
                residuals.append(rewards[j] - base - (rewards[own] - base).sum() / (own.sum() + RIDGE))
            return sum(residuals) / (len(there) + SHRINKAGE)

        a = actions[i]
        direct = sum(probs[b] * (mean[b] + more(wanted, b)) for b in (0, 1)) if i % 50 == 0 else np.nan
        if i % 50 == 0:
            alike = (cells[i] == wanted) / (cells == wanted).mean()
            terms[i] = alike * probs[a] / 0.5 * (rewards[i] - mean[a] - more(cells[i], a)) + direct
    from seachange.evaluation.future_values import _similar_times, _terms

    tiled = np.tile(probs, (n, 1))
    cells, future, alike = _similar_times(log.times, np.array([times[-1] + 86_400]), "weekday")
    weights, residuals, direct, _ = _terms(log, tiled, None, cells, future, alike)
    ours = alike * weights * residuals + direct
    np.testing.assert_allclose(ours[::50], terms[::50], atol=1e-10)
    assert sc.evaluate_future(log, tiled, times[-1] + 86_400).value == pytest.approx(ours.mean(), abs=1e-12)


def test_several_times_are_their_mean():
    env = Weekly(seed=0, weeks=3)
    log, policy = env.log(0), policy_for(env, 2)
    days = log.times[-1] + np.arange(1, 8).astype("timedelta64[D]")
    each = [sc.evaluate_future(log, policy, day).value for day in days]
    week = sc.evaluate_future(log, policy, days)
    assert week.value == pytest.approx(np.mean(each), abs=1e-10)
    assert week.share == 1.0


def test_contexts_that_follow_the_rhythm_are_noticed():
    generator = np.random.default_rng(0)
    n = 7 * 2 * 200
    times = np.datetime64("2026-01-05") + (np.arange(n) * 432).astype("timedelta64[s]")
    contexts = generator.normal(size=(n, 1)) + (features_of(times, "weekday") == 6)[:, None]
    actions = generator.integers(2, size=n)
    rewards = contexts[:, 0] * np.where(actions, 1.0, -1.0) + generator.normal(0, 0.1, n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), contexts=contexts, times=times)
    policy = np.tile([0.1, 0.9], (n, 1))
    sunday = np.datetime64("2026-01-25T12:00")
    told = sc.evaluate_future(log, policy, sunday)
    few = "Only 2 past times match, too few to measure how they vary, so the interval reflects only "
    few += "the noise in rewards. Use a longer log."
    words = "Contexts at that time differ from those of all rounds; this value assumes those of all rounds."
    assert told.notes == (words, few)
    alike = sc.evaluate_future(log, policy, sunday, contexts="alike")
    assert alike.notes == (few,)
    assert abs(alike.value - 0.8) < 4.5 * alike.std_error


def test_contexts_that_do_not_matter_are_not_noticed(make_log):
    """All actions earn alike: what is expected of rounds differs by rounding only."""
    log = replace(make_log("shared", 1500).with_rewards(np.full(1500, 0.3)), times=np.arange(1500) * 3600)
    told = sc.evaluate_future(log, np.full((1500, 3), 1 / 3), 7 * 86_400 * 10)
    assert (told.value, told.notes) == (pytest.approx(0.3), ())


@pytest.mark.parametrize("contextual", [False, True], ids=["without contexts", "with the same contexts at all times"])
@pytest.mark.parametrize("recurs", ["hour", "weekday"])
def test_contexts_that_do_not_differ_are_not_noticed(contextual, recurs):
    """Folds are blocks of time with reward models of their own; that is not a difference between contexts."""
    for seed in range(8):
        generator = np.random.default_rng(seed)
        actions, times = generator.integers(3, size=2000), np.arange(2000) * 900
        rewards = 0.2 * actions * (times // 3600 % 24 < 12) + generator.normal(0, 0.5, 2000)
        more = {"contexts": generator.normal(size=(2000, 2))} if contextual else {}
        log = sc.BanditLog.from_arrays(actions, rewards, np.full(2000, 1 / 3), times=times, **more)
        future = sc.evaluate_future(log, np.tile([0.1, 0.3, 0.6], (2000, 1)), times[-1] + 86_400, recurs=recurs)
        assert not any("Contexts" in note for note in future.notes)


def test_a_policy_for_each_state_is_judged_by_labels(make_log):
    """Two states that labels tell apart are the one policy that does the same in each round."""
    from seachange.states.labels import StateLabels

    log = replace(make_log("none", 700), times=np.arange(700) * 3600)
    states, probs = np.arange(700) // 350, np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    labels, joint = StateLabels(states, 2, np.array([350])), log.joint
    policies = sc.PolicySet(tuple(SoftmaxPolicy(np.log(each)[:, None], joint) for each in probs))
    ours = sc.evaluate_future(log, policies, 86_400, labels=labels)
    plain = sc.evaluate_future(log, probs[states], 86_400)
    assert ours.effective_samples == pytest.approx(plain.effective_samples)
    # The reward models differ: one for each state, and one for both.
    assert ours.value == pytest.approx(plain.value, abs=0.5 * plain.std_error)
    with pytest.raises(ParameterError, match="a PolicySet needs labels"):
        sc.evaluate_future(log, policies, 86_400)


def test_time_features():
    monday = np.datetime64("2026-01-05T13:30")
    assert features_of(monday, "weekday").tolist() == [0]
    assert features_of(monday, "hour").tolist() == [13]
    assert features_of(monday + np.timedelta64(6, "D"), "hour of the week").tolist() == [6 * 24 + 13]
    assert features_of(0, "weekday").tolist() == [3]
    with pytest.raises(ParameterError, match="recurs must be a function or one of hour, weekday"):
        features_of(0, "month")
    with pytest.raises(ParameterError, match="one label per time"):
        features_of([0, 1], lambda times: 3)


def test_what_the_log_cannot_tell_is_refused(make_log):
    log = make_log("none", 200)
    policy = np.tile([0.2, 0.3, 0.5], (200, 1))
    with pytest.raises(LogError, match="needs the times of the rounds"):
        sc.evaluate_future(log, policy, 0)
    timed = replace(log, times=np.arange(200) * 60)
    with pytest.raises(RefusedError, match=r"no rounds with the weekday 5; it has 3"):
        sc.evaluate_future(timed, policy, 2 * 86_400)
    rare = np.tile([1.0, 0.0, 0.0], (200, 1))
    with pytest.raises(RefusedError, match="at least 30 are needed"):
        sc.evaluate_future(timed, rare, 86_400 * 7 + 3600, recurs="hour")
    with pytest.warns(SeachangeWarning, match=r"Forced .*sample size is 17.0 of 60 rounds; at least 30 are needed"):
        forced = sc.evaluate_future(timed, rare, 86_400 * 7 + 3600, recurs="hour", force=True)
    assert np.isfinite(forced.std_error)


def series(values, errors):
    n, none = len(values), np.zeros(len(values))
    return ValuesOverTime(
        "dr", np.arange(n), None, values, errors, none, none, none, None, None, "", 0.95, np.arange(n)
    )


def generated(kind, n, generator):
    """Values of n + 1 periods."""
    places = np.arange(n + 1)
    if kind == "level":
        return np.full(n + 1, 0.5)
    if kind == "line":
        return 0.3 + 0.01 * places
    if kind == "walk":
        return 0.5 + np.cumsum(generator.normal(0, 0.03, n + 1))
    if kind == "restless":
        return 0.5 + generator.normal(0, 0.03, n + 1)
    return 0.5 + 0.1 * np.sin(2 * np.pi * places / 7) + 0.03 * np.cos(4 * np.pi * places / 7)


def coverage(kind, n, runs, seed=0):
    generator, covered = np.random.default_rng(seed), []
    for _ in range(runs):
        values, errors = generated(kind, n, generator), 0.02 * generator.uniform(0.7, 1.4, n)
        past = series(values[:n] + generator.normal(0, errors), errors)
        told = sc.forecast(past, season=7 if kind == "week" else None)
        covered.append(told.low <= values[n] <= told.high)
    return np.mean(covered)


@pytest.mark.parametrize("kind", ["level", "line", "walk", "restless", "week"])
def test_forecasts_cover_the_value_to_come(kind):
    # 95 %, less what 60 runs may be off by.
    assert coverage(kind, 24, 60) > 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / 60)


@pytest.mark.long
@pytest.mark.parametrize("n", [14, 30])
@pytest.mark.parametrize("kind", ["level", "line", "walk", "restless", "week"])
def test_forecasts_cover_the_value_to_come_over_1000_series(kind, n):
    # Short series of noisy estimates cover a little less than they say: no less than nine in ten.
    assert coverage(kind, n, 1000) > (0.90 if n < 20 else 0.92)


def test_a_line_without_noise_goes_on():
    past = series(0.2 + 0.01 * np.arange(20), np.full(20, 1e-9))
    for ahead in (1, 5):
        told = sc.forecast(past, ahead)
        assert told.value == pytest.approx(0.2 + 0.01 * (19 + ahead), abs=1e-6)
        assert told.degree == 1


def test_a_season_goes_on():
    values = 0.5 + 0.1 * np.sin(2 * np.pi * np.arange(35) / 7)
    told = sc.forecast(series(values[:30], np.full(30, 1e-6)), 3, season=7)
    assert told.value == pytest.approx(values[32], abs=1e-4)


def test_a_forecast_of_a_log_is_of_its_next_day():
    env = Weekly(seed=3, weeks=5)
    log, policy = env.log(0), policy_for(env, 3)
    days = sc.evaluate_by_period(log, policy, "day")
    told = sc.forecast(days, season=7)
    assert told.n_periods == 35
    assert told.low < env.value(policy, 0) < told.high


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_no_more_than_half_of_what_was_missed_is_taken_for_noise(share):
    """s² is what was missed less the noise of the estimates, here a ``share`` of it, and at least half of it."""
    values = 0.5 + 0.02 * np.random.default_rng(1).normal(size=40)
    missed = sc.forecast(series(values, np.full(40, 1e-9))).past_error
    told = sc.forecast(series(values, np.full(40, np.sqrt(share) * missed)))
    assert told.past_error == missed
    assert told.std_error == pytest.approx(np.sqrt(max(1 - share, 0.5)) * missed, rel=1e-9)


def test_what_sequences_do_to_several_periods_is_counted_once_more():
    """s² grows by Σ_g (Σ_i pull_i m_gi)² - Σ_gi (pull_i m_gi)², here of a plain mean of 20 periods by two sequences."""
    moves = np.array([[0.03, -0.03]] * 20)
    values, errors = np.where(np.arange(20) % 2, 0.52, 0.48), np.sqrt(np.square(moves).sum(axis=1))
    plain = series(values, errors)
    shared = replace(plain, influences=Influences(np.repeat(np.arange(20), 2), np.tile([0, 1], 20), moves.ravel()))
    one, two = sc.forecast(plain), sc.forecast(shared)
    assert (two.value, two.past_error, two.degree, two.fade) == (one.value, one.past_error, 0, 1.0)
    common = 2 * 0.03**2 * (1 - 1 / 20)
    noise = max(errors[0] ** 2 - common, 0)
    unexplained = max(two.past_error**2 - noise, 0.5 * two.past_error**2, errors[0] ** 2 / 20)
    assert two.std_error == pytest.approx(np.sqrt(unexplained + common), rel=1e-7)
    assert two.std_error > 1.5 * one.std_error


def test_too_few_periods_are_refused():
    with pytest.raises(
        RefusedError, match=r"No forecast\. A forecast needs 8 past periods with a value, and there are 4"
    ):
        sc.forecast(series(np.arange(4.0), np.ones(4)))
    unknown = series(np.arange(9.0), np.append(np.ones(6), [np.inf] * 3))
    with pytest.raises(RefusedError, match=r"there are 6 \(3 more have too few rounds; longer periods"):
        sc.forecast(unknown)
    with pytest.raises(ParameterError, match="season must be at least 2"):
        sc.forecast(series(np.arange(40.0), np.ones(40)), season=1)


def test_a_time_to_come_may_be_text_or_a_date_of_python():
    env = Weekly(seed=0)
    log, policy = env.log(0), policy_for(env, 5)
    expected = sc.evaluate_future(log, policy, np.datetime64("2026-03-28T12:00")).value
    noon = datetime(2026, 3, 28, 12)
    for at in (
        "2026-03-28T12:00",
        ["2026-03-28 12:00"],
        "2026-03-28T14:00+02:00",
        "2026-03-28T12:00Z",
        noon,
        noon.date(),
    ):
        assert sc.evaluate_future(log, policy, at).value == expected
    # At the end of a day, a zone decides which day it is.
    assert sc.evaluate_future(log, policy, "2026-03-28T23:00-02:00").value != expected
    for at in ("tomorrow", None, "", [object()]):
        with pytest.raises(ParameterError, match="times must be dates such as 2026-03-28T12:00"):
            sc.evaluate_future(log, policy, at)


@pytest.mark.parametrize("past", [[0.1, 0.2], None, np.ones(3)])
def test_a_forecast_of_the_wrong_values_names_the_right_function(past):
    with pytest.raises(ParameterError, match=r"got a (list|NoneType|ndarray)\. Get them from sc\.evaluate_by_period"):
        sc.forecast(past)
