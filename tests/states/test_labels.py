"""Labels, and the oracles that do not estimate them."""

import numpy as np
import pytest

import seachange as sc
from seachange.states.labels import by_first_appearance, share_right


def test_known_states_are_used_unchanged(make_log):
    states = np.repeat([0, 2, 1], 200)
    labels = sc.KnownStates(states).fit(make_log()).predict(make_log())
    np.testing.assert_array_equal(labels.states, states)
    assert labels.change_points.tolist() == [200, 400]
    assert labels.n_states == 3
    assert labels.expected_stay == 200


@pytest.mark.parametrize("states", [[0, 1], np.full(600, -1), np.full(600, 0.5), np.full((600, 1), 1)])
def test_known_states_must_fit_the_log(make_log, states):
    with pytest.raises(ValueError, match="states must"):
        sc.KnownStates(states).fit(make_log())


def test_a_single_state_has_no_changes(make_log):
    labels = sc.SingleState().fit(make_log()).predict(make_log())
    assert labels.n_states == 1
    assert len(labels.change_points) == 0


def test_boundaries_of_sequences_are_not_changes(make_log):
    log = make_log(n=6, sequences=[0, 1, 0, 1, 0, 1])
    labels = sc.KnownStates([0, 1, 0, 1, 1, 1]).fit(log).predict(log)
    assert labels.change_points.tolist() == [4]
    assert labels.expected_stay == 2


def test_weights_are_memberships_or_probabilities():
    probs = np.array([[0.9, 0.1], [0.2, 0.8]])
    labels = sc.StateLabels(np.array([0, 1]), 2, np.array([1]), state_probs=probs)
    np.testing.assert_array_equal(labels.weights(soft=False), np.eye(2))
    np.testing.assert_array_equal(labels.weights(soft=True), probs.T)


def test_states_are_numbered_by_first_appearance():
    assert by_first_appearance(np.array([2, 2, 0, 2]), 4).tolist() == [2, 0, 1, 3]


def test_share_right_ignores_only_the_numbering():
    assert share_right(np.array([1, 1, 0, 0]), np.array([0, 0, 1, 1])) == 1
    assert share_right(np.array([1, 1, 0, 1]), np.array([0, 0, 1, 1])) == 0.75
