"""Every judge asks the same of the log and of the policy, in the same words, before it answers."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError, RefusedError, SeachangeWarning

N = 3_000
MONDAY = np.datetime64("2026-01-05T00:00")


class Fixed:
    """The same probabilities in every round."""

    def __init__(self, probs):
        self.probs = np.array(probs)

    def predict_proba(self, contexts, action_mask=None):
        return np.tile(self.probs, (len(contexts), 1))


def log_of_three(known=False):
    """Four actions, of which the log took three; with ``known`` it says that it could not take the fourth."""
    generator = np.random.default_rng(0)
    probs = np.tile([1 / 3, 1 / 3, 1 / 3, 0.0], (N, 1))
    return sc.BanditLog.from_arrays(
        generator.integers(3, size=N), generator.random(N), np.full(N, 1 / 3), n_actions=4,
        contexts=generator.normal(size=(N, 1)), times=MONDAY + np.arange(N) * np.timedelta64(10, "m"),
        logging_probs=probs if known else None,
    )  # fmt: skip


JUDGES = {
    "evaluate": lambda log, policy, **force: sc.evaluate(log, policy, ("dr",), **force)[0],
    "over time": lambda log, policy, **force: sc.evaluate_over_time(log, policy, window=1_000, **force),
    "by snips over time": lambda log, policy, **force: sc.evaluate_over_time(log, policy, "snips", **force),
    "by period": lambda log, policy, **force: sc.evaluate_by_period(log, policy, "day", **force),
    "forecast": lambda log, policy, **force: sc.forecast(sc.evaluate_by_period(log, policy, "day", **force)),
    "future": lambda log, policy, **force: sc.evaluate_future(log, policy, log.times[-1], **force),
    "replay": lambda log, policy, **force: sc.evaluate_online(log, sc.SinglePolicy(policy), **force),
    "dr-ns": lambda log, policy, **force: sc.evaluate_online(log, sc.SinglePolicy(policy), "dr-ns", **force),
}


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("known", [False, True])
def test_a_policy_that_the_log_cannot_support_is_refused_unless_forced(judge, known):
    log, half = log_of_three(known), Fixed([0.5, 0.0, 0.0, 0.5])
    asked = (
        "50.0% of its rounds on actions that the log could not take"
        if known
        else r"50% of its choices are actions that the log never took"
    )
    with pytest.raises(RefusedError, match=rf"^No estimate\. .*{asked}.*Pass force=True to get the numbers anyway\.$"):
        JUDGES[judge](log, half)
    with pytest.warns(SeachangeWarning, match=f"^Forced estimate, not reliable. .*{asked}") as warned:
        forced = JUDGES[judge](log, half, force=True)
    assert all(each.filename == __file__ for each in warned)
    assert not np.isnan(forced.low).any()
    JUDGES[judge](log, Fixed([0.5, 0.2, 0.3, 0.0]))


@pytest.mark.parametrize("judge", JUDGES)
@pytest.mark.parametrize("probs", [[0.75, 0, 0, 0.75], [1.5, -0.5, 0, 0], [np.nan, 0, 0, 1]], ids=str)
def test_invalid_probabilities_are_refused(judge, probs):
    with pytest.raises(ParameterError, match="probabilities must be at least 0 and sum to 1; in row 0 the smallest"):
        JUDGES[judge](log_of_three(), Fixed(probs))


def test_one_expert_without_probabilities_is_enough():
    policies = sc.PolicySet((Fixed([0.5, 0.2, 0.3, 0.0]), Fixed([0.9, 0.2, 0.3, 0.0])))
    for method in ("replay", "dr-ns"):
        with pytest.raises(ParameterError, match=r"in row 0 the smallest is 0 and they sum to 1\.4"):
            sc.evaluate_online(log_of_three(), sc.Exp4S(policies, expected_stay=100), method)


def test_where_no_round_speaks_nothing_is_claimed():
    log, never = log_of_three(), Fixed([0.0, 0.0, 0.0, 1.0])
    for judge in ("evaluate", "over time", "by period", "future"):
        with pytest.warns(SeachangeWarning, match="Forced"):
            forced = JUDGES[judge](log, never, force=True)
        assert np.isneginf(forced.low).all()
        assert np.isposinf(forced.high).all()
        assert np.all(forced.effective_samples == 0)
    for judge in ("replay", "dr-ns"):
        fix = r"use a deployment whose actions the log took \(it never took action 3\)"
        with pytest.raises(RefusedError, match=rf"Only 0 of 3,000 rounds are accepted .*To fix this, {fix}"):
            JUDGES[judge](log, never, force=True)


def test_a_time_to_come_asks_the_rounds_that_are_like_it():
    """Action 2 is never taken on Saturdays; on other days it is."""
    log = log_of_three()
    saturday = (log.times.astype("datetime64[D]").astype(int) + 3) % 7 == 5
    part = log.take(np.flatnonzero(~saturday | (log.actions < 2)))
    policy = Fixed([0.3, 0.3, 0.4, 0.0])
    next_saturday = np.datetime64("2026-02-21T12:00")
    assert np.isfinite(sc.evaluate_future(part, policy, next_saturday - np.timedelta64(1, "D")).std_error)
    with pytest.raises(RefusedError, match=r"40% of its choices are actions that the log never took"):
        sc.evaluate_future(part, policy, next_saturday)
