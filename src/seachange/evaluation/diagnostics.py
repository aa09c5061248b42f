"""Diagnostics of importance weights: how well a log supports an estimate, and when an estimate is refused."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from seachange.errors import Fix, RefusedError, SeachangeWarning
from seachange.evaluation.terms import PolicyLike, Support, distribution_of, effective_samples, support_of
from seachange.log.bandit_log import BanditLog, require_propensities, require_rounds
from seachange.params import require, table_of
from seachange.protocols import Floats
from seachange.states.labels import StateLabels

# With a smaller effective sample size, a standard error is itself off by more than 1 / √(2 · 30), one in eight.
LEAST_EFFECTIVE = 30.0
# An estimate that misses more than this share of the policy may be off by this share of the reward range.
MOST_MISSING = 0.05
SURPRISING = 4.5  # standard errors that chance almost never produces
NOTABLE, DOMINANT = 0.01, 0.05  # shares worth a note: weight removed by clipping, and weight on a single round
MOST_CUT = 0.5  # clipping more than this share of the weight evaluates a different policy; so it is not suggested
LARGEST = 5
BY_PERIOD = "estimate propensities for each period separately"
BLOCKS = 10  # blocks of time in which estimated propensities must be right
FORCE = Fix("Pass force=True to get the numbers anyway.", "Pass --force to get the numbers anyway.")


@dataclass(frozen=True)
class Reason:
    """Why an estimate is refused, or what to keep in mind when reading it."""

    rule: str  # the check that failed
    problem: str  # one or two sentences
    fixes: tuple[str | Fix, ...] = ()  # alternatives, each a verb phrase
    numbers: dict[str, float] = field(default_factory=dict)
    hint: Fix | None = None  # more to say, as a sentence

    def text(self, *, shell: bool = False) -> str:
        """The problem and its fixes as sentences, with Python arguments or command-line options."""

        def words(fix: str | Fix) -> str:
            return fix if isinstance(fix, str) else (shell and fix.shell) or fix.python

        fixes = ", or ".join(map(words, self.fixes))
        parts = [self.problem, f"To fix this, {fixes}." if fixes else "", words(self.hint or "")]
        return " ".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.text()


class NoEstimateError(RefusedError):
    """The log cannot support an estimate; ``reasons`` say why and what would help."""

    def __init__(self, reasons: tuple[Reason, ...], *, what: str = "estimate", can_force: bool = True) -> None:
        self.reasons = reasons
        texts = (*reasons, Reason("force", "", hint=FORCE)) if can_force else reasons
        python, shell = (" ".join(reason.text(shell=form) for reason in texts) for form in (False, True))
        super().__init__(f"No {what}.", Fix(python, shell))


class EstimateWarning(SeachangeWarning):
    """Something to know about an estimate; ``state`` is the state whose rounds it is about, if it is about one."""

    def __init__(self, reasons: tuple[Reason, ...], *, state: int | None = None, intro: str = "") -> None:
        self.reasons, self.state, self.intro = reasons, state, intro
        self.about = intro if state is None else f"state {state}: {intro}"
        super().__init__(self.about + " ".join(map(str, reasons)))

    @property
    def shell_text(self) -> str:
        """The message for users of the command line."""
        return self.about + " ".join(reason.text(shell=True) for reason in self.reasons)


@dataclass(frozen=True, repr=False)
class Diagnostics:
    """What the weights w_t = π(a_t | x_t) / p_t say about the reliability of an estimate."""

    n_rounds: int
    effective_samples: float  # (Σ w)² / Σ w² after clipping: the effective sample size
    effective_share: float  # of all rounds
    overlap: float  # mean of min{w, 1}: Σ_a min{π, π_0}, the share of choices the two policies have in common
    largest_weights: tuple[tuple[int, float], ...]  # (row, weight), largest first
    mean_weight: float  # 1 on average if propensities are right and the log took all of the policy's actions
    mean_weight_z: float  # standard errors from 1
    clipped_mass: float  # 1 - Σ min{M, w} / Σ w
    clipped_reward: float  # mean of (w - min{M, w}) r: what clipping took off the value
    unseen_mass: float  # mean probability of actions that the log never took
    unsupported_mass: float | None  # mean probability of actions it could not take; None without logging_probs
    least_propensity: float
    refusals: tuple[Reason, ...] = ()  # why no estimate should be given
    notes: tuple[Reason, ...] = ()  # what to report along with an estimate

    @property
    def sound(self) -> bool:
        """Whether an estimate can be given."""
        return not self.refusals

    def __repr__(self) -> str:
        rows = [
            (
                "effective sample size",
                f"{self.effective_samples:,.0f} of {self.n_rounds:,} rounds ({self.effective_share:.1%})",
            ),
            ("overlap", f"{self.overlap:.1%}"),
            ("mean weight", f"{self.mean_weight:.4g} ({self.mean_weight_z:+.1f} standard errors from 1)"),
            ("largest weights", ", ".join(f"{weight:.4g} (round {row})" for row, weight in self.largest_weights[:3])),
            ("weight clipped", f"{self.clipped_mass:.1%}"),
            ("not in the log", f"{self.unseen_mass:.1%} of the policy's choices"),
            ("least propensity", f"{self.least_propensity:.3g}"),
            *(("refused", str(reason)) for reason in self.refusals),
            *(("note", str(note)) for note in self.notes),
        ]
        return table_of(f"Diagnostics: {'sound' if self.sound else 'no estimate should be given'}", [], rows)


def diagnose(
    log: BanditLog,
    policy: PolicyLike,
    labels: StateLabels | None = None,
    clip: float | None = None,
    *,
    soft: bool | None = None,
) -> Diagnostics:
    """Measure how well ``log`` supports an estimate of ``policy``'s value."""
    require_rounds(log, "diagnosing a policy")
    require_propensities(log, "diagnosing a policy")
    return diagnostics_of(log, support_of(log, distribution_of(log, policy, labels, soft)), weight_limit(log, clip))


def weight_limit(log: BanditLog, clip: float | None) -> float:
    """M: ``clip`` or, by default, no limit for logged propensities and √n for estimated ones (Ionides 2008)."""
    if clip is None:
        return max(float(np.sqrt(len(log))), 1.0) if log.propensities_estimated else np.inf
    require(clip > 0, f"clip must be positive; got {clip}.")
    return clip


def require_sound(measures: Diagnostics, force: bool) -> None:
    """Raise if no estimate should be given, unless forced; warn about what to report with one."""
    if measures.refusals and not force:
        raise NoEstimateError(measures.refusals)
    if measures.refusals or measures.notes:
        intro = "Forced estimate, not reliable. " if measures.refusals else ""
        warnings.warn(EstimateWarning((*measures.refusals, *measures.notes), intro=intro), stacklevel=4)


def diagnostics_of(log: BanditLog, support: Support, clip: float, *, clips: bool = True) -> Diagnostics:
    """Diagnostics of known weights; ``clips`` says whether the caller has a ``clip`` to lower."""
    n, weights, rewards = len(log), support.weights, log.arrays.rewards
    clipped = np.minimum(weights, clip)
    total, mean = float(weights.sum()), float(weights.mean())
    error = float(weights.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    # Equal weights other than 1 are infinitely many standard errors off; rounding errors are not.
    off = mean - 1 if abs(mean - 1) > 1e-9 else 0.0
    few = np.argpartition(-weights, min(LARGEST, n) - 1)[:LARGEST]
    largest = tuple((int(row), float(weights[row])) for row in few[np.argsort(-weights[few], kind="stable")])
    effective = effective_samples(clipped)
    lost = np.nan_to_num((weights - clipped) * rewards).mean() if np.isfinite(clip) else 0.0
    measures = Diagnostics(
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
    )
    refusals = tuple(_refusals(log, measures, weights, error, clip, clips))
    return replace(measures, refusals=refusals, notes=tuple(_notes(measures, error, clip)))


def _refusals(
    log: BanditLog, measures: Diagnostics, weights: Floats, error: float, clip: float, clips: bool
) -> Iterator[Reason]:
    """Why no estimate should be given; NaN never passes a check."""
    if not measures.effective_samples >= LEAST_EFFECTIVE:
        row, weight = measures.largest_weights[0]
        yield Reason(
            "effective sample size",
            f"The log rarely did what this policy would do: the effective sample size is "
            f"{measures.effective_samples:.1f} of {len(log):,} round{'s' * (len(log) != 1)}; at least "
            f"{LEAST_EFFECTIVE:.0f} are needed (largest weight: {weight:.4g}, round {row}).",
            _more_samples(measures, weights, clip, clips),
            {"effective_samples": measures.effective_samples, "needed": LEAST_EFFECTIVE, "largest_weight": weight},
        )
    unsupported = measures.unsupported_mass or 0.0
    if not unsupported <= MOST_MISSING:
        yield Reason(
            "support",
            f"The policy spends {unsupported:.1%} of its rounds on actions that the log could not take (logging_probs "
            "is 0), so their rewards are unknown.",
            _exploration("mask those actions", unsupported),
            {"unsupported_mass": unsupported},
        )
    if not abs(measures.mean_weight - 1) <= max(SURPRISING * error, MOST_MISSING):
        cause, fixes = _weight_cause(log, measures, error)
        problem = f"The policy's weights average {measures.mean_weight:.2f}, not 1: {cause}."
        yield Reason("mean weight", problem, fixes, {"mean_weight": measures.mean_weight})
    elif log.propensities_estimated:
        parts = [part for part in np.array_split(weights, BLOCKS) if effective_samples(part) >= LEAST_EFFECTIVE]
        off = [abs(float(part.mean()) - 1) for part in parts]
        chance = [SURPRISING * float(part.std()) / np.sqrt(len(part)) for part in parts]
        moved = sum(each for each, limit in zip(off, chance, strict=True) if each > limit) / BLOCKS
        if moved > MOST_MISSING:
            problem = f"In blocks of time, the policy's weights average {max(off):.0%} more or less than 1, so the "
            problem += "estimated propensities are wrong there: the logging policy changed over time."
            yield Reason("calibration", problem, (BY_PERIOD, "log the propensities"), {"moved": moved})


def miscalibration(rewards: Floats, weights: Floats, predicted: Floats, direct: Floats) -> Iterator[Reason]:
    """Why estimated propensities cannot be right: weights that average 1 also give all predictions their mean.

    E[w (r̂(x, a) - c)] = E[Σ_a π(a | x) (r̂(x, a) - c)] for any r̂ and c.
    """
    off = weights * (predicted - rewards.mean()) - (direct - rewards.mean())
    bias, error = abs(float(off.mean())), float(off.std()) / np.sqrt(len(off))
    if not bias <= max(SURPRISING * error, MOST_MISSING * float(rewards.std())):
        problem = "The estimated propensities are wrong where it matters for this policy: they change the mean of "
        problem += f"predicted rewards by {bias:.3g}, {bias / max(error, 1e-300):.0f} standard errors."
        fixes = ("log the propensities", "add all features that the logging policy used to the contexts")
        yield Reason("calibration", problem, fixes, {"bias": bias})


def _more_samples(measures: Diagnostics, weights: Floats, clip: float, clips: bool) -> tuple[str | Fix, ...]:
    """What would raise the effective sample size enough, given these weights."""
    if not measures.effective_samples > 0:
        return ("evaluate a policy whose actions the log took", "collect a log that takes the policy's actions")
    clipped = np.minimum(weights, clip)
    # (Σ w)² / Σ w² is at least n times the mean weight over the largest; a mean above 1 is luck.
    needed = np.ceil(LEAST_EFFECTIVE * float(clipped.max()) / min(float(clipped.mean()), 1.0))
    fixes: list[str | Fix] = [f"use a longer log (about {needed:,.0f} rounds)"]
    if measures.n_rounds >= LEAST_EFFECTIVE:
        fixes.append("use a policy closer to the logging policy")
    clip = highest_clip(clipped, LEAST_EFFECTIVE) if clips else 0.0
    if clip > 0:  # to two digits
        digit = 10.0 ** (np.floor(np.log10(clip)) - 1)
        clip = np.floor(clip / digit) * digit
    lost = 1 - float(np.minimum(weights, clip).sum()) / float(weights.sum())
    if lost <= MOST_CUT:
        least, price = f"{clip:.4g}", f"(which removes {lost:.1%} of the policy's weight)"
        fixes.append(Fix(f"pass clip={least} {price}", f"pass --clip {least} {price}"))
    return tuple(fixes)


def highest_clip(weights: Floats, effective: float) -> float:
    """The largest of these weights at which clipping leaves ``effective`` rounds; 0 if none does.

    (Σ min{M, w})² / Σ min{M, w}² falls as M grows, starting at the number of positive weights.
    """
    rising = np.sort(weights[weights > 0])
    shares = rising / rising[-1]
    above = np.arange(len(shares))[::-1]
    sums, squares = np.cumsum(shares) + above * shares, np.cumsum(np.square(shares)) + above * np.square(shares)
    enough = np.flatnonzero(np.square(sums) >= effective * squares)
    return float(rising[enough[-1]]) if len(enough) else 0.0


def _weight_cause(log: BanditLog, measures: Diagnostics, error: float) -> tuple[str, tuple[str, ...]]:
    """Why the weights do not average 1, and what would help."""
    missing = 1 - measures.mean_weight
    if missing >= 0 and measures.unseen_mass + SURPRISING * error >= missing:
        cause = f"{measures.unseen_mass:.0%} of its choices are actions that the log never took"
        return cause, _exploration("leave those actions out", measures.unseen_mass)
    if missing >= 0:
        cause = "it takes actions that the log almost never took in similar rounds, or the propensities are too large"
        return cause, ("log with some exploration", "check how the propensities were recorded")
    cause = "the propensities are too small, or they do not belong to the logged actions"
    fixes: tuple[str, ...] = ("check how the propensities were recorded",)
    if log.propensities_estimated:
        cause = "the estimated propensities are too small (see sc.propensity_report). The logging policy changed over "
        cause += "time, or it used features that the contexts lack"
        fixes = (BY_PERIOD, "add the missing features to the contexts")
    if log.dropped:
        count = sum(count for _, count in log.dropped)
        cause = f"{count:,} rows were dropped, perhaps because of their actions or rewards; or {cause}"
    return cause, fixes


def _exploration(alternative: str, mass: float) -> tuple[str, ...]:
    """What to do about actions missing from the log; a policy that takes almost nothing else cannot avoid them."""
    if mass < 1 - MOST_MISSING:
        return (alternative, "log with some exploration")
    return ("log those actions some of the time",)


def _notes(measures: Diagnostics, error: float, clip: float) -> Iterator[Reason]:
    off, (row, weight) = measures.mean_weight - 1, measures.largest_weights[0]
    if SURPRISING * error < abs(off) <= MOST_MISSING:
        problem = f"The policy's weights average {measures.mean_weight:.3f}, not 1, which chance does not explain."
        yield Reason("mean weight", problem, numbers={"mean_weight": measures.mean_weight})
    unsupported = measures.unsupported_mass or 0.0
    if 0 < unsupported <= MOST_MISSING:
        problem = f"{unsupported:.2%} of the policy's choices are actions that the log could not take."
        yield Reason("support", problem, numbers={"unsupported_mass": unsupported})
    reward = measures.clipped_reward
    if measures.clipped_mass > NOTABLE:
        yield Reason(
            "clipping",
            f"clip={clip:g} removes {measures.clipped_mass:.1%} of the policy's weight, which earned {reward:.4g} "
            "per round: ips is too low by that amount.",
            numbers={"clipped_mass": measures.clipped_mass, "clipped_reward": reward},
        )
    share = min(weight, clip) / max(measures.n_rounds * measures.mean_weight, 1e-300)
    if share > DOMINANT:
        yield Reason(
            "largest weight",
            f"Row {row} alone has {share:.0%} of all weight ({weight:.4g}; the smallest propensity is "
            f"{measures.least_propensity:.2g}), so the estimate depends on it.",
            numbers={"row": row, "share": share, "weight": weight},
        )
