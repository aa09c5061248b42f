"""A live filter: the state of the world, updated one round at a time."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from seachange.kernels.belief_updates import is_distribution, move, weigh
from seachange.kernels.emission import reward_evidence, state_scores
from seachange.log.validation import LARGEST
from seachange.params import require
from seachange.protocols import Floats
from seachange.states.switching_regression import SwitchingRegression


@dataclass(frozen=True, eq=False)
class LiveState:
    """The belief after some rounds."""

    state_probs: Floats  # (L,) p(z_t | r_1:t); P_0 before the first round
    forecast: Floats  # (L,) p(z_t+1 | r_1:t): for the next round
    rounds: int  # t


@dataclass(frozen=True, eq=False)
class LiveFilter:
    """Filter a log while it is being written. Equals ``SwitchingRegression.filter`` to the bit.

    >>> live = LiveFilter(oracle)  # doctest: +SKIP
    >>> state = live.init()  # doctest: +SKIP
    >>> state = live.update(state, context, action, reward)  # doctest: +SKIP
    """

    hmm: SwitchingRegression  # or a fitted HMMOracle

    def __post_init__(self) -> None:
        given: Any = self.hmm
        found = getattr(given, "model_", given)
        require(
            isinstance(found, SwitchingRegression),
            f"LiveFilter needs oracle.model_ or a fitted HMMOracle; got {given!r}.",
        )
        object.__setattr__(self, "hmm", found)

    def init(self) -> LiveState:
        """The state before the first round."""
        return LiveState(self.hmm.initial_probs.copy(), self.hmm.initial_probs.copy(), 0)

    def update(self, state: LiveState, context: npt.ArrayLike | None, action: int, reward: float | None) -> LiveState:
        """The state after a round. ``context`` is as in the log; ``reward`` None means it was not observed."""
        n_actions, n_states = self.hmm.joint.n_actions, self.hmm.n_states
        require(
            isinstance(state, LiveState) and state.forecast.shape == (n_states,) and is_distribution(state.forecast),
            f"state must be what init() or update() of a filter with {n_states} states returned; got {state!r}.",
        )
        require(
            isinstance(action, int | Integral) and 0 <= action < n_actions,
            f"action must be an index into the log's action_names, 0 to {n_actions - 1}; got {action!r}.",
        )
        require(reward is None or _is_finite(reward), f"reward must be a finite number or None; got {reward}.")
        require(
            reward is None or self.hmm.rewards != "bernoulli" or reward in (0, 1),
            f"the model expects rewards of 0 or 1; got {reward}.",
        )
        evidence = np.ones(n_states)
        if reward is not None:
            contexts = np.empty((1, 0)) if context is None else np.asarray(context)[None]
            scores = np.empty(n_states)
            rows = self.hmm.joint.rows(contexts)
            require(bool((np.abs(rows) <= LARGEST).all()), f"context must be finite; got {context!r}.")
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
