"""Progress on a terminal: one line with the time left, for what takes longer than a second."""

import os
import re
import select
import subprocess
import sys
import time

import pytest

PATIENCE = 300
WORK = """
import sys, time, warnings
from seachange.cli.console import note
from seachange.engine import stage
from seachange.cli.console import progress_line
with progress_line(quiet={quiet}):
    with stage("Baking the bread", {total}) as baking:
        for i in range({total} or 1):
            time.sleep({seconds})
            baking.advance()
            if i == 1:
                note("the oven is hot")
    sys.stdout.write("done\\n")
"""


def on_a_terminal(code, columns=80):
    """What ``code`` writes to a terminal so wide, and its exit code."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm"}
    )
    os.close(theirs)
    written = b""
    while select.select([ours], [], [], PATIENCE)[0]:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # so ends a terminal
            break
        if not part:
            break
        written += part
    os.close(ours)
    return written.decode(), process.wait(timeout=PATIENCE)


def plain(written):
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written).replace("\r", "\n")


def code(total, seconds, quiet=False):
    return WORK.format(total=total, seconds=seconds, quiet=quiet)


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
class TestOnATerminal:
    def test_long_work_is_a_line_with_the_time_left(self):
        before = time.monotonic()
        written, exit_code = on_a_terminal(code(total=8, seconds=0.3))
        took = time.monotonic() - before
        lines = [line for line in plain(written).split("\n") if "Baking the bread" in line]
        assert exit_code == 0
        assert len({*lines}) > 5
        assert all(len(line) <= 80 for line in lines)
        left = [60 * int(found[1]) + int(found[2]) for line in lines if (found := re.search(r"0:(\d\d):(\d\d)", line))]
        # 2.4 seconds in all, and more on a busy machine: most of it is left at first, and none at the end.
        assert left
        assert max(left) <= 2 * took
        assert left[-1] <= max(1, left[0] / 2)
        # Notes stand above the line, which is gone when the work is done.
        assert "Note: the oven is hot" in plain(written).split("\n")
        assert plain(written).rstrip().endswith("done")
        assert written.count("\x1b[?25l") == written.count("\x1b[?25h"), "the cursor is as it was"

    def test_work_of_unknown_length_has_no_time(self):
        written, _ = on_a_terminal(code(total=None, seconds=1.5))
        assert "Baking the bread" in plain(written)
        assert re.search(r"\d:\d\d", plain(written)) is None

    def test_short_work_and_quiet_work_say_nothing(self):
        for silent in (code(total=2, seconds=0.1), code(total=2, seconds=0.7, quiet=True)):
            written, _ = on_a_terminal(silent)
            assert "Baking" not in written

    def test_a_narrow_terminal_cuts_the_words_not_the_time(self):
        written, _ = on_a_terminal(code(total=4, seconds=0.6), columns=40)
        lines = [line for line in plain(written).split("\n") if "Bak" in line]
        assert lines
        assert all(len(line) <= 40 for line in lines)
        assert any(re.search(r"\d:\d\d:\d\d", line) for line in lines)


def test_progress_is_shown_on_terminals_only():
    command = [sys.executable, "-c", code(3, 0.45)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "done\n"
    assert done.stderr == "Note: the oven is hot\n"
