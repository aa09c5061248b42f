"""The public names: they are there, they stay what they are, and importing them costs little."""

import inspect
import json
import subprocess
import sys

import pytest

import seachange as sc

# What the contract promises of the pipeline from a log to a deployment.
CONTRACT = {
    "BanditLog", "ChangePointOracle", "DRLearner", "Exp4S", "HMMOracle", "IPSLearner", "KnownStates", "POEMLearner",
    "PosteriorSampling", "SeachangeError", "SingleState", "ValueEstimate", "evaluate", "learn", "learn_per_state",
    "load", "read_log", "simulate",
}  # fmt: skip


def in_a_fresh_interpreter(code):
    """What ``code`` prints, as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sc.__all__)
def test_every_public_name_resolves_and_is_listed(name):
    assert getattr(sc, name) is getattr(sc, name)
    assert name in dir(sc)


def test_nothing_but_public_names_is_listed():
    assert {*dir(sc)} == {*sc.__all__, "__version__"}


def test_the_names_of_the_contract_are_public():
    assert set(sc.__all__) >= CONTRACT


def test_public_names_are_listed_once():
    assert len(sc.__all__) == len(set(sc.__all__))


@pytest.mark.parametrize("name", [name for name in sc.__all__ if name != "simulate"])
def test_every_public_name_says_what_it_is(name):
    assert inspect.getdoc(getattr(sc, name))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'seachange' has no attribute 'nonsense'"):
        _ = sc.nonsense


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert sc.__version__ == version("seachange")


@pytest.mark.parametrize("module", ["seachange", "seachange.cli", "seachange.errors"])
def test_importing_does_not_import_what_is_heavy(module):
    heavy = ["numba", "sklearn", "scipy", "polars", "pandas", "pyarrow", "narwhals", "matplotlib"]
    code = f"import json, sys, {module}; print(json.dumps([name for name in {heavy} if name in sys.modules]))"
    assert in_a_fresh_interpreter(code) == []


def test_a_star_import_gives_the_public_names():
    code = "from seachange import *; import json, seachange as sc; print(json.dumps([*{*sc.__all__} - {*globals()}]))"
    assert in_a_fresh_interpreter(code) == []


ALL_SUBMODULES = """
import importlib, json, pkgutil
import seachange as sc
before = {} if LATE else {name: getattr(sc, name) for name in sc.__all__}
for module in pkgutil.walk_packages(sc.__path__, "seachange."):
    importlib.import_module(module.name)
kinds = {name: type(getattr(sc, name)).__name__ for name in sc.__all__}
changed = [name for name, value in before.items() if getattr(sc, name) is not value]
print(json.dumps({"kinds": kinds, "changed": changed}))
"""


@pytest.mark.parametrize("late", [False, True], ids=["used before", "used after"])
def test_no_submodule_takes_the_place_of_a_public_name(late):
    found = in_a_fresh_interpreter(ALL_SUBMODULES.replace("LATE", str(late)))
    assert found["changed"] == []
    assert {name for name, kind in found["kinds"].items() if kind == "module"} == {"simulate"}
    for name in ("evaluate", "learn", "learn_per_state", "load", "read_log"):
        assert found["kinds"][name] == "function"
