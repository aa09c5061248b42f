"""The best of all policies on a finite set of contexts, by linear programming."""

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
from seachange.policies.learners import checked_weights, require_choices
from seachange.policies.regularization import warn_about_clipping
from seachange.policies.reward_models import cross_fitted, reward_kind
from seachange.policies.tabular import Situations, TabularPolicy, restricted, situations_of
from seachange.protocols import Floats, Ints
from seachange.registry import LEARNERS

# Blocks of time for cross-fitting.
FOLDS = 5
# A larger table means that contexts are continuous, not categories.
MAX_CELLS = 500_000


@dataclass(frozen=True, eq=False)
class TabularOptimum:
    """The solution of the linear program and what its constraints cost, in value per round."""

    value: float  # of the policy, per round
    mass_prices: Floats  # (C,) value of one more unit of probability in a situation
    ratio_prices: Floats  # (C, K) value of one more unit of π(a | x) if max_ratio binds, else 0


@LEARNERS.register("tabular", named=False)
@dataclass(kw_only=True, eq=False, repr=False)
class TabularLearner(Params):
    """Maximize Σ_t u_t V̂_t(π) over all stochastic policies on the distinct contexts of a log, exactly.

    V̂_t(π) = Σ_a π(a | x_t) r̂(x_t, a) + min{M, π(a_t | x_t) / p_t} (r_t - r̂(x_t, a_t)),  r̂ = 0 under "ips"

    Under "dr", r̂ is cross-fitted over time; "dm" is the first term alone. ``max_ratio`` gives the paper's class of
    clipped policies, π(a | x) / π_0(a | x) ≤ M for all a and x, and needs the whole logging distribution. ``clip``
    clips weights instead, except for groups of rounds (same context, action and propensity) whose rewards, or residuals
    under "dr", sum to less than 0: clipping those would understate losses, and the problem would not be linear. The
    result maximizes a lower bound.
    """

    objective: Literal["ips", "dm", "dr"] = "ips"
    clip: float | None = None  # M in min{M, π / p}; None: weights are not clipped
    max_ratio: float | None = None  # M in π / π_0 ≤ M; lower stays closer to the logging policy
    ridge: float | Auto = "auto"  # of the reward model of "dm" and "dr", in rounds

    def fit(self, log: BanditLog, weights: npt.ArrayLike | None = None) -> Self:
        """Learn ``policy_``; round t has weight ``weights[t]``."""
        self._check(log)
        counts = checked_weights(log, weights)
        situations = situations_of(log)
        if situations.masks.size > MAX_CELLS:
            raise ParameterError(
                f"TabularLearner needs few distinct contexts; the log has {len(situations.masks):,} in {len(log):,} "
                "rounds. Round or group the contexts, or learn a softmax policy (IPSLearner, DRLearner)."
            )
        if situations.masks.size > max(len(log), log.n_actions):
            warnings.warn(
                f"a table of {len(situations.masks):,} contexts and {log.n_actions} actions has more cells than the "
                f"{len(log):,} rounds can fill and will overfit. Group contexts, or learn a softmax policy.",
                SeachangeWarning,
                stacklevel=2,
            )
        if self.clip is not None and self.objective != "dm":
            warn_about_clipping(log, counts, self.clip, stacklevel=3)
        program = self._program(log, counts, situations)
        everywhere = Situations(
            situations.contexts[:1, :0], np.ones((1, log.n_actions), dtype=bool), np.zeros(len(log), dtype=np.int64)
        )
        # For unseen contexts: the best policy that ignores the context.
        fallback = self._program(log, counts, everywhere, pooled=True).solve()[0][0]
        probs, self.optimum_ = program.solve()
        idle = program.indifferent
        probs[idle] = restricted(fallback, situations.masks[idle])
        self.policy_ = TabularPolicy(situations.contexts, situations.masks, probs, fallback, log.joint)
        return self

    def _check(self, log: BanditLog) -> None:
        known = ("ips", "dm", "dr")
        require(self.objective in known, f"objective must be one of {', '.join(known)}; got {self.objective!r}.")
        require(self.clip is None or self.clip > 0, f"clip must be positive or None; got {self.clip}.")
        require(
            self.max_ratio is None or self.max_ratio >= 1,
            f"max_ratio must be None or at least 1 (1 allows only the logging policy); got {self.max_ratio}.",
        )
        require_choices(log)
        if self.objective != "dm":
            require_propensities(log, 'TabularLearner (objective="dm" needs none)')
        if self.max_ratio is not None and log.logging_probs is None:
            raise ParameterError(
                "max_ratio needs the whole logging distribution, and this log has none. Pass logging_probs, or "
                "estimate them: log.with_propensities(sc.estimate_logging_probs(log), estimated=True)."
            )

    def _program(self, log: BanditLog, counts: Floats, situations: Situations, pooled: bool = False) -> _Program:
        n_cells, total = situations.masks.size, float(counts.sum())
        cells = situations.of_round * log.n_actions + log.actions
        gains, residuals = np.zeros(n_cells), log.rewards
        if self.objective != "ips":
            kind, n_folds = reward_kind(log, "auto"), FOLDS if self.objective == "dr" else 1
            modeled = cross_fitted(log, counts, self.ridge, kind, n_folds, needed=counts > 0)
            all_cells = situations.of_round[:, None] * log.n_actions + np.arange(log.n_actions)
            gains += np.bincount(all_cells.ravel(), (counts[:, None] * modeled).ravel(), n_cells)
            residuals = residuals - modeled[np.arange(len(log)), log.actions]
        caps = np.where(situations.masks, 1.0, 0.0).ravel()
        if self.max_ratio is not None and log.logging_probs is not None:
            # The logging policy may differ between rounds of one context: the ratio must hold in all of them. For
            # unseen contexts its mean stands in.
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
            # Groups with a loss are not clipped: a lower bound, and linear.
            losing = bends.gains < 0
            gains += np.bincount(bends.cells[losing], bends.gains[losing], n_cells)
            bends = bends.where(~losing)
        shape = situations.masks.shape
        return _Program(gains.reshape(shape) / total, caps.reshape(shape), bends.scaled(1 / total))


@dataclass(frozen=True, eq=False)
class _Bends:
    """Terms g min{limit, π(cell)}: what clipped rounds add, summed by cell and limit."""

    cells: Ints
    gains: Floats
    limits: Floats

    @classmethod
    def none(cls) -> Self:
        """No clipped rounds."""
        return cls(np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))

    @classmethod
    def of(cls, cells: Ints, gains: Floats, limits: Floats) -> Self:
        """The terms of rounds, summed by cell and limit."""
        if len(cells) == 0:
            return cls.none()
        order = np.lexsort((limits, cells))
        cells, gains, limits = cells[order], gains[order], limits[order]
        starts = np.flatnonzero(np.r_[True, (cells[1:] != cells[:-1]) | (limits[1:] != limits[:-1])])
        return cls(cells[starts], np.add.reduceat(gains, starts), limits[starts])

    def where(self, chosen: npt.NDArray[np.bool_]) -> _Bends:
        """A selection of terms."""
        return _Bends(self.cells[chosen], self.gains[chosen], self.limits[chosen])

    def scaled(self, factor: float) -> _Bends:
        """All terms times ``factor``."""
        return _Bends(self.cells, self.gains * factor, self.limits)


@dataclass(frozen=True, eq=False)
class _Program:
    """max Σ g(c) π(c) + Σ_i h_i v_i  over  0 ≤ π ≤ caps, rows of π sum to 1, 0 ≤ v_i ≤ limit_i, v_i ≤ π(cell_i)."""

    gains: Floats  # (C, K)
    caps: Floats  # (C, K)
    bends: _Bends

    @property
    def indifferent(self) -> npt.NDArray[np.bool_]:
        """(C,) situations in which all policies are equally good and no cap binds."""
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
        # A cap of 1 is implied by the sum, which then carries the price.
        tops = np.concatenate([np.where(self.caps < 1, self.caps, np.inf).ravel(), self.bends.limits])
        with one_thread():
            found = linprog(
                -gains / scale, A_eq=sums.tocsr(), b_eq=np.ones(n_rows), method="highs",
                bounds=np.column_stack([np.zeros_like(tops), tops]), **inequalities,
            )  # fmt: skip
        if not found.success:
            raise ParameterError(f"the linear program could not be solved: {found.message}")
        # The solver meets its constraints to 1e-7; clipping and rescaling make them exact.
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
    sums = caps.sum(axis=1)
    if (sums < 1 - 1e-9).any():
        row = int(sums.argmin())
        enough = f"at least {max_ratio / sums[row]:.3g}" if sums[row] > 0 else "infinity"
        raise ParameterError(
            f"max_ratio={max_ratio:g} allows no policy if the logging policy differs between rounds of one context "
            f"(context {row} of the table; {int((sums < 1 - 1e-9).sum())} such contexts). Use {enough}, or add context "
            "that distinguishes those rounds."
        )
