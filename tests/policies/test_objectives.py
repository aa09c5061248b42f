"""Objectives: their values written out, their gradients by finite differences."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.policies.objectives import Objective, free_coefs, policy_coefs
from seachange.policies.reward_models import fit_rewards

pytestmark = pytest.mark.small


def random_log(kind, n, generator, masked):
    columns = {}
    if kind == "shared":
        columns["contexts"] = generator.normal(size=(n, 2))
    if kind == "per action":
        columns["action_features"] = generator.normal(size=(n, 3, 2))
    actions = generator.integers(3, size=n)
    if masked:
        mask = generator.random((n, 3)) < 0.6
        mask[np.arange(n), actions] = True
        columns["action_mask"] = mask
    propensities = generator.uniform(0.2, 0.9, n)
    # Some rounds earn nothing: those are the ones that may be skipped.
    rewards = np.where(generator.random(n) < 0.3, 0.0, generator.normal(0.5, 1, n))
    return sc.BanditLog.from_arrays(actions, rewards, propensities, n_actions=3, **columns)


def drawn(log, generator):
    """Coefficients, in units, that an objective takes."""
    return free_coefs(log.units, log.joint, generator.normal(size=log.joint.shape))


def objective_for(log, generator, *, modeled, **settings_):
    weights = generator.random(len(log)) * (generator.random(len(log)) < 0.8) + 1e-3
    model = fit_rewards(log, weights[:, None], 1.0)[0] if modeled else None
    defaults = {"clip": 1.5, "temperature": 0.0, "variance_penalty": 0.0, "l2": 0.0}
    predicted = None if model is None else model.predict(log)
    return Objective(log=log, weights=weights, modeled=predicted, **{**defaults, **settings_})


def written_out(objective, coefs):
    """J(θ), from its definition."""
    log, u = objective.log, objective.weights
    probs = sc.SoftmaxPolicy(policy_coefs(log.units, log.joint, coefs), log.joint).predict_proba(
        log.contexts, log.action_mask
    )
    rewards = log.rewards - objective.baseline
    everyone = np.arange(len(log))
    predicted = np.zeros((len(log), log.n_actions))
    if objective.modeled is not None:
        predicted = np.broadcast_to(objective.modeled, predicted.shape) - objective.baseline
    own = probs[everyone, log.actions]
    ratio = np.minimum(objective.clip, own / log.propensities)
    y = (probs * predicted).sum(axis=1) + ratio * (rewards - predicted[everyone, log.actions])
    if objective.surrogate:
        y = np.maximum(rewards, 0) / log.propensities * np.log(own)
    entropy = -np.sum(probs * np.log(np.where(probs > 0, probs, 1)), axis=1)
    mean = np.average(y, weights=u)
    variance = np.sum(u * (y - mean) ** 2) / (u.sum() - 1) if objective.variance_penalty > 0 else 0.0
    scale = np.average(np.abs(rewards), weights=u)
    center = 0 if objective.center is None else objective.center
    return (
        (np.sum(u * y) / np.sum(u * ratio) if objective.normalized else mean)
        + objective.temperature * np.average(entropy, weights=u)
        - objective.variance_penalty * np.sqrt(variance / u.sum())
        - objective.l2 * scale / 2 * np.sum((coefs - center) ** 2)
    )


def assert_gradient(objective, coefs, generator):
    value, gradient = objective.value_and_gradient(coefs)
    assert value == pytest.approx(written_out(objective, coefs), abs=1e-12)
    direction = generator.normal(size=coefs.shape)
    step = 1e-6
    ahead, _ = objective.value_and_gradient(coefs + step * direction)
    behind, _ = objective.value_and_gradient(coefs - step * direction)
    assert np.sum(gradient * direction) == pytest.approx((ahead - behind) / (2 * step), abs=1e-5, rel=1e-5)


@settings(max_examples=examples(40), deadline=None)
@given(
    kind=st.sampled_from(["none", "shared", "per action"]),
    masked=st.booleans(),
    modeled=st.booleans(),
    clip=st.sampled_from([np.inf, 1.5, 0.7]),
    temperature=st.sampled_from([0.0, 0.3]),
    variance_penalty=st.sampled_from([0.0, 2.0]),
    l2=st.sampled_from([0.0, 0.1]),
    baseline=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 1000),
)
def test_value_is_the_definition_and_gradient_its_slope(
    kind, masked, modeled, clip, temperature, variance_penalty, l2, baseline, seed
):
    generator = np.random.default_rng(seed)
    log = random_log(kind, 40, generator, masked)
    objective = objective_for(
        log, generator, modeled=modeled, clip=clip, temperature=temperature, variance_penalty=variance_penalty, l2=l2,
        baseline=baseline,
    )  # fmt: skip
    assert_gradient(objective, drawn(log, generator), generator)


@settings(max_examples=examples(40), deadline=None)
@given(
    kind=st.sampled_from(["none", "shared", "per action"]),
    masked=st.booleans(),
    clip=st.sampled_from([np.inf, 1.5]),
    temperature=st.sampled_from([0.0, 0.3]),
    form=st.sampled_from(["normalized", "surrogate"]),
    centered=st.booleans(),
    n=st.sampled_from([1, 40, 128, 129]),
    seed=st.integers(0, 1000),
)
def test_ratios_and_surrogates_have_their_definition_and_slope(
    kind, masked, clip, temperature, form, centered, n, seed
):
    generator = np.random.default_rng(seed)
    log = random_log(kind, n, generator, masked)
    center = drawn(log, generator) if centered else None
    objective = objective_for(
        log, generator, modeled=False, clip=clip, temperature=temperature, l2=0.1, center=center, **{form: True}
    )
    # A small log may hold no reward at all, and then has no scale.
    assume(np.abs(log.rewards).max() > 0)
    assert_gradient(objective, drawn(log, generator), generator)


@pytest.mark.parametrize("settings_", [{}, {"variance_penalty": 1.0}, {"surrogate": True}])
def test_rounds_without_a_reward_are_skipped_and_count(settings_):
    generator = np.random.default_rng(0)
    log = random_log("shared", 400, generator, masked=True)
    objective = objective_for(log, generator, modeled=False, **settings_)
    kept = sum(int((tiles.weights > 0).sum()) for tiles in objective._laid_out())
    matter = log.rewards > 0 if "surrogate" in settings_ else log.rewards != 0
    assert kept == int(matter.sum()) < 400
    assert_gradient(objective, drawn(log, generator), generator)


def test_float32_features_give_the_same_to_their_precision():
    generator = np.random.default_rng(0)
    features, actions = generator.normal(size=(300, 4, 5)).astype(np.float32), generator.integers(4, size=300)
    columns = actions, generator.random(300), np.full(300, 0.25)
    single = sc.BanditLog.from_arrays(*columns, action_features=features)
    double = sc.BanditLog.from_arrays(*columns, action_features=features.astype(np.float64))
    assert single.arrays.rows.dtype == np.float32
    coefs = drawn(single, generator)
    for settings_ in ({}, {"normalized": True}, {"variance_penalty": 1.0, "temperature": 0.1}, {"surrogate": True}):
        one, other = (Objective(log, np.ones(300), **settings_).value_and_gradient(coefs) for log in (single, double))
        assert one[0] == pytest.approx(other[0], rel=1e-6)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-4, atol=1e-7)


@pytest.mark.large
@pytest.mark.parametrize(
    "learner", [sc.IPSLearner(), sc.DRLearner(), sc.POEMLearner(), sc.CrossEntropyLearner()], ids=repr
)
def test_climbing_in_single_precision_converges(learner):
    world = sc.simulate.Clicks(seed=3, horizon=20_000)
    double = world.log(0)
    columns = double.actions, double.rewards, double.propensities
    single = sc.BanditLog.from_arrays(*columns, contexts=double.contexts.astype(np.float32))
    found, other = learner.clone().fit(single), learner.clone().fit(double)
    assert found.optimization_.converged
    assert found.optimization_.value == pytest.approx(other.optimization_.value, rel=1e-4)


def test_threads_change_nothing(monkeypatch):
    monkeypatch.setattr("seachange.policies.objectives.MIN_SHARED", 0)
    monkeypatch.setattr(sc.BanditLog.chunk_slices, "__defaults__", (40,))
    generator = np.random.default_rng(0)
    log = random_log("per action", 300, generator, masked=True)
    coefs = drawn(log, generator)
    alone, shared = (Objective(log, np.ones(300), workers=workers) for workers in (1, 4))
    one, other = alone.value_and_gradient(coefs), shared.value_and_gradient(coefs)
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])


def test_chunks_add_up(monkeypatch):
    generator = np.random.default_rng(0)
    log = random_log("shared", 50, generator, masked=True)
    coefs = drawn(log, generator)
    state = generator.bit_generator.state
    whole = objective_for(log, generator, modeled=True, variance_penalty=1.0).value_and_gradient(coefs)
    generator.bit_generator.state = state
    monkeypatch.setattr(sc.BanditLog.chunk_slices, "__defaults__", (7,))
    parts = objective_for(log, generator, modeled=True, variance_penalty=1.0).value_and_gradient(coefs)
    assert parts[0] == pytest.approx(whole[0], abs=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-12)
