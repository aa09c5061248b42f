"""Policies by state, hard or by probability; settings that choose themselves; logs with very many actions."""

import tracemalloc

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError, SeachangeWarning
from seachange.evaluation import ESTIMATORS, evaluate_states
from seachange.states.labels import labels_from_states


class Fixed:
    """The same probabilities in every round."""

    def __init__(self, *probs):
        self.probs = np.array(probs)

    def predict_proba(self, contexts, action_mask=None):
        return np.tile(self.probs, (len(contexts), 1))


POLICIES = sc.PolicySet((Fixed(0.8, 0.1, 0.1), Fixed(0.1, 0.1, 0.8)))


@pytest.mark.small
def test_a_policy_set_is_the_policy_of_each_rounds_state(make_log):
    log = make_log("none", n=600)
    states = (np.arange(600) // 50) % 2
    labels = sc.KnownStates(states).fit(log).predict(log)
    probs = np.stack([POLICIES[z].probs for z in states])
    for one, other in zip(
        sc.evaluate(log, POLICIES, ("ips", "dr"), labels=labels),
        sc.evaluate(log, probs, ("ips", "dr"), labels=labels),
        strict=True,
    ):
        assert one == other


@pytest.mark.small
def test_state_probabilities_mix_the_policies(make_log):
    log = make_log("none", n=600)
    q = np.random.default_rng(0).dirichlet([1, 1], size=600)
    labels = labels_from_states(q.argmax(axis=1), 2, log, q)
    mixed = q[:, :1] * POLICIES[0].probs + q[:, 1:] * POLICIES[1].probs
    (found,) = sc.evaluate(log, POLICIES, ("ips",), labels=labels, soft=True)
    (expected,) = sc.evaluate(log, mixed, ("ips",))
    assert found.value == pytest.approx(expected.value, rel=1e-12)
    for estimate in sc.evaluate(log, POLICIES, tuple(ESTIMATORS), labels=labels, soft=True):
        assert estimate.low < estimate.value < estimate.high
    hard = sc.KnownStates(labels.states).fit(log).predict(log)
    with pytest.raises(ParameterError, match="soft=True needs labels with state_probs"):
        sc.evaluate(log, POLICIES, labels=hard, soft=True)


def test_states_that_saw_the_rewards_make_the_papers_estimator_and_states_known_ahead_do_not(make_log):
    log = make_log("none", n=1200)
    model = sc.learn(log[:600], oracle="hmm", n_states=2)
    later = log[600:]
    smoothed, ahead = model.oracle.predict(later), model.label_ahead(later)
    assert sc.evaluate(later, model.policies, ("ips",), labels=smoothed, force=True)[0].latent
    assert not sc.evaluate(later, model.policies, ("ips",), labels=ahead, force=True)[0].latent
    cut = sc.ChangePointOracle(n_states=2).fit(later).predict(later)
    assert cut.from_rewards


@pytest.mark.small
def test_a_state_with_too_few_rounds_is_left_out_and_named(make_log):
    log = make_log("none", n=600)
    labels = sc.KnownStates((np.arange(600) >= 590).astype(int)).fit(log).predict(log)
    with pytest.warns(SeachangeWarning, match=r"state 1: No estimate\. .*effective sample size is .* of 10"):
        first, second = evaluate_states(log, POLICIES, labels)
    assert first.value > 0
    assert second is None


def heavy_log(seed, n=3000):
    """Logged by a policy that hardly ever takes the last of three actions, judged for one that always does."""
    generator = np.random.default_rng(seed)
    logging = np.array([0.6, 0.38, 0.02])
    actions = generator.choice(3, p=logging, size=n)
    means = np.array([0.2, 0.5, 0.6])
    rewards = generator.normal(means[actions], 0.1)
    return sc.BanditLog.from_arrays(actions, rewards, logging[actions], n_actions=3), means


@pytest.mark.parametrize(("estimator", "word"), [("switch-dr", "switch"), ("dr-os", "shrinkage")])
def test_chosen_settings_trust_weights_where_the_model_is_wrong_and_cost_nothing_where_it_is_right(estimator, word):
    probs = np.tile([0.3, 0.3, 0.4], (3000, 1))
    wrong, right, dr, chosen = [], [], [], []
    for seed in range(40):
        log, means = heavy_log(seed)
        truth = probs[0] @ means
        bad = sc.evaluate(log, probs, (estimator,), predicted_rewards=np.full((3000, 3), 5.0))[0]
        good = sc.evaluate(log, probs, (estimator, "dr"), predicted_rewards=np.tile(means, (3000, 1)))
        wrong.append(bad.setting)
        right.append(good[0].value - truth)
        dr.append(good[1].value - truth)
        chosen.append(good[0].setting)
    assert np.isinf(wrong).mean() > 0.9
    assert np.isfinite(chosen).mean() > 0.5
    assert np.mean(np.square(right)) < np.mean(np.square(dr))


def test_ten_thousand_actions_are_judged_in_little_memory():
    n, k = 2000, 10_000
    generator = np.random.default_rng(0)
    actions = generator.integers(k, size=n)
    log = sc.BanditLog.from_arrays(actions, generator.random(n), np.full(n, 1 / k), n_actions=k)
    probs = np.full(k, 0.5 / k)
    probs[: k // 2] += 0.5 / (k // 2)
    policy = Fixed(*probs)
    tracemalloc.start()
    estimates = sc.evaluate(log, policy, tuple(ESTIMATORS))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All probabilities at once would take 160 MB.
    assert peak < 40e6
    for estimate in estimates:
        assert abs(estimate.value - 0.5) < 4.5 * estimate.std_error
