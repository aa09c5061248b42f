"""Estimates of propensities that were not logged: a model of the logging policy, cross-fitted over time."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal, Self

import numpy as np
from scipy.special import logsumexp, softmax

from seachange.engine import one_thread, stage
from seachange.errors import Fix, warn
from seachange.kernels.action_probs import choice_probs, choice_sums
from seachange.log.bandit_log import BanditLog, require_rounds
from seachange.log.units import Units
from seachange.params import require_count
from seachange.propensities.boosting import SIZES, BoostedChoice, boostable_rounds
from seachange.propensities.signature import unnamed_propensities
from seachange.protocols import Bools, Floats, Ints

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

    @property
    def allowed(self) -> Bools:
        """(m, K) which actions were available."""
        mask = self.log.arrays.mask
        return np.broadcast_to(mask[self.rounds] if self.log.masked else mask, (len(self), self.log.n_actions))

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

    def log_probs(self, sample: ChoiceSample) -> Floats:
        """(m, K) log π_0(a | x_t), -inf only for actions that are not available."""
        return np.where(sample.allowed, np.log(np.maximum(self.probs(sample), np.finfo(float).tiny)), -np.inf)

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
    for rounds, probs in fit_logging_policy(log, folds=folds, seed=seed).estimates(log):
        estimates[rounds] = probs[np.arange(len(rounds)), log.actions[rounds]]
    _warn_of_support(log, estimates)
    return estimates


def estimate_logging_probs(log: BanditLog, *, folds: int = 5, seed: int = 0) -> Floats:
    """(n, K) estimates of the whole logging distribution π_0(a | x_t).

    Without contexts, these are the frequencies f of actions, shrunk toward each other (``RatePrior``). With contexts,
    the log is cut into ``folds`` blocks of time, and each block is predicted by models of the others: a logit model of
    the action (``ChoiceModel``) with a ridge chosen by held-out log-loss and, if that lowers the held-out log-loss by
    more than chance, boosted trees (``BoostedChoice``). The effect of contexts is then scaled:

    π_0(a | x) ∝ f(a) Π_m (m(a | x) / f(a))^b_m

    with b the sharpness of each model m that predicts best in the other blocks: 1 trusts the model, 0 ignores it. One
    pseudo-round that takes all actions equally keeps every probability above 0. ``seed`` selects the rounds used for
    boosting and to choose ridge and sharpness if a log is large.
    """
    return fit_logging_policy(log, folds=folds, seed=seed).logging_probs(log)


@dataclass(frozen=True, eq=False)
class BlockModel:
    """π_0(a | x) ∝ f(a) Π_m (m(a | x) / f(a))^b_m in one block of time, with the models m of the other blocks."""

    block: Ints  # rounds
    n_others: int  # rounds outside
    linear: ChoiceModel
    boosted: BoostedChoice | None = None
    size: int | None = None  # trees used of those in ``boosted``
    exponents: Floats = field(default_factory=lambda: np.ones(1))  # b: the sharpness of each model

    def tilt(self, sample: ChoiceSample) -> tuple[Floats, Floats]:
        """(m, K) log f(a), -inf for masked actions, and (M, m, K) log m(a | x) / f(a): the effect of contexts."""
        base, logs = (model.log_probs(sample) for model in (self.linear.without_contexts(), self.linear))
        boosted = [] if self.boosted is None else self.boosted.log_probs(sample, logs, self.size)
        allowed = sample.allowed
        return base, np.stack(
            [np.subtract(each, base, out=np.zeros_like(base), where=allowed) for each in (logs, *boosted)]
        )

    def probs(self, sample: ChoiceSample) -> Floats:
        """(m, K) π_0(a | x_t)."""
        base, ratios = self.tilt(sample)
        return np.asarray(softmax(base + np.tensordot(self.exponents, ratios, 1), axis=1))


@dataclass(frozen=True, eq=False)
class LoggingPolicy:
    """A model of the logging policy, by blocks of time, each learned from the other blocks."""

    blocks: list[BlockModel]
    kind: Literal["frequencies", "linear", "boosted"]

    def logging_probs(self, log: BanditLog) -> Floats:
        """(n, K) π_0(a | x_t) of the log that it was learned from; warns about what estimates cannot fix."""
        estimates = log.new_array(len(log), log.n_actions)
        for rounds, probs in self.estimates(log):
            estimates[rounds] = probs
        _warn_of_support(log, estimates[np.arange(len(log)), log.actions], stacklevel=4)
        return estimates

    def estimates(self, log: BanditLog) -> Iterator[tuple[Ints, Floats]]:
        """Rounds of ``log``, which it was learned from, and their (m, K) π_0(a | x_t)."""
        for model in self.blocks:
            for rounds in ChoiceSample(log, model.block).parts(max(CELLS // log.n_actions, 1)):
                probs = model.probs(sample := ChoiceSample(log, rounds))
                if self.kind != "frequencies":  # frequencies are above 0 already
                    allowed = sample.allowed
                    one_more = allowed / allowed.sum(axis=1, keepdims=True)
                    probs = (model.n_others * probs + one_more) / (model.n_others + 1)
                yield rounds, probs


def fit_logging_policy(log: BanditLog, *, folds: int = 5, seed: int = 0) -> LoggingPolicy:
    """The model behind ``estimate_logging_probs``."""
    require_rounds(log, "estimating propensities")
    require_count("folds", folds)
    _warn_of_signature(log)
    generator, folds = np.random.default_rng(seed), min(folds, len(log))
    cuts = np.linspace(0, len(log), folds + 1).astype(np.int64)
    blocks = [np.arange(start, end) for start, end in pairwise(cuts)]
    others, whole = _others(log, blocks), ChoiceSample(log, np.arange(len(log)))
    plain = [ChoiceModel.plain(sample, whole.prior) for sample in others]
    if _is_table(log):
        return LoggingPolicy([*map(BlockModel, blocks, map(len, others), plain)], "frequencies")
    few = _thinned(log, blocks, RIDGE_ROUNDS, RIDGE_CELLS, generator)
    ridge, sample = _best_ridge(log, few, whole.prior), ChoiceSample(log, np.concatenate(few))
    # The fit of the whole log is a good start for the others.
    near = ChoiceModel.plain(whole, whole.prior).fit(sample, ridge)
    chance, models = near.chance(sample), list[BlockModel]()
    with stage("Estimating propensities", folds) as fitting:
        for block, sample, model in zip(blocks, others, plain, strict=True):
            start = replace(near, frequencies=model.frequencies)
            models.append(BlockModel(block, len(sample), start.fit(sample, ridge, chance)))
            fitting.advance()
    if folds == 1:
        return LoggingPolicy(models, "linear")
    many = _thinned(log, blocks, SHARPNESS_ROUNDS, SHARPNESS_CELLS, generator)
    samples = [ChoiceSample(log, rounds) for rounds in many]
    linear, before = _sharpened(models, samples)
    if added := _boosted(models, samples, generator):
        boosted, after = _sharpened(added, samples)
        gain = before - after
        if gain.sum() > 2 * gain.std() * np.sqrt(len(gain)):  # more than chance
            return LoggingPolicy(boosted, "boosted")
    return LoggingPolicy(linear, "linear")


def _boosted(
    models: list[BlockModel], held_out: list[ChoiceSample], generator: np.random.Generator
) -> list[BlockModel]:
    """The models with a boosted one added, whose size has the least held-out log-loss in all blocks together.

    Empty if boosting is not worth trying, or does not help in the first block.
    """
    log, losses, found = held_out[0].log, np.zeros(len(SIZES)), list[BlockModel]()
    if (most := boostable_rounds(log)) == 0:
        return []
    outside = _others(log, _thinned(log, [model.block for model in models], most, most * log.n_actions, generator))
    with stage("Estimating propensities: boosting", len(models)) as fitting:
        for model, sample, others in zip(models, held_out, outside, strict=True):
            boosted, taken = BoostedChoice.fit(others, model.linear.log_probs(others)), log.actions[sample.rounds]
            each_size = boosted.log_probs(sample, model.linear.log_probs(sample))
            losses -= [logs[np.arange(len(sample)), taken].sum() for logs in each_size]
            found.append(replace(model, boosted=boosted, size=SIZES[int(losses.argmin())], exponents=np.ones(2)))
            fitting.advance()
            if len(found) == 1:
                before, after = (_sharpness_loss(each, sample) for each in (model, found[0]))
                gain = before(_sharpness([before], 1))[0] - after(_sharpness([after], 2))[0]
                if gain.sum() < 2:  # a likelihood ratio that chance gives to one useless model in twenty
                    return []
    return [replace(model, size=SIZES[int(losses.argmin())]) for model in found]


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


def _sharpened(models: list[BlockModel], samples: list[ChoiceSample]) -> tuple[list[BlockModel], Floats]:
    """The models with the exponents that predict the other blocks best, and the log-loss of every round of a sample."""
    losses = [_sharpness_loss(model, sample) for model, sample in zip(models, samples, strict=True)]
    best = [_sharpness(losses[:i] + losses[i + 1 :], len(models[0].exponents)) for i in range(len(models))]
    held_out = np.concatenate([loss(b)[0] for loss, b in zip(losses, best, strict=True)])
    return [replace(model, exponents=b) for model, b in zip(models, best, strict=True)], held_out


def _sharpness_loss(model: BlockModel, sample: ChoiceSample) -> Callable[[Floats], tuple[Floats, Floats]]:
    """b -> (m,) -log of the sharpened probability of each action taken, and the gradient of their sum."""
    base, ratios = model.tilt(sample)
    rows, actions = np.arange(len(sample)), sample.log.actions[sample.rounds]
    taken = ratios[:, rows, actions]

    def loss(b: Floats) -> tuple[Floats, Floats]:
        scores = base + np.tensordot(b, ratios, 1)
        totals = logsumexp(scores, axis=1)
        expected = np.einsum("ta,mta->m", np.exp(scores - totals[:, None]), ratios)
        return totals - scores[rows, actions], expected - taken.sum(axis=1)

    return loss


def _sharpness(losses: list[Callable[[Floats], tuple[Floats, Floats]]], n_models: int) -> Floats:
    """(M,) the b with the highest likelihood of these blocks, each predicted by the models of the others."""
    from scipy.optimize import minimize

    def loss(b: Floats) -> tuple[float, Floats]:
        parts = [each(b) for each in losses]
        n = sum(len(part) for part, _ in parts)
        return sum(float(part.sum()) for part, _ in parts) / n, np.sum([slope for _, slope in parts], axis=0) / n

    start = np.full(n_models, 1 / n_models)
    with one_thread():
        result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0.0, 2.0)] * n_models)
    return np.asarray(result.x)


def _warn_of_signature(log: BanditLog) -> None:
    if columns := unnamed_propensities(log):
        names = " and ".join(map(repr, columns))
        problem = f"column {names} behaves like the propensity of the action taken, and the estimates learn from it."
        fix = Fix(
            f'If it is, pass columns={{"propensity": {columns[0]!r}}}; if not, leave it out of the contexts.',
            f"If it is, pass --columns {shlex.quote(f'propensity={columns[0]}')}; if not, leave it out of contexts.",
        )
        warn(problem, fix, stacklevel=4)


def _warn_of_support(log: BanditLog, propensities: Floats, stacklevel: int = 3) -> None:
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
    warn(f"{problem}.", stacklevel=stacklevel)
