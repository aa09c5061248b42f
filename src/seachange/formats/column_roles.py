"""Which column of a table holds the action, the reward and so on: named by the user or found by its name."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import polars

from seachange.errors import LogError, did_you_mean, warn

Columns = Mapping[str, str | Sequence[str]]  # the user's choices: role → column, and "contexts" → several columns
# The usual names of each role's column: letters and digits only, in lower case, so that itemid also stands for item_id,
# ItemID and "item id". A group counts only if no column is in the groups before it.
USUAL_NAMES: dict[str, tuple[frozenset[str], ...]] = {
    role: tuple(frozenset(group.split()) for group in groups)
    for role, groups in {
        "action": (
            "action actions",
            "actionid item itemid arm armid variant variantid choice treatment adid bannerid productid contentid "
            "articleid offerid creativeid",
        ),
        "reward": (
            "reward rewards",
            "click clicked clicks isclick isclicked conversion converted purchase purchased revenue label y outcome",
        ),
        "propensity": (
            "propensity propensities pscore pscores propensityscore propensityscores",
        ),
        "time": (
            "time timestamp",
            "ts datetime date eventtime eventtimestamp timeutc timestampms timestampus timestampns createdat",
        ),
        "sequence": ("sequence sequenceid",),
    }.items()
}  # fmt: skip
REQUIRED = ("action", "reward")
# Names that may stand for propensities.
PROPENSITY_LIKE = re.compile(
    r"(logging|logged|action|behaviou?r|policy|selection|label)*"
    r"(p|p0|pi|pi0|π|π0|probs?|proba|probability|probabilities|propensity|propensities|pscores?|propensityscores?)"
)
# The names that an unnamed pandas index gets in a file. It numbers the rows and is not a context.
ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
MOST_LISTED = 40


class Roles(NamedTuple):
    """The column of each role."""

    columns: dict[str, str]  # role → column
    found: dict[str, str]  # those of them that the user did not name
    contexts: list[str] | None  # if the user named them


def find_roles(available: Sequence[str], columns: Columns, fields: Callable[[], Sequence[str]] | None = None) -> Roles:
    """Decide which of the ``available`` columns holds the action, the reward and so on.

    ``fields`` lists what else a user could name, such as nested fields.
    """
    known = (*USUAL_NAMES, "contexts")
    for role in columns:
        if role not in known:
            raise LogError(f"columns takes {', '.join(known)}; it has no {role!r}.{did_you_mean(role, known)}")
    contexts = context_columns(columns)
    named = {role: str(columns[role]) for role in USUAL_NAMES if role in columns}
    known_names = {*available}
    for name in (*(contexts or ()), *named.values()):
        if name not in known_names:
            raise LogError(
                f"the table has no column {name!r}; it has {listed(available)}.{did_you_mean(name, available)}"
            )
    taken = {*named.values(), *(contexts or ())}
    free = [name for name in available if name not in taken]
    found = {role: name for role in USUAL_NAMES if role not in named and (name := _usual(role, free)) is not None}
    chosen = named | found
    if missing := [role for role in REQUIRED if role not in chosen]:
        options = ",".join(f"{role}=COLUMN" for role in missing)
        raise LogError(
            f"cannot tell which column holds the {' or the '.join(missing)}; the table has "
            f"{listed(available if fields is None else fields())}. "
            f"Specify {'it' if len(missing) == 1 else 'them'}: --columns {options}, or columns={{{missing[0]!r}: ...}} "
            "in Python."
        )
    for (role, name), (other, same) in combinations(chosen.items(), 2):
        if name == same:
            raise LogError(f"column {name!r} cannot be both {role} and {other}.")
    return Roles({role: chosen[role] for role in USUAL_NAMES if role in chosen}, found, contexts)


def context_columns(columns: Columns) -> list[str] | None:
    """Return the columns that the user named as contexts; None if they named none."""
    contexts = columns.get("contexts")
    if contexts is None:
        return None
    return [contexts] if isinstance(contexts, str) else [str(name) for name in contexts]


def default_contexts(
    available: Sequence[str], roles: Mapping[str, str], samples: Mapping[str, polars.Series], every: bool = False
) -> list[str]:
    """Return the columns that are contexts if the user named none; ``samples`` are the first values of each column.

    Those that may hold the propensities are left out, unless ``every`` column is wanted.
    """
    taken = set(roles.values())
    free = [name for name in available if name not in taken]
    if numbers := [name for name in free if ROW_NUMBERS.fullmatch(name)]:
        warn(
            f"columns {', '.join(map(repr, numbers))} look like the index of a table and are not used as contexts. "
            "To use them anyway, list them under contexts."
        )
    free = [name for name in free if name not in numbers]
    if every or "propensity" in roles:
        return free
    if alike := [name for name in free if _may_be_propensities(samples[name])]:
        warn(
            f"column {' and '.join(map(repr, alike))} may hold the propensities (its name suggests it, and all values "
            f'are in (0, 1]), so it is not used as a context. If it does, pass columns={{"propensity": {alike[0]!r}}}, '
            f"or --columns {shlex.quote(f'propensity={alike[0]}')} in a shell. If not, name it as a context to use it."
        )
    return [name for name in free if name not in alike]


def require_no_columns(columns: Columns | None, description: str) -> None:
    """Raise a LogError if the user names columns of a format that has none."""
    if columns:
        given = next(iter(columns))
        raise LogError(f"{description} has a fixed place for everything and takes no columns; got {given!r}.")


def listed(names: Sequence[str]) -> str:
    """Join names with commas; only the first of very many."""
    shown = ", ".join(names[:MOST_LISTED])
    return shown if len(names) <= MOST_LISTED else f"{shown} and {len(names) - MOST_LISTED} more"


def named_like_propensities(name: str) -> bool:
    """Whether a column's name suggests propensities."""
    return PROPENSITY_LIKE.fullmatch(_bare(name)) is not None


def _may_be_propensities(column: polars.Series) -> bool:
    if not column.dtype.is_numeric() or not named_like_propensities(column.name):
        return False
    seen = column.cast(float).drop_nulls().drop_nans()
    return len(seen) > 0 and bool(((seen > 0) & (seen <= 1)).all())


def _bare(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub(r"[\W_]", "", name.lower())


def _usual(role: str, free: Sequence[str]) -> str | None:
    """Return the free column with a usual name of a role."""
    for group in USUAL_NAMES[role]:
        candidates = [name for name in free if _bare(name) in group]
        exact = [name for name in candidates if name == role]
        if len(candidates) > 1 and not exact:
            raise LogError(
                f"the {role} could be {' or '.join(map(repr, candidates))}. Choose one: "
                f"columns={{{role!r}: {candidates[0]!r}}}, or --columns {role}={candidates[0]} in a shell."
            )
        if candidates:
            return (exact or candidates)[0]
    return None
