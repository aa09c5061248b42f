"""States that a log adds to those of a model: found if they are there, and only then."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from scipy.special import expit

import seachange as sc
from seachange.model_file import Trial
from seachange.states.expectation import Chain, expectation
from seachange.states.new_states import updated, with_new_states
from seachange.states.switching_regression import SwitchingRegression, bought

MEANS = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.3], [0.6, 0.5, 1.0], [-0.4, 0.4, 0.1]])
SD = 0.5


def logged(states, seed=0, rewards="gaussian", noise=None, n_features=0, offset=0.0):
    """A log of uniform choices; the effects of features differ between states, too."""
    generator, n = np.random.default_rng([seed, 5]), len(states)
    actions, contexts = generator.integers(3, size=n), offset + generator.normal(size=(n, n_features))
    effects = np.linspace(-0.5, 0.5, 4)[states] * (contexts - offset).sum(axis=1)
    means = MEANS[states, actions] + effects
    if rewards == "gaussian":
        given = means + (generator.normal(0, SD, n) if noise is None else noise(generator, n))
    else:
        given = (generator.random(n) < expit(3 * means - 2)) * (5.0 if rewards == "hurdle" else 1.0)
    named = {"contexts": contexts} if n_features else {}
    return sc.BanditLog.from_arrays(actions, given, np.full(n, 1 / 3), n_actions=3, **named)


def true_world(log, rewards="gaussian", offset=0.0):
    """The first two states, known as if from 1,000 rounds per action."""
    coefs = np.zeros((2, *log.joint.shape))
    coefs[:, :, -1] = MEANS[:2]
    if log.joint.shape[1] > 1:
        coefs[:, :, :-1] = np.linspace(-0.5, 0.5, 4)[:2, None, None]
        coefs[:, :, -1] -= offset * coefs[:, :, :-1].sum(axis=-1)
    scale = 1.0
    if rewards != "gaussian":
        coefs, scale = 3 * coefs, 0.2
        coefs[:, :, -1] -= 2
    precisions = np.tile(1000 * scale * log.units.raw_grams(np.eye(log.joint.shape[1])), (2, log.joint.shape[0], 1, 1))
    variances = np.full(2, SD**2) if rewards == "gaussian" else np.empty(0)
    moves = np.array([[0.995, 0.005], [0.005, 0.995]])
    amounts = {"amounts": np.full(log.joint.shape, 5.0)} if rewards == "hurdle" else {}
    return SwitchingRegression(np.full(2, 0.5), moves, coefs, precisions, variances, log.joint, rewards, **amounts)


def grown(world, log):
    chain = Chain(bought(log) if world.rewards == "hurdle" else log)
    return with_new_states(world, expectation(world, chain), chain)[0]


def known_states(n=3000):
    return (np.arange(n) // 200) % 2


@pytest.mark.small
@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_predictive_likelihoods_are_those_of_all_paths(rewards):
    log = replace(logged(np.array([0, 0, 1, 1, 0, 1]), rewards=rewards), sequences=np.array([0, 0, 0, 0, 1, 1]))
    world, densities = true_world(log, rewards), np.empty((6, 2))
    for t, z in product(range(6), range(2)):
        score = world.reward_coefs[z, log.actions[t], 0]
        square = (log.rewards[t] - score) ** 2 / (2 * SD**2)
        click = expit(score) if log.rewards[t] == 1 else 1 - expit(score)
        densities[t, z] = np.exp(-square) / np.sqrt(2 * np.pi * SD**2) if rewards == "gaussian" else click

    def likelihood(first, last):  # of rounds first to last - 1, which start a chain
        total = float(first == last)
        for path in product(range(2), repeat=last - first) if last > first else ():
            moves = np.prod([world.transition_matrix[pair] for pair in pairwise(path)])
            total += 0.5 * moves * np.prod([densities[first + i, z] for i, z in enumerate(path)])
        return total

    expected = [np.log(likelihood(first, t + 1) / likelihood(first, t)) for first, t in
                [(0, 0), (0, 1), (0, 2), (0, 3), (4, 4), (4, 5)]]  # fmt: skip
    found = world.log_predictive(log)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert found.sum() == pytest.approx(world.log_likelihood(log))


@pytest.mark.parametrize("n_features", [0, 2])
def test_a_step_reaches_the_posterior_mean_of_a_linear_regression(n_features):
    log = logged(np.zeros(300, dtype=int), n_features=n_features, offset=3.0)
    one = true_world(log, offset=3.0)
    prior = replace(
        one, initial_probs=np.ones(1), transition_matrix=np.ones((1, 1)), reward_coefs=one.reward_coefs[:1],
        reward_precisions=one.reward_precisions[:1] / 100, noise_variances=np.full(1, SD**2),
    )  # fmt: skip
    for start in (prior, replace(prior, reward_coefs=prior.reward_coefs + 1)):
        found = updated(start, prior, expectation(start, Chain(log)), log.units)
        for a in range(3):
            taken = log.actions == a
            rows = np.column_stack([log.contexts[taken], np.ones(taken.sum())])
            precision = prior.reward_precisions[0, a] + rows.T @ rows
            moments = prior.reward_precisions[0, a] @ prior.reward_coefs[0, a] + rows.T @ log.rewards[taken]
            np.testing.assert_allclose(found.reward_coefs[0, a], np.linalg.solve(precision, moments), atol=1e-9)
            np.testing.assert_allclose(found.reward_precisions[0, a], precision)


def test_steps_for_clicks_end_where_the_gradient_of_the_posterior_is_zero():
    log = logged(np.zeros(300, dtype=int), rewards="bernoulli")
    both = true_world(log, "bernoulli")
    prior = replace(both, initial_probs=np.array([1.0, 0.0]), transition_matrix=np.eye(2))
    world = prior
    for _ in range(10):
        world = updated(world, prior, expectation(world, Chain(log)), log.units)
    for a in range(3):
        coef, taken = world.reward_coefs[0, a, 0], log.actions == a
        slope = np.sum(log.rewards[taken] - expit(coef))
        assert slope == pytest.approx(prior.reward_precisions[0, a, 0, 0] * (coef - prior.reward_coefs[0, a, 0]))


@pytest.mark.parametrize("n_features", [0, 2])
@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli", "hurdle"])
def test_new_regimes_are_found(rewards, n_features):
    states = np.concatenate([known_states(1600), np.full(1300, 2), np.full(1100, 3)])
    log = logged(states, rewards=rewards, n_features=n_features)
    world = true_world(log, rewards)
    found = grown(world, log)
    assert found.n_states == 4
    probs = found.smooth(log)
    assert {int(probs[states == z].mean(axis=0).argmax()) for z in (2, 3)} == {2, 3}
    assert probs[states >= 2, 2:].sum() > 0.95 * np.sum(states >= 2)
    assert probs[states < 2, :2].sum() > 0.95 * np.sum(states < 2)


def test_the_origin_of_features_does_not_matter():
    states, found = np.concatenate([known_states(1600), np.full(1400, 2)]), []
    for offset in (0.0, 1000.0):
        log = logged(states, n_features=2, offset=offset)
        found.append(grown(true_world(log, offset=offset), log))
    assert [each.n_states for each in found] == [3, 3]
    near, far = (each.reward_coefs[:, :, :-1] for each in found)
    np.testing.assert_allclose(far, near, atol=1e-4)


@pytest.mark.parametrize(
    "noise",
    [
        lambda rng, n: rng.normal(0, SD, n),
        lambda rng, n: SD * rng.standard_t(3, n) / np.sqrt(3),
        lambda rng, n: rng.normal(0, SD, n) + np.where(rng.random(n) < 0.002, 20 * SD, 0.0),
    ],
    ids=["gaussian", "heavy-tailed", "outliers"],
)
@pytest.mark.parametrize("n_features", [0, 2])
def test_noise_is_not_a_state(noise, n_features):
    for seed in range(10):
        log = logged(known_states(), seed, noise=noise, n_features=n_features)
        world = true_world(log)
        chain = Chain(log)
        found = expectation(world, chain)
        same, statistics = with_new_states(world, found, chain)
        assert same.n_states == 2
        assert statistics is found
        np.testing.assert_array_equal(same.reward_coefs, updated(world, world, found, log.units).reward_coefs)


@pytest.mark.parametrize("rewards", ["bernoulli", "hurdle"])
def test_noise_of_clicks_is_not_a_state(rewards):
    for seed in range(10):
        log = logged(known_states(), seed, rewards)
        assert grown(true_world(log, rewards), log).n_states == 2


# New regimes of a later log, for a model that was learned from an earlier one


@pytest.fixture(scope="module")
def model():
    return sc.learn(logged(known_states()), n_states=2, objective="dm")


def with_regime(first, end, n=3000, seed=7, **settings):
    states = known_states(n)
    states[first:end] = 2
    return logged(states, seed, **settings)


@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli", "hurdle"])
@pytest.mark.parametrize("oracle", ["hmm", "change-point"])
def test_the_rounds_of_new_regimes_are_named(rewards, oracle):
    known = sc.learn(logged(known_states(6000), rewards=rewards), oracle, n_states=2, objective="dm")
    assert known.new_regimes(logged(known_states(), 1, rewards)) == ()
    (found,) = known.new_regimes(with_regime(1300, 1800, rewards=rewards))
    assert abs(found.first - 1300) < 30
    assert abs(found.last - 1799) < 30
    assert (found.since, found.until, found.ongoing) == (None, None, False)
    (found,) = known.new_regimes(with_regime(2400, 3000, rewards=rewards))
    assert found.last == 2999
    assert found.ongoing


def test_a_short_regime_is_found_in_a_long_log(model):
    (found,) = model.new_regimes(with_regime(50_111, 50_511, n=100_000))
    assert abs(found.first - 50_111) < 30
    assert abs(found.last - 50_510) < 30


def test_new_regimes_have_the_times_of_their_rounds(model):
    times = np.datetime64("2026-05-03T14:00", "s") + 60 * np.arange(3000)
    log = replace(with_regime(2000, 3000), times=times)
    (found,) = model.new_regimes(log)
    assert found.since == str(times[found.first]).removesuffix(":00")
    assert found.until == str(times[2999]).removesuffix(":00")


def test_rounds_of_the_model_itself_are_left_out(model):
    learned, later = logged(known_states()), with_regime(2000, 3000)
    assert model.new_regimes(learned) == ()
    (alone,), (after,) = model.new_regimes(later), model.new_regimes(sc.BanditLog.joined([learned, later]))
    assert (after.first, after.last) == (alone.first + 3000, alone.last + 3000)


def test_one_state_is_as_uncertain_as_the_mean_of_its_log():
    still, found = np.zeros(600, dtype=int), 0
    for seed in range(30):
        model = sc.learn(logged(still, seed), sc.HMMOracle(n_states=1), objective="dm")
        found += len(model.new_regimes(logged(np.zeros(6000, dtype=int), seed + 100)))
    assert found <= 1


def test_what_a_model_leaves_out_of_its_own_log_is_not_new(tmp_path):
    states = (np.arange(6000) // 300) % 3
    model = sc.learn(logged(states), "none", objective="dm")
    model.save(tmp_path / "model.seachange")
    for each in (model, sc.load(tmp_path / "model.seachange")):
        assert not each.evidence.complete
        assert each.new_regimes(logged(states, 1)) == ()


def test_states_that_did_not_pay_are_not_new(model):
    none = (0.0, 0.0, 0.0)
    fewer = replace(model, trial=Trial(3, 1800, 1200, 0.95, none, none, none, none, 0.0))
    assert model.new_regimes(with_regime(2000, 3000)) != ()
    assert fewer.new_regimes(with_regime(2000, 3000)) == ()


def test_sequences_have_no_common_regime(model):
    assert model.new_regimes(replace(with_regime(2000, 3000), sequences=np.repeat([0, 1], 1500))) == ()


def random_world(seed, rewards, n_features):
    """Scores of four actions in three states and, last, in one that is never logged; for clicks, log-odds."""
    generator = np.random.default_rng([seed, 1])
    low, high, spread = (0.0, 1.0, 0.3) if rewards == "gaussian" else (-2.5, 0.0, 0.5)
    levels = generator.permuted(np.tile(np.linspace(low, high, 4), (4, 1)), axis=1) + generator.normal(0, 0.1, (4, 4))
    return levels, generator.normal(0, spread, (4, 4, n_features))


def random_states(n, seed, n_states):
    generator, found = np.random.default_rng([seed, 2]), []
    while len(found) < n:
        state = (found[-1] + generator.integers(1, n_states)) % n_states if found and n_states > 1 else 0
        found += [state] * (20 + int(generator.geometric(1 / 300)))
    return np.array(found[:n])


def log_of(world, states, seed, rewards):
    generator, n, (levels, effects) = np.random.default_rng([seed, 3]), len(states), world
    contexts, actions = generator.normal(size=(n, effects.shape[2])), generator.integers(4, size=n)
    means = levels[states, actions] + np.sum(effects[states, actions] * contexts, axis=1)
    if rewards == "gaussian":
        given = means + generator.normal(0, SD, n)
    else:
        given = (generator.random(n) < expit(means)).astype(float)
    named = {"contexts": contexts} if contexts.size else {}
    return sc.BanditLog.from_arrays(actions, given, np.full(n, 1 / 4), n_actions=4, **named)


def share_lost(world, n_states, rewards):
    """In the state that was never logged: how much less the best policy of the others earns than its own."""
    levels, effects = world
    scores = np.random.default_rng(0).normal(size=(2000, effects.shape[2])) @ np.swapaxes(effects, 1, 2)
    means = levels[:, None] + scores if rewards == "gaussian" else expit(levels[:, None] + scores)
    choices = means[:n_states].argmax(axis=2)
    values = [np.take_along_axis(means[-1], each[:, None], axis=1).mean() for each in choices]
    return 1 - max(values) / means[-1].max(axis=1).mean()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_features", [0, 3])
@pytest.mark.parametrize("rewards", ["gaussian", "bernoulli"])
def test_new_regimes_are_found_in_random_worlds_and_the_same_world_holds_none(rewards, n_features):
    """30 worlds, every fifth with one state, and a regime of 300 rounds that costs at least 10% of the reward."""
    false = found = costly = 0
    for seed in range(30):
        n_states, world = 1 if seed % 5 == 4 else 3, random_world(seed, rewards, n_features)
        earlier = log_of(world, random_states(8000, seed, n_states), seed, rewards)
        model = sc.learn(earlier, objective="dm")
        same = log_of(world, random_states(5000, seed + 100, n_states), seed + 100, rewards)
        false += len(model.new_regimes(same)) > 0
        if share_lost(world, n_states, rewards) < 0.1:
            continue
        costly += 1
        states = random_states(5000, seed + 200, n_states)
        states[2437:2737] = 3
        regimes = model.new_regimes(log_of(world, states, seed + 200, rewards))
        found += any(each.first < 2737 and each.last >= 2437 for each in regimes)
    figures = false, found, costly
    assert false <= 2, figures
    assert found >= 0.6 * costly, figures
