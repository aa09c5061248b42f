"""A log without propensities speaks of no policy but its own."""

import numpy as np
import pytest

import seachange as sc

JUDGING = {
    "evaluate": lambda log, policy: sc.evaluate(log, policy),
    "watch": lambda log, policy: sc.watch(log, policy),
    "diagnose": lambda log, policy: sc.diagnose(log, policy),
    "over time": lambda log, policy: sc.evaluate_over_time(log, policy),
    "by period": lambda log, policy: sc.evaluate_by_period(log, policy, 50),
    "future": lambda log, policy: sc.evaluate_future(log, policy, at=np.datetime64("2030-01-01T00:00:00")),
    "online": lambda log, policy: sc.evaluate_online(log, sc.SinglePolicy(policy)),
    "auto": lambda log, policy: sc.AutoLearner().fit(log),
    "learn": lambda log, policy: sc.learn(log, oracle="none"),
}


@pytest.mark.parametrize("judge", JUDGING.values(), ids=JUDGING)
def test_nothing_is_judged_without_propensities(judge):
    generator = np.random.default_rng(0)
    times = np.datetime64("2026-01-01T00:00:00") + np.arange(300).astype("timedelta64[h]")
    clicks = 1.0 * (generator.random(300) < 0.5)
    log = sc.BanditLog.from_arrays(generator.integers(3, size=300), clicks, times=times, n_actions=3)
    with pytest.raises(ValueError, match=r"needs the propensities of the actions taken, but this log has none"):
        judge(log, sc.DMLearner().fit(log).policy_)
