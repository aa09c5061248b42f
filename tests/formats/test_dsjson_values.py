"""Values of dsjson are what Python reads, both in lines that polars reads and in lines that are read one by one."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seachange.formats import dsjson

LINE = '{"_label_cost":0,"_label_probability":1,"a":[1],"c":{"x":%s,"_multi":[{"_tag":"t"}]}}'


def read(path, *texts):
    """Parts of a file with a feature x of these spellings, one per line."""
    path.write_text("".join(LINE % text + "\n" for text in texts), newline="\n")
    return list(dsjson.DsjsonLog(path).parts())


@pytest.fixture(params=[0, 512])  # without a sample, all lines are read one by one
def leaf(request, tmp_path, monkeypatch):
    """The feature as it is read by itself; None if the line is rejected."""
    monkeypatch.setattr(dsjson, "SAMPLE", request.param)

    def value(text):
        (part,) = read(tmp_path / "log", text)
        return None if part.rejected else part.features["x"][0] if part.features.width else "null"

    return value


@given(number=st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_double_is_read_as_it_was_written(leaf, number):
    assert math.copysign(1, leaf(repr(number))) == math.copysign(1, number)
    assert leaf(repr(number)) == number
    assert leaf(f"{number:.25e}") == number


@pytest.mark.parametrize("sample", [0, 1, 512])
@settings(max_examples=20, deadline=None)
@given(pairs=st.lists(st.tuples(st.integers(0, 10**30), st.integers(-400, 400)), min_size=1, max_size=200))
def test_decimals_are_rounded_as_python_rounds_them(tmp_path_factory, sample, pairs):
    texts = [f"{digits}e{power}" for digits, power in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dsjson, "SAMPLE", sample)
        parts = read(tmp_path_factory.mktemp("numbers") / "log", *texts)
    found = dict(zip([*(line for part in parts for line in part.lines.tolist())],
                     [value for part in parts if len(part) for value in part.features["x"]], strict=True))  # fmt: skip
    assert found == {k: float(text) for k, text in enumerate(texts, 1) if math.isfinite(float(text))}
    assert sum(len(part.rejected) for part in parts) == len(texts) - len(found)


@pytest.mark.parametrize("text", [
    "9007199254740993", "1.00000000000000011102230246251565", "2.2250738585072011e-308", "5e-324", "1e-400", "1e23",
    "8.5e22", "179769313486231570e291", "0.000000000000000000000000000001234567890123456789", "-0.0", "0e999",
])  # fmt: skip
def test_decimals_that_lie_between_two_doubles_go_to_the_right_one(leaf, text):
    assert leaf(text) == float(text)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40), ascii_only=st.booleans())
def test_every_text_is_read_as_it_was_written(leaf, text, ascii_only):
    assert leaf(json.dumps(text, ensure_ascii=ascii_only)) == text


@pytest.mark.parametrize("text", [
    "01", "1.", ".5", "+1", "1e", "1e+", "-", "--1", "0x1", "1_0", "NaN", "Infinity", "tru", "nul", "'a'", '"\\x"',
    '"\\u12g4"', '"\t"', '"', '"\\', "[1,]", "[,1]", "{,}", '{"a":1,}', '{"a"}', '{"a":}', "{1:2}", "[1 2]", "]", "}",
    '{"a":1}}', '1,"b"', "", " ", "1 1", '"a""b"', 'true"a"', "truefalse", '1"a"', '["a""b"]',
    "[1,\N{NO-BREAK SPACE}2]", "[1\N{NO-BREAK SPACE},2]", "\N{NO-BREAK SPACE}1", "[1, 2,]", "[1 , ,2]",
])  # fmt: skip
def test_what_python_does_not_read_is_not_read(leaf, text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(LINE % text, parse_constant=lambda _: json.loads("!"))
    assert leaf(text) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["b", "_text", "_d", "é"]), inner),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=12), ascii_only=st.booleans(), spaced=st.booleans())
def test_polars_reads_lines_as_they_are_read_one_by_one(tmp_path_factory, values, ascii_only, spaced):
    path, found = tmp_path_factory.mktemp("samples") / "log", []
    separators = (", ", ": ") if spaced else (",", ":")
    texts = [json.dumps(value, ensure_ascii=ascii_only, separators=separators) for value in values]
    for sample in (0, 1, 512):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dsjson, "SAMPLE", sample)
            (part,) = read(path, *texts, *texts)
        columns = sorted(part.features.columns)
        rows = [tuple(map(repr, row)) for row in part.features.select(columns).rows()]
        found.append((part.lines.tolist(), columns, rows, [(each.line, each.reason) for each in part.rejected]))
    assert found[0] == found[1] == found[2]
