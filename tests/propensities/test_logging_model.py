"""The logit model of the action taken: its gradient, its peers, and what it makes of chance."""

from dataclasses import replace

import numpy as np
import pytest

import seachange as sc
from propensities.softmax_logged import KINDS, K, logged_by_softmax
from seachange.propensities.estimation import ChoiceModel, ChoiceSample


@pytest.mark.small
@pytest.mark.parametrize("kind", ["shared", "per action", "masked"])
def test_the_gradient_is_that_of_the_log_likelihood(kind):
    log, _ = logged_by_softmax(kind, 40)
    sample = ChoiceSample(log, np.arange(0, 40, 2))
    start = ChoiceModel.plain(sample, sample.prior)
    flat = np.random.default_rng(0).normal(size=len(start.coefs))
    _, slope = replace(start, coefs=flat)._loss(sample)
    for i in range(len(flat)):
        step = np.zeros_like(flat)
        step[i] = 1e-5
        higher, lower = (replace(start, coefs=flat + sign * step)._loss(sample)[0] for sign in (1, -1))
        assert slope[i] == pytest.approx((higher - lower) / 2e-5, rel=1e-5, abs=1e-6)


def test_a_shared_context_gives_what_scikit_learn_gives():
    from sklearn.linear_model import LogisticRegression

    log, _ = logged_by_softmax("shared", 3_000)
    sample = ChoiceSample(log, np.arange(3_000))
    ours = ChoiceModel.plain(sample, sample.prior).fit(sample, ridge=1e-3, chance=0.0).probs(sample)
    standard = (log.contexts - log.contexts.mean(axis=0)) / log.contexts.std(axis=0)
    theirs = LogisticRegression(C=1e3, tol=1e-8, max_iter=1000).fit(standard, log.actions).predict_proba(standard)
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_two_actions_with_vectors_are_a_logistic_regression_on_their_difference():
    from sklearn.linear_model import LogisticRegression

    generator = np.random.default_rng(0)
    features = generator.normal(size=(3_000, 2, 2))
    gap = features[:, 1] - features[:, 0]
    actions = (generator.random(3_000) < 1 / (1 + np.exp(-gap @ [1.0, -0.5] - 0.3))).astype(int)
    log = sc.BanditLog.from_arrays(actions, np.ones(3_000), action_features=features)
    sample = ChoiceSample(log, np.arange(3_000))
    ours = ChoiceModel.plain(sample, sample.prior).fit(sample, ridge=1e-3, chance=0.0).probs(sample)[:, 1]
    theirs = LogisticRegression(C=1e3, tol=1e-8).fit(gap, actions).predict_proba(gap)[:, 1]
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_a_round_is_foreseen_without_itself():
    """Another action in the first block changes no model of the other blocks, but for the prior of all rates."""
    log, _ = logged_by_softmax("shared", 400)
    changed = log.actions.copy()
    changed[3] = (changed[3] + 1) % K
    other = sc.BanditLog.from_arrays(changed, log.rewards, contexts=log.contexts, n_actions=K)
    prior = ChoiceSample(log, np.arange(400)).prior
    ours, theirs = (
        ChoiceModel.plain(sample, prior).fit(sample, 1.0).probs(ChoiceSample(one, np.arange(80)))
        for one in (log, other)
        for sample in [ChoiceSample(one, np.arange(80, 400))]
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_without_slopes_a_model_expects_as_many_takings_as_the_frequencies(kind):
    """Intercepts do not undo what counts of few rounds borrow: Σ_t π_0(a | x_t) = f(a) s(a), ridge being nothing."""
    log, _ = logged_by_softmax(kind, 60)
    sample = ChoiceSample(log, np.arange(60))
    plain = ChoiceModel.plain(sample, sample.prior)
    found = plain.fit(sample, ridge=1e-9).probs(sample).sum(axis=0)
    np.testing.assert_allclose(found, plain.frequencies * sample.shown, rtol=1e-3)
    assert found.sum() == pytest.approx(60)


def test_what_contexts_leave_to_chance():
    """By enumeration; all of it without contexts, none where they decide."""
    log, _ = logged_by_softmax("shared", 40)
    sample = ChoiceSample(log, np.arange(40))
    plain = ChoiceModel.plain(sample, sample.prior)
    np.testing.assert_allclose(plain.chance(sample), 1)
    fitted = plain.fit(sample, 1.0)
    probs = fitted.probs(sample)
    expected = [sum(p * (1 - p) for p in probs[:, a]) / (40 * f * (1 - f)) for a, f in enumerate(plain.frequencies)]
    np.testing.assert_allclose(fitted.chance(sample), np.minimum(expected, 1), rtol=1e-6)
    sure = replace(plain, coefs=1e3 * np.random.default_rng(0).normal(size=len(plain.coefs)))
    assert sure.chance(sample).max() < 0.2
