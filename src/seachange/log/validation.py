"""The rules a log must keep, checked once, before a BanditLog exists."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.log.joint import JointFeatures, LogArrays
from seachange.protocols import Bools, Floats, Ints

OnBadRows = Literal["raise", "drop"]
# A row sum or a stated propensity may be off by this much, to allow for rounding where the log was written.
PROBABILITY_TOLERANCE = 1e-6
MISSING_HINT = " (missing_rewards=True lets NaN stand for rounds nobody observed)"
# Squares of rewards and features, and their sums, must stay numbers.
LARGEST = 1e100
# An action beyond this is taken for an identifier, not for a place in a list, unless n_actions says otherwise.
MOST_ACTIONS = 1_000_000


def validated(
    *,
    actions: npt.ArrayLike,
    rewards: npt.ArrayLike,
    propensities: npt.ArrayLike,
    contexts: npt.ArrayLike | None,
    action_features: Any,
    action_mask: npt.ArrayLike | None,
    logging_probs: npt.ArrayLike | None,
    times: npt.ArrayLike | None,
    sequences: npt.ArrayLike | None,
    missing_rewards: bool,
    n_actions: int | None,
    on_bad_rows: OnBadRows,
    action_names: Sequence[str] | None,
    context_names: Sequence[str] | None,
) -> dict[str, Any]:
    """The fields of a BanditLog, or a LogError that names the rule, the row, the extent and the fix."""
    if on_bad_rows not in ("raise", "drop"):
        raise ParameterError(f'on_bad_rows must be "raise" or "drop"; got {on_bad_rows!r}.')
    if contexts is not None and action_features is not None:
        raise ParameterError("give contexts (one vector a round) or action_features (one an action), not both.")
    raw_actions, reward, propensity = (
        _column("actions", actions),
        _column("rewards", rewards),
        _column("propensities", propensities),
    )
    n = len(raw_actions)
    if n == 0:
        raise LogError("the log is empty: it needs at least one round.")
    features = None if action_features is None else _per_action(action_features, n)
    context = None if contexts is None else _matrix("contexts", contexts)
    mask = _optional("action_mask", action_mask, bool)
    if isinstance(action_features, tuple) and features is not None:
        _require_width("action_mask", mask, features.shape[1])
        in_list = np.arange(features.shape[1])[None, :] < np.diff(np.asarray(action_features[1]))[:, None]
        mask = in_list if mask is None or len(mask) != n else mask & in_list
    probs = _optional("logging_probs", logging_probs, np.float64)
    time, sequence = _labels("times", times), _labels("sequences", sequences)
    named = {
        "rewards": reward, "propensities": propensity, "contexts": context, "action_features": features,
        "action_mask": mask, "logging_probs": probs, "times": time, "sequences": sequence,
    }  # fmt: skip
    for name, array in named.items():
        if array is not None and len(array) != n:
            raise LogError(f"every column must have one entry a round; actions has {n} and {name} has {len(array)}.")

    if time is not None and time.dtype.kind not in "iufM":
        raise LogError(f"times must be numbers (seconds) or datetime64; they are {time.dtype}. Parse them first.")
    n_actions = _number_of_actions(n_actions, raw_actions, action_names, features, mask, probs)
    _require_width("action_mask", mask, n_actions)
    _require_width("logging_probs", probs, n_actions)
    good = np.ones(n, dtype=bool)
    dropped: list[tuple[str, int]] = []
    for bad, rule, values in _broken_rules(
        raw_actions,
        n_actions,
        reward,
        missing_rewards,
        propensity,
        context,
        features,
        mask,
        probs,
        time,
        sequence,
        context_names,
        action_names,
    ):
        if on_bad_rows == "raise" and bad.any():
            row = int(bad.argmax())
            raise LogError(
                f"{rule}; row {row} has {_shown(values[row])} ({int(bad.sum())} of {n} rows are bad). "
                'Drop them with on_bad_rows="drop".'
            )
        if (bad & good).any():
            dropped.append((rule, int((bad & good).sum())))
        good &= ~bad
    if not good.any():
        raise LogError(
            f'none of the {n} rows keeps the rules of a log; on_bad_rows="raise" says which one breaks first.'
        )

    keep: Any = slice(None) if good.all() else good
    _require_time_order(time, sequence, np.flatnonzero(good))
    kind = "per action" if features is not None else ("none" if context is None or context.shape[1] == 0 else "shared")
    width = features.shape[2] if features is not None else (0 if context is None else context.shape[1])
    joint = JointFeatures(kind, n_actions, width)  # type: ignore[arg-type]
    source = features if features is not None else (context if context is not None else np.empty((n, 0)))
    kept_mask = None if mask is None or mask[keep].all() else mask[keep]
    return {
        "arrays": LogArrays(
            joint.rows(source[keep]),
            joint.mask(kept_mask, int(good.sum())),
            raw_actions[keep].astype(np.int64),
            reward[keep],
            propensity[keep],
        ),
        "joint": joint,
        "action_names": _names("action_names", action_names, n_actions, "action"),
        "context_names": _names("context_names", context_names, width, "x"),
        "logging_probs": None if probs is None else probs[keep],
        "dropped": tuple(dropped),
        "times": None if time is None else time[keep],
        "sequences": None if sequence is None else sequence[keep],
    }


def _column(name: str, values: npt.ArrayLike) -> Floats:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        hint = " Tables with named actions: BanditLog.from_frame." if name == "actions" else ""
        raise LogError(f"{name} must be numbers: {error}.{hint}") from error
    if array.ndim != 1:
        raise LogError(f"{name} must have one entry a round, shape (n,); it has shape {array.shape}.")
    return array


def _labels(name: str, values: npt.ArrayLike | None) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    array = np.array(values)
    if array.ndim != 1:
        raise LogError(f"{name} must have one entry a round, shape (n,); it has shape {array.shape}.")
    return array


def _numbers(name: str, values: Any, dtype: Any = None) -> npt.NDArray[Any]:
    """A copy as float32 where it is that already, else as float64, or as ``dtype``."""
    if dtype is None:
        dtype = np.float32 if getattr(values, "dtype", None) == np.float32 else np.float64
    try:
        return np.array(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise LogError(f"{name} must be numbers: {error}.") from error


def _matrix(name: str, values: npt.ArrayLike) -> Floats:
    array = _numbers(name, values)
    if array.ndim != 2:
        raise LogError(f"{name} must have shape (n, d); it has shape {array.shape}.")
    return array


def _optional(name: str, values: npt.ArrayLike | None, dtype: Any) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    array = _numbers(name, values, dtype)
    if array.ndim != 2:
        raise LogError(f"{name} must have shape (n, K); it has shape {array.shape}.")
    return array


def _require_width(name: str, array: npt.NDArray[Any] | None, n_actions: int) -> None:
    if array is not None and array.shape[1] != n_actions:
        raise LogError(f"{name} must have one column an action; it has {array.shape[1]} for {n_actions} actions.")


def _per_action(action_features: Any, n: int) -> Floats:
    """(n, K, d), from that or from (rows, offsets), whose short lists are filled up with zeros."""
    if not isinstance(action_features, tuple):
        array = _numbers("action_features", action_features)
        if array.ndim != 3:
            raise LogError(
                f"action_features must have shape (n, K, d) or be (rows, offsets); it has shape {array.shape}."
            )
        return array
    rows, offsets = _matrix("action_features rows", action_features[0]), np.asarray(action_features[1])
    lengths = np.diff(offsets)
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu"
    if not whole or len(offsets) != n + 1 or offsets[0] != 0 or offsets[-1] != len(rows) or (lengths < 1).any():
        raise LogError(
            f"offsets must rise from 0 to the number of rows ({len(rows)}) in {n} whole steps of at least 1; "
            f"got {len(offsets)} entries."
        )
    features = np.zeros((n, int(lengths.max()), rows.shape[1]), dtype=rows.dtype)
    place = np.arange(len(rows)) - np.repeat(offsets[:-1], lengths)
    features[np.repeat(np.arange(n), lengths), place] = rows
    return features


def _number_of_actions(
    n_actions: int | None,
    actions: Floats,
    names: Sequence[str] | None,
    features: Floats | None,
    mask: Bools | None,
    probs: Floats | None,
) -> int:
    known: int
    if n_actions is not None and not isinstance(n_actions, int | np.integer):
        raise ParameterError(f"n_actions must be a whole number; got {n_actions!r}.")
    if features is not None:
        known = features.shape[1]
    elif n_actions is not None:
        known = n_actions
    elif names is not None:
        known = len(names)
    elif mask is not None or probs is not None:
        known = int(mask.shape[1] if mask is not None else probs.shape[1])  # type: ignore[union-attr]
    else:
        whole = actions[np.isfinite(actions) & (actions == np.floor(actions))]
        known = int(whole.max()) + 1 if whole.size and whole.max() >= 0 else 1
        if known > MOST_ACTIONS:
            raise LogError(
                f"actions must be places in a list, from 0 on; there is {known - 1}. Tables with named actions: "
                "BanditLog.from_frame; lists as long as that: n_actions."
            )
        if known > 20 * (n_distinct := len(np.unique(whole))):
            warnings.warn(
                f"actions go up to {known - 1} but only {n_distinct} of them occur: if they are identifiers, "
                "BanditLog.from_frame numbers them; if there are that many actions, give n_actions.",
                SeachangeWarning,
                stacklevel=4,
            )
    if n_actions is not None and n_actions != known:
        raise LogError(f"n_actions={n_actions}, but action_features has {known} actions.")
    if known < 1:
        raise ParameterError(f"n_actions must be at least 1; got {known}.")
    return known


def _broken_rules(
    actions: Floats,
    n_actions: int,
    rewards: Floats,
    missing_rewards: bool,
    propensities: Floats,
    contexts: Floats | None,
    features: Floats | None,
    mask: Bools | None,
    probs: Floats | None,
    times: npt.NDArray[Any] | None,
    sequences: npt.NDArray[Any] | None,
    context_names: Sequence[str] | None,
    action_names: Sequence[str] | None,
) -> list[tuple[Bools, str, npt.NDArray[Any]]]:
    """(rows that break it, the rule, the offending values) for every rule about single rows."""
    with np.errstate(invalid="ignore"):
        bad_action = ~((actions >= 0) & (actions < n_actions) & (actions == np.floor(actions)))
        bad_reward = ~(np.abs(rewards) <= LARGEST) & ~(missing_rewards & np.isnan(rewards))
        bad_propensity = ~((propensities > 0) & (propensities <= 1))
    hint = "" if missing_rewards else MISSING_HINT
    places = f"actions must be whole numbers from 0 to {n_actions - 1}"
    action_rule = places if action_names is None else f"every round must have one of the {n_actions} actions"
    rules: list[tuple[Bools, str, npt.NDArray[Any]]] = [
        (bad_action, action_rule, actions),
        (bad_reward, f"rewards must be finite and at most {LARGEST:g} in size{hint}", rewards),
        (bad_propensity, "propensities must be in (0, 1]", propensities),
    ]
    for name, array in (("contexts", contexts), ("action_features", features)):
        if array is not None:
            bad = ~np.isfinite(array)
            if array.dtype == np.float64:  # single precision ends long before
                bad |= np.abs(array) > LARGEST
            flat = bad.reshape(len(array), -1)
            first = int(flat.any(axis=1).argmax())
            where = np.unravel_index(int(flat[first].argmax()), array.shape[1:]) if flat.size else ()
            column = ", ".join(str(int(i)) for i in where)
            if name == "contexts" and context_names is not None and flat.size and len(context_names) == array.shape[1]:
                column = context_names[int(where[0])]
            bad_rows: Bools = np.asarray(flat.any(axis=1))
            offenders = array.reshape(len(array), -1)[:, int(flat[first].argmax())] if flat.size else array
            rules.append((bad_rows, f"{name} must be finite (column {column})", offenders))
    safe = np.where(bad_action, 0, np.nan_to_num(actions, nan=0, posinf=0, neginf=0)).astype(np.int64)
    everyone = np.arange(len(actions))
    if mask is not None:
        rules.append((~mask[everyone, safe], "action_mask must allow the action that was taken", actions))
    if probs is not None:
        off = ~(np.abs(probs.sum(axis=1) - 1) <= PROBABILITY_TOLERANCE) | (probs < 0).any(axis=1)
        rules.append((off, "logging_probs must be non-negative and sum to 1", probs.sum(axis=1)))
        differs = ~(np.abs(probs[everyone, safe] - propensities) <= PROBABILITY_TOLERANCE)
        rules.append((differs, "logging_probs at the action taken must equal propensities", probs[everyone, safe]))
    if times is not None:
        rules.append(
            (np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times), "times must be known", times)
        )
    if sequences is not None:
        unknown = np.asarray(sequences != sequences, dtype=bool)  # NaN and NaT
        if sequences.dtype.kind == "O":
            unknown |= np.asarray(sequences == np.array(None), dtype=bool)
        rules.append((unknown, "sequences must be known", sequences))
    return rules


def _require_time_order(times: Any, sequences: Any, rows: Ints) -> None:
    """Raise where time goes backwards within a sequence of ``rows``."""
    if times is None:
        return
    order: Ints = rows if sequences is None else rows[np.argsort(sequences[rows], kind="stable")]
    back = times[order][1:] < times[order][:-1]
    if sequences is not None:
        back &= sequences[order][1:] == sequences[order][:-1]
    if back.any():
        i = int(back.argmax())
        earlier, row = int(order[i]), int(order[i + 1])
        raise LogError(
            f"times must not go backwards; row {row} has {_shown(times[row])} after {_shown(times[earlier])} "
            f"({int(back.sum())} of {len(times)} rows are bad). Sort the log by time."
        )


def _names(what: str, names: Sequence[str] | None, count: int, stem: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{stem} {i}" if stem == "action" else f"{stem}{i}" for i in range(count))
    if len(names) != count:
        raise LogError(f"{what} must name each of the {count}; it has {len(names)} names.")
    if len(set(names)) < count:
        twice = next(name for name in names if list(names).count(name) > 1)
        raise LogError(f"{what} must differ; {twice!r} is there twice.")
    return tuple(str(name) for name in names)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
