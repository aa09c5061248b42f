"""Can this log speak of this policy? What weights tell, and past which point no value is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from seachange.evaluation.support import Judged, Support, distribution_of, effective_samples, support_of
from seachange.log.bandit_log import BanditLog, require_propensities, require_rounds
from seachange.params import require
from seachange.states.labels import StateLabels

# With fewer effective rounds the standard error itself is known to no better than one in seven, 1 / √(2 · 30).
LEAST_EFFECTIVE = 30.0
# A value that leaves out more than this share of the policy may be wrong by this share of the range of rewards.
MOST_MISSING = 0.05
# Standard errors that chance hardly ever makes.
SURPRISING = 4.5
# Shares that are worth a note: of weight that was cut off, and of weight that one round has.
NOTABLE, DOMINANT = 0.01, 0.05
LARGEST = 5
TOO_SMALL = "the propensities are too small, or are not those of the logged actions. Check how they were written down"
TOO_SMALL_ESTIMATES = (
    "the estimated propensities are too small: the policy that logged changed over time, or looked at more than the "
    "contexts. sc.propensity_report shows how far they are off; estimate each stretch of time by itself, or give the "
    "contexts that it looked at"
)


@dataclass(frozen=True)
class Diagnostics:
    """What the weights w_t = π(a_t | x_t) / p_t say about the ground that an estimate stands on."""

    n_rounds: int
    effective_samples: float  # (Σ w)² / Σ w² after clipping: rounds of the log that speak for the policy
    effective_share: float  # of all rounds
    overlap: float  # mean of min{w, 1}: Σ_a min{π, π_0}, the share of its choices that the two policies have in common
    largest_weights: tuple[tuple[int, float], ...]  # (row, weight), largest first
    mean_weight: float  # 1 on average where the propensities are right and the log took all the policy's actions
    mean_weight_z: float  # standard errors from 1
    clipped_mass: float  # 1 - Σ min{M, w} / Σ w
    clipped_reward: float  # mean of (w - min{M, w}) r: what clipping took off the value
    unseen_mass: float  # mean probability of actions that the log never took
    unsupported_mass: float | None  # mean probability of actions it could not take; None without logging_probs
    least_propensity: float
    refusals: tuple[str, ...]  # why no value should be given, and what would cure it
    notes: tuple[str, ...]  # what should be said with a value

    @property
    def sound(self) -> bool:
        """Whether a value can be given."""
        return not self.refusals


def diagnose(
    log: BanditLog, policy: Judged, labels: StateLabels | None = None, clip: float = np.inf, *, soft: bool = False
) -> Diagnostics:
    """Say how well ``log`` can speak of ``policy``, before any value is claimed."""
    require_rounds(log, "diagnosing a policy")
    require_propensities(log, "diagnosing a policy")
    require(clip > 0, f"clip must be positive; got {clip}.")
    return diagnostics_of(log, support_of(log, distribution_of(log, policy, labels, soft)), clip)


def diagnostics_of(log: BanditLog, support: Support, clip: float) -> Diagnostics:
    """The diagnostics of weights that are known."""
    n, weights, rewards = len(log), support.weights, log.arrays.rewards
    clipped = np.minimum(weights, clip)
    total, mean = float(weights.sum()), float(weights.mean())
    error = float(weights.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    # Equal weights that are not 1 are infinitely many standard errors off; rounding is not.
    off = mean - 1 if abs(mean - 1) > 1e-9 else 0.0
    few = np.argpartition(-weights, min(LARGEST, n) - 1)[:LARGEST]
    largest = tuple((int(row), float(weights[row])) for row in few[np.argsort(-weights[few], kind="stable")])
    effective = effective_samples(clipped)
    lost = np.nan_to_num((weights - clipped) * rewards).mean() if np.isfinite(clip) else 0.0
    found = Diagnostics(
        n_rounds=n,
        effective_samples=effective,
        effective_share=effective / n,
        overlap=float(np.minimum(weights, 1.0).mean()),
        largest_weights=largest,
        mean_weight=mean,
        mean_weight_z=float(np.clip(off / max(error, 1e-12), -1e6, 1e6)),
        clipped_mass=max(1 - float(clipped.sum()) / total, 0.0) if total > 0 else 0.0,
        clipped_reward=float(lost),
        unseen_mass=support.unseen_mass,
        unsupported_mass=support.unsupported_mass,
        least_propensity=float(log.arrays.propensities.min()),
        refusals=(),
        notes=(),
    )
    return replace(
        found,
        refusals=tuple(_refusals(found, error, log.propensities_estimated)),
        notes=tuple(_notes(found, error, clip)),
    )


def _refusals(found: Diagnostics, error: float, estimated: bool) -> Iterator[str]:
    """Why no value should be given."""
    if found.effective_samples < LEAST_EFFECTIVE:
        row, weight = found.largest_weights[0]
        yield (
            f"the log speaks too little of this policy: {found.effective_samples:.1f} effective rounds of "
            f"{found.n_rounds:,}, and at least {LEAST_EFFECTIVE:.0f} are needed (the largest weight, of row {row}, is "
            f"{weight:.4g}). A longer log, a policy closer to the one that logged, or a lower clip would cure it"
        )
    if (found.unsupported_mass or 0.0) > MOST_MISSING:
        yield (
            f"the policy would spend {found.unsupported_mass:.1%} of its rounds on actions that the log could not take "
            "(logging_probs is 0), and nothing is known of what they earn. Mask those actions, or log with some "
            "exploration"
        )
    off = found.mean_weight - 1
    if abs(off) > max(SURPRISING * error, MOST_MISSING):
        cause = (
            (TOO_SMALL_ESTIMATES if estimated else TOO_SMALL)
            if off > 0
            else "it would take actions that the log never or hardly ever took "
            f"({found.unseen_mass:.0%} of its choices never), or the propensities are too large. Leave those actions "
            "out of the policy, log with some exploration, or check the propensities"
        )
        yield f"the weights of this policy average {found.mean_weight:.2f}, not 1: {cause}"


def _notes(found: Diagnostics, error: float, clip: float) -> Iterator[str]:
    """What should be said with a value."""
    off, (row, weight) = found.mean_weight - 1, found.largest_weights[0]
    if SURPRISING * error < abs(off) <= MOST_MISSING:
        yield f"the weights of this policy average {found.mean_weight:.3f}, not 1, which chance does not explain."
    if 0 < (found.unsupported_mass or 0.0) <= MOST_MISSING:
        yield f"{found.unsupported_mass:.2%} of the policy's choices are actions that the log could not take."
    if found.clipped_mass > NOTABLE:
        yield (
            f"clip={clip:g} cuts off {found.clipped_mass:.1%} of the policy's weight, which earned "
            f"{found.clipped_reward:.4g} a round: ips is that much too low. clip={weight:.4g} would cut nothing."
        )
    share = min(weight, clip) / max(found.n_rounds * found.mean_weight, 1e-300)
    if share > DOMINANT:
        yield (
            f"row {row} alone has {share:.0%} of all weight ({weight:.4g}; the least propensity is "
            f"{found.least_propensity:.2g}): the estimate hangs on it."
        )
