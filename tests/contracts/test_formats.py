"""Every registered format, driven through its reader on an intact and on a damaged file."""

import json
from datetime import datetime

import numpy as np
import polars
import pytest
from polars.testing import assert_frame_equal

import seachange as sc
from datasets.criteo_lines import invented_challenge
from datasets.open_bandit_lines import invented_campaign, write_items
from datasets.yahoo_lines import invented_r6a, invented_r6b
from formats.whole import whole
from seachange.errors import LogError
from seachange.formats.decisions import DecisionLog
from seachange.reading import FORMATS, open_raw, read_log

# Twelve rounds are too few for most features, and Criteo's data carry a warning of their own.
pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
N = 12


def table():
    generator = np.random.default_rng(0)
    return polars.DataFrame(
        {
            "action": generator.choice(["boots", "coats", "lamps"], N),
            "reward": generator.integers(2, size=N).astype(float),
            "propensity": np.full(N, 0.25),
            "age": generator.integers(18, 80, N),
        }
    )


def dsjson_lines():
    for t in range(N):
        line = {"_label_cost": -(t % 2), "_label_probability": 0.5, "a": [1, 2], "p": [0.5, 0.5]}
        yield json.dumps(line | {"c": {"hour": t, "_multi": [{"_tag": "x"}, {"_tag": "y"}]}})


def write_decisions(path):
    with DecisionLog(path) as log:
        for t in range(N):
            log.reward(log.decision({"age": t}, "boots", 0.5, datetime(2026, 3, 1, t)), float(t % 2))


def lines(make):
    def write(path):
        path.write_text("\n".join([*make(), ""]), encoding="utf-8")

    return write


def open_bandit(folder):
    folder.mkdir()
    write_items(folder)
    (folder / "all.csv").write_text("\n".join([*invented_campaign(N, np.random.default_rng(0)), ""]))


# The name of a sample, and what writes it.
SAMPLES = {
    "parquet": ("log.parquet", lambda path: table().write_parquet(path)),
    "open-bandit": ("all", open_bandit),
    "yahoo-r6a": ("r6a", lines(lambda: invented_r6a(N, np.random.default_rng(0)))),
    "yahoo-r6b": ("r6b", lines(lambda: invented_r6b(N, np.random.default_rng(0)))),
    "criteo": ("criteo", lines(lambda: invented_challenge(N, np.random.default_rng(0)))),
    "decisions": ("log.jsonl", write_decisions),
    "dsjson": ("log.dsjson", lines(dsjson_lines)),
    "vw": ("log.vw", lines(lambda: (f"{t % 3 + 1}:{t % 2}:0.25 |user age:{t}" for t in range(N)))),
    "json-lines": ("log.jsonl", lambda path: table().write_ndjson(path)),
    "csv": ("log.csv", lambda path: table().write_csv(path)),
    "tsv": ("log.tsv", lambda path: table().write_csv(path, separator="\t")),
}
EVERY = pytest.mark.parametrize("name", SAMPLES)


def sample(folder, name):
    file, write = SAMPLES[name]
    write(folder / file)
    return folder / file


def test_every_registered_format_is_in_this_contract():
    assert {each.name for each in FORMATS} == set(SAMPLES)


@EVERY
def test_a_file_is_recognized_and_becomes_a_log(tmp_path, name):
    path = sample(tmp_path, name)
    raw = open_raw(path)
    assert raw.format == name
    assert {"action", "reward"} <= set(raw.columns)
    log = read_log(path, on_bad_rows="drop")
    assert isinstance(log, sc.BanditLog)
    assert len(log) == N


@EVERY
def test_parts_of_any_size_hold_the_same_rounds_and_each_pass_starts_over(tmp_path, name):
    raw = open_raw(sample(tmp_path, name))
    rounds, places, rejected = whole(raw)
    assert rounds.height == N
    assert rejected == []
    assert (np.diff(places) > 0).all()
    for rows in (5, 1):
        again, same_places, _ = whole(raw, rows)
        assert_frame_equal(again, rounds, check_dtypes=False)
        assert same_places == places


@EVERY
@pytest.mark.parametrize("share", [0.0, 0.5, 0.93])
def test_a_file_that_was_cut_short_gives_its_whole_rounds_or_an_error(tmp_path, name, share):
    path = sample(tmp_path, name)
    file = path / "all.csv" if path.is_dir() else path
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    try:
        parts = list(open_raw(path, format=name).parts())
    except LogError:
        return
    assert sum(map(len, parts)) <= N
    assert all(each.line > 0 and each.reason for part in parts for each in part.rejected)
