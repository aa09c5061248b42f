"""The model file: what goes in comes out to the bit, it stays small, and nothing in it is ever executed."""

import dataclasses
import io
import json
import pickle
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

import seachange as sc
from seachange.errors import ModelFileError, ParameterError, SeachangeError

N, K = 800, 3
TRUTH = np.repeat([0, 1, 0, 1], N // 4)
ORACLES = {
    "hmm": lambda: sc.HMMOracle(n_states=2, restarts=1, max_iterations=30, rewards="gaussian"),
    "hmm of clicks": lambda: sc.HMMOracle(n_states=2, restarts=1, max_iterations=30, rewards="bernoulli"),
    "change-point": lambda: sc.ChangePointOracle(n_states=2),
    "reward": lambda: sc.ChangePointOracle(statistic="reward", n_states=2, window=50, threshold=0.25),
    "none": sc.SingleState,
    "known": lambda: sc.KnownStates(TRUTH),
}
KINDS = ("none", "shared", "per action")


def two_worlds(kind="none", n=N, seed=0):
    """A log of two worlds in turn, which differ in which action is best and in what all of them earn."""
    rng = np.random.default_rng(seed)
    states = np.repeat([0, 1, 0, 1], n // 4)
    means = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.5]])[states]
    actions = rng.integers(0, K, n)
    more = {}
    if kind == "shared":
        more["contexts"] = rng.normal(size=(n, 2))
    if kind == "per action":
        more["action_features"] = np.concatenate([np.tile(np.eye(K), (n, 1, 1)), rng.normal(size=(n, K, 1))], axis=2)
    return sc.BanditLog.from_arrays(
        actions,
        means[np.arange(n), actions] + rng.normal(0, 0.1, n),
        np.full(n, 1 / K),
        times=np.datetime64("2026-01-01") + np.arange(n),
        action_names=["boots", "coats", "lamps"],
        **more,
    )


def learned(kind="none", oracle="hmm", objective="dr"):
    log = two_worlds(kind)
    if oracle == "hmm of clicks":
        log = log.with_rewards((log.rewards > 0.5).astype(float))
    return sc.learn(log, oracle=ORACLES[oracle](), objective=objective)


@pytest.fixture(scope="module")
def model():
    return learned()


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    """The files in the zip of an HMM's model, by name."""
    path = tmp_path_factory.mktemp("model") / "good.seachange"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def npy(array, allow_pickle=False):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=allow_pickle)
    return buffer.getvalue()


def with_manifest(content, *path, value):
    """The content with one entry of the manifest changed, or left out where ``value`` is KeyError."""
    manifest = json.loads(content["manifest.json"])
    inner = manifest
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return content | {"manifest.json": json.dumps(manifest).encode()}


def assert_same_bits(one, other):
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def assert_same_records(one, other):
    """Records with equal fields; arrays, which have no truth, to the bit."""
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            assert_same_bits(left, right)
        else:
            assert left == right, field.name


def assert_same_models(one, other):
    assert len(one.policies) == len(other.policies)
    assert one.policies.expected_stay == other.policies.expected_stay
    for left, right in zip(one.policies, other.policies, strict=True):
        assert_same_records(left, right)
    assert_same_bits(one.labels.states, other.labels.states)
    assert_same_bits(one.labels.change_points, other.labels.change_points)
    assert (one.labels.n_states, one.labels.n_chains) == (other.labels.n_states, other.labels.n_chains)
    assert one.provenance == other.provenance
    for left, right in ((one.oracle, other.oracle), (one.learner, other.learner)):
        assert type(left) is type(right)
        assert list(left.get_params()) == list(right.get_params())
        for name, value in left.get_params().items():
            if name != "states":
                assert right.get_params()[name] == value, name
    if isinstance(one.oracle, sc.HMMOracle):
        assert_same_records(one.oracle.model_, other.oracle.model_)
        assert_same_records(one.oracle.report_, other.oracle.report_)
    if isinstance(one.oracle, sc.ChangePointOracle):
        assert_same_records(one.oracle.segmentation_, other.oracle.segmentation_)


@pytest.mark.parametrize("objective", ["ips", "dr", "poem"])
@pytest.mark.parametrize("oracle", ORACLES)
def test_a_loaded_model_is_the_saved_one(tmp_path, oracle, objective):
    model = learned(oracle=oracle, objective=objective)
    model.save(tmp_path / "shop.seachange")
    loaded = sc.load(tmp_path / "shop.seachange")
    assert_same_models(loaded, model)
    assert loaded.n_states == (1 if oracle == "none" else 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("oracle", ["hmm", "change-point", "reward"])
def test_a_loaded_model_sees_the_same_states_in_another_log(tmp_path, kind, oracle):
    model, later = learned(kind, oracle), two_worlds(kind, seed=1)
    model.save(tmp_path / "shop.seachange")
    loaded = sc.load(str(tmp_path / "shop.seachange"))
    assert_same_models(loaded, model)
    assert_same_bits(loaded.oracle.predict(later).states, model.oracle.predict(later).states)
    assert_same_bits(loaded.label_ahead(later).states, model.label_ahead(later).states)
    contexts = later.contexts
    assert_same_bits(loaded.policies.advice(contexts), model.policies.advice(contexts))


@pytest.mark.parametrize("oracle", ORACLES)
def test_a_loaded_model_decides_like_the_saved_one_to_the_bit(tmp_path, oracle):
    model = learned("shared", oracle)
    model.save(tmp_path / "shop.seachange")
    rng = np.random.default_rng(5)
    contexts, uniforms, rewards = rng.normal(size=(60, 2)), rng.random(60), rng.random(60)
    runs = []
    for deployer in (model.deployer(), sc.load(tmp_path / "shop.seachange").deployer()):
        state, decisions = deployer.init(), []
        for context, uniform, reward in zip(contexts, uniforms, rewards, strict=True):
            decision = deployer.act(state, context, uniform)
            decisions.append((decision.action, decision.propensity, *decision.probs))
            state = deployer.update(state, decision, reward)
        runs.append(np.array([*decisions]))
        assert len(deployer.state_probs(state)) == model.n_states
    assert_same_bits(*runs)


def test_known_states_come_back_round_by_round(tmp_path):
    states = np.random.default_rng(3).integers(0, 3, N)
    model = sc.learn(two_worlds(), oracle=sc.KnownStates(states), objective="ips")
    model.save(tmp_path / "known.seachange")
    loaded = sc.load(tmp_path / "known.seachange")
    np.testing.assert_array_equal(loaded.oracle.predict(two_worlds()).states, states)
    assert_same_models(loaded, model)


def test_a_model_of_many_sequences_comes_back(tmp_path):
    log = two_worlds()
    chains = np.repeat(np.arange(8), N // 8)
    log = sc.BanditLog.from_arrays(log.actions, log.rewards, log.propensities, sequences=chains)
    model = sc.learn(log, oracle=sc.KnownStates(TRUTH))
    model.save(tmp_path / "chains.seachange")
    loaded = sc.load(tmp_path / "chains.seachange")
    assert loaded.labels.n_chains == 8
    assert_same_models(loaded, model)


def test_a_loaded_model_saves_the_same_file_again(tmp_path, model):
    model.save(tmp_path / "one.seachange")
    sc.load(tmp_path / "one.seachange").save(tmp_path / "two.seachange")
    one, two = (zipfile.ZipFile(tmp_path / f"{name}.seachange") for name in ("one", "two"))
    with one, two:
        assert one.namelist() == two.namelist()
        assert all(one.read(name) == two.read(name) for name in one.namelist())


@pytest.mark.parametrize(
    "learner", [sc.IPSLearner(clip=np.inf), sc.DRLearner(clip=float("inf")), sc.IPSLearner(l2=1e-300, temperature=0.1)]
)
def test_settings_come_back_whatever_their_value(tmp_path, learner):
    sc.learn(two_worlds(), oracle="none", objective=learner).save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").learner.get_params() == learner.get_params()


def test_a_pair_among_the_settings_comes_back_as_a_pair(tmp_path):
    oracle = sc.ChangePointOracle(statistic="reward", n_states=2, window=50, threshold=0.25, reward_range=(-1.0, 2.0))
    sc.learn(two_worlds(), oracle=oracle, objective="ips").save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").oracle.get_params() == oracle.get_params()


def test_settings_may_be_numbers_of_numpy(tmp_path):
    learner = sc.DRLearner(clip=np.float64(20), max_iterations=np.int64(50), ridge=np.float32(1))
    sc.learn(two_worlds(), oracle="none", objective=learner).save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").learner.get_params() == learner.get_params()


def test_the_zip_holds_a_manifest_and_plain_arrays_only(content):
    assert "manifest.json" in content
    assert {Path(name).suffix for name in content} == {".json", ".npy"}
    for name, data in content.items():
        if name.endswith(".npy"):
            array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            assert array.dtype.kind in "if"
            assert len(array) < N


def test_the_manifest_says_how_and_from_what_the_model_was_learned(content):
    manifest, log = json.loads(content["manifest.json"]), two_worlds()
    assert isinstance(manifest["schema"], int)
    assert {"python", "seachange", "numpy"} <= set(manifest["versions"])
    assert manifest["oracle"]["params"] == ORACLES["hmm"]().get_params()
    assert manifest["learner"]["params"] == sc.DRLearner().get_params()
    provenance = manifest["provenance"]
    assert provenance["fingerprint"] == log.fingerprint()
    assert provenance["n_rounds"] == N
    assert provenance["action_names"] == ["boots", "coats", "lamps"]
    assert provenance["time_range"] == [str(log.times[0]), str(log.times[-1])]


def test_the_time_range_is_that_of_all_sequences():
    log = sc.BanditLog.from_arrays(
        [0, 1, 0, 1], [0, 1, 1, 0], [0.5] * 4, times=[5.0, 9.0, 1.0, 2.0], sequences=[0, 0, 1, 1]
    )
    assert sc.learn(log, oracle="none").provenance.time_range == ("1.0", "9.0")


@pytest.mark.parametrize("oracle", ["known", "none"])
def test_the_file_does_not_grow_with_the_log(tmp_path, oracle):
    sizes = []
    for n in (2_000, 20_000):
        finder = sc.KnownStates(np.repeat([0, 1, 0, 1], n // 4)) if oracle == "known" else sc.SingleState()
        sc.learn(two_worlds(n=n), oracle=finder, objective="ips").save(tmp_path / "shop.seachange")
        sizes.append((tmp_path / "shop.seachange").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 100


def load_failing(path):
    with pytest.raises(ModelFileError) as caught:
        sc.load(path)
    assert isinstance(caught.value, SeachangeError)
    assert isinstance(caught.value, ValueError)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "there is no such file" in load_failing(tmp_path / "nothing.seachange")
    load_failing(tmp_path)


@pytest.mark.parametrize("garbage", [b"", b"hello", bytes(range(256)) * 9, b"PK\x03\x04" + b"\0" * 60])
def test_garbage_is_not_a_model_file(tmp_path, garbage):
    (tmp_path / "bad.seachange").write_bytes(garbage)
    assert "is not a whole model file" in load_failing(tmp_path / "bad.seachange")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_not_a_model_file(tmp_path, model, share):
    path = tmp_path / "cut.seachange"
    model.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "is not a whole model file" in load_failing(path)


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
    assert f"its schema is {schema + 1} and this Seachange knows {schema}; upgrade" in message


def test_a_newer_schema_asks_for_an_upgrade_whatever_else_is_new(tmp_path, content):
    schema = json.loads(content["manifest.json"])["schema"]
    newer = {"manifest.json": json.dumps({"schema": schema + 1, "body": []}).encode(), "weights.npz": b""}
    assert "upgrade" in load_failing(write_zip(tmp_path / "new.seachange", newer))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema"], KeyError, "schema"),
        (["schema"], "one", "schema"),
        (["provenance"], KeyError, "provenance"),
        (["provenance", "joint", "kind"], "strange", "strange"),
        (["provenance", "joint", "n_actions"], 5, "shape"),
        (["provenance", "action_names"], ["boots"], "action_names"),
        (["provenance", "n_rounds"], 5, ""),
        (["provenance", "n_rounds"], -1, ""),
        (["provenance", "n_rounds"], 10**17, ""),
        (["n_states"], 3, "shape"),
        (["n_states"], 0, ""),
        (["oracle", "kind"], "os.system", "os.system"),
        (["oracle", "params", "colour"], "red", "colour"),
        (["oracle", "learned", "rewards"], KeyError, "rewards"),
        (["oracle", "learned", "rewards"], "much", "much"),
        (["learner", "kind"], "os.system", "os.system"),
        (["learner", "params", "colour"], "red", "colour"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path, content, path, value, message):
    bad = with_manifest(content, *path, value=value)
    assert message in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize("manifest", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"schema": 1}'])
def test_a_manifest_that_is_no_manifest_is_refused(tmp_path, content, manifest):
    load_failing(write_zip(tmp_path / "bad.seachange", content | {"manifest.json": manifest}))


def test_a_zip_without_a_manifest_is_refused(tmp_path, content):
    del (bad := dict(content))["manifest.json"]
    assert "manifest.json" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


ARRAYS = (
    "policies", "segment_starts", "segment_states", "change_points", "hmm_initial_probs", "hmm_transition_matrix",
    "hmm_reward_coefs", "hmm_reward_precisions", "hmm_noise_variances",
)  # fmt: skip


def test_a_file_from_before_there_were_p_values_still_loads(tmp_path):
    model = learned(oracle="reward")
    model.save(tmp_path / "new.seachange")
    with zipfile.ZipFile(tmp_path / "new.seachange") as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(content["manifest.json"])
    manifest["oracle"]["learned"] = {"window": 50, "threshold": 0.25}
    first = ("cut_change_points", "cut_segment_values", "cut_segment_states", "cut_state_values")
    old = {name: data for name, data in content.items() if not name.startswith("cut_") or name[:-4] in first}
    old["manifest.json"] = json.dumps(manifest).encode()
    loaded = sc.load(write_zip(tmp_path / "old.seachange", old))
    np.testing.assert_array_equal(loaded.oracle.predict(two_worlds()).states, model.labels.states)


@pytest.mark.parametrize("name", ["segment_states", "state_coefs", "p_values", "noise_variances", "state_rounds"])
def test_a_segmentation_whose_parts_do_not_fit_is_refused(tmp_path, name):
    learned(oracle="change-point").save(tmp_path / "good.seachange")
    with zipfile.ZipFile(tmp_path / "good.seachange") as archive:
        content = {each: archive.read(each) for each in archive.namelist()}
    array = np.lib.format.read_array(io.BytesIO(content[f"cut_{name}.npy"]), allow_pickle=False)
    longer = npy(np.concatenate([array, array[-1:]]))
    assert f"cut_{name}" in load_failing(write_zip(tmp_path / "bad.seachange", content | {f"cut_{name}.npy": longer}))


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


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "change_points"])
def test_an_array_of_another_length_is_refused(tmp_path, content, name):
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    longer = npy(np.concatenate([array, array[-1:]]))
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": longer}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("segment_states", 2), ("segment_states", -1), ("segment_starts", 1), ("change_points", N), ("change_points", -1)],
)
def test_a_number_out_of_range_is_refused(tmp_path, content, name, value):
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    array[0] = value
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": npy(array)}))


@pytest.mark.parametrize("name", ["policies", "hmm_initial_probs", "hmm_transition_matrix", "hmm_reward_coefs"])
def test_a_model_with_nan_in_it_is_refused(tmp_path, content, name):
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    array.flat[0] = np.nan
    load_failing(write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": npy(array)}))


def test_an_hmm_must_have_as_many_states_as_there_are_policies(tmp_path, content):
    three = {
        "hmm_initial_probs.npy": npy(np.ones(3) / 3),
        "hmm_transition_matrix.npy": npy(np.ones((3, 3)) / 3),
        "hmm_reward_coefs.npy": npy(np.zeros((3, K, 1))),
        "hmm_reward_precisions.npy": npy(np.ones((3, K, 1, 1))),
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


@pytest.mark.parametrize("name", ["policies.npy", "segment_states.npy", "hmm_reward_coefs.npy", "more.npy"])
@pytest.mark.parametrize("shape", ["plain", "record"])
def test_a_pickled_array_is_refused_and_not_unpickled(tmp_path, content, trace, name, shape):
    bomb = np.array([Bomb(trace)], dtype=object)
    if shape == "record":
        bomb = np.array([(1.0, Bomb(trace))], dtype=[("value", float), ("thing", object)])
    bad = write_zip(tmp_path / "bomb.seachange", content | {name: npy(bomb, allow_pickle=True)})
    assert name in load_failing(bad)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["manifest.json", "policies.npy", "model.pkl"])
def test_a_pickle_in_the_zip_is_refused_and_not_unpickled(tmp_path, content, trace, name):
    load_failing(write_zip(tmp_path / "bomb.seachange", content | {name: pickle.dumps(Bomb(trace))}))
    assert not trace.exists()


def test_a_pickle_in_place_of_the_zip_is_refused_and_not_unpickled(tmp_path, trace):
    (tmp_path / "bomb.seachange").write_bytes(pickle.dumps(Bomb(trace)))
    load_failing(tmp_path / "bomb.seachange")
    assert not trace.exists()


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
        (_with_own_policy, ParameterError, "softmax policies"),
        (_with_objects_for_coefs, ValueError, "allow_pickle"),  # fails when half of the file is written
    ],
    ids=["oracle", "kind of oracle", "kind of learner", "policy", "half-way"],
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
