"""Whatever arrays a caller has, converted to columns of the right shape, or an error that names the column."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.log.joint_features import JointFeatures
from seachange.protocols import Bools, Floats, Ints

# A larger action is taken for an identifier, not for an index, unless n_actions is given.
MOST_ACTIONS = 1_000_000


@dataclass(frozen=True)
class Columns:
    """The columns of a log: copied, of equal length, not yet validated."""

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
    encoded: tuple[JointFeatures, Floats] | None = None  # contexts as kernels take them, instead of the two above

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
        raise ParameterError("pass contexts (one vector per round) or action_features (one per action), not both.")
    arrays: dict[str, Any] = {
        "actions": _array("actions", actions, 1, np.float64),
        "rewards": _array("rewards", rewards, 1, np.float64),
        "propensities": _array("propensities", propensities, 1, np.float64),
    }
    n = len(arrays["actions"])
    if n == 0:
        raise LogError("the log is empty: it needs at least one round.")
    arrays |= {
        "contexts": _array("contexts", contexts, 2),
        "action_features": None if action_features is None else _per_action(action_features, n),
        "action_mask": _array("action_mask", action_mask, 2, bool),
        "logging_probs": _array("logging_probs", logging_probs, 2, np.float64),
        "times": _array("times", times, 1, None),
        "sequences": _array("sequences", sequences, 1, None),
    }
    for name, array in arrays.items():
        if array is not None and len(array) != n:
            raise LogError(f"every column must have one entry per round; actions has {n} and {name} has {len(array)}.")
    if arrays["times"] is not None and arrays["times"].dtype.kind not in "iufM":
        raise LogError(
            f"times must be numbers (seconds) or datetime64; they are {arrays['times'].dtype}. Parse them first."
        )
    known = _number_of_actions(n_actions, action_names, arrays)
    for name in ("action_mask", "logging_probs"):
        if arrays[name] is not None and arrays[name].shape[1] != known:
            raise LogError(
                f"{name} must have one column per action; it has {arrays[name].shape[1]} columns for {known} actions."
            )
    if isinstance(action_features, tuple):
        in_list = np.arange(known)[None, :] < np.diff(np.asarray(action_features[1]))[:, None]
        arrays["action_mask"] = in_list if arrays["action_mask"] is None else arrays["action_mask"] & in_list
    if arrays["propensities"] is None and arrays["logging_probs"] is not None:
        # Rows with invalid actions are bad, whatever is looked up here.
        taken = np.nan_to_num(np.clip(arrays["actions"], 0, known - 1)).astype(np.int64)
        arrays["propensities"] = arrays["logging_probs"][np.arange(n), taken]
    return Columns(**arrays, n_actions=known, action_names=action_names, context_names=context_names)


# Shapes by number of dimensions, for errors.
SHAPES = {1: "one entry per round, shape (n,)", 2: "shape (n, d)", 3: "shape (n, K, d) or be (rows, offsets)"}


def _array(name: str, values: Any, ndim: int, dtype: Any = "floats") -> Any:
    """A copy with ``ndim`` dimensions and a type: "floats" keeps float32, None keeps any type."""
    if values is None:
        return None
    if isinstance(dtype, str):
        dtype = np.float32 if getattr(values, "dtype", None) == np.float32 else np.float64
    try:
        array = np.array(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        hint = " For a table with named actions, use BanditLog.from_frame." if name == "actions" else ""
        raise LogError(f"{name} must be numbers: {error}.{hint}") from error
    if array.ndim != ndim:
        shape = "shape (n, K)" if name in ("action_mask", "logging_probs") else SHAPES[ndim]
        raise LogError(f"{name} must have {shape}; it has shape {array.shape}.")
    return array


def _per_action(action_features: Any, n: int) -> Floats:
    """(n, K, d), from that or from (rows, offsets), whose short lists are padded with zeros."""
    if not isinstance(action_features, tuple):
        return np.asarray(_array("action_features", action_features, 3))
    rows, offsets = _array("action_features rows", action_features[0], 2), np.asarray(action_features[1])
    lengths = np.diff(offsets)
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu"
    if not whole or len(offsets) != n + 1 or offsets[0] != 0 or offsets[-1] != len(rows) or (lengths < 1).any():
        raise LogError(
            f"offsets must be {n + 1} increasing integers from 0 to the number of rows ({len(rows)}); "
            f"got {len(offsets)} entries."
        )
    features = np.zeros((n, int(lengths.max()), rows.shape[1]), dtype=rows.dtype)
    place = np.arange(len(rows)) - np.repeat(offsets[:-1], lengths)
    features[np.repeat(np.arange(n), lengths), place] = rows
    return features


def _number_of_actions(n_actions: int | None, names: Sequence[str] | None, arrays: dict[str, Any]) -> int:
    known: int
    if n_actions is not None and not isinstance(n_actions, int | np.integer):
        raise ParameterError(f"n_actions must be an integer; got {n_actions!r}.")
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
                f"actions must be indices from 0; the largest is {known - 1}. If they are identifiers, use "
                "BanditLog.from_frame; if there are that many actions, pass n_actions."
            )
        if known > 20 * (n_distinct := len(np.unique(whole))):
            warnings.warn(
                f"actions go up to {known - 1}, but only {n_distinct} of them occur. If they are identifiers, use "
                "BanditLog.from_frame; if there are that many actions, pass n_actions.",
                SeachangeWarning,
                stacklevel=5,
            )
    if n_actions is not None and n_actions != known:
        raise LogError(f"n_actions={n_actions}, but action_features has {known} actions.")
    if known < 1:
        raise ParameterError(f"n_actions must be at least 1; got {known}.")
    return known
