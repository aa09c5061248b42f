"""Raw columns: whatever a caller has, as arrays of the right shape, or an error that names the column."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.log.joint import JointFeatures
from seachange.protocols import Bools, Floats, Ints

# An action beyond this is taken for an identifier, not for a place in a list, unless n_actions says otherwise.
MOST_ACTIONS = 1_000_000


@dataclass(frozen=True)
class Columns:
    """The columns of a log, copied, of one length, not yet held to the rules."""

    actions: Floats | Ints  # (n,)
    rewards: Floats  # (n,)
    propensities: Floats | None  # (n,)
    contexts: Floats | None  # (n, d)
    action_features: Floats | None  # (n, K, d)
    action_mask: Bools | None  # (n, K)
    logging_probs: Floats | None  # (n, K)
    times: npt.NDArray[Any] | None  # (n,)
    sequences: npt.NDArray[Any] | None  # (n,)
    n_actions: int
    action_names: Sequence[str] | None
    context_names: Sequence[str] | None
    made: tuple[JointFeatures, Floats] | None = None  # contexts as kernels take them, in place of both columns above

    def __len__(self) -> int:
        """Rows."""
        return len(self.actions)


def columns_from_arrays(
    *,
    actions: npt.ArrayLike,
    rewards: npt.ArrayLike,
    propensities: npt.ArrayLike | None,
    contexts: npt.ArrayLike | None,
    action_features: Any,
    action_mask: npt.ArrayLike | None,
    logging_probs: npt.ArrayLike | None,
    times: npt.ArrayLike | None,
    sequences: npt.ArrayLike | None,
    n_actions: int | None,
    action_names: Sequence[str] | None,
    context_names: Sequence[str] | None,
) -> Columns:
    """The arguments of ``BanditLog.from_arrays`` as ``Columns``."""
    if contexts is not None and action_features is not None:
        raise ParameterError("give contexts (one vector a round) or action_features (one an action), not both.")
    arrays: dict[str, Any] = {
        "actions": _column("actions", actions),
        "rewards": _column("rewards", rewards),
        "propensities": None if propensities is None else _column("propensities", propensities),
    }
    n = len(arrays["actions"])
    if n == 0:
        raise LogError("the log is empty: it needs at least one round.")
    arrays |= {
        "contexts": None if contexts is None else _matrix("contexts", contexts),
        "action_features": None if action_features is None else _per_action(action_features, n),
        "action_mask": _optional("action_mask", action_mask, bool),
        "logging_probs": _optional("logging_probs", logging_probs, np.float64),
        "times": _labels("times", times),
        "sequences": _labels("sequences", sequences),
    }
    for name, array in arrays.items():
        if array is not None and len(array) != n:
            raise LogError(f"every column must have one entry a round; actions has {n} and {name} has {len(array)}.")
    if arrays["times"] is not None and arrays["times"].dtype.kind not in "iufM":
        raise LogError(
            f"times must be numbers (seconds) or datetime64; they are {arrays['times'].dtype}. Parse them first."
        )
    known = _number_of_actions(n_actions, action_names, arrays)
    for name in ("action_mask", "logging_probs"):
        if arrays[name] is not None and arrays[name].shape[1] != known:
            raise LogError(
                f"{name} must have one column an action; it has {arrays[name].shape[1]} for {known} actions."
            )
    if isinstance(action_features, tuple):
        in_list = np.arange(known)[None, :] < np.diff(np.asarray(action_features[1]))[:, None]
        arrays["action_mask"] = in_list if arrays["action_mask"] is None else arrays["action_mask"] & in_list
    if arrays["propensities"] is None and arrays["logging_probs"] is not None:
        # Actions that are none are bad rows, whatever is read here.
        taken = np.nan_to_num(np.clip(arrays["actions"], 0, known - 1)).astype(np.int64)
        arrays["propensities"] = arrays["logging_probs"][np.arange(n), taken]
    return Columns(**arrays, n_actions=known, action_names=action_names, context_names=context_names)


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


def _number_of_actions(n_actions: int | None, names: Sequence[str] | None, arrays: dict[str, Any]) -> int:
    known: int
    if n_actions is not None and not isinstance(n_actions, int | np.integer):
        raise ParameterError(f"n_actions must be a whole number; got {n_actions!r}.")
    if arrays["action_features"] is not None:
        known = arrays["action_features"].shape[1]
    elif n_actions is not None:
        known = n_actions
    elif names is not None:
        known = len(names)
    elif arrays["action_mask"] is not None or arrays["logging_probs"] is not None:
        known = (arrays["logging_probs"] if arrays["action_mask"] is None else arrays["action_mask"]).shape[1]
    else:
        actions = arrays["actions"]
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
                stacklevel=5,
            )
    if n_actions is not None and n_actions != known:
        raise LogError(f"n_actions={n_actions}, but action_features has {known} actions.")
    if known < 1:
        raise ParameterError(f"n_actions must be at least 1; got {known}.")
    return known
