"""Every registered estimator, driven through ``evaluate``."""

from typing import get_args

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError, SeachangeWarning
from seachange.evaluation import ESTIMATORS, IntervalKind

EVERY = pytest.mark.parametrize("name", ESTIMATORS)
LOGGING = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])  # by context
TARGET = np.array([[0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])
MEANS = np.array([[0.2, 0.5, 0.8], [0.6, 0.3, 0.4]])


def sampled(n=2000, seed=0, scale=1.0):
    """A log of two contexts and three actions, the context of each round, and the target's probabilities."""
    generator = np.random.default_rng(seed)
    x = generator.integers(2, size=n)
    actions = (generator.random(n)[:, None] > LOGGING[x].cumsum(axis=1)).sum(axis=1)
    rewards = scale * (generator.random(n) < MEANS[x, actions])
    log = sc.BanditLog.from_arrays(
        actions, rewards, LOGGING[x, actions], contexts=x[:, None].astype(float), n_actions=3
    )
    return log, TARGET[x]


def numbers(estimate):
    return [estimate.value, estimate.std_error, estimate.low, estimate.high]


@EVERY
def test_the_value_is_that_of_enumeration_within_its_standard_error(name):
    exact = (0.5 * TARGET * MEANS).sum()
    (found,) = sc.evaluate(*sampled(20_000), (name,))
    assert abs(found.value - exact) < 4.5 * found.std_error
    assert found.std_error < 0.02
    assert found.estimator == name


@EVERY
def test_constant_rewards_are_recovered_on_policy(name):
    n = 300
    actions = np.arange(n) % 3
    log = sc.BanditLog.from_arrays(actions, np.full(n, 0.7), np.full(n, 1 / 3), n_actions=3)
    (found,) = sc.evaluate(log, np.full((n, 3), 1 / 3), (name,))
    assert numbers(found) == pytest.approx([0.7, 0.0, 0.7, 0.7], abs=1e-12)


@EVERY
def test_scaling_rewards_scales_value_and_interval(name):
    (one,), (ten,) = (sc.evaluate(*sampled(scale=scale), (name,)) for scale in (1.0, 10.0))
    assert numbers(ten) == pytest.approx([10 * each for each in numbers(one)], rel=1e-9)


@EVERY
def test_renumbering_actions_changes_nothing(name):
    log, probs = sampled()
    order = np.array([2, 0, 1])
    renumbered = sc.BanditLog.from_arrays(
        np.argsort(order)[log.actions], log.rewards, log.propensities, contexts=log.contexts, n_actions=3
    )
    (one,), (other,) = sc.evaluate(log, probs, (name,)), sc.evaluate(renumbered, probs[:, order], (name,))
    assert numbers(other) == pytest.approx(numbers(one), rel=1e-9)


@EVERY
def test_an_estimate_does_not_depend_on_the_others(name):
    log, probs = sampled()
    together = {each.estimator: each for each in sc.evaluate(log, probs, tuple(ESTIMATORS))}
    assert sc.evaluate(log, probs, (name,))[0] == together[name]


@EVERY
@pytest.mark.parametrize("interval", get_args(IntervalKind))
def test_every_interval_contains_the_value_or_is_refused_with_a_way_out(name, interval):
    log, probs = sampled()
    settings = {"switch": 3.0, "shrinkage": 9.0, "reward_range": (0.0, 1.0), "interval": interval}
    estimator = ESTIMATORS[name]
    ratio = interval == "bernstein" and estimator.ratio
    if interval in ("bernstein", "sequence") and estimator.limits is None and not ratio:
        with pytest.raises(ParameterError, match="bootstrap"):
            sc.evaluate(log, probs, (name,), **settings)
        return
    (found,) = sc.evaluate(log, probs, (name,), **settings)
    assert np.isfinite(numbers(found)).all()
    assert found.low < found.value < found.high
    wider = sc.evaluate(log, probs, (name,), confidence=0.99, **settings)[0]
    assert wider.high - wider.low > found.high - found.low


@EVERY
def test_a_forced_estimate_without_support_is_finite_and_says_so(name):
    log = sc.BanditLog.from_arrays(np.zeros(100, int), np.ones(100), np.ones(100), n_actions=2)
    with pytest.warns(SeachangeWarning, match="Forced estimate"):
        (found,) = sc.evaluate(log, np.tile([0.0, 1.0], (100, 1)), (name,), force=True)
    assert np.isfinite(found.value)
    assert (found.low, found.high) == (-np.inf, np.inf)
