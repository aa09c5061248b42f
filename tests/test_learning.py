"""learn() says what is odd about a log, and takes objects, not classes."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError


@pytest.mark.parametrize("reward", [0.0, 1.0, -2.5])
def test_rewards_that_are_all_the_same_are_reported(reward):
    log = sc.BanditLog.from_arrays(np.arange(300) % 3, np.full(300, reward), np.full(300, 1 / 3))
    with pytest.warns(sc.SeachangeWarning, match=f"all rewards are {reward:g}: every policy earns the same"):
        model = sc.learn(log, oracle="none")
    assert np.isfinite(model.policies[0].predict_proba(np.zeros((1, 0)))).all()


def test_propensities_that_were_filled_in_are_reported(make_log):
    log = make_log("none")
    filled = sc.BanditLog.from_arrays(log.actions, log.rewards, np.ones(len(log)))
    with pytest.warns(sc.SeachangeWarning, match="all propensities are 1, yet 3 actions were taken"):
        sc.learn(filled, oracle="none", objective="ips")


def test_a_class_is_not_a_learner(make_log):
    with pytest.raises(ParameterError, match=r"a learner object: DRLearner\(\), not the class"):
        sc.learn(make_log("none"), oracle="none", objective=sc.DRLearner)
