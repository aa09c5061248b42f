"""Files that are no model files, or were tampered with, are refused, and nothing in them is ever executed."""

import io
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import seachange as sc
from model.worlds import K, N, assert_same_models, content_of, learned, load_failing, npy, with_manifest, write_zip
from seachange.errors import ModelFileError
from seachange.model_file import Trial
from seachange.states.switching_regression import SAVED_ARRAYS


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "there is no such file" in load_failing(tmp_path / "nothing.seachange")
    load_failing(tmp_path)


@pytest.mark.parametrize("garbage", [b"", b"hello", bytes(range(256)) * 9, b"PK\x03\x04" + b"\0" * 60])
def test_garbage_is_not_a_model_file(tmp_path, garbage):
    (tmp_path / "bad.seachange").write_bytes(garbage)
    assert "it is not a complete model file" in load_failing(tmp_path / "bad.seachange")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_not_a_model_file(tmp_path, model, share):
    path = tmp_path / "cut.seachange"
    model.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "it is not a complete model file" in load_failing(path)


def test_a_flipped_byte_is_an_error_of_ours_or_no_harm(tmp_path, model):
    path = tmp_path / "flipped.seachange"
    model.save(path)
    whole = path.read_bytes()
    failures = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            loaded = sc.load(path)
        except ModelFileError:
            failures += 1
        else:
            assert_same_models(loaded, model)
    assert failures > len(whole) / 7 / 2


def test_a_newer_schema_asks_for_an_upgrade(tmp_path, content):
    schema = json.loads(content["manifest.json"])["schema"]
    newer = with_manifest(content, "schema", value=schema + 1)
    message = load_failing(write_zip(tmp_path / "new.seachange", newer))
    assert f"its schema is {schema + 1} and this Seachange reads {schema}; upgrade" in message


def test_a_newer_schema_asks_for_an_upgrade_whatever_else_is_new(tmp_path, content):
    schema = json.loads(content["manifest.json"])["schema"]
    newer = {"manifest.json": json.dumps({"schema": schema + 1, "body": []}).encode(), "weights.npz": b""}
    assert "upgrade" in load_failing(write_zip(tmp_path / "new.seachange", newer))


def _part(n_rounds, **changes):
    """A log that a model's log was joined from."""
    return {"fingerprint": "f", "n_rounds": n_rounds, "time_range": None, "remembered": []} | changes


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema"], KeyError, "schema"),
        (["schema"], "one", "schema"),
        (["provenance"], KeyError, "provenance"),
        (["provenance", "joint", "kind"], "strange", "strange"),
        (["provenance", "joint", "n_actions"], 5, "action_names"),
        (["provenance", "action_names"], ["boots"], "action_names"),
        (["provenance", "n_rounds"], 5, ""),
        (["provenance", "n_rounds"], -1, ""),
        (["provenance", "n_rounds"], 10**17, ""),
        (["policies"], [{"kind": "softmax"}] * 3, "policy2"),
        (["policies"], [], "states"),
        (["policies", 0, "kind"], "os.system", "os.system"),
        (["n_chains"], 0, "n_chains"),
        (["n_chains"], N + 1, "n_chains"),
        (["expected_stay"], 0.5, "expected_stay"),
        (["expected_stay"], 1e300, "expected_stay"),
        (["colour"], "red", "colour"),
        (["provenance", "mean_reward"], 5.0, "mean_reward"),
        (["provenance", "reward_range"], [1.0, 0.0], "reward_range"),
        (["provenance", "reward_range"], [-1e308, 1e308], "reward_range"),
        (["provenance", "time_range"], ["yesterday", "today"], "time_range"),
        (["provenance", "time_range"], ["nan", "nan"], "time_range"),
        (["provenance", "remembered"], [-1], "remembered"),
        (["provenance", "remembered"], [1 << 64], "remembered"),
        (["provenance", "parts"], [_part(5)], "the logs that were joined must have all rounds"),
        (["provenance", "parts"], [_part(-1), _part(N + 1)], "the logs that were joined must have all rounds"),
        (["provenance", "parts"], [_part(N, remembered=[-1])], "remembered"),
        (["provenance", "parts"], [_part(N, time_range=["yesterday", "today"])], "time_range"),
        (["provenance", "joint", "n_features"], -1, ""),
        (["provenance", "joint", "n_actions"], 10**30, ""),
        (["oracle", "kind"], "os.system", "os.system"),
        (["oracle", "params", "colour"], "red", "colour"),
        (["oracle", "params", "n_states"], "many", "many"),
        (["oracle", "params", "restarts"], [4], "restarts"),
        (["oracle", "learned", "rewards"], KeyError, "rewards"),
        (["oracle", "learned", "rewards"], "much", "much"),
        (["learner", "kind"], "os.system", "os.system"),
        (["learner", "params", "colour"], "red", "colour"),
        (["single"], KeyError, "single"),
        (["single", "kind"], "os.system", "os.system"),
        (["world"], "gaussian", "its own world if it has no HMM"),
        (["world"], "much", "world"),
        (["trial"], {"n_states": 2}, "trial"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, content, path, value, message):
    bad = with_manifest(content, *path, value=value)
    assert message in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": 1}'])
def test_a_manifest_that_is_not_a_manifest_is_refused(tmp_path, content, manifest):
    load_failing(write_zip(tmp_path / "bad.seachange", content | {"manifest.json": manifest}))


def test_a_zip_without_a_manifest_is_refused(tmp_path, content):
    del (bad := dict(content))["manifest.json"]
    assert "manifest.json" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


ARRAYS = (
    "policy0.coefs", "policy1.coefs", "labels.starts", "labels.states", "labels.change_points", "oracle.initial_probs",
    "oracle.transition_matrix", "oracle.reward_coefs", "oracle.reward_precisions", "oracle.noise_variances",
    "single.coefs", "evidence.grams", "evidence.means", "evidence.scales",
)  # fmt: skip


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """The files in the zip of a model of change points, which has its own world and a trial, by name."""
    path = tmp_path_factory.mktemp("model") / "good.seachange"
    model = learned(oracle="change-point")
    values = (0.8, 0.7, 0.9), (0.5, 0.4, 0.6), (0.4, 0.3, 0.5), (0.3, 0.2, 0.4), 0.25
    replace(model, trial=Trial(2, 480, N - 480, 0.95, *values)).save(path)
    assert sc.load(path).trial.n_learned == 480
    return content_of(path)


@pytest.mark.parametrize("name", ["segment_states", "state_coefs", "p_values", "noise_variances", "state_rounds"])
def test_a_segmentation_whose_parts_do_not_fit_is_refused(tmp_path, tried, name):
    array = np.lib.format.read_array(io.BytesIO(tried[f"oracle.{name}.npy"]), allow_pickle=False)
    longer = npy(np.concatenate([array, array[-1:]]))
    bad = write_zip(tmp_path / "bad.seachange", tried | {f"oracle.{name}.npy": longer})
    assert f"oracle.{name}" in load_failing(bad)


@pytest.mark.parametrize("spoil", ["missing", "longer", "one axis more", "text", "nan", "huge"])
@pytest.mark.parametrize("name", SAVED_ARRAYS)
def test_a_spoilt_world_is_refused(tmp_path, tried, name, spoil):
    entry = f"world.{name}.npy"
    array = np.lib.format.read_array(io.BytesIO(tried[entry]), allow_pickle=False)
    bad = dict(tried)
    del bad[entry]
    if spoil != "missing":
        bad[entry] = npy(
            {
                "longer": np.concatenate([array, array[-1:]]),
                "one axis more": array[None],
                "text": array.astype(str),
                "nan": np.full_like(array, np.nan),
                "huge": np.full_like(array, 1e300),
            }[spoil]
        )
    assert f"world.{name}" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("noise_variances", [-1.0, 1.0]), ("noise_variances", [0.0, 1.0]), ("initial_probs", [0.5, 0.6]),
        ("transition_matrix", [[0.5, 0.5], [0.5, 0.4]]), ("transition_matrix", [[2.0, -1.0], [0.5, 0.5]]),
        ("reward_precisions", np.full((2, K, 1, 1), -1.0)),
    ],
)  # fmt: skip
def test_a_world_that_is_not_a_model_is_refused(tmp_path, tried, name, values):
    bad = tried | {f"world.{name}.npy": npy(np.array(values))}
    assert f"world.{name}" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize("off_diagonal", [2.0, -2.0, 1e200])
def test_precisions_of_a_world_must_be_those_of_something(tmp_path, off_diagonal):
    """|P_ij| ≤ √(P_ii P_jj) for any precision P."""
    learned("shared", "change-point").save(tmp_path / "good.seachange")
    good = content_of(tmp_path / "good.seachange")
    array = np.lib.format.read_array(io.BytesIO(good["world.reward_precisions.npy"]), allow_pickle=False)
    array[0, 0], array[0, 0, 0, 1], array[0, 0, 1, 0] = np.eye(3), off_diagonal, off_diagonal
    bad = write_zip(tmp_path / "bad.seachange", good | {"world.reward_precisions.npy": npy(array)})
    assert "world.reward_precisions" in load_failing(bad)


def test_several_states_without_an_hmm_must_have_a_world(tmp_path, tried):
    bad = {name: data for name, data in tried.items() if not name.startswith("world.")}
    bad = with_manifest(bad, "world", value=None)
    assert "its own world if it has no HMM" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


def test_the_rewards_of_a_world_must_fit_its_arrays(tmp_path, tried):
    bad = with_manifest(tried, "world", value="bernoulli")
    assert "world.noise_variances" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["n_states"], 1), (["n_states"], 3), (["n_states"], -2), (["n_learned"], 0), (["n_learned"], 481),
        (["n_learned"], N), (["n_learned"], 10**30), (["n_evaluated"], 0), (["n_evaluated"], -480),
        (["confidence"], 0.0), (["confidence"], 1.0), (["confidence"], 95.0), (["confidence"], None),
        (["switching"], [0.8, 0.9, 0.9]), (["switching"], [0.8, 0.7, 0.75]), (["single"], [0.8, 0.9, 0.7]),
        (["logging"], [1e200, 0.0, 1e200]), (["gain"], [0.0, -1e300, 0.0]), (["gain"], [0.3, 0.2]),
        (["gain", 0], None), (["gain", 0], "much"), (["gain"], KeyError), (["expected_gain"], 1e300),
    ],
)  # fmt: skip
def test_a_trial_that_cannot_have_been_is_refused(tmp_path, tried, path, value):
    bad = with_manifest(tried, "trial", *path, value=value)
    assert "trial" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


def test_the_arrays_of_an_hmm_model_are_those_that_are_spoilt_below(content):
    assert {f"{name}.npy" for name in ARRAYS} == set(content) - {"manifest.json"}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_missing_array_is_named(tmp_path, content, name):
    del (bad := dict(content))[f"{name}.npy"]
    assert name in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("spoil", ["one axis more", "text", "cut", "noise", "empty"])
def test_a_spoilt_array_is_refused(tmp_path, content, name, spoil):
    data = content[f"{name}.npy"]
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    spoilt = {
        "one axis more": npy(array[None]),
        "text": npy(array.astype(str)),
        "cut": data[:-3],
        "noise": b"noise",
        "empty": b"",
    }[spoil]
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": spoilt}))


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "labels.change_points"])
def test_an_array_of_another_length_is_refused(tmp_path, content, name):
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    longer = npy(np.concatenate([array, array[-1:]]))
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": longer}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("labels.states", 2),
        ("labels.states", -1),
        ("labels.starts", 1),
        ("labels.starts", N),
        ("labels.change_points", N),
        ("labels.change_points", -1),
        ("labels.change_points", 0),
    ],
)
def test_a_number_out_of_range_is_refused(tmp_path, content, name, value):
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    array[0] = value
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": npy(array)}))


@pytest.mark.parametrize("name", [name for name in ARRAYS if not name.startswith("labels")])
def test_a_model_with_nan_in_it_is_refused(tmp_path, content, name):
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    array.flat[0] = np.nan
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": npy(array)}))


def test_an_hmm_must_have_as_many_states_as_there_are_policies(tmp_path, content):
    three = {
        "oracle.initial_probs.npy": npy(np.ones(3) / 3),
        "oracle.transition_matrix.npy": npy(np.ones((3, 3)) / 3),
        "oracle.reward_coefs.npy": npy(np.zeros((3, K, 1))),
        "oracle.reward_precisions.npy": npy(np.ones((3, K, 1, 1))),
    }
    load_failing(write_zip(tmp_path / "bad.seachange", content | three))


@pytest.mark.parametrize("name", ["run.py", "model.pkl", "policies.npz", "arrays/", "manifest.json.bak"])
def test_a_file_of_another_kind_in_the_zip_is_refused(tmp_path, content, name):
    bad = write_zip(tmp_path / "bad.seachange", content | {name: b"print('hello')"})
    assert repr(name) in load_failing(bad)


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.fixture
def trace(tmp_path):
    """Where the bomb leaves its trace; the bomb works, or its silence would prove nothing."""
    path = tmp_path / "trace"
    pickle.loads(pickle.dumps(Bomb(path)))
    assert path.exists()
    path.unlink()
    return path


@pytest.mark.parametrize("name", ["policy0.coefs.npy", "labels.states.npy", "oracle.reward_coefs.npy", "more.npy"])
@pytest.mark.parametrize("shape", ["plain", "record"])
def test_a_pickled_array_is_refused_and_not_unpickled(tmp_path, content, trace, name, shape):
    bomb = np.array([Bomb(trace)], dtype=object)
    if shape == "record":
        bomb = np.array([(1.0, Bomb(trace))], dtype=[("value", float), ("thing", object)])
    bad = write_zip(tmp_path / "bomb.seachange", content | {name: npy(bomb, allow_pickle=True)})
    assert name in load_failing(bad)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["manifest.json", "policy0.coefs.npy", "model.pkl"])
def test_a_pickle_in_the_zip_is_refused_and_not_unpickled(tmp_path, content, trace, name):
    load_failing(write_zip(tmp_path / "bomb.seachange", content | {name: pickle.dumps(Bomb(trace))}))
    assert not trace.exists()


def test_a_pickle_in_place_of_the_zip_is_refused_and_not_unpickled(tmp_path, trace):
    (tmp_path / "bomb.seachange").write_bytes(pickle.dumps(Bomb(trace)))
    load_failing(tmp_path / "bomb.seachange")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        ({"type": "hashed", "column": "city", "buckets": 65536}, "features must make the contexts"),
        ({"type": "number", "column": "city", "mean": 1e308, "scale": 1.0}, "means and scales"),
        ({"type": "number", "column": "city", "mean": 0.0, "scale": 1e-308}, "means and scales"),
        ({"type": "flag", "column": "town"}, "features must make the contexts"),
    ],
)
def test_features_that_do_not_fit_are_refused(tmp_path, feature, message):
    frame = pl.DataFrame({"action": [0, 1] * 20, "reward": [0, 1, 1, 1] * 10, "propensity": 0.5, "city": range(40)})
    log = sc.BanditLog.from_frame(frame, {"contexts": "city"})
    sc.learn(log, oracle="none", objective="ips").save(tmp_path / "good.seachange")
    bad = with_manifest(content_of(tmp_path / "good.seachange"), "features", "shared", value=[feature])
    assert message in load_failing(write_zip(tmp_path / "bad.seachange", bad))
