"""Rates that borrow from each other: Bayes by enumeration, and the likeliest prior."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seachange.propensities.estimation import RatePrior


def log_likelihood(prior, taken, shown):
    """Σ_a log Σ_g w_g Poisson(c_a; λ_g s_a), term by term."""
    return sum(
        math.log(
            sum(
                w * math.exp(c * math.log(rate * s) - rate * s - math.lgamma(c + 1))
                for rate, w in zip(prior.rates, prior.weights, strict=True)
            )
        )
        for c, s in zip(taken, shown, strict=True)
    )


def counted(kind, n_actions, n_rounds, seed):
    """How often each action was taken, and with which probability it is."""
    probs = {"alike": np.ones(n_actions), "tail": 1 / np.arange(1, n_actions + 1)}[kind]
    probs = probs / probs.sum()
    return np.random.default_rng(seed).multinomial(n_rounds, probs).astype(float), probs


def test_means_are_those_of_bayes_by_enumeration():
    prior = RatePrior(np.array([0.01, 0.2, 0.5]), np.array([0.5, 0.3, 0.2]))
    taken, shown = np.array([0.0, 3.0, 7.0, 0.0]), np.array([10.0, 10.0, 12.0, 0.0])
    for c, s, found in zip(taken, shown, prior.means(taken, shown), strict=True):
        joint = [w * rate**c * math.exp(-rate * s) for rate, w in zip(prior.rates, prior.weights, strict=True)]
        assert found == pytest.approx(sum(j * r for j, r in zip(joint, prior.rates, strict=True)) / sum(joint))


@pytest.mark.parametrize("kind", ["alike", "tail"])
@pytest.mark.parametrize("masked", [False, True])
def test_no_prior_nearby_makes_the_counts_likelier(kind, masked):
    """Other weights on the same grid are at most a little better, which is what the imagined share costs."""
    taken, _ = counted(kind, 40, 400, 0)
    shown = np.linspace(200, 400, 40).round() if masked else np.full(40, 400.0)
    prior = RatePrior.of(taken, shown)
    reached = log_likelihood(prior, taken, shown)
    generator = np.random.default_rng(1)
    for _ in range(20):
        moved = prior.weights * np.exp(0.5 * generator.normal(size=len(prior.weights)))
        assert log_likelihood(RatePrior(prior.rates, moved / moved.sum()), taken, shown) < reached + 0.5
    for single in range(0, len(prior.rates), 5):
        alone = RatePrior(prior.rates[single : single + 1], np.ones(1))
        if alone.rates[0] * shown.max() > 1:
            assert log_likelihood(alone, taken, shown) < reached + 0.5


@pytest.mark.parametrize("seed", range(5))
def test_actions_that_are_taken_alike_get_one_rate(seed):
    taken, _ = counted("alike", 200, 1_000, seed)
    found = RatePrior.of(taken, np.full(200, 1_000.0)).means(taken, np.full(200, 1_000.0))
    assert np.abs(taken / 1_000 - 1 / 200).mean() > 0.0015
    assert np.abs(found - 1 / 200).mean() < 0.0006


@pytest.mark.parametrize("seed", range(5))
def test_a_long_tail_is_found_better_than_by_counts(seed):
    """Summed over actions in the units of their chance."""
    taken, probs = counted("tail", 500, 5_000, seed)
    shown = np.full(500, 5_000.0)
    found = RatePrior.of(taken, shown).means(taken, shown)
    borrowed, counts = (np.mean(np.square(each - probs) / probs) for each in (found, taken / 5_000))
    assert borrowed < 0.7 * counts


def test_many_rounds_speak_for_themselves():
    taken = np.array([5_000.0, 20_000.0, 75_000.0, 300_000.0])
    shown = np.full(4, 400_000.0)
    found = RatePrior.of(taken, shown).means(taken, shown)
    assert (np.abs(found - taken / shown) < 0.3 * np.sqrt(taken) / shown).all()


counts = st.lists(st.integers(0, 500), min_size=1, max_size=30).filter(any)


@settings(deadline=None, max_examples=60)
@given(counts, st.randoms(use_true_random=False))
def test_rates_are_positive_and_rise_with_the_count(taken, random):
    taken = np.array(taken, dtype=float)
    shown = np.full(len(taken), taken.sum() + random.randint(0, 100))
    prior = RatePrior.of(taken, shown)
    assert prior.weights.sum() == pytest.approx(1)
    assert (prior.weights > 0).all()
    found = prior.means(np.arange(501.0), np.full(501, shown[0]))
    assert (found > 0).all()
    assert (np.diff(found) >= -1e-12).all()


def test_what_could_not_be_shown_has_the_rate_of_an_unknown_action():
    taken, shown = np.array([10.0, 30.0, 0.0]), np.array([100.0, 100.0, 0.0])
    prior = RatePrior.of(taken, shown)
    assert prior.means(taken, shown)[2] == pytest.approx(prior.rates @ prior.weights)


def test_far_more_actions_than_rounds_leave_little_to_those_never_taken():
    """A hundred of 10,000 actions are in use: the rest get less than one round in a hundred."""
    taken = np.zeros(10_000)
    taken[:100] = np.random.default_rng(0).multinomial(3_000, np.full(100, 0.01))
    shown = np.full(10_000, 3_000.0)
    found = RatePrior.of(taken, shown).means(taken, shown)
    assert found[100:].sum() < 0.01
    np.testing.assert_allclose(found[:100], 0.01, rtol=0.3)
