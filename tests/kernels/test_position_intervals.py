"""Intervals for positions against likelihoods computed by definition, with the fits integrated out."""

import numpy as np
import pytest
from scipy import special, stats

from seachange.kernels.change_scans import likelihood_spreads, position_intervals, refit

pytestmark = pytest.mark.small
N, POSITION, FIRST, LAST = 60, 33, 8, 52
PRIOR = 2.0  # Gram matrix of the prior: this times the identity


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
    """Coefficients and inverse Gram matrices of each block, from the rounds ``inside``."""
    coefs, inverses = [], []
    for b in range(n_blocks):
        own = inside & (blocks == b) & ~np.isnan(rewards)
        inverses.append(np.linalg.inv(features[own].T @ features[own] + PRIOR * np.eye(features.shape[1])))
        coefs.append(inverses[-1] @ features[own].T @ rewards[own])
    return np.array(coefs), np.array(inverses)


def intervals_by_kernel(rows, actions, rewards, residuals, features, blocks, n_blocks, variances, drops, clip):
    sides = [
        fits_of(features, residuals, blocks, n_blocks, (np.arange(N) >= POSITION) == side) for side in (False, True)
    ]
    coefs, inverses = (np.stack(each)[None] for each in zip(*sides, strict=True))
    spans = np.array([[FIRST, LAST]])
    found = position_intervals(
        rows, actions, rewards, residuals, np.array([POSITION]), spans, coefs, inverses, variances, drops, clip, 1e9
    )
    return found[0].tolist()


def written_out(evidence, drops):
    """First and last position whose evidence is close enough to the best."""
    positions = np.arange(FIRST, LAST + 1)
    best = np.argmax(evidence)
    missing = evidence[best] - evidence
    low = positions[np.flatnonzero(missing <= drops[0, 0])[0]]
    high = positions[np.flatnonzero(missing <= drops[0, 1])[-1]]
    return [min(low, POSITION), max(high, POSITION)]


@pytest.mark.parametrize("shift", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_evidence_of_normal_rewards_has_the_fits_integrated_out(kind, shift):
    for seed in range(4):
        rows, actions, rewards, features, blocks, n_blocks = rounds(kind, shift, seed)
        variances = np.random.default_rng(seed).uniform(0.5, 2, size=(1, n_blocks))
        seen, evidence = ~np.isnan(rewards), []
        for position in range(FIRST, LAST + 1):
            total = 0.0
            for side in (False, True):
                for b in range(n_blocks):
                    own = seen & (blocks == b) & ((np.arange(N) >= position) == side)
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
        for position in range(FIRST, LAST + 1):
            total = 0.0
            for side in (False, True):
                for b in range(n_blocks):
                    own = rewards[(blocks == b) & ((np.arange(N) >= position) == side)]
                    clicks, skips = (own == 1).sum(), (own == 0).sum()
                    total += special.betaln(PRIOR * level + clicks, PRIOR * (1 - level) + skips)
            evidence.append(total)
        drops = np.array([[1.3, 2.9]])
        found = intervals_by_kernel(
            rows, actions, rewards, rewards - level, features, blocks, n_blocks, np.ones((1, 2)), drops, clip=1e-9
        )
        assert found == written_out(np.array(evidence), drops)


def test_adding_and_removing_a_round_changes_nothing():
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
def test_spreads_equal_their_definition(kind):
    rows, actions, rewards, features, blocks, n_blocks = rounds(kind, 1.0, 0)
    generator = np.random.default_rng(1)
    coefs = generator.normal(size=(1, 2, n_blocks, rows.shape[2]))
    variances = generator.uniform(0.5, 2, size=(1, n_blocks))
    edges = np.array([5]), np.array([POSITION]), np.array([50])
    found = likelihood_spreads(rows, actions, rewards, *edges, coefs, variances)
    for side, inside in enumerate((range(5, POSITION), range(POSITION, 50))):
        gaps = np.einsum("nd,nd->n", (coefs[0, 1] - coefs[0, 0])[blocks], features)[inside]
        errors = (rewards - np.einsum("nd,nd->n", coefs[0, side][blocks], features))[inside]
        noise, seen = variances[0][blocks][inside], ~np.isnan(errors)
        scatter = np.square(gaps * errors / noise)[seen].sum()
        assert found[0, side] == pytest.approx(scatter / (gaps**2 / noise)[seen].sum())
