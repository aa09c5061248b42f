"""Small crafted logs cannot ask for much memory or time: many keys, deep records, long lists, large dictionaries."""

import io
import lzma
import os
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest

from seachange.errors import LogError, SeachangeWarning
from seachange.formats import json_lines
from seachange.formats.csv import CsvLog
from seachange.formats.json_lines import object_of
from seachange.formats.sources import blocks_of
from seachange.log.bandit_log import BanditLog
from seachange.reading import read_log

READ = """
import sys
from peak_memory import peak_megabytes
from seachange.errors import LogError
from seachange.reading import read_log

try:
    log = read_log(sys.argv[1], on_bad_rows="drop")
    print(len(log), len(log.context_names), peak_megabytes())
except LogError as error:
    print(error)
    print(0, 0, peak_megabytes())
"""
ROUND = '{"action":"%s","reward":%d,"propensity":0.5%s}\n'
DSJSON = '{"_label_cost":%d,"_label_probability":1,"a":[1],"c":{%s,"_multi":[{"_tag":"t"}]}}\n'


def read(path, seconds=60):
    """Rounds, features, and peak megabytes of a process that reads a log; and what it said."""
    tests = os.path.dirname(os.path.dirname(__file__))
    environment = os.environ | {"POLARS_MAX_THREADS": "2", "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *said, numbers = done.stdout.splitlines()
    return *map(int, numbers.split()), "\n".join(said) + done.stderr


def lines_of(keys, n=200):
    return "".join(ROUND % ("ab"[i % 2], i % 3 % 2, keys(i)) for i in range(n))


@pytest.mark.parametrize("n_keys", [100, 30_000])
def test_lines_with_other_keys_each_are_read_within_limits(n_keys, tmp_path):
    """200 lines with 100 keys each, or two with 30,000; these took 1,000 times the size of the file."""
    n = max(2, 20_000 // n_keys)
    text = lines_of(lambda i: "".join(f',"k{i * n_keys + j}":1' for j in range(n_keys)), n)
    (tmp_path / "log.jsonl").write_text(text)
    rounds, features, megabytes, said = read(tmp_path / "log.jsonl")
    assert rounds == n
    assert json_lines.MAX_FIELDS - 3 <= features <= 2 * json_lines.MAX_FIELDS  # some with a mark if they are missing
    assert megabytes < 700
    assert "more than 10,000 fields; 'k9997' and others after the first 10,000 are left out" in said
    assert said.count("SeachangeWarning") == 1


def test_keys_that_come_later_are_learned_within_limits(tmp_path):
    many = lines_of(lambda i: f',"x":{i % 5},"k{i}":1,"m{i}":{{"a":1}}', 12_000)
    (tmp_path / "log.jsonl").write_text(lines_of(lambda i: f',"x":{i % 5}', json_lines.HEAD_ROWS) + many)
    rounds, features, megabytes, said = read(tmp_path / "log.jsonl")
    assert (rounds, features) == (json_lines.HEAD_ROWS + 12_000, 1)
    assert megabytes < 500
    assert "12,000 lines have fields that the first 10,000 lines do not have" in said


def test_a_table_of_missing_values_is_refused(tmp_path):
    wide = "".join(f',"k{j}":{j}' for j in range(5_000))
    (tmp_path / "log.jsonl").write_text(ROUND % ("a", 1, wide) + lines_of(lambda i: "", 20_000))
    rounds, _, megabytes, said = read(tmp_path / "log.jsonl")
    assert rounds == 0
    assert "has 5,003 fields, but most lines have only a few of them" in said
    assert megabytes < 1_000


def test_dsjson_with_other_keys_in_each_round_is_read_within_limits(tmp_path):
    keys = (",".join(f'"k{i}-{j}":1' for j in range(200)) for i in range(200))
    (tmp_path / "log.dsjson").write_text("".join(DSJSON % (-(i % 2), each) for i, each in enumerate(keys)))
    rounds, features, megabytes, said = read(tmp_path / "log.dsjson")
    assert rounds == 200
    assert features > 0
    assert "more than 1,024 features" in said
    assert megabytes < 500


@pytest.mark.parametrize("nest", [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
@pytest.mark.parametrize("depth", [33, 100, 400, 3_000])
def test_deep_nesting_is_rejected_in_every_line(nest, depth, tmp_path):
    deep = f',"x":{nest[0] * depth}1{nest[1] * depth}'
    (tmp_path / "log.jsonl").write_text(lines_of(lambda i: deep, 30))
    with pytest.raises(LogError, match="no line with a JSON object"):
        read_log(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_text(lines_of(lambda i: deep if i > 20 else f',"x":{i % 5}', 40))
    assert dict(read_log(tmp_path / "log.jsonl", on_bad_rows="drop").dropped) == {json_lines.TOO_DEEP: 19}


def test_the_limit_on_nesting_is_exact():
    def line(depth):
        return b'{"x":' * (depth - 1) + b"[]" + b"}" * (depth - 1)

    assert object_of(line(json_lines.MAX_DEPTH))
    with pytest.raises(ValueError, match="nested more than 32 deep"):
        object_of(line(json_lines.MAX_DEPTH + 1))
    many = b'{"x":[' + b"{}," * 99 + b"{}]}"
    assert len(object_of(many)["x"]) == 100  # many brackets are not deep


def test_an_allowed_depth_costs_little_memory(tmp_path):
    (tmp_path / "log.jsonl").write_text(lines_of(lambda i: f',"x":{{"a":{i % 7}}}'))
    shallow = read(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").write_text(lines_of(lambda i: ',"x":' + '{"a":' * 30 + str(i % 7) + "}" * 30))
    deep = read(tmp_path / "log.jsonl")
    assert deep[0] == shallow[0] == 200
    assert deep[2] < shallow[2] + 450


def xz(content, dictionary):
    return lzma.compress(content, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": dictionary}])


def asks_for(content, bits):
    """The xz file, which asks for a dictionary of this size: a byte of its first block's header and its checksum."""
    size = (content[12] + 1) * 4
    header = bytearray(content[12 : 12 + size - 4])
    place = header.index(b"\x21\x01") + 2
    header[place] = bits
    return content[:12] + bytes(header) + zlib.crc32(header).to_bytes(4, "little") + content[12 + size :]


def test_xz_files_cannot_ask_for_much_memory(tmp_path):
    table = b"action,reward\n" + b"a,1\nb,0\n" * 20
    greedy = asks_for(xz(table, 1 << 16), 37)  # 1.5 GiB
    for content in (greedy, xz(table, 1 << 16) + greedy):
        (tmp_path / "log.csv.xz").write_bytes(content)
        with pytest.raises(LogError, match=r"needs more than 256 MiB of memory to decompress.*xz -dc in"):
            list(blocks_of(tmp_path / "log.csv.xz"))


def test_xz_files_of_several_streams_are_read_whole(tmp_path):
    rows = np.random.default_rng(0).integers(0, 99, (50_000, 2))
    out = io.BytesIO()
    np.savetxt(out, rows, fmt="%d", delimiter=",")
    head = b"action,reward\n"
    content = (
        lzma.compress(head) + b"\0" * 8 + xz(out.getvalue(), 1 << 26) + lzma.compress(b"") + lzma.compress(b"1,2\n")
    )
    (tmp_path / "log.csv.xz").write_bytes(content + b"\0" * (1 << 17))
    assert (
        b"".join(bytes(block.text) for block in blocks_of(tmp_path / "log.csv.xz")) == head + out.getvalue() + b"1,2\n"
    )
    for cut in (len(content) - 40, len(content) // 2):
        (tmp_path / "log.csv.xz").write_bytes(content[:cut])
        with pytest.raises(LogError, match="damaged"):
            list(blocks_of(tmp_path / "log.csv.xz"))


def test_zstandard_files_cannot_ask_for_much_memory(tmp_path):
    pytest.importorskip("pyarrow")
    block = (8 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a"
    (tmp_path / "log.csv.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes([0, (31 - 10) << 3]) + block)  # 2 GiB
    with pytest.raises(LogError, match="too much memory"):
        list(blocks_of(tmp_path / "log.csv.zst"))


def vw_lists(n, longest):
    lengths = [longest if t == 3 else 2 for t in range(n)]
    label = "1:{}:0.5 "
    return "".join(
        f"shared |u x:{t % 5}\n"
        + "".join((label.format(-(t % 2)) if a == t % 2 else "") + f"|a v:{a % 10}\n" for a in range(k))
        + "\n"
        for t, k in enumerate(lengths)
    )


def test_one_very_long_list_of_actions_is_refused_with_its_line(tmp_path):
    (tmp_path / "log.vw").write_text(vw_lists(8_000, 8_000))
    rounds, _, megabytes, said = read(tmp_path / "log.vw")
    assert rounds == 0
    assert "rounds list 3 actions on average, but line 13 of log.vw lists 8,000" in said
    assert "Drop the rounds with very long lists." in said
    assert megabytes < 700
    (tmp_path / "log.vw").write_text(vw_lists(300, 300))
    assert read_log(tmp_path / "log.vw").n_actions == 300


def test_arrays_of_lists_that_would_be_mostly_padding_are_refused():
    n, longest = 10_000, 20_000
    lengths = np.where(np.arange(n) == 7, longest, 2)
    rows, offsets = np.zeros((lengths.sum(), 1)), np.concatenate([[0], np.cumsum(lengths)])
    zeros, halves = np.zeros(n, dtype=int), np.full(n, 0.5)
    with pytest.raises(LogError, match="but row 7 lists 20,000"):
        BanditLog.from_arrays(zeros, halves, halves, action_features=(rows, offsets))
    lengths[7] = 50
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    log = BanditLog.from_arrays(zeros, halves, halves, action_features=(rows[: offsets[-1]], offsets))
    assert log.n_actions == 50


def test_wide_tables_take_linear_time(tmp_path):
    def seconds(n):
        names = [f"x{i}" for i in range(n)]
        rows = "".join(",".join(["ab"[i % 2], str(i % 2), ".5"] + ["1"] * n) + "\n" for i in range(3))
        (tmp_path / "log.csv").write_text(",".join(["action", "reward", "propensity", *names]) + "\n" + rows)
        before = os.times().user
        assert sum(map(len, CsvLog(tmp_path / "log.csv").parts())) == 3
        return os.times().user - before

    seconds(10)
    assert seconds(8_000) < 8 * seconds(2_000)  # 16 times as long if it were quadratic


def test_warnings_name_the_file_and_not_the_folder(tmp_path):
    (tmp_path / "log.jsonl").write_text(lines_of(lambda i: "".join(f',"k{j}":1' for j in range(10_001)), 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        json_lines.JsonLinesLog(tmp_path / "log.jsonl")
    assert [each.category for each in caught] == [SeachangeWarning]
    assert str(caught[0].message).startswith("'log.jsonl' has more than 10,000 fields")
