"""EM increases its objective, finds states, and reports the fit."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import NoChangeWarning, ParameterError, SeachangeWarning
from seachange.states.em import EM, Prior, maximization, persistent
from seachange.states.expectation import Chain, expectation
from seachange.states.hmm_fitting import MAX_NUMBERS, MAX_WINDOWS, Fitter, Starts
from seachange.states.labels import share_right


def first_model(chain, prior, n_states, width, rewards="gaussian"):
    residuals = chain.log.rewards - np.nanmean(chain.log.rewards)
    starts = Starts(chain, residuals, np.nanvar(residuals), rewards, 0, chain.log.units)
    return starts.from_windows(width, n_states, prior)


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
@pytest.mark.parametrize(("ridge", "visits", "stationary"), [(1.0, 1.0, False), (0.0, 0.0, False), (5.0, 3.0, True)])
@pytest.mark.parametrize("rewards", ["gaussian", "gaussian per state", "bernoulli"])
def test_the_objective_never_decreases(make_log, kind, rewards, ridge, visits, stationary):
    log = make_log(kind, n=450, seed=2)
    if rewards == "bernoulli":
        log = log.with_rewards((log.rewards > np.mean(log.rewards)).astype(float))
    shortest, chain = 10.0 if visits else 1.0, Chain(log)
    prior = Prior(ridge, visits, 100.0, log.units, shortest=shortest, noise=(ridge, 1.0), stationary=stationary)
    start = first_model(chain, prior, 3, 30, rewards)
    em = EM(chain, prior, tolerance=-1.0, max_iterations=25)
    run = em.finish(start)
    assert run.objective > run.objectives[0] + 1
    if run.iterations < 25:
        # The run ended where a step fell, which only rounding may make it do.
        after = em.start(maximization(run.model, run.statistics, prior, em._noise_floor))
        assert after.objective >= run.objective - 1e-9 * abs(run.objective)


@pytest.mark.parametrize("seed", range(5))
def test_the_most_likely_transitions_with_a_lower_bound_on_stays(seed):
    g, shortest = np.random.default_rng(seed), 4.0
    moves = g.gamma(0.5, 10, (3, 3)) + 5 * np.diag(g.gamma(1, 10, 3))
    bounded = persistent(moves / moves.sum(axis=1, keepdims=True), shortest)
    np.testing.assert_allclose(bounded.sum(axis=1), 1)
    assert (np.diag(bounded) >= 1 - 1 / shortest - 1e-12).all()
    others = 0.75 * np.eye(3) + 0.25 * g.dirichlet(np.ones(3), size=(1000, 3))
    values = np.sum(moves * np.log(others), axis=(1, 2))
    assert np.sum(moves * np.log(bounded)) >= values.max()


def test_the_prior_weighs_one_segment_whatever_the_log(make_log):
    for n, n_states in ((900, 2), (900, 3), (3000, 2)):
        fitter = Fitter.of(make_log("none", n=n), "gaussian", sc.HMMOracle())
        prior = fitter.prior(n_states, 1.0)
        counts = prior.transition_counts(n_states)
        assert counts.sum() == pytest.approx(prior.stay) == pytest.approx(100.0)
        assert counts.sum() - np.trace(counts) == pytest.approx(1)


@pytest.mark.parametrize("kind", ["none", "shared"])
@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_merged_states_share_a_regression_or_all_but_its_level(make_log, kind, rewards):
    log = make_log(kind, n=1200, seed=3)
    if rewards == "bernoulli":
        log = log.with_rewards((log.rewards > np.mean(log.rewards)).astype(float))
    fit = Fitter.of(log, rewards, sc.HMMOracle()).fit(3)
    merged, leveled = fit.merged(), fit.merged(levels=True)
    changed = np.flatnonzero((merged.reward_coefs != fit.model.reward_coefs).any(axis=(1, 2)))
    assert len(changed) == 2
    one, other = merged.reward_coefs[changed]
    np.testing.assert_array_equal(one, other)
    shift = leveled.reward_coefs[changed[0]] - leveled.reward_coefs[changed[1]]
    np.testing.assert_allclose(shift[:, :-1], 0, atol=1e-12)
    np.testing.assert_allclose(shift[:, -1], shift[0, -1], atol=1e-12)
    if rewards == "gaussian":
        means = [model.mean_rewards(log).mean(axis=0) for model in (leveled, fit.model)]
        np.testing.assert_allclose(means[0], means[1], atol=1e-9)


def test_a_run_that_would_decrease_keeps_its_model(make_log, monkeypatch):
    chain = Chain(make_log("none", n=900, seed=2))
    prior = Prior(1.0, 1.0, 100.0, chain.log.units)
    em = EM(chain, prior, tolerance=0.0, max_iterations=40)
    begun = em.start(first_model(chain, prior, 3, 30))
    monkeypatch.setattr("seachange.states.em.maximization", lambda model, *_: model.shifted(10.0))
    after = em.iterate(begun, 5)
    assert after.model is begun.model
    assert after.converged
    assert after.objectives == (begun.objective, begun.objective)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_precisions_are_those_of_the_last_e_step(make_log, rewards):
    log = make_log("shared", n=900, seed=2)
    log = log.with_rewards((log.rewards > 0).astype(float)) if rewards == "bernoulli" else log
    oracle = sc.HMMOracle(n_states=2, rewards=rewards, max_iterations=1, ridge=3.0).fit(log)
    grams = expectation(oracle.model_, Chain(log)).grams
    # The ridge is on coefficients of centered and scaled features.
    change = np.stack([log.units.coefs(unit) for unit in np.eye(3)], axis=1)
    np.testing.assert_allclose(oracle.model_.reward_precisions, grams + 3.0 * change.T @ change, rtol=1e-9)


def test_the_m_step_is_the_maximum_of_the_expected_posterior(make_log):
    """No nearby model scores higher on the statistics of the E-step."""
    log = make_log("shared", n=300)
    chain, prior = Chain(log), Prior(1.0, 1.0, 50.0, log.units)
    model = first_model(chain, prior, 2, 25)
    statistics = expectation(model, chain)
    best = maximization(model, statistics, prior, floor=0.0)

    def expected_posterior(coefs, variance, transition, initial):
        fitted = np.einsum("zbij,zbj->zbi", statistics.grams, coefs)
        squares = statistics.totals[:, 0].sum() - 2 * np.sum(coefs * statistics.moments) + np.sum(coefs * fitted)
        total = statistics.totals[:, 1].sum()
        moves = (statistics.transitions + prior.transition_counts(2)) * np.log(transition)
        firsts = (statistics.first_states + prior.first_counts(2)) * np.log(initial)
        gaussian = -(squares + np.sum(log.units.coefs(coefs) ** 2)) / (2 * variance) - total / 2 * np.log(variance)
        return gaussian + moves.sum() + firsts.sum()

    top = expected_posterior(best.reward_coefs, best.noise_variances[0], best.transition_matrix, best.initial_probs)
    generator = np.random.default_rng(0)
    for _ in range(200):
        coefs = best.reward_coefs + generator.normal(0, 0.02, best.reward_coefs.shape)
        variance = best.noise_variances[0] * np.exp(generator.normal(0, 0.02))
        transition = best.transition_matrix * np.exp(generator.normal(0, 0.02, (2, 2)))
        transition /= transition.sum(axis=1, keepdims=True)
        initial = best.initial_probs * np.exp(generator.normal(0, 0.02, 2))
        assert expected_posterior(coefs, variance, transition, initial / initial.sum()) < top


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_states_are_found_whatever_the_context(make_log, kind):
    log = make_log(kind, n=3000)
    labels = sc.HMMOracle(n_states=2).fit(log).predict(log)
    truth = (6 * np.arange(3000) // 3000) % 2
    assert share_right(labels.states, truth) > 0.97
    assert len(labels.change_points) == 5
    assert labels.states[0] == 0
    np.testing.assert_allclose(labels.state_probs.sum(axis=1), 1, atol=1e-12)


def test_the_chunk_size_changes_nothing_but_rounding(make_log):
    log = make_log("shared", n=700)
    prior = Prior(1.0, 1.0, 100.0, log.units)
    models = []
    for rows in (1000, 64):
        chain = Chain(log, rows, 2)
        models.append(EM(chain, prior, 1e-8, 50).finish(first_model(chain, prior, 2, 35)).model)
    np.testing.assert_allclose(models[0].reward_coefs, models[1].reward_coefs, atol=1e-8)
    np.testing.assert_allclose(models[0].transition_matrix, models[1].transition_matrix, atol=1e-8)


def test_the_number_of_workers_changes_nothing(make_log):
    log = make_log("none", n=1200)
    one = sc.HMMOracle(n_states=3, workers=1).fit(log)
    two = sc.HMMOracle(n_states=3, workers=2).fit(log)
    assert one.report_.restarts == two.report_.restarts
    np.testing.assert_array_equal(one.model_.reward_coefs, two.model_.reward_coefs)


def test_many_short_sequences_share_their_states():
    generator = np.random.default_rng(0)
    n_chains, length = 200, 30
    starts = generator.integers(2, size=n_chains)
    switch = generator.integers(5, 25, size=n_chains)
    states = (starts[:, None] + (np.arange(length) >= switch[:, None])) % 2
    actions = generator.integers(2, size=(n_chains, length))
    rewards = np.where(states == actions, 1.0, 0.0) + generator.normal(0, 0.3, actions.shape)
    order = generator.permutation(n_chains * length)
    sequences = np.repeat(np.arange(n_chains), length)
    order = order[np.argsort(np.tile(np.arange(length), n_chains)[order], kind="stable")]
    log = sc.BanditLog.from_arrays(
        actions.ravel()[order], rewards.ravel()[order], np.full(len(order), 0.5), sequences=sequences[order]
    )
    labels = sc.HMMOracle(n_states=2).fit(log).predict(log)
    assert share_right(labels.states, states.ravel()[order]) > 0.97
    assert labels.n_chains == n_chains
    assert abs(len(labels.change_points) - n_chains) < 30


def test_auto_finds_the_number_of_states_and_warns_if_it_is_one():
    means = np.array([[0.9, 0.1, 0.5], [0.1, 0.9, 0.5], [0.5, 0.1, 0.9]])
    generator = np.random.default_rng(1)
    states = np.repeat([0, 1, 2, 0, 2, 1], 1000)
    actions = generator.integers(3, size=6000)
    noise = generator.normal(0, 0.4, 6000)
    changing = sc.BanditLog.from_arrays(actions, means[states, actions] + noise, np.full(6000, 1 / 3))
    oracle = sc.HMMOracle(n_states="auto").fit(changing)
    assert oracle.model_.n_states == 3
    assert [count.n_states for count in oracle.report_.state_counts] == [1, 2, 3, 4, 5]
    steady = sc.BanditLog.from_arrays(actions, means[0, actions] + noise, np.full(6000, 1 / 3))
    with pytest.warns(NoChangeWarning, match="no evidence of change"):
        oracle = sc.HMMOracle(n_states="auto").fit(steady)
    assert oracle.model_.n_states == 1


def test_several_states_without_change_raise_a_warning():
    generator = np.random.default_rng(2)
    log = sc.BanditLog.from_arrays(generator.integers(2, size=800), generator.normal(size=800), np.full(800, 0.5))
    with pytest.warns(NoChangeWarning, match=r"one state explains the log better than"):
        sc.HMMOracle(n_states=2).fit(log)


def test_more_states_than_distinct_blocks_is_an_error():
    log = sc.BanditLog.from_arrays([0, 1] * 20, [1.0, 0.0] * 20, [0.5] * 40)
    with pytest.raises(ParameterError, match=r"n_states=30 is too many for this log.*Use fewer"):
        sc.HMMOracle(n_states=30).fit(log)


def test_one_action_is_enough_for_an_oracle():
    generator = np.random.default_rng(3)
    states = np.repeat([0, 1, 0], 300)
    log = sc.BanditLog.from_arrays(np.zeros(900), states + generator.normal(0, 0.3, 900), np.ones(900))
    labels = sc.HMMOracle(n_states=2).fit(log).predict(log)
    assert share_right(labels.states, states) > 0.99


@pytest.mark.parametrize("n", [1, 2, 5])
def test_tiny_logs_get_an_answer_or_a_clear_error(n):
    log = sc.BanditLog.from_arrays(np.arange(n) % 2, np.arange(n, dtype=float), np.full(n, 0.5), n_actions=2)
    with pytest.warns(NoChangeWarning):
        oracle = sc.HMMOracle(n_states="auto").fit(log)
    assert np.isfinite(oracle.model_.smooth(log)).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_states": 0}, "n_states must be at least 1"),
        ({"restarts": 0}, "restarts must be at least 1"),
        ({"ridge": -1.0}, "ridge must be at least 0"),
        ({"expected_stay": 0.5}, "expected_stay must be more than 1"),
    ],
)
def test_invalid_settings_are_named(make_log, params, message):
    with pytest.raises(ParameterError, match=message):
        sc.HMMOracle(**params).fit(make_log())


def test_a_log_of_another_shape_is_rejected(make_log):
    oracle = sc.HMMOracle(n_states=2).fit(make_log("none", n=1200))
    with pytest.raises(ParameterError, match="the model was fitted with"):
        oracle.predict(make_log("shared"))


@pytest.mark.parametrize("kind", ["none", "shared"])
@pytest.mark.parametrize(("offset", "scale"), [(1e6, 1.0), (-30.0, 1.0), (0.0, 1e-6), (500.0, 1e4)])
def test_the_unit_and_the_level_of_rewards_do_not_matter(make_log, kind, offset, scale):
    log = make_log(kind, n=1800)
    moved = log.with_rewards(offset + scale * log.rewards)
    one, two = (sc.HMMOracle(n_states=2, rewards="gaussian").fit(each) for each in (log, moved))
    np.testing.assert_array_equal(one.predict(log).states, two.predict(moved).states)
    assert two.model_.noise_variances[0] == pytest.approx(scale**2 * one.model_.noise_variances[0], rel=1e-4)


@pytest.mark.parametrize("kind", ["shared", "per action"])
@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("ridge", ["auto", 0.0])
def test_the_unit_of_a_feature_does_not_matter(make_log, kind, scale, ridge):
    log = make_log(kind, n=1800)
    word = "contexts" if kind == "shared" else "action_features"
    units = np.ones(log.joint.n_features)
    units[-1] = scale
    moved = sc.BanditLog.from_arrays(
        log.actions, log.rewards, log.propensities, n_actions=3, **{word: log.contexts * units}
    )
    one, two = (sc.HMMOracle(n_states=2, ridge=ridge).fit(each) for each in (log, moved))
    np.testing.assert_array_equal(one.predict(log).states, two.predict(moved).states)
    assert one.report_.log_likelihood == pytest.approx(two.report_.log_likelihood, abs=1e-3)
    for learner in (sc.IPSLearner(), sc.DRLearner()):
        first, second = (learner.clone().fit(each).policy_.predict_proba(each.contexts) for each in (log, moved))
        np.testing.assert_allclose(first, second, atol=0.02)


def test_skewed_noise_is_not_mistaken_for_states():
    generator = np.random.default_rng(0)
    actions = generator.integers(3, size=4000)
    rewards = (generator.random(4000) < 0.3) * generator.lognormal(1, 0.8, 4000)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(4000, 1 / 3))
    with pytest.warns(NoChangeWarning, match=r"BIC is lower nevertheless .* skewed.* Rewards coded as 0 or 1"):
        assert sc.HMMOracle(rewards="gaussian", n_states="auto").fit(log).model_.n_states == 1
    with pytest.warns(SeachangeWarning, match=r"fits the noise .*The rewards are skewed.* Rewards coded as 0 or 1"):
        sc.HMMOracle(rewards="gaussian", n_states=3).fit(log)


def test_initialization_with_many_short_sequences_stays_small():
    generator = np.random.default_rng(0)
    n = 30_000
    log = sc.BanditLog.from_arrays(
        generator.integers(8, size=n), generator.normal(size=n), np.full(n, 1 / 8), n_actions=8,
        contexts=generator.normal(size=(n, 10)), sequences=np.arange(n) // 3,
    )  # fmt: skip
    grams = Starts(Chain(log), log.rewards, 1.0, "gaussian", 0, log.units).windows_of(1).grams
    assert len(grams) <= MAX_WINDOWS
    assert grams.size <= MAX_NUMBERS


def test_two_states_merged_by_the_initialization_are_separated():
    """States 0 and 1 differ in one action by a fifth of the noise; k-means would rather split state 2 or 3."""
    means = np.array([[0.6, 0.3, 0.8], [0.7, 0.3, 0.8], [0.1, 0.9, 0.3], [0.9, 0.6, 0.1]])
    states = np.repeat([0, 2, 1, 3, 2, 3], [4000, 15_000, 6000, 15_000, 15_000, 15_000])
    env = sc.simulate.Synthetic(n_actions=3, n_states=4, horizon=len(states), states=states, mean_rewards=means)
    log = env.log(0)
    oracle = sc.HMMOracle(n_states=4).fit(log)
    assert share_right(oracle.predict(log).states, states) > 0.99
