"""Hyperparameters in scikit-learn's manner, for every oracle and learner."""

import copy
import pickle

import numpy as np
import pytest
import sklearn.base

import seachange as sc
from seachange.errors import NotFittedError, ParameterError, SeachangeError

pytestmark = pytest.mark.small

STATES = np.repeat([0, 1], 60)
# Each with a setting that is not the default, and what fit learns.
FITTABLE = {
    "HMMOracle": (sc.HMMOracle(n_states=2, restarts=1, max_iterations=20, ridge=0.5), ["model_", "report_"]),
    "ChangePointOracle": (sc.ChangePointOracle(n_states=2, delta=0.5), ["segmentation_"]),
    "KnownStates": (sc.KnownStates(STATES), []),
    "SingleState": (sc.SingleState(), []),
    "IPSLearner": (sc.IPSLearner(clip=7.0, max_iterations=20), ["policy_", "optimization_"]),
    "DRLearner": (sc.DRLearner(ridge=2.0, max_iterations=20), ["policy_", "optimization_"]),
    "POEMLearner": (sc.POEMLearner(variance_penalty=0.5, max_iterations=20), ["policy_", "optimization_"]),
}
every = pytest.mark.parametrize(("estimator", "learned"), FITTABLE.values(), ids=FITTABLE)
learning = pytest.mark.parametrize(
    ("estimator", "learned"),
    [pair for pair in FITTABLE.values() if pair[1]],
    ids=[k for k, v in FITTABLE.items() if v[1]],
)


@pytest.fixture(scope="module")
def two_worlds():
    """120 rounds whose rewards jump in the middle."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 120)
    rewards = np.where(STATES == 0, 0.1 + 0.1 * actions, 0.9 - 0.2 * actions) + rng.normal(0, 0.05, 120)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(120, 0.5))


def equal_params(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@every
def test_get_params_gives_what_the_constructor_takes(estimator, learned):
    equal_params(type(estimator)(**estimator.get_params()).get_params(), estimator.get_params())
    equal_params(estimator.get_params(deep=False), estimator.get_params())


@pytest.mark.parametrize(
    ("estimator", "changes"),
    [
        (sc.HMMOracle(), {"n_states": 3, "seed": 7}),
        (sc.ChangePointOracle(), {"window": 9}),
        (sc.KnownStates([0, 1]), {"states": [1, 0]}),
        (sc.DRLearner(), {"clip": 3.0, "ridge": 0.0}),
        (sc.IPSLearner(), {}),
    ],
)
def test_set_params_changes_what_it_names_and_nothing_else(estimator, changes):
    before = estimator.get_params()
    assert estimator.set_params(**changes) is estimator
    equal_params(estimator.get_params(), before | changes)


@every
def test_an_unknown_parameter_is_named_and_changes_nothing(estimator, learned):
    before = estimator.get_params()
    with pytest.raises(ParameterError, match=f"{type(estimator).__name__} has no parameter 'colour'"):
        estimator.set_params(colour="red")
    equal_params(estimator.get_params(), before)
    with pytest.raises(TypeError):
        type(estimator)(colour="red")


def test_an_unknown_parameter_is_named_with_the_known_ones():
    with pytest.raises(
        ParameterError,
        match="it has clip, baseline, temperature, l2, regularization, pooling_rounds, steepness, max_iterations",
    ):
        sc.DRLearner().set_params(klip=3)


@pytest.mark.parametrize(
    "cls",
    [sc.HMMOracle, sc.ChangePointOracle, sc.SingleState, sc.IPSLearner, sc.DRLearner, sc.POEMLearner, sc.AutoLearner],
)
def test_hyperparameters_are_given_by_name_only(cls):
    with pytest.raises(TypeError):
        cls(3)


@every
@pytest.mark.parametrize("cloned", [lambda e: e.clone(), sklearn.base.clone], ids=["ours", "sklearn"])
def test_a_clone_has_the_settings_and_nothing_learned(estimator, learned, cloned, two_worlds):
    fitted = copy.copy(estimator).fit(two_worlds)
    twin = cloned(fitted)
    assert type(twin) is type(fitted)
    assert twin is not fitted
    equal_params(twin.get_params(), fitted.get_params())
    for name in learned:
        assert hasattr(fitted, name)
        assert not hasattr(twin, name)


@every
def test_fit_returns_itself_and_leaves_the_settings_alone(estimator, learned, two_worlds):
    fitted = copy.copy(estimator)
    before = fitted.get_params()
    assert fitted.fit(two_worlds) is fitted
    equal_params(fitted.get_params(), before)


@learning
def test_what_is_learned_is_not_there_before_fit(estimator, learned):
    for name in learned:
        with pytest.raises(
            NotFittedError, match=rf"{type(estimator).__name__} has no {name} yet; call fit\(log\)"
        ) as caught:
            getattr(estimator, name)
        assert isinstance(caught.value, SeachangeError)
        assert isinstance(caught.value, AttributeError)


@learning
def test_what_fit_does_not_learn_is_named_with_what_it_does(estimator, learned, two_worlds):
    fitted = copy.copy(estimator).fit(two_worlds)
    with pytest.raises(AttributeError, match=f"has no colours_; it has learned .*{learned[0]}") as caught:
        _ = fitted.colours_
    assert not isinstance(caught.value, NotFittedError)


@pytest.mark.parametrize("oracle", [sc.HMMOracle(), sc.ChangePointOracle()], ids=["HMM", "change-point"])
def test_predicting_before_fit_says_to_fit(oracle, two_worlds):
    with pytest.raises(NotFittedError, match=r"call fit\(log\) first"):
        oracle.predict(two_worlds)


@every
def test_a_name_that_never_was_is_a_plain_attribute_error(estimator, learned):
    with pytest.raises(AttributeError) as caught:
        _ = estimator.colour
    assert not isinstance(caught.value, NotFittedError)


@every
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))], ids=["copy", "deepcopy", "pickle"]
)
def test_copies_keep_settings_and_what_was_learned(estimator, learned, copied, two_worlds):
    fitted = copy.copy(estimator).fit(two_worlds)
    for original, names in ((estimator, []), (fitted, learned)):
        twin = copied(original)
        equal_params(twin.get_params(), original.get_params())
        assert all(hasattr(twin, name) for name in names)


@pytest.mark.parametrize(
    ("estimator", "shown"),
    [
        (sc.HMMOracle(), "HMMOracle()"),
        (sc.HMMOracle(n_states=3, seed=1), "HMMOracle(n_states=3, seed=1)"),
        (sc.HMMOracle(prior_segments=float("1.0"), tolerance=1 / 10**8), "HMMOracle()"),
        (sc.DRLearner(clip=20), "DRLearner(clip=20)"),
        (sc.KnownStates([0, 1]), "KnownStates(states=[0, 1])"),
        (sc.SingleState(), "SingleState()"),
    ],
)
def test_repr_shows_the_settings_that_differ_from_the_defaults(estimator, shown):
    assert repr(estimator) == shown


def test_repr_of_known_states_shows_an_array():
    assert repr(sc.KnownStates(np.array([0, 1]))) == "KnownStates(states=array([0, 1]))"
