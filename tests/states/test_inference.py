"""Every inference quantity against the sum over all paths of states, for every emission."""

from itertools import product

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import bernoulli, norm

import seachange as sc
from seachange.states.expectation import Chain, expectation
from seachange.states.switching_regression import LiveFilter, SwitchingRegression

pytestmark = pytest.mark.small

KINDS = ("none", "shared", "per action")
EMISSIONS = ("gaussian", "gaussian per state", "bernoulli")


def random_model(log, n_states, generator, rewards="gaussian"):
    shape = log.joint.shape
    variances = {
        "gaussian": np.full(n_states, 0.3),
        "gaussian per state": np.geomspace(0.1, 0.9, n_states),
        "bernoulli": np.empty(0),
    }
    transition = generator.dirichlet(np.ones(n_states), size=n_states)
    return SwitchingRegression(
        initial_probs=generator.dirichlet(np.ones(n_states)),
        transition_matrix=transition,
        reward_coefs=generator.normal(size=(n_states, *shape)),
        reward_precisions=np.zeros((n_states, *shape, shape[1])),
        noise_variances=variances[rewards],
        joint=log.joint,
        rewards=rewards,
    )


def random_log(kind, n, generator, rewards="gaussian", width=2, **columns):
    contexts = {
        "shared": {"contexts": generator.normal(size=(n, width))},
        "per action": {"action_features": generator.normal(size=(n, 3, width))},
    }
    return sc.BanditLog.from_arrays(
        generator.integers(3, size=n),
        generator.integers(2, size=n) if rewards == "bernoulli" else generator.normal(size=n),
        np.full(n, 1 / 3),
        n_actions=3,
        **contexts.get(kind, {}),
        **columns,
    )


def joint_feature(log, t, action):
    """f(x_t, a) computed independently of the kernels' shapes."""
    if log.joint.kind == "per action":
        return np.append(log.contexts[t, action], 1.0)
    block = np.append(log.contexts[t], 1.0)
    feature = np.zeros(log.n_actions * len(block))
    feature[action * len(block) : (action + 1) * len(block)] = block
    return feature


def score(model, log, t, z):
    return model.reward_coefs[z].ravel() @ joint_feature(log, t, log.actions[t])


def density_of(model, log):
    """(n, L) p(r_t | x_t, a_t, z)."""
    density = np.ones((len(log), model.n_states))
    for t, z in product(range(len(log)), range(model.n_states)):
        if np.isnan(log.rewards[t]):
            continue
        if model.rewards == "bernoulli":
            density[t, z] = bernoulli.pmf(log.rewards[t], expit(score(model, log, t, z)))
        else:
            density[t, z] = norm.pdf(log.rewards[t], score(model, log, t, z), np.sqrt(model.noise_variances[z]))
    return density


def by_enumeration(model, log, sequences=None):
    """Posteriors, pair counts and likelihood, from every path of states."""
    n, n_states = len(log), model.n_states
    sequences = np.zeros(n) if sequences is None else sequences
    density = density_of(model, log)
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


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("tile", "tiles"), [(100, 16), (3, 16), (2, 2), (1, 1)])
def test_expectation_equals_the_sum_over_all_paths(kind, rewards, tile, tiles):
    generator = np.random.default_rng(3)
    log = random_log(kind, 7, generator, rewards)
    model = random_model(log, 3, generator, rewards)
    posteriors = np.empty((7, 3))
    found = expectation(model, Chain(log, tile, tiles), posteriors)
    exact_posteriors, exact_pairs, exact_likelihood = by_enumeration(model, log)
    np.testing.assert_allclose(posteriors, exact_posteriors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.transitions, exact_pairs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, exact_likelihood, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.first_states, exact_posteriors[0], rtol=0, atol=1e-12)
    features = np.array([joint_feature(log, t, a) for t, a in enumerate(log.actions)])
    blocks, width = log.joint.shape
    for z in range(3):
        means = np.array([score(model, log, t, z) for t in range(7)])
        curvature, slope, square = np.ones(7), log.rewards, log.rewards**2
        if rewards == "bernoulli":
            curvature, slope, square = expit(means) * (1 - expit(means)), log.rewards - expit(means), log.rewards
        gram = np.einsum("t,ti,tj->ij", exact_posteriors[:, z] * curvature, features, features)
        gram = np.einsum("bibj->bij", gram.reshape(blocks, width, blocks, width))
        np.testing.assert_allclose(found.grams[z], gram, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.moments[z].ravel(), (exact_posteriors[:, z] * slope) @ features, atol=1e-12)
        np.testing.assert_allclose(
            found.totals[z], [exact_posteriors[:, z] @ square, exact_posteriors[:, z].sum()], atol=1e-12
        )


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_filter_forecast_and_prediction_equal_enumeration(kind, rewards):
    generator = np.random.default_rng(6)
    log = random_log(kind, 7, generator, rewards)
    model = random_model(log, 3, generator, rewards)
    filtered, forecast, predicted = model.filter(log), model.forecast(log), model.predict_rewards(log)
    expected = model.initial_probs
    for t in range(7):
        exact, _, likelihood = by_enumeration(model, log[: t + 1])
        np.testing.assert_allclose(filtered[t], exact[t], rtol=0, atol=1e-12)
        np.testing.assert_allclose(model.log_likelihood(log[: t + 1]), likelihood, rtol=0, atol=1e-12)
        np.testing.assert_allclose(forecast[t], expected, rtol=0, atol=1e-12)
        means = np.array([score(model, log, t, z) for z in range(3)])
        means = expit(means) if rewards == "bernoulli" else means
        np.testing.assert_allclose(predicted[t], forecast[t] @ means, rtol=0, atol=1e-12)
        expected = exact[t] @ model.transition_matrix


@pytest.mark.parametrize("ahead", [1, 2, 3, 9])
@pytest.mark.parametrize("tile_rows", [2, 1000])
def test_predictions_ahead_use_only_earlier_rewards(ahead, tile_rows, monkeypatch):
    monkeypatch.setattr(Chain.__init__, "__defaults__", (tile_rows, *Chain.__init__.__defaults__[1:]))
    generator = np.random.default_rng(11)
    log = random_log("shared", 12, generator, sequences=np.repeat([0, 1], [8, 4]))
    model = random_model(log, 3, generator)
    predicted = model.predict_rewards(log, ahead)
    for first, end in ((0, 8), (8, 12)):
        for t in range(first, end):
            known = model.initial_probs @ np.linalg.matrix_power(model.transition_matrix, t - first)
            if t - first >= ahead:
                exact = by_enumeration(model, log[first : t - ahead + 1])[0][-1]
                known = exact @ np.linalg.matrix_power(model.transition_matrix, ahead)
            means = [score(model, log, t, z) for z in range(3)]
            np.testing.assert_allclose(predicted[t], known @ means, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize(("tile", "tiles"), [(100, 16), (2, 1)])
def test_interleaved_sequences_are_independent_chains(rewards, tile, tiles):
    generator = np.random.default_rng(4)
    sequences = np.array([0, 1, 0, 2, 1, 0, 1])
    log = random_log("shared", 7, generator, rewards, sequences=sequences)
    model = random_model(log, 2, generator, rewards)
    chain = Chain(log, tile, tiles)
    posteriors = np.empty((7, 2))
    found = expectation(model, chain, posteriors)
    exact_posteriors, exact_pairs, exact_likelihood = by_enumeration(model, log, sequences)
    np.testing.assert_allclose(chain.in_log_order(posteriors), exact_posteriors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.transitions, exact_pairs, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.log_likelihood, exact_likelihood, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.first_states, exact_posteriors[[0, 1, 3]].sum(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.filter(log)[[5, 6, 3]], exact_posteriors[[5, 6, 3]], rtol=0, atol=1e-12)


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_reward_is_an_unobserved_round(kind, rewards):
    generator = np.random.default_rng(5)
    log = random_log(kind, 6, generator, rewards)
    holes = log.rewards.copy()
    holes[[1, 4]] = np.nan
    holed = log.with_rewards(holes)
    model = random_model(holed, 2, generator, rewards)
    exact_posteriors, _, exact_likelihood = by_enumeration(model, holed)
    np.testing.assert_allclose(model.smooth(holed), exact_posteriors, rtol=0, atol=1e-12)
    np.testing.assert_allclose(model.log_likelihood(holed), exact_likelihood, rtol=0, atol=1e-12)
    for t in range(6):
        filtered = by_enumeration(model, holed[: t + 1])[0][t]
        np.testing.assert_allclose(model.filter(holed)[t], filtered, rtol=0, atol=1e-12)


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize(("kind", "width"), [("none", 0), *product(KINDS[1:], (1, 2, 3, 4, 5, 8, 60))])
def test_a_live_filter_equals_the_filter_to_the_bit(kind, width, rewards):
    generator = np.random.default_rng(8)
    log = random_log(kind, 300, generator, rewards, width)
    holes = np.where(generator.random(300) < 0.1, np.nan, log.rewards)
    log = log.with_rewards(holes)
    model = random_model(log, 3, generator, rewards)
    live, filtered, forecast = LiveFilter(model), model.filter(log), model.forecast(log)
    state = live.init()
    smoothed = model.smooth(log)
    np.testing.assert_allclose(smoothed[-1], filtered[-1], rtol=0, atol=1e-10)
    for t in range(300):
        np.testing.assert_allclose(state.forecast, forecast[t], rtol=0, atol=1e-15)
        reward = None if np.isnan(holes[t]) else holes[t]
        state = live.update(state, None if kind == "none" else log.contexts[t], int(log.actions[t]), reward)
        np.testing.assert_array_equal(state.state_probs, filtered[t])


def test_a_live_filter_rejects_invalid_rounds(make_log):
    log = make_log("none", n=20)
    live = LiveFilter(random_model(log, 2, np.random.default_rng(0)))
    with pytest.raises(sc.SeachangeError, match=r"action must be an index .* 0 to 2; got 3"):
        live.update(live.init(), None, 3, 0.5)
    with pytest.raises(sc.SeachangeError, match="reward must be a finite number or None; got nan"):
        live.update(live.init(), None, 0, np.nan)
    with pytest.raises(sc.SeachangeError, match="reward must be a finite number or None; got yes"):
        live.update(live.init(), None, 0, "yes")
    with pytest.raises(sc.SeachangeError, match="an index into the log's action_names, 0 to 2; got 'b'"):
        live.update(live.init(), None, "b", 0.5)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_live_filter_rejects_a_context_that_is_not_finite(make_log, bad):
    log = make_log("shared", n=20)
    live = LiveFilter(random_model(log, 2, np.random.default_rng(0)))
    context = log.contexts[0].copy()
    context[0] = bad
    with pytest.raises(sc.SeachangeError, match="context must be finite"):
        live.update(live.init(), context, 0, 0.5)


def test_a_live_filter_takes_a_fitted_oracle_and_rejects_objects_without_a_model(make_log):
    log = make_log("none", n=200)
    oracle = sc.HMMOracle(n_states=1).fit(log)
    assert LiveFilter(oracle).hmm is oracle.model_
    for other in (sc.HMMOracle(), sc.SingleState(), None):
        with pytest.raises(sc.SeachangeError, match="needs a model, or a fitted HMMOracle"):
            LiveFilter(other)


def test_a_model_of_clicks_rejects_other_rewards():
    generator = np.random.default_rng(10)
    log = random_log("none", 20, generator, "bernoulli")
    model = random_model(log, 2, generator, "bernoulli")
    rated = log.with_rewards(np.where(np.arange(20) > 16, 4.5, log.rewards))
    for ask in (model.smooth, model.filter, model.log_likelihood):
        with pytest.raises(sc.SeachangeError, match=r"rewards of 0 or 1; row 17 of this log has 4.5 \(3 of 20 rows"):
            ask(rated)
    live = LiveFilter(model)
    with pytest.raises(sc.SeachangeError, match=r"rewards of 0 or 1; got 4.5"):
        live.update(live.init(), None, 0, 4.5)


@pytest.mark.parametrize("rewards", EMISSIONS)
def test_workers_change_nothing(rewards):
    generator = np.random.default_rng(9)
    log = random_log("shared", 500, generator, rewards, sequences=np.arange(500) // 7)
    model = random_model(log, 3, generator, rewards)
    found = [np.empty((500, 3)), np.empty((500, 3))]
    one, two = (expectation(model, Chain(log, 32, 4), found[i], workers=1 + i) for i in range(2))
    np.testing.assert_array_equal(found[0], found[1])
    for mine, theirs in zip(vars(one).values(), vars(two).values(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_a_reward_far_from_every_state_does_not_underflow(rewards):
    far = 1.0 if rewards == "bernoulli" else 1e6
    log = sc.BanditLog.from_arrays([0, 0, 0], [0.0, far, 0.0], [1.0, 1.0, 1.0])
    model = random_model(log, 2, np.random.default_rng(7), rewards)
    if rewards == "bernoulli":
        model.reward_coefs[:] = -1e5
    assert np.isfinite(model.smooth(log)).all()
    assert np.isfinite(model.log_likelihood(log))
