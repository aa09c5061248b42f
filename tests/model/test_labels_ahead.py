"""States known before each reward, and what is said where they are not."""

import warnings

import numpy as np
import pytest

import seachange as sc


def changing(n, seed, sequences=None):
    """Two actions whose rewards trade places half way."""
    generator = np.random.default_rng(seed)
    actions, late = generator.integers(2, size=n), np.arange(n) >= n // 2
    rewards = generator.normal(np.where(late, actions, 1 - actions), 0.1)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), sequences=sequences)


def test_an_hmm_knows_its_states_ahead():
    model = sc.learn(changing(600, 0), n_states=2, objective="dm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not model.label_ahead(changing(600, 1)).from_rewards


def test_a_detector_does_not_and_says_so():
    model = sc.learn(changing(600, 0), oracle="change-point", objective="dm")
    assert model.n_states == 2
    with pytest.warns(sc.SeachangeWarning, match="uses the rewards to find states.*evaluate_online"):
        assert model.label_ahead(changing(600, 1)).from_rewards


def test_a_model_of_one_sequence_meets_many():
    model = sc.learn(changing(600, 0), n_states=2, objective="dm")
    with pytest.warns(sc.SeachangeWarning, match="learned from one sequence of rounds; this log has 30"):
        model.label_ahead(changing(600, 1, sequences=np.arange(600) // 20))
