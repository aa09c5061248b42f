"""Nothing depends on the units or the origin of features, nor on the unit or the level of rewards.

Exceptions, by definition: the IPS estimator, a mean of w r, is not equivariant to a constant, because the weights do
not average exactly 1; and rewards of 0 and 1 are clicks, which other values are not.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seachange as sc

KINDS = ("none", "shared", "per action")
LEARNERS = [
    sc.IPSLearner(), sc.SNIPSLearner(), sc.POEMLearner(), sc.CrossEntropyLearner(), sc.DMLearner(), sc.DRLearner(),
    sc.MRDRLearner(), sc.TabularLearner(), sc.TabularLearner(objective="dr", clip=3.0),
]  # fmt: skip
ORACLES = [sc.HMMOracle(n_states=2), sc.HMMOracle(n_states=2, ridge=0.0), sc.ChangePointOracle(n_states=2)]
N, ROUNDING = 900, 1e-6
# Factors and constants for features, then for rewards.
CHANGES = [
    (1.0, 10.0, 1.0, 0.0),
    (1.0, 1e4, 1.0, 0.0),
    (1e-3, -7.0, 1e3, 0.0),
    (1.0, 0.0, 1.0, 5.0),
    (20.0, 1e4, 0.1, -1e3),
]


def named(thing):
    return repr(thing)


def build(kind, change=(1.0, 0.0, 1.0, 0.0), *, rare=False, discrete=False):
    """Two states and three actions; ``rare``: most rewards are the smallest one."""
    g = np.random.default_rng(0)
    factor, constant, unit, level = change
    shape = {"none": (N, 0), "shared": (N, 2), "per action": (N, 3, 2)}[kind]
    features, actions, states = g.normal(size=shape), g.integers(3, size=N), (6 * np.arange(N) // N) % 2
    features = np.sign(features) if discrete else features
    means = np.array([[0.2, 0.5, 1.0], [1.0, 0.5, 0.2]])[states, actions]
    if kind == "shared":
        means = means + features @ [0.3, -0.2] * (actions - 1)
    if kind == "per action":
        means = means + (features @ [0.5, -0.3])[np.arange(N), actions]
    rewards = means + 0.3 * g.normal(size=N)
    if rare:
        rewards = np.where(rewards > 1.0, rewards, 0.0)
    mask = g.random((N, 3)) < 0.9
    mask[np.arange(N), actions] = True
    given = {"shared": "contexts", "per action": "action_features"}.get(kind)
    columns = {} if given is None else {given: factor * features + constant}
    propensities = g.uniform(0.2, 0.6, N)
    rewards = unit * (rewards + level)
    return sc.BanditLog.from_arrays(actions, rewards, propensities, n_actions=3, action_mask=mask, **columns)


def probs_of(learner, log):
    policy = learner.clone().fit(log).policy_
    return policy.predict_proba(log.contexts, log.action_mask)


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("rare", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LEARNERS, ids=named)
def test_policies_do_not_depend_on_units_and_levels(learner, kind, rare):
    settings = {"rare": rare, "discrete": isinstance(learner, sc.TabularLearner)}
    expected = probs_of(learner, build(kind, **settings))
    for change in CHANGES:
        np.testing.assert_allclose(probs_of(learner, build(kind, change, **settings)), expected, atol=ROUNDING)


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("oracle", ORACLES, ids=named)
def test_states_do_not_depend_on_units_and_levels(oracle, kind):
    log = build(kind)
    expected = oracle.clone().fit(log).predict(log)
    for change in CHANGES:
        other = build(kind, change)
        labels = oracle.clone().fit(other).predict(other)
        np.testing.assert_array_equal(labels.states, expected.states)
        np.testing.assert_array_equal(labels.change_points, expected.change_points)
        if expected.state_probs is not None:
            np.testing.assert_allclose(labels.state_probs, expected.state_probs, atol=ROUNDING)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("forward", [False, True])
def test_values_move_with_the_level_and_unit_of_rewards(kind, forward):
    probs = np.random.default_rng(1).dirichlet(np.ones(3), size=N)
    names = ("dr", "mrdr") if forward else ("snips", "dm", "dr", "sndr", "switch-dr", "dr-os", "mrdr")
    settings = {"interval": "sequence", "reward_range": (-3.0, 4.0)} if forward else {}

    def estimates(log, **settings):
        allowed = np.where(log.arrays.mask, probs, 0.0)
        return sc.evaluate(log, allowed / allowed.sum(axis=1, keepdims=True), estimators=names, **settings)

    expected = estimates(build(kind), **settings)
    for change in CHANGES:
        unit, level = change[2:]
        if forward:
            settings["reward_range"] = (unit * (-3.0 + level), unit * (4.0 + level))
        for found, own in zip(estimates(build(kind, change), **settings), expected, strict=True):
            assert found.value / unit - level == pytest.approx(own.value, abs=ROUNDING)
            assert found.std_error / unit == pytest.approx(own.std_error, abs=ROUNDING)
            assert found.low / unit - level == pytest.approx(own.low, abs=ROUNDING)


@pytest.mark.parametrize("kind", ["shared", "per action"])
@given(
    constant=st.floats(-1e4, 1e4), log_factor=st.floats(-6, 6), level=st.floats(-1e4, 1e4), log_unit=st.floats(-6, 6)
)
def test_any_origin_and_scale_gives_the_same_direct_policy_and_value(kind, constant, log_factor, level, log_unit):
    factor, unit = 10.0**log_factor, 10.0**log_unit
    log, other = build(kind), build(kind, (factor, factor * constant, unit, level))
    probs, found = probs_of(sc.DMLearner(), log), probs_of(sc.DMLearner(), other)
    np.testing.assert_allclose(found, probs, atol=ROUNDING)
    (own,), (moved,) = sc.evaluate(log, probs, estimators=("dm",)), sc.evaluate(other, found, estimators=("dm",))
    assert moved.value / unit - level == pytest.approx(own.value, abs=1e-5)


@pytest.mark.parametrize("learner", [sc.DMLearner(), sc.DRLearner(l2=1.0, steepness=1.0)], ids=named)
def test_a_constant_in_a_numeric_column_does_not_change_a_read_log(learner):
    polars = pytest.importorskip("polars")
    g, n = np.random.default_rng(0), 3000
    age, actions = g.normal(40, 10, n), g.integers(3, size=n)
    rewards = (actions - 1) * (age - 40) / 10 + g.normal(size=n)
    table = polars.DataFrame({"action": actions, "reward": rewards, "propensity": np.full(n, 1 / 3), "age": age})
    table = table.with_columns(
        country=polars.Series(g.choice(["DE", "FR", "IT"], n)), page=polars.Series(g.integers(1500, size=n).astype(str))
    )
    columns = {"contexts": ["age", "country", "page"]}
    one = sc.BanditLog.from_frame(table, columns)
    two = sc.BanditLog.from_frame(table.with_columns(polars.col("age") * 365.25 + 1e4), columns)
    np.testing.assert_allclose(probs_of(learner, two), probs_of(learner, one), atol=ROUNDING)


@pytest.mark.parametrize("supplied", [False, True])
def test_dm_knows_the_level_of_rewards_with_features_per_action(supplied):
    """With a constant column of the user's or without one."""
    g, n = np.random.default_rng(0), 2000
    features, actions = g.normal(2.0, 1.0, size=(n, 3, 2)), g.integers(3, size=n)
    means = 7.0 + features @ [0.5, -0.3]
    columns = np.concatenate([features, np.ones((n, 3, int(supplied)))], axis=2)
    rewards = means[np.arange(n), actions] + 0.3 * g.normal(size=n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), action_features=columns)
    probs = np.eye(3)[means.argmax(axis=1)]
    (estimate,) = sc.evaluate(log, probs, estimators=("dm",))
    assert abs(estimate.value - (probs * means).sum(axis=1).mean()) < 4.5 * estimate.std_error < 0.1
