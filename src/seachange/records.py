"""Printing of result records: a title and aligned lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def lines_of(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """A title, and names and values side by side."""
    return table_of(title, [], rows)


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A title and rows of text, the first column flush left and, if there are headings, the others flush right."""
    cells = [*([columns] if columns else []), *rows]
    if not cells:
        return title
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = []
    for row in cells:
        others = row[1:]
        if columns:
            others = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(["", row[0].ljust(widths[0]), *others]).rstrip())
    return "\n".join([title, *lines])
