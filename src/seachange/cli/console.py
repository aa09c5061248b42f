"""Console output: prose, notes, errors, and one JSON document."""

from __future__ import annotations

import codecs
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import IO, Any

import msgspec
from rich.console import Console
from rich.markup import escape

from seachange.errors import SeachangeWarning

_SILENT: ContextVar[bool] = ContextVar("_SILENT", default=False)
# What a terminal shows that does not know a character.
ASCII = dict(zip("▁▂▃▄▅▆▇█", "12345678", strict=True)) | {
    "→": "->", "←": "<-", "±": "+-", "×": "x", "…": "...", "·": ".", "✓": "+", "✗": "-", "−": "-", "–": "-", "∞": "inf",
}  # fmt: skip


def accept_any_character() -> None:
    """Let standard output and error replace the characters that their encoding lacks, rather than fail."""
    codecs.register_error("seachange", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="seachange")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(ASCII.get(each, "?") for each in error.object[error.start : error.end]), error.end


@contextmanager
def silenced(quiet: bool) -> Iterator[None]:
    """Print no prose and no notes inside the block if ``quiet``."""
    token = _SILENT.set(quiet)
    try:
        yield
    finally:
        _SILENT.reset(token)


class Prose(Console):
    """A console that stops printing, but does not stop the work, when its reader is gone (``| head``)."""

    def on_broken_pipe(self) -> None:
        """Print nothing more."""
        self.quiet = True
        discard(self.file)


def console_for(json: bool) -> Console:
    """The console for prose: standard output, or standard error if that is reserved for JSON."""
    return Prose(stderr=json, highlight=False, quiet=_SILENT.get())


def say(console: Console, *paragraphs: str) -> None:
    """Print text, wrapped only on a terminal."""
    for text in paragraphs:
        console.print(text, soft_wrap=not console.is_terminal, markup=False)


def finish(console: Console, json: bool, result: Any, closing: str = "") -> None:
    """Print the last lines, unwrapped so that they can be copied, and the JSON document if asked for."""
    if closing:
        console.print(f"\n{closing}", soft_wrap=True, markup=False)
    if json:
        write_document(result)


def next_steps(*commands: tuple[object, ...]) -> str:
    """``Next: seachange report clicks.csv clicks.seachange``, one command per line, ready to copy."""
    return "Next: " + "\n      ".join(shlex.join(["seachange", *map(str, words)]) for words in commands)


def write_document(result: Any) -> None:
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
        discard(sys.stdout)


def discard(stream: IO[str]) -> None:
    """Send everything written to ``stream`` from now on nowhere, including Python's own flush at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def note(text: str) -> None:
    """Print a note on standard error."""
    if _SILENT.get():
        return
    console = Prose(stderr=True, highlight=False)
    with console.capture() as captured:
        console.print(f"[bold yellow]Note:[/] {escape(text)}", soft_wrap=not console.is_terminal)
    # Through sys.stderr, which the progress line has replaced so that it stays at the bottom.
    sys.stderr.write(captured.get())


def say_error(message: str, *, kind: str, heading: str = "Error: ") -> None:
    """Print an error in one line on standard error and, with --json, as the document."""
    one_line = " ".join(message.split())
    Prose(stderr=True, highlight=False).print(f"[bold red]{heading}[/]{escape(one_line)}", soft_wrap=True)
    # If the arguments are wrong they may not have been parsed, so look at them directly.
    if "--json" in sys.argv[1:]:
        with suppress(OSError):  # standard output may be what failed
            write_document({"error": {"kind": kind, "message": one_line}})


def show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Print a warning as a note; replaces ``warnings.showwarning``."""
    note(message.shell_text if isinstance(message, SeachangeWarning) else f"{filename}:{lineno}: {message}")
