"""New states: stretches of a log that no state of a model explains, such as regimes that began after it was learned."""

import math
from dataclasses import dataclass, replace

import numpy as np

from seachange.kernels.change_scans import segment_sums
from seachange.kernels.regression import solve_ridge
from seachange.log.column_statistics import moments_of
from seachange.log.units import Units
from seachange.protocols import Floats
from seachange.states.expectation import Chain, Expectation, expectation
from seachange.states.pooled_regression import best_ridge, coefficient_cost, residual_log
from seachange.states.state_count import MIN_STANDARD_ERRORS
from seachange.states.switching_regression import SwitchingRegression

MOST_NEW = 5
# New states are sought in this many parts of the log, in pairs of them, in pairs of these, and so on; in fewer parts if
# the sums of all would hold more numbers.
PARTS, MAX_NUMBERS = 32, 1 << 22
# Steps to a posterior mode, until one gains less log-likelihood than this.
MAX_STEPS, LEAST_GAIN = 20, 0.5
LEAST_PRECISION = 0.1  # of a coefficient, in rounds: actions that were never taken are not known at all


def with_new_states(
    model: SwitchingRegression, found: Expectation, chain: Chain
) -> tuple[SwitchingRegression, Expectation]:
    """``model`` after the rounds of ``chain``, with the states that they add, and statistics of the rounds.

    ``found`` are the statistics of ``model``. The candidate for a new state is the stretch of time with the highest
    Bayes factor of one new state over the known ones. It is refined by EM and accepted if log p(rewards, coefficients)
    gains more than the cost of its coefficients and 2.5 standard errors, so that a few outliers are not a state. A
    change to it has probability 1 / n, so the gain includes a cost of log n. If nothing is new, the result is one step
    from ``model`` toward its posterior mode.
    """
    log, prior, sought, mode = chain.log, model, model, None
    known = found.totals[:, 1] / max(float(found.totals[:, 1].sum()), 1e-300)
    average = _average_state(model, known)
    stretches, likelihoods = _stretches(average, chain), average.log_predictive(log)
    for _ in range(MOST_NEW):
        # Known states are as the model has them here: given these rewards, they may drift toward a new one.
        predicted = sought.log_predictive(log)
        lost = np.append(0.0, np.cumsum(likelihoods - predicted))
        evidences = [each.gain + lost[each.end] - lost[each.begin] for each in stretches]
        if max(evidences) <= math.log(len(log)):
            break
        candidate = stretches[int(np.argmax(evidences))]
        mode = mode or _mode(model, model, chain)
        wider = _with_state(prior, average, log.units.raw_grams(candidate.ridge * np.eye(log.joint.shape[1])), len(log))
        own = average.reward_coefs + log.units.raw_coefs(candidate.deviations)
        other = _mode(wider, replace(wider, reward_coefs=np.concatenate([sought.reward_coefs, own])), chain)
        cost = 0.5 * coefficient_cost(log.units.grams(other.found.grams[-1]), candidate.ridge, len(log))
        gains = other.world.log_predictive(log) - predicted
        clear = float(gains.sum()) > MIN_STANDARD_ERRORS * math.sqrt(float(np.square(gains).sum()))
        if not clear or other.objective - mode.objective <= cost:
            break
        prior, mode = wider, other
        new = other.world.reward_coefs[model.n_states :]
        sought = replace(wider, reward_coefs=np.concatenate([model.reward_coefs, new]))
    if prior is model or mode is None:
        return updated(model, model, found, log.units), found
    return mode.world, mode.found


def updated(
    world: SwitchingRegression, prior: SwitchingRegression, found: Expectation, units: Units
) -> SwitchingRegression:
    """``world`` one step closer to its posterior mode, and the precision there.

    ``found`` are expected statistics of ``world``; the coefficients have the mean and precision of ``prior``. For
    Gaussian rewards the step is exact given the states; for clicks it is a Newton step.
    """
    gaps = world.reward_coefs - prior.reward_coefs
    slopes = found.moments - np.einsum("zbij,zbj->zbi", prior.reward_precisions, gaps)
    if not world.clicks:
        slopes = slopes - np.einsum("zbij,zbj->zbi", found.grams, world.reward_coefs)
    precisions = prior.reward_precisions + found.grams
    roots = inverse_roots(units.grams(precisions))
    steps = units.raw_coefs(np.einsum("zbij,zbjk,zbk->zbi", roots, roots, units.moments(slopes)))
    return replace(world, reward_coefs=world.reward_coefs + steps, reward_precisions=precisions)


def inverse_roots(precisions: Floats) -> Floats:
    """Symmetric R with R R = P⁻¹ for precisions P (..., D, D) in the units of a log, at least ``LEAST_PRECISION``."""
    values, vectors = np.linalg.eigh(precisions)
    scaled = vectors / np.sqrt(np.maximum(values, LEAST_PRECISION))[..., None, :]
    return np.asarray(scaled @ np.swapaxes(vectors, -1, -2))


@dataclass(frozen=True, eq=False)
class _Mode:
    """The posterior mode of a model's coefficients, and their precision."""

    world: SwitchingRegression
    found: Expectation  # of ``world``
    objective: float  # log p(rewards, coefficients), up to a constant


def _mode(prior: SwitchingRegression, start: SwitchingRegression, chain: Chain) -> _Mode:
    """The mode with coefficients of mean and precision as in ``prior``, by EM from ``start``."""
    best, world = None, start
    for _ in range(MAX_STEPS):
        found = expectation(world, chain)
        gaps = world.reward_coefs - prior.reward_coefs
        squares = np.einsum("zbi,zbij,zbj->z", gaps, prior.reward_precisions, gaps)
        objective = found.log_likelihood - 0.5 * float(np.sum(squares / (1 if world.clicks else world.noise_variances)))
        gain = math.inf if best is None else objective - best.objective
        if gain > 0:
            precise = replace(world, reward_precisions=prior.reward_precisions + found.grams)
            best = _Mode(precise, found, objective)
        if gain < LEAST_GAIN:
            break
        world = updated(world, prior, found, chain.log.units)
    assert best is not None, "the first step always counts"
    return best


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Consecutive rounds, and one regression of their rewards with the ridge of highest marginal likelihood."""

    begin: int
    end: int
    ridge: float
    deviations: Floats  # (B, D) from the average state, in units
    gain: float  # log marginal likelihood, less that of the average state


def _stretches(average: SwitchingRegression, chain: Chain) -> list[_Stretch]:
    """The parts of a log, pairs of them, pairs of these, and so on up to the whole log."""
    residuals = residual_log(chain.log, average.reward_coefs[0], clicks=average.clicks)
    rows, _, actions, rewards, _ = residuals.arrays
    # For clicks, this is a Newton step from the average state; all Hessians are scaled by the variance of the log.
    variance = moments_of(rewards).variance if average.clicks else float(average.noise_variances[0])
    weight, noise = (variance, 1.0) if average.clicks else (1.0, variance)
    n_blocks, n_features = average.joint.shape
    n_parts = PARTS
    while n_parts > 1 and n_parts * n_blocks * n_features**2 > MAX_NUMBERS:
        n_parts //= 2
    edges, units, found = np.linspace(0, len(chain.log), n_parts + 1).astype(np.int64), chain.log.units, []
    grams, moments, _, _ = segment_sums(rows, actions, rewards, edges[:-1].copy(), edges[1:].copy(), n_blocks)
    grams, moments = weight * units.grams(grams), units.moments(moments)
    while True:
        for begin, end, gram, moment in zip(edges[:-1], edges[1:], grams, moments, strict=True):
            ridge = best_ridge(gram, moment, noise)
            deviations = solve_ridge(gram, moment, ridge)
            explained = float(np.sum(moment * deviations)) / noise
            gain = 0.5 * (explained - coefficient_cost(gram, ridge, end - begin))
            found.append(_Stretch(int(begin), int(end), ridge, deviations, gain))
        if len(grams) == 1:
            return found
        edges, grams, moments = edges[::2], grams[::2] + grams[1::2], moments[::2] + moments[1::2]


def _average_state(model: SwitchingRegression, weights: Floats) -> SwitchingRegression:
    """A model with one state: the average of all, with ``weights`` (L,)."""
    return replace(
        model, initial_probs=np.ones(1), transition_matrix=np.ones((1, 1)),
        reward_coefs=np.einsum("z,zbi->bi", weights, model.reward_coefs)[None],
        reward_precisions=model.reward_precisions[:1],
        noise_variances=model.noise_variances if model.clicks else np.full(1, weights @ model.noise_variances),
    )  # fmt: skip


def _with_state(
    model: SwitchingRegression, average: SwitchingRegression, penalty: Floats, n: int
) -> SwitchingRegression:
    """``model`` and one more state, which begins, and ends, every ``n`` rounds on average."""
    n_states, rare = model.n_states, 1 / n
    transition = np.full((n_states + 1, n_states + 1), rare)
    transition[:-1, :-1] = (1 - rare) * model.transition_matrix
    transition[-1] = np.append(np.full(n_states, rare / n_states), 1 - rare)
    precisions = np.broadcast_to(penalty, (1, *model.reward_precisions.shape[1:]))
    return replace(
        model, initial_probs=np.append((1 - rare) * model.initial_probs, rare), transition_matrix=transition,
        reward_coefs=np.concatenate([model.reward_coefs, average.reward_coefs]),
        reward_precisions=np.concatenate([model.reward_precisions, precisions]),
        noise_variances=np.concatenate([model.noise_variances, average.noise_variances]),
    )  # fmt: skip
