"""The probabilities of a policy along a log, and how much of them the log can speak of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from seachange.errors import ParameterError
from seachange.kernels.weights import weigh
from seachange.log.bandit_log import BanditLog
from seachange.log.validation import LEAST_PROPENSITY
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.protocols import Floats, Policy
from seachange.states.labels import StateLabels

Judged: TypeAlias = Policy | PolicySet | Floats
Distribution: TypeAlias = Callable[[slice], Floats]
# Probabilities that are held at a time.
ENTRIES = 1 << 17
# How far from 1 the probabilities of a round may add up to.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Support:
    """How a log bears on a policy."""

    weights: Floats  # (n,) π(a_t | x_t) / p_t
    weight_bound: float  # no weight can be larger, as far as the propensities of the log tell
    unseen_mass: float  # mean probability of actions that the log never took
    unsupported_mass: float | None  # mean probability of actions that it could not take, where that is known
    largest_ratios: Floats | None = None  # (n,) the largest π / π_0 of a round's actions, where that is known

    def round_bounds(self, propensities: Floats) -> Floats:
        """(n,) no weight of the round could have been larger, as far as its own propensities tell."""
        bounds = 1 / propensities if self.largest_ratios is None else self.largest_ratios
        return np.maximum(bounds, self.weights)  # rounding can put a weight above its bound


def membership_of(log: BanditLog, labels: StateLabels | None, soft: bool) -> Floats:
    """(n, L) q_t(z): 0 or 1 unless ``soft``; one state without labels."""
    if labels is None:
        return np.ones((len(log), 1))
    found = len(labels.states)
    require(found == len(log), f"labels must have one entry a round; they have {found} for {len(log)} rounds.")
    require(not soft or labels.state_probs is not None, "soft=True needs labels with state_probs; these have none.")
    return np.ascontiguousarray(labels.weights(soft).T)


def distribution_of(log: BanditLog, policy: Judged, labels: StateLabels | None, soft: bool) -> Distribution:
    """π(a | x_t) of a run of rounds, (m, K), checked; of a ``PolicySet``: Σ_z q_t(z) π_z(a | x_t)."""
    given = _unchecked(log, policy, labels, soft)

    def checked(rounds: slice) -> Floats:
        probs: Floats = np.ascontiguousarray(given(rounds), dtype=np.float64)
        wanted = (rounds.stop - rounds.start, log.n_actions)
        if probs.shape != wanted:
            raise ParameterError(f"the policy must give probabilities {wanted}; it gave {probs.shape}.")
        if (mask := log[rounds].action_mask) is not None:
            hidden = np.where(mask, 0.0, probs).sum(axis=1)
            if (hidden > ROUNDING).any():
                row = int(hidden.argmax())
                raise ParameterError(
                    f"the policy must leave out actions that could not be shown; in row {rounds.start + row} it gives "
                    f"them {hidden[row]:g}. predict_proba gets the action_mask: put 0 where it is false."
                )
        return probs

    return checked


def _unchecked(log: BanditLog, policy: Judged, labels: StateLabels | None, soft: bool) -> Distribution:
    if isinstance(policy, PolicySet):
        policies = policy
        if labels is None:
            raise ParameterError("a PolicySet needs labels: which round belongs to which state.")
        count = labels.n_states
        require(count <= len(policies), f"{count} states need as many policies; there are {len(policies)}.")
        membership = membership_of(log, labels, soft)
        return lambda rounds: _mixture(log[rounds], policies, membership[rounds])
    if isinstance(policy, np.ndarray):
        stored = policy
        wanted = (len(log), log.n_actions)
        require(stored.shape == wanted, f"probabilities must have shape {wanted}; these have {stored.shape}.")
        return lambda rounds: stored[rounds]
    if isinstance(policy, Policy):
        alone = policy
        return lambda rounds: _probabilities(log[rounds], alone)
    raise ParameterError(
        "a policy must have predict_proba(contexts, action_mask), or be an array of its probabilities (n, K); "
        "for a model: evaluate(log, model.policies, labels=model.label_ahead(log))."
    )


def _probabilities(part: BanditLog, policy: Policy) -> Floats:
    return policy.predict_proba(part.contexts, part.action_mask)


def _mixture(part: BanditLog, policies: PolicySet, membership: Floats) -> Floats:
    """Σ_z q_t(z) π_z(a | x_t), each policy asked only of the rounds it has a share in."""
    mixed = np.zeros((len(part), part.n_actions))
    contexts, mask = part.contexts, part.action_mask
    for state in range(membership.shape[1]):
        share = membership[:, state]
        members = np.flatnonzero(share)
        if len(members) == 0:
            continue
        everyone = len(members) == len(part)
        shown = mask if mask is None or everyone else mask[members]
        probs = policies[state].predict_proba(contexts if everyone else contexts[members], shown)
        mixed[members] += share[members, None] * probs
    return mixed


def parts_of(log: BanditLog) -> list[slice]:
    """Runs of rounds whose probabilities fit into memory side by side."""
    return log.chunk_slices(max(ENTRIES // log.n_actions, 1))


class SupportSums:
    """``Support``, gathered from one run of rounds after the other."""

    def __init__(self, log: BanditLog) -> None:
        self.log = log
        self.weights = np.empty(len(log))
        self.never_taken = (np.bincount(log.arrays.actions, minlength=log.n_actions) == 0).astype(np.float64)
        self.largest_ratios = None if log.logging_probs is None else np.empty(len(log))
        self.unseen, self.unsupported = 0.0, 0.0

    def add(self, rounds: slice, probs: Floats) -> None:
        """Count ``rounds``, whose probabilities are ``probs`` (m, K)."""
        arrays = self.log[rounds].arrays
        unseen, row = weigh(
            probs, arrays.actions, arrays.propensities, self.never_taken, ROUNDING, self.weights[rounds]
        )
        if row >= 0:
            raise ParameterError(
                f"the policy must give probabilities that add up to 1; those of row {rounds.start + row} go from "
                f"{probs[row].min():g} up and add up to {probs[row].sum():g}."
            )
        self.unseen += unseen
        if self.log.logging_probs is not None and self.largest_ratios is not None:
            logging = self.log.logging_probs[rounds]
            possible = logging >= LEAST_PROPENSITY
            self.unsupported += float(probs[~possible].sum())
            ratios = np.divide(probs, logging, out=np.zeros_like(probs), where=possible)
            self.largest_ratios[rounds] = ratios.max(axis=1)

    def total(self) -> Support:
        """The sums of all rounds."""
        n, ratios = len(self.log), self.largest_ratios
        # What is not known of the logging policy: that it never gave an action less than the least that is in the log.
        bound = 1 / float(self.log.arrays.propensities.min()) if ratios is None else float(ratios.max())
        return Support(
            self.weights,
            max(bound, float(self.weights.max())),
            self.unseen / n,
            None if ratios is None else self.unsupported / n,
            ratios,
        )


def support_of(log: BanditLog, probs_of: Distribution) -> Support:
    """How ``log`` bears on the policy with the probabilities ``probs_of``."""
    sums = SupportSums(log)
    for rounds in parts_of(log):
        sums.add(rounds, probs_of(rounds))
    return sums.total()


def effective_samples(weights: Floats) -> float:
    """(Σ w)² / Σ w², of weights from 0 up; in units of the largest, so that no square leaves the numbers."""
    largest = float(weights.max())
    if not largest > 0:
        return 0.0
    shares = weights / largest
    return float(shares.sum()) ** 2 / float(shares @ shares)
