"""dLinUCB."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.special import erfinv

from seachange.deploy.rivals.linear import LinearRival
from seachange.deploy.rivals.rival import Shapes
from seachange.kernels.dlinucb_rounds import (
    MasterMemory,
    MasterRules,
    master_advance,
    master_learn,
    master_probs,
    run_master,
    start_model,
)
from seachange.params import require, require_count


@dataclass(frozen=True, kw_only=True, eq=False)
class DynamicLinUCB(LinearRival):
    """LinUCB models that are removed when their predictions fail (Wu, Iyer and Wang 2018, dLinUCB)."""

    memory: int = 200  # τ: predictions that a model is judged by
    n_models: int = 8  # at most
    kernels: ClassVar[tuple[Any, Any, Any, Any]] = (master_probs, master_learn, master_advance, run_master)
    memory_type: ClassVar[Any] = MasterMemory

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("memory", self.memory)
        require_count("n_models", self.n_models)
        require(self.grams is None, "dLinUCB cannot start from a log.")

    @property
    def shapes(self) -> Shapes:
        """The shapes of the arrays in ``MasterMemory``."""
        m, (b, d) = self.n_models, self.joint.shape
        shapes: Shapes = dict.fromkeys(("grams", "squares", "spreads"), (m, b, d, d))
        shapes |= {"moments": (m, b, d), "coefs": (m, b, d), "clocks": (m, 2)}
        shapes |= {"failures": (m, self.memory), "seen": (m,)}
        return {name: shapes[name] for name in MasterMemory._fields}

    @property
    def rules(self) -> MasterRules:  # type: ignore[override]
        """The configuration as kernels take it."""
        margin = math.sqrt(2) * self.noise * float(erfinv(1 - self.failure))
        doubt = -math.log(self.failure)
        return MasterRules(super().rules, margin=margin, doubt=doubt, slack=0.002, limit=float(self.failure))

    def _begin(self, memory: Any) -> None:
        memory.seen[:] = -1
        start_model(self._kernel_rules, memory)
