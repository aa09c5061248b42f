"""A field's trailing comment is its documentation: ``clip: float = inf  # M: largest weight of a round``.

The fields of a record become a table below its docstring, with these comments, types and defaults.
"""

from __future__ import annotations

import io
import tokenize
from typing import Any

import griffe

COMMENTS: dict[Any, dict[int, str]] = {}


class FieldComments(griffe.Extension):
    """Shows the fields of records with the comments beside them, which say what a knob does."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Make a table of the fields, those of base classes first."""
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
    """What stands behind the code of each line of a file."""
    if file not in COMMENTS:
        tokens = tokenize.generate_tokens(io.StringIO("\n".join(lines[file]) + "\n").readline)
        COMMENTS[file] = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokens
            if token.type == tokenize.COMMENT and token.line[: token.start[1]].strip()
        }
    return COMMENTS[file]
