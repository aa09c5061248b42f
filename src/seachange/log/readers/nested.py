"""Fields inside of records, lifted out to be columns of their own: item.id of {"item": {"id": 7, "price": 3}}."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from seachange.errors import LogError, did_you_mean
from seachange.log.readers.places import listed

if TYPE_CHECKING:
    import polars

FieldPath = tuple[str, ...]
Types = Mapping[str, Any]


def paths_to(names: Iterable[str], tables: Sequence[Types]) -> dict[str, FieldPath]:
    """Where fields are that are no columns of any table; a LogError names what is nowhere."""
    found: dict[str, FieldPath] = {}
    for name in names:
        paths = [path for types in tables if (path := path_to(name, types)) is not None]
        if not paths:
            fields = fields_in(tables)
            raise LogError(
                f"the table has neither a column {name!r} nor a field of that name inside of a record; it has "
                f"{listed(fields)}.{did_you_mean(name, fields)}"
            )
        found[name] = paths[0]
    return found


def fields_in(tables: Sequence[Types]) -> list[str]:
    """The names of all columns, records by those of their fields."""
    found = []
    for types in tables:
        for name, dtype in types.items():
            inner = fields_in([_fields(dtype)])
            found += [f"{name}.{each}" for each in inner] if inner else [name]
    return list(dict.fromkeys(found))


def path_to(name: str, types: Types) -> FieldPath | None:
    """The names of the records around a field, and its own; None where there is none."""
    for i in (i for i, letter in enumerate(name) if letter == "."):
        head, rest = name[:i], name[i + 1 :]
        fields = _fields(types.get(head))
        if rest in fields:
            return head, rest
        if (inner := path_to(rest, fields)) is not None:
            return head, *inner
    return None


def lifting(types: Types, paths: Mapping[str, FieldPath]) -> list[polars.Expr]:
    """What selects the columns of a table: these fields as columns, and the records without them."""
    import polars

    rest = _without(list(paths.values()), types, polars.col)
    return rest + [reduce(_field, path[1:], polars.col(path[0])).alias(name) for name, path in paths.items()]


def lifted(record: Mapping[str, Any], paths: Mapping[str, FieldPath]) -> dict[str, Any]:
    """The same of one record."""
    return _row_without(record, list(paths.values())) | {name: _value(record, path) for name, path in paths.items()}


def lowered(types: Types, paths: Mapping[str, FieldPath]) -> dict[str, Any] | None:
    """The types of a table whose fields are where they were; None where a column is no record throughout."""
    import polars

    found = {name: dtype for name, dtype in types.items() if name not in paths}
    for name, path in paths.items():
        if name in types:
            if not isinstance(found.get(path[0], polars.Null()), polars.Struct | polars.Null):
                return None
            found[path[0]] = _with_field(found.get(path[0]), path[1:], types[name])
    return found


def _without(paths: Sequence[FieldPath], types: Types, column: Any) -> list[polars.Expr]:
    import polars

    kept = []
    for name, dtype in types.items():
        inner = [path[1:] for path in paths if path[0] == name]
        if not inner:
            kept.append(column(name))
        elif () not in inner:
            fields = _without(inner, _fields(dtype), column(name).struct.field)
            kept += [polars.struct(fields).alias(name)] if fields else []
    return kept


def _row_without(record: Mapping[str, Any], paths: Sequence[FieldPath]) -> dict[str, Any]:
    found = {}
    for name, value in record.items():
        inner = [path[1:] for path in paths if path[0] == name]
        if inner and isinstance(value, dict):
            value = _row_without(value, inner) if () not in inner else {}
            if not value:
                continue
        elif () in inner:
            continue
        found[name] = value
    return found


def _field(column: polars.Expr, name: str) -> polars.Expr:
    return column.struct.field(name)


def _value(record: Any, path: FieldPath) -> Any:
    for name in path:
        record = record.get(name) if isinstance(record, Mapping) else None
    return record


def _with_field(dtype: Any, path: FieldPath, inner: Any) -> Any:
    import polars

    fields, (name, *rest) = _fields(dtype), path
    return polars.Struct({**fields, name: _with_field(fields.get(name), tuple(rest), inner) if rest else inner})


def _fields(dtype: Any) -> dict[str, Any]:
    import polars

    return {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, polars.Struct) else {}
