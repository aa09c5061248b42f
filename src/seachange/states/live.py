"""A live filter: which state is the world in, told one round at a time."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.kernels.belief import move, weigh
from seachange.kernels.emission import reward_evidence, state_scores
from seachange.log.validation import LARGEST
from seachange.params import require
from seachange.protocols import Floats
from seachange.states.switching import SwitchingRegression


@dataclass(frozen=True, eq=False)
class LiveState:
    """What is known after some rounds."""

    state_probs: Floats  # (L,) p(z_t | r_1:t); P_0 before the first round
    forecast: Floats  # (L,) p(z_t+1 | r_1:t): of the round to come
    rounds: int  # t


@dataclass(frozen=True, eq=False)
class LiveFilter:
    """Follow a log that is still being written: ``SwitchingRegression.filter``, to the bit, one round at a time.

    >>> live = LiveFilter(oracle)  # doctest: +SKIP
    >>> state = live.init()  # doctest: +SKIP
    >>> state = live.update(state, context, action, reward)  # doctest: +SKIP
    """

    hmm: SwitchingRegression  # or a fitted oracle, whose model it is

    def __post_init__(self) -> None:
        given: Any = self.hmm
        found = getattr(given, "model_", given)
        require(
            isinstance(found, SwitchingRegression),
            f"a live filter follows the model of an HMM: oracle.model_, or the fitted HMMOracle; got {given!r}.",
        )
        object.__setattr__(self, "hmm", found)

    def init(self) -> LiveState:
        """The state before the first round."""
        return LiveState(self.hmm.initial_probs.copy(), self.hmm.initial_probs.copy(), 0)

    def update(self, state: LiveState, context: npt.ArrayLike | None, action: int, reward: float | None) -> LiveState:
        """A round passed. ``context`` is one row of what the log held; ``reward`` None: nobody observed it."""
        n_actions, n_states = self.hmm.joint.n_actions, self.hmm.n_states
        require(
            isinstance(action, int | Integral) and 0 <= action < n_actions,
            f"action must be from 0 to {n_actions - 1}, a place in the log's action_names; got {action!r}.",
        )
        require(reward is None or _is_finite(reward), f"a reward must be a finite number or None; got {reward}.")
        require(
            reward is None or self.hmm.rewards != "bernoulli" or reward in (0, 1),
            f"the model is of clicks, rewards of 0 or 1; got {reward}.",
        )
        evidence = np.ones(n_states)
        if reward is not None:
            contexts = np.empty((1, 0)) if context is None else np.asarray(context)[None]
            scores = np.empty(n_states)
            rows = self.hmm.joint.rows(contexts)
            require(bool((np.abs(rows) <= LARGEST).all()), f"a context must be finite; got {context!r}.")
            state_scores(rows[0], action, self.hmm.reward_coefs, scores)
            reward_evidence(scores, float(reward), self.hmm.noise_variances, evidence)
        probs, forecast = np.empty(n_states), np.empty(n_states)
        weigh(state.forecast, evidence, probs)
        move(probs, self.hmm.transition_matrix, forecast)
        return LiveState(probs, forecast, state.rounds + 1)


def _is_finite(reward: Any) -> bool:
    try:
        return bool(np.isfinite(float(reward)))
    except (TypeError, ValueError):
        return False
