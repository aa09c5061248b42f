"""Estimates of propensities that were not logged: a model of the logging policy, cross-fitted over time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from scipy.special import softmax

from seachange.engine import one_thread, stage
from seachange.errors import Fix, warn
from seachange.kernels.action_probs import choice_probs, choice_sums
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.units import Units
from seachange.params import require_count
from seachange.propensities.signature import unnamed_propensities
from seachange.protocols import Floats, Ints

STEP = 0.25  # step from one rate to the next, in standard errors of a count: √rate changes by half of it
PSEUDO_ACTIONS = 0.1  # pseudo-actions spread over all rates, so that no rate is impossible
ITERATIONS = 100  # more iterations would fit noise
ROWS = 1 << 15  # rounds whose features are summed at a time
CELLS = 1 << 20  # probabilities kept in memory at a time
# Ridge penalties, in rounds, chosen by held-out log-loss; strongest first, as each fit starts from the one before.
RIDGES = (1000.0, 100.0, 10.0, 1.0, 0.1)
# Limits on the rounds, and on the (round, action) pairs, used to choose the ridge and the sharpness. The sharpness is
# one number for all probabilities, so its error must be small compared with that of a tenth of the log.
RIDGE_ROUNDS, RIDGE_CELLS = 20_000, 400_000
SHARPNESS_ROUNDS, SHARPNESS_CELLS = 100_000, 4_000_000
LEAST_ROUNDS = 200
DETERMINED = 0.99  # the context determines the action if its probability is above this


@dataclass(frozen=True, eq=False)
class RatePrior:
    """The distribution of rates λ over actions: weights on a grid, of any shape.

    An action available in s rounds is taken c ~ Poisson(λ s) times; the weights maximize the likelihood of all counts
    (Kiefer and Wolfowitz 1956, by EM). A count is shrunk toward the rates of similar actions, the more so the less
    actions differ.
    """

    rates: Floats  # (G,) λ
    weights: Floats  # (G,)

    @classmethod
    def of(cls, taken: Floats, shown: Floats) -> Self:
        """The prior for (K,) actions, given how often each was taken and available."""
        longest = max(float(shown.max()), 1.0)
        scaled = np.divide(taken * longest, shown, out=np.zeros(len(taken)), where=shown > 0)
        highest = float(np.max(scaled, initial=1.0))
        counts = np.square(STEP / 2 * np.arange(1, int(2 / STEP * np.sqrt(highest)) + 2))
        # An action that was never taken may be as rare as one round in all.
        rare = np.geomspace(1 / len(taken), counts[0], max(int(2 * np.log2(len(taken) * counts[0])), 0), endpoint=False)
        rates = np.concatenate([rare, counts]) / longest
        cases, times = np.unique(np.stack([taken, shown]), axis=1, return_counts=True)
        likelihoods = _likelihoods(rates, *cases)
        weights = flat = np.full(len(rates), 1 / len(rates))
        with one_thread():
            for _ in range(ITERATIONS):
                expected = weights * ((times / (likelihoods @ weights)) @ likelihoods)
                weights = (expected + PSEUDO_ACTIONS * flat) / (len(taken) + PSEUDO_ACTIONS)
        return cls(rates, weights)

    def means(self, taken: Floats, shown: Floats) -> Floats:
        """(K,) E[λ | c, s]."""
        cases, which = np.unique(np.stack([taken, shown]), axis=1, return_inverse=True)
        posterior = _likelihoods(self.rates, *cases) * self.weights
        with one_thread():
            rates = posterior @ self.rates / posterior.sum(axis=1)
        return np.asarray(rates[which.ravel()])


def _likelihoods(rates: Floats, taken: Floats, shown: Floats) -> Floats:
    """(K, G) λ^c exp(-λ s), scaled to a maximum of 1 per action."""
    scores = taken[:, None] * np.log(rates) - shown[:, None] * rates
    return np.asarray(np.exp(scores - scores.max(axis=1, keepdims=True)))


@dataclass(frozen=True, eq=False)
class ChoiceSample:
    """Some rounds of a log."""

    log: BanditLog
    rounds: Ints  # (m,)

    def __len__(self) -> int:
        return len(self.rounds)

    @cached_property
    def taken(self) -> Floats:
        """(K,) rounds in which each action was taken."""
        return np.bincount(self.log.actions[self.rounds], minlength=self.log.n_actions).astype(np.float64)

    @cached_property
    def shown(self) -> Floats:
        """(K,) rounds in which each action was available."""
        if not self.log.masked:
            return np.full(self.log.n_actions, float(len(self)))
        parts = (self.log.arrays.mask[rounds] for rounds in self.parts())
        return np.asarray(sum((part.sum(axis=0) for part in parts), np.zeros(self.log.n_actions)))

    @cached_property
    def prior(self) -> RatePrior:
        """The prior of action rates in these rounds."""
        return RatePrior.of(self.taken, self.shown)

    def parts(self, rows: int = ROWS) -> list[Ints]:
        """The rounds in chunks."""
        return [self.rounds[start : start + rows] for start in range(0, len(self), rows)]


@dataclass(frozen=True, eq=False)
class ChoiceModel:
    """π_0(a | x) ∝ f(a) exp(b_a + θ_a · x̃) over available actions; θ is shared if actions have their own features.

    f are the frequencies of actions, shrunk by ``RatePrior``; x̃ are features with mean 0 and variance 1. With
    coefficients of 0, the model gives the frequencies.
    """

    frequencies: Floats  # (K,)
    units: Units  # of the features
    coefs: Floats  # b (K,), followed by θ: (K, d), or (1, d) if actions have their own features, flattened

    @classmethod
    def plain(cls, sample: ChoiceSample, prior: RatePrior) -> Self:
        """The model of frequencies alone, shrunk by ``prior``."""
        rates = prior.means(sample.taken, sample.shown)
        # Scaled so that the expected number of rounds is right.
        frequencies = rates * (len(sample) / (rates @ sample.shown) if len(sample) else 1.0)
        n_slopes = sample.log.joint.shape[0] * sample.log.joint.n_features
        return cls(frequencies, sample.log.units, np.zeros(len(frequencies) + n_slopes))

    def without_contexts(self) -> Self:
        """The frequencies that the model is based on."""
        return replace(self, coefs=np.zeros_like(self.coefs))

    def fit(self, sample: ChoiceSample, ridge: float, chance: Floats | float = 1.0) -> Self:
        """Maximize Σ_t log π_0(a_t | x_t) - (ridge / 2) (|θ|² + |b|²), starting here; ``ridge`` is in rounds.

        Intercepts should follow noise no more than f does: if an action is taken c times and f expects f s, then
        c - u (c - f s) counts, where u is the share that contexts leave to ``chance``. The maximum is unique, so the
        starting point affects only the running time.
        """
        from scipy.optimize import minimize

        if len(sample) == 0 or sample.log.n_actions == 1:
            return self
        surplus = np.zeros_like(self.coefs)
        surplus[: len(self.frequencies)] = chance * (sample.taken - self.frequencies * sample.shown)

        def descend(flat: Floats) -> tuple[float, Floats]:
            loss, slope = replace(self, coefs=flat)._loss(sample)
            loss, slope = loss + float(surplus @ flat), slope + surplus
            return (loss + ridge / 2 * float(flat @ flat)) / len(sample), (slope + ridge * flat) / len(sample)

        options = {"maxiter": 300, "ftol": 1e-9, "gtol": 1e-5}
        with one_thread():
            result = minimize(descend, self.coefs, jac=True, method="L-BFGS-B", options=options)
        return replace(self, coefs=result.x)

    def probs(self, sample: ChoiceSample) -> Floats:
        """(m, K) π_0(a | x_t)."""
        (rows, mask, *_), probs = sample.log.arrays, np.empty((len(sample), len(self.frequencies)))
        choice_probs(rows, mask, sample.rounds, *self._raw(sample), probs)
        return probs

    def chance(self, sample: ChoiceSample) -> Floats:
        """(K,) Σ_t π (1 - π) over Σ_t f (1 - f): the share of an action's variance that contexts leave to chance."""
        left, total = np.zeros_like(self.frequencies), np.zeros_like(self.frequencies)
        for rounds in sample.parts(max(CELLS // len(total), 1)):
            for variances, model in ((left, self), (total, self.without_contexts())):
                probs = model.probs(ChoiceSample(sample.log, rounds))
                variances += (probs * (1 - probs)).sum(axis=0)
        return np.asarray(np.minimum(left / np.maximum(total, np.finfo(float).tiny), 1.0))

    def log_loss(self, sample: ChoiceSample) -> float:
        """Σ_t -log π_0(a_t | x_t)."""
        return self._loss(sample)[0]

    def _raw(self, sample: ChoiceSample) -> tuple[Floats, Floats]:
        """Scores as base(a) + c · f(x, a) in the log's raw features, (K,) and (B, D)."""
        (intercepts, slopes), coefs = np.split(self.coefs, [len(self.frequencies)]), np.zeros(sample.log.joint.shape)
        coefs[:, :-1] = slopes.reshape(len(coefs), -1)
        return np.log(self.frequencies) + intercepts, self.units.raw_coefs(coefs)

    def _loss(self, sample: ChoiceSample) -> tuple[float, Floats]:
        """Σ_t -log π_0(a_t | x_t) and its gradient in (b, θ)."""
        (rows, mask, actions, *_), (base, coefs) = sample.log.arrays, self._raw(sample)
        intercepts, slopes = np.zeros_like(base), np.zeros_like(coefs)
        loss = choice_sums(rows, mask, actions, sample.rounds, base, coefs, intercepts, slopes)
        return float(loss), np.concatenate([intercepts, self.units.moments(slopes)[:, :-1].ravel()])


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
                start = replace(near, frequencies=model.frequencies)
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
        names = " and ".join(map(repr, columns))
        problem = f"column {names} behaves like the propensity of the action taken, and the estimates learn from it."
        fix = Fix(
            f'If it is, pass columns={{"propensity": {columns[0]!r}}}; if not, leave it out of the contexts.',
            f"If it is, pass --columns propensity={columns[0]}; if not, leave it out of the contexts.",
        )
        warn(problem, fix, stacklevel=4)


def _warn_of_support(log: BanditLog, propensities: Floats) -> None:
    """Warn about what estimates cannot fix: actions never taken, or determined by the context."""
    if log.n_actions == 1:
        return
    taken, names = np.bincount(log.actions, minlength=log.n_actions), log.action_names
    never, determined = np.flatnonzero(taken == 0), float(np.mean(propensities > DETERMINED))
    if len(never) == log.n_actions - 1:
        problem = f"only {names[int(taken.argmax())]!r} was ever taken; nothing can be learned about the others"
    elif determined > 0.5:
        problem = (
            f"the contexts all but determine the action in {determined:.0%} of the rounds. A column may encode the "
            "action, or those rounds had no exploration"
        )
    elif len(never):
        some = f"{len(never)} of {log.n_actions} actions were never taken (such as {names[int(never[0])]!r})"
        problem = f"{some}; policies that take them cannot be evaluated"
    elif not _is_table(log) and len(log) <= log.joint.size:
        few = f"{len(log)} rounds are too few for the {log.joint.size} coefficients of a logging policy"
        problem = f"{few}; the estimates rely mostly on how often actions were taken"
    else:
        return
    warn(f"{problem}.", stacklevel=3)
