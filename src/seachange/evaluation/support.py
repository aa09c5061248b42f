"""Action probabilities of a policy along a log, and how much of them the log supports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from seachange.errors import ParameterError
from seachange.kernels.action_probs import weigh
from seachange.log.bandit_log import BanditLog
from seachange.log.validation import LEAST_PROPENSITY
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Floats, Policy
from seachange.states.labels import StateLabels

PolicyLike: TypeAlias = Policy | PolicySet | Floats
Distribution: TypeAlias = Callable[[slice], Floats]
Range: TypeAlias = tuple[float, float]
ENTRIES = 1 << 17  # probabilities kept in memory at a time
ROUNDING = 1e-6  # how far from 1 the probabilities of a round may sum


@dataclass(frozen=True, eq=False)
class Support:
    """Importance weights of a policy on a log, and the part of the policy that the log does not cover."""

    weights: Floats  # (n,) π(a_t | x_t) / p_t
    weight_bound: float  # upper bound on any weight, given the log's propensities
    unseen_mass: float  # mean probability of actions that the log never took
    unsupported_mass: float | None  # mean probability of actions that it could not take, if known
    largest_ratios: Floats | None = None  # (n,) the largest π / π_0 among a round's actions, if known


def membership_of(log: BanditLog, labels: StateLabels | None, soft: bool = False) -> Floats:
    """(n, L) q_t(z): 0 or 1 unless ``soft``; one state without labels."""
    if labels is None:
        return np.ones((len(log), 1))
    count = len(labels.states)
    require(count == len(log), f"labels must have one entry per round; they have {count} for {len(log)} rounds.")
    require(not soft or labels.state_probs is not None, "soft=True needs labels with state_probs; these have none.")
    return np.ascontiguousarray(labels.weights(soft).T)


def distribution_of(
    log: BanditLog, policy: PolicyLike, labels: StateLabels | None = None, soft: bool = False
) -> Distribution:
    """π(a | x_t) for a slice of rounds, (m, K), validated; for a ``PolicySet``: Σ_z q_t(z) π_z(a | x_t)."""
    unchecked = _unchecked(log, policy, labels, soft)

    def checked(rounds: slice) -> Floats:
        probs: Floats = np.ascontiguousarray(unchecked(rounds), dtype=np.float64)
        expected = (rounds.stop - rounds.start, log.n_actions)
        rule = f"the policy must return probabilities of shape {expected}; got {probs.shape}."
        require(probs.shape == expected, rule)
        if (mask := log[rounds].action_mask) is not None:
            masked = np.where(mask, 0.0, probs).sum(axis=1)
            row = int(masked.argmax())
            rule = (
                f"the policy must not take masked actions; in row {rounds.start + row} it gives them {masked[row]:g}. "
            )
            require(not masked[row] > ROUNDING, f"{rule}Return 0 where the action_mask of predict_proba is False.")
        return probs

    return checked


def _unchecked(log: BanditLog, policy: PolicyLike, labels: StateLabels | None, soft: bool) -> Distribution:
    if isinstance(policy, np.ndarray):
        expected = (len(log), log.n_actions)
        require(policy.shape == expected, f"probabilities must have shape {expected}; got {policy.shape}.")
        return lambda rounds: policy[rounds]
    if isinstance(policy, Policy):
        return lambda rounds: policy.predict_proba(log[rounds].contexts, log[rounds].action_mask)
    if not isinstance(policy, PolicySet):
        raise ParameterError(
            "a policy must have predict_proba(contexts, action_mask) or be an array of probabilities (n, K). "
            "For a model, call evaluate(log, model.policies, labels=model.label_ahead(log))."
        )
    if labels is None:
        raise ParameterError("a PolicySet needs labels: the state of each round.")
    count, membership = labels.n_states, membership_of(log, labels, soft)
    require(count <= len(policy), f"{count} states need {count} policies; there are {len(policy)}.")

    def mixture(rounds: slice) -> Floats:
        """Σ_z q_t(z) π_z(a | x_t); each policy is called only for the rounds it has a share in."""
        contexts, mask = log[rounds].contexts, log[rounds].action_mask
        mixed = np.zeros((rounds.stop - rounds.start, log.n_actions))
        for state, share in enumerate(membership[rounds].T):
            members = np.flatnonzero(share)
            if len(members) > 0:
                probs = policy[state].predict_proba(contexts[members], None if mask is None else mask[members])
                mixed[members] += share[members, None] * probs
        return mixed

    return mixture


def slices_of(log: BanditLog) -> list[slice]:
    """Slices of rounds whose probabilities fit in memory."""
    return log.chunk_slices(max(ENTRIES // log.n_actions, 1))


class SupportSums:
    """``Support``, accumulated slice by slice."""

    def __init__(self, log: BanditLog) -> None:
        self.log = log
        self.weights = np.empty(len(log))
        self.never_taken = (np.bincount(log.arrays.actions, minlength=log.n_actions) == 0).astype(np.float64)
        self.largest_ratios = None if log.logging_probs is None else np.empty(len(log))
        self.unseen, self.unsupported = 0.0, 0.0

    def add(self, rounds: slice, probs: Floats) -> None:
        """Add ``rounds``, whose probabilities are ``probs`` (m, K)."""
        _, _, actions, _, propensities = self.log[rounds].arrays
        unseen, row = weigh(probs, actions, propensities, self.never_taken, ROUNDING, self.weights[rounds])
        if row >= 0:
            raise ParameterError(
                f"the policy's probabilities must be at least 0 and sum to 1; in row {rounds.start + row} the smallest "
                f"is {probs[row].min():g} and they sum to {probs[row].sum():g}."
            )
        self.unseen += unseen
        if self.log.logging_probs is not None and self.largest_ratios is not None:
            logging = self.log.logging_probs[rounds]
            possible = logging >= LEAST_PROPENSITY
            self.unsupported += float(probs[~possible].sum())
            ratios = np.divide(probs, logging, out=np.zeros_like(probs), where=possible)
            self.largest_ratios[rounds] = ratios.max(axis=1)

    def total(self) -> Support:
        """The support over all rounds."""
        n, ratios = len(self.log), self.largest_ratios
        # Without logging_probs, assume the logging policy never went below the smallest logged propensity.
        bound = 1 / float(self.log.arrays.propensities.min()) if ratios is None else float(ratios.max())
        unsupported = None if ratios is None else self.unsupported / n
        return Support(self.weights, max(bound, float(self.weights.max())), self.unseen / n, unsupported, ratios)


def support_of(log: BanditLog, probs_of: Distribution) -> Support:
    """The support that ``log`` gives to the policy with probabilities ``probs_of``."""
    sums = SupportSums(log)
    for rounds in slices_of(log):
        sums.add(rounds, probs_of(rounds))
    return sums.total()


def effective_samples(weights: Floats) -> float:
    """(Σ w)² / Σ w² of weights ≥ 0, in units of the largest so that squares do not overflow."""
    largest = float(weights.max())
    if not largest > 0:
        return 0.0
    shares = weights / largest
    return float(shares.sum()) ** 2 / float(shares @ shares)
