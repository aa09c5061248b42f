"""Every oracle and every learner, driven through its protocol."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

import seachange as sc
from seachange.errors import LogError, NotFittedError, ParameterError, SeachangeWarning
from seachange.params import Params
from seachange.protocols import Policy, PolicyLearner, StateOracle
from seachange.registry import LEARNERS as LEARNER_KINDS
from seachange.registry import ORACLES as ORACLE_KINDS
from seachange.registry import POLICIES
from seachange.states.labels import labels_from_states

STATES = (6 * np.arange(600) // 600) % 2
ORACLES = [
    sc.HMMOracle(n_states=2),
    sc.ChangePointOracle(n_states=2),
    sc.ChangePointOracle(statistic="reward", window=40, threshold=0.05, n_states=2),
    sc.KnownStates(STATES),
    sc.SingleState(),
]
LEARNERS = [
    sc.IPSLearner(), sc.SNIPSLearner(), sc.DMLearner(), sc.DRLearner(), sc.MRDRLearner(), sc.POEMLearner(),
    sc.CrossEntropyLearner(), sc.AutoLearner(),
]  # fmt: skip
KINDS = ("none", "shared", "per action")


def named(thing):
    return type(thing).__name__


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("oracle", ORACLES, ids=named)
@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_an_oracle_labels_every_round(make_log, oracle, kind):
    log, oracle = make_log(kind), clone(oracle)
    assert isinstance(oracle, StateOracle)
    assert oracle.fit(log) is oracle
    labels = oracle.predict(log)
    assert labels.states.shape == (600,)
    assert labels.states.dtype == np.int64
    assert labels.states.min() >= 0
    assert labels.states.max() < labels.n_states
    assert (np.diff(labels.change_points) > 0).all()
    assert labels.state_probs is None or labels.state_probs.shape == (600, labels.n_states)
    again = clone(oracle).fit(log).predict(log)
    np.testing.assert_array_equal(labels.states, again.states)


@pytest.mark.parametrize("estimator", [*ORACLES, *LEARNERS], ids=named)
def test_a_table_is_not_taken_for_a_log(estimator):
    with pytest.raises(LogError, match=r"needs a BanditLog; got a dict. Create one with BanditLog.from_frame"):
        clone(estimator).fit({"action": [0, 1], "reward": [0.0, 1.0]})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LEARNERS, ids=named)
def test_a_learner_gives_a_policy(make_log, learner, kind):
    log, learner = make_log(kind), clone(learner)
    with pytest.raises(NotFittedError, match="call fit"):
        _ = learner.policy_
    assert learner.fit(log) is learner
    assert isinstance(learner, PolicyLearner)
    assert isinstance(learner.policy_, Policy)
    probs = learner.policy_.predict_proba(log.contexts)
    assert probs.shape == (600, 3)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(probs, clone(learner).fit(log).policy_.predict_proba(log.contexts))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("learner", LEARNERS, ids=named)
def test_learning_per_state_beats_one_policy_where_the_world_changes(make_log, learner, kind):
    log, later = make_log(kind, n=1800), make_log(kind, n=1800, seed=1)
    labels = sc.KnownStates((6 * np.arange(1800) // 1800) % 2).fit(log).predict(log)
    policies = sc.learn_per_state(log, labels, clone(learner))
    one = sc.evaluate(later, clone(learner).fit(log).policy_, ("snips",))[0]
    many = sc.evaluate(later, policies, ("snips",), labels=labels)[0]
    assert many.low > one.high


@pytest.mark.parametrize("kind", ["shared", "per action"])
def test_float32_contexts_learn_the_same(make_log, kind):
    log = make_log(kind)
    word = "contexts" if kind == "shared" else "action_features"
    narrow = sc.BanditLog.from_arrays(
        log.actions, log.rewards, log.propensities, n_actions=3, **{word: log.contexts.astype(np.float32)}
    )
    wide = sc.BanditLog.from_arrays(
        log.actions, log.rewards, log.propensities, n_actions=3, **{word: narrow.contexts.astype(np.float64)}
    )
    assert narrow.contexts.dtype == np.float32
    one, two = (sc.HMMOracle(n_states=2).fit(each).model_.reward_coefs for each in (narrow, wide))
    np.testing.assert_allclose(one, two, atol=1e-6)
    # Climbing stops where single precision sees no more to gain. (A steep policy would magnify that at near ties.)
    first, second = (sc.DRLearner(steepness=1.0).fit(each) for each in (narrow, wide))
    assert first.optimization_.value == pytest.approx(second.optimization_.value, rel=1e-5)
    probs = [learner.policy_.predict_proba(wide.contexts) for learner in (first, second)]
    np.testing.assert_allclose(*probs, atol=0.05)


def test_sc_learn_takes_objects_and_names_alike(make_log):
    log = make_log("shared", n=1200)
    named_model = sc.learn(log, oracle="hmm", n_states=2, objective="poem", seed=3)
    made_model = sc.learn(log, oracle=sc.HMMOracle(n_states=2, seed=3), objective=sc.POEMLearner())
    np.testing.assert_array_equal(named_model.policies[1].coefs, made_model.policies[1].coefs)
    with pytest.raises(ValueError, match=r"oracle must be"):
        sc.learn(log, oracle="tea leaves")
    with pytest.raises(ValueError, match="objective must be"):
        sc.learn(log, objective="fame")


def test_a_model_of_a_world_that_never_changes_says_so(make_log):
    generator = np.random.default_rng(0)
    log = sc.BanditLog.from_arrays(generator.integers(2, size=500), generator.random(500), np.full(500, 0.5))
    with pytest.warns(SeachangeWarning, match="no evidence of change"):
        model = sc.learn(log)
    assert model.n_states == 1


def test_every_registered_oracle_and_learner_is_in_this_contract():
    assert {type(oracle) for oracle in ORACLES} == set(ORACLE_KINDS)
    # Tables need few distinct contexts: tests/policies/test_tabular.py drives them.
    assert {type(learner) for learner in LEARNERS} | {sc.TabularLearner} == set(LEARNER_KINDS)
    assert set(POLICIES) == {sc.SoftmaxPolicy, sc.TabularPolicy}


def test_an_oracle_and_a_learner_of_ones_own_are_learned_with_and_saved_once_registered(make_log, tmp_path, registries):
    """One class and one line each: by name in learn(), and in model files."""

    @ORACLE_KINDS.register("halves")
    @dataclass(kw_only=True, eq=False, repr=False)
    class Halves(Params):
        at: float = 0.5

        def fit(self, log):
            self.first_ = int(self.at * len(log))
            return self

        def predict(self, log):
            return labels_from_states((np.arange(len(log)) >= self.first_).astype(np.int64), 2, log)

        def learned(self):
            return {"first": self.first_}, {"kept": np.arange(3.0)}

        @classmethod
        def restore(cls, part, joint, labels):
            oracle = part.restored(cls)
            oracle.first_ = part.learned(dict[str, int])["first"]
            assert part.floats("kept", (3,)).tolist() == [0, 1, 2]
            return oracle

    @LEARNER_KINDS.register("eager")
    @dataclass(kw_only=True, eq=False, repr=False)
    class Eager(sc.IPSLearner):
        clip: float = 5.0

    log = make_log("shared")
    model = sc.learn(log, oracle="halves", objective="eager")
    model.save(tmp_path / "own")
    loaded = sc.load(tmp_path / "own")
    assert type(loaded.oracle) is Halves
    assert type(loaded.learner) is Eager
    np.testing.assert_array_equal(loaded.oracle.predict(log).states, model.labels.states)
    with pytest.raises(ParameterError, match="'halves' is already registered by"):
        ORACLE_KINDS.register("halves")(sc.SingleState)


@pytest.fixture
def registries():
    """What a test registers is forgotten."""
    before = [(kinds, dict(kinds._classes), list(kinds.names)) for kinds in (ORACLE_KINDS, LEARNER_KINDS)]
    yield
    for kinds, classes, named_ones in before:
        kinds._classes, kinds.names = classes, named_ones


@pytest.mark.parametrize("name", ["known", "HMMOracle", "", "chnge-point"])
def test_a_word_for_no_oracle_names_those_there_are(make_log, name):
    with pytest.raises(ParameterError, match=r"oracle must be .*hmm.* or an oracle object"):
        sc.learn(make_log("none"), oracle=name)
    with pytest.raises(ParameterError, match=r"objective must be .*ips.* or a learner object"):
        sc.learn(make_log("none"), objective="tabular")
