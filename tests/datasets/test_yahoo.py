"""R6A and R6B as Yahoo! delivers them, on invented lines."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets.yahoo_lines import invented_r6a, invented_r6b, r6a_line, read_slowly, rounds_of
from properties import examples
from seachange.datasets.yahoo_r6 import YahooLog, days_of, looks_like
from seachange.errors import LogError

EVEN = [1.0, 0.2, 0.2, 0.2, 0.2, 0.2]
SOUND_A = r6a_line(1_241_000_000, 900_001, 1, EVEN, {900_001: EVEN, 900_002: EVEN})
SOUND_B = "1317000000 id-900002 0 |user 1 12 45 7 101 |id-900001 |id-900002 |id-900003"


@pytest.fixture
def written(tmp_path):
    def write(content, name="visits"):
        """Bytes as they are; text with a last line that ends."""
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
        return path

    return write


def only_part(path):
    (part,) = YahooLog(path).parts()
    return part


def reasons(path):
    return [each.reason for part in YahooLog(path).parts() for each in part.rejected]


def test_the_example_of_r6a_is_read_by_index(written):
    line = (
        "1241999999 900002 1 |user 2:0.100000 3:0.200000 4:0.300000 5:0.150000 6:0.250000 1:1.000000 "
        "|900001 2:0.4 3:0.1 4:0.1 5:0.2 6:0.2 1:1 "
        "|900002 1:1.000000 6:0.100000 5:0.300000 4:0.300000 3:0.250000 2:0.050000"
    )
    part = only_part(written(line))
    assert part.features.row(0) == (1.0, 0.1, 0.2, 0.3, 0.15, 0.25)
    assert part.features.columns == [f"user.{i}" for i in range(1, 7)]
    assert part.pool.features.rows() == [(1.0, 0.4, 0.1, 0.1, 0.2, 0.2), (1.0, 0.05, 0.25, 0.3, 0.3, 0.1)]
    assert part.pool.names.to_list() == [900_001, 900_002]
    assert (part.time[0], part.action[0], part.reward[0], part.propensity[0]) == (1_241_999_999, 1, 1, 0.5)
    assert part.lines.tolist() == [1]
    assert part.rejected == ()


def test_the_example_of_r6b_is_a_vector_of_136(written):
    part = only_part(written(SOUND_B + "\n"))
    assert [i for i, there in enumerate(part.features.row(0), 1) if there] == [1, 7, 12, 45, 101]
    assert part.features.width == 136
    assert (part.action[0], part.propensity[0], part.pool.names.to_list()) == (1, 1 / 3, [900_001, 900_002, 900_003])


@settings(max_examples=examples(300), deadline=None)
@given(st.floats(0, 1) | st.floats(-1e6, 1e6) | st.integers(1 - 10**9, 10**9 - 1), st.integers(0, 6))
def test_values_are_the_doubles_that_python_reads(tmp_path_factory, value, decimals):
    text = f"{value:.{decimals}f}"
    path = tmp_path_factory.mktemp("values") / "visits"
    path.write_text(SOUND_A.replace("2:0.200000", f"2:{text}", 1) + "\n")
    read = only_part(path).features["user.2"][0]
    assert (read, np.signbit(read)) == (float(text), np.signbit(float(text)))


def test_every_value_of_six_decimals_is_exact(written):
    rng = np.random.default_rng(0)
    texts = [f"0.{i:06d}" for i in rng.choice(10**6, size=6_000, replace=False)]
    lines = [
        f"1 7 0 |user {' '.join(f'{i}:{texts[6 * n + i - 1]}' for i in range(1, 7))} |7 2:0 3:0 4:0 5:0 6:0 1:1"
        for n in range(1_000)
    ]
    part = only_part(written("\n".join(lines)))
    assert [value for row in part.features.rows() for value in row] == [float(text) for text in texts]


SIX = "six features, each an index from 1 to 6, a colon and a decimal number"
NOT_SIX, NOT_ARTICLE = f"a user must have {SIX}", f"an article of the pool must be | and a whole number, with {SIX}"
NO_POOL = "the pool must follow the user's features"
BROKEN = [
    ("the time must be a whole number of seconds", SOUND_A.replace("1241000000", "x")),
    ("the time must be a whole number of seconds", SOUND_A.replace("1241000000", "1241000000x")),
    ("the article shown must be a whole number", SOUND_A.replace(" 900001 1", " id9 1")),
    ("the click must be 0 or 1", SOUND_A.replace(" 1 |user", " 2 |user")),
    ("the click must be 0 or 1", "1241000000 900001"),
    ("the fourth field must be |user", SOUND_A.replace("|user", "|used")),
    (NOT_SIX, SOUND_A.replace("2:0.200000", "0.200000", 1)),
    (NOT_SIX, SOUND_A.replace("2:0.200000", "2:0.2e-1", 1)),
    (NOT_SIX, SOUND_A.replace("2:", "7:", 1)),
    ("an index occurs twice", SOUND_A.replace("2:", "3:", 1)),
    (NOT_SIX, SOUND_A.replace(" 4:0.200000", "", 1)),
    (NOT_SIX, SOUND_A.replace(" 4:0.200000", "", 1) + " 4:0.2"),
    (NOT_ARTICLE, SOUND_A.replace("|900002", "900002")),
    (NOT_ARTICLE, SOUND_A.rsplit(" ", 1)[0]),
    (NO_POOL, SOUND_A.split(" |900001")[0]),
    ("an article is in the pool twice", SOUND_A.replace("|900002", "|900001")),
    ("the article shown is not in the pool", SOUND_A.replace(" 900001 1", " 900003 1")),
    ("the line is of yahoo-r6b", SOUND_B),
]


@pytest.mark.parametrize(("reason", "broken"), BROKEN)
def test_a_line_that_breaks_a_rule_is_named_and_the_rest_is_read(written, reason, broken):
    path = written("\n".join([SOUND_A, broken, "", SOUND_A]))
    part = only_part(path)
    assert part.lines.tolist() == [1, 4]
    (rejected,) = part.rejected
    assert (rejected.source, rejected.line, rejected.reason) == ("visits", 2, reason)
    assert rejected.text == broken[:200]


BROKEN_B = {
    "the article shown must be id- and a whole number": SOUND_B.replace(" id-900002", " 900002x"),
    "a user must have features, each a whole number from 1 to 136": SOUND_B.replace(" 101", " 137"),
    "an index occurs twice": SOUND_B.replace(" 101", " 45"),
    "user feature 1 is missing": SOUND_B.replace("|user 1 ", "|user "),
    "an article of the pool must be | and id- and a whole number": SOUND_B.replace("|id-900001", "|900001"),
    NO_POOL: SOUND_B.split(" |id")[0],
    "an article is in the pool twice": SOUND_B.replace("900003", "900001"),
    "the article shown is not in the pool": SOUND_B.replace(" id-900002 ", " id-900009 "),
    "the line is of yahoo-r6a": SOUND_A,
}


@pytest.mark.parametrize("reason", BROKEN_B)
def test_a_line_of_r6b_that_breaks_a_rule_is_named(written, reason):
    path = written("\n".join([SOUND_B, BROKEN_B[reason], SOUND_B]))
    assert reasons(path) == [reason]
    part = only_part(path)
    assert part.features.rows()[0] == part.features.rows()[1]


def test_a_long_pool_may_not_have_twins_either(written):
    pool = {900_000 + i: EVEN for i in range(200)}
    line = r6a_line(1, 900_150, 0, EVEN, pool)
    assert only_part(written(line)).action[0] == 150
    assert reasons(written("\n".join([SOUND_A, line.replace("|900199", "|900003")]))) == [
        "an article is in the pool twice"
    ]


@pytest.mark.parametrize("release", ["yahoo-r6a", "yahoo-r6b"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 1_000])
def test_rounds_are_those_of_a_slow_reader(written, release, ends, last, rows):
    rng = np.random.default_rng(1)
    lines = (invented_r6a if release == "yahoo-r6a" else invented_r6b)(20, rng)
    lines[4], lines[9] = lines[4].replace("|user", "user"), ""
    content = (ends.join(lines) + (ends if last else "")).encode()
    log = YahooLog(written(content))
    assert log.format == release
    parts = list(log.parts(rows))
    assert max(map(len, parts)) <= rows
    rounds, rejected = rounds_of(parts, release)
    assert (rounds, rejected) == read_slowly(content, release)
    assert (len(rounds), rejected) == (18, [5])
    assert rounds_of(log.parts(), release)[0] == rounds


def test_gzip_of_several_members_is_read_as_one(written):
    lines = invented_r6a(30, np.random.default_rng(2))
    halves = gzip.compress(("\n".join(lines[:17]) + "\n").encode()) + gzip.compress("\n".join(lines[17:]).encode())
    assert sum(len(part) for part in YahooLog(written(halves + bytes(100))).parts()) == 30


def test_a_gzip_file_that_breaks_off_gives_what_is_whole_and_says_so(written):
    content = "\n".join(invented_r6a(3_000, np.random.default_rng(3))).encode()
    whole = gzip.compress(content)
    path = written(whole[: len(whole) // 2])
    seen = []
    with pytest.raises(LogError, match=r"breaks off or is damaged: Compressed file ended") as caught:
        seen.extend(len(part) for part in YahooLog(path).parts())
    assert 1_000 < sum(seen) < 2_000
    assert f"{sum(seen):,} rounds were read before" in str(caught.value)


def test_a_damaged_gzip_file_is_reported(written):
    whole = bytearray(gzip.compress("\n".join(invented_r6a(300, np.random.default_rng(3))).encode()))
    whole[len(whole) // 2 :] = bytes(len(whole) - len(whole) // 2)
    with pytest.raises(LogError, match=r"damaged|breaks off"):
        list(YahooLog(written(bytes(whole))).parts())


def test_days_of_a_folder_are_read_in_order(tmp_path):
    for day, visits in ((2, 3), (1, 2), (10, 4)):
        lines = "\n".join(invented_r6a(visits, np.random.default_rng(day))) + "\n"
        name = f"ydata-fp-td-clicks-v1_0.200905{day:02d}"
        if day == 2:
            (tmp_path / name).write_text(lines)
        else:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "readme.txt").write_text("nothing")
    assert looks_like(tmp_path, b"")
    log = YahooLog(tmp_path)
    assert [len(part) for part in log.parts()] == [2, 3, 4]
    assert [part.source[-5:] for part in log.parts()] == ["01.gz", "90502", "10.gz"]
    assert log.format == "yahoo-r6a"


def test_a_folder_of_two_releases_is_refused(tmp_path):
    (tmp_path / "ydata-fp-td-clicks-v1_0.20090501").write_text(SOUND_A)
    (tmp_path / "ydata-fp-td-clicks-v1_0.20090502").write_text(SOUND_B)
    with pytest.raises(LogError, match=r"20090502' is a file of yahoo-r6b.* 1 rounds were read"):
        list(YahooLog(tmp_path).parts())
    (tmp_path / "ydata-fp-td-clicks-v2_0.20111002").write_text(SOUND_B)
    with pytest.raises(LogError, match="days of R6A and of R6B"):
        days_of(tmp_path)


def test_a_folder_without_days_says_which_names_are_expected(tmp_path):
    assert not looks_like(tmp_path, b"")
    with pytest.raises(LogError, match=r"ydata-fp-td-clicks-v1_0.200905DD\(.gz\).*it is empty"):
        YahooLog(tmp_path).days  # noqa: B018
    (tmp_path / "clicks.txt").write_text(SOUND_A)
    with pytest.raises(LogError, match=r"it has clicks.txt"):
        list(YahooLog(tmp_path).parts())


def test_a_day_that_is_there_twice_is_refused(tmp_path):
    (tmp_path / "ydata-fp-td-clicks-v1_0.20090501").write_text(SOUND_A)
    (tmp_path / "ydata-fp-td-clicks-v1_0.20090501.gz").write_bytes(gzip.compress(SOUND_A.encode()))
    with pytest.raises(LogError, match=r"twice, plain and as \.gz"):
        days_of(tmp_path)


@pytest.mark.parametrize("content", ["", "\n\n", "a,b,c\n1,2,3\n", "1 |a b\n"])
def test_other_files_are_not_taken_for_visits(written, content):
    assert not looks_like(written(content), content.encode())
    with pytest.raises(LogError, match="is not a file of R6A or R6B"):
        list(YahooLog(written(content)).parts())


def test_a_malformed_first_line_does_not_hide_the_format(written):
    assert looks_like(written(""), f"oops\n{SOUND_B}\n".encode())
    assert YahooLog(written(f"oops\n{SOUND_B}\n")).format == "yahoo-r6b"


def test_a_file_of_the_other_release_is_named_as_such(written):
    assert YahooLog(written(SOUND_A), release="yahoo-r6a").format == "yahoo-r6a"
    with pytest.raises(LogError, match="is a file of yahoo-r6a, not of yahoo-r6b"):
        list(YahooLog(written(SOUND_A), release="yahoo-r6b").parts())
    with pytest.raises(LogError, match="release must be 'yahoo-r6a' or 'yahoo-r6b'"):
        YahooLog(written(SOUND_A), release="r6")


def test_most_of_the_first_lines_tell_the_release(written):
    lines = [SOUND_B.replace(" id-", " "), SOUND_B, SOUND_B]
    assert YahooLog(written("\n".join(lines))).format == "yahoo-r6b"


def test_columns_cannot_be_named(written):
    with pytest.raises(LogError, match="a fixed place for everything"):
        YahooLog(written(SOUND_A), {"action": "item"})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LogError, match=r"nowhere' cannot be read: No such file"):
        list(YahooLog(tmp_path / "nowhere").parts())
