"""The real Vowpal Wabbit, where there is one: as its driver runs over a file."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, sys
from vowpalwabbit import Workspace
workspace = Workspace(sys.argv[1] + " --quiet -t")
answer = {"examples": workspace.get_weighted_examples(), "loss": workspace.get_sum_loss()}
workspace.finish()
print(json.dumps(answer))
"""


def driven(arguments):
    """Examples and the sum of losses (costs of those whose action is predicted, over their probabilities)."""
    places = [os.environ.get("SEACHANGE_PEERS"), ROOT / ".bench-venv" / "bin" / "python", sys.executable]
    for python in filter(None, map(str, filter(None, places))):
        look = [python, "-c", "import importlib.util as u; assert u.find_spec('vowpalwabbit')"]
        if Path(python).exists() and subprocess.run(look, capture_output=True, check=False).returncode == 0:
            run = subprocess.run([python, "-c", SCRIPT, arguments], capture_output=True, check=True, text=True)
            return json.loads(run.stdout.splitlines()[-1])
    pytest.skip("needs Vowpal Wabbit; `make bench` installs it, or SEACHANGE_PEERS is a python that has it")
