"""Open Bandit Pipeline's ``bandit_feedback``: a dictionary of arrays, as its data sets give them.

action (n,), reward (n,), pscore (n,), context (n, d), action_context (K, e), position (n,) or None, pi_b (n, K, places)

``expected_reward`` is the simulation's own and no part of a log. ``pi_b`` is the whole logging distribution. A log of
shared contexts has a place for it in a BanditLog (``log_from_obp``) but not in raw rounds, which know it only of pools;
there it is left out, or kept with ``item_features=True``, which makes every round a pool of all K actions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.errors import LogError
from seachange.log.bandit_log import BanditLog
from seachange.log.raw import PART_ROWS, Pool, RawRounds
from seachange.log.readers.places import require_no_columns
from seachange.log.validation import OnBadRows
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    import polars

SHAPES = {"context": 2, "action_context": 2, "position": 1, "pscore": 1, "pi_b": 3}
# A position beyond this is something else, unless pi_b has as many.
MOST_PLACES = 1_000_000
COLUMNS = {"action": "action", "reward": "reward", "propensity": "pscore"}


class Feedback:
    """The arrays of a ``bandit_feedback``, of the right shapes."""

    def __init__(self, feedback: Mapping[str, Any]) -> None:
        if not isinstance(feedback, Mapping):
            raise LogError(f"a bandit_feedback is a dictionary; got a {type(feedback).__name__}.")
        if absent := [name for name in ("action", "reward") if feedback.get(name) is None]:
            raise LogError(
                f"a bandit_feedback has {absent[0]!r}; this one has {', '.join(map(str, feedback)) or 'none'}."
            )
        self.action = _array("action", feedback["action"], 1)
        self.reward = _array("reward", feedback["reward"], 1)
        given = {name: feedback.get(name) for name in SHAPES}
        found = {name: None if given[name] is None else _array(name, given[name], SHAPES[name]) for name in SHAPES}
        self.context, self.items = found["context"], found["action_context"]
        self.pscore, self.pi_b = found["pscore"], found["pi_b"]
        self.n_actions = self._number_of_actions(feedback.get("n_actions"))
        self.places = self._places(found["position"])  # (n,) position, 0 where there is but one
        for name, array in (("reward", self.reward), *found.items()):
            if array is not None and name != "action_context" and len(array) != len(self):
                raise LogError(f"every array must have one entry a round; action has {len(self)}, {name} {len(array)}.")

    def __len__(self) -> int:
        """Rounds."""
        return len(self.action)

    @property
    def several_places(self) -> bool:
        """Whether the place matters."""
        return len(np.unique(self.places)) > 1

    def logging_probs(self, rounds: slice = slice(None)) -> Floats | None:
        """(n, K) π_0 at each round's place."""
        if self.pi_b is None:
            return None
        part = self.pi_b[rounds]
        return np.ascontiguousarray(part[np.arange(len(part)), :, self.places[rounds]], dtype=np.float64)

    def require_items(self) -> Floats:
        """(K, e) the items' own features."""
        if self.items is None:
            raise LogError("item_features needs action_context, one row an action; this bandit_feedback has none.")
        items: Floats = self.items
        return items

    def _places(self, position: Any) -> Ints:
        if position is None:
            return np.zeros(len(self), dtype=np.int64)
        n_places = MOST_PLACES if self.pi_b is None else self.pi_b.shape[2]
        whole = (position >= 0) & (position < n_places) & (position == np.floor(position))
        if not whole.all():
            wrong = position[~whole][0]
            raise LogError(f"position must be a whole number from 0 on and below {n_places}; there is {wrong}.")
        places: Ints = position.astype(np.int64)
        return places

    def _number_of_actions(self, n_actions: Any) -> int | None:
        told: dict[str, int] = {}
        if n_actions is not None:
            told["n_actions"] = int(_array("n_actions", n_actions, 0))
        if self.items is not None:
            told["action_context"] = len(self.items)
        if self.pi_b is not None:
            told["pi_b"] = self.pi_b.shape[1]
        if len(set(told.values())) > 1:
            raise LogError(f"the number of actions must be one; {', '.join(f'{k} says {v}' for k, v in told.items())}.")
        return next(iter(told.values()), None)


class OBPLog:
    """A ``bandit_feedback`` as raw rounds; ``item_features`` gives every round a pool of all actions."""

    format = "obp"

    def __init__(
        self, feedback: Mapping[str, Any], columns: Mapping[str, Any] | None = None, *, item_features: bool = False
    ) -> None:
        require_no_columns(columns, "a bandit_feedback")
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
        if self.feedback.several_places:
            table.append(Series("position", self.feedback.places[rounds]).cast(String))
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
    """The log that a ``bandit_feedback`` holds, with the whole logging distribution where it has one.

    Contexts are ``context``, and where there are several positions, which of them it was. With ``item_features`` the
    items' own features z (``action_context``) take part and coefficients are shared by all actions:
    f(x, a) = [z_a, x ⊗ z_a].
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
    """(n, d) contexts, then a 0/1 column for every position but the first; and what the columns are."""
    contexts = np.empty((len(given), 0)) if given.context is None else given.context.astype(np.float64)
    names = [f"context.{i}" for i in range(contexts.shape[1])]
    if given.several_places:
        others = np.unique(given.places)[1:]
        contexts = np.concatenate([contexts, given.places[:, None] == others], axis=1)
        names += [f"position={place}" for place in others]
    return contexts, names


def _array(name: str, values: Any, n_axes: int) -> Any:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise LogError(f"{name} must be an array of numbers: {error}.") from error
    if array.dtype.kind not in "biuf":
        raise LogError(f"{name} must be numbers; it is {array.dtype}.")
    if array.ndim != n_axes:
        wanted = ("be one number", "have 1 axis", "have 2 axes", "have 3 axes")[n_axes]
        raise LogError(f"{name} must {wanted}; it has shape {array.shape}.")
    return array
