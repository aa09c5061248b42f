"""The rules a log must keep, checked once, before a BanditLog exists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ParameterError
from seachange.log.columns import Columns
from seachange.log.joint import JointFeatures, LogArrays
from seachange.protocols import Bools, Floats, Ints

OnBadRows = Literal["raise", "drop"]
# A row sum or a stated propensity may be off by this much, to allow for rounding where the log was written.
PROBABILITY_TOLERANCE = 1e-6
# Nothing that is less likely than this was ever logged: such a propensity stands for something else.
LEAST_PROPENSITY = 1e-12
# Squares of rewards and features, and their sums, must stay numbers.
LARGEST = 1e100
TINY_HINT = " (nothing less likely was ever logged: write down what the actions were chosen with, or leave them out)"
MISSING_HINT = " (missing_rewards=True lets NaN stand for rounds nobody observed)"


class Broken(NamedTuple):
    """A rule about single rows, and the rows that break it."""

    rows: Bools  # (n,)
    rule: str
    values: npt.NDArray[Any]  # (n,) what the rows have


def row_named(row: int) -> str:
    """Where a row is, for errors."""
    return f"row {row}"


def validated(columns: Columns, missing_rewards: bool, on_bad_rows: OnBadRows) -> dict[str, Any]:
    """The fields of a BanditLog, or a LogError that names the rule, the row, the extent and the fix."""
    return require_some(without_broken(columns, broken_rules(columns, missing_rewards), on_bad_rows), len(columns))


def require_some(fields: dict[str, Any], n: int) -> dict[str, Any]:
    """The fields of a BanditLog, or a LogError where none of its ``n`` rows is left."""
    if len(fields["arrays"].actions) == 0:
        raise LogError(
            f'none of the {n} rows keeps the rules of a log; on_bad_rows="raise" says which one breaks first.'
        )
    return fields


def without_broken(
    columns: Columns, rules: Sequence[Broken], on_bad_rows: OnBadRows, where: Callable[[int], str] = row_named
) -> dict[str, Any]:
    """The fields of a BanditLog without the rows that break ``rules``, or a LogError that says ``where`` they are."""
    if on_bad_rows not in ("raise", "drop"):
        raise ParameterError(f'on_bad_rows must be "raise" or "drop"; got {on_bad_rows!r}.')
    n = len(columns)
    good = np.ones(n, dtype=bool)
    dropped: list[tuple[str, int]] = []
    for broken in rules:
        if on_bad_rows == "raise":
            row = int(broken.rows.argmax())
            raise LogError(
                f"{broken.rule}; {where(row)} has {_shown(broken.values[row])} ({int(broken.rows.sum())} of {n} rows "
                'are bad). Drop them with on_bad_rows="drop".'
            )
        if (broken.rows & good).any():
            dropped.append((broken.rule, int((broken.rows & good).sum())))
        good &= ~broken.rows
    _require_time_order(columns.times, columns.sequences, good, where)
    return {**_fields(columns, slice(None) if not dropped else good), "dropped": tuple(dropped)}


def _fields(columns: Columns, keep: Any) -> dict[str, Any]:
    """The fields of a BanditLog with the rows that are kept."""

    def kept(array: npt.NDArray[Any] | None) -> Any:
        return None if array is None else array[keep]

    actions, mask = columns.actions[keep], kept(columns.action_mask)
    joint, rows = _joint_rows(columns, keep)
    return {
        "arrays": LogArrays(
            rows,
            joint.mask(None if mask is None or mask.all() else mask, len(actions)),
            actions.astype(np.int64, copy=False),
            columns.rewards[keep],
            np.full(len(actions), np.nan) if columns.propensities is None else columns.propensities[keep],
        ),
        "joint": joint,
        "action_names": _names("action_names", columns.action_names, columns.n_actions, "action "),
        "context_names": _names("context_names", columns.context_names, joint.n_features, "x"),
        "logging_probs": kept(columns.logging_probs),
        "propensity_source": "unknown" if columns.propensities is None else "logged",
        "times": kept(columns.times),
        "sequences": kept(columns.sequences),
    }


def _joint_rows(columns: Columns, keep: Any) -> tuple[JointFeatures, Floats]:
    """The kind of context, and its rows as kernels take them."""
    if columns.made is not None:
        joint, rows = columns.made
        return joint, rows if joint.kind == "none" else rows[keep]
    if columns.action_features is not None:
        joint = JointFeatures("per action", columns.n_actions, columns.action_features.shape[2])
        return joint, joint.rows(columns.action_features[keep])
    contexts = np.empty((len(columns), 0)) if columns.contexts is None else columns.contexts
    joint = JointFeatures("shared" if contexts.shape[1] else "none", columns.n_actions, contexts.shape[1])
    return joint, joint.rows(contexts[keep])


def broken_rules(columns: Columns, missing_rewards: bool) -> list[Broken]:
    """The rules about single rows that some rows break."""
    return [broken for broken in _rules(columns, missing_rewards) if broken.rows.any()]


def _rules(columns: Columns, missing_rewards: bool) -> list[Broken]:
    actions, rewards, n_actions = columns.actions, columns.rewards, columns.n_actions
    with np.errstate(invalid="ignore"):
        bad_action = ~((actions >= 0) & (actions < n_actions) & (actions == np.floor(actions)))
    places = f"actions must be whole numbers from 0 to {n_actions - 1}"
    action_rule = places if columns.action_names is None else f"every round must have one of the {n_actions} actions"
    return [
        Broken(bad_action, action_rule, actions),
        *_broken_rewards(rewards, missing_rewards),
        *_broken_propensities(columns.propensities),
        *_broken_features("contexts", columns.contexts, columns.context_names),
        *_broken_features("action_features", columns.action_features, None),
        *_broken_distributions(columns, bad_action),
        *_broken_labels(columns),
    ]


def _broken_rewards(rewards: Floats, missing_rewards: bool) -> list[Broken]:
    if _all_within(rewards, -LARGEST, LARGEST):
        return []
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(rewards) <= LARGEST) & ~(missing_rewards & np.isnan(rewards))
    hint = "" if missing_rewards else MISSING_HINT
    return [Broken(bad, f"rewards must be finite and at most {LARGEST:g} in size{hint}", rewards)]


def _broken_propensities(propensities: Floats | None) -> list[Broken]:
    if propensities is None or _all_within(propensities, LEAST_PROPENSITY, 1):
        return []
    with np.errstate(invalid="ignore"):
        outside = ~((propensities > 0) & (propensities <= 1))
        tiny = ~outside & (propensities < LEAST_PROPENSITY)
    return [
        Broken(outside, "propensities must be in (0, 1]", propensities),
        Broken(tiny, f"propensities must be at least {LEAST_PROPENSITY:g}{TINY_HINT}", propensities),
    ]


def _all_within(values: Floats, low: float, high: float) -> bool:
    """Whether no value is outside or missing: most often so, and soon seen."""
    return bool(len(values) and values.min() >= low and values.max() <= high)


def _broken_probs(probs: Floats) -> list[Broken]:
    sums = probs.sum(axis=1)
    off = ~(np.abs(sums - 1) <= PROBABILITY_TOLERANCE) | (probs < 0).any(axis=1)
    return [Broken(off, "logging_probs must be non-negative and sum to 1", sums)]


def require_probabilities(propensities: Floats, logging_probs: Floats | None) -> None:
    """Raise where propensities (n,), or whole logging distributions (n, K), break a rule of logs."""
    rules = _broken_propensities(propensities) + ([] if logging_probs is None else _broken_probs(logging_probs))
    for broken in rules:
        if broken.rows.any():
            row = int(broken.rows.argmax())
            raise LogError(
                f"{broken.rule}; row {row} has {_shown(broken.values[row])} ({int(broken.rows.sum())} of "
                f"{len(propensities)} rows are bad)."
            )


def _broken_features(name: str, array: Floats | None, names: Sequence[str] | None) -> list[Broken]:
    if array is None or array.size == 0:
        return []
    bad = ~np.isfinite(array)
    if array.dtype == np.float64:  # single precision ends long before
        bad |= np.abs(array) > LARGEST
    flat, values = bad.reshape(len(array), -1), array.reshape(len(array), -1)
    rows: Bools = np.asarray(flat.any(axis=1))
    place = int(flat[int(rows.argmax())].argmax())
    column = ", ".join(str(int(i)) for i in np.unravel_index(place, array.shape[1:]))
    if names is not None and len(names) == array.shape[1]:
        column = names[place]
    return [Broken(rows, f"{name} must be finite (column {column})", values[:, place])]


def _broken_distributions(columns: Columns, bad_action: Bools) -> list[Broken]:
    broken: list[Broken] = []
    if columns.action_mask is None and columns.logging_probs is None:
        return broken
    everyone = np.arange(len(columns))
    taken = np.where(bad_action, 0, np.nan_to_num(columns.actions, nan=0, posinf=0, neginf=0)).astype(np.int64)
    if columns.action_mask is not None:
        forbidden = ~columns.action_mask[everyone, taken]
        broken.append(Broken(forbidden, "action_mask must allow the action that was taken", columns.actions))
    if columns.logging_probs is not None and columns.propensities is not None:
        broken += _broken_probs(columns.logging_probs)
        stated = columns.logging_probs[everyone, taken]
        differs = ~(np.abs(stated - columns.propensities) <= PROBABILITY_TOLERANCE)
        broken.append(Broken(differs, "logging_probs at the action taken must equal propensities", stated))
    return broken


def _broken_labels(columns: Columns) -> list[Broken]:
    broken, times, sequences = [], columns.times, columns.sequences
    if times is not None:
        unknown = np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times)
        broken.append(Broken(unknown, "times must be known", times))
    if sequences is not None:
        unknown = np.asarray(sequences != sequences, dtype=bool)  # NaN and NaT
        if sequences.dtype.kind == "O":
            unknown |= np.asarray(sequences == np.array(None), dtype=bool)
        broken.append(Broken(unknown, "sequences must be known", sequences))
    return broken


def _require_time_order(times: Any, sequences: Any, good: Bools, where: Callable[[int], str]) -> None:
    """Raise where time goes backwards within a sequence of the ``good`` rows."""
    if times is None:
        return
    rows: Ints | slice = slice(None) if good.all() else np.flatnonzero(good)
    if sequences is not None:
        rows = np.arange(len(good))[rows]
        rows = rows[np.argsort(sequences[rows], kind="stable")]
    kept = times[rows]
    back = kept[1:] < kept[:-1]
    if sequences is not None:
        back &= sequences[rows][1:] == sequences[rows][:-1]
    if back.any():
        i = int(back.argmax())
        earlier, row = np.arange(len(good))[rows][i : i + 2].tolist()
        raise LogError(
            f"times must not go backwards; {where(row)} has {_shown(times[row])} after {_shown(times[earlier])} "
            f"({int(back.sum())} of {len(times)} rows are bad). Sort the log by time."
        )


def _names(what: str, names: Sequence[str] | None, count: int, stem: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{stem}{i}" for i in range(count))
    if len(names) != count:
        raise LogError(f"{what} must name each of the {count}; it has {len(names)} names.")
    if len(set(names)) < count:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise LogError(f"{what} must differ; {twice!r} is there twice.")
    return tuple(str(name) for name in names)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
