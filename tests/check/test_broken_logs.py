"""Every planted defect is named, and nothing else is."""

import shlex

import numpy as np
import polars as pl
import pytest

from check.broken_logs import BROKEN, broken_log
from check.tables import TableLog, sound_table
from seachange.check import check_log
from seachange.check.log_check import Place


@pytest.mark.parametrize("name", BROKEN)
def test_a_planted_defect_is_named_and_no_other(name):
    rule, log = broken_log(name)
    found = check_log(log)
    assert found.rules("error", "warning") == {rule}
    assert found.worst in ("warning", "error")


def test_a_sound_log_has_nothing_wrong():
    found = check_log(TableLog(sound_table()))
    assert (found.worst, found.verdict, found.findings) == (None, "sound", ())
    assert (found.n_rounds, found.n_usable, found.n_actions, found.n_contexts) == (5_000, 5_000, 5, 3)


@pytest.mark.parametrize(
    ("name", "count", "first"),
    [
        ("lines cut short", 2, (7, 19)),
        ("rewards in words", 40, (101, 102, 103, 104, 105)),
        ("rewards with a code for no answer", 40, (101, 102, 103, 104, 105)),
        ("propensities of zero", 40, (101, 102, 103, 104, 105)),
        ("two days swapped", 1, (2501,)),
        ("a week without rounds", 1, (2501,)),
        ("rounds written twice", 50, (2, 103, 204, 305, 406)),
        ("an event with two decisions", 14, (201, 401, 601, 801, 1001)),
    ],
)
def test_a_finding_says_how_often_and_where_first(name, count, first):
    rule, log = broken_log(name)
    [finding] = [each for each in check_log(log).findings if each.rule == rule]
    assert finding.count == count
    assert finding.places == tuple(Place("shop.csv", line) for line in first)


def test_a_choice_without_chance_is_reported_with_its_fix():
    _, log = broken_log("a deployment that took nothing but its favourites")
    [finding] = check_log(log).findings
    assert finding.title == "Choices were almost certain"
    assert finding.evidence.startswith("All 5,000 rounds took an action with a propensity of 0.95 or more")
    assert finding.numbers == {"count": 5_000, "total": 5_000, "effective": 0}
    assert "model.deployer(exploration=0.05)" in finding.fix


@pytest.mark.parametrize("rows", [1 << 17, 700, 37])
@pytest.mark.parametrize("name", ["rounds written twice", "two days swapped", "propensities of another action"])
def test_what_is_found_does_not_depend_on_the_parts(name, rows):
    rule, log = broken_log(name)
    whole = log.parts
    log.parts = lambda _=None: whole(rows)
    found = check_log(log)
    assert found.rules("error", "warning") == {rule}
    assert found.findings == check_log(broken_log(name)[1]).findings


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_be_learned_from_is_given_a_next_command(name):
    found = check_log(broken_log(name)[1], name="my shop.csv")
    assert bool(found.next_command) == (found.worst != "error")
    if found.worst != "error":
        assert found.next_command.startswith(("seachange learn 'my shop.csv'", "seachange check 'my shop.csv'"))


def test_the_next_command_names_columns_of_tables_and_leaves_out_what_tells_the_reward():
    _, log = broken_log("the reward in another column")
    log.frame = log.frame.rename({"action": "item id"})
    log.columns["action"] = "item id"
    words = shlex.split(check_log(log, name="shop.csv").next_command)
    assert words[:4] == ["seachange", "learn", "shop.csv", "--columns"]
    assert words[4:] == ["action=item id,contexts=age+income+device", "-o", "shop.seachange"]
    log.format = "dsjson"
    assert "--columns" not in check_log(log).next_command


def test_what_must_be_done_is_in_the_next_command():
    rows = {
        "no propensities": "--estimate-propensities",
        "propensities of zero": "--drop-bad-rows",
        "lines cut short": "--drop-bad-rows",
        "next to no rewards": "--oracle none",
        "rounds written twice": "--fix LOG-clean.parquet",
        "two days swapped": "--fix LOG-clean.parquet",
    }
    for name, option in rows.items():
        assert option in check_log(broken_log(name)[1]).next_command


def test_the_best_action_is_that_which_earns_most_where_rewards_are_known():
    generator, n = np.random.default_rng(0), 6000
    actions = generator.integers(3, size=n)
    clicks = (generator.random(n) < np.array([0.3, 0.2, 0.2])[actions]).astype(float)
    clicks[(actions == 0) & (generator.random(n) < 0.5)] = np.nan
    table = pl.DataFrame({"action": actions, "reward": clicks, "propensity": np.full(n, 1 / 3)})
    assert check_log(TableLog(table.with_columns(pl.col("reward").fill_nan(None)))).propensities.best_action == "0"


def test_propensities_that_nobody_named_are_named_and_taken_up_by_the_next_command():
    found = check_log(TableLog(sound_table().rename({"propensity": "pi_b"})), name="shop.csv")
    assert found.rules() == {"propensity-unnamed"}
    (finding,) = found.findings
    assert finding.names == ("pi_b",)
    assert "Column 'pi_b' behaves like the probability of the action taken" in finding.evidence
    assert "--columns propensity=pi_b" in finding.fix
    assert found.next_command == "seachange learn shop.csv --columns propensity=pi_b -o shop.seachange"


def test_propensities_that_nobody_named_are_named_where_others_are_set_to_one():
    table = sound_table().rename({"propensity": "pi_b"}).with_columns(propensity=pl.lit(1.0))
    assert check_log(TableLog(table)).rules() == {"propensity-unnamed", "propensity-one"}
    sound = sound_table().with_columns(copy=pl.col("propensity"))
    assert check_log(TableLog(sound)).rules() == set()


def test_fields_of_records_are_columns_of_their_own():
    table = sound_table()
    nested = table.with_columns(user=pl.struct("age", pl.struct("income").alias("money"))).drop("age", "income")
    found = check_log(TableLog(nested, format="json-lines"))
    assert found.findings == ()
    plain = {each.name: each for each in check_log(TableLog(table)).contexts}
    assert {each.name: each.mean for each in found.contexts} == {
        "user.age": plain["age"].mean, "user.money.income": plain["income"].mean, "device": None,
    }  # fmt: skip
    leaking = nested.with_columns(user=pl.col("user").struct.with_fields(clicked=pl.col("reward")))
    found = check_log(TableLog(leaking, format="json-lines"), name="shop.jsonl")
    assert found.rules() == {"reward-leak"}
    assert "contexts=device+user.age+user.money.income " in found.next_command


@pytest.mark.parametrize("value", [[1, 2], [1], ["a"], [[1]], {"a": 1}, True, 1, "x"])
def test_a_column_with_the_same_value_in_every_row_is_constant_whatever_its_type(value):
    found = check_log(TableLog(sound_table().with_columns(same=pl.Series([value] * len(sound_table())))))
    name = "same.a" if isinstance(value, dict) else "same"
    [finding] = [each for each in found.findings if each.names == (name,)]
    assert finding.rule == ("column-of-ones" if value in (1, {"a": 1}) else "column-constant")


def test_a_value_that_a_reader_rejects_counts_under_the_rule_it_breaks(tmp_path):
    table = sound_table().with_columns(pl.col("reward").cast(pl.String))
    table = table.with_columns(pl.Series("reward", ["maybe", *table["reward"][1:]]))
    table.write_csv(tmp_path / "shop.csv")
    found = check_log(tmp_path / "shop.csv")
    [finding] = found.findings
    assert (finding.rule, finding.count, finding.places) == ("reward-text", 1, (Place("shop.csv", 2),))


def test_findings_are_data_with_a_title_a_sentence_and_a_fix():
    for name in BROKEN:
        for finding in check_log(broken_log(name)[1]).findings:
            assert finding.title
            assert not finding.title.endswith(".")
            assert finding.evidence[0].isupper() or finding.evidence[0].isdigit()
            assert finding.evidence.endswith(".")
            assert finding.fix.endswith(".")
            assert any(digit in finding.evidence for digit in "0123456789'")
