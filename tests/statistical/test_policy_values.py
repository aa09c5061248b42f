"""Values that learned policies reach in a click world, linear or not, as a share of the best linear policy's gain."""

import numpy as np
import pytest

import seachange as sc
from seachange.simulate import Clicks

BARS = {(518_400, 0.0): 0.99, (518_400, 0.3): 0.97, (50_000, 0.0): 0.97, (50_000, 0.3): 0.89}


def share_of_the_gain(world, policy, n):
    """(value - uniform) / (best linear - uniform), in expectation over ``n`` contexts."""
    contexts = world.contexts(n, np.random.default_rng([world.seed, 9]))
    rates = world.click_rates(contexts)
    best = rates[np.arange(n), world.best_linear_actions(contexts)].mean()
    return (world.value(policy.predict_proba(contexts), contexts) - rates.mean()) / (best - rates.mean())


@pytest.mark.parametrize("quadratic", [0.0, 0.3])
def test_auto_recovers_the_gain_of_the_best_linear_policy(quadratic):
    world = Clicks(seed=0, horizon=50_000, quadratic=quadratic)
    assert share_of_the_gain(world, sc.AutoLearner().fit(world.log(0)).policy_, 100_000) > BARS[50_000, quadratic]


@pytest.mark.long
@pytest.mark.parametrize(("horizon", "quadratic"), BARS)
def test_auto_recovers_the_gain_over_ten_worlds(horizon, quadratic):
    shares = []
    for seed in range(10):
        world = Clicks(seed=seed, horizon=horizon, quadratic=quadratic)
        shares.append(share_of_the_gain(world, sc.AutoLearner().fit(world.log(seed)).policy_, 1_000_000))
    assert np.mean(shares) > BARS[horizon, quadratic]
