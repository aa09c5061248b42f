"""From tables to logs: any data frame, the same log."""

import datetime as dt
import re
import shlex

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from formats.six_rounds import MAPPING, STAMPS, assert_table, oddly_named, standardised, table
from seachange import BanditLog, read_log
from seachange.errors import LogError, SeachangeError, SeachangeWarning

pytestmark = pytest.mark.small

FRAMES = {"pandas": pandas.DataFrame, "polars": polars.DataFrame, "pyarrow": pyarrow.table}


@pytest.fixture(params=FRAMES)
def frame(request):
    """Makes a data frame of a dict."""
    return FRAMES[request.param]


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "__index_level_0__"])
def test_the_index_of_a_table_is_a_context_only_if_named(name):
    frame = polars.DataFrame({name: np.arange(6)} | table())
    with pytest.warns(SeachangeWarning, match=f"columns '{name}' look like the index of a table"):
        assert_table(BanditLog.from_frame(frame))
    assert BanditLog.from_frame(frame, {"contexts": ["age", name]}).context_names == ("age", name)


def test_the_index_that_pandas_writes_is_not_a_context(tmp_path):
    frame = pandas.DataFrame(table(), index=[3, 4, 7, 8, 9, 11])
    frame.to_csv(tmp_path / "log.csv")
    frame.to_parquet(tmp_path / "log.parquet")
    for name in ("log.csv", "log.parquet"):
        with pytest.warns(SeachangeWarning, match="look like the index"):
            assert_table(read_log(tmp_path / name))
    with pytest.warns(SeachangeWarning, match="look like the index"):
        assert_table(read_log(tmp_path / "log.parquet", on_disk=True))


def test_the_same_log_comes_of_every_kind_of_frame(frame):
    extra = {"time": STAMPS, "sequence": ["u", "u", "v", "v", "v", "v"], "returning": [True, False] * 3}
    log = BanditLog.from_frame(frame(table(**extra)))
    assert log.action_names == ("boots", "coats", "lamps")
    assert log.context_names == ("age", "hour", "returning")
    assert log.actions.tolist() == [2, 0, 1, 0, 2, 0]
    assert log.contexts[:, 2].tolist() == [1, 0, 1, 0, 1, 0]
    assert log.times.astype("datetime64[s]").tolist() == STAMPS
    assert log.sequences.tolist() == extra["sequence"]
    reference = BanditLog.from_frame(polars.DataFrame(table(**extra)))
    assert log.fingerprint() == reference.fingerprint()


def test_usual_columns_are_found_by_their_names(frame):
    log = BanditLog.from_frame(frame(table()))
    assert_table(log)
    assert (log.times, log.sequences) == (None, None)


@pytest.mark.parametrize("name", ["propensity", "pscore", "propensity_score"])
def test_propensities_have_several_usual_names(frame, name):
    columns = table(propensity=None) | {name: table()["propensity"]}
    assert_table(BanditLog.from_frame(frame(columns)))


@pytest.mark.parametrize("name", ["Propensity", "P-Score", "Propensity Score", "PROPENSITIES"])
def test_the_spelling_of_propensities_does_not_matter(frame, name):
    held = table(propensity=None) | {name: table()["propensity"]}
    assert_table(BanditLog.from_frame(frame(held)))
    assert not BanditLog.from_frame(frame(held), {"contexts": name}).propensities_known


@pytest.mark.parametrize("name", ["p", "prob", "Probability", "pi_0", "logging_prob", "action-propensity", "π"])
def test_possible_propensities_are_not_a_context_and_the_fix_is_named(frame, name):
    held = table(propensity=None) | {name: table()["propensity"]}
    option = re.escape(f"--columns {shlex.quote(f'propensity={name}')}")
    with pytest.warns(SeachangeWarning, match=rf"{name!r} may hold the propensities .*{option}"):
        log = BanditLog.from_frame(frame(held))
    assert log.context_names == ("age", "hour")
    assert not log.propensities_known
    assert_table(BanditLog.from_frame(frame(held), {"propensity": name}))
    assert BanditLog.from_frame(frame(held), {"contexts": ["age", name]}).context_names == ("age", name)
    assert BanditLog.from_frame(frame(table() | {name: table()["age"]})).context_names == ("age", "hour", name)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("prob", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
        ("p", [2, 1, 1, 1, 1, 1]),
        ("probe", [0.5, 0.6] * 3),
        ("p", [True, False] * 3),
    ],
)
def test_what_cannot_be_propensities_stays_a_context(frame, name, values):
    log = BanditLog.from_frame(frame(table(propensity=None) | {name: values}))
    assert log.context_names == ("age", "hour", name)


def test_a_file_that_is_read_in_parts_says_once_what_may_be_propensities(tmp_path, monkeypatch):
    monkeypatch.setattr("seachange.log.encoding.PART_ROWS", 2)
    polars.DataFrame(table(propensity=None) | {"prob": table()["propensity"]}).write_parquet(tmp_path / "log.parquet")
    with pytest.warns(SeachangeWarning, match="may hold the propensities") as told:
        log = read_log(tmp_path / "log.parquet", on_disk=True)
    assert len(told) == 1
    assert log.context_names == ("age", "hour")


def test_columns_says_where_things_are(frame):
    assert_table(BanditLog.from_frame(frame(oddly_named()), MAPPING))


@pytest.mark.parametrize(
    ("contexts", "names"),
    [(["hour"], ("hour",)), ("hour", ("hour",)), (["hour", "age"], ("hour", "age")), ([], ()), ((), ())],
)
def test_contexts_are_the_columns_asked_for_in_that_order(frame, contexts, names):
    log = BanditLog.from_frame(frame(table()), {"contexts": contexts})
    assert log.context_names == names
    assert log.contexts.shape == (6, len(names))
    for i, name in enumerate(names):
        np.testing.assert_allclose(log.contexts[:, i], standardised(table()[name]), rtol=1e-12)


def test_a_table_without_further_columns_has_no_contexts(frame):
    log = BanditLog.from_frame(frame(table(age=None, hour=None)))
    assert log.contexts.shape == (6, 0)
    assert log.joint.kind == "none"


def test_float32_columns_make_float32_contexts(frame):
    ages = np.array(table()["age"], dtype=np.float32)
    assert BanditLog.from_frame(frame(table(age=ages, hour=None))).contexts.dtype == np.float32


def test_columns_that_are_not_numbers_have_a_feature_for_each_value(frame):
    log = BanditLog.from_frame(frame(table(city=["Oslo", "Bergen"] * 3)), {"contexts": ["city"]})
    assert log.context_names == ("city=Bergen", "city=Oslo", "city=other")
    assert log.contexts.tolist() == [[0, 1, 0], [1, 0, 0]] * 3


@pytest.mark.parametrize(
    ("actions", "names", "numbers"),
    [
        ([10, 2, 2, 10, 33, 2], ("2", "10", "33"), [1, 0, 0, 1, 2, 0]),
        ([1.0, 0.0, 2.0, 1.0, 0.0, 2.0], ("0", "1", "2"), [1, 0, 2, 1, 0, 2]),
        (["b", "a", "c", "a", "b", "c"], ("a", "b", "c"), [1, 0, 2, 0, 1, 2]),
        ([True, False, True, True, False, False], ("false", "true"), [1, 0, 1, 1, 0, 0]),
    ],
)
def test_actions_are_numbered_in_the_order_of_their_values(frame, actions, names, numbers):
    log = BanditLog.from_frame(frame(table(action=actions)))
    assert log.action_names == names
    assert log.actions.tolist() == numbers


@pytest.mark.parametrize("make", [lambda x: pandas.DataFrame(x).astype({"action": "category"}),
                                  lambda x: polars.DataFrame(x, schema_overrides={"action": polars.Categorical})],
                         ids=["pandas", "polars"])  # fmt: skip
def test_categories_are_actions(make):
    assert_table(BanditLog.from_frame(make(table())))


def test_given_action_names_fix_the_order(frame):
    log = BanditLog.from_frame(frame(table()), action_names=["coats", "rugs", "lamps", "boots"])
    assert log.action_names == ("coats", "rugs", "lamps", "boots")
    assert log.actions.tolist() == [2, 3, 0, 3, 2, 3]
    assert log.n_actions == 4


def test_numbers_as_actions_match_the_names_a_model_keeps(frame):
    log = BanditLog.from_frame(frame(table(action=[10, 2, 2, 10, 2, 2])), action_names=("33", "10", "2"))
    assert log.actions.tolist() == [1, 2, 2, 1, 2, 2]


def test_an_unknown_action_is_named_beside_the_known_ones(frame):
    with pytest.raises(LogError, match=r"'boots' is not one of coats, lamps.*on_bad_rows=\"drop\""):
        BanditLog.from_frame(frame(table()), action_names=["coats", "lamps"])


def test_rounds_with_an_unknown_action_can_be_dropped(frame):
    log = BanditLog.from_frame(frame(table()), action_names=["coats", "lamps"], on_bad_rows="drop")
    assert log.action_names == ("coats", "lamps")
    assert log.actions.tolist() == [1, 0, 1]
    np.testing.assert_allclose(log.contexts[:, 0], standardised(table()["age"])[[0, 2, 4]], rtol=1e-12)


@pytest.mark.parametrize("action", [["b", None, "c", "a", "a", "b"], [3, None, 20, 1, 1, 3]])
def test_a_missing_action_is_a_bad_row(frame, action):
    with pytest.raises(LogError, match=r"one of the . known actions; row 1 has nan \(1 of 6 rows\)"):
        BanditLog.from_frame(frame(table(action=action)))
    log = BanditLog.from_frame(frame(table(action=action)), on_bad_rows="drop")
    assert log.action_names == tuple(str(name) for name in sorted({a for a in action if a is not None}))
    assert len(log) == 5


def test_missing_rewards_are_bad_rows_unless_they_may_be_missing(frame):
    columns = table(reward=[1, None, 0, 1, None, 0])
    with pytest.raises(LogError, match=r"rewards must not be missing.*row 1 has nan \(2 of 6 rows\)"):
        BanditLog.from_frame(frame(columns))
    assert BanditLog.from_frame(frame(columns), on_bad_rows="drop").rewards.tolist() == [1, 0, 1, 0]
    kept = BanditLog.from_frame(frame(columns), missing_rewards=True)
    assert np.isnan(kept.rewards).tolist() == [False, True, False, False, True, False]


def test_an_infinite_context_is_named_by_row_and_column(frame):
    columns = table(age=[1.0, 2.0, float("inf"), 4.0, 5.0, 6.0])
    with pytest.raises(LogError, match=r"contexts must be finite \(column age\); row 2 has inf \(1 of 6 rows\)"):
        BanditLog.from_frame(frame(columns))
    assert len(BanditLog.from_frame(frame(columns), on_bad_rows="drop")) == 5


def test_a_missing_context_is_the_mean_and_is_marked(frame):
    log = BanditLog.from_frame(frame(table(hour=[1, 2, None, 4, 5, 6])))
    assert log.context_names == ("age", "hour", "hour missing")
    expected = np.insert(standardised([1, 2, 4, 5, 6]), 2, 0)
    np.testing.assert_allclose(log.contexts[:, 1], expected, rtol=1e-12)
    assert log.contexts[:, 2].tolist() == [0, 0, 1, 0, 0, 0]


def test_a_missing_time_is_a_bad_row(frame):
    with pytest.raises(LogError, match=r"times must be known; row 5 has NaT \(1 of 6 rows\)"):
        BanditLog.from_frame(frame(table(time=[*STAMPS[:5], None])))


def test_a_missing_sequence_is_an_error_of_ours(frame):
    with pytest.raises(LogError, match="sequence"):
        BanditLog.from_frame(frame(table(sequence=["u", None, "u", "v", "v", "v"])))


@pytest.mark.parametrize("make", [polars.DataFrame, pyarrow.table], ids=["polars", "pyarrow"])
def test_dates_are_times(make):
    days = [dt.date(2026, 1, 1) + dt.timedelta(days=i) for i in range(6)]
    log = BanditLog.from_frame(make(table(time=days)))
    assert log.times.astype("datetime64[D]").tolist() == days


def test_times_that_are_text_are_refused(frame):
    with pytest.raises(LogError, match=r"times must be numbers .* or dates; .time. is neither"):
        BanditLog.from_frame(frame(table(time=["yesterday"] * 6)))


@pytest.mark.parametrize("word", ["action", "reward"])
def test_a_missing_column_is_named_with_those_there_are(frame, word):
    with pytest.raises(LogError) as caught:
        BanditLog.from_frame(frame(table(**{word: None})))
    message = str(caught.value)
    assert f"column holds the {word};" in message
    assert f"the table has {', '.join(table(**{word: None}))}." in message
    assert f"--columns {word}=" in message


def test_all_missing_columns_are_named_at_once(frame):
    with pytest.raises(LogError, match="column holds the action or the reward; the table has propensity, age, "):
        BanditLog.from_frame(frame(table(action=None, reward=None)))


@pytest.mark.parametrize(
    ("columns", "absent"),
    [({"reward": "click"}, "click"), ({"contexts": ["age", "height"]}, "height"), ({"time": "ts"}, "ts")],
)
def test_a_column_that_was_asked_for_and_is_not_there_is_named(frame, columns, absent):
    with pytest.raises(LogError, match=f"no column '{absent}'; it has action, reward, propensity, age, hour"):
        BanditLog.from_frame(frame(table()), columns)


def test_an_unknown_word_is_named_with_the_known_ones(frame):
    with pytest.raises(LogError, match=r"action, reward, propensity, time, sequence, contexts.*'rewards'"):
        BanditLog.from_frame(frame(table()), {"rewards": "reward"})


def test_an_empty_table_is_an_empty_log():
    empty = polars.DataFrame(table()).clear()
    for native in (empty, empty.to_arrow(), empty.to_pandas()):
        with pytest.raises(LogError, match="the log is empty"):
            BanditLog.from_frame(native)


@pytest.mark.parametrize("thing", [[1, 2], "clicks.csv", polars.DataFrame(table()).lazy()])
def test_what_is_not_a_table_is_an_error_of_ours(thing):
    with pytest.raises(SeachangeError, match=r"table|frame"):
        BanditLog.from_frame(thing)


def test_actions_of_mixed_types_are_distinguished_by_their_text():
    mixed = pandas.DataFrame(table(action=["boots", 1, "boots", 1, 2, 2]))
    assert set(BanditLog.from_frame(mixed).action_names) == {"boots", "1", "2"}


def test_action_names_must_differ():
    with pytest.raises(SeachangeError, match="boots"):
        BanditLog.from_frame(polars.DataFrame(table()), action_names=["boots", "coats", "lamps", "boots"])


def test_words_for_rewards_are_read_from_frames_as_from_files(frame):
    log = BanditLog.from_frame(frame(table(reward=["yes", "no", "Yes", "no", None, "yes"])), missing_rewards=True)
    assert log.rewards[[0, 1, 2, 3, 5]].tolist() == [1, 0, 1, 0, 1]
    with pytest.raises(LogError, match=r"the reward must be numbers, true and false, or yes and no; .* 'si' and 'no'"):
        BanditLog.from_frame(frame(table(reward=["si", "no"] * 3)))
    odd = frame(table(reward=["1", "0", "oops", "1", "0", "1"]))
    with pytest.raises(LogError, match=r"the reward 'oops' is not a number; row 2 \(1 of 6 rows\)\."):
        BanditLog.from_frame(odd)
    assert BanditLog.from_frame(odd, on_bad_rows="drop").dropped == (("rewards are not numbers", 1),)


def test_nullable_and_unusual_columns_of_pandas_are_read():
    """pandas.NA cannot be compared, and polars cannot hold periods."""
    n = 60
    frame = pandas.DataFrame(
        {
            "action": [0, 1] * 30,
            "reward": [0, 1, 1] * 20,
            "propensity": 0.5,
            "whole": pandas.array([1, None, 3] * 20, dtype="Int64"),
            "text": pandas.array(["x", None, "y"] * 20, dtype="string"),
            "flag": pandas.array([True, None, False, True, None] * 12, dtype="boolean"),
            "week": (["2026-01-05/2026-01-11", "2026-01-12/2026-01-18"] * 30),
        }
    )
    frame["week"] = pandas.PeriodIndex(frame["week"].str[:10], freq="W")
    log = BanditLog.from_frame(frame, {"contexts": ["whole", "text", "flag", "week"]})
    assert len(log) == n
    assert {"whole", "whole missing", "text=x", "text missing", "flag", "flag missing"} <= {*log.context_names}
    assert any(name.startswith("week=2026-01-05") for name in log.context_names)


def test_a_path_is_no_table_and_text_no_mapping(tmp_path):
    with pytest.raises(LogError, match=r"Use read_log\('shop.csv'\)"):
        BanditLog.from_frame("shop.csv")
    with pytest.raises(LogError, match="columns must be a dictionary"):
        read_log(tmp_path / "shop.csv", columns="action=item")
