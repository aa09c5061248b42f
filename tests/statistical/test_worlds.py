"""The simulated worlds are what their names say, and their true values are true."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import seachange as sc
from statistical.headline import compared, summarized
from statistical.worlds import (
    CANNOT_PAY,
    FAMILIES,
    PAYS,
    controlled_mean,
    deployed,
    expected_means,
    fresh_means,
    make_world,
    true_values,
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")


def learned(world, **settings):
    """A model with the true number of states, and a policy that never switches."""
    model = sc.learn(world.first, n_states=max(world.n_states, 2), objective="dm", **world.settings, **settings)
    return model, sc.learn(world.first, oracle="none", objective="dm").policies[0]


def stays_of(states):
    """Lengths of all stays but the first and the last, which are cut."""
    return np.diff(np.flatnonzero(np.diff(states, prepend=-1)))[1:]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_seed_makes_a_world_of_the_promised_size(name):
    for seed in range(5):
        world = make_world(name, seed)
        assert 10_000 <= world.n_rounds == len(world.log) <= 20_000
        assert 3 <= world.n_actions <= 6
        assert 1 <= world.n_states <= 4
        assert world.logging_probs.min() > 0.03
    again = make_world(name, 4)
    assert (again.log.rewards == world.log.rewards).all()
    assert (again.log.actions == world.log.actions).all()
    assert (world.log.rewards[:9000] != make_world(name, 3).log.rewards[:9000]).any()


@pytest.mark.parametrize("name", FAMILIES)
def test_actions_are_logged_with_their_propensities(name):
    world = make_world(name, 11)
    taken = np.eye(world.n_actions)[world.log.actions]
    expected, variance = world.logging_probs.sum(axis=0), (world.logging_probs * (1 - world.logging_probs)).sum(axis=0)
    assert np.abs((taken.sum(axis=0) - expected) / np.sqrt(variance)).max() < 4.5
    every = np.arange(world.n_rounds)
    np.testing.assert_array_equal(world.log.propensities, world.logging_probs[every, world.log.actions])


@pytest.mark.parametrize("name", FAMILIES)
def test_rewards_have_their_means(name):
    world = make_world(name, 12)
    every, errors = np.arange(world.n_rounds), []
    for seed in range(5):
        drawn = world.draw_rewards(world.means, np.random.default_rng(seed))
        errors.append((drawn - world.means)[every, world.log.actions])
    errors = np.concatenate([*errors, world.log.rewards - world.means[every, world.log.actions]])
    assert abs(errors.mean() / (errors.std() / np.sqrt(len(errors)))) < 4.5


@pytest.mark.parametrize("name", ["long stays", "short stays", "cycles", "clicks", "change points"])
def test_states_last_as_long_as_they_should_and_are_as_frequent(name):
    world = make_world(name, 13)
    states = world.draw_states(2_000_000, np.random.default_rng(0))
    shares = np.bincount(states, minlength=world.n_states) / len(states)
    np.testing.assert_allclose(shares, world.state_shares, atol=0.05)
    lengths, mean = stays_of(states), {"short stays": (30, 80), "cycles": (30, 30), "change points": (1000, 2000)}
    low, high = mean.get(name, (500, 1500))
    assert 0.9 * low <= lengths.mean() <= 1.1 * high
    if name == "cycles":
        assert set(lengths) == {30}


def test_families_differ_in_what_their_names_say():
    for seed in range(20):
        for name in ("long stays", "short stays", "cycles", "change points", "clicks", "revenue"):
            means = make_world(name, seed).state_means[:, 0]
            assert len(set(means.argmax(axis=1))) == len(means) > 1
        assert len(set(make_world("same best action", seed).state_means[:, 0].argmax(axis=1))) == 1
        assert make_world("stationary", seed).n_states == 1
        revealing = make_world("revealing actions strong", seed)
        means, best = revealing.state_means[:, 0], revealing.state_means[:, 0].argmax(axis=1)
        spread = means.std(axis=0) / revealing.noise
        assert set(np.argsort(spread)[: revealing.n_states]) == set(best)
        assert np.delete(spread, best).min() > 3 * spread[best].max()
    rates = [make_world("clicks", seed).log.rewards for seed in range(20)]
    assert 0.03 < np.mean(rates) < 0.07
    assert set(np.unique(rates)) == {0, 1}
    orders = [make_world("revenue", seed).log.rewards for seed in range(20)]
    assert 0.02 < np.mean(np.array(orders) > 0) < 0.045
    walks = [make_world("drifting means", seed).walk[-1] for seed in range(20)]
    assert 0.2 < np.concatenate(walks).std() < 0.6


@pytest.mark.parametrize("name", ["short stays", "change points", "features per action", "shared contexts", "revenue"])
def test_a_deployment_is_what_acting_and_updating_round_by_round_earns(name):
    world = make_world(name, 14)
    model, _ = learned(world)
    deployer, span = model.deployer(), slice(world.start, world.start + 150)
    contexts, means = world.log[span].contexts, world.means[span]
    fast = deployed(world, deployer, contexts, means, np.random.default_rng(3))
    generator = np.random.default_rng(3)
    rewards, uniforms = world.draw_rewards(means, generator), generator.random(150)
    state, earned = deployer.init(), 0.0
    for t in range(150):
        decision = deployer.act(state, contexts[t], float(uniforms[t]))
        earned += sum(decision.probs[a] * means[t, a] for a in range(world.n_actions))
        state = deployer.update(state, decision, float(rewards[t, decision.action]))
    assert fast == pytest.approx(earned / 150, abs=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_nobody_earns_more_than_someone_who_knows_the_means(name):
    world = make_world(name, 15)
    model, single = learned(world)
    truth = true_values(world, model.deployer(), single, 12)
    assert max(truth.same.value, truth.single_same) <= truth.oracle_same + 1e-9
    spare = 4.5 * (truth.fresh.error + truth.oracle_fresh.error)
    assert max(truth.fresh.value, truth.single_fresh) <= truth.oracle_fresh.value + spare + 1e-9


@pytest.mark.parametrize("name", ["long stays", "cycles", "shared contexts", "drifting means"])
def test_known_parts_of_fresh_paths_have_mean_0_and_save_repetitions(name):
    world, generator = make_world(name, 16), np.random.default_rng(0)
    model, single = learned(world)
    contexts = world.later.contexts
    probs = np.broadcast_to(single.predict_proba(contexts, None), (len(contexts), world.n_actions))
    values, singles, controls = [], [], []
    for _ in range(150):
        means, known = fresh_means(world, generator)
        values.append(deployed(world, model.deployer(), contexts, means, generator))
        singles.append(np.sum(probs * means, axis=1).mean())
        controls.append(known)
    values, singles, controls = np.array(values), np.array(singles), np.array(controls)
    errors = controls.std(axis=0, ddof=1) / np.sqrt(150)
    assert np.abs(controls.mean(axis=0) / np.maximum(errors, 1e-12)).max() < 4.5
    plain, error = values.mean(), values.std(ddof=1) / np.sqrt(150)
    found = controlled_mean(values, controls)
    assert abs(found.value - plain) < 4.5 * error + 1e-12
    assert found.error < (1.05 if name == "cycles" else 0.7) * error
    exact = float(np.sum(probs * expected_means(world), axis=1).mean())
    assert abs(controlled_mean(singles, controls).value - exact) < 4.5 * controlled_mean(singles, controls).error + 1e-9


def test_switching_pays_or_cannot_as_listed():
    for names, sign in ((PAYS, 1), (CANNOT_PAY, -1)):
        for name in names:
            gains = []
            for seed in (21, 22):
                world = make_world(name, seed)
                model, single = learned(world)
                truth = true_values(world, model.deployer(), single, 8)
                gains.append(truth.same.value - truth.single_same)
            assert sign * np.mean(gains) > (0.0 if sign > 0 else -1e-3), name


def label_estimate(world, model):
    """The doubly robust value of policies that are told each state by the log's own rewards, as an estimate."""
    labels = model.label_ahead(world.later)
    (found,) = sc.evaluate(world.later, model.policies, ("dr",), labels=labels)
    none = SimpleNamespace(value=0.0, low=0.0, high=0.0)
    return SimpleNamespace(value=found.value, low=found.low, high=found.high, single=none, gain=none)


def test_a_value_by_states_that_the_logs_rewards_tell_is_too_high_if_only_poor_actions_tell_them():
    records = []
    for seed in range(8):
        world = make_world("revealing actions strong", seed)
        model, single = learned(world)
        records.append(compared(world, model, single, label_estimate(world, model), 20))
    found = summarized(records)
    assert found.covered <= 3
    assert found.bias > 4.5 * found.bias_error
    assert len(found.shortfalls()) == 2


@pytest.mark.parametrize(("shift", "stretch", "claim", "n_found"), [
    (0.0, 1.0, 0.0, 0), (2.0, 1.0, 0.0, 2), (0.0, 0.4, 0.0, 1), (0.0, 1.0, 0.3, 1),
])  # fmt: skip
def test_thresholds_tell_right_estimators_from_wrong_ones(shift, stretch, claim, n_found):
    """Normal estimates with bias ``shift``, intervals ``stretch`` times as wide, and a share of false claims."""
    generator, records = np.random.default_rng(5), []
    for _ in range(60):
        value, false = 1 + shift + generator.normal(), generator.random() < claim
        parts = {
            "value": {"value": value, "low": value - 1.96 * stretch, "high": value + 1.96 * stretch},
            "single": {"value": 1.0, "low": 0.9, "high": 1.1},
            "gain": {"value": 0.1, "low": 0.05 if false else -0.1, "high": 0.3},
        }
        truth = dict.fromkeys(("same", "fresh", "single_same", "single_fresh"), 1.0) | {"same_error": 0.01}
        records.append({"estimate": parts, "truth": truth})
    found = summarized(records)
    assert len(found.shortfalls()) == n_found, found.shortfalls()
    assert replace(found, numbers=20).shortfalls() == ["40 of 60 estimates were refused"]
