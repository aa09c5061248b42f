"""Model files of earlier schemas, kept as they were written, still load."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import seachange as sc

FILES = Path(__file__).parent / "files"


def first_log():
    """The log that the files were learned from."""
    generator = np.random.default_rng(0)
    states, actions = np.repeat([0, 1, 0, 1], 200), generator.integers(3, size=800)
    means = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.5]])[states, actions]
    contexts = np.round(generator.normal(size=(800, 1)), 3)
    return sc.BanditLog.from_arrays(
        actions, means + generator.normal(0, 0.1, 800), np.full(800, 1 / 3), contexts=contexts,
        action_names=["boots", "coats", "lamps"], context_names=["age"],
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "schema-1-hmm", "schema-1-hmm-auto", "schema-1-change-point", "schema-2-hmm", "schema-2-change-point",
        "schema-3-hmm", "schema-3-change-point",
    ],
)  # fmt: skip
def test_a_model_of_an_earlier_schema_sees_the_states_it_saw_and_saves_as_a_present_one(name, tmp_path):
    log, model = first_log(), sc.load(FILES / f"{name}.seachange")
    assert model.provenance.fingerprint == log.fingerprint()
    assert model.provenance.propensity_source == "logged"
    np.testing.assert_array_equal(model.oracle.predict(log).states, model.labels.states)
    deployer = model.deployer()
    decision = deployer.act(deployer.init(), [0.3], 0.4)
    assert abs(decision.probs.sum() - 1) < 1e-12
    model.save(tmp_path / "present.seachange")
    again = sc.load(tmp_path / "present.seachange")
    np.testing.assert_array_equal(again.oracle.predict(log).states, model.labels.states)
    assert again.deployer().act(again.deployer().init(), [0.3], 0.4).action == decision.action


def first_table():
    """The table that the file with raw features was learned from."""
    log = first_log()
    age, city = 40 + 10 * log.contexts[:, 0], np.array(["Oslo", "Bergen", None, "Oslo"])[np.arange(800) % 4]
    names = np.array(log.action_names)[log.actions]
    return pl.DataFrame({"item": names, "click": log.rewards, "p": log.propensities, "age": age, "city": city})


def test_a_model_with_raw_features_encodes_and_decides_as_it_did():
    model, table = sc.load(FILES / "schema-4-features.seachange"), first_table()
    assert model.features.context_names == ("age", "city=Oslo", "city=Bergen", "city=other", "city missing")
    log = sc.BanditLog.from_frame(table, features=model.features)
    assert model.provenance.fingerprint == log.fingerprint()
    np.testing.assert_array_equal(model.oracle.predict(log).states, model.labels.states)
    deployer = model.deployer()
    decision = model.decide(deployer, deployer.init(), {"age": 52.0, "city": "Oslo"}, 0.4)
    assert (model.action_name(decision), round(decision.propensity, 6)) == ("lamps", 0.749984)
