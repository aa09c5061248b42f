"""The E-step against the sum over all paths of states."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm

import seachange as sc
from seachange.states.switching import Chain, SwitchingRegression, expectation

pytestmark = pytest.mark.small


def random_model(log, n_states, generator):
    shape = log.joint.shape
    transition = generator.dirichlet(np.ones(n_states), size=n_states)
    return SwitchingRegression(
        initial_probs=generator.dirichlet(np.ones(n_states)),
        transition_matrix=transition,
        reward_coefs=generator.normal(size=(n_states, *shape)),
        reward_precisions=np.zeros((n_states, *shape, shape[1])),
        noise_variance=0.3,
        joint=log.joint,
    )


def random_log(kind, n, generator, **columns):
    contexts = {
        "shared": {"contexts": generator.normal(size=(n, 2))},
        "per action": {"action_features": generator.normal(size=(n, 3, 2))},
    }
    return sc.BanditLog.from_arrays(
        generator.integers(3, size=n),
        generator.normal(size=n),
        np.full(n, 1 / 3),
        n_actions=3,
        **contexts.get(kind, {}),
        **columns,
    )


def joint_feature(log, t, action):
    """f(x_t, a) written out in full, independently of the kernels' shapes."""
    if log.joint.kind == "per action":
        return log.contexts[t, action]
    block = np.append(log.contexts[t], 1.0)
    feature = np.zeros(log.n_actions * len(block))
    feature[action * len(block) : (action + 1) * len(block)] = block
    return feature


def by_enumeration(model, log, sequences=None):
    """Posteriors, filtered probabilities, pair counts and likelihood from every path of states."""
    n, n_states = len(log), model.n_states
    sequences = np.zeros(n) if sequences is None else sequences
    density = np.ones((n, n_states))
    for t, z in product(range(n), range(n_states)):
        if not np.isnan(log.rewards[t]):
            mean = model.reward_coefs[z].ravel() @ joint_feature(log, t, log.actions[t])
            density[t, z] = norm.pdf(log.rewards[t], mean, np.sqrt(model.noise_variance))
    before = {t: max((s for s in range(t) if sequences[s] == sequences[t]), default=None) for t in range(n)}
    posteriors, pairs, total = np.zeros((n, n_states)), np.zeros((n_states, n_states)), 0.0
    for path in product(range(n_states), repeat=n):
        weight = 1.0
        for t in range(n):
            move = (
                model.initial_probs[path[t]] if before[t] is None else model.transition_matrix[path[before[t]], path[t]]
            )
            weight *= move * density[t, path[t]]
        total += weight
        for t in range(n):
            posteriors[t, path[t]] += weight
            if before[t] is not None:
                pairs[path[before[t]], path[t]] += weight
    return posteriors / total, pairs / total, np.log(total)


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
@pytest.mark.parametrize("chunk", [100, 3, 1])
def test_expectation_equals_the_sum_over_all_paths(kind, chunk):
    generator = np.random.default_rng(3)
    log = random_log(kind, 7, generator)
    model = random_model(log, 3, generator)
    posteriors = np.empty((7, 3))
    found = expectation(model, Chain(log, chunk), posteriors)
    exact_posteriors, exact_pairs, exact_likelihood = by_enumeration(model, log)
    np.testing.assert_allclose(posteriors, exact_posteriors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.transitions, exact_pairs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, exact_likelihood, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.first_states, exact_posteriors[0], rtol=0, atol=1e-12)
    features = np.array([joint_feature(log, t, a) for t, a in enumerate(log.actions)])
    blocks, width = log.joint.shape
    for z in range(3):
        gram = np.einsum("t,ti,tj->ij", exact_posteriors[:, z], features, features).reshape(
            blocks, width, blocks, width
        )
        np.testing.assert_allclose(found.grams[z], np.einsum("bibj->bij", gram), rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            found.moments[z].ravel(), (exact_posteriors[:, z] * log.rewards) @ features, atol=1e-12
        )
        np.testing.assert_allclose(
            found.totals[z], [exact_posteriors[:, z] @ log.rewards**2, exact_posteriors[:, z].sum()], atol=1e-12
        )


@pytest.mark.parametrize("chunk", [100, 2])
def test_interleaved_sequences_are_independent_chains(chunk):
    generator = np.random.default_rng(4)
    sequences = np.array([0, 1, 0, 2, 1, 0, 1])
    log = random_log("shared", 7, generator, sequences=sequences)
    model = random_model(log, 2, generator)
    chain = Chain(log, chunk)
    posteriors = np.empty((7, 2))
    found = expectation(model, chain, posteriors)
    exact_posteriors, exact_pairs, exact_likelihood = by_enumeration(model, log, sequences)
    np.testing.assert_allclose(chain.in_log_order(posteriors), exact_posteriors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.transitions, exact_pairs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, exact_likelihood, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.first_states, exact_posteriors[[0, 1, 3]].sum(axis=0), rtol=0, atol=1e-12)


def test_a_missing_reward_is_an_unobserved_round():
    generator = np.random.default_rng(5)
    log = random_log("none", 6, generator)
    rewards = log.rewards.copy()
    rewards[[1, 4]] = np.nan
    holes = sc.BanditLog.from_arrays(log.actions, rewards, log.propensities, n_actions=3, missing_rewards=True)
    model = random_model(holes, 2, generator)
    exact_posteriors, _, exact_likelihood = by_enumeration(model, holes)
    np.testing.assert_allclose(model.smooth(holes), exact_posteriors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.log_likelihood(holes), exact_likelihood, rtol=0, atol=1e-12)


def test_filter_and_forecast_are_what_smoothing_a_shorter_log_says():
    generator = np.random.default_rng(6)
    log = random_log("shared", 8, generator)
    model = random_model(log, 3, generator)
    filtered, forecast = model.filter(log), model.forecast(log)
    np.testing.assert_allclose(forecast[0], model.initial_probs, rtol=0, atol=1e-12)
    for t in range(8):
        exact, _, _ = by_enumeration(model, log[: t + 1])
        np.testing.assert_allclose(filtered[t], exact[t], rtol=0, atol=1e-12)
        if t < 7:
            np.testing.assert_allclose(forecast[t + 1], exact[t] @ model.transition_matrix, rtol=0, atol=1e-12)


def test_a_reward_far_from_every_state_does_not_underflow():
    log = sc.BanditLog.from_arrays([0, 0, 0], [0.0, 1e6, 0.0], [1.0, 1.0, 1.0])
    generator = np.random.default_rng(7)
    model = random_model(log, 2, generator)
    assert np.isfinite(model.smooth(log)).all()
    assert np.isfinite(model.log_likelihood(log))
