"""Learners find the best policy, use the weights of rounds, and reject logs that cannot be learned from."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import SeachangeWarning
from seachange.policies.objectives import Objective
from seachange.policies.reward_models import cross_fitted
from seachange.states.labels import labels_from_states

LEARNERS = [
    sc.IPSLearner(), sc.SNIPSLearner(), sc.DRLearner(n_folds=1), sc.DRLearner(), sc.MRDRLearner(), sc.POEMLearner(),
    sc.CrossEntropyLearner(), sc.DMLearner(), sc.AutoLearner(),
]  # fmt: skip
WITHOUT_FOLDS = [learner for learner in LEARNERS if not hasattr(learner, "n_folds") or learner.n_folds == 1]


def best_action_log(n=2000, seed=0, scale=1.0):
    generator = np.random.default_rng(seed)
    actions = generator.choice(3, size=n, p=[0.5, 0.3, 0.2])
    rewards = scale * np.abs(np.array([0.3, 0.5, 0.8])[actions] + generator.normal(0, 0.2, n))
    return sc.BanditLog.from_arrays(actions, rewards, np.array([0.5, 0.3, 0.2])[actions])


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e6])
def test_the_best_action_is_found_in_any_unit_of_reward(learner, scale):
    probs = learner.clone().fit(best_action_log(scale=scale)).policy_.predict_proba(np.zeros((1, 0)))
    assert probs[0, 2] > 0.99


@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_the_context_decides_if_it_matters(learner):
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(4000, 2))
    actions = generator.integers(2, size=4000)
    rewards = np.where((contexts[:, 0] > 0) == (actions == 1), 1.0, 0.0)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(4000, 0.5), contexts=contexts)
    policy = learner.clone().fit(log).policy_
    probs = policy.predict_proba([[2.0, 0.0], [-2.0, 0.0]])
    assert probs[0, 1] > 0.95
    assert probs[1, 0] > 0.95


@pytest.mark.parametrize("learner", WITHOUT_FOLDS, ids=repr)
def test_a_whole_weight_is_a_repeated_round(learner):
    log = best_action_log(60)
    times = np.random.default_rng(1).integers(0, 3, size=60)
    learner = learner.clone()
    if hasattr(learner, "regularization"):
        # Otherwise it is chosen by standard errors, which count repeated rounds as independent.
        learner.set_params(regularization=2.0)
    weighted = learner.clone().fit(log, times).policy_
    repeated = learner.clone().fit(log.take(np.repeat(np.arange(60), times))).policy_
    np.testing.assert_allclose(weighted.coefs, repeated.coefs, atol=1e-4)


def test_temperature_moves_the_policy_to_the_exact_softmax():
    """Without context, max_π Σ π(a) v(a) + τ H(π) is softmax(v / τ)."""
    log = best_action_log()
    probs = (
        sc.IPSLearner(temperature=0.5, l2=0.0, clip=np.inf, baseline=0.0)
        .fit(log)
        .policy_.predict_proba(np.zeros((1, 0)))[0]
    )
    values = np.array([np.sum(log.rewards[log.actions == a] / log.propensities[log.actions == a]) for a in range(3)])
    exact = np.exp(values / len(log) / 0.5)
    np.testing.assert_allclose(probs, exact / exact.sum(), atol=1e-4)


def test_poem_prefers_the_action_with_more_data():
    """Two actions earn the same, but one was rarely taken: the variance penalty decides."""
    actions = np.array([0] * 90 + [1] * 10)
    rewards = np.tile([0.0, 1.0], 50)
    log = sc.BanditLog.from_arrays(actions, rewards, np.where(actions == 0, 0.9, 0.1))
    ips = sc.IPSLearner().fit(log).policy_.predict_proba(np.zeros((1, 0)))[0, 0]
    poem = sc.POEMLearner(variance_penalty=5.0).fit(log).policy_.predict_proba(np.zeros((1, 0)))[0, 0]
    assert poem > 0.75
    assert poem > ips + 0.2


def test_a_masked_action_is_never_taken():
    log = best_action_log(300)
    policy = sc.IPSLearner().fit(log).policy_
    probs = policy.predict_proba(np.zeros((2, 0)), [[True, True, False], [True, True, True]])
    assert probs[0, 2] == 0
    assert probs[1, 2] > 0.9
    np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_one_action_leaves_nothing_to_learn():
    log = sc.BanditLog.from_arrays([0, 0], [0.0, 1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="nothing to learn"):
        sc.DRLearner().fit(log)


def test_rounds_without_reward_cannot_be_learned_from():
    log = sc.BanditLog.from_arrays([0, 1], [np.nan, 1.0], [0.5, 0.5], missing_rewards=True)
    with pytest.raises(ValueError, match="1 of 2 have none"):
        sc.IPSLearner().fit(log)


@pytest.mark.parametrize("weights", [[1.0], [-1.0] * 60, [0.0] * 60, [np.nan] * 60])
def test_weights_must_be_counts(weights):
    with pytest.raises(ValueError, match="weights must"):
        sc.IPSLearner().fit(best_action_log(60), weights)


def test_every_state_gets_its_own_policy(make_log):
    log = make_log("none", n=1200)
    labels = sc.KnownStates((6 * np.arange(1200) // 1200) % 2).fit(log).predict(log)
    policies = sc.learn_per_state(log, labels, sc.IPSLearner())
    advice = policies.advice(np.zeros((4, 0)))
    assert advice.shape == (4, 2, 3)
    assert advice[0].argmax(axis=1).tolist() == [2, 0]
    assert policies.expected_stay == 200


@pytest.mark.parametrize("lowest", [0.0, -2.0])
@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_a_state_keeps_its_best_action_whatever_is_best_on_the_whole(learner, lowest):
    """One action is by far the best on the whole log; the smaller state must keep its own best action."""
    generator = np.random.default_rng(0)
    states, actions = np.repeat([0, 1], [4500, 1500]), generator.integers(3, size=6000)
    means = np.array([[0.2, 0.4, 0.9], [0.7, 0.3, 0.2]])[states, actions]
    rewards = np.maximum(means + generator.normal(0, 0.5, 6000), lowest)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(6000, 1 / 3))
    policies = sc.learn_per_state(log, sc.KnownStates(states).fit(log).predict(log), learner)
    advice = policies.advice(np.zeros((1, 0)))[0]
    assert advice.argmax(axis=1).tolist() == [2, 0]
    assert advice.max(axis=1).min() > 0.9


def test_soft_labels_weight_rounds_by_state_probability(make_log):
    log = make_log("none", n=900)
    states = (6 * np.arange(900) // 900) % 2
    probs = np.full((900, 2), 0.5)
    labels = sc.StateLabels(states, 2, np.array([], dtype=int), state_probs=probs)
    soft = sc.learn_per_state(log, labels, sc.IPSLearner(), soft=True)
    pooled = sc.IPSLearner().fit(log).policy_
    for policy in soft:
        np.testing.assert_allclose(policy.predict_proba(log.contexts), pooled.predict_proba(log.contexts), atol=1e-3)


def test_a_state_without_rounds_keeps_its_slot_and_gets_the_pooled_policy(make_log):
    log = make_log("none")
    labels = sc.StateLabels(np.zeros(600, dtype=int), 2, np.array([], dtype=int))
    with pytest.warns(SeachangeWarning, match="state 1 has no rounds"):
        policies = sc.learn_per_state(log, labels, sc.IPSLearner())
    pooled = sc.IPSLearner().fit(log).policy_
    np.testing.assert_array_equal(policies[1].coefs, pooled.coefs)


def test_learning_per_state_does_not_change_the_learner(make_log):
    learner = sc.IPSLearner()
    sc.learn_per_state(make_log(), sc.SingleState().fit(make_log()).predict(make_log()), learner)
    assert "policy_" not in vars(learner)


def test_mrdr_weights_its_reward_models_by_the_variance_of_the_correction():
    """The second turn of MRDR is DR with models fitted with weights π(a_t | x_t) (1 - p_t) / p_t²."""
    log = sc.simulate.Clicks(horizon=3000, click_rate=0.3, n_actions=4, n_features=2).log(0)
    generator = np.random.default_rng(0)
    log = sc.BanditLog.from_arrays(log.actions, log.rewards, generator.uniform(0.1, 0.9, 3000), contexts=log.contexts)
    robust, first = sc.MRDRLearner(l2=0.1).fit(log), sc.DRLearner(l2=0.1).fit(log)
    probs = first.policy_.predict_proba(log.contexts)[np.arange(3000), log.actions]
    noisy = probs * (1 - log.propensities) / log.propensities**2
    by_hand = sc.DRLearner(l2=0.1)
    modeled = cross_fitted(log, noisy, "auto", "bernoulli")
    by_hand._learn(Objective(log, np.ones(3000), modeled, clip=100.0, l2=0.1), None)
    np.testing.assert_allclose(robust.coefs_, by_hand.coefs_, atol=1e-10)
    assert np.abs(robust.coefs_ - first.coefs_).max() > 1e-3


@pytest.mark.parametrize("learner", [sc.IPSLearner(), sc.DMLearner()], ids=repr)
def test_a_state_with_few_rounds_shrinks_toward_the_whole_log(learner):
    log = sc.simulate.Clicks(horizon=3000, click_rate=0.3, n_actions=4, n_features=2).log(0)
    states = (np.arange(3000) >= 2960).astype(int)
    policies = sc.learn_per_state(log, labels_from_states(states, 2, log), learner)
    pooled = learner.clone().fit(log)
    for state in range(2):
        weights = (states == state).astype(float)
        shrunk, alone = learner.clone().fit(log, weights, pooled), learner.clone().fit(log, weights)
        np.testing.assert_array_equal(policies[state].coefs, shrunk.policy_.coefs)
        assert np.abs(shrunk.policy_.coefs - alone.policy_.coefs).max() > 1e-3
