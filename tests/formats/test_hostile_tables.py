"""Crafted files cannot crash, hang or bloat the readers of tables."""

import gzip
import os
import subprocess
import sys
import time

import pyarrow
import pytest

from formats.whole import whole
from seachange.errors import LogError
from seachange.formats import sources
from seachange.formats.csv import CsvLog
from seachange.formats.json_lines import JsonLinesLog, object_of
from seachange.formats.sources import blocks_of, files_of
from seachange.reading import open_raw

GIGABYTE = 1 << 30
# What 1 or 8 MB of lines that cannot be read may cost; 8 MB took 2.35 GB.
MOST_MEMORY = 200 << 20

COUNT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]), int(sys.argv[3])))
from pathlib import Path
from seachange.errors import LogError
from seachange.reading import open_raw
import polars
few, many = sys.argv[1:3]
def count(path):
    try:
        return sum(len(part.rejected) for part in open_raw(path).parts())
    except LogError as error:
        return str(error)
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
count(few)
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = peak()
found = count(many)
print(peak() - before, found)
"""


def counted(few, many, limit=2 * GIGABYTE):
    """Read a file in a process of its own; its peak memory in bytes, beyond that of a small file, and what it found."""
    command = [sys.executable, "-c", COUNT, str(few), str(many), str(limit)]
    # Each thread reserves address space, and polars starts one per core.
    environment = os.environ | {"POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    kilobytes, found = done.stdout.split(" ", 1)
    return 1024 * int(kilobytes), found.strip()


@pytest.mark.parametrize(
    "line", ["}" * 65 + "{", "}" * 10_000, "{" * 10_000, '{"a":' * 10_000, '"' * 9_999, "\\" * 999]
)
def test_a_line_of_brackets_is_only_a_rejected_line(tmp_path, line):
    good = '{"action":"a","reward":1}\n'
    (tmp_path / "log.jsonl").write_text(good * 3 + line + "\n" + good)
    frame, lines, rejected = whole(JsonLinesLog(tmp_path / "log.jsonl"))
    assert len(frame) == 4
    assert lines == [1, 2, 3, 5]
    assert [one.line for one in rejected] == [4]


@pytest.mark.parametrize("depth", [100, 1_000, 5_000, 200_000])
@pytest.mark.parametrize("nest", [("[", "]"), ('{"x":', "}")])
def test_deep_nesting_costs_its_line_at_most(tmp_path, nest, depth):
    good = '{"action":"a","reward":1,"x":1}\n'
    deep = '{"action":"b","reward":1,"x":' + nest[0] * depth + "1" + nest[1] * depth + "}\n"
    (tmp_path / "log.jsonl").write_text(good * 200 + deep + good)
    log = JsonLinesLog(tmp_path / "log.jsonl", {"contexts": []})
    frame, _, rejected = whole(log)
    assert len(frame) + len(rejected) == 202
    assert len(rejected) <= 1


@pytest.mark.parametrize("bad", [b"\xff", b"\x00"])
@pytest.mark.parametrize("lines", [b"a,1,0.5,word\n", b'a,1,0.5,"word"\n', b'a,1,0.5,5" pipe\n'])
def test_one_bad_byte_does_not_make_csv_reading_quadratic(tmp_path, lines, bad):
    path = tmp_path / "log.csv"
    n = 800_000 // len(lines)
    path.write_bytes(b"action,reward,propensity,x\n" + lines * n + b"b,0,0.5," + bad + b"\n")
    start = time.process_time()
    parts = list(CsvLog(path).parts())
    assert time.process_time() - start < 5  # it took 115 seconds for four times as many lines
    assert sum(map(len, parts)) == n
    assert [one.line for part in parts for one in part.rejected] == [n + 2]


@pytest.mark.parametrize("line", [b'x","\n', b'5" pipe,"b\n""\n', b'"a,b\n'])
def test_quotes_that_never_close_do_not_make_csv_reading_quadratic(tmp_path, line):
    path = tmp_path / "log.csv"
    path.write_bytes(b"action,reward\na,1\n" + line * (500_000 // len(line)) + b"b,0\n")
    start = time.process_time()
    parts = list(CsvLog(path).parts())
    assert time.process_time() - start < 8
    seen = {*(line for part in parts for line in part.lines.tolist())}
    assert 2 in seen
    assert len(seen) + sum(len(part.rejected) for part in parts) > 1_000


@pytest.mark.parametrize("lines", [1 << 19, pytest.param(1 << 22, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_rejected_line_costs_little_memory(tmp_path, name, lines):
    good = "action,reward\na,1\n" if name == "log.csv" else '{"action":"a","reward":1}\n'
    (tmp_path / f"few-{name}").write_text(good + "x\n")
    (tmp_path / name).write_text(good + "x\n" * lines)
    memory, found = counted(tmp_path / f"few-{name}", tmp_path / name)
    assert found == str(lines)
    assert memory < MOST_MEMORY


def zstandard_bomb(size):
    """A frame of blocks that each repeat one byte 128 kB long."""
    block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    last = (131_072 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"a"
    return b"\x28\xb5\x2f\xfd" + bytes([0, 0x58]) + block * (size // 131_072 - 1) + last


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_line_that_unpacks_to_gigabytes_is_refused(tmp_path, name):
    start = b"action,reward\na,1\n" if name == "log.csv" else b'{"action":"a","reward":1}\n'
    small = pyarrow.compress(start, codec="zstd", asbytes=True)
    (tmp_path / f"few-{name}").write_bytes(small)
    (tmp_path / name).write_bytes(small + zstandard_bomb(4 * GIGABYTE))
    assert (tmp_path / name).stat().st_size < 140_000
    memory, found = counted(tmp_path / f"few-{name}", tmp_path / name)
    assert "has a line of more than 16,777,216 bytes" in found
    assert memory < MOST_MEMORY


def test_every_compression_has_the_limit_on_lines(tmp_path):
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(b"action,reward\na,1\n" + b"x" * (1 << 25)))
    with pytest.raises(LogError, match="has a line of more than"):
        list(blocks_of(path))


def test_zstandard_without_a_decoder_is_an_error_with_the_fix(tmp_path, monkeypatch):
    def absent(name):
        raise ImportError(name)

    (tmp_path / "log.csv.zst").write_bytes(pyarrow.compress(b"action,reward\na,1\n", codec="zstd", asbytes=True))
    monkeypatch.setattr(sources, "import_module", absent)
    with pytest.raises(LogError, match=r"compressed with Zstandard.*pip install backports\.zstd.*gzip"):
        open_raw(tmp_path / "log.csv.zst")


def test_pipes_and_devices_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", "/dev/null"):
        with pytest.raises(LogError, match="is not a regular file"):
            open_raw(path)
    with pytest.raises(LogError, match="is not a regular file"):
        CsvLog(tmp_path / "pipe.csv")
    with pytest.raises(LogError, match="there is no file in the folder"):
        files_of(tmp_path)


def test_many_blank_lines_before_the_header_take_no_time(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"\n" * 60_000 + b"action,reward\n" + b"a,1\n" * 200_000)
    start = time.process_time()
    assert sum(map(len, CsvLog(tmp_path / "log.csv").parts())) == 200_000
    assert time.process_time() - start < 8


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1,"b":{"a":1,"a":2}}', "the key 'a' twice"),
        (b'{"a":%s}' % (b"9" * 5_000), "too large"),
        (b'{"a":%s}' % (b"9" * 400 + b".5"), "too large"),
        (b'{"a":1e0400}', "too large"),
        (b'{"a":"\\udc00"}', "half of a surrogate pair"),
    ],
)
def test_a_line_that_parsers_read_differently_is_refused(line, reason):
    with pytest.raises(ValueError, match=reason):
        object_of(line)
