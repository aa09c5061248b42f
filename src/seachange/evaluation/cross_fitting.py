"""Reward models that never saw the rounds they are asked about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from seachange.kernels.regression import modelled_rewards, regression_sums, solve_ridge
from seachange.kernels.weights import add_own_features, add_own_scores
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Bools, Floats, Ints

# Pseudo-rounds that pull the reward model to the mean reward.
RIDGE = 1.0
FOLDS = 5


@dataclass(frozen=True, eq=False)
class CrossFit:
    """r̂(x_t, a) = Σ_z q_t(z) c_kz · f(x_t, a), k the fold of round t, which c_kz was not fitted to."""

    log: BanditLog
    fold_of: Ints  # (n,)
    membership: Floats  # (n, L) q_t(z)
    seen: Bools  # (F, F) whether the fit for the first fold saw the second
    coefs: Floats  # (F, L, B, D) c
    grams: Floats  # (F, L, B, D, D) Σ u f f' of what each fit saw
    penalties: Floats  # (D,)

    def predict(self, rounds: slice) -> Floats:
        """r̂ of ``rounds`` and all actions: (m, K)."""
        rows = self.log[rounds].arrays.rows
        predicted = np.zeros((rounds.stop - rounds.start, self.log.n_actions))
        for fold, state, share in _shares(self.fold_of[rounds], self.membership[rounds]):
            modelled = modelled_rewards(rows, self.coefs[fold, state])
            if share.min() == 1:
                return np.ascontiguousarray(np.broadcast_to(modelled, predicted.shape))
            predicted += share[:, None] * modelled
        return predicted

    def add_targets(self, targets: Floats, rounds: slice, probs: Floats) -> None:
        """Add Σ_t q_t(z) Σ_a π(a | x_t) f(x_t, a) of ``rounds`` to ``targets`` (F, L, B, D)."""
        rows = self.log[rounds].arrays.rows
        for fold, state, share in _shares(self.fold_of[rounds], self.membership[rounds]):
            shared = share[:, None] * probs
            if self.log.joint.kind == "per action":
                targets[fold, state, 0] += np.einsum("ta,tad->d", shared, rows)
            elif self.log.joint.kind == "none":
                targets[fold, state, :, 0] += shared.sum(axis=0)
            else:
                targets[fold, state] += shared.T @ rows[:, 0]

    def fit_errors(self, targets: Floats, weights: Floats, residuals: Floats) -> Floats:
        """(n,) what the noise of each reward put into Σ_t Σ_a π(a | x_t) r̂(x_t, a) + w_t (r_t - r̂_t) through the fits.

        e_s = Σ_z q_s(z) f(x_s, a_s)' (Σ_k G_kz⁻¹ h_kz) (r_s - r̂_s), over the folds k whose fit saw round s; h are the
        ``targets`` less Σ_t q_t(z) w_t f(x_t, a_t), 0 on average where w are the whole weights, and G Gram matrices.
        """
        left = np.zeros_like(targets)
        for rounds, fold, state, share in self._shares():
            arrays = self.log[rounds].arrays
            add_own_features(arrays.rows, arrays.actions, share * weights[rounds], left[fold, state])
        pulls = solve_ridge(self.grams, targets - left, self.penalties)
        through = np.einsum("ks,kzbd->szbd", self.seen, pulls)
        errors = np.zeros(len(self.log))
        for rounds, fold, state, share in self._shares():
            arrays = self.log[rounds].arrays
            shares = share * residuals[rounds]
            add_own_scores(arrays.rows, arrays.actions, shares, through[fold, state], errors[rounds])
        return errors

    def _shares(self) -> Iterator[tuple[slice, int, int, Floats]]:
        for rounds in self.log.chunk_slices():
            for fold, state, share in _shares(self.fold_of[rounds], self.membership[rounds]):
                yield rounds, fold, state, share


def fit_across(
    log: BanditLog, membership: Floats, fold_of: Ints, importance: Floats | None = None, *, forward: bool = False
) -> CrossFit:
    """Fit r̂ for every fold by least squares on the other folds, or where ``forward`` on those before it.

    Round t counts q_t(z) times its ``importance``. The ridge pulls to the mean reward where there is an intercept to
    hold it. A state without rounds in those folds gets the fit of all states.
    """
    shape, scales = log.joint.shape, log.joint.scales(log.arrays.rows)
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
    seen = order[None, :] < order[:, None] if forward else order[None, :] != order[:, None]
    grams, moments, counts = (np.einsum("ks,s...->k...", seen, sums) for sums in (grams, moments, counts))
    # Where a state was not seen, all states are.
    empty = counts == 0
    grams += empty[..., None, None, None] * grams.sum(axis=1, keepdims=True)
    moments += empty[..., None, None] * moments.sum(axis=1, keepdims=True)
    counts += empty * counts.sum(axis=1, keepdims=True)
    offsets = np.zeros(counts.shape)
    if log.joint.kind != "per action":
        # The intercept is the last feature, which is always 1.
        np.divide(moments[..., -1].sum(axis=-1), counts, out=offsets, where=counts > 0)
    penalties = RIDGE * np.square(scales)
    coefs = solve_ridge(grams, moments - offsets[..., None, None] * grams[..., -1], penalties)
    coefs[..., -1] += offsets[..., None]
    return CrossFit(log, fold_of, membership, seen, coefs, grams, penalties)


def _shares(folds: Ints, membership: Floats) -> list[tuple[int, int, Floats]]:
    """Fold, state and (m,) how much each round belongs to both, where any does."""
    found = []
    for fold in np.flatnonzero(np.bincount(folds)):
        here = folds == fold
        for state in range(membership.shape[1]):
            share = membership[:, state] * here
            if share.any():
                found.append((int(fold), state, share))
    return found
