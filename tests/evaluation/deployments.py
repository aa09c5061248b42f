"""Policies and deployments that tests lead along logs."""

from dataclasses import dataclass, replace

import numpy as np

KINDS = ("none", "shared", "per action")
NAMES = ("exp4s", "posterior", "single")


def only(followed):
    """The one replay that ``follow`` made."""
    replays, _ = followed
    return type(replays)(*(array[0] for array in replays))


class Fixed:
    """The same probabilities in every round."""

    def __init__(self, probs):
        self.probs = np.array(probs)

    def predict_proba(self, contexts, action_mask=None):
        probs = np.tile(self.probs, (len(contexts), 1))
        if action_mask is None:
            return probs
        probs = probs * action_mask
        return probs / probs.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Custom:
    """Nothing but the protocol, around one of ours."""

    inner: object

    def init(self):
        return self.inner.init()

    def act(self, state, context, uniform, action_mask=None):
        return self.inner.act(state, context, uniform, action_mask)

    def update(self, state, decision, reward):
        return self.inner.update(state, decision, reward)

    def amend(self, state, decision, reward):
        return self.inner.amend(state, decision, reward)

    def state_probs(self, state):
        return self.inner.state_probs(state)


def masked(log, seed=0):
    """The same log where some actions could not be shown, those that were taken excepted."""
    mask = np.random.default_rng(seed).random((len(log), 3)) < 0.6
    mask[np.arange(len(log)), log.actions] = True
    return replace(log, arrays=log.arrays._replace(mask=mask))
