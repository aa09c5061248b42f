"""No iteration of EM decreases the objective, even if a few rounds outweigh all others."""

import numpy as np
import pytest

import seachange as sc
from seachange.states.em import EM, Prior, maximization
from seachange.states.expectation import Chain
from seachange.states.hmm_fitting import Starts

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
N, WIDTH = 2000, 20


def heavy_log(weight, kind, seed=0):
    """Two alternating states; some rounds have far larger features and rewards than others."""
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
    columns = {"action_features" if kind == "per action" else "contexts": features}
    return sc.BanditLog.from_arrays(actions, found, np.full(N, 1 / 3), n_actions=3, **columns)


@pytest.mark.parametrize("rewards", ["gaussian", "gaussian per state"])
@pytest.mark.parametrize("kind", ["shared", "per action"])
@pytest.mark.parametrize("weight", ["even", "heavy tails", "three rounds"])
def test_no_iteration_decreases_the_objective(weight, kind, rewards):
    log = heavy_log(weight, kind)
    chain, prior = Chain(log), Prior(1.0, 1.0, 100.0, log.units, noise=(1.0, 1.0))
    residuals = log.rewards - log.rewards.mean()
    starts = Starts(chain, residuals, residuals.var(), rewards, 0, log.units)
    em = EM(chain, prior, tolerance=0.0, max_iterations=40)
    run = em.start(starts.from_windows(100, 2, prior))
    for _ in range(40):
        # The M-step by itself: a run would hide a fall by staying where it was.
        after = em.start(maximization(run.model, run.statistics, prior, em._noise_floor))
        assert after.objective >= run.objective - 1e-9 * abs(run.objective)
        run = after
