"""Saving writes all of a model or nothing."""

import dataclasses

import msgspec
import numpy as np
import pytest

import seachange as sc
from model.worlds import (
    K,
    assert_same_models,
    learned,
)
from seachange.errors import ParameterError, SeachangeError


class OwnOracle:
    """An oracle that a model file does not know."""

    def fit(self, log):
        return self

    def predict(self, log):
        return sc.SingleState().predict(log)


class OwnHMM(sc.HMMOracle):
    """An HMM oracle that a model file does not know."""


class OwnLearner(sc.IPSLearner):
    """A learner that a model file does not know."""


class Uniform:
    """A policy that a model file does not know."""

    def predict_proba(self, contexts, action_mask=None):
        return np.full((len(contexts), K), 1 / K)


def _with_own_hmm(model):
    oracle = OwnHMM(**model.oracle.get_params())
    oracle.model_, oracle.report_ = model.oracle.model_, model.oracle.report_
    return dataclasses.replace(model, oracle=oracle)


def _with_own_policy(model):
    return dataclasses.replace(model, policies=sc.PolicySet((Uniform(), Uniform()), 100.0))


def _with_objects_for_coefs(model):
    first = model.policies[0]
    objects = dataclasses.replace(first, coefs=np.full(first.coefs.shape, None))
    return dataclasses.replace(model, policies=sc.PolicySet((objects, objects), 100.0))


@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (lambda m: dataclasses.replace(m, oracle=OwnOracle()), ParameterError, "not OwnOracle"),
        (_with_own_hmm, ParameterError, "not OwnHMM"),
        (lambda m: dataclasses.replace(m, learner=OwnLearner()), ParameterError, "not OwnLearner"),
        (_with_own_policy, ParameterError, "not Uniform"),
        (_with_objects_for_coefs, ValueError, "arrays of numbers, not of object"),
    ],
    ids=["oracle", "kind of oracle", "kind of learner", "policy", "array"],
)
def test_a_save_that_fails_leaves_things_as_they_were(tmp_path, model, broken, error, message):
    model.save(tmp_path / "old.seachange")
    before = (tmp_path / "old.seachange").read_bytes()
    for name in ("old.seachange", "new.seachange"):
        with pytest.raises(error, match=message):
            broken(model).save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["old.seachange"]
    assert (tmp_path / "old.seachange").read_bytes() == before


def test_saving_over_a_model_replaces_it(tmp_path, model):
    path = tmp_path / "shop.seachange"
    learned(oracle="none").save(path)
    model.save(path)
    assert_same_models(sc.load(path), model)
    assert [entry.name for entry in tmp_path.iterdir()] == ["shop.seachange"]


def test_saving_into_no_folder_is_an_error_of_ours(tmp_path, model):
    with pytest.raises(SeachangeError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "shop.seachange")


def test_the_manifest_is_json_for_people(content):
    manifest = content["manifest.json"].decode()
    assert manifest == msgspec.json.format(manifest, indent=2)
