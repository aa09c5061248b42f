"""Can this log speak of this policy? What weights tell, and past which point no value is given."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from seachange.errors import RefusedError, SeachangeWarning
from seachange.evaluation.support import Judged, Support, distribution_of, effective_samples, support_of
from seachange.log.bandit_log import BanditLog, require_propensities, require_rounds
from seachange.params import require
from seachange.protocols import Floats
from seachange.records import lines_of
from seachange.states.labels import StateLabels

# With fewer effective rounds the standard error itself is known to no better than one in seven, 1 / √(2 · 30).
LEAST_EFFECTIVE = 30.0
# A value that leaves out more than this share of the policy may be wrong by this share of the range of rewards.
MOST_MISSING = 0.05
# Standard errors that chance hardly ever makes.
SURPRISING = 4.5
# Shares that are worth a note: of weight that was cut off, and of weight that one round has.
NOTABLE, DOMINANT = 0.01, 0.05
# What is left of a policy by a clip that cuts off more is another policy.
MOST_CUT = 0.5
LARGEST = 5
TOO_SMALL = "the propensities are too small, or are not those of the logged actions. Check how they were written down"
TOO_SMALL_ESTIMATES = (
    "the estimated propensities are too small: the policy that logged changed over time, or looked at more than the "
    "contexts. sc.propensity_report shows how far they are off; estimate each stretch of time by itself, or give the "
    "contexts that it looked at"
)


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        """A line for each thing to know."""
        rows = [
            ("effective rounds", f"{self.effective_samples:,.0f} of {self.n_rounds:,} ({self.effective_share:.1%})"),
            ("overlap", f"{self.overlap:.1%}"),
            ("mean weight", f"{self.mean_weight:.4g} ({self.mean_weight_z:+.1f} standard errors from 1)"),
            ("largest weights", ", ".join(f"{weight:.4g} (row {row})" for row, weight in self.largest_weights[:3])),
            ("weight cut off", f"{self.clipped_mass:.1%}"),
            ("never in the log", f"{self.unseen_mass:.1%} of its choices"),
            ("least propensity", f"{self.least_propensity:.3g}"),
            *(("no value", refusal) for refusal in self.refusals),
            *(("note", said) for said in self.notes),
        ]
        return lines_of(f"Diagnostics: {'sound' if self.sound else 'no value should be given'}", rows)


def diagnose(
    log: BanditLog, policy: Judged, labels: StateLabels | None = None, clip: float = np.inf, *, soft: bool = False
) -> Diagnostics:
    """Say how well ``log`` can speak of ``policy``, before any value is claimed."""
    require_rounds(log, "diagnosing a policy")
    require_propensities(log, "diagnosing a policy")
    require(clip > 0, f"clip must be positive; got {clip}.")
    return diagnostics_of(log, support_of(log, distribution_of(log, policy, labels, soft)), clip)


def require_sound(found: Diagnostics, force: bool) -> None:
    """Raise where no value should be given; say what should be said with one."""
    reasons = "; ".join(found.refusals)
    if reasons and not force:
        raise RefusedError(f"no value: {reasons}. force=True gives the numbers all the same.")
    told = (f"forced, and not to be relied on: {reasons}.",) if reasons else ()
    if told or found.notes:
        warnings.warn(" ".join((*told, *found.notes)), SeachangeWarning, stacklevel=4)


def diagnostics_of(log: BanditLog, support: Support, clip: float, *, clips: bool = True) -> Diagnostics:
    """The diagnostics of weights that are known; ``clips`` says whether the one who asks could clip them lower."""
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
    too_small = TOO_SMALL_ESTIMATES if log.propensities_estimated else TOO_SMALL
    if log.dropped:
        left_out = sum(count for _, count in log.dropped)
        too_small = f"{left_out:,} rows were left out, and if that was for what they did, it is why; or {too_small}"
    return replace(
        found,
        refusals=tuple(_refusals(found, weights, error, clip, clips, too_small)),
        notes=tuple(_notes(found, error, clip)),
    )


def _refusals(
    found: Diagnostics, weights: Floats, error: float, clip: float, clips: bool, too_small: str
) -> Iterator[str]:
    """Why no value should be given: what cannot be compared, NaN, is no reason to give one."""
    if not found.effective_samples >= LEAST_EFFECTIVE:
        row, weight = found.largest_weights[0]
        yield (
            f"the log speaks too little of this policy: {found.effective_samples:.1f} effective rounds of "
            f"{found.n_rounds:,}, and at least {LEAST_EFFECTIVE:.0f} are needed (the largest weight, of row {row}, is "
            f"{weight:.4g}). What would cure it: {_cures(found, weights, clip, clips)}"
        )
    unsupported = found.unsupported_mass or 0.0
    if not unsupported <= MOST_MISSING:
        yield (
            f"the policy would spend {unsupported:.1%} of its rounds on actions that the log could not take "
            f"(logging_probs is 0), and nothing is known of what they earn. {_or_explore('Mask', unsupported)}"
        )
    off = found.mean_weight - 1
    if not abs(off) <= max(SURPRISING * error, MOST_MISSING):
        yield f"the weights of this policy average {found.mean_weight:.2f}, not 1: {_cause(found, error, too_small)}"


def _cures(found: Diagnostics, weights: Floats, clip: float, clips: bool) -> str:
    """What would make the effective rounds enough, as far as these weights tell."""
    if not found.effective_samples > 0:
        return "a policy that takes actions which the log took, or a log that took those of the policy"
    clipped = np.minimum(weights, clip)
    # (Σ w)² / Σ w² is at least n times the mean weight over the largest; a mean above 1 is luck.
    needed = np.ceil(LEAST_EFFECTIVE * float(clipped.max()) / min(float(clipped.mean()), 1.0))
    cures = [f"a longer log, of some {needed:,.0f} rounds"]
    if found.n_rounds >= LEAST_EFFECTIVE:
        cures.append("a policy closer to the one that logged")
    clip = highest_clip(clipped, LEAST_EFFECTIVE) if clips else 0.0
    lost = 1 - float(np.minimum(weights, clip).sum()) / float(weights.sum())
    if lost <= MOST_CUT:
        cures.append(f"clip={0.9995 * clip:.4g} (which cuts off {lost:.1%} of the policy's weight)")
    return ", or ".join(cures)


def highest_clip(weights: Floats, effective: float) -> float:
    """The largest of these weights at which clipping leaves ``effective`` rounds; 0 where none does.

    (Σ min{M, w})² / Σ min{M, w}² falls as M grows, from the number of weights that are above 0.
    """
    rising = np.sort(weights[weights > 0])
    shares = rising / rising[-1]
    above = np.arange(len(shares))[::-1]
    sums, squares = np.cumsum(shares) + above * shares, np.cumsum(np.square(shares)) + above * np.square(shares)
    enough = np.flatnonzero(np.square(sums) >= effective * squares)
    return float(rising[enough[-1]]) if len(enough) else 0.0


def _cause(found: Diagnostics, error: float, too_small: str) -> str:
    """Why weights do not average 1, and the cure."""
    missing = 1 - found.mean_weight
    if missing < 0:
        return too_small
    if found.unseen_mass + SURPRISING * error >= missing:
        return (
            f"{found.unseen_mass:.0%} of its choices are actions that the log never took. "
            f"{_or_explore('Leave out', found.unseen_mass)}"
        )
    return (
        "in some rounds it would take actions that the log never or hardly ever took in such rounds, or the "
        "propensities are too large. Log with some exploration, or check how the propensities were written down"
    )


def _or_explore(remedy: str, mass: float) -> str:
    """What to do about actions that the log knows nothing of; a policy of nothing else cannot do without them."""
    return f"{remedy} those actions, or log with some exploration" if mass < 1 - MOST_MISSING else "Log them sometimes"


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
