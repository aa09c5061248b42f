"""A later file is encoded as the log that features were fitted on, and as its rows one by one, in any company."""

import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.errors import LogError
from seachange.reading import open_raw

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
PROPERTY = settings(
    max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# Texts that stand for different things in different company.
TEXTS = ["yes", "no", "maybe", "1.0", "2.0", "beta", "01", "2", "NA", "", "x y", "1e3", "abc", "0", "true"]
NUMBERS = ["1", "2.5", "-3", "1e3", "", "NA", "0", "9007199254740993", " 4"]
COMMAS = ["1,5", "2,25", "3", "", "-0,5"]
ACTIONS = [["a", "b"], ["1.0", "2.0", "x"], ["1", "2"], ["01", "1", "2"], ["1.0", "2.0"]]


@st.composite
def tables(draw):
    """Rows of texts, and which of them make a later file."""
    actions = draw(st.sampled_from(ACTIONS))
    pools = [TEXTS, NUMBERS, [*NUMBERS, "yes"], COMMAS, ["yes", "no", ""], ["yes", "no", "1"], ["0", "1"]]
    pools += [draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))]
    odd = draw(st.sampled_from(TEXTS))
    n = draw(st.integers(20, 40))
    chance = draw(st.randoms(use_true_random=False))
    rows = []
    for i in range(n):
        values = [chance.choice(pool) if chance.random() > 0.05 else odd for pool in pools]
        rows.append([actions[i % len(actions)], str(i % 2), "0.5", *values])
    names = ["action", "reward", "propensity", *(f"c{i}" for i in range(len(pools)))]
    return names, rows, draw(st.sets(st.integers(0, n - 1), min_size=1))


def written(folder, kind, names, rows):
    """A file of texts, or of the types that polars takes them for."""
    path = folder / f"log.{kind}"
    frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    if kind == "parquet":
        numbers = [pl.col("reward", "propensity").cast(pl.Float64), pl.col("c6").cast(pl.Int64, strict=False)]
        frame.with_columns(numbers, c1=pl.col("c1").cast(pl.Float64, strict=False)).write_parquet(path)
    else:
        frame.write_csv(path, separator={"csv": ",", "tsv": "\t"}[kind], quote_style="necessary")
    return path


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
@PROPERTY
@given(tables())
def test_rows_of_a_table_are_encoded_alike_in_any_company(tmp_path, kind, made):
    names, rows, some = made
    contexts = {"contexts": names[3:]}
    whole = sc.read_log(written(tmp_path, kind, names, rows), contexts)
    later = sc.read_log(written(tmp_path, kind, names, [rows[i] for i in sorted(some)]), features=whole.features)
    alike(
        whole,
        later,
        sorted(some),
        pl.read_parquet(tmp_path / "log.parquet").to_dicts()
        if kind == "parquet"
        else [dict(zip(names, rows[i], strict=True)) for i in sorted(some)],
    )


def alike(whole, later, some, records):
    """The later log is those rows of the whole, and so is every record that is not refused."""
    np.testing.assert_array_equal(later.contexts, np.asarray(whole.contexts)[some])
    assert later.actions.tolist() == whole.actions[some].tolist()
    for record, context in zip(records, later.contexts, strict=True):
        try:
            encoded, _ = whole.features.encode_record(record)
        except LogError:
            continue  # a log takes what is no number for missing, and tells; a record is refused
        np.testing.assert_array_equal(encoded, context)


SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 2, 2.5, -1e-7, 1e20, 10**25, "x", "1", "1.0", "yes", "", "NA", "[x"]
)
PARTS = st.one_of(SCALARS, st.sampled_from([[1], {"a": 1.5}, {"a": [None, "é"]}]))


@st.composite
def objects(draw):
    """Objects whose fields hold mostly one kind of values, and which of them make a later file."""
    n = draw(st.integers(20, 40))
    chance = draw(st.randoms(use_true_random=False))
    pools = {name: draw(st.lists(PARTS, min_size=1, max_size=3)) for name in ("p", "q", "n", "m")}
    pools |= {"number": [1, 2, 3.5], "whole": [1, 2, 3], "flag": [True, False], "text": ["x", "y", "yes"]}
    odd = draw(PARTS)

    def pick(name):
        return chance.choice(pools[name]) if chance.random() > 0.04 else odd

    rows = [
        {
            "action": i % 2, "reward": i % 2, "propensity": 0.5, **{name: pick(name) for name in pools},
            "user": {name: pick(name) for name in pools} if chance.random() > 0.05 else odd,
            "v": [pick("whole"), pick("number")], "tags": [pick("text") for _ in range(chance.randrange(3))],
        }
        for i in range(n)
    ]  # fmt: skip
    return rows, sorted(draw(st.sets(st.integers(0, n - 1), min_size=1)))


@PROPERTY
@given(objects())
def test_lines_of_json_are_encoded_alike_in_any_company(tmp_path, made):
    rows, some = made
    contexts = {"contexts": [name for name in rows[0] if name not in ("action", "reward", "propensity")]}
    path = tmp_path / "log.jsonl"

    def write(of):
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in of))
        return path

    whole = sc.read_log(write(rows), contexts)
    later = sc.read_log(write([rows[i] for i in some]), features=whole.features)
    alike(whole, later, some, [rows[i] for i in some])


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
@example([562949953421312.25, 2.0**-1017])
def test_a_number_among_texts_has_the_text_that_polars_gives_it(numbers):
    from seachange.log.raw import text_of

    lines = "".join(json.dumps({"x": number}) + "\n" for number in numbers).encode()
    read = pl.read_ndjson(lines, schema={"x": pl.String})["x"].to_list()
    assert [text_of(number) for number in numbers] == read
    assert all(math.isclose(float(text), number) for text, number in zip(read, numbers, strict=True))


def test_decimal_commas_in_later_json_lines_are_read_beside_numbers(tmp_path):
    rows = "".join(f"{'ab'[i % 2]};{i % 2};{i},5\n" for i in range(30))
    (tmp_path / "log.csv").write_text(f"action;reward;x\n{rows}")
    features = sc.read_log(tmp_path / "log.csv").features
    values = ["1,5", 1.5, "2,25", 3, "1,234.5", "1,2,3"]
    lines = [json.dumps({"action": "a", "reward": 1, "x": value}) for value in values]
    (tmp_path / "later.jsonl").write_text("\n".join(lines))
    (part,) = open_raw(tmp_path / "later.jsonl", features=features).parts()
    assert part.features["x"].to_list() == [1.5, 1.5, 2.25, 3, None, None]
