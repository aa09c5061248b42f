"""Reward models maximize their likelihood, shrink toward a center, and are cross-fitted without the held-out block."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

import seachange as sc
from seachange.policies.reward_models import cross_fitted, fit_rewards, folds_of, reward_kind, robust_weights

pytestmark = pytest.mark.small
KINDS = ("none", "shared", "per action")


def click_log(kind, n=400, seed=0):
    generator = np.random.default_rng(seed)
    columns = {}
    if kind == "shared":
        columns["contexts"] = generator.normal(size=(n, 2))
    if kind == "per action":
        columns["action_features"] = generator.normal(size=(n, 3, 2))
    actions = generator.integers(3, size=n)
    clicks = (generator.random(n) < np.array([0.2, 0.4, 0.7])[actions]).astype(float)
    return sc.BanditLog.from_arrays(actions, clicks, np.full(n, 1 / 3), n_actions=3, **columns), generator


def own_features(log):
    """f(x_t, a_t) written out, (n, B D)."""
    n, (n_blocks, n_features) = len(log), log.joint.shape
    rows = np.broadcast_to(log.arrays.rows, (n, *log.arrays.rows.shape[1:]))
    features = np.zeros((n, n_blocks, n_features))
    for t in range(n):
        action = log.actions[t]
        features[t, action if n_blocks > 1 else 0] = rows[t, action if rows.shape[1] > 1 else 0]
    return features.reshape(n, -1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_click_model_is_at_the_maximum_of_its_penalized_likelihood(kind):
    log, generator = click_log(kind)
    weights, center = generator.random(len(log)), generator.normal(size=log.joint.shape)
    features = own_features(log)

    def loss(coefs):
        likelihood = weights @ (log.rewards * (features @ coefs) - np.logaddexp(0, features @ coefs))
        return 0.5 * 3.0 * np.sum(log.units.coefs(coefs.reshape(center.shape) - center) ** 2) - likelihood

    model = fit_rewards(log, weights[:, None], 3.0, "bernoulli", center)[0]
    exact = minimize(loss, np.zeros(features.shape[1]), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(model.coefs.ravel(), exact, atol=1e-4)
    np.testing.assert_allclose(model.predict(log)[-1, log.actions[-1]], expit(features[-1] @ exact), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_least_squares_shrink_toward_their_center(kind):
    log, generator = click_log(kind)
    weights, center = generator.random(len(log)), generator.normal(size=log.joint.shape)
    features, n_blocks = own_features(log), log.joint.shape[0]
    change = np.kron(np.eye(n_blocks), np.stack([log.units.coefs(unit) for unit in np.eye(log.joint.shape[1])], axis=1))
    gram, penalty = (features.T * weights) @ features, 3.0 * change.T @ change
    exact = np.linalg.solve(gram + penalty, features.T @ (weights * log.rewards) + penalty @ center.ravel())
    model = fit_rewards(log, weights[:, None], 3.0, center=center)[0]
    np.testing.assert_allclose(model.coefs.ravel(), exact, atol=1e-9)
    shrunk = fit_rewards(log, weights[:, None], 1e9, center=center)[0]
    np.testing.assert_allclose(shrunk.coefs, center, atol=1e-5)


@pytest.mark.parametrize("reward_kind", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_prediction_saw_its_own_block(kind, reward_kind):
    log, generator = click_log(kind)
    weights = generator.random(len(log))
    before = cross_fitted(log, weights, 1.0, reward_kind, n_folds=4)
    folds = folds_of(log, weights, 4)
    assert len(folds) == 4
    for block, _ in folds:
        flipped = log.rewards.copy()
        flipped[block] = 1 - flipped[block]
        after = cross_fitted(log.with_rewards(flipped), weights, 1.0, reward_kind, n_folds=4)
        np.testing.assert_allclose(after[block], before[block], atol=1e-6)
        assert np.abs(after - before).max() > 1e-3


@pytest.mark.parametrize("reward_kind", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("kind", KINDS)
def test_predictions_for_some_rounds_equal_those_for_all(kind, reward_kind):
    log, generator = click_log(kind)
    weights, needed = generator.random(len(log)), generator.random(len(log)) < 0.3
    every = cross_fitted(log, weights, 1.0, reward_kind, n_folds=4)
    some = cross_fitted(log, weights, 1.0, reward_kind, n_folds=4, needed=needed)
    np.testing.assert_array_equal(some[needed], every[needed])
    assert (some[needed] != 0).all()


@pytest.mark.parametrize("reward_kind", ["gaussian", "bernoulli"])
def test_a_doubly_robust_learner_uses_its_model_of_the_weighted_rounds(reward_kind):
    log, generator = click_log("shared")
    counts = np.where(generator.random(len(log)) < 0.5, 0.0, generator.random(len(log)))
    objective = sc.policies.DRLearner(rewards=reward_kind, ridge=1.0)._objective(log, counts)
    expected = cross_fitted(log, counts, 1.0, reward_kind)
    np.testing.assert_allclose(objective.modeled[counts > 0], expected[counts > 0], atol=1e-12)


def test_blocks_share_the_weight_and_cover_every_round():
    weights = np.concatenate([np.zeros(50), np.ones(10), np.zeros(40), np.full(20, 0.5)])
    log = sc.BanditLog.from_arrays(np.arange(120) % 3, np.ones(120), np.full(120, 1 / 3))
    folds = folds_of(log, weights, 4)
    assert all(fold.inside.all() for fold in folds)
    assert [fold.span.start for fold in folds[1:]] == [fold.span.stop for fold in folds[:-1]]
    assert folds[0].span.start == 0
    assert folds[-1].span.stop == 120
    assert [weights[fold.span].sum() for fold in folds] == [5, 5, 5, 5]
    np.testing.assert_array_equal(folds[0].without(weights)[folds[0].span], 0.0)
    assert folds[0].without(weights).sum() == 15


def test_no_sequence_is_split_between_folds():
    """Users with interleaved rounds are each modeled from other users only."""
    log, generator = click_log("shared")
    users = generator.integers(20, size=len(log))
    columns = log.actions, log.rewards, log.propensities
    log = sc.BanditLog.from_arrays(*columns, contexts=log.contexts, sequences=users)
    fold_of = np.full(len(log), -1)
    for number, fold in enumerate(folds_of(log, np.ones(len(log)), 5)):
        fold_of[fold.span][fold.inside] = number
    assert set(fold_of) == set(range(5))
    assert all(len(set(fold_of[users == user])) == 1 for user in range(20))
    before = cross_fitted(log, np.ones(len(log)), 1.0)
    flipped = np.where(users == 3, 1 - log.rewards, log.rewards)
    after = cross_fitted(log.with_rewards(flipped), np.ones(len(log)), 1.0)
    np.testing.assert_allclose(after[users == 3], before[users == 3], atol=1e-12)


def test_one_sequence_is_split_like_a_log_without_sequences():
    log, _ = click_log("shared")
    columns = log.actions, log.rewards, log.propensities
    one = sc.BanditLog.from_arrays(*columns, contexts=log.contexts, sequences=np.zeros(len(log), dtype=int))
    assert len(folds_of(one, np.ones(len(one)), 5)) == 5


def test_clicks_are_detected_from_the_rewards():
    log, _ = click_log("none")
    assert reward_kind(log, "auto") == "bernoulli"
    assert reward_kind(log.with_rewards(log.rewards + 0.5), "auto") == "gaussian"
    with pytest.raises(ValueError, match=r"rewards of 0 or 1; the log has 0.5"):
        reward_kind(log.with_rewards(log.rewards / 2), "bernoulli")


def test_robust_weights_are_large_if_the_correction_is_noisy():
    np.testing.assert_allclose(robust_weights(np.array([0.5, 1.0, 1.0]), np.array([0.5, 1.0, 0.1])), [1.0, 0.0, 90.0])


@pytest.mark.parametrize("clicks", [0.0, 1.0])
def test_constant_clicks_have_a_model(clicks):
    log, _ = click_log("shared")
    model = fit_rewards(log.with_rewards(np.full(len(log), clicks)), np.ones((len(log), 1)), "auto", "bernoulli")[0]
    predicted = model.predict(log)
    assert np.isfinite(predicted).all()
    assert np.abs(predicted - clicks).max() < 0.01
