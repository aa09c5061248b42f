"""Weighted sums against numpy, and fast paths against direct sums."""

import numpy as np
import pytest

import seachange as sc
from seachange.kernels.regression import BLOCK, blocked_sums, blocks_of, regression_sums, unweighted_sums
from seachange.states.em import EM, Prior, maximization
from seachange.states.expectation import Chain
from seachange.states.hmm_fitting import Starts


def features_of(rows, actions, n_blocks):
    """(n, B, D) f(x_t, a_t) in the block of its action if there are several."""
    n = len(actions)
    own = rows[np.arange(n) if len(rows) > 1 else np.zeros(n, int), actions if rows.shape[1] > 1 else np.zeros(n, int)]
    features = np.zeros((n, n_blocks, rows.shape[2]))
    features[np.arange(n), actions if n_blocks > 1 else np.zeros(n, int)] = own
    return features


def by_numpy(rows, actions, curvatures, slopes, n_blocks):
    """Σ c f f' within blocks, and Σ s f."""
    features = features_of(rows, actions, n_blocks)
    return np.einsum("tz,tbi,tbj->zbij", curvatures, features, features), np.einsum("tz,tbi->zbi", slopes, features)


def posteriors(g, n, n_states, kind):
    """Weights that sum to 1 in each round, as in an E-step."""
    if kind == "shared":
        return g.dirichlet(np.ones(n_states), size=n)
    states = (np.arange(n) // 90) % n_states
    sure = np.full((n, n_states), {"certain": 0.0, "traces": 3e-9}[kind]) * g.random((n, 1))
    sure[np.arange(n), states] = 0.0
    sure[np.arange(n), states] = 1 - sure.sum(axis=1)
    unsure = np.abs(np.arange(n) % 90 - 45) > 41  # around the changes
    sure[unsure] = g.dirichlet(np.ones(n_states), size=int(unsure.sum()))
    return sure


SMALL_SHAPES = [(1, 1, 1), (1, 3, 1), (3, 1, 4), (50, 1, 6)]
LARGE_SHAPES = [(1, 8, 40), (1, 1, 130), (7, 1, 33)]
SHAPES = [*(pytest.param(*shape, marks=pytest.mark.small) for shape in SMALL_SHAPES), *LARGE_SHAPES]


@pytest.mark.parametrize("kind", ["shared", "certain"])
@pytest.mark.parametrize(("n_blocks", "n_own", "n_features"), SHAPES)
@pytest.mark.parametrize("missing", [False, True])
def test_sums_are_those_of_numpy(n_blocks, n_own, n_features, kind, missing):
    g = np.random.default_rng(0)
    n, n_actions = 300, max(n_blocks, n_own)
    rows = g.normal(size=(n, n_own, n_features))
    actions, rewards = g.integers(n_actions, size=n), g.normal(size=n)
    if missing:
        rewards[g.random(n) < 0.3] = np.nan
    weights, seen = posteriors(g, n, 3, kind), np.isfinite(rewards)[:, None]
    grams, moments, totals = regression_sums(rows, actions, rewards, weights, n_blocks)
    filled = np.nan_to_num(rewards)[:, None]
    wanted = by_numpy(rows, actions, weights * seen, weights * filled, n_blocks)
    np.testing.assert_allclose(grams, wanted[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(moments, wanted[1], rtol=0, atol=1e-10)
    np.testing.assert_allclose(totals, np.stack([(weights * filled**2).sum(0), (weights * seen).sum(0)], 1), atol=1e-10)


@pytest.mark.parametrize(("n_blocks", "n_own", "n_features"), SHAPES)
def test_logistic_sums_are_those_of_numpy(n_blocks, n_own, n_features):
    g = np.random.default_rng(1)
    n, n_actions = 300, max(n_blocks, n_own)
    rows = g.normal(size=(n, n_own, n_features))
    actions, rewards = g.integers(n_actions, size=n), np.where(g.random(n) < 0.2, np.nan, g.integers(2, size=n))
    weights, scores = posteriors(g, n, 3, "certain"), 3 * g.normal(size=(n, 3))
    grams, moments, totals = regression_sums(rows, actions, rewards, weights, n_blocks, scores)
    seen, rates = np.isfinite(rewards)[:, None], 1 / (1 + np.exp(-scores))
    filled = np.nan_to_num(rewards)[:, None]
    wanted = by_numpy(rows, actions, weights * seen * rates * (1 - rates), weights * seen * (filled - rates), n_blocks)
    np.testing.assert_allclose(grams, wanted[0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(moments, wanted[1], rtol=0, atol=1e-10)
    np.testing.assert_allclose(totals, np.stack([(weights * filled).sum(0), (weights * seen).sum(0)], 1), atol=1e-10)


@pytest.mark.small
@pytest.mark.parametrize("n_actions", [1, 4])
def test_counting_without_contexts_is_the_same_sum(n_actions):
    g = np.random.default_rng(5)
    n = 200
    rows, actions = np.ones((1, 1, 1)), g.integers(n_actions, size=n)
    rewards, weights = np.where(g.random(n) < 0.3, np.nan, g.integers(2, size=n)), posteriors(g, n, 3, "shared")
    levels = g.normal(size=(n_actions, 3))
    scores, seen, filled = levels[actions], np.isfinite(rewards)[:, None], np.nan_to_num(rewards)[:, None]
    rates = 1 / (1 + np.exp(-scores))
    grams, moments, _ = regression_sums(rows, actions, rewards, weights, n_actions)
    wanted = by_numpy(rows, actions, weights * seen, weights * filled, n_actions)
    np.testing.assert_allclose(grams, wanted[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(moments, wanted[1], rtol=0, atol=1e-12)
    grams, moments, _ = regression_sums(rows, actions, rewards, weights, n_actions, scores)
    wanted = by_numpy(rows, actions, weights * seen * rates * (1 - rates), weights * seen * (filled - rates), n_actions)
    np.testing.assert_allclose(grams, wanted[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(moments, wanted[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["shared", "certain", "traces"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n", [1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK + 17])
def test_sums_from_blocks_equal_direct_sums(kind, missing, n):
    """Up to 1e-9 of the Gram matrix, because weights below a millionth are spread over their block."""
    g = np.random.default_rng(2)
    rows, actions, rewards = g.normal(size=(n, 4, 20)), g.integers(4, size=n), g.normal(size=n)
    if missing:
        rewards[g.random(n) < 0.3] = np.nan
    weights = posteriors(g, n, 4, kind)
    plain = regression_sums(rows, actions, rewards, weights, 1)
    fast = blocked_sums(
        rows, actions, rewards, weights, *unweighted_sums(rows, actions, rewards, blocks_of(len(actions)))
    )
    for mine, theirs in zip(fast, plain, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9 * max(np.abs(theirs).max(), 1.0))


def test_blocks_without_rewards_are_skipped():
    g = np.random.default_rng(3)
    n = 4 * BLOCK
    rows, actions, rewards = g.normal(size=(n, 1, 18)), np.zeros(n, int), g.normal(size=n)
    rewards[BLOCK : 3 * BLOCK] = np.nan
    weights = posteriors(g, n, 2, "certain")
    fast = blocked_sums(
        rows, actions, rewards, weights, *unweighted_sums(rows, actions, rewards, blocks_of(len(actions)))
    )
    for mine, theirs in zip(fast, regression_sums(rows, actions, rewards, weights, 1), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())


@pytest.mark.parametrize("share", [1e-7, 5e-7, 1e-6])
def test_sums_from_blocks_are_right_with_one_very_large_row(share):
    """Spreading small weights would move part of the large row to a state that does not have it."""
    g = np.random.default_rng(6)
    n = 3 * BLOCK
    rows, actions, rewards = g.normal(size=(n, 1, 20)), np.zeros(n, int), g.normal(size=n)
    rows[70] *= 1e6
    weights = np.full((n, 2), share)
    weights[:, 0] = 1 - share
    weights[70] = 0.0, 1.0
    plain = regression_sums(rows, actions, rewards, weights, 1)
    fast = blocked_sums(
        rows, actions, rewards, weights, *unweighted_sums(rows, actions, rewards, blocks_of(len(actions)))
    )
    np.testing.assert_allclose(fast[0][0], plain[0][0], rtol=0, atol=1e-6 * np.abs(plain[0][0]).max())
    assert np.linalg.eigvalsh(fast[0][0, 0]).min() > 0


@pytest.mark.parametrize("chains", [750, 25])
@pytest.mark.parametrize("tails", ["none", "a few rows", "all rows"])
@pytest.mark.parametrize("missing", [False, True])
def test_the_objective_never_decreases_with_sums_by_subtraction(missing, tails, chains):
    g = np.random.default_rng(4)
    n, states = 3000, (np.arange(3000) // 500) % 2
    features, coefs = g.normal(size=(n, 3, 18)), 0.3 * g.normal(size=(2, 18))
    if tails == "a few rows":
        features[[70, 900, 2100]] *= 1e5
    elif tails == "all rows":
        features *= g.lognormal(sigma=3, size=(n, 1, 1))
    actions = g.integers(3, size=n)
    rewards = np.sum(features[np.arange(n), actions] * coefs[states], axis=1) + g.normal(size=n)
    rewards = np.where(g.random(n) < 0.3, np.nan, rewards) if missing else rewards
    log = sc.BanditLog.from_arrays(
        actions, rewards, np.full(n, 1 / 3), action_features=features, missing_rewards=True,
        sequences=np.arange(n) // chains,
    )  # fmt: skip
    chain, prior = Chain(log, 700, 2), Prior(1.0, 1.0, 200.0, log.units)
    assert chain.block_sums(chain.spans[0][0].tiles[0]) is not None
    starts = Starts(chain, chain.log.rewards, 1.0, "gaussian", 0, log.units)
    em = EM(chain, prior, tolerance=-1.0, max_iterations=40)
    run = em.start(starts.from_windows(25, 2, prior))
    for _ in range(40):
        after = em.start(maximization(run.model, run.statistics, prior, floor=1e-10))
        assert after.objective >= run.objective - 1e-9 * abs(run.objective)
        run = after
