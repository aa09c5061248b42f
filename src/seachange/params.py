"""Hyperparameters in the style of scikit-learn for dataclasses, their checks, and the text of result records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, fields
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Self

from seachange.errors import NotFittedError, ParameterError, SeachangeError
from seachange.registry import Arrays, SavedPart

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
else:
    DataclassInstance = object

Auto = Literal["auto"]


class Params(DataclassInstance):
    """A keyword-only dataclass whose fields are hyperparameters and whose ``name_`` attributes are learned."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyperparameters by name. ``deep`` has no effect; scikit-learn passes it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Self:
        """Change hyperparameters in place."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ParameterError(f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
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
        changed = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.default is MISSING or _differ(getattr(self, field.name), field.default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __getattr__(self, name: str) -> Any:
        """Explain a missing learned attribute: not fitted yet, or no such attribute."""
        learned = [each for each in vars(self) if _is_learned(each)]
        if learned and _is_learned(name):
            raise AttributeError(f"{type(self).__name__} has no {name}; it has learned {', '.join(learned)}.")
        if _is_learned(name):
            raise NotFittedError(f"{type(self).__name__} has no {name} yet; call fit(log) first.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _is_learned(name: str) -> bool:
    return name.endswith("_") and not name.startswith("_")


def _differ(value: Any, default: Any) -> bool:
    return type(value) is not type(default) or bool(value != default)


def require_count(name: str, value: Any, *, auto: bool = False) -> None:
    """Raise a ``ParameterError`` unless ``value`` is a positive integer, or "auto" if ``auto`` allows it."""
    whole = isinstance(value, int | Integral) and not isinstance(value, bool)
    choices = ' or "auto"' if auto else ""
    require((auto and value == "auto") or (whole and value >= 1), f"{name} must be at least 1{choices}; got {value!r}.")


def require(holds: bool, rule: str, error: type[SeachangeError] = ParameterError) -> None:
    """Raise an error with the text ``rule`` unless it ``holds``."""
    if not holds:
        raise error(rule)


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The text of a record: a title and aligned rows, flush left or, if there are headings, flush right."""
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
