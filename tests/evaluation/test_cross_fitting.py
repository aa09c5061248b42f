"""Reward models that do not know the rewards they are asked about."""

from dataclasses import replace

import numpy as np
import pytest

import seachange as sc
from seachange.evaluation.terms import FOLDS, fit_across
from seachange.log.clusters import Clusters
from seachange.policies.reward_models import fit_rewards

pytestmark = pytest.mark.small
EVERYTHING = slice(0, 300)


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
@pytest.mark.parametrize("forward", [False, True])
def test_no_prediction_knows_its_own_fold_nor_a_later_one_where_it_looks_back(make_log, kind, forward):
    log = make_log(kind, n=300)
    folds = Clusters(log).folds(FOLDS)
    fit = fit_across(log, np.ones((300, 1)), folds, first=0.5 if forward else None)
    before = fit.predict(EVERYTHING)
    changed = log.rewards.copy()
    changed[folds == 2] = 7.0
    moved = fit_across(log.with_rewards(changed), np.ones((300, 1)), folds, first=0.5 if forward else None).predict(
        EVERYTHING
    )
    same = np.isclose(before, moved, atol=1e-12).all(axis=1)
    assert same[folds == 2].all()
    assert same[folds < 2].all() == forward
    assert not same[folds > 2].any()


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_a_fold_is_fitted_as_the_rest_of_the_log_by_itself(make_log, kind):
    log = make_log(kind, n=300)
    states = (np.arange(300) // 20) % 2
    membership = np.eye(2)[states]
    folds = Clusters(log).folds(FOLDS)
    found = fit_across(log, membership, folds).predict(EVERYTHING)
    for fold in range(FOLDS):
        models = fit_rewards(log, membership * (folds != fold)[:, None], 1.0)
        for state, model in enumerate(models):
            here = (folds == fold) & (states == state)
            expected = np.broadcast_to(model.predict(log), (300, 3))
            assert found[here] == pytest.approx(expected[here], rel=1e-9, abs=1e-9)


def test_folds_are_blocks_of_time_that_cut_no_sequence(make_log):
    assert Clusters(make_log(n=10)).folds(5).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    names = np.tile(np.arange(60), 5)
    folds = Clusters(make_log(n=300, sequences=names)).folds(5)
    assert all(len(set(folds[names == name])) == 1 for name in range(60))
    assert np.bincount(folds).tolist() == [60] * 5
    assert (np.diff(folds[:60]) >= 0).all()


def test_a_state_that_other_folds_never_saw_gets_the_fit_of_all_states(make_log):
    log = make_log("none", n=300)
    states = (np.arange(300) >= 290).astype(int)
    found = fit_across(log, np.eye(2)[states], Clusters(log).folds(FOLDS)).predict(EVERYTHING)
    pooled = fit_across(log, np.ones((300, 1)), Clusters(log).folds(FOLDS)).predict(EVERYTHING)
    assert found[290:] == pytest.approx(pooled[290:])


def test_there_may_be_more_parameters_than_rounds():
    generator = np.random.default_rng(0)
    log = sc.BanditLog.from_arrays(
        generator.integers(3, size=60), generator.random(60), np.full(60, 1 / 3),
        contexts=generator.normal(size=(60, 80)), n_actions=3,
    )  # fmt: skip
    estimates = sc.evaluate(log, np.full((60, 3), 1 / 3), tuple(sc.evaluation.ESTIMATORS))
    assert np.isfinite([[e.value, e.std_error, e.low, e.high] for e in estimates]).all()


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
@pytest.mark.parametrize("forward", [False, True])
def test_the_noise_of_a_reward_moves_the_estimate_by_the_stated_amount(make_log, kind, forward):
    """Against what happens when that reward is changed: r̂ is linear in the rewards."""
    log, generator = make_log(kind, n=60), np.random.default_rng(0)
    probs, weights = generator.dirichlet(np.ones(3), size=60), generator.random(60)
    membership, folds = np.eye(2)[generator.integers(2, size=60)], Clusters(log).folds(FOLDS)

    def corrected(rewards):
        """Σ direct - w r̂, the part of the estimate that is made of r̂."""
        predicted = fit_across(log.with_rewards(rewards), membership, folds, first=0.5 if forward else None).predict(
            slice(0, 60)
        )
        return np.sum(probs * predicted) - weights @ predicted[np.arange(60), log.actions]

    fit = fit_across(log, membership, folds, first=0.5 if forward else None)
    targets = np.zeros_like(fit.coefs)
    fit.add_targets(targets, slice(0, 60), probs)

    def said(rewards, residuals):
        return replace(fit, log=log.with_rewards(rewards)).fit_errors(targets, weights, residuals)

    one, none = np.ones(60), np.zeros(60)
    slopes = said(one, one) - said(none, none)
    expected = [corrected(log.rewards + np.eye(60)[s]) - corrected(log.rewards) for s in range(60)]
    assert slopes == pytest.approx(expected, abs=1e-9)
