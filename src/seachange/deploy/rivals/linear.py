"""The base of linear rivals."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from seachange.deploy.rivals.rival import Rival, Shapes
from seachange.kernels.linear_rounds import (
    LinearMemory,
    LinearRules,
    forget_all,
    linear_advance,
    linear_learn,
    linear_probs,
    refresh_block,
    run_linear,
)
from seachange.kernels.regression import regression_sums
from seachange.log.bandit_log import BanditLog
from seachange.log.joint_features import JointFeatures
from seachange.params import require
from seachange.protocols import Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearRival(Rival):
    """An algorithm that estimates θ in E[r | x, a] = θ · f(x, a) by ridge regression, online."""

    joint: JointFeatures
    noise: float = 0.5  # σ of rewards
    ridge: float = 1.0  # λ
    bound: float = 1.0  # S: the assumed norm of θ
    failure: float = 0.01  # δ
    optimism: float = 1.0  # α: below 1, less exploration than the theory asks for
    grams: Floats | None = None  # (B, D, D) and (B, D) sums of earlier rounds
    moments: Floats | None = None
    kernels: ClassVar[tuple[Any, Any, Any, Any]] = (linear_probs, linear_learn, linear_advance, run_linear)
    memory_type: ClassVar[Any] = LinearMemory

    def __post_init__(self) -> None:
        for name in ("noise", "ridge", "optimism"):
            value = getattr(self, name)
            require(0 < value < math.inf, f"{name} must be positive and finite; got {value}.")
        require(0 < self.failure < 1, f"failure must be between 0 and 1; got {self.failure}.")

    def start_from(self, log: BanditLog) -> Self:
        """The same algorithm, with all rounds of ``log`` counted before the first round."""
        require(log.joint == self.joint, f"the log has {log.joint.description}; expected {self.joint.description}.")
        arrays = log.arrays
        weights = np.ones((len(log), 1))
        grams, moments, _ = regression_sums(arrays.rows, arrays.actions, arrays.rewards, weights, self.joint.shape[0])
        return replace(self, grams=grams[0], moments=moments[0])

    @property
    def history(self) -> tuple[int, int]:
        """The shape of the rounds kept."""
        return 0, 0

    @property
    def shapes(self) -> Shapes:
        """The shapes of the arrays in ``LinearMemory``."""
        b, d = self.joint.shape
        square = dict.fromkeys(("grams", "squares", "spreads"), (b, d, d))
        shapes = {**square, "moments": (b, d), "coefs": (b, d), "history": self.history, "clock": (2,)}
        return {name: shapes[name] for name in LinearMemory._fields}

    def _settings(self) -> dict[str, Any]:
        """What differs from LinUCB."""
        return {}

    @property
    def rules(self) -> LinearRules:
        """The configuration as kernels take it."""
        given = {name: float(getattr(self, name)) for name in ("ridge", "noise", "bound", "failure", "optimism")}
        rules = LinearRules(
            samples=False, discount=1.0, window=0, threshold=math.inf, exploration=0.0, **given
        )  # fmt: skip
        return rules._replace(**self._settings())

    def _begin(self, memory: Any) -> None:
        rules = self._kernel_rules
        forget_all(rules, memory)
        if self.grams is not None:
            memory.grams[:] += self.grams
            memory.squares[:] += self.grams
            memory.moments[:] = self.moments
            for b in range(len(memory.grams)):
                refresh_block(memory, b, rules.discount < 1)
