"""klUCB, and klUCB that an oracle restarts."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from seachange.deploy.rivals.arms import ArmRival


@dataclass(frozen=True, kw_only=True, eq=False)
class KLUCB(ArmRival):
    """Highest max{q : N kl(mean, q) ≤ log t} (Cappé et al. 2013), with all rewards since an action's last restart.

    The oracle of Besson's published figures restarts only the action that was taken just before a change.

    >>> import numpy as np
    >>> rival = KLUCB(n_actions=2)
    >>> state = rival.init()
    >>> for uniform in np.random.default_rng(0).random(100):
    ...     decision = rival.act(state, None, uniform)
    ...     state = rival.update(state, decision, float(decision.action))
    >>> rival.act(state, None, 0.5).action
    1
    """

    restarts: tuple[int, ...] = ()  # rounds after whose decisions the action taken restarts, as told by an oracle

    def _settings(self) -> dict[str, Any]:
        return {"restarts": np.array(self.restarts, dtype=np.int64)}
