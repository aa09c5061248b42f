"""Kernels run wherever their machine code can be cached, and also where it cannot."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import seachange

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions as POSIX has them")
KERNEL = """
import numpy as np
from seachange.kernels.belief_updates import draw_action, is_distribution, is_evidence
probs = np.ones(2) / 2
print(draw_action(probs, 0.7) if is_distribution(probs) and is_evidence(probs) else 0)
"""
NOBODY = 65534


@pytest.fixture
def place():
    """A folder that every user can reach: pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="seachange-test-"))
    folder.chmod(0o755)
    yield folder
    for path in folder.rglob("*"):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def read_only(place):
    """A copy of the package that nobody may write to."""
    copy = place / "site" / "seachange"
    shutil.copytree(Path(seachange.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return copy.parent


def run(site, place, *, unprivileged=True, code=KERNEL, **environment):
    """Run ``code`` with the package of ``site``, as a user who may not write there."""
    command = [sys.executable, "-c", code]
    if unprivileged and os.getuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("needs setpriv to become another user")
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command]
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    if os.getuid() != 0:
        known["HOME"] = "/nonexistent"  # without it, Python finds the home in the list of users
    done = subprocess.run(
        command, env=known | environment, cwd=place, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    return done.stderr


def test_a_read_only_installation_without_a_home_caches_in_a_private_temporary_folder(read_only, place):
    temporary = place / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    said = run(read_only, place, TMPDIR=str(temporary))
    (folder,) = temporary.iterdir()
    assert said.count("SeachangeWarning") == 1
    assert f"cached in {str(folder)!r}" in said
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    kept = {path.name for path in folder.rglob("*.nbc")}
    assert any(name.startswith("belief_updates.draw_action") for name in kept)
    run(read_only, place, TMPDIR=str(temporary))
    assert {path.name for path in folder.rglob("*.nbc")} == kept


def test_a_folder_that_others_can_write_to_is_not_trusted(read_only, place):
    user = NOBODY if os.getuid() == 0 else os.getuid()
    temporary = place / "tmp"
    trap = temporary / f"seachange-kernels-{user}"
    trap.mkdir(parents=True)
    temporary.chmod(0o1777)
    trap.chmod(0o777)
    run(read_only, place, TMPDIR=str(temporary), HOME="/nonexistent")
    assert not list(trap.iterdir())


def test_kernels_run_where_nothing_can_be_written(read_only, place):
    code = f"import tempfile; tempfile.tempdir = '/nonexistent'\n{KERNEL}"
    said = run(read_only, place, code=code, HOME="/nonexistent")
    assert said.count("SeachangeWarning") == 1
    assert "every run compiles them again" in said


def test_a_damaged_cache_is_written_again(place):
    site, cached = Path(seachange.__file__).parent.parent, place / "cache"
    assert run(site, place, unprivileged=False, NUMBA_CACHE_DIR=str(cached)) == ""
    for pattern, damage in {
        "*draw_action*.nbi": lambda whole: b"",
        "*is_distribution*.nbc": lambda whole: whole[:-20],
        "*is_evidence*.nbi": lambda whole: b"\x80\x05garbage",
    }.items():
        (file,) = cached.rglob(pattern)
        file.write_bytes(damage(file.read_bytes()))
    assert "compiled again" in run(site, place, unprivileged=False, NUMBA_CACHE_DIR=str(cached))
    assert run(site, place, unprivileged=False, NUMBA_CACHE_DIR=str(cached)) == ""


def test_a_full_cache_is_reported_once_and_does_no_harm(place):
    site = Path(seachange.__file__).parent.parent
    # Files of more than 512 bytes cannot be written: what a full disk does, but for the name of the error.
    limit = "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\n"
    said = run(site, place, unprivileged=False, code=limit + KERNEL, NUMBA_CACHE_DIR=str(place / "cache"))
    assert said.count("SeachangeWarning") == 1
    assert "cannot be used" in said
