"""Intervals of places against likelihoods written out, fits integrated out of each."""

import numpy as np
import pytest
from scipy import special, stats

from seachange.kernels.place_intervals import place_intervals, refit, walk_spreads

pytestmark = pytest.mark.small
N, PLACE, FIRST, LAST = 60, 33, 8, 52
PRIOR = 2.0  # Gram matrix of the prior: so many times the identity


def rounds(kind, shift, seed):
    """Arrays as kernels take them, features by round, block by round, and the number of blocks."""
    generator = np.random.default_rng(seed)
    shape = {"none": (1, 1, 1), "shared": (N, 1, 3), "per action": (N, 2, 3)}[kind]
    rows = np.ones(shape) if kind == "none" else generator.normal(size=shape)
    actions = generator.integers(2, size=N)
    features = np.array([rows[t % len(rows), actions[t] % rows.shape[1]] for t in range(N)])
    rewards = generator.normal(size=N) + shift * (np.arange(N) >= 30) * features[:, 0]
    rewards[generator.random(N) < 0.1] = np.nan
    n_blocks = 1 if kind == "per action" else 2
    return rows, actions, rewards, features, actions % n_blocks, n_blocks


def fits_of(features, rewards, blocks, n_blocks, inside):
    """Coefficients and inverse Gram matrix of every block, of the rounds ``inside``."""
    coefs, inverses = [], []
    for b in range(n_blocks):
        own = inside & (blocks == b) & ~np.isnan(rewards)
        inverses.append(np.linalg.inv(features[own].T @ features[own] + PRIOR * np.eye(features.shape[1])))
        coefs.append(inverses[-1] @ features[own].T @ rewards[own])
    return np.array(coefs), np.array(inverses)


def intervals_by_kernel(rows, actions, rewards, residuals, features, blocks, n_blocks, variances, drops, clip):
    sides = [fits_of(features, residuals, blocks, n_blocks, (np.arange(N) >= PLACE) == side) for side in (False, True)]
    coefs, inverses = (np.stack(each)[None] for each in zip(*sides, strict=True))
    spans = np.array([[FIRST, LAST]])
    found = place_intervals(
        rows, actions, rewards, residuals, np.array([PLACE]), spans, coefs, inverses, variances, drops, clip, 1e9
    )
    return found[0].tolist()


def written_out(evidence, drops):
    """First and last place whose evidence falls short of the best by no more than it may."""
    places = np.arange(FIRST, LAST + 1)
    best = np.argmax(evidence)
    missing = evidence[best] - evidence
    low = places[np.flatnonzero(missing <= drops[0, 0])[0]]
    high = places[np.flatnonzero(missing <= drops[0, 1])[-1]]
    return [min(low, PLACE), max(high, PLACE)]


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_evidence_of_normal_rewards_has_the_fits_integrated_out(kind, shift):
    for seed in range(4):
        rows, actions, rewards, features, blocks, n_blocks = rounds(kind, shift, seed)
        variances = np.random.default_rng(seed).uniform(0.5, 2, size=(1, n_blocks))
        seen, evidence = ~np.isnan(rewards), []
        for place in range(FIRST, LAST + 1):
            total = 0.0
            for side in (False, True):
                for b in range(n_blocks):
                    own = seen & (blocks == b) & ((np.arange(N) >= place) == side)
                    spread = variances[0, b] * (np.eye(own.sum()) + features[own] @ features[own].T / PRIOR)
                    total += stats.multivariate_normal.logpdf(rewards[own], np.zeros(own.sum()), spread)
            evidence.append(total)
        drops = np.array([[1.3, 2.9]])
        found = intervals_by_kernel(
            rows, actions, rewards, rewards, features, blocks, n_blocks, variances, drops, clip=0.0
        )
        assert found == written_out(np.array(evidence), drops)


def test_evidence_of_clicks_has_their_rates_integrated_out():
    for seed in range(8):
        rows, actions, rewards, features, blocks, n_blocks = rounds("none", 1.0, seed)
        rewards = np.where(np.isnan(rewards), np.nan, rewards > 0)
        level, evidence = 0.4, []
        for place in range(FIRST, LAST + 1):
            total = 0.0
            for side in (False, True):
                for b in range(n_blocks):
                    own = rewards[(blocks == b) & ((np.arange(N) >= place) == side)]
                    clicks, skips = (own == 1).sum(), (own == 0).sum()
                    total += special.betaln(PRIOR * level + clicks, PRIOR * (1 - level) + skips)
            evidence.append(total)
        drops = np.array([[1.3, 2.9]])
        found = intervals_by_kernel(
            rows, actions, rewards, rewards - level, features, blocks, n_blocks, np.ones((1, 2)), drops, clip=1e-9
        )
        assert found == written_out(np.array(evidence), drops)


def test_a_round_that_enters_and_leaves_changes_nothing():
    generator = np.random.default_rng(0)
    features, rewards = generator.normal(size=(20, 4)), generator.normal(size=20)
    inverse = np.linalg.inv(features.T @ features)
    coefs, row, room = inverse @ features.T @ rewards, generator.normal(size=4), np.empty(4)
    changed = inverse.copy(), coefs.copy()
    entered = refit(*changed, row, 0.7, 1.0, room)
    assert entered == pytest.approx((0.7 - coefs @ row, 1 + row @ inverse @ row))
    more = np.vstack([features, row])
    np.testing.assert_allclose(changed[1], np.linalg.lstsq(more, np.append(rewards, 0.7), rcond=None)[0])
    assert refit(*changed, row, 0.7, -1.0, room) == pytest.approx(entered)
    np.testing.assert_allclose(changed[0], inverse)
    np.testing.assert_allclose(changed[1], coefs)


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_spreads_are_those_written_out(kind):
    rows, actions, rewards, features, blocks, n_blocks = rounds(kind, 1.0, 0)
    generator = np.random.default_rng(1)
    coefs = generator.normal(size=(1, 2, n_blocks, rows.shape[2]))
    variances = generator.uniform(0.5, 2, size=(1, n_blocks))
    edges = np.array([5]), np.array([PLACE]), np.array([50])
    found = walk_spreads(rows, actions, rewards, *edges, coefs, variances)
    for side, inside in enumerate((range(5, PLACE), range(PLACE, 50))):
        gaps = np.einsum("nd,nd->n", (coefs[0, 1] - coefs[0, 0])[blocks], features)[inside]
        errors = (rewards - np.einsum("nd,nd->n", coefs[0, side][blocks], features))[inside]
        noise, seen = variances[0][blocks][inside], ~np.isnan(errors)
        scatter = np.square(gaps * errors / noise)[seen].sum()
        assert found[0, side] == pytest.approx(scatter / (gaps**2 / noise)[seen].sum())
