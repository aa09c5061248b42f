"""Numbers and strings of JSON are what Python reads."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seachange.kernels.json_lines import FALSE, NUMBER, STRING, TRUE
from seachange.kernels.letters import PADDING
from seachange.log.readers.dsjson_labels import WANTED
from seachange.log.readers.json_leaves import JsonLeaves


def leaf(text):
    """The value of a feature, as it is written."""
    leaves = JsonLeaves(b'{"c": {"x": %s}}\n' % text.encode() + PADDING, WANTED)
    if leaves.faults[0]:
        return None
    path = leaves.keys.index(b"x")
    found = leaves.found(path)
    if len(found.rows) == 0:
        return "null"
    kind, number = int(found.kinds[0]), float(found.numbers[0])
    return {NUMBER: number, STRING: leaves.strings[int(number)] if kind == STRING else "", TRUE: True, FALSE: False}[
        kind
    ]


@given(st.floats(allow_nan=False, allow_infinity=False))
@settings(max_examples=300, deadline=None)
def test_every_double_is_read_as_it_was_written(number):
    assert math.copysign(1, leaf(repr(number))) == math.copysign(1, number)
    assert leaf(repr(number)) == number
    assert leaf(f"{number:.25e}") == number


@given(st.integers(0, 10**30), st.integers(-400, 400))
@settings(max_examples=500, deadline=None)
def test_decimals_are_rounded_as_python_rounds_them(digits, power):
    text = f"{digits}e{power}"
    wanted = float(text)
    assert leaf(text) == (wanted if math.isfinite(wanted) else None)


@pytest.mark.parametrize("text", [
    "9007199254740993", "1.00000000000000011102230246251565", "2.2250738585072011e-308", "5e-324", "1e-400", "1e23",
    "8.5e22", "179769313486231570e291", "0.000000000000000000000000000001234567890123456789", "-0.0", "0e999",
])  # fmt: skip
def test_decimals_that_lie_between_two_doubles_go_to_the_right_one(text):
    assert leaf(text) == float(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_text_is_read_as_it_was_written(text, ascii_only):
    assert leaf(json.dumps(text, ensure_ascii=ascii_only)) == text


@pytest.mark.parametrize("text", [
    "01", "1.", ".5", "+1", "1e", "1e+", "-", "--1", "0x1", "1_0", "NaN", "Infinity", "tru", "nul", "'a'", '"\\x"',
    '"\\u12g4"', '"\t"', '"', '"\\', "[1,]", "[,1]", "{,}", '{"a":1,}', '{"a"}', '{"a":}', "{1:2}", "[1 2]", "]", "}",
    '{"a":1}}', '1,"b"', "", " ", "1 1", '"a""b"',
])  # fmt: skip
def test_what_python_does_not_read_is_not_read(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(f'{{"c": {{"x": {text}}}}}', parse_constant=lambda _: json.loads("!"))
    assert leaf(text) is None


def test_texts_are_numbered_once():
    words = [f"word{k % 50}" for k in range(1000)] + ["x" * k for k in range(60)] * 2
    text = b"".join(b'{"c": {"x": %s}}\n' % json.dumps(word).encode() for word in words)
    leaves = JsonLeaves(text + PADDING, WANTED)
    assert len(leaves.strings) == len(set(words))
    found = leaves.found(leaves.keys.index(b"x"))
    assert leaves.strings.gather(found.numbers.astype(np.uint32)).to_list() == words
