"""Models to save, and files to spoil."""

import dataclasses
import io
import json
import zipfile

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ModelFileError, SeachangeError

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


def two_worlds(kind="none", n=N, seed=0, start=0):
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
        times=np.datetime64("2026-01-01") + start + np.arange(n),
        action_names=["boots", "coats", "lamps"],
        **more,
    )


def learned(kind="none", oracle="hmm", objective="dr"):
    log = two_worlds(kind)
    if oracle == "hmm of clicks":
        log = log.with_rewards((log.rewards > 0.5).astype(float))
    return sc.learn(log, oracle=ORACLES[oracle](), objective=objective)


def write_zip(path, content):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def content_of(path):
    """The files in the zip, by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


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


def load_failing(path):
    with pytest.raises(ModelFileError) as caught:
        sc.load(path)
    assert isinstance(caught.value, SeachangeError)
    assert isinstance(caught.value, ValueError)
    assert str(path) in str(caught.value)
    return str(caught.value)


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
    assert_same_records(one.single, other.single)
    assert one.trial == other.trial
    assert (one.world is None) == (other.world is None)
    if one.world is not None:
        assert_same_records(one.world, other.world)
    if isinstance(one.oracle, sc.HMMOracle):
        assert_same_records(one.oracle.model_, other.oracle.model_)
        assert hasattr(one.oracle, "report_") == hasattr(other.oracle, "report_")
        if hasattr(one.oracle, "report_"):
            assert_same_records(one.oracle.report_, other.oracle.report_)
    if isinstance(one.oracle, sc.ChangePointOracle):
        assert_same_records(one.oracle.segmentation_, other.oracle.segmentation_)
