"""Crafted model files cannot crash the process, hang it, or eat the machine's memory."""

import io
import json
import os
import resource
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import seachange as sc
from model.worlds import N, content_of, learned, load_failing, npy, two_worlds, with_manifest, write_zip
from seachange import model_file
from seachange.analysis.comparison import holdout_of

MEMORY, SECONDS = 2 << 30, 60
# Loads a file and uses the model. Prints how that ended and the peak memory in MB.
USE = """
import sys, warnings
import numpy as np
import seachange as sc
from model.worlds import two_worlds
from peak_memory import peak_megabytes
from seachange.analysis.states_summary import summarize_states
warnings.simplefilter("ignore")
ended, log = "worked", two_worlds()
try:
    model = sc.load(sys.argv[1])
    labels = model.label_ahead(log)
    sc.evaluate(log, model.policies, labels=labels)
    summarize_states(log, model.oracle, model.oracle.predict(log), fitted_here=False)
    model.labels.counts
    deployer = model.deployer()
    state = deployer.init()
    for t in range(5):
        decision = deployer.act(state, None, 0.2 * t)
        assert 0 < decision.propensity <= 1
        state = deployer.update(state, decision, 1.0)
except sc.SeachangeError as error:
    ended = type(error).__name__
print(ended, peak_megabytes())
"""
pytestmark = pytest.mark.skipif(os.name != "posix", reason="limits as POSIX has them")


def use_limited(path):
    """How loading and using a file ends in a process of 2 GB, and how many MB that took at most."""
    done = subprocess.run(
        [sys.executable, "-c", USE, str(path)], capture_output=True, text=True, timeout=SECONDS, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ended, peak = done.stdout.split()
    return ended, int(peak)


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    """The entries of a model of change points."""
    path = tmp_path_factory.mktemp("model") / "good.seachange"
    learned(oracle="change-point").save(path)
    return content_of(path)


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """The same, of the paper's detector."""
    path = tmp_path_factory.mktemp("model") / "good.seachange"
    learned(oracle="reward").save(path)
    return content_of(path)


@pytest.mark.parametrize("window", [-100_000, -1, 0, N + 1, 2**62])
@pytest.mark.parametrize("oracle", ["changing", "paper"])
def test_windows_out_of_range_are_refused(tmp_path, request, oracle, window):
    """A window of -100,000 crashed the process, one of 0 made it hang."""
    content = request.getfixturevalue(oracle) | {"oracle.windows.npy": npy(np.array([window]))}
    assert "oracle.windows" in load_failing(write_zip(tmp_path / "bad.seachange", content))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("change_points", 0), ("change_points", N), ("low", -1), ("high", N + 1), ("p_values", 1.5), ("p_values", -0.1),
        ("segment_starts", N), ("segment_states", 2), ("segment_states", -1), ("segment_values", np.nan),
        ("state_values", np.inf), ("state_coefs", 1e300), ("state_precisions", np.nan), ("state_rounds", -1.0),
        ("noise_variances", 0.0), ("noise_variances", -1.0), ("noise_variances", np.nan),
    ],
)  # fmt: skip
def test_a_segmentation_out_of_range_is_refused(tmp_path, changing, name, value):
    array = np.lib.format.read_array(io.BytesIO(changing[f"oracle.{name}.npy"]))
    array.flat[0] = value
    bad = changing | {f"oracle.{name}.npy": npy(array)}
    assert f"oracle.{name}" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("noise_variances", [-1.0, 1.0]), ("noise_variances", [0.0, 0.0]), ("noise_variances", [np.nan, 1.0]),
        ("initial_probs", [-5.0, 6.0]), ("initial_probs", [0.5, 0.6]), ("initial_probs", [0.0, 0.0]),
        ("transition_matrix", [[0.5, 0.5], [0.5, 0.4]]), ("transition_matrix", [[2.0, -1.0], [0.5, 0.5]]),
        ("reward_coefs", np.full((2, 3, 1), 1e300)), ("reward_precisions", np.full((2, 3, 1, 1), np.inf)),
    ],
)  # fmt: skip
def test_an_hmm_that_is_not_a_model_is_refused(tmp_path, content, name, values):
    bad = content | {f"oracle.{name}.npy": npy(np.array(values))}
    assert f"oracle.{name}" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


@pytest.mark.parametrize("entry", ["oracle.state_values", "oracle.state_coefs"])
def test_a_model_without_the_fit_of_a_state_is_refused(tmp_path, changing, entry):
    array = np.lib.format.read_array(io.BytesIO(changing[f"{entry}.npy"]))
    bad = changing | {f"{entry}.npy": npy(np.full(array.shape, np.nan))}
    assert "the fit of a state" in load_failing(write_zip(tmp_path / "bad.seachange", bad))


def test_a_table_without_rows_or_with_other_numbers_is_refused(tmp_path):
    path = tmp_path / "good.seachange"
    sc.learn(two_worlds(), oracle="none", objective=sc.TabularLearner()).save(path)
    good = content_of(path)
    for name, array in {
        "probs": np.zeros((0, 3)), "contexts": np.zeros((2, 0)), "masks": np.full((1, 3), 2, np.int8),
        "fallback": np.array([0.5, 0.5, 0.5]),
    }.items():  # fmt: skip
        bad = write_zip(tmp_path / "bad.seachange", good | {f"policy0.{name}.npy": npy(array)})
        assert f"policy0.{name}" in load_failing(bad)


def test_a_model_of_very_many_rounds_is_loaded_without_a_label_per_round(tmp_path, content):
    """100 million rounds took 763 MB."""
    huge = with_manifest(content, "provenance", "n_rounds", value=10**8)
    ended, peak = use_limited(write_zip(tmp_path / "long.seachange", huge))
    small, usual = use_limited(write_zip(tmp_path / "good.seachange", content))
    assert (ended, small) == ("worked", "worked")
    assert peak < usual + 100
    labels = sc.load(tmp_path / "long.seachange").labels
    assert labels.n_rounds == labels.counts.sum() == 10**8
    known = sc.KnownStates(labels)
    with pytest.raises(sc.SeachangeError, match="one entry"):
        known.predict(two_worlds())


@pytest.mark.parametrize(
    "feature",
    [
        {"type": "hashed", "column": "a" * 40_000, "buckets": 65_536},
        {"type": "category", "column": "a" * 20_000, "values": ["x"] * 65_535},
    ],
)
def test_names_longer_than_the_file_are_refused_before_they_are_made(tmp_path, feature):
    """A file of 5 kB took 2.7 GB."""
    path, n = tmp_path / "good.seachange", 65_536
    frame = pl.DataFrame(
        {"action": [0, 1] * 40, "reward": [0, 1] * 40, "propensity": [0.5] * 80, "x": [1.5, 2.5, 2.5, 1.5] * 20}
    )
    sc.learn(sc.BanditLog.from_frame(frame), oracle="none", objective="dm").save(path)
    bad = with_manifest(content_of(path), "features", "shared", value=[feature])
    bad = with_manifest(bad, "provenance", "context_names", value=[""] * n)
    bad = write_zip(tmp_path / "bad.seachange", with_manifest(bad, "provenance", "joint", "n_features", value=n))
    ended, peak = use_limited(bad)
    assert ended == "ModelFileError"
    assert peak < 400
    assert "features must make the contexts" in load_failing(bad)


def test_a_report_learns_no_longer_than_usual(tmp_path, content):
    """Ten million restarts kept it busy for hours."""
    bad = with_manifest(content, "oracle", "params", "restarts", value=10**7)
    bad = with_manifest(bad, "oracle", "params", "workers", value=10**6)
    model = sc.load(write_zip(tmp_path / "bad.seachange", bad))
    assert holdout_of(two_worlds(), model).kind == "held out"


def test_known_states_of_another_log_are_not_expanded(tmp_path):
    """2^28 rounds took 2.5 GB."""
    path = tmp_path / "good.seachange"
    learned(oracle="known").save(path)
    huge = with_manifest(content_of(path), "provenance", "n_rounds", value=2**40)
    model = sc.load(write_zip(tmp_path / "huge.seachange", huge))
    with pytest.raises(sc.SeachangeError, match="1,099,511,627,776 rounds"):
        holdout_of(two_worlds(), model)


def test_more_rounds_than_any_log_has_are_refused(tmp_path, content):
    huge = with_manifest(content, "provenance", "n_rounds", value=2**60)
    assert "n_rounds" in load_failing(write_zip(tmp_path / "long.seachange", huge))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path, content):
    """9 kB became 1.5 GB."""
    bomb = tmp_path / "bomb.seachange"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
        with archive.open("policy2.coefs.npy", "w", force_zip64=True) as entry:
            for _ in range(300):
                entry.write(bytes(1 << 20))
    assert bomb.stat().st_size < 2_000_000
    ended, peak = use_limited(bomb)
    assert ended == "ModelFileError"
    assert peak < 600
    assert "would unpack to more than" in load_failing(bomb)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_compress_without_bounds_are_refused(tmp_path, content, method):
    bad = tmp_path / "bad.seachange"
    with zipfile.ZipFile(bad, "w", method) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    assert "compressed by an unsupported method" in load_failing(bad)


@pytest.mark.parametrize("name", ["policy0.coefs.npy", "manifest.json"])
def test_an_entry_larger_than_the_model_needs_is_refused_before_it_is_unpacked(tmp_path, content, name):
    bad = tmp_path / "bad.seachange"
    with zipfile.ZipFile(bad, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in (content | {name: content[name] + b" " * (20 << 20)}).items():
            archive.writestr(each, data)
    assert "more than the" in load_failing(bad)


def test_an_entry_that_lies_about_its_size_is_refused(tmp_path, content):
    """The directory of the zip says what the model needs; the data go on."""
    path = tmp_path / "bad.seachange"
    with zipfile.ZipFile(path, "w") as archive:
        for name, each in content.items():
            if name != "policy0.coefs.npy":
                archive.writestr(name, each)
        entry = zipfile.ZipInfo("policy0.coefs.npy")
        entry.compress_type = zipfile.ZIP_DEFLATED
        with archive.open(entry, "w") as file:
            file.write(content["policy0.coefs.npy"] + bytes(50 << 20))
        entry.file_size = len(content["policy0.coefs.npy"])
    assert "policy0.coefs.npy is damaged" in load_failing(path)


def test_an_entry_that_occurs_twice_is_refused(tmp_path, content):
    path = write_zip(tmp_path / "bad.seachange", content)
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("policy0.coefs.npy", content["policy0.coefs.npy"])
    assert "occurs twice" in load_failing(path)


def test_an_array_that_the_manifest_does_not_mention_is_refused(tmp_path, content):
    bad = content | {"policy2.coefs.npy": content["policy0.coefs.npy"]}
    assert "'policy2.coefs.npy', which its manifest does not mention" in load_failing(write_zip(tmp_path / "bad", bad))


@pytest.mark.parametrize("key", ["versions", "oracle", "features", "more"])
@pytest.mark.parametrize("deep", [b"[" * 10**6, b"[" * 10**5 + b"]" * 10**5, b'{"a":' * 10**5])
def test_a_manifest_of_very_many_brackets_is_refused(tmp_path, content, key, deep):
    manifest = json.loads(content["manifest.json"])
    manifest[key] = "here"
    encoded = json.dumps(manifest).encode().replace(b'"here"', deep)
    load_failing(write_zip(tmp_path / "deep.seachange", content | {"manifest.json": encoded}))


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 1), }" + b"(" * 60_000,
        b"{'descr': '>f8', 'fortran_order': False, 'shape': (3, 1), }",
        b"{'descr': '<f8', 'fortran_order': True, 'shape': (3, 1), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-3, -1), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999, 1), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 1), }",
        b"{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 1), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (3, 1), }",
        b"{'descr': '<c16', 'fortran_order': False, 'shape': (3, 1), }",
        b"__import__('os')",
        b"'''",
        b"\xff\xfe",
        b"",
    ],
)
def test_an_odd_array_header_is_refused(tmp_path, content, header):
    padded = header.ljust(-(len(header) + 11) % 64 + len(header)) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + bytes(24)
    bad = write_zip(tmp_path / "bad.seachange", content | {"policy0.coefs.npy": array})
    assert "policy0.coefs" in load_failing(bad)


def test_arrays_are_written_as_numpy_writes_them(content):
    for name, data in content.items():
        if name.endswith(".npy"):
            assert data == npy(np.lib.format.read_array(io.BytesIO(data)))


def test_a_pipe_is_refused_at_once(tmp_path):
    """Opening it would wait for a writer."""
    os.mkfifo(tmp_path / "pipe")
    messages = []
    thread = threading.Thread(target=lambda: messages.append(load_failing(tmp_path / "pipe")), daemon=True)
    thread.start()
    thread.join(timeout=300)
    assert "not a regular file" in messages[0]


def test_a_large_model_is_stored_so_that_its_size_is_known(tmp_path, model, monkeypatch):
    """Beyond a limit, a file may not unpack to more than its size; what is saved must keep to that."""
    monkeypatch.setattr(model_file, "MOST_UNPACKED", 64)
    model.save(tmp_path / "large.seachange")
    with zipfile.ZipFile(tmp_path / "large.seachange") as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    sc.load(tmp_path / "large.seachange")
