"""Crafted lines cost neither memory out of proportion nor time that grows with its square, and never a crash."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seachange.reading import open_raw

READ = """
import resource, sys
from peak_memory import peak_megabytes
from seachange.reading import open_raw

resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
rounds = rejected = before = 0
for part in open_raw(sys.argv[1], format=sys.argv[2]).parts():
    before = before or peak_megabytes()  # imports do not count
    rounds += len(part)
    rejected += len(part.rejected)
    assert len(part.rejected) <= 1 << 15
print(rounds, rejected, peak_megabytes() - before)
"""
ROUND = '{"_label_cost":0,"_label_probability":1,"a":[1],"c":{"x":%s,"_multi":[{"_tag":"t"}]}}\n'
SOUND = {
    "dsjson": ROUND % 1,
    "vw": "1:2:0.5 | a\n",
    "decisions": '{"decision":"a","action":"b","propensity":1,"context":{}}\n',
    "yahoo-r6b": "1317000000 id-900002 0 |user 1 12 |id-900001 |id-900002\n",
    "criteo": "17 |l 0.999 |p 1.25|f 0:2\n",
    "open-bandit": "timestamp,item_id,position,click,propensity_score,user_feature_0\n",
}


def read(path, format, seconds):
    """Rounds, rejected lines, and megabytes that reading takes beyond the first part."""
    environment = os.environ | {
        "POLARS_MAX_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
    }
    command = [sys.executable, "-W", "ignore", "-c", READ, str(path), format]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return tuple(map(int, done.stdout.split()))


@pytest.mark.parametrize("n", [100_000, pytest.param(4_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("format", SOUND)
def test_rejected_lines_take_memory_in_proportion(format, n, tmp_path):
    path = tmp_path / "log"
    path.write_text(SOUND[format] * 20 + "x\n" * n)
    _, rejected, megabytes = read(path, format, seconds=300 + n / 1000)
    assert rejected >= n or format == "criteo"  # where such lines belong to the impression before them
    assert megabytes < 40 + n / 50_000


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("value", ['"%s"', '{"%s":1}'])
def test_many_different_strings_take_linear_time(value, tmp_path):
    """Strings that differ in few bits, and keys that differ in every line."""
    seconds = {}
    for n in (100, 2_000, 16_000):  # the first loads what reading needs
        path = tmp_path / f"{n}"
        path.write_text("".join(ROUND % (value % f"{'a' * 64}{k * 31 % 65536:04x}") for k in range(n)))
        before = time.process_time()
        for _ in open_raw(path, format="dsjson").parts():
            pass
        seconds[n] = time.process_time() - before
    assert seconds[16_000] < 24 * seconds[2_000]  # 64 times as long if it were quadratic


NESTING = [("[", "]"), ('{"x":', "}"), ("}", "{"), ("{", ""), ('["]",', "]")]


@pytest.mark.parametrize("depth", [100, 1_000_000])
def test_deep_nesting_is_a_rejected_line(depth, tmp_path):
    path = tmp_path / "log"
    values = [f"{opening * depth}1{closing * depth}" for opening, closing in NESTING]
    path.write_text(ROUND % 1 * 40 + "".join(ROUND % value + value + "\n" for value in values) + ROUND % 1 * 40)
    assert read(path, "dsjson", seconds=300)[:2] == (80, 2 * len(values))
    lines = [{"decision": str(k), "action": "b", "propensity": 1, "context": {"x": k}} for k in range(len(values))]
    texts = [json.dumps(line).replace(f'"x": {k}', f'"x": {values[k]}') for k, line in enumerate(lines)]
    path.write_text(SOUND["decisions"] + "\n".join(texts) + "\n")
    assert read(path, "decisions", seconds=300)[:2] == (1, len(values))


def test_long_lines_of_vowpal_wabbit_take_linear_time(tmp_path):
    path = tmp_path / "log"
    lines = ["|" + " a:" * 500_000, "|" * 1_000_000, "| " + "=" * 1_000_000, "| " + "a" * 1_000_000, "1 " * 500_000]
    path.write_text(SOUND["vw"] + "".join(f"1:2:0.5 {line}\n" for line in lines))
    read(path, "vw", seconds=300)
