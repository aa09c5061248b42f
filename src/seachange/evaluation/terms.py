"""Per-round terms of the estimators: action probabilities, weights, and predictions of cross-fitted reward models."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from seachange.errors import ParameterError
from seachange.kernels.action_probs import add_own_features, weigh
from seachange.kernels.emission import round_scores
from seachange.kernels.regression import modeled_rewards, regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.log.units import Units
from seachange.log.validation import LEAST_PROPENSITY
from seachange.params import require
from seachange.policies.per_state import PolicySet
from seachange.policies.reward_models import robust_weights
from seachange.protocols import Bools, Floats, Ints, Policy
from seachange.states.labels import StateLabels

PolicyLike: TypeAlias = Policy | PolicySet | Floats
Distribution: TypeAlias = Callable[[slice], Floats]
Range: TypeAlias = tuple[float, float]
ENTRIES = 1 << 17  # probabilities kept in memory at a time
ROUNDING = 1e-6  # how far from 1 the probabilities of a round may sum
RIDGE = 1.0  # pseudo-rounds that shrink the reward model toward the mean reward
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Support:
    """Importance weights of a policy on a log, and the part of the policy that the log does not cover."""

    weights: Floats  # (n,) π(a_t | x_t) / p_t
    weight_bound: float  # upper bound on any weight, given the log's propensities
    unseen_mass: float  # mean probability of actions that the log never took
    unsupported_mass: float | None  # mean probability of actions that it could not take, if known
    largest_ratios: Floats | None = None  # (n,) the largest π / π_0 among a round's actions, if known


def membership_of(log: BanditLog, labels: StateLabels | None, soft: bool | None = None) -> Floats:
    """(n, L) q_t(z): 0 or 1, or, if ``soft``, probabilities; one state without labels.

    None is soft if the probabilities were known before the rewards, as in a deployment.
    """
    if labels is None:
        return np.ones((len(log), 1))
    count = len(labels.states)
    require(count == len(log), f"labels must have one entry per round; they have {count} for {len(log)} rounds.")
    require(not soft or labels.state_probs is not None, "soft=True needs labels with state_probs; these have none.")
    return np.ascontiguousarray(labels.weights(not labels.from_rewards if soft is None else soft).T)


def distribution_of(
    log: BanditLog, policy: PolicyLike, labels: StateLabels | None = None, soft: bool | None = None
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


def _unchecked(log: BanditLog, policy: PolicyLike, labels: StateLabels | None, soft: bool | None) -> Distribution:
    if isinstance(policy, np.ndarray):
        expected = (len(log), log.n_actions)
        require(policy.shape == expected, f"probabilities must have shape {expected}; got {policy.shape}.")
        return lambda rounds: policy[rounds]
    if isinstance(policy, Policy):
        return lambda rounds: policy.predict_proba(log[rounds].contexts, log[rounds].action_mask)
    if not isinstance(policy, PolicySet):
        raise ParameterError(
            "a policy must have predict_proba(contexts, action_mask) or be an array of probabilities (n, K). "
            "For a model, call evaluate_deployment(log, model), or evaluate(log, model.policies, "
            "labels=model.label_ahead(log))."
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


@dataclass(frozen=True, eq=False)
class CrossFit:
    """r̂(x_t, a) = Σ_z q_t(z) c_kz · f(x_t, a), where c_kz was fitted without k, the fold of round t."""

    log: BanditLog
    fold_of: Ints  # (n,)
    membership: Floats  # (n, L) q_t(z)
    seen: Bools  # (F, F) whether the fit for the first fold used the second
    coefs: Floats  # (F, L, B, D) c
    grams: Floats  # (F, L, B, D, D) Σ u f f' over the rounds of each fit, in units
    units: Units  # (F, 1, 1, D) of the features in each fit
    offsets: Floats  # (F, L) mean rewards, toward which the ridge shrinks
    counts: Floats  # (F, L) Σ u

    def predict(self, rounds: slice) -> Floats:
        """(m, K) r̂ for ``rounds`` and all actions."""
        rows = self.log[rounds].arrays.rows
        predicted = np.zeros((rounds.stop - rounds.start, self.log.n_actions))
        for fold, state, share in self._shares(rounds):
            rewards = modeled_rewards(rows, self.coefs[fold, state])
            if share.min() == 1:
                return np.ascontiguousarray(np.broadcast_to(rewards, predicted.shape))
            predicted += share[:, None] * rewards
        return predicted

    def add_targets(self, targets: Floats, rounds: slice, probs: Floats) -> None:
        """Add Σ_t q_t(z) Σ_a π(a | x_t) f(x_t, a) over ``rounds`` to ``targets`` (F, L, B, D)."""
        rows = self.log[rounds].arrays.rows
        for fold, state, share in self._shares(rounds):
            shared = share[:, None] * probs
            if self.log.joint.kind == "per action":
                targets[fold, state, 0] += np.einsum("ta,tad->d", shared, rows)
            elif self.log.joint.kind == "none":
                targets[fold, state, :, 0] += shared.sum(axis=0)
            else:
                targets[fold, state] += shared.T @ rows[:, 0]

    def fit_errors(self, targets: Floats, weights: Floats, residuals: Floats) -> Floats:
        """(n,) the error that each reward's noise adds to Σ_t Σ_a π(a | x_t) r̂(x_t, a) + w_t (r_t - r̂_t) via the fits.

        e_s = Σ_z q_s(z) Σ_k f(x_s, a_s)' v_kz (r_s - r̂_s) + λ' v_kz (r_s - o_kz) / N_kz, v = (G + diag(λ))⁻¹ h, over
        the folds k whose fit used round s: through the regression, and through the mean o of N rewards toward which
        the ridge shrinks. h is ``targets`` minus Σ_t q_t(z) w_t f(x_t, a_t), which averages 0 for unmodified weights.
        """
        left = np.zeros_like(targets)
        for rounds in self.log.chunk_slices():
            rows, _, actions, _, _ = self.log[rounds].arrays
            for fold, state, share in self._shares(rounds):
                add_own_features(rows, actions, share * weights[rounds], left[fold, state])
        directions = solve_ridge(self.grams, self.units.moments(targets - left), RIDGE)
        through = np.einsum("ks,kzbd->szbd", self.seen, self.units.raw_coefs(directions))
        shrunk = RIDGE * (directions * self.units.scales)[..., -1].sum(axis=-1)
        by_mean = np.zeros(self.counts.shape)
        np.divide(shrunk, self.counts, out=by_mean, where=self.counts > 0)
        slopes, levels = self.seen.T @ by_mean, self.seen.T @ (by_mean * self.offsets)
        errors = np.zeros(len(self.log))
        for rounds in self.log.chunk_slices():
            rows, _, actions, rewards, _ = self.log[rounds].arrays
            for fold, state, share in self._shares(rounds):
                scores = np.empty((len(actions), 1))
                round_scores(rows, actions, through[fold, state][None], scores)
                own = slopes[fold, state] * rewards - levels[fold, state]
                errors[rounds] += share * (residuals[rounds] * scores[:, 0] + own)
        return errors

    def _shares(self, rounds: slice) -> Iterator[tuple[int, int, Floats]]:
        """Fold, state and (m,) each round's membership in both, skipping empty pairs."""
        folds = self.fold_of[rounds]
        for fold in np.flatnonzero(np.bincount(folds)):
            for state, members in enumerate(self.membership[rounds].T):
                share = members * (folds == fold)
                if share.any():
                    yield int(fold), state, share


def fit_across(
    log: BanditLog, membership: Floats, fold_of: Ints, importance: Floats | None = None, first: float | None = None
) -> CrossFit:
    """Fit r̂ for every fold by least squares on the other folds or, with a ``first`` guess, on the folds before it.

    Round t has weight q_t(z) times its ``importance``. The ridge shrinks toward the mean reward. A state without rounds
    in those folds gets the fit of all states.
    """
    shape = log.joint.shape
    n_folds, n_states = int(fold_of.max()) + 1, membership.shape[1]
    grams, moments = np.zeros((n_folds, n_states, *shape, shape[1])), np.zeros((n_folds, n_states, *shape))
    counts = np.zeros((n_folds, n_states))
    for rounds in log.chunk_slices():
        arrays, folds = log[rounds].arrays, fold_of[rounds]
        for fold in np.flatnonzero(np.bincount(folds)):
            weights = membership[rounds] * (folds == fold)[:, None]
            if importance is not None:
                weights *= importance[rounds, None]
            sums = regression_sums(arrays.rows, arrays.actions, arrays.rewards, weights, shape[0])
            grams[fold] += sums[0]
            moments[fold] += sums[1]
            counts[fold] += sums[2][:, 1]
    order = np.arange(n_folds)
    seen = order[None, :] < order[:, None] if first is not None else order[None, :] != order[:, None]
    grams, moments, counts = (np.einsum("ks,s...->k...", seen, sums) for sums in (grams, moments, counts))
    # A state without rounds uses the rounds of all states.
    empty = counts == 0
    grams += empty[..., None, None, None] * grams.sum(axis=1, keepdims=True)
    moments += empty[..., None, None] * moments.sum(axis=1, keepdims=True)
    counts += empty * counts.sum(axis=1, keepdims=True)
    # The intercept is the last feature, which is always 1.
    offsets = np.divide(
        moments[..., -1].sum(axis=-1), counts, out=np.full(counts.shape, first or 0.0), where=counts > 0
    )
    units = log.units if first is None else _units_seen(log, fold_of, seen)
    grams, moments = units.grams(grams), units.moments(moments - offsets[..., None, None] * grams[..., -1])
    coefs = units.raw_coefs(solve_ridge(grams, moments, RIDGE))
    coefs[..., -1] += offsets[..., None]
    return CrossFit(log, fold_of, membership, seen, coefs, grams, units, offsets, counts)


def _units_seen(log: BanditLog, fold_of: Ints, seen: Bools) -> Units:
    """(F, 1, 1, D) units of the features over the rounds of each fit."""
    own = [log.take(np.flatnonzero(seen[fold][fold_of])).units for fold in range(len(seen))]
    return Units(*(np.stack(parts)[:, None, None] for parts in zip(*own, strict=True)))


# r̂; the error from fitting it, for estimators whose weights do not cancel it; the r̂ of MRDR.
Need = Literal["model", "fit error", "robust model"]


@dataclass(frozen=True, eq=False)
class Terms:
    """Everything an estimator may need from a log and a policy; predictions that no estimator needs are 0."""

    weights: Floats  # (n,) w_t = min{M, π(a_t | x_t) / p_t}
    clipped: bool  # whether M reduced any of them
    rewards: Floats  # (n,)
    predicted: Floats  # (n,) r̂(x_t, a_t)
    direct: Floats  # (n,) Σ_a π(a | x_t) r̂(x_t, a)
    fit_errors: Callable[[Floats], Floats]  # weights w -> (n,) errors that the fits add to Σ direct + w (r - r̂)
    robust_predicted: Floats  # (n,) the same two with the r̂ of MRDR
    robust_direct: Floats


def terms_of(
    log: BanditLog,
    policy: PolicyLike,
    needs: Set[Need],
    labels: StateLabels | None = None,
    soft: bool | None = None,
    clip: float = np.inf,
    predicted_rewards: npt.ArrayLike | None = None,
    limits: Range | None = None,
    *,
    forward: bool = False,
) -> tuple[Terms, Support]:
    """The terms listed in ``needs``, and the log's support for the policy.

    r̂ is ``predicted_rewards`` (n, K) or, by default, fitted on other folds (if ``forward``, on earlier folds, which do
    not change as the log grows) and clipped to ``limits``; for MRDR, with ``robust_weights`` (Farajtabar et al. 2018).
    """
    probs_of, membership = distribution_of(log, policy, labels, soft), membership_of(log, labels, soft)
    n, zero, sums = len(log), np.broadcast_to(0.0, len(log)), SupportSums(log)
    models: dict[Need, Callable[[slice], Floats]] = {}
    fit = targets = None
    if predicted_rewards is not None:
        models["model"] = _given(log, predicted_rewards, limits)
    elif needs:
        folds = Clusters(log).growing_folds() if forward else Clusters(log).folds(FOLDS)
        first = None if not forward else 0.0 if limits is None else float(np.mean(limits))
        if "model" in needs:
            fit = fit_across(log, membership, folds, first=first)
            models["model"] = _within(fit, limits)
            targets = np.zeros_like(fit.coefs) if "fit error" in needs else None
        if "robust model" in needs:
            p = log.arrays.propensities
            importance = robust_weights(support_of(log, probs_of).weights * p, p)
            models["robust model"] = _within(fit_across(log, membership, folds, importance, first), limits)
    predictions = {need: (np.empty(n), np.empty(n)) for need in models}
    for rounds in slices_of(log):
        probs = probs_of(rounds)
        sums.add(rounds, probs)
        for need, (predicted, direct) in predictions.items():
            rewards, actions = models[need](rounds), log.arrays.actions[rounds]
            np.einsum("ta,ta->t", probs, rewards, out=direct[rounds])
            predicted[rounds] = rewards[np.arange(len(actions)), actions]
        if fit is not None and targets is not None:
            fit.add_targets(targets, rounds, probs)
    support, rewards = sums.total(), log.arrays.rewards
    plain = predictions.get("model", (zero, zero))

    def fit_errors(weights: Floats) -> Floats:
        if fit is None or targets is None:
            return zero
        return fit.fit_errors(targets, weights, rewards - plain[0])

    clipped, weights = bool(support.weights.max() > clip), np.minimum(clip, support.weights)
    robust = predictions.get("robust model", plain)
    return Terms(weights, clipped, rewards, plain[0], plain[1], fit_errors, robust[0], robust[1]), support


def _given(log: BanditLog, predicted_rewards: npt.ArrayLike, limits: Range | None) -> Callable[[slice], Floats]:
    predicted, expected = np.asarray(predicted_rewards, dtype=np.float64), (len(log), log.n_actions)
    require(predicted.shape == expected, f"predicted_rewards must have shape {expected}; got {predicted.shape}.")
    low, high = float(predicted.min()), float(predicted.max())
    require(np.isfinite(low) and np.isfinite(high), "predicted_rewards must be finite.")
    if limits is not None:
        inside = limits[0] <= low and high <= limits[1]
        require(
            inside,
            f"this interval needs predicted_rewards within reward_range={limits}; it ranges from {low} to {high}.",
        )
    return lambda rounds: np.ascontiguousarray(predicted[rounds])


def _within(fit: CrossFit, limits: Range | None) -> Callable[[slice], Floats]:
    return fit.predict if limits is None else lambda rounds: np.clip(fit.predict(rounds), *limits)
