"""Damaged files of every format: an error of ours or rounds that a slow reader finds too, never anything else."""

import json
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from datasets import criteo_lines, open_bandit_lines, yahoo_lines
from datasets.test_obp import invented
from fuzz.mutations import mutations
from seachange.datasets.criteo import CriteoLog
from seachange.datasets.obp import log_from_obp
from seachange.datasets.open_bandit import OpenBanditLog
from seachange.datasets.yahoo_r6 import YahooLog
from seachange.errors import SeachangeError
from seachange.formats.decisions import DecisionLog, DecisionsLog

MUTANTS = [
    pytest.param(range(100), id="100"),
    pytest.param(range(100, 10_100), id="10000", marks=pytest.mark.long),
]
ROWS = 5


def accepted(reader, path):
    """The parts of a file, or None where it was refused."""
    try:
        return list(reader(path).parts(ROWS))
    except SeachangeError:
        return None


def survive(reader, content, seeds, path, rounds_of, read_slowly):
    """Read every mutant; how many gave rounds."""
    read = 0
    for seed in seeds:
        damaged = mutations(content, seed)
        path.write_bytes(damaged)
        parts = accepted(reader, path)
        if parts is not None:
            assert rounds_of(parts) == read_slowly(damaged), f"seed {seed}"
            read += any(map(len, parts))
    return read


@pytest.mark.parametrize("seeds", MUTANTS)
@pytest.mark.parametrize("release", ["yahoo-r6a", "yahoo-r6b"])
def test_damaged_visits(tmp_path, release, seeds):
    invent = yahoo_lines.invented_r6a if release == "yahoo-r6a" else yahoo_lines.invented_r6b
    content = "\n".join(invent(6, np.random.default_rng(0))).encode()

    def rounds_of(parts):
        release = "yahoo-r6a" if parts and parts[0].features.width == 6 else "yahoo-r6b"
        return yahoo_lines.rounds_of(parts, release)

    def read_slowly(damaged):
        return yahoo_lines.read_slowly(damaged, release)

    assert survive(YahooLog, content, seeds, tmp_path / "log", rounds_of, read_slowly) > 0.8 * len(seeds)


@pytest.mark.parametrize("seeds", MUTANTS)
def test_damaged_campaigns(tmp_path, seeds):
    content = "\n".join(open_bandit_lines.invented_campaign(6, np.random.default_rng(0))).encode()
    read = survive(
        OpenBanditLog, content, seeds, tmp_path / "all.csv", open_bandit_lines.rounds_of, open_bandit_lines.read_slowly
    )
    assert read > 0.5 * len(seeds)


@pytest.mark.filterwarnings("ignore:.* of the impressions without a click")
@pytest.mark.parametrize("seeds", MUTANTS)
@pytest.mark.parametrize("testbed", [False, True])
def test_damaged_impressions(tmp_path, testbed, seeds):
    invent = criteo_lines.invented_testbed if testbed else criteo_lines.invented_challenge
    content = "\n".join(invent(6, np.random.default_rng(1))).encode()
    read = survive(
        CriteoLog,
        content,
        seeds,
        tmp_path / "log",
        lambda parts: criteo_lines.rounds_of(parts, testbed),
        lambda damaged: criteo_lines.read_slowly(damaged, testbed),
    )
    assert read > 0.5 * len(seeds)


def decisions_of(parts):
    """Rounds by line: action, reward, propensity, time, context; and the lines that hold none."""
    rounds, rejected = {}, []
    for part in parts:
        rejected += [each.line for each in part.rejected]
        times = [None] * len(part) if part.time is None else part.time.to_list()
        contexts = part.features.rows(named=True) if part.features.width else [{}] * len(part)
        heads = zip(part.lines.tolist(), part.action, part.reward, part.propensity, times, contexts, strict=True)
        rounds |= {line: (*rest, plain(context)) for line, *rest, context in heads}
    return rounds, sorted(rejected)


def plain(value):
    """Without what is missing."""
    if isinstance(value, dict):
        found = {name: plain(each) for name, each in value.items()}
        return {name: each for name, each in found.items() if each not in (None, {})}
    return [plain(each) for each in value] if isinstance(value, list) else value


def count_kinds(value, path, kinds):
    """Take down which kinds of values each field of a record has, those in lists as of one field."""
    if value is None:
        return
    kind = type(value).__name__.replace("Pairs", "dict")
    if kind == "int" and abs(value) > 2**53:
        kind = "long" if -(2**63) <= value < 2**63 else "longest"
    kinds.setdefault(path, set()).add(kind)
    inner = value.items() if isinstance(value, dict) else [("[]", each) for each in value] if kind == "list" else ()
    for name, each in inner:
        count_kinds(each, (*path, name), kinds)


def as_column(value, path, kinds):
    """A value as its column has it: text in fields of several kinds, which numbers are not."""
    held = kinds.get(path, set())
    if value is None:
        return None
    if "longest" in held or not (len(held) == 1 or held <= {"int", "float"} or held <= {"int", "long"}):
        whole = isinstance(value, float) and value.is_integer()
        written = json.dumps(int(value) if whole else value, ensure_ascii=False, separators=(",", ":"))
        return value if isinstance(value, str) else written
    if isinstance(value, dict):
        return {name: as_column(each, (*path, name), kinds) for name, each in value.items()}
    return [as_column(each, (*path, "[]"), kinds) for each in value] if isinstance(value, list) else value


class Pairs(dict):
    """An object that remembers the values of a name that is there twice; the last one counts."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.pairs = pairs


def loaded(text):
    """JSON as its standard has it: no NaN, no number that is infinite, no half of a character."""
    value = json.loads(text, object_pairs_hook=Pairs)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return value


def moment(text):
    form = r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d(:?\d\d)?)?"
    match = re.fullmatch(form, text, re.ASCII)
    if match is None:
        raise ValueError(text)
    fraction = match[1] or ""
    millionths = int(fraction[1:7].ljust(6, "0")) + (fraction[7:8] >= "5")
    read = datetime.fromisoformat(text.replace(fraction, "", 1).upper()) + timedelta(microseconds=millionths)
    return read.astimezone(UTC).replace(tzinfo=None) if read.tzinfo else read


def is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308


def decision_slowly(text):
    """The fields of a line; ValueError where it is neither a decision nor a reward."""
    line = loaded(text.decode())
    if not isinstance(line, Pairs) or "decision" not in line:
        raise ValueError(text)
    kinds = {"decision": str, "time": str, "context": dict, "action": str, "model": str}
    for name, value in line.pairs:
        if name in kinds:
            fits = isinstance(value, kinds[name]) or (value is None and name != "decision")
        else:
            fits = name in ("propensity", "reward") and (value is None or is_number(value))
        if not fits or (name == "time" and value is not None and moment(value) is None):
            raise ValueError(name)
    decision = [line.get(name) is not None for name in ("action", "context", "propensity")]
    if not (all(decision) if line.get("reward") is None else not any(decision)):
        raise ValueError(text)
    return line


def decisions_slowly(content):
    rounds, rejected, names, rewards, kinds = {}, [], {}, {}, {}
    for number, text in enumerate(content.split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            line = decision_slowly(text)
        except (ValueError, OverflowError, RecursionError):
            rejected.append(number)
            continue
        if line.get("action") is None:
            rewards.setdefault(line["decision"], []).append((number, line["reward"]))
        elif line["decision"] in names:
            rejected.append(number)
        else:
            names[line["decision"]] = number
            time = moment(line["time"]) if line.get("time") is not None else None
            rounds[number] = [line["action"], None, line["propensity"], time, line["context"]]
            count_kinds(line["context"], (), kinds)
    for name, came in rewards.items():
        if name in names:
            rounds[names[name]][1] = came.pop(0)[1]
        rejected += [number for number, _ in came]
    rows = {number: (*each[:-1], plain(as_column(each[-1], (), kinds))) for number, each in rounds.items()}
    return rows, sorted(rejected)


@pytest.mark.parametrize("seeds", MUTANTS)
def test_damaged_decisions(tmp_path, seeds):
    with DecisionLog(tmp_path / "whole") as log:
        for i in range(6):
            record = {"age": 20 + i, "city": "ab"[i % 2], "device": {"kind": "phone", "widths": [1, 2.5]}}
            log.decision(record, "red", 0.25, datetime(2026, 11, 16, 12, i, 0, 5 * i), f"d{i}")
            if i % 3:
                log.reward(f"d{i - 1}", 0.5 * i, None)
    content = (tmp_path / "whole").read_bytes()
    read = survive(DecisionsLog, content, seeds, tmp_path / "log", decisions_of, decisions_slowly)
    assert read > 0.8 * len(seeds)


@pytest.mark.parametrize("seeds", MUTANTS)
def test_damaged_feedback(seeds):
    """A dictionary has no bytes to damage: entries go, are cut, get other types and shapes."""
    read = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        feedback = invented(n=6, places=int(rng.integers(1, 3)), seed=0)
        for _ in range(rng.integers(1, 4)):
            name = rng.choice(list(feedback))
            feedback[name] = damaged_array(feedback[name], rng)
        try:
            log = log_from_obp(feedback, item_features=bool(rng.integers(2)), on_bad_rows="drop")
        except SeachangeError:
            continue
        read += 1
        if len(log) == len(feedback["action"]):
            np.testing.assert_array_equal(log.actions, feedback["action"])
            np.testing.assert_array_equal(log.rewards, feedback["reward"])
    assert read > 0.1 * len(seeds)


def damaged_array(value, rng):
    choices = [None, "text", 3, [], {}, value]
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iuf":
        holed = value.astype(float)
        holed.flat[rng.integers(value.size)] = rng.choice([np.nan, np.inf, -1.0, 0.5, 1e300])
        choices += [holed, holed, value[:-1], value[..., None], value[0], value.astype(str), value.astype(object)]
        with np.errstate(over="ignore"):
            choices += [value.astype(np.float32), value.astype(complex), value.tolist()]
    return choices[rng.integers(len(choices))]
