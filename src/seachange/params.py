"""Hyperparameters in the style of scikit-learn for dataclasses, their checks, and the text of result records."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from seachange.errors import NotFittedError
from seachange.errors import require as require
from seachange.registry import Arrays, SavedPart

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:
    DataclassInstance = object

Auto = Literal["auto"]
MOST_SHOWN = 8  # entries of an array or tuple that a text shows


class Brief(DataclassInstance):
    """A dataclass whose text fits a few lines: long arrays are shown by type and shape."""

    def __repr__(self) -> str:
        values = ", ".join(f"{field.name}={_brief(getattr(self, field.name))}" for field in fields(self))
        return f"{type(self).__name__}({values})"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray) and (value.ndim != 1 or value.size > MOST_SHOWN):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, np.ndarray):
        return np.array2string(value, max_line_width=1000, precision=4, separator=", ")
    return f"<{len(value)} entries>" if isinstance(value, tuple) and len(value) > MOST_SHOWN else repr(value)


class Params(DataclassInstance):
    """A keyword-only dataclass whose fields are hyperparameters and whose ``name_`` attributes are learned."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyperparameters by name. ``deep`` has no effect; scikit-learn passes it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change hyperparameters in place."""
        known = self.get_params()
        for name, value in params.items():
            require(name in known, f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def clone(self) -> Self:
        """A copy with the same hyperparameters and nothing learned."""
        return type(self)(**self.get_params())

    def saved_params(self) -> dict[str, Any]:
        """The hyperparameters that a model file keeps."""
        return self.get_params()

    def learned(self) -> tuple[Any, Arrays]:
        """What a model file keeps apart from hyperparameters: something that JSON can hold, and arrays by name."""
        return None, {}

    @classmethod
    def restore(cls, part: SavedPart, joint: Any, labels: Any) -> Self:
        """The object that a model file holds, for a model with these joint features and labels."""
        return part.restored(cls)

    def __repr__(self) -> str:
        """Show the hyperparameters that differ from their defaults."""
        texts = {field.name: (repr(getattr(self, field.name)), repr(field.default)) for field in fields(self)}
        changed = ", ".join(f"{name}={text}" for name, (text, default) in texts.items() if text != default)
        return f"{type(self).__name__}({changed})"

    def __getattr__(self, name: str) -> Any:
        """Explain a missing learned attribute: not fitted yet, or no such attribute."""
        learned = [each for each in (*vars(self), name) if each.endswith("_") and not each.startswith("_")]
        if learned == [name]:
            raise NotFittedError(f"{type(self).__name__} has no {name} yet; call fit(log) first.")
        known = f"; it has learned {', '.join(learned[:-1])}" if name in learned else ""
        raise AttributeError(f"{type(self).__name__} has no {name}{known}.")


def require_count(name: str, value: Any, *, auto: bool = False) -> None:
    """Raise a ``ParameterError`` unless ``value`` is a positive integer, or "auto" if ``auto`` allows it."""
    whole = isinstance(value, int | Integral) and not isinstance(value, bool)
    choices = ' or "auto"' if auto else ""
    require((auto and value == "auto") or (whole and value >= 1), f"{name} must be at least 1{choices}; got {value!r}.")


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The text of a record: a title and aligned rows, flush left or, if there are headings, flush right."""
    cells = [*([columns] if columns else []), *rows]
    if not cells:
        return title
    first, *widths = (max(map(len, column)) for column in zip(*cells, strict=True))
    if not columns:
        widths = [0] * len(widths)
    lines = ["  ".join(["", row[0].ljust(first), *map(str.rjust, row[1:], widths)]).rstrip() for row in cells]
    return "\n".join([title, *lines])
