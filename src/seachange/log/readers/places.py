"""Which column of a table holds what: told by the user, or found by the usual names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from seachange.errors import LogError, SeachangeWarning, did_you_mean

if TYPE_CHECKING:
    import polars

# The words of a column mapping, and the names that are taken for them where it is silent: letters and digits alone, in
# lower case, so that itemid is also item_id, ItemID and "item id". Each group is tried when those before it are absent.
USUAL_NAMES: dict[str, tuple[frozenset[str], ...]] = {
    word: tuple(frozenset(group.split()) for group in groups)
    for word, groups in {
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
# Names that may mean propensities.
LIKE_PROPENSITIES = re.compile(
    r"(logging|logged|action|behaviou?r|policy|selection|label)*"
    r"(p|p0|pi|pi0|π|π0|probs?|proba|probability|probabilities|propensity|propensities|pscores?|propensityscores?)"
)
# What becomes of a pandas index without a name in a file: it numbers rows and is no context.
ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")


class Places(NamedTuple):
    """Where things are."""

    columns: dict[str, str]  # a column for each word
    found: dict[str, str]  # those of them that nobody named


def find_places(
    available: Sequence[str],
    columns: Mapping[str, str | Sequence[str]],
    fields: Callable[[], Sequence[str]] | None = None,
) -> Places:
    """Which of the columns there are holds the action, the reward and so on.

    ``fields`` gives what could be named as well, such as fields inside of records.
    """
    words = (*USUAL_NAMES, "contexts")
    for word in columns:
        if word not in words:
            raise LogError(f"columns knows {', '.join(words)}; it does not know {word!r}.{did_you_mean(word, words)}")
    contexts = asked_contexts(columns) or []
    require_columns(contexts, available)
    places: dict[str, str] = {}
    for word in USUAL_NAMES:
        if word in columns:
            require_columns([str(columns[word])], available)
            places[word] = str(columns[word])
    spoken_for = {*places.values(), *contexts}
    free = [name for name in available if name not in spoken_for]
    found = {word: name for word in USUAL_NAMES if word not in places and (name := _usual(word, free)) is not None}
    places |= found
    if missing := [word for word in REQUIRED if word not in places]:
        needed = ",".join(f"{word}=..." for word in missing)
        names = available if fields is None else fields()
        raise LogError(
            f"the table has no column for {' and '.join(missing)}; it has {listed(names)}. "
            f"Say which it is: columns={{{missing[0]!r}: ...}}, or --columns {needed} in a shell."
        )
    for word, place in places.items():
        if twins := [other for other in places if places[other] == place and other != word]:
            raise LogError(f"column {place!r} cannot be both {word} and {twins[0]}.")
    return Places({word: places[word] for word in USUAL_NAMES if word in places}, found)


def asked_contexts(columns: Mapping[str, str | Sequence[str]]) -> list[str] | None:
    """The columns that were asked for as contexts; None where nobody said."""
    contexts = columns.get("contexts")
    if contexts is None:
        return None
    return [contexts] if isinstance(contexts, str) else [str(name) for name in contexts]


def free_columns(
    available: Sequence[str], places: Mapping[str, str], samples: Mapping[str, polars.Series]
) -> list[str]:
    """The features of a table that does not say which they are; ``samples`` are the first values of its columns."""
    taken = set(places.values())
    free = [name for name in available if name not in taken]
    if numbers := [name for name in free if ROW_NUMBERS.fullmatch(name)]:
        warnings.warn(
            f"columns {', '.join(map(repr, numbers))} look like the index of a table and are left out of the contexts; "
            "name them as contexts to use them.",
            SeachangeWarning,
            stacklevel=2,
        )
    free = [name for name in free if name not in numbers]
    if "propensity" in places:
        return free
    if alike := [name for name in free if _may_be_propensities(samples[name])]:
        warnings.warn(
            f"column {' and '.join(map(repr, alike))} may hold the propensities (the name says so, and the numbers are "
            f'in (0, 1]) and is left out of the contexts. If it does say so: columns={{"propensity": {alike[0]!r}}}, '
            f"or --columns propensity={alike[0]} in a shell; if not, name it as a context to use it.",
            SeachangeWarning,
            stacklevel=2,
        )
    return [name for name in free if name not in alike]


def _may_be_propensities(column: polars.Series) -> bool:
    if not column.dtype.is_numeric() or not LIKE_PROPENSITIES.fullmatch(bare(column.name)):
        return False
    seen = column.cast(float).drop_nulls().drop_nans()
    return len(seen) > 0 and bool(((seen > 0) & (seen <= 1)).all())


def require_no_columns(columns: Mapping[str, str | Sequence[str]] | None, description: str) -> None:
    """Raise where columns are named for a format that has fixed places for everything."""
    if columns:
        given = next(iter(columns))
        raise LogError(f"{description} has a fixed place for everything and takes no columns; {given!r} is given.")


def bare(name: str) -> str:
    """Letters and digits alone, in lower case."""
    return re.sub(r"[\W_]", "", name.lower())


def require_columns(names: Iterable[str], available: Sequence[str]) -> None:
    """Raise where a column is not there, with the nearest that is."""
    for name in names:
        if name not in available:
            raise LogError(
                f"the table has no column {name!r}; it has {listed(available)}.{did_you_mean(name, available)}"
            )


def _usual(word: str, free: Sequence[str]) -> str | None:
    for group in USUAL_NAMES[word]:
        candidates = [name for name in free if bare(name) in group]
        exact = [name for name in candidates if name == word]
        if len(candidates) > 1 and not exact:
            raise LogError(
                f"the {word} may be {' or '.join(map(repr, candidates))}. Say which it is: "
                f"columns={{{word!r}: {candidates[0]!r}}}, or --columns {word}={candidates[0]} in a shell."
            )
        if candidates:
            return (exact or candidates)[0]
    return None


def listed(names: Sequence[str]) -> str:
    """Names with commas between them, as many as can be borne."""
    shown = ", ".join(names[:40])
    return shown if len(names) <= 40 else f"{shown} and {len(names) - 40} more"
