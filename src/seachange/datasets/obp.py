"""Open Bandit Pipeline's ``bandit_feedback``: a dictionary of arrays, as its data sets return it.

action (n,), reward (n,), pscore (n,), context (n, d), action_context (K, e), position (n,) or None, pi_b (n, K, places)

``pi_b`` is the whole logging distribution. ``expected_reward`` belongs to the simulation and is ignored.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.validation import OnBadRows
from seachange.protocols import Floats, Ints

N_AXES = {"action": 1, "reward": 1, "context": 2, "action_context": 2, "position": 1, "pscore": 1, "pi_b": 3}
MAX_POSITIONS = 1_000_000  # unless pi_b has more


def log_from_obp(
    feedback: Mapping[str, Any],
    *,
    item_features: bool = False,
    missing_rewards: bool = False,
    on_bad_rows: OnBadRows = "raise",
) -> BanditLog:
    """Convert Open Bandit Pipeline's ``bandit_feedback`` to a log, with the whole logging distribution if it has one.

    Contexts are ``context`` and, if there is more than one, the position. With ``item_features`` the features z of the
    actions (``action_context``) are used too, and all actions share coefficients: f(x, a) = [z_a, x ⊗ z_a].
    ``missing_rewards`` and ``on_bad_rows`` are those of ``BanditLog.from_arrays``.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> feedback = {
    ...     "action": rng.integers(3, size=100),
    ...     "reward": rng.random(100),
    ...     "pscore": np.full(100, 1 / 3),
    ...     "context": rng.normal(size=(100, 2)),
    ...     "n_actions": 3,
    ... }
    >>> log = log_from_obp(feedback)
    >>> len(log), log.n_actions, log.contexts.shape
    (100, 3, (100, 2))
    """
    arrays = _checked(feedback)
    actions, items, pi_b = arrays["action"], arrays["action_context"], arrays["pi_b"]
    n_actions = _number_of_actions(feedback.get("n_actions"), items, pi_b)
    positions = _positions(arrays["position"], len(actions), MAX_POSITIONS if pi_b is None else pi_b.shape[2])
    contexts, names = _contexts(arrays["context"], positions)
    inputs: dict[str, Any] = {"missing_rewards": missing_rewards, "on_bad_rows": on_bad_rows}
    if item_features:
        if items is None:
            raise LogError("item_features=True needs action_context, with one row per action; it is missing.")
        crossed = np.einsum("nd,ke->nkde", contexts, items).reshape(len(actions), len(items), -1)
        own = np.broadcast_to(items, (len(actions), *items.shape))
        item_names = [f"item.{i}" for i in range(items.shape[1])]
        inputs["action_features"] = np.concatenate([own, crossed], axis=2)
        inputs["context_names"] = [*item_names, *(f"{x} × {z}" for x in names for z in item_names)]
    elif names:
        inputs |= {"contexts": contexts, "context_names": names}
    if pi_b is not None:
        inputs["logging_probs"] = np.ascontiguousarray(pi_b[np.arange(len(actions)), :, positions], dtype=np.float64)
    return BanditLog.from_arrays(actions, arrays["reward"], arrays["pscore"], n_actions=n_actions, **inputs)


def _checked(feedback: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays by name, None if one is absent."""
    if not isinstance(feedback, Mapping):
        raise LogError(f"bandit_feedback must be a dictionary; got {type(feedback).__name__}.")
    if absent := [name for name in ("action", "reward") if feedback.get(name) is None]:
        raise LogError(f"bandit_feedback must have {absent[0]!r}; it has {', '.join(map(str, feedback)) or 'no keys'}.")
    arrays: dict[str, Any] = {
        name: None if feedback.get(name) is None else _array(name, feedback[name], n_axes)
        for name, n_axes in N_AXES.items()
    }
    n = len(arrays["action"])
    for name, array in arrays.items():
        if array is not None and name != "action_context" and len(array) != n:
            raise LogError(f"arrays must have the same length; action has {n}, {name} has {len(array)}.")
    return arrays


def _number_of_actions(n_actions: Any, items: Any, pi_b: Any) -> int | None:
    found = {
        "n_actions": None if n_actions is None else int(_array("n_actions", n_actions, 0)),
        "action_context": None if items is None else len(items),
        "pi_b": None if pi_b is None else pi_b.shape[1],
    }
    numbers = {name: number for name, number in found.items() if number is not None}
    if len(set(numbers.values())) > 1:
        each = ", ".join(f"{name} has {number}" for name, number in numbers.items())
        raise LogError(f"the number of actions must be the same everywhere; {each}.")
    return next(iter(numbers.values()), None)


def _positions(position: Any, n: int, n_positions: int) -> Ints:
    """(n,) positions; 0 if there is only one."""
    if position is None:
        return np.zeros(n, dtype=np.int64)
    valid = (position >= 0) & (position < n_positions) & (position == np.floor(position))
    if not valid.all():
        raise LogError(f"position must be a whole number from 0 to {n_positions - 1}; found {position[~valid][0]}.")
    return np.asarray(position, dtype=np.int64)


def _contexts(context: Any, positions: Ints) -> tuple[Floats, list[str]]:
    """(n, d) contexts, then a 0/1 column for every position but the first; and the names of the columns."""
    contexts = np.empty((len(positions), 0)) if context is None else context.astype(np.float64)
    names = [f"context.{i}" for i in range(contexts.shape[1])]
    others = np.unique(positions)[1:]
    return np.hstack([contexts, positions[:, None] == others]), [*names, *(f"position={each}" for each in others)]


def _array(name: str, values: Any, n_axes: int) -> Any:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise LogError(f"{name} must be an array of numbers: {error}.") from error
    if array.dtype.kind not in "biuf":
        raise LogError(f"{name} must be numbers; its type is {array.dtype}.")
    if array.ndim != n_axes:
        wanted = ("be a single number", "have 1 axis", "have 2 axes", "have 3 axes")[n_axes]
        raise LogError(f"{name} must {wanted}; it has shape {array.shape}.")
    return array
