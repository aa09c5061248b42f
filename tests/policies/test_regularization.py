"""How strongly policies shrink toward the surrogate's maximum, and what clipping costs."""

import warnings

import numpy as np
import pytest

import seachange as sc
from seachange.policies.learners import MIN_L2, STEEPER_THAN_SURROGATE, STRENGTHS, regularized
from seachange.policies.objectives import Objective, policy_coefs
from seachange.simulate import Clicks
from seachange.states.labels import labels_from_states


def test_l2_is_a_multiple_of_the_squared_relative_error():
    log = Clicks(horizon=2000, click_rate=0.2).log(0)
    objective, start = Objective(log, np.ones(2000)), np.random.default_rng(0).normal(size=log.joint.shape)
    probs = sc.SoftmaxPolicy(policy_coefs(log.units, log.joint, start), log.joint).predict_proba(log.contexts)[
        np.arange(2000), log.actions
    ]
    y = probs / log.propensities * log.rewards
    error = y.std() / np.sqrt(2000) / log.rewards.mean()
    shrunk = regularized(objective, start, 7.0)
    assert shrunk.l2 == pytest.approx(7 * error**2, rel=1e-9)
    np.testing.assert_array_equal(shrunk.center, start)
    assert regularized(objective, start, 0.0).l2 == MIN_L2


def l2_of(learner):
    """The l2 that a learner used."""
    return learner.optimization_.l2


@pytest.mark.parametrize(("quadratic", "strength"), [(0.0, 2000.0), (0.6, 2.0)])
def test_regularization_is_strong_only_if_the_surrogate_fits_the_world(quadratic, strength):
    for seed in (0, 1, 2):
        log = Clicks(seed=seed, horizon=60_000, click_rate=0.2, quadratic=quadratic).log(seed)
        auto, given = sc.IPSLearner().fit(log), sc.IPSLearner(regularization=strength).fit(log)
        assert l2_of(auto) == l2_of(given)
        np.testing.assert_array_equal(auto.coefs_, given.coefs_)


def test_infinite_regularization_stays_at_the_surrogate_and_zero_leaves_it():
    log = Clicks(horizon=3000, click_rate=0.2).log(0)
    held, free = sc.IPSLearner(regularization=1e12).fit(log), sc.IPSLearner(regularization=0.0).fit(log)
    start = STEEPER_THAN_SURROGATE * held.surrogate_coefs_
    np.testing.assert_allclose(held.coefs_, start, atol=1e-6)
    assert np.abs(free.coefs_ - start).max() > 0.1


def test_a_half_without_rewards_keeps_the_strongest_regularization():
    rewards = np.zeros(100)
    rewards[3] = 1.0
    log = sc.BanditLog.from_arrays(np.arange(100) % 3, rewards, np.full(100, 1 / 3))
    assert l2_of(sc.IPSLearner().fit(log)) == l2_of(sc.IPSLearner(regularization=STRENGTHS[0]).fit(log))


@pytest.mark.parametrize("learner", [sc.IPSLearner, sc.DRLearner, sc.TabularLearner])
def test_a_clip_below_one_over_p_raises_a_warning_with_its_cost(learner):
    generator = np.random.default_rng(0)
    actions = generator.integers(10, size=4000)
    rewards = (generator.random(4000) < np.where(actions == 3, 0.5, 0.1)).astype(float)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(4000, 0.1))
    with pytest.warns(
        sc.SeachangeWarning, match=r"clip=2 is below 1 / propensity in 100.0% .* only 20.0% .* clip=10\."
    ):
        learner(clip=2.0).fit(log)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner(clip=10.0).fit(log)


def test_pooled_states_do_not_repeat_the_warning():
    generator = np.random.default_rng(0)
    actions = generator.integers(10, size=1000)
    log = sc.BanditLog.from_arrays(actions, (actions == 3).astype(float), np.full(1000, 0.1))
    labels = labels_from_states(np.arange(1000) // 500, 2, log)
    with pytest.warns(sc.SeachangeWarning, match="clip=2") as caught:
        sc.learn_per_state(log, labels, sc.IPSLearner(clip=2.0))
    assert len(caught) == 1
