"""Use the trailing comment of a field as its documentation: ``clip: float = inf  # M: largest weight of a round``.

The fields of a dataclass or struct become a table below its docstring, with types, defaults, and comments.
"""

from __future__ import annotations

import io
import tokenize
from typing import Any

import griffe

COMMENTS: dict[Any, dict[int, str]] = {}


class FieldComments(griffe.Extension):
    """Add a table of fields, with their comments, to the docstrings of dataclasses and structs."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add the table, with the fields of base classes first."""
        if cls.docstring is None or not _is_record(cls):
            return
        fields = [member for member in cls.all_members.values() if member.is_attribute and _is_field(member)]
        shown = [
            griffe.DocstringParameter(
                name=each.name,
                annotation=each.annotation,
                description=_comments(each.filepath, each.lines_collection).get(each.endlineno, ""),
                value=None if each.value is None else str(each.value),
            )
            for each in fields
        ]
        if shown:
            cls.docstring.parsed.append(griffe.DocstringSectionParameters(shown, title="Fields"))


def _is_record(cls: griffe.Class) -> bool:
    return "dataclass" in cls.labels or any(str(base).endswith("Struct") for base in cls.bases)


def _is_field(member: Any) -> bool:
    private_or_learned = member.name.startswith("_") or member.name.endswith("_")
    return bool(member.annotation) and "property" not in member.labels and not private_or_learned


def _comments(file: Any, lines: Any) -> dict[int, str]:
    """The trailing comment of each line of a file."""
    if file not in COMMENTS:
        tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines[file]) + "\n").readline)
        COMMENTS[file] = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokens
            if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
        }
    return COMMENTS[file]
