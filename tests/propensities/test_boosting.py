"""Boosted trees: chosen if the logging policy is not linear, cross-fitted, and the same for any number of threads."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import seachange as sc
from propensities.softmax_logged import logged_by_softmax
from seachange.propensities.boosting import BoostedChoice, boostable_rounds
from seachange.propensities.estimation import ChoiceSample, fit_logging_policy


def drawn(scores, generator, **given):
    """A log whose actions are drawn from a softmax of ``scores`` (n, K), and that distribution."""
    probs = np.exp(scores - scores.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    n, n_actions = scores.shape
    actions = np.minimum((probs.cumsum(axis=1) < generator.random((n, 1))).sum(axis=1), n_actions - 1)
    return sc.BanditLog.from_arrays(actions, generator.random(n), n_actions=n_actions, **given), probs


def bent(kind, n=4_000, seed=0):
    """A logging policy that depends on the product of two features."""
    generator = np.random.default_rng(seed)
    if kind == "per action":
        x = generator.normal(size=(n, 3, 2))
        return drawn(2 * x[..., 0] * x[..., 1], generator, action_features=x)
    x = generator.normal(size=(n, 3))
    scores = x[:, :1] * x[:, 1:2] * [2.0, -2.0, 0.0]
    if kind == "shared":
        return drawn(scores, generator, contexts=x)
    mask = generator.random((n, 3)) < 0.7
    mask[np.arange(n), generator.integers(3, size=n)] = True
    return drawn(np.where(mask, scores, -np.inf), generator, contexts=x, action_mask=mask)


def divergence(truth, found):
    """Mean Kullback-Leibler divergence."""
    possible = truth > 0
    return np.sum(truth[possible] * np.log(truth[possible] / found[possible])) / len(truth)


@pytest.mark.parametrize("kind", ["shared", "masked", "per action"])
def test_trees_find_what_a_linear_model_cannot(kind, monkeypatch):
    log, truth = bent(kind)
    fit = fit_logging_policy(log)
    probs = fit.logging_probs(log)
    assert fit.kind == "boosted"
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    if log.masked:
        assert (probs[~log.action_mask] == 0).all()
    monkeypatch.setattr("seachange.propensities.estimation.boostable_rounds", lambda log: 0)
    assert divergence(truth, probs) < 0.3 * divergence(truth, sc.estimate_logging_probs(log))


@pytest.mark.parametrize("kind", ["shared", "masked", "per action"])
def test_a_linear_policy_keeps_its_linear_model(kind):
    log, _ = logged_by_softmax(kind, 3_000)
    assert fit_logging_policy(log).kind == "linear"


def test_the_number_of_threads_changes_nothing():
    log, _ = bent("shared", 2_000)
    with threadpool_limits(2):
        many = sc.estimate_logging_probs(log)
    with threadpool_limits(1):
        np.testing.assert_array_equal(sc.estimate_logging_probs(log), many)


def test_a_block_is_predicted_by_models_of_the_others():
    """Shuffling the actions of a block changes no model of it."""
    log, _ = bent("shared", 1_000)
    changed = log.actions.copy()
    changed[:200] = changed[:200][::-1]
    other = sc.BanditLog.from_arrays(changed, log.rewards, contexts=log.contexts, n_actions=3)
    linear, inside, outside = np.full((800, 3), -np.log(3)), np.arange(200), np.arange(200, 1_000)
    ours, theirs = (
        [*BoostedChoice.fit(ChoiceSample(one, outside), linear).log_probs(ChoiceSample(one, inside), linear[:200])]
        for one in (log, other)
    )
    np.testing.assert_array_equal(ours, theirs)
    assert len(ours) == 6


def test_boosting_is_not_tried_if_it_cannot_help():
    assert boostable_rounds(logged_by_softmax("none", 5_000)[0]) == 0
    assert boostable_rounds(logged_by_softmax("shared", 400)[0]) == 0
    assert boostable_rounds(logged_by_softmax("shared", 600)[0]) == 600
