"""The best of all policies on finitely many contexts, by linear programming."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from seachange.engine import one_thread
from seachange.errors import ParameterError, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_propensities
from seachange.params import Auto, Params, require
from seachange.policies.chosen import say_what_clipping_costs
from seachange.policies.learners import checked_weights, require_choices
from seachange.policies.rewards import cross_fitted, kind_of
from seachange.policies.tabular import Situations, TabularPolicy, restricted, situations_of
from seachange.protocols import Floats, Ints

# Runs of rounds, each of which is modelled from the others.
FOLDS = 5
# Entries of a table beyond which a log is taken to have contexts that are numbers, not kinds.
MOST_CELLS = 500_000


@dataclass(frozen=True, eq=False)
class TabularOptimum:
    """The linear programme's solution and what its constraints cost, in value a round."""

    value: float  # of the policy, a round
    mass_prices: Floats  # (C,) value of one more unit of probability in a situation
    ratio_prices: Floats  # (C, K) value of one more unit of π(a | x) where max_ratio holds it down; 0 where it does not


@dataclass(kw_only=True, eq=False, repr=False)
class TabularLearner(Params):
    """Maximise Σ_t u_t V̂_t(π) over all stochastic policies on the distinct contexts of a log, exactly.

    V̂_t(π) = Σ_a π(a | x_t) r̂(x_t, a) + min{M, π(a_t | x_t) / p_t} (r_t - r̂(x_t, a_t)),  r̂ = 0 under "ips"

    Under "dr" r̂ of a round is fitted to other times only; "dm" has the first term alone. ``max_ratio`` is the paper's
    class of clipped policies, π(a | x) / π_0(a | x) ≤ M for all a and x, which needs the whole logging distribution.
    ``clip`` clips weights instead: rounds of one context, action and propensity whose rewards (residuals under "dr")
    sum to less than 0 are then not clipped, since that would make losses look smaller than they are and the problem no
    longer linear; the optimum is one of a lower bound.
    """

    objective: Literal["ips", "dm", "dr"] = "ips"
    clip: float | None = None  # M in min{M, π / p}; None: weights are not clipped
    max_ratio: float | None = None  # M in π / π_0 ≤ M; lower stays nearer to the logging policy
    ridge: float | Auto = "auto"  # of the reward model of "dm" and "dr", in rounds

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_`` from ``log``, round t counting ``weights[t]`` times."""
        self._check(log)
        counts = checked_weights(log, weights)
        situations = situations_of(log)
        if situations.masks.size > MOST_CELLS:
            raise ParameterError(
                f"a table needs few distinct contexts; the log has {len(situations.masks):,} in {len(log):,} rounds. "
                "Round or group them, or learn a softmax policy (IPSLearner, DRLearner)."
            )
        if situations.masks.size > max(len(log), log.n_actions):
            warnings.warn(
                f"a table of {len(situations.masks):,} contexts and {log.n_actions} actions is more than {len(log):,} "
                "rounds can fill: it learns them by heart. Group contexts, or learn a softmax policy.",
                SeachangeWarning,
                stacklevel=2,
            )
        if self.clip is not None and self.objective != "dm":
            say_what_clipping_costs(log, counts, self.clip, stacklevel=3)
        programme = self._programme(log, counts, situations)
        everywhere = Situations(
            situations.contexts[:1, :0],
            np.ones((1, log.n_actions), dtype=bool),
            np.zeros(len(log), dtype=np.int64),
        )
        # For a context that was never seen: the best policy that looks at none.
        fallback = self._programme(log, counts, everywhere, pooled=True).solve()[0][0]
        probs, self.optimum_ = programme.solve()
        idle = programme.indifferent
        probs[idle] = restricted(fallback, situations.masks[idle])
        self.policy_ = TabularPolicy(situations.contexts, situations.masks, probs, fallback, log.joint)
        return self

    def _check(self, log: BanditLog) -> None:
        known = ("ips", "dm", "dr")
        require(self.objective in known, f"objective must be one of {', '.join(known)}; got {self.objective!r}.")
        require(self.clip is None or self.clip > 0, f"clip must be positive or None; got {self.clip}.")
        require(
            self.max_ratio is None or self.max_ratio >= 1,
            f"max_ratio must be at least 1, which leaves the logging policy alone, or None; got {self.max_ratio}.",
        )
        require_choices(log)
        if self.objective != "dm":
            require_propensities(log, 'TabularLearner (objective="dm" does without)')
        if self.max_ratio is not None and log.logging_probs is None:
            raise ParameterError(
                "max_ratio needs the whole logging distribution, which this log does not have. Give logging_probs, or "
                "estimate it: log.with_propensities(sc.estimate_logging_probs(log), estimated=True)."
            )

    def _programme(self, log: BanditLog, counts: Floats, situations: Situations, pooled: bool = False) -> _Programme:
        n_cells, total = situations.masks.size, float(counts.sum())
        cells = situations.of_round * log.n_actions + log.actions
        gains, residuals = np.zeros(n_cells), log.rewards
        if self.objective != "ips":
            kind, n_folds = kind_of(log, "auto"), FOLDS if self.objective == "dr" else 1
            modelled = cross_fitted(log, counts, self.ridge, kind, n_folds, asked=counts > 0)
            places = situations.of_round[:, None] * log.n_actions + np.arange(log.n_actions)
            gains += np.bincount(places.ravel(), (counts[:, None] * modelled).ravel(), n_cells)
            residuals = residuals - modelled[np.arange(len(log)), log.actions]
        caps = np.where(situations.masks, 1.0, 0.0).ravel()
        if self.max_ratio is not None and log.logging_probs is not None:
            # The logging policy may differ between rounds of one context: the ratio holds in all of them. Of contexts
            # to come it is not known, and its mean stands in for it.
            least = np.full((len(situations.masks), log.n_actions), np.inf)
            np.minimum.at(least, situations.of_round, log.logging_probs)
            logging = log.logging_probs.mean(axis=0)[None] if pooled else least
            caps = np.minimum(caps, self.max_ratio * logging.ravel())
            _require_feasible(caps.reshape(situations.masks.shape), self.max_ratio)
        bends = _Bends.none()
        if self.objective != "dm":
            limit = np.inf if self.clip is None else self.clip
            straight = counts * residuals / log.propensities
            bent = limit * log.propensities < 1
            gains += np.bincount(cells[~bent], straight[~bent], n_cells)
            bends = _Bends.of(cells[bent], straight[bent], limit * log.propensities[bent])
            # A group that loses is taken in full: a lower bound, and linear.
            losing = bends.gains < 0
            gains += np.bincount(bends.cells[losing], bends.gains[losing], n_cells)
            bends = bends.where(~losing)
        shape = situations.masks.shape
        return _Programme(gains.reshape(shape) / total, caps.reshape(shape), bends.scaled(1 / total))


@dataclass(frozen=True, eq=False)
class _Bends:
    """Terms g min{limit, π(cell)}: what clipped rounds add, those of one cell and one limit together."""

    cells: Ints
    gains: Floats
    limits: Floats

    @classmethod
    def none(cls) -> Self:
        """No round can be clipped."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    @classmethod
    def of(cls, cells: Ints, gains: Floats, limits: Floats) -> Self:
        """Terms of rounds, brought together."""
        if len(cells) == 0:
            return cls.none()
        order = np.lexsort((limits, cells))
        cells, gains, limits = cells[order], gains[order], limits[order]
        starts = np.flatnonzero(np.r_[True, (cells[1:] != cells[:-1]) | (limits[1:] != limits[:-1])])
        return cls(cells[starts], np.add.reduceat(gains, starts), limits[starts])

    def where(self, chosen: npt.NDArray[np.bool_]) -> _Bends:
        """Some of them."""
        return _Bends(self.cells[chosen], self.gains[chosen], self.limits[chosen])

    def scaled(self, factor: float) -> _Bends:
        """All of them, ``factor`` times."""
        return _Bends(self.cells, self.gains * factor, self.limits)


@dataclass(frozen=True, eq=False)
class _Programme:
    """max Σ g(c) π(c) + Σ_i h_i v_i  over  0 ≤ π ≤ caps, rows of π sum to 1, 0 ≤ v_i ≤ limit_i, v_i ≤ π(cell_i)."""

    gains: Floats  # (C, K)
    caps: Floats  # (C, K)
    bends: _Bends

    @property
    def indifferent(self) -> npt.NDArray[np.bool_]:
        """(C,) situations in which every policy is as good as any other, with nothing to hold it down."""
        bent = np.zeros(self.gains.size, dtype=bool)
        bent[self.bends.cells] = True
        gains = np.where(self.caps > 0, self.gains, np.nan)
        level = np.nanmax(gains, axis=1) == np.nanmin(gains, axis=1)
        free = ((self.caps == 0) | (self.caps == 1)).all(axis=1)
        return np.asarray(level & free & ~bent.reshape(self.gains.shape).any(axis=1))

    def solve(self) -> tuple[Floats, TabularOptimum]:
        """(C, K) probabilities, and the optimum."""
        from scipy.optimize import linprog
        from scipy.sparse import coo_array

        (n_rows, n_actions), n_bends = self.gains.shape, len(self.bends.cells)
        n_cells = n_rows * n_actions
        gains = np.concatenate([self.gains.ravel(), self.bends.gains])
        scale = float(np.abs(gains).max(initial=0.0)) or 1.0
        cells, each = np.arange(n_cells), np.arange(n_bends)
        sums = coo_array((np.ones(n_cells), (cells // n_actions, cells)), shape=(n_rows, n_cells + n_bends))
        below = coo_array(
            (np.r_[np.ones(n_bends), -np.ones(n_bends)], (np.r_[each, each], np.r_[n_cells + each, self.bends.cells])),
            shape=(n_bends, n_cells + n_bends),
        )
        inequalities: dict[str, Any] = {"A_ub": below.tocsr(), "b_ub": np.zeros(n_bends)} if n_bends else {}
        # A cap of 1 follows from the sum, which is then what has the price.
        tops = np.concatenate([np.where(self.caps < 1, self.caps, np.inf).ravel(), self.bends.limits])
        with one_thread():
            found = linprog(
                -gains / scale, A_eq=sums.tocsr(), b_eq=np.ones(n_rows), method="highs",
                bounds=np.column_stack([np.zeros_like(tops), tops]), **inequalities,
            )  # fmt: skip
        if not found.success:
            raise ParameterError(f"the linear programme of this table was not solved: {found.message}")
        # The solver keeps its constraints up to 1e-7: they are kept exactly, but for the sum, by rounding.
        probs = np.clip(found.x[:n_cells].reshape(n_rows, n_actions), 0.0, self.caps)
        probs /= probs.sum(axis=1, keepdims=True)
        prices = np.where(self.caps < 1, -found.upper.marginals[:n_cells].reshape(probs.shape), 0.0)
        masses = -found.eqlin.marginals
        return probs, TabularOptimum(self.value(probs), masses * scale, np.where(self.caps > 0, prices, 0.0) * scale)

    def value(self, probs: Floats) -> float:
        """The objective at a policy."""
        clipped = np.minimum(self.bends.limits, probs.ravel()[self.bends.cells])
        return float(np.sum(self.gains * probs) + self.bends.gains @ clipped)


def _require_feasible(caps: Floats, max_ratio: float) -> None:
    room = caps.sum(axis=1)
    if (room < 1 - 1e-9).any():
        row = int(room.argmin())
        enough = f"{max_ratio / room[row]:.3g}" if room[row] > 0 else "an infinite one"
        raise ParameterError(
            f"max_ratio={max_ratio:g} leaves no policy where the logging policy differs between rounds of one context "
            f"(context {row} of the table, {int((room < 1 - 1e-9).sum())} in all). At least "
            f"{enough} is needed, or contexts that tell those rounds apart."
        )
