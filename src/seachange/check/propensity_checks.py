"""Propensities: missing, filled in, computed afterwards, or not calibrated.

If propensities are right, Σ 1 / p over the rounds that took an action is, on average, the number of rounds that could
have taken it. Sums of 1 / p are skewed: a rare round with a small propensity may or may not occur. So an action is only
reported if

    |Σ 1/p - n| > z √Σ (1/p² - 1/p) + c W

with W the largest 1 / p (of the whole log if the sum is too small: the round that did not occur cannot be looked at),
and if it is off by more than a twentieth.
"""

import shlex
from collections.abc import Iterator, Mapping
from math import exp, log, pi, sqrt
from typing import TYPE_CHECKING

import numpy as np
import polars

from seachange.check.action_checks import INVERSE, INVERSE_SQUARES, LARGEST_INVERSE, WEIGHED
from seachange.check.counters import Slices, SliceSums
from seachange.check.log_check import Check, Finding, PropensityCheck, share_finding
from seachange.check.numeric_rounds import Rounds, numbers_of
from seachange.formats.column_roles import named_like_propensities
from seachange.propensities.signature import InverseSums, behaves_like_propensities
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    from seachange.check.tally import Tally

CERTAIN = 0.95  # from this propensity on, a choice was almost certain
MOST_COLUMNS = 500  # columns among which unnamed propensities are looked for
ALL_ONES, FEW_ONES = 0.99, 0.05  # propensities are all 1 if more than this share is; and few are if less than that
FALSE_ALARMS = 1e-6  # the probability of a false alarm, whatever the number of actions
MATERIAL = 0.05  # a smaller deviation from 1 may be due to rounding
FEWEST_ROUNDS = 100
FEWEST_EFFECTIVE = 100.0  # a long log needs this effective sample size to evaluate the random policy
# If most choices were certain: the share of rounds that must remain effective, and the share of the random policy's
# choices that must have been seen.
FEWEST_LEFT, LEAST_SEEN = 0.01, 2 / 3
MOSTLY = 0.9  # the share of valid values in a column that may hold the propensities by its name
ESTIMATE = "Log the probability that each action is chosen with, or estimate it: `--estimate-propensities`."


class PropensityChecks(Check):
    """Sums of propensities and their inverses."""

    def __init__(self, slices: Slices) -> None:
        self.present = False
        self.count = self.n_ones = self.n_certain = self.n_percent = self.n_logged = 0
        self.lowest, self.highest = np.inf, -np.inf
        self.inverse = 0.0  # Σ 1/p
        self.weights = self.weight_squares = 0.0  # Σ w and Σ w², with w = 1 / (k p) for k actions
        self.choices = self.choice_squares = 0.0  # Σ k of the rounds that list their actions, and Σ (1/p - k)²
        self.weighed, self.ones = slices.sums(), slices.sums()  # rounds with a propensity, and with 1
        self.candidates: dict[str, InverseSums] = {}  # contexts that may be propensities
        self.by_name: dict[str, Floats] = {}  # of those with a typical name: valid values, smallest, largest

    def add(self, rounds: Rounds) -> None:
        """Count the propensities of a part."""
        if rounds.propensities is not None and rounds.logged is not None:
            self.present = True
            self.n_logged += int(np.isfinite(rounds.logged).sum())
            with np.errstate(invalid="ignore"):
                self.n_percent += int(((rounds.logged > 1) & (rounds.logged <= 100)).sum())
            self._add_valid(rounds, rounds.propensities)
        if rounds.raw.pool is None:
            self._add_candidates(rounds.columns, rounds.codes)

    def _add_valid(self, rounds: Rounds, propensities: Floats) -> None:
        known, pool = np.isfinite(propensities), rounds.raw.pool
        p = propensities[known]
        if not len(p):
            return
        weights = 1 / p
        if pool is not None:
            lengths = pool.lengths[known].astype(np.float64)
            self.choices += float(lengths.sum())
            self.choice_squares += float(np.square(1 / p - lengths).sum())
            weights = 1 / (p * np.maximum(lengths, 1))
        self.weighed.add(rounds.slices[known])
        self.ones.add(rounds.slices[known], (p == 1).astype(np.float64))
        self.count += len(p)
        self.n_ones += int((p == 1).sum())
        self.n_certain += int((p >= CERTAIN).sum())
        self.lowest, self.highest = min(self.lowest, float(p.min())), max(self.highest, float(p.max()))
        self.inverse += float((1 / p).sum())
        self.weights += float(weights.sum())
        self.weight_squares += float(np.square(weights).sum())

    def _add_candidates(self, columns: Mapping[str, polars.Series], codes: Ints) -> None:
        """Look for propensities among the contexts, unless the log has others."""
        if self.present and self.n_ones <= ALL_ONES * self.count:
            self.candidates.clear()
            self.by_name.clear()
            return
        for name, column in columns.items():
            if name not in self.candidates and len(self.candidates) < MOST_COLUMNS:
                self.candidates[name] = InverseSums()
            if name in self.candidates:
                numbers = numbers_of(column)[0] if column.dtype.is_numeric() else np.full(len(column), np.nan)
                self.candidates[name].add(numbers, codes)
                if named_like_propensities(name):
                    valid = numbers[(numbers > 0) & (numbers <= 1)]
                    count, low, high = self.by_name.get(name, np.array([0, np.inf, -np.inf]))
                    ends = valid.min(initial=low), valid.max(initial=high)
                    self.by_name[name] = np.array([count + len(valid), *ends])

    def percents(self, tally: "Tally") -> bool:
        """Whether the propensities look like percentages."""
        return self.n_percent > 0.5 * max(self.n_logged, 1) and tally.broken.counts["propensity-negative"] == 0

    @property
    def effective(self) -> float:
        """Effective sample size of the random policy."""
        return self.weights**2 / self.weight_squares

    def summary(self, tally: "Tally") -> PropensityCheck | None:
        """The valid propensities."""
        if not self.count:
            return None
        mean, best = self.inverse / self.count, tally.actions.best()
        return PropensityCheck(self.lowest, self.highest, mean, self.effective, *best)

    def mean_weights(self, tally: "Tally") -> tuple[Floats, Floats, Floats]:
        """(K,) Σ 1 / p divided by the rounds that could take the action, its standard error, and these rounds."""
        actions, available = tally.actions, tally.actions.presence(tally.slices).available

        def summed(sums: SliceSums) -> Floats:
            return np.asarray((sums.part(*available.shape) * available).sum(axis=1))

        inverse, squares = summed(actions.inverse), summed(actions.inverse_squares)
        if tally.contexts.pool is None:
            rounds = available @ self.weighed.values[0, : available.shape[1]]
        else:
            rounds = np.full(len(available), np.nan) if tally.contexts.unnamed_pools else summed(actions.shown)
        rounds = np.where(rounds > 0, rounds, np.nan)
        return inverse / rounds, np.sqrt(np.maximum(squares - inverse, 0)) / rounds, rounds

    def nearly_certain(self, tally: "Tally") -> bool:
        """Whether choices were so certain that other actions are hardly in the log.

        Then neither the mean weight, most of whose weight is in rounds that did not occur, nor the times at which an
        action was taken reveal mistakes.
        """
        n = self.count
        if n < FEWEST_ROUNDS or 2 * self.n_certain < n or self.lowest == self.highest:
            return False
        seen = self.weights / (n if tally.contexts.pool is not None else n * tally.actions.count)
        return self.effective < FEWEST_LEFT * n or seen < LEAST_SEEN

    def findings(self, tally: "Tally") -> Iterator[Finding]:
        """No propensities, percentages, propensities that were filled in or computed, and poor calibration."""
        unnamed = list(self._unnamed(tally))
        yield from unnamed
        if not self.present:
            if not unnamed:
                yield Finding(
                    "no-propensities", "warning", "The log has no propensities",
                    f"All {tally.n_rounds:,} rounds lack a propensity.",
                    "If the log has them, name the column: `--columns propensity=COLUMN`. Otherwise estimate them with "
                    "--estimate-propensities, which assumes that the choice depended only on the contexts.",
                    numbers={"rounds": tally.n_rounds},
                )  # fmt: skip
            return
        if self.percents(tally):
            yield share_finding(
                "propensity-percent", "error", "Propensities look like percentages", self.n_percent, self.n_logged,
                "propensity", "are between 1 and 100", "Divide them by 100.",
            )  # fmt: skip
            return
        if not self.count or tally.actions.count < 2:
            return
        if (found := self._ones(tally) or self._frequencies(tally)) is not None:
            yield found
            return
        if self.nearly_certain(tally):
            yield self._certainty()
            return
        if not any(each.rule == "many-actions" for each in tally.findings):
            yield from self._calibration(tally)
        if tally.n_rounds >= 10 * FEWEST_EFFECTIVE > 10 * self.effective:
            yield Finding(
                "weak-support", "warning", "A few rounds carry most of the weight",
                f"The effective sample size for a random policy is {self.effective:,.0f} of {tally.n_rounds:,} rounds, "
                f"because of small propensities (the smallest is {self.lowest:.2g}).",
                "Explore more, or log longer. Estimates for policies unlike the logging policy will be imprecise.",
                numbers={"effective": self.effective, "rounds": tally.n_rounds, "lowest": self.lowest},
            )  # fmt: skip

    def _unnamed(self, tally: "Tally") -> Iterator[Finding]:
        """Contexts that look like propensities."""
        throughout = np.asarray(tally.actions.presence(tally.slices).available.all(axis=1))
        names = tuple(
            name
            for name, column in self.candidates.items()
            if column.n_rounds == tally.n_rounds and behaves_like_propensities(column, name, throughout)
        )
        evidence = "behaves like the probability of the action taken: its mean weight is about 1 for every action"
        if len(names) > 1:
            evidence = f"and {len(names) - 1} more behave{evidence.removeprefix('behaves')}"
        elif not names:
            fewest = MOSTLY * tally.n_rounds
            names = tuple(name for name, (n, low, high) in self.by_name.items() if n >= fewest and low < high)[:1]
            evidence = "has a name that suggests a propensity, and almost all of its values are between 0 and 1"
        if names:
            yield Finding(
                "propensity-unnamed", "warning", "A context looks like the propensity",
                f"Column {names[0]!r} {evidence}.",
                f"If it is the propensity, name it: `--columns {shlex.quote(f'propensity={names[0]}')}`. If not, "
                "choose contexts without it: `--columns contexts=A+B`.", len(names),
                names=names, numbers={"columns": len(names)},
            )  # fmt: skip

    def _certainty(self) -> Finding:
        left = min(self.effective, self.count - self.n_certain)
        return share_finding(
            "weak-support", "warning", "Choices were almost certain", self.n_certain, self.count, "round",
            f"took an action with a propensity of {CERTAIN:g} or more, which leaves an effective sample size of "
            f"{left:,.0f} rounds for other choices",
            "Deploy the current model with more exploration, model.deployer(exploration=0.05), and learn from that log."
            " If choices were less certain than that, the propensities are wrong.", effective=left,
        )  # fmt: skip

    def _ones(self, tally: "Tally") -> Finding | None:
        """Propensities that were set to 1, everywhere or for some time."""
        count, n_actions = tally.slices.count, tally.actions.count
        weighed, ones = self.weighed.values[0, :count], self.ones.values[0, :count]
        shares = ones / np.maximum(weighed, 1)
        stretch = shares > ALL_ONES
        between = (shares > FEW_ONES) & ~stretch
        mixed = (tally.actions.taken.values[:, :count] > 0).sum(axis=0) > 1
        if self.n_ones > ALL_ONES * self.count:
            since = ""
        elif (stretch & mixed).any() and between.sum() <= 2:  # the slices in which the stretch begins and ends
            since = f" (from round {int(stretch.argmax()) * tally.slices.size:,})"
        else:
            return None
        return share_finding(
            "propensity-one", "warning", "Propensities look filled in", self.n_ones, self.count, "propensity",
            f"are 1{since}, but {n_actions:,} actions were taken",
            f"{ESTIMATE} If choices were deterministic, no other policy can be evaluated.", actions=n_actions,
        )  # fmt: skip

    def _frequencies(self, tally: "Tally") -> Finding | None:
        """Propensities that are the frequencies of the actions."""
        totals, n = tally.actions.counted, self.count
        counts, inverse, squares = totals[:, WEIGHED], totals[:, INVERSE], totals[:, INVERSE_SQUARES]
        if tally.contexts.pool is not None or tally.actions.n_beyond or (counts == 0).any():
            return None
        if (np.abs(squares * counts / inverse**2 - 1) > 1e-6).any():  # an action's propensity varies
            return None
        probs = counts / inverse
        if np.ptp(probs) < 1e-9 or not np.isclose(probs.sum(), 1, atol=1e-3):
            return None
        allowed = max(0.5, 1e-6 * n)
        if (np.abs(counts - n * probs) > allowed).any():
            return None
        # The probability that right propensities are this close to the counts of all actions but one.
        spreads = np.sort(np.sqrt(2 * pi * n * probs * (1 - probs)))[1:]
        if exp(np.minimum(0.0, np.log(2 * allowed / spreads)).sum()) > 1e-5:
            return None
        return Finding(
            "propensity-frequency", "warning", "Propensities were computed afterwards",
            f"All {n:,} propensities equal the share of rounds that took the action, to the last digit.",
            f"That is right only if choices depended on neither context nor time. {ESTIMATE}", n,
            numbers={"count": n},
        )  # fmt: skip

    def _calibration(self, tally: "Tally") -> Iterator[Finding]:
        means, errors, rounds = self.mean_weights(tally)
        names = tally.actions.names
        twins = {name for each in tally.findings if each.rule == "action-spelling" for name in each.names}
        off = self._off_actions(tally, means, errors, rounds) & ~np.isin(np.array(names[: len(means)]), list(twins))
        n_off, n_actions = int(off.sum()), tally.actions.count
        pools, expected = tally.contexts.unnamed_pools, self.choices / self.count
        reach = 6 * sqrt(self.choice_squares) + 14 / self.lowest
        if off.any():
            worst = np.flatnonzero(off)[np.argsort(-np.abs(np.log(np.maximum(means[off], 1e-9))))]
            listed = "; ".join(f"{names[a]!r} {means[a]:.3g} ± {errors[a]:.2g}" for a in worst[:3])
            off_names, numbers = tuple(names[a] for a in worst), {"count": n_off, "total": n_actions}
            if self.lowest == self.highest:
                yield Finding(
                    "propensity-constant", "warning", "All propensities are the same",
                    f"All propensities are {self.lowest:.4g}, but actions were not taken equally often: the mean "
                    f"weight of each action should be 1, but is {listed}.", ESTIMATE, n_off, names=off_names,
                    numbers=numbers,
                )  # fmt: skip
                return
            yield Finding(
                "propensity-calibration", "warning", "Propensities are not calibrated",
                f"The mean weight of an action should be 1, but is off for {n_off} of {n_actions:,} actions: {listed}.",
                "Log the probability of the action taken, at the time of the choice. Above 1, an action was taken more "
                "often than its propensities say; below 1, less often.", n_off, names=off_names, numbers=numbers,
            )  # fmt: skip
        elif pools and abs(self.inverse - self.choices) > max(reach, MATERIAL * self.choices):
            yield Finding(
                "propensity-calibration", "warning", "Propensities are not calibrated",
                f"The mean of 1/p is {self.inverse / self.count:.4g}, but rounds list {expected:.4g} actions on "
                "average.", "Log the probability of the action taken, at the time of the choice.", self.count,
                numbers={"mean": self.inverse / self.count, "expected": expected},
            )  # fmt: skip

    def _off_actions(self, tally: "Tally", means: Floats, errors: Floats, rounds: Floats) -> Bools:
        """(K,) actions whose propensities cannot be right."""
        from scipy.stats import norm

        n_actions = max(len(means), 1)
        reach, skew = norm.isf(FALSE_ALARMS / n_actions), log(n_actions / FALSE_ALARMS)
        largest = tally.actions.totals[: len(means), LARGEST_INVERSE]
        with np.errstate(invalid="ignore"):
            excess = means - 1
            high = excess > reach * errors + skew * largest / 3 / rounds
            low = -excess > reach * errors + skew / self.lowest / rounds
            return np.asarray((high | low) & (np.abs(excess) > MATERIAL) & (rounds >= FEWEST_ROUNDS) & (means > 0))
