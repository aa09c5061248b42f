"""Fields inside records as columns of their own: item.id of {"item": {"id": 7, "price": 3}}."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

import polars

from seachange.errors import LogError, did_you_mean
from seachange.formats.column_roles import listed

FieldPath = tuple[str, ...]  # the names of the records around a field, then its own
Types = Mapping[str, Any]  # polars types by name


def paths_to(names: Iterable[str], tables: Sequence[Types]) -> dict[str, FieldPath]:
    """Find fields that are not columns of any table; a LogError names the first that does not exist."""
    found: dict[str, FieldPath] = {}
    for name in names:
        paths = [path for types in tables if (path := path_to(name, types)) is not None]
        if not paths:
            fields = fields_in(tables)
            raise LogError(
                f"the table has neither a column {name!r} nor a nested field of that name; it has "
                f"{listed(fields)}.{did_you_mean(name, fields)}"
            )
        found[name] = paths[0]
    return found


def fields_in(tables: Sequence[Types]) -> list[str]:
    """List all columns, with the fields of records in place of the records."""
    found = []
    for types in tables:
        for name, dtype in types.items():
            inner = fields_in([fields_of(dtype)])
            found += [f"{name}.{each}" for each in inner] if inner else [name]
    return list(dict.fromkeys(found))


def path_to(name: str, types: Types) -> FieldPath | None:
    """Return the path to a nested field, or None."""
    for i in (i for i, letter in enumerate(name) if letter == "."):
        head, rest = name[:i], name[i + 1 :]
        fields = fields_of(types.get(head))
        if rest in fields:
            return head, rest
        if (inner := path_to(rest, fields)) is not None:
            return head, *inner
    return None


def lifting(types: Types, paths: Mapping[str, FieldPath]) -> list[polars.Expr]:
    """Return expressions that select these fields as columns, and the rest of the table without them."""

    def without(paths: Sequence[FieldPath], types: Types, column: Any) -> list[polars.Expr]:
        kept = []
        for name, dtype in types.items():
            inner = [path[1:] for path in paths if path[0] == name]
            if not inner:
                kept.append(column(name))
            elif () not in inner:
                fields = without(inner, fields_of(dtype), column(name).struct.field)
                kept += [polars.struct(fields).alias(name)] if fields else []
        return kept

    def field(path: FieldPath) -> polars.Expr:
        return reduce(lambda column, name: column.struct.field(name), path[1:], polars.col(path[0]))

    rest = without(list(paths.values()), types, polars.col)
    return rest + [field(path).alias(name) for name, path in paths.items()]


def lifted(record: Mapping[str, Any], paths: Mapping[str, FieldPath]) -> dict[str, Any]:
    """Do the same to one record."""

    def without(record: Mapping[str, Any], paths: Sequence[FieldPath]) -> dict[str, Any]:
        found = {}
        for name, value in record.items():
            inner = [path[1:] for path in paths if path[0] == name]
            if inner and isinstance(value, dict):
                value = without(value, inner) if () not in inner else {}
                if not value:
                    continue
            elif () in inner:
                continue
            found[name] = value
        return found

    def field(path: FieldPath) -> Any:
        value: Any = record
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    return without(record, list(paths.values())) | {name: field(path) for name, path in paths.items()}


def lowered(types: Types, paths: Mapping[str, FieldPath]) -> dict[str, Any] | None:
    """Return the types with fields back inside their records; None if one of these is not a record throughout."""

    def with_field(dtype: Any, path: FieldPath, inner: Any) -> Any:
        fields, (name, *rest) = fields_of(dtype), path
        return polars.Struct({**fields, name: with_field(fields.get(name), tuple(rest), inner) if rest else inner})

    found = {name: dtype for name, dtype in types.items() if name not in paths}
    for name, path in paths.items():
        if name in types:
            if not isinstance(found.get(path[0], polars.Null()), polars.Struct | polars.Null):
                return None
            found[path[0]] = with_field(found.get(path[0]), path[1:], types[name])
    return found


def fields_of(dtype: Any) -> dict[str, Any]:
    """The fields of a record type; none of any other."""
    return {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, polars.Struct) else {}
