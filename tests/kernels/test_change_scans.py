"""Scan kernels against direct sums."""

import numpy as np
import pytest
from scipy import stats

from seachange.kernels.change_scans import (
    autocovariances,
    best_positions,
    bin_scores,
    mean_shifts,
    score_shifts,
    segment_residuals,
    segment_sums,
)
from seachange.kernels.emission import round_scores
from seachange.kernels.regression import regression_sums

pytestmark = pytest.mark.small
KINDS = ("none", "shared", "per action")


def rounds(kind, n=60, seed=0, missing=0.0):
    """Arrays as kernels take them: rows, actions, rewards, and the number of blocks."""
    generator = np.random.default_rng(seed)
    shape = {"none": (1, 1, 1), "shared": (n, 1, 3), "per action": (n, 2, 3)}[kind]
    rows = np.ones(shape) if kind == "none" else generator.normal(size=shape)
    rewards = generator.normal(size=n)
    rewards[generator.random(n) < missing] = np.nan
    return rows, generator.integers(2, size=n), rewards, 1 if kind == "per action" else 2


def feature(rows, actions, t):
    return rows[t if len(rows) > 1 else 0, actions[t] if rows.shape[1] > 1 else 0]


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_segment_sums_equal_direct_sums(kind, missing):
    rows, actions, rewards, n_blocks = rounds(kind, missing=missing)
    begins, ends = np.array([0, 10, 5, 20]), np.array([60, 30, 6, 20])
    grams, moments, squares, counts = segment_sums(rows, actions, rewards, begins, ends, n_blocks)
    for p, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        for b in range(n_blocks):
            inside = [t for t in range(begin, end) if (n_blocks == 1 or actions[t] == b) and not np.isnan(rewards[t])]
            f = np.array([feature(rows, actions, t) for t in inside]).reshape(len(inside), rows.shape[2])
            np.testing.assert_allclose(grams[p, b], f.T @ f, atol=1e-12)
            np.testing.assert_allclose(moments[p, b], f.T @ rewards[inside], atol=1e-12)
            assert squares[p, b] == pytest.approx(np.square(rewards[inside]).sum())
            assert counts[p, b] == len(inside)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_their_scatter_equal_direct_sums(kind):
    rows, actions, rewards, n_blocks = rounds(kind)
    coefs = np.random.default_rng(1).normal(size=(n_blocks, rows.shape[2]))
    features = np.array([feature(rows, actions, t) for t in range(len(rewards))])
    blocks = actions if n_blocks > 1 else np.zeros_like(actions)
    fitted = np.empty((len(rewards), 1))
    round_scores(rows, actions, coefs[None], fitted)
    np.testing.assert_allclose(fitted[:, 0], np.einsum("nd,nd->n", coefs[blocks], features), atol=1e-12)
    residuals = rewards - fitted[:, 0]
    (spread,) = regression_sums(rows, actions, residuals, np.square(residuals)[:, None], n_blocks)[0]
    for b in range(n_blocks):
        scores = (residuals[:, None] * features)[blocks == b]
        np.testing.assert_allclose(spread[b], scores.T @ scores, atol=1e-12)


def by_brute_force(scores, blocks, n_blocks, position, reach, least, freedom):
    """The scan statistic and its degrees of freedom, by definition."""
    statistic = degrees = 0.0
    seen = ~np.isnan(scores[:, 0])
    inside = np.arange(len(scores))
    for b in range(n_blocks):
        left = scores[seen & (blocks == b) & (inside >= position - reach) & (inside < position)]
        right = scores[seen & (blocks == b) & (inside >= position) & (inside < position + reach)]
        if min(len(left), len(right)) < least:
            continue
        both = np.concatenate([left, right])
        own = freedom * len(both) / (len(both) + freedom)
        pooled = np.square(both - both.mean(axis=0)).sum() / (len(both) - 1)
        spread = sum(
            max(np.square(side - both.mean(axis=0)).sum() / len(side), pooled) / len(side) for side in (left, right)
        )
        statistic += own * np.square(left.mean(axis=0) - right.mean(axis=0)).sum() / spread
        degrees += own
    return statistic, degrees


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_scan_equals_its_definition_and_stays_within_chains(kind, missing):
    rows, actions, rewards, n_blocks = rounds(kind, n=96, missing=missing)
    n_features = rows.shape[2]
    whitening = np.stack([np.eye(n_features) + 0.2 * b for b in range(n_blocks)])
    blocks = actions if n_blocks > 1 else np.zeros_like(actions)
    # Two chains of 32 and 64 rounds, in bins of 4.
    begins = np.arange(0, 96, 4)
    scores, squares = np.zeros((24, n_blocks, n_features)), np.zeros((24, n_blocks))
    counts = np.zeros((24, n_blocks))
    bin_scores(rows, actions, rewards, whitening, begins, begins + 4, scores, squares, counts)
    freedom = np.full(n_blocks, 1.0 if n_features == 1 else 2.0)
    first, last = np.array([0, 8]), np.array([8, 24])
    deviates = score_shifts(scores, squares, counts, first, last, 4, freedom, 2)
    features = np.array([feature(rows, actions, t) for t in range(96)])
    whole = rewards[:, None] * np.einsum("nij,nj->ni", whitening[blocks], features)
    assert np.flatnonzero(np.isfinite(deviates)).tolist() == [4, *range(12, 21)]
    for i in np.flatnonzero(np.isfinite(deviates)):
        statistic, degrees = by_brute_force(whole, blocks, n_blocks, 4 * i, 16, 2, freedom[0])
        unit = 2 / (9 * degrees)
        assert deviates[i] == pytest.approx(((statistic / degrees) ** (1 / 3) - 1 + unit) / np.sqrt(unit))


def test_mean_shifts_do_not_cross_chains():
    rewards = np.concatenate([np.zeros(10), np.ones(10), np.zeros(3)])
    shifts = mean_shifts(rewards, 2, np.array([0, 10, 20]), np.array([10, 20, 23]))
    assert not shifts.any()
    assert mean_shifts(rewards, 2, np.array([0]), np.array([23]))[10] == 1.0


@pytest.mark.parametrize("clip", [0.0, 0.01])
@pytest.mark.parametrize("kind", KINDS)
def test_best_positions_maximize_the_likelihood(kind, clip):
    rows, actions, rewards, n_blocks = rounds(kind, missing=0.1)
    if clip:
        rewards = np.where(np.isnan(rewards), np.nan, (rewards > 0).astype(float))
    generator = np.random.default_rng(3)
    coefs = generator.uniform(0.1, 0.9, size=(1, 2, n_blocks, rows.shape[2]))
    variances = generator.uniform(0.5, 2, size=(1, n_blocks))
    blocks = actions if n_blocks > 1 else np.zeros_like(actions)
    features = np.array([feature(rows, actions, t) for t in range(60)])
    likelihoods = []
    for side in range(2):
        means = np.einsum("nd,nd->n", coefs[0, side][blocks], features)
        if clip:
            means = np.clip(means, clip, 1 - clip)
            likelihoods.append(np.nan_to_num(stats.bernoulli.logpmf(np.nan_to_num(rewards, nan=9), means), neginf=0))
        else:
            likelihoods.append(np.nan_to_num(stats.norm.logpdf(rewards, means, np.sqrt(variances[0][blocks]))))
    total = np.array([likelihoods[0][:t].sum() + likelihoods[1][t:].sum() for t in range(10, 51)])
    (found,) = best_positions(rows, actions, rewards, np.array([[10, 50]]), coefs, variances, clip)
    # A round without a reward makes two positions equally likely.
    assert total[found - 10] == pytest.approx(total.max())


@pytest.mark.parametrize("kind", KINDS)
def test_segment_residuals_are_those_of_each_rounds_own_segment(kind):
    rows, actions, rewards, n_blocks = rounds(kind, missing=0.2)
    begins, ends = np.array([0, 25]), np.array([25, 60])
    coefs = np.random.default_rng(1).normal(size=(2, n_blocks, rows.shape[2]))
    found = segment_residuals(rows, actions, rewards, begins, ends, coefs)
    for t in range(60):
        block = actions[t] if n_blocks > 1 else 0
        expected = rewards[t] - coefs[int(t >= 25), block] @ feature(rows, actions, t)
        assert found[t] == pytest.approx(np.nan_to_num(expected), abs=1e-12)


def test_autocovariances_equal_direct_sums():
    values, begins, ends = np.random.default_rng(0).normal(size=30), np.array([0, 2, 20]), np.array([2, 20, 30])
    found = autocovariances(values, begins, ends, 12)
    for lag in range(13):
        pairs = [values[t] * values[t + lag] for b, e in zip(begins, ends, strict=True) for t in range(b, e - lag)]
        assert found[lag] == pytest.approx(sum(pairs), abs=1e-12)
