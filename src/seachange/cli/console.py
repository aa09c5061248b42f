"""What a command prints: prose, notes, errors, progress, and one JSON document; and its exit codes."""

import codecs
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Event, Lock, Thread
from typing import IO, Any, TypeVar

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from seachange.engine import Stage, listening, stage
from seachange.errors import SeachangeWarning

# A Python traceback returns 1, so no exit code of ours is 1.
ERROR, WARNINGS, NOT_USABLE, BUG = 2, 3, 4, 70
# 128 plus the number of the signal, as shells report it.
SIGNAL = 128
INTERRUPTED = SIGNAL + 2
EXIT_CODES = (
    "Exit codes: 0 success; 2 error; 3 log usable with warnings (check); 4 log not usable (check); 70 bug in "
    "Seachange; 129 terminal closed; 130 interrupted; 143 terminated."
)
# Replacements for characters that the encoding of a terminal lacks.
ASCII = dict(zip("▁▂▃▄▅▆▇█", "12345678", strict=True)) | {
    "→": "->", "←": "<-", "±": "+-", "×": "x", "…": "...", "·": ".", "✓": "+", "✗": "-", "−": "-", "–": "-", "∞": "inf",
}  # fmt: skip
# Seconds before the progress line appears, and between two updates.
DELAY, REFRESH = 1.0, 0.1
BAR = 20
_SILENT: ContextVar[bool] = ContextVar("_SILENT", default=False)
Item = TypeVar("Item")


def accept_any_character() -> None:
    """Let standard output and error replace the characters that their encoding lacks, rather than fail."""
    codecs.register_error("seachange", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="seachange")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(ASCII.get(each, "?") for each in error.object[error.start : error.end]), error.end


class Prose(Console):
    """Prints text for people, on standard error if ``json`` reserves standard output for the document.

    If its reader is gone (``| head``), it stops printing but does not stop the work.
    """

    def __init__(self, *, json: bool = False, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr or json, highlight=False, quiet=quiet)
        self.json = json

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        _discard(self.file)

    def say(self, *paragraphs: str) -> None:
        """Print text, wrapped only on a terminal."""
        for text in paragraphs:
            self.print(text, soft_wrap=not self.is_terminal, markup=False)

    def finish(self, result: Any, closing: str = "") -> None:
        """Print the last lines, unwrapped so that they can be copied, and the JSON document if asked for."""
        if closing:
            self.print(f"\n{closing}", soft_wrap=True, markup=False)
        if self.json:
            _write_document(result)


@contextmanager
def prose(json: bool, quiet: bool) -> Iterator[Prose]:
    """The console of a command. With ``quiet``, it prints no prose, notes or progress."""
    token = _SILENT.set(quiet)
    try:
        with progress_line(quiet):
            yield Prose(json=json, quiet=quiet)
    finally:
        _SILENT.reset(token)


def next_steps(*commands: tuple[object, ...]) -> str:
    """``Next: seachange report clicks.csv clicks.seachange``, one command per line, ready to copy."""
    return "Next: " + "\n      ".join(shlex.join(["seachange", *map(str, words)]) for words in commands)


def _write_document(result: Any) -> None:
    """Write the one JSON document of a command, in UTF-8 whatever the terminal."""
    document = msgspec.json.encode(result) + b"\n"
    try:
        sys.stdout.flush()
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(document)
        else:
            sys.stdout.write(document.decode())
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)


def flush_or_discard() -> None:
    """Write what standard output still holds, or drop it if that fails: at exit, Python would fail once more."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)


def _discard(stream: IO[str]) -> None:
    """Send everything written to ``stream`` from now on nowhere, including Python's own flush at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def note(text: str) -> None:
    """Print a note on standard error."""
    if _SILENT.get():
        return
    console = Prose(stderr=True)
    with console.capture() as captured:
        console.print(f"[bold yellow]Note:[/] {escape(text)}", soft_wrap=not console.is_terminal)
    # Through sys.stderr, which the progress line has replaced so that it stays at the bottom.
    sys.stderr.write(captured.get())


def say_error(message: str, *, kind: str, heading: str = "Error: ") -> None:
    """Print an error in one line on standard error and, with --json, as the document."""
    one_line = " ".join(message.split())
    Prose(stderr=True).print(f"[bold red]{heading}[/]{escape(one_line)}", soft_wrap=True)
    # If the arguments are wrong they may not have been parsed, so look at them directly.
    if "--json" in sys.argv[1:]:
        with suppress(OSError):  # standard output may be what failed
            _write_document({"error": {"kind": kind, "message": one_line}})


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning as a note; replaces ``warnings.showwarning``."""
    note(message.shell_text if isinstance(message, SeachangeWarning) else f"{filename}:{lineno}: {message}")


def tracked(items: Iterable[Item], total: int, name: str) -> Iterator[Item]:
    """Yield ``items`` as steps of a stage."""
    with stage(name, total) as steps:
        for item in items:
            steps.advance()
            steps.detail = f"{steps.done:.0f} of {total}"
            yield item


@contextmanager
def progress_line(quiet: bool = False) -> Iterator[None]:
    """Show stages of more than a second on standard error if that is a terminal; the line disappears at the end."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        yield
        return
    line = _Line(console)
    with listening(line.clear) as root:
        over = Event()
        watcher = Thread(target=line.watch, args=(root, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
            line.clear()


class _Line:
    """The line on the terminal, visible only while a stage is running."""

    def __init__(self, console: Console) -> None:
        self._console, self._lock, self._bar = console, Lock(), _new_bar(console)
        self._stage: Stage | None = None  # the one it shows

    def watch(self, root: Stage, over: Event) -> None:
        """Update the line until the work is ``over``."""
        while not over.wait(REFRESH):
            with self._lock:
                running = list(root.parts)
                if running and time.monotonic() - running[0].began >= DELAY:
                    self._show(_measured(running[0]))

    def clear(self) -> None:
        """Remove the line."""
        with self._lock:
            self._show(None)

    def _show(self, current: Stage | None) -> None:
        if current is not self._stage:
            self._bar.stop()
            self._stage, self._bar = current, _new_bar(self._console)
        if current is not None:
            self._bar.start()
            text, total = f"{current.name}: {current.detail}".removesuffix(": "), None if current.total is None else 1.0
            task, share = self._bar.task_ids[0], current.share or 0.0
            self._bar.update(task, description=text, completed=share, total=total, refresh=True)


def _new_bar(console: Console) -> Progress:
    text = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
    columns = (SpinnerColumn(), text, BarColumn(BAR), TimeRemainingColumn(elapsed_when_finished=False))
    # Notes are printed above the line; standard output is left alone.
    bar = Progress(*columns, console=console, transient=True, auto_refresh=False, redirect_stdout=False, expand=True)
    bar.add_task("", total=None)
    return bar


def _measured(top: Stage) -> Stage:
    """The outermost stage whose length is known."""
    chain = [top]
    while inner := list(chain[-1].parts):
        chain.append(inner[0])
    return next((each for each in chain if each.total is not None and each.name), top)
