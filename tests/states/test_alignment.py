"""``align_to`` keeps the numbers of states from one fit to the next."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError, SeachangeWarning
from seachange.states.labels import share_right

MEANS = np.array([[0.1, 0.5, 0.9], [0.9, 0.1, 0.5], [0.5, 0.9, 0.1]])


def log_of(states, seed=0, kind="none"):
    g = np.random.default_rng(seed)
    n = len(states)
    actions = g.integers(3, size=n)
    columns = {"contexts": g.normal(size=(n, 2))} if kind == "shared" else {}
    rewards = MEANS[states, actions] + g.normal(0, 0.3, n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **columns)


def visits(*order):
    return np.repeat(order, 400)


def right(oracle, log, states):
    """Share of rounds whose state has the right number."""
    return np.mean(oracle.predict(log).states == states)


@pytest.fixture(scope="module")
def old():
    """A fit whose states have the numbers of ``MEANS``."""
    return sc.HMMOracle(n_states=3).fit(log_of(visits(0, 1, 2, 0, 1, 2)))


def test_states_are_numbered_by_first_appearance(old):
    assert right(old, log_of(visits(0, 1, 2)), visits(0, 1, 2)) > 0.98


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_another_seed_keeps_the_numbers(old, seed):
    log = log_of(visits(0, 1, 2, 0, 1, 2))
    again = sc.HMMOracle(n_states=3, seed=seed, align_to=old).fit(log)
    np.testing.assert_array_equal(again.predict(log).states, old.predict(log).states)


@pytest.mark.parametrize("order", [(2, 1, 0, 2, 1, 0), (1, 2, 0, 1, 2, 0), (2, 0, 1, 2, 0, 1)])
def test_a_later_log_keeps_the_numbers_whatever_comes_first(old, order):
    log = log_of(visits(*order), seed=5)
    assert right(sc.HMMOracle(n_states=3, align_to=old).fit(log), log, visits(*order)) > 0.98
    by_itself = sc.HMMOracle(n_states=3).fit(log)
    assert right(by_itself, log, visits(*order)) < 0.5
    assert share_right(by_itself.predict(log).states, visits(*order)) > 0.98


def test_the_second_half_keeps_the_numbers_of_the_first():
    states = visits(0, 1, 2, 0, 2, 1, 2, 0, 1, 0)
    first, second = log_of(states, kind="shared").split(0.5)
    early = sc.HMMOracle(n_states=3).fit(first)
    late = sc.HMMOracle(n_states=3, align_to=early).fit(second)
    assert right(late, second, states[2000:]) > 0.97
    np.testing.assert_allclose(late.model_.reward_coefs, early.model_.reward_coefs, atol=0.2)


def test_new_states_come_last():
    early = sc.HMMOracle(n_states=2).fit(log_of(visits(0, 1, 0, 1)))
    order = (2, 1, 2, 0, 1, 0)
    log = log_of(visits(*order), seed=6)
    assert right(sc.HMMOracle(n_states=3, align_to=early).fit(log), log, visits(*order)) > 0.98


@pytest.mark.parametrize(("gone", "order"), [(0, (2, 1, 2, 1)), (1, (2, 0, 2, 0)), (2, (1, 0, 1, 0))])
def test_without_a_state_the_others_keep_their_order(old, gone, order):
    log = log_of(visits(*order), seed=7)
    left = [z for z in range(3) if z != gone]
    with pytest.warns(SeachangeWarning, match=f"have no match in this log: {gone}\\."):
        oracle = sc.HMMOracle(n_states=2, align_to=old).fit(log)
    assert right(oracle, log, np.searchsorted(left, visits(*order))) > 0.98


def test_an_unmatched_state_is_named_in_a_warning(old):
    """It gets the number of the unmatched state."""
    log = log_of(visits(2, 0, 1, 2, 0, 1), seed=9)
    rewards = np.where(visits(2, 0, 1, 2, 0, 1) == 1, log.rewards + 5.0, log.rewards)
    with pytest.warns(SeachangeWarning, match=r"have no match in this log: 1\."):
        oracle = sc.HMMOracle(n_states=3, align_to=old).fit(log.with_rewards(rewards))
    assert right(oracle, log.with_rewards(rewards), visits(2, 0, 1, 2, 0, 1)) > 0.98


def test_the_number_of_states_may_be_chosen_and_aligned(old):
    log = log_of(visits(2, 1, 0, 2, 1, 0), seed=8)
    oracle = sc.HMMOracle(align_to=old).fit(log)
    assert oracle.model_.n_states == 3
    assert right(oracle, log, visits(2, 1, 0, 2, 1, 0)) > 0.98


def test_a_model_an_oracle_and_a_regression_align_the_same_way(old):
    log = log_of(visits(2, 1, 0, 2, 1, 0), seed=8)
    learned = sc.learn(log_of(visits(0, 1, 2, 0, 1, 2)), oracle=sc.HMMOracle(n_states=3))
    for given in (old, old.model_, learned):
        assert right(sc.HMMOracle(n_states=3, align_to=given).fit(log), log, visits(2, 1, 0, 2, 1, 0)) > 0.98


def test_a_model_of_another_shape_is_rejected(old):
    with pytest.raises(ParameterError, match=r"align_to was fitted with .*; the log has"):
        sc.HMMOracle(n_states=3, align_to=old).fit(log_of(visits(0, 1, 2), kind="shared"))


def test_an_object_that_is_not_a_model_is_rejected():
    with pytest.raises(ParameterError, match="align_to must be a model, or a fitted HMMOracle"):
        sc.HMMOracle(n_states=3, align_to=[0, 1, 2]).fit(log_of(visits(0, 1, 2)))
