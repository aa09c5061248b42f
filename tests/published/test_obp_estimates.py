"""Point estimates are those of Open Bandit Pipeline, to 1e-9 on the same inputs.

Source: ``obp_estimates.json``, made by Open Bandit Pipeline itself (the file names version and command; the inputs are
those of ``obp_inputs.py``). Where its environment is there (``make bench`` makes it; SEACHANGE_PEERS names another
interpreter), it is asked again.

Command: ``pytest tests/published/test_obp_estimates.py``
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import seachange as sc
from published.obp_inputs import CASES, SETTINGS, inputs

# Some of the weights are as extreme as they can be; the formulas have to agree all the same.
pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")

ROOT = Path(__file__).resolve().parents[2]
STORED = json.loads(Path(__file__).with_name("obp_estimates.json").read_text())["estimates"]
TOLERANCE = 1e-9


def our_estimates(name):
    given = inputs(name)
    log = sc.BanditLog.from_arrays(given.actions, given.rewards, given.propensities, n_actions=given.probs.shape[1])

    def value(estimator, **settings):
        (estimate,) = sc.evaluate(
            log, given.probs, (estimator,), predicted_rewards=given.predicted_rewards, force=True, **settings
        )
        return estimate.value

    ours = {each: value(each) for each in ("ips", "snips", "dm", "dr", "sndr")}
    for setting in SETTINGS:
        if setting > 0:
            ours[f"ips, clip {setting}"] = value("ips", clip=setting)
            ours[f"dr, clip {setting}"] = value("dr", clip=setting)
        ours[f"switch-dr {setting}"] = value("switch-dr", switch=setting)
        ours[f"dr-os {setting}"] = value("dr-os", shrinkage=setting)
    return ours


@pytest.fixture(scope="session")
def asked_again():
    """What Open Bandit Pipeline says now."""
    places = [os.environ.get("SEACHANGE_PEERS"), ROOT / ".bench-venv" / "bin" / "python", sys.executable]
    for python in filter(None, map(str, filter(None, places))):
        looked = subprocess.run([python, "-c", "import importlib.util as u; assert u.find_spec('obp')"],
                                capture_output=True, check=False) if Path(python).exists() else None  # fmt: skip
        if looked is not None and looked.returncode == 0:
            script = ROOT / "benchmarks" / "obp_estimates.py"
            answer = subprocess.run([python, str(script)], capture_output=True, check=True, text=True)
            return json.loads(answer.stdout)["estimates"]
    pytest.skip("needs Open Bandit Pipeline; `make bench` installs it, or SEACHANGE_PEERS is a python that has it")


@pytest.mark.parametrize("name", CASES)
def test_estimates_are_those_of_open_bandit_pipeline(name):
    assert_equal(our_estimates(name), STORED[name])


@pytest.mark.parametrize("name", CASES)
def test_estimates_are_those_of_open_bandit_pipeline_side_by_side(name, asked_again):
    assert_equal(our_estimates(name), asked_again[name])


def test_every_estimator_and_setting_is_compared():
    for name in CASES:
        missing = set(our_estimates(name)) - set(STORED[name])
        deterministic = not (inputs(name).probs > 0).all()
        assert missing == ({"dr-os 0.0"} if deterministic else set()), "it makes 0 / 0 there"


def test_shrinkage_to_nothing_leaves_the_direct_method():
    for name in CASES:
        ours = our_estimates(name)
        assert ours["dr-os 0.0"] == pytest.approx(ours["dm"], rel=0, abs=TOLERANCE)


def test_the_inputs_are_hard():
    weights = [np.max(given.probs[np.arange(len(given.actions)), given.actions] / given.propensities)
               for given in map(inputs, CASES)]  # fmt: skip
    assert max(weights) > 100
    assert any((inputs(name).probs == 0).any() for name in CASES)


def assert_equal(ours, theirs):
    for estimator, value in theirs.items():
        if estimator not in ("ips, clip 0.0", "dr, clip 0.0"):  # we refuse a clip of 0
            assert ours[estimator] == pytest.approx(value, rel=0, abs=TOLERANCE), estimator
