"""Estimates of propensities that were not logged, from the actions taken."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from seachange.engine import stage
from seachange.errors import Fix, SeachangeWarning
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.params import require_count
from seachange.propensities.logging_model import CELLS, ChoiceModel, ChoiceSample, RatePrior
from seachange.propensities.signature import unnamed_propensities
from seachange.protocols import Floats, Ints

# Ridge penalties, in rounds, chosen by held-out log-loss; strongest first, as each fit starts from the one before.
RIDGES = (1000.0, 100.0, 10.0, 1.0, 0.1)
# Limits on the rounds, and on the (round, action) pairs, used to choose the ridge and the sharpness. The sharpness is
# one number for all probabilities, so its error must be small compared with that of a tenth of the log.
RIDGE_ROUNDS, RIDGE_CELLS = 20_000, 400_000
SHARPNESS_ROUNDS, SHARPNESS_CELLS = 100_000, 4_000_000
LEAST_ROUNDS = 200
# The context determines the action if its probability is above this.
DETERMINED = 0.99


def estimate_propensities(log: BanditLog, *, folds: int = 5, seed: int = 0) -> Floats:
    """(n,) estimates of p_t = π_0(a_t | x_t), in (0, 1]: ``estimate_logging_probs`` for the actions taken.

    >>> import seachange as sc
    >>> log = sc.simulate.Shop(seed=0).log(seed=0)
    >>> log = log.with_propensities(sc.estimate_propensities(log), estimated=True)
    """
    found = np.empty(len(log))
    for rounds, probs in _estimates(log, folds, seed):
        found[rounds] = probs[np.arange(len(rounds)), log.actions[rounds]]
    _warn_of_support(log, found)
    return found


def estimate_logging_probs(log: BanditLog, *, folds: int = 5, seed: int = 0) -> Floats:
    """(n, K) estimates of the whole logging distribution π_0(a | x_t).

    A logit model of the action given the context (``ChoiceModel``), with an intercept per action and a ridge chosen by
    held-out log-loss; without contexts, the frequencies f of actions, shrunk toward each other (``RatePrior``). The log
    is cut into ``folds`` blocks of time, and each block is predicted by the model of the others. The effect of contexts
    is then scaled:

    π_0(a | x) ∝ f(a) (m(a | x) / f(a))^b

    with m the model and b the sharpness that predicts best in the other blocks: 1 trusts the model, 0 uses f alone. One
    pseudo-round that takes all actions equally keeps every probability above 0. ``seed`` selects the rounds used to
    choose ridge and sharpness if a log is large.
    """
    found = log.new_array(len(log), log.n_actions)
    for rounds, probs in _estimates(log, folds, seed):
        found[rounds] = probs
    _warn_of_support(log, found[np.arange(len(log)), log.actions])
    return found


@dataclass(frozen=True, eq=False)
class _Block:
    """A block of time, and a model learned from the others."""

    rounds: Ints
    n_others: int
    model: ChoiceModel
    sharpness: float = 1.0  # b


def _estimates(log: BanditLog, folds: int, seed: int) -> Iterator[tuple[Ints, Floats]]:
    """Rounds and their estimated distributions."""
    require_rounds(log, "estimating propensities")
    require_count("folds", folds)
    _warn_of_signature(log)
    for block in _fitted(log, min(folds, len(log)), np.random.default_rng(seed)):
        for rounds in ChoiceSample(log, block.rounds).parts(max(CELLS // log.n_actions, 1)):
            sample = ChoiceSample(log, rounds)
            plain, model = block.model.without_contexts().probs(sample), block.model.probs(sample)
            allowed = np.broadcast_to(log.arrays.mask if not log.masked else log.arrays.mask[rounds], model.shape)
            probs = _sharpened(plain, model, block.sharpness)
            uniform = allowed / allowed.sum(axis=1, keepdims=True)
            # Frequencies are above 0 already.
            yield rounds, probs if _is_table(log) else (block.n_others * probs + uniform) / (block.n_others + 1)


def _fitted(log: BanditLog, folds: int, generator: np.random.Generator) -> list[_Block]:
    """One model per block, learned from the rounds outside it."""
    cuts = np.linspace(0, len(log), folds + 1).astype(np.int64)
    blocks = [np.arange(start, end) for start, end in pairwise(cuts)]
    # With one block there are no others: the log then predicts itself.
    others = blocks if folds == 1 else [np.concatenate(blocks[:i] + blocks[i + 1 :]) for i in range(folds)]
    trained = [ChoiceSample(log, rounds) for rounds in others]
    whole = ChoiceSample(log, np.arange(len(log)))
    models = [ChoiceModel.plain(sample, whole.prior) for sample in trained]
    if not _is_table(log):
        few = _thinned(log, blocks, RIDGE_ROUNDS, RIDGE_CELLS, generator)
        ridge = _best_ridge(log, few, whole.prior)
        # The fit of the whole log is a good start for the others.
        near = ChoiceModel.plain(whole, whole.prior).fit(ChoiceSample(log, np.concatenate(few)), ridge)
        starts = [replace(near, frequencies=m.frequencies, means=m.means, scales=m.scales) for m in models]
        chance = near.chance(ChoiceSample(log, np.concatenate(few)))
        with stage("Estimating propensities", folds) as fitting:
            for i, (start, sample) in enumerate(zip(starts, trained, strict=True)):
                models[i] = start.fit(sample, ridge, chance)
                fitting.advance()
    fitted = [_Block(rounds, len(sample), model) for rounds, sample, model in zip(blocks, trained, models, strict=True)]
    if _is_table(log) or folds == 1:
        return fitted
    many = _thinned(log, blocks, SHARPNESS_ROUNDS, SHARPNESS_CELLS, generator)
    tilts = [_Tilt.of(log, block, rounds) for block, rounds in zip(fitted, many, strict=True)]
    return [replace(block, sharpness=_sharpness(tilts[:i] + tilts[i + 1 :])) for i, block in enumerate(fitted)]


def _is_table(log: BanditLog) -> bool:
    """Whether there is nothing to model but frequencies."""
    return log.joint.kind == "none" and not log.masked


def _thinned(log: BanditLog, blocks: list[Ints], rounds: int, cells: int, generator: np.random.Generator) -> list[Ints]:
    """A random sample of each block, equally large, within the limits in total."""
    most = max(min(rounds, max(cells // log.n_actions, LEAST_ROUNDS)) // len(blocks), 1)
    return [b if len(b) <= most else np.sort(generator.choice(b, most, replace=False)) for b in blocks]


def _best_ridge(log: BanditLog, blocks: list[Ints], prior: RatePrior) -> float:
    """The ridge under which blocks of time predict each other best."""
    if len(blocks) == 1:
        return 1.0
    held = [ChoiceSample(log, rounds) for rounds in blocks]
    others = [ChoiceSample(log, np.concatenate(blocks[:i] + blocks[i + 1 :])) for i in range(len(blocks))]
    models = [ChoiceModel.plain(sample, prior) for sample in others]
    best, least = RIDGES[0], np.inf
    with stage("Estimating propensities: choosing the ridge", len(RIDGES)) as trying:
        for ridge in RIDGES:
            models = [
                model.fit(sample, ridge, model.chance(sample)) for model, sample in zip(models, others, strict=True)
            ]
            loss = sum(model.log_loss(sample) for model, sample in zip(models, held, strict=True))
            trying.advance()
            if loss > least:
                break
            best, least = ridge, loss
    return best


@dataclass(frozen=True, eq=False)
class _Tilt:
    """The effect of contexts on frequencies, in held-out rounds."""

    base: Floats  # (m, K) log f(a), -inf for masked actions
    ratios: Floats  # (m, K) log m(a | x) / f(a)
    taken: float  # Σ of the ratios for the actions taken

    @classmethod
    def of(cls, log: BanditLog, block: _Block, rounds: Ints) -> _Tilt:
        sample, tiny = ChoiceSample(log, rounds), np.finfo(float).tiny
        plain, model = block.model.without_contexts().probs(sample), block.model.probs(sample)
        with np.errstate(divide="ignore"):
            base = np.log(plain)
        ratios = np.log(np.maximum(model, tiny)) - np.log(np.maximum(plain, tiny))
        return cls(base, ratios, float(ratios[np.arange(len(rounds)), log.actions[rounds]].sum()))

    def loss(self, sharpness: float) -> float:
        """Σ_t -log of the sharpened probability of the action taken, up to a constant."""
        return float(np.log(np.exp(self.base + sharpness * self.ratios).sum(axis=1)).sum()) - sharpness * self.taken


def _sharpness(tilts: list[_Tilt]) -> float:
    """The b with the highest likelihood of these blocks, each predicted by the model of the others."""
    from scipy.optimize import minimize_scalar

    def loss(sharpness: float) -> float:
        return sum(tilt.loss(sharpness) for tilt in tilts)

    return float(minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-3}).x)


def _sharpened(plain: Floats, model: Floats, sharpness: float) -> Floats:
    """(n, K) distributions ∝ f (m / f)^b, 0 if f is 0."""
    tiny = np.finfo(float).tiny
    base = np.log(np.maximum(plain, tiny))
    scores = base + sharpness * (np.log(np.maximum(model, tiny)) - base)
    scores = np.exp(np.where(plain > 0, scores - scores.max(axis=1, keepdims=True), -np.inf))
    return np.asarray(scores / scores.sum(axis=1, keepdims=True))


def _warn_of_signature(log: BanditLog) -> None:
    """Warn if a context looks like the propensities themselves."""
    found = unnamed_propensities(log)
    if found:
        warnings.warn(
            SeachangeWarning(
                f"column {' and '.join(map(repr, found))} behaves like the propensity of the action taken, and the "
                "estimates learn from it.",
                fix=Fix(
                    f'If it is, pass columns={{"propensity": {found[0]!r}}}; if not, leave it out of the contexts.',
                    f"If it is, pass --columns propensity={found[0]}; if not, leave it out of the contexts.",
                ),
            ),
            stacklevel=4,
        )


def _warn_of_support(log: BanditLog, propensities: Floats) -> None:
    """Warn about what estimates cannot fix: actions never taken, or determined by the context."""
    if log.n_actions == 1:
        return
    taken = np.bincount(log.actions, minlength=log.n_actions)
    never = np.flatnonzero(taken == 0)
    determined = float(np.mean(propensities > DETERMINED))
    if len(never) == log.n_actions - 1:
        problem = (
            f"only {log.action_names[int(taken.argmax())]!r} was ever taken; nothing can be learned about the others"
        )
    elif determined > 0.5:
        problem = (
            f"the context determines the action in {determined:.0%} of the rounds; the log has no information on the "
            "other actions there, whatever their estimated propensities"
        )
    elif len(never):
        problem = (
            f"{len(never)} of {log.n_actions} actions were never taken (such as {log.action_names[int(never[0])]!r}); "
            "policies that take them cannot be evaluated"
        )
    elif not _is_table(log) and len(log) <= log.joint.size:
        problem = (
            f"{len(log)} rounds are too few for the {log.joint.size} coefficients of a logging policy; the estimates "
            "rely mostly on how often actions were taken"
        )
    else:
        return
    warnings.warn(f"{problem}.", SeachangeWarning, stacklevel=3)
