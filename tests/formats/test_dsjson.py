"""dsjson: what stands in a line is what is read of it, and what is no round is rejected with its reason."""

import gzip
import json
from datetime import datetime

import numpy as np
import polars
import pytest

from formats.vowpal_wabbit import driven
from seachange.errors import LogError, SeachangeWarning
from seachange.formats import sources
from seachange.formats.dsjson import DsjsonLog, looks_like
from seachange.formats.sources import NOT_UTF8
from seachange.reading import open_raw, read_log

# As the service writes it: labels first, the whole distribution in the order of a.
LINE = {
    "_label_cost": -0.5, "_label_probability": 0.7, "_label_Action": 2, "_labelIndex": 1,
    "o": [{"v": 0.5, "EventId": "e1", "ActionTaken": False}], "Timestamp": "2026-03-01T10:00:00.1230000Z",
    "Version": "1", "EventId": "e1", "a": [2, 3, 1],
    "c": {"user": {"age": 31, "city": "Oslo", "_id": "secret"}, "hour": 10,
          "_multi": [{"i": {"id": "x", "price": 1.5}}, {"i": {"id": "y", "price": 2}}, {"i": {"id": "z"}}]},
    "p": [0.7, 0.1, 0.2], "VWState": {"m": "a/b"},
}  # fmt: skip
NAMED = {
    "_label_cost": 0,
    "_label_probability": 0.5,
    "a": [1, 2],
    "p": [0.5, 0.5],
    "c": {"_multi": [{"_tag": "x"}, {"_tag": "y"}]},
}


def changed(line=LINE, **fields):
    """A line with other fields; None takes one away."""
    return {key: value for key, value in {**line, **fields}.items() if value is not None}


def context(*items, **shared):
    return {**shared, "_multi": list(items)}


def read(tmp_path, *lines, rows=1 << 17):
    path = tmp_path / "log.json"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return list(DsjsonLog(path).parts(rows))


def reasons(tmp_path, *lines):
    return [(each.line, each.reason) for part in read(tmp_path, *lines) for each in part.rejected]


def test_a_line_is_a_round(tmp_path):
    (part,) = read(tmp_path, LINE)
    assert part.rejected == ()
    assert part.lines.tolist() == [1]
    assert (part.action[0], part.reward[0], part.propensity[0]) == (1, 0.5, 0.7)
    assert part.time[0] == datetime(2026, 3, 1, 10, 0, 0, 123000)
    assert part.features.to_dicts() == [{"user.age": 31.0, "user.city": "Oslo", "hour": 10.0}]
    assert part.pool.offsets.tolist() == [0, 3]
    assert part.pool.features.to_dicts() == [
        {"i.id": "x", "i.price": 1.5}, {"i.id": "y", "i.price": 2.0}, {"i.id": "z", "i.price": None}
    ]  # fmt: skip
    assert part.pool.names is None
    np.testing.assert_array_equal(part.pool.probs, [0.2, 0.7, 0.1])


@pytest.mark.parametrize(("items", "names"), [
    ([{"_tag": "x"}, {"_tag": "y"}], ["x", "y"]),
    ([{"action": {"id": "x"}}, {"action": {"id": "y"}}], ["x", "y"]),
    ([{"id": "x"}, {"id": "x"}], None),  # a feature that they share
    ([{"price": 1}, {"price": 2}], None),
])  # fmt: skip
def test_actions_known_by_a_word_alone_are_named(items, names, tmp_path):
    (part,) = read(tmp_path, changed(NAMED, c=context(*items)))
    assert (None if part.pool.names is None else part.pool.names.to_list()) == names
    assert part.pool.features.width == (0 if names else 1)


def listed(*names, times=1):
    """Rounds whose actions are known by a word alone."""
    return [changed(NAMED, c=context(*({"id": name} for name in names), hour=k % 2)) for k in range(times)]


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


TWINS = "id names the actions, but two actions of this round share a name or lack one"


@pytest.mark.parametrize("names_first", [True, False])
def test_names_are_names_in_all_files_and_a_round_of_twins_is_none(names_first, tmp_path):
    twins = [*listed("a", "b", times=30), *listed("a", "a"), *listed("b", "c", times=9)]
    days = [listed("a", "b", times=40), twins][:: 1 if names_first else -1]
    for day, lines in enumerate(days):
        write(tmp_path / "days" / f"{day}.json", lines)
    parts = list(open_raw(tmp_path / "days").parts())
    assert [part.pool.features.width for part in parts] == [0, 0]
    assert parts[0].pool.names.to_list()[:4] == ["a", "b", "a", "b"]
    assert [part.lines[[0, -1]].tolist() for part in parts] == [[1, 40], [1, 40]]
    assert [(each.source, each.line, each.reason) for part in parts for each in part.rejected] == [
        (f"{int(names_first)}.json", 31, TWINS)
    ]


def test_features_say_whether_actions_have_names(tmp_path):
    clean, twins = listed("a", "b", times=6), [*listed("a", "b", times=2), *listed("a", "a", times=4)]
    by_name = read_log(write(tmp_path / "clean", clean)).features
    by_place = read_log(write(tmp_path / "twins", twins)).features
    assert (by_name.named, by_place.named) == (True, False)
    log = read_log(tmp_path / "clean", features=by_place)
    assert np.asarray(log.contexts)[0, :, :2].tolist() == [[1, 0], [0, 1]]  # id=a and id=b
    log = read_log(tmp_path / "twins", features=by_name, on_bad_rows="drop")
    assert (len(log), log.dropped) == (2, ((TWINS, 4),))
    with pytest.raises(LogError, match=rf"{TWINS}; line 3 of twins has .* \(4 of 6 lines\)"):
        read_log(tmp_path / "twins", features=by_name)


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_file_without_times_is_named(on_disk, tmp_path):
    untimed = listed("a", "b", times=4)
    for day in (0, 1):
        write(tmp_path / "untimed" / f"{day}.json", untimed)
    assert read_log(tmp_path / "untimed", on_disk=on_disk).times is None
    write(tmp_path / "untimed" / "2.json", [changed(line, Timestamp="2026-03-01T10:00:00Z") for line in untimed])
    with pytest.raises(LogError, match=r"a time or none does; line 1 of 0\.json has none, unlike line 1 of 2\.json"):
        read_log(tmp_path / "untimed", on_disk=on_disk)
    files = [tmp_path / "untimed" / name for name in ("2.json", "0.json")]
    with pytest.raises(LogError, match=r"times must be known; line 1 of 0\.json"):
        read_log(files, on_disk=on_disk)


def test_features_are_taken_as_vowpal_wabbit_takes_them(tmp_path):
    shared = {"a": True, "b": [1, None, 2.5], "c": {"d": {"e": "f"}}, "_g": 1, "h": None, "_text": "to be\tor",
              "j": [{"k": 1}, {"l": "m"}], "n": ["x", "y"]}  # fmt: skip
    (part,) = read(tmp_path, changed(NAMED, c=context({"_tag": "x"}, {"_tag": "y"}, **shared)))
    assert part.features.to_dicts() == [
        {
            "a": True,
            "b": [1.0, 2.5],
            "c.d.e": "f",
            "_text": ["to", "be", "or"],
            "j.k": 1.0,
            "j.l": "m",
            "n": ["x", "y"],
        }
    ]


BROKEN = {
    "the line is not valid JSON: Expecting ',' delimiter": '{"_label_cost": 1',
    "the line is not valid JSON: NaN": '{"_label_cost":NaN}',
    "the line is not valid JSON: Expecting value at character 2": "[checkpoint: 1]",
    "the line is not a JSON object": "[1]",
    "an object has the key 'a' twice": json.dumps(LINE)[:-1] + ', "a": [1, 2, 3]}',
    "an object has the key 'age' twice": json.dumps(LINE).replace('"age": 31', '"age": 31, "age": 31'),
    "an observation without its decision": {"RewardValue": 1.0, "EventId": "e1"},
    "the line has no list of actions c._multi": changed(c={"user": 1}),
    "c._multi is not a list of objects": changed(c=context({}, 1, {})),
    "_label_cost is missing": changed(_label_cost=None),
    "_label_cost is given in two spellings": changed(_label_Cost=1),
    "_label_cost is not a number": changed(_label_cost="NaN"),
    "a number is too large for a double": json.dumps(LINE).replace("-0.5", "-1e999"),
    "(_skipLearn)": changed(_skipLearn=True),
    "_skipLearn is neither true nor false": changed(_skipLearn="yes"),
    "_labelIndex is not a number": changed(_labelIndex={}),
    "(DeferredAction)": changed(DeferredAction=True),
    "the list of actions a is missing": changed(a=[]),
    "a and c._multi differ in length": changed(a=[2, 1]),
    "p and c._multi differ in length": changed(p=[0.7, 0.3]),
    "a must hold the numbers of the actions, counted from 1": changed(a=[4, 3, 1]),
    "a has an action twice": changed(a=[2, 2, 1]),
    "p must hold probabilities": changed(p=[0.7, -0.1, 0.4]),
    "p does not sum to 1": changed(p=[0.7, 0.1, 0.1]),
    "_label_Action is not the first of a": changed(_label_Action=1),
    "_labelIndex is not the first of a": changed(_labelIndex=2),
    "_label_probability is not the first of p": changed(_label_probability=0.1),
    "the probability of the chosen action is not in (0, 1]": changed(_label_probability=0, p=[0.0, 0.5, 0.5]),
    "there is no probability": changed(p=None, _label_probability=None),
    "pdrop is not in [0, 1)": changed(pdrop=1),
    "cannot be known without p": changed(pdrop=0.5, p=None),
    "Timestamp is not a time": changed(Timestamp="yesterday"),
    "several slots": changed(_outcomes=[{"_a": 1, "_p": 1, "_label_cost": 0}]),
    "several slots are": changed(c={"_slots": [{"_id": "s"}], **LINE["c"]}),
    "continuous actions": changed(_label_ca={"cost": 1, "pdf_value": 1, "action": 1}),
    "deduplicated": changed(c=context({"__aid": 1}, {"__aid": 2}, {"__aid": 3})),
    "x is a list within a list": changed(c=context({}, {}, {}, x=[[1]])),
    "a string has half of a surrogate pair": json.dumps(LINE).replace("Oslo", "\\ud800"),
    "nested more than 32 deep": json.dumps(LINE).replace('"hour": 10', '"hour": ' + '{"x": ' * 70 + "1" + "}" * 70),
    "nested more than 32": json.dumps(LINE).replace('"m": "a/b"', '"m": ' + "[" * 100_000 + "]" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("reason", BROKEN)
def test_a_line_without_a_round_is_rejected_with_its_reason(reason, tmp_path):
    for before in (1, 50):  # the first lines are read one by one, those after them by polars
        lines = [LINE] * before, BROKEN[reason], [LINE] * 40
        ((line, found),) = reasons(tmp_path, *lines[0], lines[1], *lines[2])
        assert line == before + 1
        assert reason in found
        assert sum(map(len, read(tmp_path, *lines[0], lines[1], *lines[2]))) == before + 40


def test_lines_that_are_not_utf_8_are_rejected(tmp_path):
    path = tmp_path / "log.json"
    path.write_bytes(json.dumps(LINE).encode() + b'\n{"\xff": 1}\n' + json.dumps(LINE).encode())
    (part,) = DsjsonLog(path).parts()
    assert part.lines.tolist() == [1, 3]
    assert [(each.line, each.reason) for each in part.rejected] == [(2, NOT_UTF8)]


def test_a_decision_put_off_counts_once_it_was_carried_out(tmp_path):
    observed = [{"EventId": "e1", "DeferredAction": False}]
    assert reasons(tmp_path, changed(DeferredAction=True, o=observed)) == []


def test_dropped_events_leave_propensities_alone_and_are_reported(tmp_path):
    # The service's own converter multiplies _label_probability by the probability that the event was logged.
    half = changed(pdrop=0.5, _label_probability=0.35)
    with pytest.warns(SeachangeWarning, match=r"\(pdrop\) ranges from 0 to 0.5"):
        (part,) = read(tmp_path, half, LINE)
    assert part.propensity.to_list() == [0.7, 0.7]
    read(tmp_path, half, half)  # an even sample needs no warning


def test_probabilities_in_single_precision_are_mended(tmp_path):
    thirds = changed(p=[0.3333333, 0.3333333, 0.3333333], _label_probability=0.3333333)
    (part,) = read(tmp_path, thirds)
    np.testing.assert_allclose(part.pool.probs, 1 / 3, rtol=1e-15)
    assert part.propensity[0] == pytest.approx(1 / 3, rel=1e-15)


def test_logs_without_the_whole_distribution_have_propensities(tmp_path):
    (part,) = read(tmp_path, changed(p=None), changed(_label_probability=0.7))
    assert part.pool.probs is not None  # one round has it, so all need it
    assert [each.reason for each in part.rejected] == ["p is missing, but the first rounds have it"]
    (part,) = read(tmp_path, changed(p=None), changed(p=None, _label_probability=0.25))
    assert part.pool.probs is None
    assert part.propensity.to_list() == [0.7, 0.25]


@pytest.mark.parametrize(("text", "time"), [
    ("2024-02-29T23:59:59Z", datetime(2024, 2, 29, 23, 59, 59)),
    ("1969-12-31T23:59:59.9999999", datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ("2026-03-01T01:30:00+02:00", datetime(2026, 2, 28, 23, 30)),
    ("2026-03-01T01:30:00.5-00:30", datetime(2026, 3, 1, 2, 0, 0, 500000)),
    ("2023-02-29T00:00:00Z", None), ("2026-13-01T00:00:00Z", None), ("2026-03-01", None),
    ("2026-03-01T24:00:00Z", None), ("2026-03-01T00:00:00+2", None), ("2026-03-01T00:00:00.Z", None),
])  # fmt: skip
def test_times_are_moments_in_utc(text, time, tmp_path):
    (part,) = read(tmp_path, LINE, changed(Timestamp=text))
    assert part.time.to_list()[1:] == ([] if time is None else [time])


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "BLOCK_BYTES", 1000)


@pytest.mark.usefixtures("small_blocks")
def test_columns_stay_and_grow_from_block_to_block(tmp_path):
    late = changed(c=context({"i": {"id": "x"}}, {}, {}, late="yes", user={"age": 3, "city": 5}))
    other = changed(c=context({}, {}, {}, user={"age": "old"}))
    parts = read(tmp_path, *[LINE] * 3, *[late] * 3, other, *[LINE] * 3)
    names = [tuple(part.features.columns) for part in parts]
    assert len(parts) > 3
    assert names[0] == ("user.age", "user.city", "hour")
    assert names[-1] == (*names[0], "late")
    whole = polars.concat([part.features for part in parts], how="diagonal")
    assert whole.schema["late"] == polars.String
    assert whole["user.city"].to_list() == ["Oslo"] * 3 + ["5"] * 3 + ["Oslo"] * 3  # a text is as it was written
    assert [(each.line, each.reason) for part in parts for each in part.rejected] == [
        (7, "user.age must be a single number, as in earlier rounds")
    ]


@pytest.mark.usefixtures("small_blocks")
def test_parts_are_the_same_rounds_whatever_their_size(tmp_path):
    lines = [changed(_label_cost=k) for k in range(20)]
    whole, parts = read(tmp_path, *lines, "junk"), read(tmp_path, *lines, "junk", rows=1)
    assert [part.reward.to_list() for part in parts] == [[0.0 - k] for k in range(20)]
    assert max(map(len, whole)) > 1
    assert polars.concat([part.pool.features for part in parts]).equals(
        polars.concat([part.pool.features for part in whole])
    )
    assert [each.line for part in parts for each in part.rejected] == [21]


def test_compressed_files_are_read(tmp_path):
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress((json.dumps(LINE) + "\n").encode() * 3))
    (part,) = DsjsonLog(path).parts()
    assert len(part) == 3


def test_a_file_is_recognized_by_its_first_lines(tmp_path):
    line = json.dumps(LINE).encode()
    assert looks_like(tmp_path, b'{"RewardValue": 1}\n' + line)
    assert not looks_like(tmp_path, b'{"action": 1, "reward": 0, "c": 3}\n')
    assert not looks_like(tmp_path, b"1:2:0.5 | a b\n")


def test_a_mapping_of_columns_is_refused(tmp_path):
    with pytest.raises(LogError, match="takes no columns"):
        DsjsonLog(tmp_path / "log.json", {"action": "a"})


@pytest.mark.parametrize("count", [1030, 5000])
def test_more_features_than_there_is_room_for_are_left_out_and_reported(count, tmp_path):
    with pytest.warns(SeachangeWarning, match="'log.json' has more than 1,024 features"):
        (part,) = read(tmp_path, changed(c=context({}, {}, {}, **{f"word{k}": k for k in range(count)})))
    assert part.rejected == ()
    assert part.features.columns == [f"word{k}" for k in range(1024)]
    assert part.features["word1023"].to_list() == [1023.0]


def test_vowpal_wabbit_reads_the_same_rounds(tmp_path):
    chance = np.random.default_rng(0)
    lines = []
    for _ in range(200):
        probs = chance.dirichlet(np.ones(3))
        taken = int(chance.choice(3, p=probs))
        order = [taken, *(k for k in range(3) if k != taken)]
        lines.append(changed(
            _label_cost=-float(chance.random()), _label_probability=probs[taken], _label_Action=taken + 1,
            _labelIndex=taken, a=[k + 1 for k in order], p=[float(probs[k]) for k in order], pdrop=0.0,
        ))  # fmt: skip
    skipped = [changed(_skipLearn=True), changed(a=[]), '{"RewardValue": 1}', "not json"]
    (part,) = read(tmp_path, *lines, *skipped)
    theirs = driven(f"--cb_adf --cb_type ips --dsjson -d {tmp_path / 'log.json'}")
    assert theirs["examples"] == len(part) == 200
    # A model that has learned nothing takes the first action.
    ours = -(part.reward / part.propensity).filter(part.action == 0).sum()
    assert theirs["loss"] == pytest.approx(ours, rel=1e-5)
