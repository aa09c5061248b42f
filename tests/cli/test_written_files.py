"""What commands write: nothing that exists already is lost, and what cannot be written is said at once."""

import shutil
from pathlib import Path

import pytest

import seachange as sc
from cli.shop import QUICK, N, fail, succeed
from seachange.errors import LogError, OutputError


@pytest.mark.parametrize("log", ["early.csv", "nothing.csv"])
def test_an_existing_output_is_refused_before_the_log_is_read(folder, tmp_path, log):
    (tmp_path / "m.seachange").write_text("precious")
    message = fail(OutputError, "learn", folder / log, "-o", tmp_path / "m.seachange", *QUICK)
    assert "already exists. Overwrite it with force=True" in message
    assert (tmp_path / "m.seachange").read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["m.seachange"]


def test_a_forced_output_stays_as_it_was_when_the_work_fails(folder, tmp_path):
    (tmp_path / "m.seachange").write_text("precious")
    fail(LogError, "learn", folder / "nothing.csv", "-o", tmp_path / "m.seachange", *QUICK, "--force")
    assert (tmp_path / "m.seachange").read_text() == "precious"


def test_force_writes_over_an_existing_output(folder, tmp_path):
    (tmp_path / "m.seachange").write_text("worthless")
    succeed("learn", folder / "early.csv", "-o", tmp_path / "m.seachange", *QUICK, "--oracle", "none", "--force")
    assert sc.load(tmp_path / "m.seachange").provenance.n_rounds == N


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_an_output_that_cannot_be_written_is_refused_before_the_log_is_read(folder, tmp_path, force):
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "nowhere" / "m", tmp_path / "file" / "m", tmp_path):
        message = fail(OutputError, "learn", folder / "nothing.csv", "-o", target, *QUICK, *force)
        assert "cannot write into the folder" in message or "is a folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="/proc is a folder nobody can write into")
def test_a_folder_nobody_can_write_into_is_refused_before_the_log_is_read(folder):
    message = fail(OutputError, "learn", folder / "nothing.csv", "-o", "/proc/m.seachange", *QUICK)
    assert "cannot write into the folder '/proc'" in message


def test_a_demo_folder_with_files_in_it_is_refused(tmp_path):
    (tmp_path / "precious.txt").write_text("precious")
    assert "is not empty. Write into it with force=True" in fail(OutputError, "demo", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("arguments", [
    ("learn", "log.csv", "-o", "log.csv"), ("learn", ".", "-o", "log.csv"), ("learn", "*.csv", "-o", "log.csv"),
    ("report", "log.csv", "m.seachange", "-o", "m.seachange"), ("report", "log.csv", "m.seachange", "-o", "log.csv"),
    ("states", "log.csv", "-o", "log.csv"), ("check", "log.csv", "--fix", "log.csv"),
])  # fmt: skip
def test_what_is_read_is_never_written_over(folder, tmp_path, monkeypatch, arguments, force):
    shutil.copy(folder / "early.csv", tmp_path / "log.csv")
    shutil.copy(folder / "shop.seachange", tmp_path / "m.seachange")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    assert "is an input and would be overwritten" in fail(OutputError, *arguments, *force)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
