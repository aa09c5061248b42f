"""Linear soft categorical policies on joint features."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from seachange.kernels.action_probs import softmax_advice
from seachange.log.joint_features import JointFeatures
from seachange.params import Brief
from seachange.protocols import Floats
from seachange.registry import POLICIES, Arrays, SavedPart


@POLICIES.register("softmax")
@dataclass(frozen=True, eq=False, repr=False)
class SoftmaxPolicy(Brief):
    """π(a | x; θ) ∝ exp(θ · f(x, a))."""

    coefs: Floats  # (B, D) θ
    joint: JointFeatures

    def predict_proba(self, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None = None) -> Floats:
        """π(a | x) for every row of ``contexts``."""
        return advice_of(self.coefs[None], self.joint, contexts, action_mask)[:, 0]

    def learned(self) -> tuple[None, Arrays]:
        """What a model file keeps."""
        return None, {"coefs": self.coefs}

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, labels: Any) -> Self:
        """The policy that a model file holds."""
        return cls(part.floats("coefs", joint.shape), joint)


def advice_of(
    coefs: Floats, joint: JointFeatures, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None
) -> Floats:
    """(n, L, K) distributions of the softmax policies with coefficients (L, B, D)."""
    rows, n = joint.rows(contexts), len(np.asarray(contexts))
    if n == 0:
        return np.empty((0, len(coefs), joint.n_actions))
    mask = joint.mask(action_mask, n)
    # If neither the context nor the mask varies, one row serves all rounds.
    computed = np.empty((max(len(rows), len(mask)), len(coefs), joint.n_actions))
    softmax_advice(rows, coefs, mask, computed)
    return computed if len(computed) == n else np.repeat(computed, n, axis=0)
