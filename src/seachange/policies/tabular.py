"""Tables, one distribution over actions for every distinct context, and the best table by linear programming."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

from seachange.engine import one_thread
from seachange.errors import LogError, ModelFileError, warn
from seachange.log.bandit_log import BanditLog, require_propensities
from seachange.log.joint_features import JointFeatures
from seachange.params import Auto, Brief, Params, require
from seachange.policies.learners import checked_weights, require_choices, warn_about_clipping
from seachange.policies.objectives import least_reward
from seachange.policies.reward_models import cross_fitted, reward_kind
from seachange.protocols import Bools, Floats, Ints
from seachange.registry import LEARNERS, POLICIES, Arrays, SavedPart

FOLDS = 5  # blocks of time for cross-fitting
MAX_CELLS = 500_000  # a larger table means that contexts are continuous, not categories


@POLICIES.register("table")
@dataclass(frozen=True, eq=False, repr=False)
class TabularPolicy(Brief):
    """π(a | x) as a table over the situations of a log: a context and the set of actions available in it.

    A situation in the table has its own row. A known context with another action set uses its row with the most
    actions; an unknown context uses ``fallback``. Both are restricted to the available actions, and are uniform over
    them if no probability remains.
    """

    contexts: Floats  # (C, W) the contexts, flattened
    masks: Bools  # (C, K) which actions were available
    probs: Floats  # (C, K)
    fallback: Floats  # (K,)
    joint: JointFeatures

    def predict_proba(self, contexts: npt.ArrayLike, action_mask: npt.ArrayLike | None = None) -> Floats:
        """π(a | x) for every row of ``contexts``."""
        n = len(np.asarray(contexts))
        self.joint.rows(contexts)  # same checks and messages as other policies
        mask = np.broadcast_to(self.joint.mask(action_mask, n), (n, self.joint.n_actions))
        rows, seen = self._rows(flattened(np.asarray(contexts, dtype=self.contexts.dtype), n), mask)
        return restricted(np.where(seen[:, None], self.probs[rows], self.fallback), mask)

    def learned(self) -> tuple[None, Arrays]:
        """What a model file keeps."""
        return None, {name: getattr(self, name) for name in ("contexts", "masks", "probs", "fallback")}

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, labels: Any) -> Self:
        """The policy that a model file holds."""
        n_actions = joint.n_actions
        probs = part.distributions("probs", (None, n_actions))
        if len(probs) == 0:
            raise ModelFileError(f"{part.prefix}probs must have a row.")
        width = joint.n_features * (n_actions if joint.kind == "per action" else 1)
        contexts, masks = part.contexts("contexts", (len(probs), width)), part.flags("masks", (len(probs), n_actions))
        return cls(contexts, masks, probs, part.distributions("fallback", (n_actions,)), joint)

    def _rows(self, contexts: Floats, mask: Bools) -> tuple[Ints, Bools]:
        """(n,) rows of the table, and whether the context is in it."""
        # Of a context's rows, the widest mask comes last.
        by_width = np.argsort(self.masks.sum(axis=1), kind="stable")
        widest = _last_match(self.contexts[by_width], contexts)
        exact = _last_match(np.column_stack([self.contexts, self.masks]), np.column_stack([contexts, mask]))
        return np.where(exact >= 0, exact, by_width[widest]), widest >= 0


class Situations(NamedTuple):
    """The distinct situations of a log, and the situation of each round."""

    contexts: Floats  # (C, W)
    masks: Bools  # (C, K)
    of_round: Ints  # (n,)


def situations_of(log: BanditLog) -> Situations:
    """The distinct pairs of a context and a set of available actions."""
    contexts = flattened(log.contexts, len(log))
    mask = np.broadcast_to(log.arrays.mask, (len(log), log.n_actions))
    _, of_context = np.unique(contexts, axis=0, return_inverse=True)
    keys = np.column_stack([of_context.ravel(), *(mask.T if log.masked else ())])
    _, first, indices = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return Situations(contexts[first], mask[first], indices.ravel())


def flattened(contexts: Floats, n: int) -> Floats:
    """(n, W), with -0.0 replaced by 0.0."""
    if contexts.size and not np.isfinite(contexts).all():
        raise LogError("contexts must be finite.")
    return np.ascontiguousarray(contexts.reshape(n, int(np.prod(contexts.shape[1:]))) + np.zeros((), contexts.dtype))


def _last_match(table: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Ints:
    """(n,) the last row of ``table`` that equals each of ``rows``; -1 if none does."""
    _, numbers = np.unique(np.concatenate([table, rows]), axis=0, return_inverse=True)
    known, given = np.split(numbers.ravel(), [len(table)])
    indices = np.full(numbers.max(initial=0) + 1, -1)
    indices[known] = np.arange(len(table))
    return np.asarray(indices[given])


def restricted(probs: Floats, mask: Bools) -> Floats:
    """Distributions restricted to the available actions; uniform if none of those has any probability."""
    allowed = np.where(mask, probs, 0.0)
    left = allowed.sum(axis=1, keepdims=True)
    uniform = mask / mask.sum(axis=1, keepdims=True)
    return np.asarray(np.where(left > 0, allowed / np.where(left > 0, left, 1.0), uniform))


@LEARNERS.register("tabular", named=False)
@dataclass(kw_only=True, eq=False, repr=False)
class TabularLearner(Params):
    """Maximize Σ_t u_t V̂_t(π) over all stochastic policies on the distinct contexts of a log, exactly.

    V̂_t(π) = Σ_a π(a | x_t) r̂(x_t, a) + min{M, π(a_t | x_t) / p_t} (r_t - r̂(x_t, a_t)),  r̂ = min r under "ips"

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
        """Learn ``policy_`` and ``optimum_``, its value per round; round t has weight ``weights[t]``."""
        self._check(log)
        counts, situations = checked_weights(log, weights), situations_of(log)
        n_contexts, n_cells, n = len(situations.masks), situations.masks.size, len(log)
        advice = "Group contexts, or learn a softmax policy (IPSLearner, DRLearner)."
        rule = f"TabularLearner needs few distinct contexts; the log has {n_contexts:,} in {n:,} rounds."
        require(n_cells <= MAX_CELLS, f"{rule} {advice}")
        if n_cells > max(n, log.n_actions):
            problem = f"a table of {n_contexts:,} contexts and {log.n_actions} actions will overfit {n:,} rounds."
            warn(f"{problem} {advice}")
        if self.clip is not None and self.objective != "dm":
            warn_about_clipping(log, counts, self.clip, stacklevel=3)
        program = self._program(log, counts, situations)
        # For unseen contexts: the best policy that ignores the context.
        rounds, mask = np.zeros(len(log), dtype=np.int64), np.ones((1, log.n_actions), dtype=bool)
        (fallback,) = self._program(log, counts, Situations(np.empty((1, 0)), mask, rounds), pooled=True).solve()
        probs, idle = program.solve(), program.indifferent
        self.optimum_ = program.value(probs) + least_reward(log, counts)
        probs[idle] = restricted(fallback, situations.masks[idle])
        self.policy_ = TabularPolicy(situations.contexts, situations.masks, probs, fallback, log.joint)
        return self

    def _check(self, log: BanditLog) -> None:
        known = ("ips", "dm", "dr")
        require(self.objective in known, f"objective must be one of {', '.join(known)}; got {self.objective!r}.")
        require(self.clip is None or self.clip > 0, f"clip must be positive or None; got {self.clip}.")
        rule = f"max_ratio must be None or at least 1 (1 allows only the logging policy); got {self.max_ratio}."
        require(self.max_ratio is None or self.max_ratio >= 1, rule)
        require_choices(log)
        if self.objective != "dm":
            require_propensities(log, 'TabularLearner (objective="dm" needs none)')
        rule = "max_ratio needs the whole logging distribution, and this log has none. Pass logging_probs, or estimate "
        rule += "them: log.with_propensities(sc.estimate_logging_probs(log), estimated=True)."
        require(self.max_ratio is None or log.logging_probs is not None, rule)

    def _program(self, log: BanditLog, counts: Floats, situations: Situations, pooled: bool = False) -> "_Program":
        n_cells, total = situations.masks.size, float(counts.sum())
        cells = situations.of_round * log.n_actions + log.actions
        gains, floor = np.zeros(n_cells), least_reward(log, counts)
        residuals = log.rewards - floor
        if self.objective != "ips":
            kind, n_folds = reward_kind(log, "auto"), FOLDS if self.objective == "dr" else 1
            modeled = cross_fitted(log, counts, self.ridge, kind, n_folds, needed=counts > 0) - floor
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
            sums = caps.reshape(situations.masks.shape).sum(axis=1)
            row, infeasible = int(sums.argmin()), sums < 1 - 1e-9
            enough = f"at least {self.max_ratio / sums[row]:.3g}" if sums[row] > 0 else "infinity"
            rule = f"max_ratio={self.max_ratio:g} allows no policy if the logging policy differs between rounds of one "
            rule += f"context, as in context {row} of the table ({int(infeasible.sum())} in all). Use {enough}, or "
            require(not infeasible.any(), f"{rule}add context that distinguishes those rounds.")
        groups, slopes = np.empty((2, 0)), np.empty(0)
        if self.objective != "dm":
            limits = (np.inf if self.clip is None else self.clip) * log.propensities
            weighted, clipped = counts * residuals / log.propensities, limits < 1
            gains += np.bincount(cells[~clipped], weighted[~clipped], n_cells)
            groups, group = np.unique(np.stack([cells, limits])[:, clipped], axis=1, return_inverse=True)
            slopes = np.asarray(np.bincount(group.ravel(), weighted[clipped], groups.shape[1]), np.float64)
            # Groups with a loss are not clipped: a lower bound, and linear.
            losing = slopes < 0
            gains += np.bincount(groups[0, losing].astype(np.int64), slopes[losing], n_cells)
            groups, slopes = groups[:, ~losing], slopes[~losing]
        shape, kinks = situations.masks.shape, groups[0].astype(np.int64)
        return _Program(gains.reshape(shape) / total, caps.reshape(shape), kinks, slopes / total, groups[1])


@dataclass(frozen=True, eq=False)
class _Program:
    """max Σ g(c) π(c) + Σ_i h_i v_i  over  0 ≤ π ≤ caps, rows of π sum to 1, 0 ≤ v_i ≤ limit_i, v_i ≤ π(cell_i).

    v = min{limit, π}: the share of clipped rounds, which are summed by cell and limit.
    """

    gains: Floats  # (C, K) g
    caps: Floats  # (C, K)
    cells: Ints  # (m,) cells of the clipped rounds
    slopes: Floats  # (m,) h
    limits: Floats  # (m,)

    @property
    def indifferent(self) -> Bools:
        """(C,) situations in which all policies are equally good and no cap binds."""
        clipped = np.zeros(self.gains.size, dtype=bool)
        clipped[self.cells] = True
        gains = np.where(self.caps > 0, self.gains, np.nan)
        level = np.nanmax(gains, axis=1) == np.nanmin(gains, axis=1)
        free = ((self.caps == 0) | (self.caps == 1)).all(axis=1)
        return np.asarray(level & free & ~clipped.reshape(self.gains.shape).any(axis=1))

    def solve(self) -> Floats:
        """(C, K) probabilities."""
        (n_rows, n_actions), n_kinks = self.gains.shape, len(self.cells)
        n_cells, ones = n_rows * n_actions, np.ones(n_kinks)
        gains = np.concatenate([self.gains.ravel(), self.slopes])
        scale = float(np.abs(gains).max(initial=0.0)) or 1.0
        cells, each = np.arange(n_cells), np.arange(n_kinks)
        sums = coo_array((np.ones(n_cells), (cells // n_actions, cells)), shape=(n_rows, n_cells + n_kinks))
        places = (np.r_[each, each], np.r_[n_cells + each, self.cells])
        below = coo_array((np.r_[ones, -ones], places), shape=(n_kinks, n_cells + n_kinks))
        inequalities: dict[str, Any] = {"A_ub": below.tocsr(), "b_ub": np.zeros(n_kinks)} if n_kinks else {}
        # A cap of 1 is implied by the sum.
        tops = np.concatenate([np.where(self.caps < 1, self.caps, np.inf).ravel(), self.limits])
        with one_thread():
            result = linprog(
                -gains / scale, A_eq=sums.tocsr(), b_eq=np.ones(n_rows), method="highs",
                bounds=np.column_stack([np.zeros_like(tops), tops]), **inequalities,
            )  # fmt: skip
        require(result.success, f"the linear program could not be solved: {result.message}")
        # The solver meets its constraints to 1e-7; clipping and rescaling make them exact.
        probs = np.clip(result.x[:n_cells].reshape(n_rows, n_actions), 0.0, self.caps)
        return np.asarray(probs / probs.sum(axis=1, keepdims=True))

    def value(self, probs: Floats) -> float:
        """The objective at a policy."""
        clipped = np.minimum(self.limits, probs.ravel()[self.cells])
        return float(np.sum(self.gains * probs) + self.slopes @ clipped)
