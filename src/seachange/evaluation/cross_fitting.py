"""Reward models that never saw the rounds they are asked about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seachange.kernels.rows import own_rows
from seachange.log.bandit_log import BanditLog
from seachange.policies.rewards import RewardModel, fit_rewards
from seachange.protocols import Bools, Floats, Ints

# Pseudo-rounds that pull the reward model to the mean reward.
RIDGE = 1.0
FOLDS = 5


@dataclass(frozen=True, eq=False)
class CrossFit:
    """r̂(x_t, a) = Σ_z q_t(z) r̂_kz(x_t, a), k the fold of round t, which r̂_kz was not fitted to."""

    log: BanditLog
    fold_of: Ints  # (n,)
    membership: Floats  # (n, L) q_t(z)
    models: tuple[tuple[RewardModel, ...], ...]  # by fold and state
    forward: bool  # r̂_kz was fitted to the folds before k, not to all others

    def shares(self, rounds: slice) -> list[tuple[int, int, Floats]]:
        """Fold, state and (m,) how much each of ``rounds`` belongs to both, where any does."""
        folds, membership = self.fold_of[rounds], self.membership[rounds]
        found = []
        for fold in np.unique(folds):
            here = folds == fold
            for state in range(membership.shape[1]):
                share = membership[:, state] * here
                if share.any():
                    found.append((int(fold), state, share))
        return found

    def predict(self, rounds: slice) -> Floats:
        """r̂ of ``rounds`` and all actions: (m, K)."""
        part = self.log[rounds]
        predicted = np.zeros((len(part), self.log.n_actions))
        for fold, state, share in self.shares(rounds):
            predicted += share[:, None] * self.models[fold][state].predict(part)
        return predicted

    def targets(self) -> Floats:
        """Room for ``add_targets``: (folds, L, B, D) zeros."""
        return np.zeros((len(self.models), self.membership.shape[1], *self.log.joint.shape))

    def add_targets(self, targets: Floats, rounds: slice, probs: Floats) -> None:
        """Add Σ_t q_t(z) Σ_a π(a | x_t) f(x_t, a) of ``rounds``, by fold and state."""
        rows = self.log[rounds].arrays.rows
        for fold, state, share in self.shares(rounds):
            shared = share[:, None] * probs
            if self.log.joint.kind == "per action":
                targets[fold, state, 0] += np.einsum("ta,tad->d", shared, rows)
            elif self.log.joint.kind == "none":
                targets[fold, state, :, 0] += shared.sum(axis=0)
            else:
                targets[fold, state] += shared.T @ rows[:, 0]

    def fit_errors(self, targets: Floats, residuals: Floats) -> Floats:
        """(n,) by how much the noise of each round's reward moved Σ_t Σ_a π(a | x_t) r̂(x_t, a) through the fits.

        e_s = Σ_z q_s(z) f(x_s, a_s)' (Σ_k G_kz⁻¹ g_kz) (r_s - r̂_s), over the folds k whose fit saw round s, with g the
        ``targets`` and G⁻¹ the fits' inverse Gram matrices.
        """
        pulls = np.empty_like(targets)
        for fold, models in enumerate(self.models):
            for state, model in enumerate(models):
                pulls[fold, state] = np.einsum("bij,bj->bi", model.inverse_gram, targets[fold, state])
        later = np.cumsum(pulls[::-1], axis=0)[::-1] - pulls
        seen_by = later if self.forward else pulls.sum(axis=0) - pulls
        errors = np.zeros(len(self.log))
        for rounds in self.log.chunk_slices():
            arrays = self.log[rounds].arrays
            features = own_rows(arrays.rows, arrays.actions, np.arange(len(arrays.actions)))
            blocks = arrays.actions if targets.shape[2] > 1 else np.zeros_like(arrays.actions)
            for fold, state, share in self.shares(rounds):
                leverage = np.einsum("td,td->t", seen_by[fold, state][blocks], np.broadcast_to(
                    features, (len(blocks), features.shape[1])))  # fmt: skip
                errors[rounds] += share * leverage * residuals[rounds]
        return errors


def fit_across(
    log: BanditLog, membership: Floats, fold_of: Ints, importance: Floats | None = None, *, forward: bool = False
) -> CrossFit:
    """Fit r̂ for every fold by least squares on the other folds, or where ``forward`` on those before it.

    Round t counts q_t(z) times its ``importance``. A state without rounds there gets the fit of all states.
    """
    models = []
    for fold in range(int(fold_of.max()) + 1):
        allowed: Bools = fold_of < fold if forward else fold_of != fold
        counts = allowed.astype(np.float64) if importance is None else allowed * importance
        weights = membership * counts[:, None]
        weights[:, weights.sum(axis=0) == 0] = counts[:, None]
        models.append(tuple(fit_rewards(log, weights, RIDGE)))
    return CrossFit(log, fold_of, membership, tuple(models), forward)
