"""The objective of EM never falls along a fit, whatever the features: also where a few rounds outweigh all others."""

import numpy as np
import pytest

import seachange as sc
from seachange.states.chain import Chain
from seachange.states.em import EM, Prior
from seachange.states.starts import Starts

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
N, WIDTH = 2000, 20
EMISSIONS = ("gaussian", "gaussian per state", "bernoulli")


def heavy_log(weight, kind, rewards, seed=0):
    """Two states that take turns; some rounds have features far larger than others, and rewards to match."""
    generator = np.random.default_rng(seed)
    actions, states = generator.integers(3, size=N), 4 * np.arange(N) // N % 2
    features = generator.normal(size=(N, 3, WIDTH) if kind == "per action" else (N, WIDTH))
    weights = np.ones(N)
    if weight == "heavy tails":
        weights = generator.lognormal(0, 3, N)
    elif weight == "three rounds":
        weights[generator.choice(N, 3, replace=False)] = 1e5
    features = features * weights.reshape(-1, *[1] * (features.ndim - 1))
    seen = features[np.arange(N), actions] if kind == "per action" else features
    scores = np.sum(seen * generator.normal(0, 0.5, (2, WIDTH))[states], axis=1)
    found = scores + generator.normal(size=N)
    if rewards == "bernoulli":
        found = (generator.logistic(size=N) < scores).astype(float)
    columns = {"action_features" if kind == "per action" else "contexts": features}
    return sc.BanditLog.from_arrays(actions, found, np.full(N, 1 / 3), n_actions=3, **columns)


def require_no_fall(objectives):
    assert (np.diff(objectives) >= -1e-9 * np.abs(objectives[-1])).all(), np.diff(objectives).min()


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("kind", ["shared", "per action"])
@pytest.mark.parametrize("weight", ["even", "heavy tails", "three rounds"])
def test_the_objective_never_falls_in_forty_iterations(weight, kind, rewards):
    log = heavy_log(weight, kind, rewards)
    chain, prior = Chain(log), Prior(np.ones(log.joint.shape[1]), 1.0, 100.0, noise=(1.0, 1.0))
    residuals = log.rewards - log.rewards.mean()
    starts = Starts(chain, residuals, residuals.var(), rewards, 0)
    start = starts.from_windows(starts.windows_of(100), 2, prior)
    # A tolerance below zero: a fall does not end the climb, as it would for convergence.
    run = EM(chain, prior, tolerance=-np.inf, most_iterations=40).finish(start)
    assert run.iterations == 40
    require_no_fall(run.objectives)


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("kind", ["shared", "per action"])
@pytest.mark.parametrize("weight", ["even", "heavy tails", "three rounds"])
def test_the_objective_never_falls_along_a_reported_fit(weight, kind, rewards):
    log = heavy_log(weight, kind, rewards, seed=1)
    report = sc.HMMOracle(n_states=2, rewards=rewards, tolerance=0, max_iterations=40).fit(log).report_
    require_no_fall(report.objectives)
