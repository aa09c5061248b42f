"""Open Bandit Pipeline's ``bandit_feedback``: a dictionary of arrays, as its data sets return it.

action (n,), reward (n,), pscore (n,), context (n, d), action_context (K, e), position (n,) or None, pi_b (n, K, places)

``expected_reward`` belongs to the simulation and is ignored. ``pi_b`` is the whole logging distribution.
``log_from_obp`` keeps it. ``OBPLog`` keeps it only with ``item_features=True``, which gives every round a pool of all K
actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError
from seachange.formats.column_roles import require_no_columns
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, Pool, RawRounds
from seachange.log.validation import OnBadRows
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    import polars

SHAPES = {"context": 2, "action_context": 2, "position": 1, "pscore": 1, "pi_b": 3}
MAX_POSITIONS = 1_000_000  # unless pi_b has more
COLUMNS = {"action": "action", "reward": "reward", "propensity": "pscore"}


class Feedback:
    """The arrays of a ``bandit_feedback``, checked."""

    def __init__(self, feedback: Mapping[str, Any]) -> None:
        if not isinstance(feedback, Mapping):
            raise LogError(f"bandit_feedback must be a dictionary; got {type(feedback).__name__}.")
        if absent := [name for name in ("action", "reward") if feedback.get(name) is None]:
            raise LogError(
                f"bandit_feedback must have {absent[0]!r}; it has {', '.join(map(str, feedback)) or 'no keys'}."
            )
        self.action = _array("action", feedback["action"], 1)
        self.reward = _array("reward", feedback["reward"], 1)
        given = {name: feedback.get(name) for name in SHAPES}
        found = {name: None if given[name] is None else _array(name, given[name], SHAPES[name]) for name in SHAPES}
        self.context, self.items = found["context"], found["action_context"]
        self.pscore, self.pi_b = found["pscore"], found["pi_b"]
        self.n_actions = self._number_of_actions(feedback.get("n_actions"))
        self.positions = self._positions(found["position"])  # (n,) 0 if there is only one
        for name, array in (("reward", self.reward), *found.items()):
            if array is not None and name != "action_context" and len(array) != len(self):
                raise LogError(f"arrays must have the same length; action has {len(self)}, {name} has {len(array)}.")

    def __len__(self) -> int:
        """Rounds."""
        return len(self.action)

    @property
    def several_positions(self) -> bool:
        """Whether there is more than one position."""
        return len(np.unique(self.positions)) > 1

    def logging_probs(self, rounds: slice = slice(None)) -> Floats | None:
        """(n, K) π_0 at the position of each round."""
        if self.pi_b is None:
            return None
        part = self.pi_b[rounds]
        return np.ascontiguousarray(part[np.arange(len(part)), :, self.positions[rounds]], dtype=np.float64)

    def require_items(self) -> Floats:
        """(K, e) the features of the actions."""
        if self.items is None:
            raise LogError("item_features=True needs action_context, with one row per action; it is missing.")
        items: Floats = self.items
        return items

    def _positions(self, position: Any) -> Ints:
        if position is None:
            return np.zeros(len(self), dtype=np.int64)
        n_positions = MAX_POSITIONS if self.pi_b is None else self.pi_b.shape[2]
        whole = (position >= 0) & (position < n_positions) & (position == np.floor(position))
        if not whole.all():
            wrong = position[~whole][0]
            raise LogError(f"position must be a whole number from 0 to {n_positions - 1}; found {wrong}.")
        positions: Ints = position.astype(np.int64)
        return positions

    def _number_of_actions(self, n_actions: Any) -> int | None:
        found: dict[str, int] = {}
        if n_actions is not None:
            found["n_actions"] = int(_array("n_actions", n_actions, 0))
        if self.items is not None:
            found["action_context"] = len(self.items)
        if self.pi_b is not None:
            found["pi_b"] = self.pi_b.shape[1]
        if len(set(found.values())) > 1:
            numbers = ", ".join(f"{name} has {n}" for name, n in found.items())
            raise LogError(f"the number of actions must be the same everywhere; {numbers}.")
        return next(iter(found.values()), None)


class OBPLog:
    """A ``bandit_feedback`` as raw rounds; ``item_features`` gives every round a pool of all actions."""

    format = "obp"

    def __init__(
        self, feedback: Mapping[str, Any], columns: Mapping[str, Any] | None = None, *, item_features: bool = False
    ) -> None:
        require_no_columns(columns, "bandit_feedback")
        self.feedback = Feedback(feedback)
        self.item_features = item_features
        self.columns = {word: name for word, name in COLUMNS.items() if feedback.get(name) is not None}
        if item_features:
            self.feedback.require_items()

    def parts(self, rows: int = PART_ROWS) -> Iterator[RawRounds]:
        """All rounds, at most ``rows`` at a time."""
        from polars import Series

        given = self.feedback
        for start in range(0, len(given), rows):
            rounds = slice(start, min(start + rows, len(given)))
            yield RawRounds(
                source="bandit_feedback",
                lines=np.arange(rounds.start + 1, rounds.stop + 1),
                features=self._features(rounds),
                action=Series("action", given.action[rounds]),
                reward=Series("reward", given.reward[rounds]),
                propensity=None if given.pscore is None else Series("propensity", given.pscore[rounds]),
                pool=self._pool(rounds) if self.item_features else None,
            )

    def _features(self, rounds: slice) -> polars.DataFrame:
        from polars import DataFrame, Series, String

        columns = [] if self.feedback.context is None else list(self.feedback.context[rounds].T)
        table = [Series(f"context.{i}", values) for i, values in enumerate(columns)]
        if self.feedback.several_positions:
            table.append(Series("position", self.feedback.positions[rounds]).cast(String))
        return DataFrame(table)

    def _pool(self, rounds: slice) -> Pool:
        from polars import DataFrame, Series

        items, n = self.feedback.require_items(), rounds.stop - rounds.start
        probs = self.feedback.logging_probs(rounds)
        return Pool(
            offsets=np.arange(n + 1) * len(items),
            features=DataFrame({f"item.{i}": np.tile(values, n) for i, values in enumerate(items.T)}),
            names=Series("action", np.tile(np.arange(len(items)), n)),
            probs=None if probs is None else probs.ravel(),
        )


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
    given = Feedback(feedback)
    contexts, names = _contexts(given)
    inputs: dict[str, Any] = {}
    if item_features:
        items = given.require_items()
        crossed = np.einsum("nd,ke->nkde", contexts, items).reshape(len(given), len(items), -1)
        own = np.broadcast_to(items, (len(given), *items.shape))
        inputs["action_features"] = np.concatenate([own, crossed], axis=2)
        named = [f"item.{i}" for i in range(items.shape[1])]
        inputs["context_names"] = [*named, *(f"{x} × {z}" for x in names for z in named)]
    elif names:
        inputs |= {"contexts": contexts, "context_names": names}
    return BanditLog.from_arrays(
        given.action,
        given.reward,
        given.pscore,
        logging_probs=given.logging_probs(),
        n_actions=given.n_actions,
        missing_rewards=missing_rewards,
        on_bad_rows=on_bad_rows,
        **inputs,
    )


def _contexts(given: Feedback) -> tuple[Floats, list[str]]:
    """(n, d) contexts, then a 0/1 column for every position but the first; and the names of the columns."""
    contexts = np.empty((len(given), 0)) if given.context is None else given.context.astype(np.float64)
    names = [f"context.{i}" for i in range(contexts.shape[1])]
    if given.several_positions:
        others = np.unique(given.positions)[1:]
        contexts = np.concatenate([contexts, given.positions[:, None] == others], axis=1)
        names += [f"position={position}" for position in others]
    return contexts, names


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
