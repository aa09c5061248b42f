"""Joint features f(x, a) of context and action, for all three kinds of context."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from seachange.errors import LogError
from seachange.protocols import Bools, Floats, Ints

ContextKind = Literal["none", "shared", "per action"]


class LogArrays(NamedTuple):
    """A log as kernels take it (see ``seachange.kernels``); kernels never write to it."""

    rows: Floats  # (n or 1, R, D)
    mask: Bools  # (n or 1, K)
    actions: Ints
    rewards: Floats
    propensities: Floats


@dataclass(frozen=True)
class JointFeatures:
    """How a context and an action become a feature vector.

    none        f(a) = indicator of a
    shared      f(x, a) = [x, 1] in action a's block
    per action  f(x, a) = [x_a, 1]

    The last feature is the intercept, which is always 1.
    """

    kind: ContextKind
    n_actions: int
    n_features: int  # length of a context vector: d

    @property
    def shape(self) -> tuple[int, int]:
        """(B, D) of a coefficient set."""
        return 1 if self.kind == "per action" else self.n_actions, self.n_features + 1

    @property
    def description(self) -> str:
        """The kind of context, for people."""
        if self.kind == "none":
            return "no contexts"
        count = f"{self.n_features} feature{'' if self.n_features == 1 else 's'}"
        return f"{count} per {'action' if self.kind == 'per action' else 'round'}"

    @property
    def size(self) -> int:
        """Length of f(x, a)."""
        return self.shape[0] * self.shape[1]

    def rows(self, contexts: npt.ArrayLike) -> Floats:
        """Contexts as users hold them, (n, 0), (n, d) or (n, K, d), as the kernels' (n or 1, R, D)."""
        array = np.asarray(contexts)
        if array.dtype != np.float32:
            try:
                array = np.asarray(array, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise LogError(f"contexts must be numbers: {error}.") from error
        expected = (self.n_actions, self.n_features) if self.kind == "per action" else (self.n_features,)
        if array.ndim < 1 or array.shape[1:] != expected:
            wanted = ", ".join(str(size) for size in ("n", *expected))
            raise LogError(f"contexts must have shape ({wanted}), as in the log; these have {array.shape}.")
        if self.kind == "none":
            return np.ones((1, 1, 1))
        n_rows = self.n_actions if self.kind == "per action" else 1
        rows = np.ones((len(array), n_rows, self.n_features + 1), dtype=array.dtype)
        rows[..., :-1] = array.reshape(len(array), n_rows, self.n_features)
        return rows

    def mask(self, action_mask: npt.ArrayLike | None, n: int) -> Bools:
        """The kernels' mask, (n, K), or (1, K) if every action is allowed in every round."""
        if action_mask is None:
            return np.ones((1, self.n_actions), dtype=bool)
        mask = np.ascontiguousarray(action_mask, dtype=bool)
        if mask.shape != (n, self.n_actions):
            raise LogError(f"action_mask must have shape ({n}, {self.n_actions}); it has {mask.shape}.")
        allows = mask.any(axis=1)
        if not allows.all():
            raise LogError(f"action_mask must allow an action in every round; row {allows.argmin()} allows none.")
        return mask
