"""The pages of the documentation, and their examples run as they stand.

In a page, in order, in one folder and with one set of names:

    ```python         runs
    ```text printed   is what the block above it printed
    ```console        lines after "$ " run; the lines below each are what it prints
    ```sh             lines that start with "seachange " run; what they print is not looked at

"..." or "…" in what is printed stands for anything, and all spaces are alike. A fence without a language is a ``sh``.
Words behind the language: ``long`` runs with the long tests only, ``exit-1`` expects that exit code. Fences within
comments of a page run too, for what an example needs and a reader does not.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")))

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*) *(?P<words>.*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def commands(self) -> list[tuple[str, str | None]]:
        """What a shell would be given, each with what it should print, or None where that is not said."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            parts = re.split(r"^\$ (.*)\n?", text, flags=re.MULTILINE)[1:]
            return list(zip(parts[::2], parts[1::2], strict=True))
        if self.language in ("", "sh"):
            return [(line, None) for line in text.splitlines() if line.startswith("seachange ")]
        return []

    @property
    def runs(self) -> bool:
        """Whether there is anything to run or to compare."""
        return self.language == "python" or "printed" in self.words or bool(self.commands)


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, those in comments too."""
    opened: tuple[int, re.Match[str]] | None = None
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None:
            if found := FENCE.match(line):
                opened, inside = (number, found), []
        elif line.strip() == "```":
            start, fence = opened
            yield Block(start, fence["language"], tuple(fence["words"].split()), "\n".join([*inside, ""]))
            opened = None
        else:
            inside.append(line.removeprefix(opened[1]["indent"]))
    assert opened is None, f"the fence of line {opened[0]} is not closed"


@dataclass(frozen=True)
class Ran:
    """What came of a page's examples."""

    names: dict[str, Any]  # that its Python left behind
    commands: list[tuple[str, str]]  # each with all it printed, in order


def run_page(name: str, text: str, *, long: bool = False) -> Ran:
    """Run the examples of a page in the current folder."""
    ran = Ran({"__name__": "__main__"}, [])
    printed = ""
    for block in blocks_of(text):
        where = f"{name}, line {block.line}"
        if not block.runs or ("long" in block.words and not long):
            continue
        if block.language == "python":
            source = "\n" * block.line + block.text  # so that a traceback names the line of the page
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(source, name, "exec"), ran.names)
            printed = out.getvalue()
        elif "printed" in block.words:
            require_same(block.text, printed, where)
        for command, shown in block.commands:
            code, told = run_command(command)
            ran.commands.append((" ".join(command.split()), told))
            expected = next((int(word[5:]) for word in block.words if word.startswith("exit-")), 0)
            assert code == expected, f"{where}: {command!r} ended with {code}:\n{told}"
            if shown is not None:
                require_same(shown, told, f"{where}: {command}")
    return ran


def suggested(printed: str) -> list[str]:
    """The commands that one that printed this suggests, in order, without what they are for."""
    _, _, lines = printed.partition("Next: ")
    return [line.partition("  #")[0].strip() for line in lines.splitlines() if line.strip()]


def run_command(command: str) -> tuple[int, str]:
    """The exit code of a ``seachange`` command and all it prints, on a terminal of 80 columns."""
    from seachange.cli import main

    words = shlex.split(command, comments=True)
    assert words[0] == "seachange", f"only seachange commands run, not {command!r}: show others in a fence of sh"
    out, code = io.StringIO(), 0
    with (
        warnings.catch_warnings(), patch.object(sys, "argv", words), patch.dict("os.environ", COLUMNS="80"),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(out),
    ):  # fmt: skip
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return code, out.getvalue()


def require_same(shown: str, printed: str, where: str) -> None:
    """Fail where a page shows something else than was printed."""
    parts = (re.escape(" ".join(part.split())) for part in re.split(r"\.\.\.|…", shown))
    if not re.fullmatch(".*".join(parts), " ".join(printed.split())):
        raise AssertionError(f"{where} shows\n{shown}\nbut this was printed:\n{printed}")
