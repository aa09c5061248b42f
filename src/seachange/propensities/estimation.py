"""Estimates of propensities that were not logged, from the actions taken."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.special import softmax

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
DETERMINED = 0.99  # the context determines the action if its probability is above this


def estimate_propensities(log: BanditLog, *, folds: int = 5, seed: int = 0) -> Floats:
    """(n,) estimates of p_t = π_0(a_t | x_t), in (0, 1]: ``estimate_logging_probs`` for the actions taken.

    >>> import seachange as sc
    >>> log = sc.simulate.Shop(seed=0).log(seed=0)
    >>> log = log.with_propensities(sc.estimate_propensities(log), estimated=True)
    """
    estimates = np.empty(len(log))
    for rounds, probs in _estimates(log, folds, seed):
        estimates[rounds] = probs[np.arange(len(rounds)), log.actions[rounds]]
    _warn_of_support(log, estimates)
    return estimates


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
    estimates = log.new_array(len(log), log.n_actions)
    for rounds, probs in _estimates(log, folds, seed):
        estimates[rounds] = probs
    _warn_of_support(log, estimates[np.arange(len(log)), log.actions])
    return estimates


def _estimates(log: BanditLog, folds: int, seed: int) -> Iterator[tuple[Ints, Floats]]:
    require_rounds(log, "estimating propensities")
    require_count("folds", folds)
    _warn_of_signature(log)
    for block, n_others, model, sharpness in _fitted(log, min(folds, len(log)), np.random.default_rng(seed)):
        for rounds in ChoiceSample(log, block).parts(max(CELLS // log.n_actions, 1)):
            base, ratios = _tilt(model, ChoiceSample(log, rounds))
            probs = softmax(base + sharpness * ratios, axis=1)
            if not _is_table(log):  # frequencies are above 0 already
                allowed = np.broadcast_to(log.arrays.mask if not log.masked else log.arrays.mask[rounds], probs.shape)
                probs = (n_others * probs + allowed / allowed.sum(axis=1, keepdims=True)) / (n_others + 1)
            yield rounds, probs


def _fitted(log: BanditLog, folds: int, generator: np.random.Generator) -> list[tuple[Ints, int, ChoiceModel, float]]:
    """Blocks of time, how many rounds are outside each, the model learned from those, and its sharpness b."""
    cuts = np.linspace(0, len(log), folds + 1).astype(np.int64)
    blocks = [np.arange(start, end) for start, end in pairwise(cuts)]
    others = _others(log, blocks)
    whole = ChoiceSample(log, np.arange(len(log)))
    models, sharpness = [ChoiceModel.plain(sample, whole.prior) for sample in others], [1.0] * folds
    if not _is_table(log):
        few = _thinned(log, blocks, RIDGE_ROUNDS, RIDGE_CELLS, generator)
        ridge, sample = _best_ridge(log, few, whole.prior), ChoiceSample(log, np.concatenate(few))
        # The fit of the whole log is a good start for the others.
        near = ChoiceModel.plain(whole, whole.prior).fit(sample, ridge)
        chance = near.chance(sample)
        with stage("Estimating propensities", folds) as fitting:
            for i, (model, sample) in enumerate(zip(models, others, strict=True)):
                start = replace(near, frequencies=model.frequencies, means=model.means, scales=model.scales)
                models[i] = start.fit(sample, ridge, chance)
                fitting.advance()
        if folds > 1:
            many = _thinned(log, blocks, SHARPNESS_ROUNDS, SHARPNESS_CELLS, generator)
            samples = [ChoiceSample(log, rounds) for rounds in many]
            losses = [_sharpness_loss(model, sample) for model, sample in zip(models, samples, strict=True)]
            sharpness = [_sharpness(losses[:i] + losses[i + 1 :]) for i in range(folds)]
    return list(zip(blocks, map(len, others), models, sharpness, strict=True))


def _others(log: BanditLog, blocks: list[Ints]) -> list[ChoiceSample]:
    """The rounds outside each block; with one block there are no others, and the log predicts itself."""
    outside = [np.concatenate(blocks[:i] + blocks[i + 1 :] or blocks) for i in range(len(blocks))]
    return [ChoiceSample(log, rounds) for rounds in outside]


def _is_table(log: BanditLog) -> bool:
    """Whether there is nothing to model but frequencies."""
    return log.joint.kind == "none" and not log.masked


def _thinned(log: BanditLog, blocks: list[Ints], rounds: int, cells: int, generator: np.random.Generator) -> list[Ints]:
    """A random sample of each block, equally large, within the limits in total."""
    most = max(min(rounds, max(cells // log.n_actions, LEAST_ROUNDS)) // len(blocks), 1)
    return [b if len(b) <= most else np.sort(generator.choice(b, most, replace=False)) for b in blocks]


def _best_ridge(log: BanditLog, blocks: list[Ints], prior: RatePrior) -> float:
    if len(blocks) == 1:
        return 1.0
    held_out, others = [ChoiceSample(log, rounds) for rounds in blocks], _others(log, blocks)
    models = [ChoiceModel.plain(sample, prior) for sample in others]
    best, least = RIDGES[0], np.inf
    with stage("Estimating propensities: choosing the ridge", len(RIDGES)) as trying:
        for ridge in RIDGES:
            models = [each.fit(sample, ridge, each.chance(sample)) for each, sample in zip(models, others, strict=True)]
            loss = sum(model.log_loss(sample) for model, sample in zip(models, held_out, strict=True))
            trying.advance()
            if loss > least:
                break
            best, least = ridge, loss
    return best


def _tilt(model: ChoiceModel, sample: ChoiceSample) -> tuple[Floats, Floats]:
    """(m, K) log f(a), -inf for masked actions, and log m(a | x) / f(a): the effect of contexts on frequencies."""
    frequencies, probs, tiny = model.without_contexts().probs(sample), model.probs(sample), np.finfo(float).tiny
    with np.errstate(divide="ignore"):
        base = np.log(frequencies)
    return base, np.log(np.maximum(probs, tiny)) - np.log(np.maximum(frequencies, tiny))


def _sharpness_loss(model: ChoiceModel, sample: ChoiceSample) -> Callable[[float], float]:
    """b -> Σ_t -log of the sharpened probability of the action taken, up to a constant."""
    base, ratios = _tilt(model, sample)
    taken = float(ratios[np.arange(len(sample)), sample.log.actions[sample.rounds]].sum())
    return lambda b: float(np.log(np.exp(base + b * ratios).sum(axis=1)).sum()) - b * taken


def _sharpness(losses: list[Callable[[float], float]]) -> float:
    """The b with the highest likelihood of these blocks, each predicted by the model of the others."""
    from scipy.optimize import minimize_scalar

    def loss(sharpness: float) -> float:
        return sum(each(sharpness) for each in losses)

    return float(minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-3}).x)


def _warn_of_signature(log: BanditLog) -> None:
    if columns := unnamed_propensities(log):
        problem = (
            f"column {' and '.join(map(repr, columns))} behaves like the propensity of the action taken, and the "
            "estimates learn from it."
        )
        fix = Fix(
            f'If it is, pass columns={{"propensity": {columns[0]!r}}}; if not, leave it out of the contexts.',
            f"If it is, pass --columns propensity={columns[0]}; if not, leave it out of the contexts.",
        )
        warnings.warn(SeachangeWarning(problem, fix=fix), stacklevel=4)


def _warn_of_support(log: BanditLog, propensities: Floats) -> None:
    """Warn about what estimates cannot fix: actions never taken, or determined by the context."""
    if log.n_actions == 1:
        return
    taken, names = np.bincount(log.actions, minlength=log.n_actions), log.action_names
    never = np.flatnonzero(taken == 0)
    determined = float(np.mean(propensities > DETERMINED))
    if len(never) == log.n_actions - 1:
        problem = f"only {names[int(taken.argmax())]!r} was ever taken; nothing can be learned about the others"
    elif determined > 0.5:
        problem = (
            f"the context determines the action in {determined:.0%} of the rounds; the log has no information on the "
            "other actions there, whatever their estimated propensities"
        )
    elif len(never):
        problem = (
            f"{len(never)} of {log.n_actions} actions were never taken (such as {names[int(never[0])]!r}); "
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
