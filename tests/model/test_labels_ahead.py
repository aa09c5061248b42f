"""States known before each reward, whatever found them."""

import numpy as np
import pytest

import seachange as sc


def changing(n, seed, sequences=None):
    """Two actions whose rewards trade places half way."""
    generator = np.random.default_rng(seed)
    actions, late = generator.integers(2, size=n), np.arange(n) >= n // 2
    rewards = generator.normal(np.where(late, actions, 1 - actions), 0.1)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), sequences=sequences)


@pytest.mark.parametrize("oracle", ["hmm", "change-point", sc.KnownStates(np.arange(600) // 300)])
def test_labels_ahead_depend_on_earlier_rewards_only(oracle):
    model = sc.learn(
        changing(600, 0), oracle=oracle, objective="dm", **({"n_states": 2} if isinstance(oracle, str) else {})
    )
    log = changing(600, 1)
    labels = model.label_ahead(log)
    assert not labels.from_rewards
    assert labels.n_states == model.n_states == 2
    np.testing.assert_array_equal(labels.states, labels.state_probs.argmax(axis=1))
    np.testing.assert_allclose(labels.state_probs.sum(axis=1), 1)
    # They follow the change a few rounds later, and later rewards leave them as they are.
    before, after = labels.states[50:300], labels.states[350:]
    assert (before == before[0]).all()
    assert (after == 1 - before[0]).all()
    rewards = np.array(log.rewards)
    rewards[400:] = rewards[400:][::-1]
    np.testing.assert_array_equal(
        model.label_ahead(log.with_rewards(rewards)).state_probs[:401], labels.state_probs[:401]
    )


def test_one_state_is_known_without_rewards():
    labels = sc.learn(changing(600, 0), oracle="none", objective="dm").label_ahead(changing(600, 1))
    assert labels.n_states == 1
    assert not labels.from_rewards


def test_a_model_of_one_sequence_meets_many():
    model = sc.learn(changing(600, 0), n_states=2, objective="dm")
    with pytest.warns(sc.SeachangeWarning, match="learned from one sequence of rounds; this log has 30"):
        model.label_ahead(changing(600, 1, sequences=np.arange(600) // 20))
