"""The semi-synthetic world of clicks is that of the visits."""

from dataclasses import replace

import numpy as np
import pytest

import seachange as sc
from seachange.deploy.single import SinglePolicy
from seachange.simulate import ClickRates, Clickstream, FrontPage, rollout

DAY = 86_400


@pytest.fixture(scope="module")
def page():
    return FrontPage(seed=5, n_days=2)


@pytest.fixture(scope="module")
def visits(page):
    return page.visits()


@pytest.fixture(scope="module")
def world(visits):
    return Clickstream(visits=visits, click_rates=ClickRates.of(visits))


class Taste:
    """A policy that likes some topics more than others."""

    def __init__(self, coefs):
        self.coefs = np.asarray(coefs)

    def predict_proba(self, contexts, action_mask=None):
        weights = np.exp(np.asarray(contexts, dtype=np.float64) @ self.coefs)
        return weights / weights.sum(axis=1, keepdims=True)


def test_click_rates_agree_with_the_page_s_within_their_errors(page, visits):
    rates = ClickRates.of(visits, window=6 * 3600, smoothing=0.0)
    true = page.click_rates(visits.shown.astype(np.int64), np.arange(len(visits)))
    scores = []
    for minute in range(180, 2 * DAY // 60 - 180, 240):
        around = (np.arange(len(visits)) >= 60 * (minute - 180)) & (np.arange(len(visits)) < 60 * (minute + 180))
        for document in np.unique(visits.shown[around]):
            mine = around & (visits.shown == document)
            expected, spread = true[mine].sum(), np.sqrt((true[mine] * (1 - true[mine])).sum())
            if mine.sum() > 300:
                found = rates.at(np.array([[document]], dtype=np.int32), visits.times[[60 * minute]])[0, 0] * mine.sum()
                scores.append((found - expected) / spread)
    assert len(scores) > 150
    assert abs(np.mean(scores)) < 4.5 / np.sqrt(len(scores))
    assert 0.85 < np.std(scores) < 1.15


def test_smoothing_pulls_rates_to_the_average_and_no_shows_are_the_average(visits):
    plain, pulled = (ClickRates.of(visits, smoothing=s).rates for s in (0.0, 1e9))
    np.testing.assert_allclose(pulled, visits.clicks.mean(), rtol=1e-3)
    assert plain.std() > 0.01
    unseen = replace(visits, document_ids=np.append(visits.document_ids, 1), document_features=np.ones((1, 1)))
    assert ClickRates.of(unseen, smoothing=0.0).rates[0, 0] == np.float32(visits.clicks.mean())


def test_documents_that_differ_in_their_features_alone_share_their_rates(visits):
    ids = visits.document_ids.copy()
    ids[1] = ids[0]
    shared = ClickRates.of(replace(visits, document_ids=ids))
    assert shared.document_rows[0] == shared.document_rows[1]


def test_a_log_is_what_was_shown_and_clicked(world, visits):
    log = world.log(0)
    assert (len(log), log.n_actions, world.horizon) == (2 * DAY, 10, 2 * DAY)
    np.testing.assert_array_equal(log.rewards, visits.clicks)
    assert (log.propensities == 0.1).all()
    own = visits.document_features[visits.shown].astype(np.float32)
    np.testing.assert_array_equal(log.contexts[np.arange(len(log)), log.actions], own)
    assert not np.array_equal(world.log(1).actions, log.actions)
    np.testing.assert_array_equal(world.log(0).actions, log.actions)


def test_clicks_are_drawn_with_their_rates(world):
    rounds = list(world.rounds(0, 1 << 14))
    rates, clicks = (np.concatenate([getattr(part, name) for part in rounds]) for name in ("mean_rewards", "rewards"))
    z = (clicks - rates).sum() / np.sqrt((rates * (1 - rates)).sum())
    assert abs(z) < 4.5
    assert world.logging_value(0) == pytest.approx(rates.mean())
    assert world.oracle_value(0) == pytest.approx(rates.max(axis=1).mean())


def test_what_a_policy_earns_in_the_world_is_what_the_log_says_of_it(world):
    log = world.log(0)
    shown = log.contexts[np.arange(len(log)), log.actions].astype(np.float64)
    liked = np.linalg.lstsq(shown, log.rewards, rcond=None)[0]
    for steepness in (100, -100):  # one that is clicked more than chance, one that is clicked less
        policy = Taste(steepness * liked)
        earned = rollout(world, SinglePolicy(policy), 0).expected_rewards.mean()
        (estimate,) = sc.evaluate(log, policy, estimators=("ips",), confidence=0.999)
        assert estimate.low < earned < estimate.high
        assert not estimate.low < world.logging_value(0) < estimate.high


def test_visits_with_too_few_documents_are_left_out(visits):
    small = visits.pool_sizes < 20
    world = Clickstream(visits=visits, click_rates=ClickRates.of(visits), n_documents=20)
    assert world.n_too_small == small[visits.pools].sum() > 0
    assert len(world.log(0)) == len(visits) - world.n_too_small
    with pytest.raises(ValueError, match="no visit has a pool of 30 documents"):
        Clickstream(visits=visits, click_rates=ClickRates.of(visits), n_documents=30)


@pytest.mark.small
def test_features_may_be_crossed_or_an_identity(visits, world):
    few = visits.where(slice(0, 3_000))
    crossed = Clickstream(visits=few, click_rates=world.click_rates, features="crossed").log(0)
    plain = Clickstream(visits=few, click_rates=world.click_rates).log(0)
    expected = np.einsum("nu,nkd->nkud", few.users, plain.contexts).reshape(len(few), 10, 36)
    np.testing.assert_allclose(crossed.contexts, expected, rtol=1e-6)
    bare = replace(few, document_features=np.empty((len(few.document_ids), 0)), users=few.users[:, :0])
    with pytest.raises(ValueError, match='Use features="identity"'):
        Clickstream(visits=bare, click_rates=world.click_rates)
    identity = Clickstream(visits=bare, click_rates=world.click_rates, features="identity").log(0)
    assert identity.contexts.shape == (3_000, 10, 16)
    assert len(np.unique(identity.contexts.reshape(-1, 16), axis=0)) == len(
        np.unique(plain.contexts.reshape(-1, 6), axis=0)
    )
    with pytest.raises(ValueError, match="no user features"):
        Clickstream(visits=replace(few, users=few.users[:, :0]), click_rates=world.click_rates, features="crossed")


def test_deployments_are_on_another_sample_than_the_log(world):
    log, rounds = world.log(4), next(iter(world.rounds(4, 10_000)))
    same = (log.contexts[:10_000] == rounds.contexts).all(axis=(1, 2))
    assert same.mean() < 0.01
