"""How a policy takes the actions that a log took, and what clipping costs it."""

from __future__ import annotations

import warnings

import numpy as np

from seachange.errors import SeachangeWarning
from seachange.log.bandit_log import CHUNK_ROWS, BanditLog
from seachange.protocols import Floats, Ints, Policy

# Probabilities that are in memory at a time.
MOST_PROBS = 1 << 24
# Share of rewarded rounds whose weights may be clipped without a word.
WORTH_SAYING = 0.01


def chosen_probs(log: BanditLog, policy: Policy, rounds: Ints | None = None, *, greedy: bool = False) -> Floats:
    """π(a_t | x_t) of every round, or of these, in order; ``greedy``: 1 where a_t is what π takes most often."""
    found = []
    for part in log.chunk_slices(min(CHUNK_ROWS, max(MOST_PROBS // log.n_actions, 1))):
        chunk, here = log[part], np.arange(part.stop - part.start)
        if rounds is not None:
            here = rounds[slice(*np.searchsorted(rounds, (part.start, part.stop)))] - part.start
        if len(here) > 0:
            mask = None if chunk.action_mask is None else chunk.action_mask[here]
            probs, actions = policy.predict_proba(chunk.contexts[here], mask), chunk.actions[here]
            found.append(probs.argmax(axis=1) == actions if greedy else probs[np.arange(len(here)), actions])
    return np.concatenate(found).astype(np.float64) if found else np.empty(0)


def say_what_clipping_costs(log: BanditLog, counts: Floats, clip: float, stacklevel: int) -> None:
    """Warn where ``clip`` is below 1 / p: no policy is credited there with what it would earn."""
    rewards, propensities = log.arrays.rewards, log.arrays.propensities
    rewarded = (rewards != 0) & (counts > 0)
    clipped = rewarded & (clip * propensities < 1)
    share = int(clipped.sum()) / max(int(rewarded.sum()), 1)
    if share > WORTH_SAYING:
        worth = (counts * np.abs(rewards))[clipped]
        credit = clip * worth.sum() / (worth / propensities[clipped]).sum()
        warnings.warn(
            f"clip={clip:g} is below 1 / p in {share:.1%} of the rewarded rounds: a policy that is sure of their "
            f"actions is credited with {credit:.1%} of what they earned, and gains nothing by becoming sure. "
            f"clip={1 / float(propensities[rewarded].min()):.4g} clips nothing.",
            SeachangeWarning,
            stacklevel=stacklevel,
        )
