"""The probability that each of several normal variables is the largest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr
from scipy.stats import norm

from properties import examples
from seachange.kernels.thompson import thompson_probs

pytestmark = pytest.mark.small


def probs_of(means, deviations, allowed=None):
    probs = np.full(len(means), np.nan)
    mask = np.ones(len(means), dtype=bool) if allowed is None else np.asarray(allowed)
    thompson_probs(np.asarray(means, dtype=float), np.asarray(deviations, dtype=float), mask, probs)
    return probs


@settings(max_examples=examples(200), deadline=None)
@given(
    gap=st.floats(-12, 12),
    scale=st.integers(-12, 12).map(lambda power: 10.0**power),
    ratio=st.integers(-12, 0).map(lambda power: 10.0**power),
    offset=st.floats(-100, 100),
)
def test_two_actions_have_the_closed_form(gap, scale, ratio, offset):
    """P(X_1 > X_0) = Φ((μ_1 - μ_0) / √(σ_0² + σ_1²)), whatever the scales."""
    deviations = np.array([scale, scale * ratio])
    means = np.array([offset, offset + gap]) * scale
    expected = norm.cdf((means[1] - means[0]) / np.hypot(*deviations))
    np.testing.assert_allclose(probs_of(means, deviations), [1 - expected, expected], atol=1e-6)
    np.testing.assert_allclose(probs_of(means[::-1], deviations[::-1]), [expected, 1 - expected], atol=1e-6)


def finely_integrated(means, deviations):
    """∫ φ(z) Π_b Φ((μ_a + σ_a z - μ_b) / σ_b) dz, with 20 nodes in every half deviation of every action."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    probs = np.empty(len(means))
    for a in range(len(means)):
        steps = means[:, None] + np.arange(-9, 9.5, 0.5) * deviations[:, None]
        ends = np.unique(np.clip((steps - means[a]) / deviations[a], -9, 9))
        half = np.diff(ends)[:, None] / 2
        z = ends[:-1, None] + half * (1 + nodes)
        others = np.delete(np.arange(len(means)), a)
        logs = log_ndtr((means[a] + deviations[a] * z[..., None] - means[others]) / deviations[others]).sum(axis=-1)
        probs[a] = (weights * half * norm.pdf(z) * np.exp(logs)).sum()
    return probs


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.floats(-3, 3), st.floats(-3, 1)), min_size=3, max_size=6))
def test_several_actions_agree_with_a_fine_quadrature(actions):
    means, powers = np.array(actions).T
    deviations = 10.0**powers
    expected = finely_integrated(means, deviations)
    assert expected.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(probs_of(means, deviations), expected, atol=1e-6)


@pytest.mark.parametrize("n_actions", [2, 10, 50])
def test_equal_actions_have_equal_chances(n_actions):
    for deviation in (0.0, 1e-200, 1e-9, 1.0, 1e9):
        found = probs_of(np.full(n_actions, 0.3), np.full(n_actions, deviation))
        np.testing.assert_allclose(found, 1 / n_actions, atol=1e-9)


def test_one_action_among_many_has_the_known_integral():
    """K - 1 standard normals and one certain value c: the latter wins with Φ(c)^(K - 1)."""
    for n_others in (1, 9, 49):
        for certain in (0.0, 1.0, 2.5):
            found = probs_of([*np.zeros(n_others), certain], [*np.ones(n_others), 0.0])
            assert found[-1] == pytest.approx(norm.cdf(certain) ** n_others, abs=1e-6)


@pytest.mark.large
def test_shares_of_draws_agree():
    generator, n_draws = np.random.default_rng(0), 1_000_000
    for n_actions in (3, 8):
        means, deviations = generator.normal(size=n_actions), np.exp(generator.normal(size=n_actions))
        draws = generator.normal(means, deviations, (n_draws, n_actions))
        shares = np.bincount(draws.argmax(axis=1), minlength=n_actions) / n_draws
        found = probs_of(means, deviations)
        assert (np.abs(shares - found) < 4.5 * np.sqrt(found * (1 - found) / n_draws) + 1e-9).all()


def test_actions_that_are_not_allowed_have_no_chance():
    found = probs_of([5.0, 0.0, 1.0], [1.0, 1.0, 1.0], [False, True, True])
    expected = norm.cdf(1 / np.sqrt(2))
    np.testing.assert_allclose(found, [0, 1 - expected, expected], atol=1e-9)
    assert probs_of([5.0, 0.0], [1.0, 1.0], [False, True]).tolist() == [0, 1]
    assert probs_of([5.0, 0.0], [0.0, 0.0]).tolist() == [1, 0]
