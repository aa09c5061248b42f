"""New states: stretches of a log that no state of a model explains, such as regimes that began after it was learned."""

import math
from dataclasses import dataclass, replace

import numpy as np

from seachange.kernels.emission import round_scores
from seachange.kernels.regression import regression_sums, solve_ridge
from seachange.log.bandit_log import BanditLog
from seachange.log.units import Units
from seachange.protocols import Floats
from seachange.states.expectation import Chain, Expectation, expectation
from seachange.states.hmm_fitting import SHORTEST_STAY, STAYS_PER_SEQUENCE
from seachange.states.pooled_regression import best_ridge, coefficient_cost, residual_log
from seachange.states.reward_evidence import RewardEvidence
from seachange.states.state_count import MIN_STANDARD_ERRORS
from seachange.states.switching_regression import SwitchingRegression, bought

# New states added at most.
MOST_NEW = 5
# They are sought in this many parts of the log, in pairs of them, in pairs of these, and so on.
PARTS = 32
# If regimes matter rather than values, parts have about this many rounds, even in a long log.
PART_ROUNDS = 200
# Newton steps of a regression of clicks in a part.
CLICK_STEPS = 4
# Steps to a posterior mode, until one gains less log-likelihood than this.
MAX_STEPS, LEAST_GAIN = 20, 0.5
LEAST_PRECISION = 0.1  # of a coefficient, in rounds: actions that were never taken are not known at all


@dataclass(frozen=True)
class NewRegime:
    """Consecutive rounds of a log that no state of a model explains."""

    first: int  # round
    last: int
    since: str | float | None  # times of these rounds, if the log has any
    until: str | float | None
    ongoing: bool  # whether it lasts until the end of the log


def new_regimes(
    model: SwitchingRegression, evidence: RewardEvidence, log: BanditLog, begin: int = 0
) -> tuple[NewRegime, ...]:
    """The rounds of ``log`` from ``begin`` on that are probably in a state that ``model`` lacks.

    None in a log of several sequences, in each of which the state is another one. ``evidence`` is of the log of the
    model.
    """
    later = log[begin:]
    chain = Chain(bought(later) if model.rewards == "hurdle" else later)
    if len(chain.firsts) > 1:
        return ()
    known = replace(model, reward_precisions=_precisions(model, evidence))
    parts = max(PARTS, 1 << max(len(later) // PART_ROUNDS, 1).bit_length() - 1)
    wider, _ = with_new_states(known, expectation(known, chain), chain, parts)
    if wider.n_states == model.n_states:
        return ()
    unexplained = wider.smooth(later)[:, model.n_states :].sum(axis=1) > 0.5
    edges = begin + np.flatnonzero(np.diff(unexplained, prepend=False, append=False)).reshape(-1, 2)
    firsts, ends = edges.T.tolist()
    lasts, ongoing = [end - 1 for end in ends], [end == len(log) for end in ends]
    return tuple(map(NewRegime, firsts, lasts, log.times_at(firsts), log.times_at(lasts), ongoing))


def _precisions(model: SwitchingRegression, evidence: RewardEvidence) -> Floats:
    """(L, B, D, D) the precision of coefficients that shrink toward one fit of their log, which has errors of its own.

    (P⁻¹ + G⁻¹)⁻¹, with P the precision of a state given that fit, and G the information of the whole log on it
    """
    units = evidence.units
    own, common = (inverse_roots(each) for each in (units.grams(model.reward_precisions), evidence.grams.sum(axis=0)))
    return units.raw_grams(np.asarray(np.linalg.inv(own @ own + common @ common), dtype=np.float64))


def with_new_states(
    model: SwitchingRegression, found: Expectation, chain: Chain, parts: int = PARTS
) -> tuple[SwitchingRegression, Expectation]:
    """``model`` after the rounds of ``chain``, with the states that they add, and statistics of the rounds.

    ``found`` are the statistics of ``model``. The candidate for a new state is the stretch of time with the highest
    Bayes factor of one new state over the known ones, refined by EM with ``model`` as the prior of the known states. If
    nothing is new, the result is one step from ``model`` toward its posterior mode.
    """
    log, prior, sought, mode = chain.log, model, model, None
    average = _average_state(model, found.totals[:, 1])
    stretches = _stretches(average, chain, parts)
    for _ in range(MOST_NEW):
        # Known states are as in the model here: after EM, one that no longer occurs may resemble a new one.
        predicted = sought.log_predictive(log)
        explained = np.append(0.0, np.cumsum(predicted))
        factors = [each.evidence - explained[each.end] + explained[each.begin] for each in stretches]
        if max(factors) <= math.log(len(log)):
            break
        candidate = stretches[int(np.argmax(factors))]
        mode = mode or _mode(model, model, chain)
        penalty = log.units.raw_grams(candidate.ridge * np.eye(log.joint.shape[1]))
        # A new state begins, and ends, every n rounds on average.
        loose = replace(average, reward_precisions=np.broadcast_to(penalty, average.reward_precisions.shape))
        wider = with_state(prior, loose, 1 / len(log), 1 / len(log))
        other = _mode(wider, replace(wider, reward_coefs=np.concatenate([sought.reward_coefs, candidate.coefs])), chain)
        if not _is_state(other, mode, candidate.ridge, predicted, chain):
            break
        prior, mode = wider, other
        new = other.world.reward_coefs[model.n_states :]
        sought = replace(wider, reward_coefs=np.concatenate([model.reward_coefs, new]))
    if prior is model or mode is None:
        return updated(model, model, found, log.units), found
    return mode.world, mode.found


def _is_state(other: "_Mode", mode: "_Mode", ridge: float, predicted: Floats, chain: Chain) -> bool:
    """Whether the last state of ``other`` is one, and not noise.

    It must gain more log p(rewards, coefficients) over ``mode`` than its coefficients cost; the gain of its predictions
    over the ``predicted`` log-likelihoods must be significant, and its visits must last, so that outliers are no state.
    A change to it has a probability of 1 / n, so the gain is net of log n for each visit.
    """
    cost = 0.5 * coefficient_cost(chain.log.units.grams(other.found.grams[-1]), ridge, len(chain.log))
    gains = other.world.log_predictive(chain.log) - predicted
    significant = float(gains.sum()) > MIN_STANDARD_ERRORS * math.sqrt(float(np.square(gains).sum()))
    shortest = min(SHORTEST_STAY, len(chain.log) / len(chain.firsts) / STAYS_PER_SEQUENCE)
    visits = float(other.found.first_states[-1] + other.found.transitions[:-1, -1].sum())
    lasting = float(other.found.totals[-1, 1]) > shortest * visits
    return significant and lasting and other.objective - mode.objective > cost


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
    coefs: Floats  # (1, B, D)
    evidence: float  # log marginal likelihood


def _stretches(average: SwitchingRegression, chain: Chain, parts: int) -> list[_Stretch]:
    """The parts of a log (a power of 2), pairs of them, pairs of these, and so on up to the whole log."""
    edges = np.linspace(0, len(chain.log), parts + 1).astype(int).tolist()
    widths = [2**i for i in range(parts.bit_length())]
    spans = [(edges[i], edges[i + width]) for width in widths for i in range(0, parts, width)]
    return [_stretch(average, chain, begin, end) for begin, end in spans if end > begin]


def _stretch(average: SwitchingRegression, chain: Chain, begin: int, end: int) -> _Stretch:
    """The regression, as a deviation from the ``average`` state."""
    log, units, clicks, ones = chain.log[begin:end], chain.log.units, average.clicks, np.ones((end - begin, 1))
    noise = 1.0 if clicks else float(average.noise_variances[0])
    rows, _, actions, rewards, _ = (log if clicks else residual_log(log, average.reward_coefs[0])).arrays
    deviations, coefs = np.zeros(average.joint.shape), average.reward_coefs
    for _ in range(CLICK_STEPS if clicks else 1):
        scores = np.empty((len(log), 1 if clicks else 0))
        if clicks:
            round_scores(rows, actions, coefs, scores)
        sums = regression_sums(rows, actions, rewards, ones, average.joint.shape[0], scores)
        grams, moments = units.grams(sums[0][0]), units.moments(sums[1][0])
        linear = moments + np.einsum("bij,bj->bi", grams, deviations)
        ridge = best_ridge(grams, linear, noise)
        deviations = solve_ridge(grams, linear, ridge)
        coefs = average.reward_coefs + units.raw_coefs(deviations)
    likelihood = float(replace(average, reward_coefs=coefs).log_densities(log, ones).sum())
    penalty = ridge * float(np.square(deviations).sum()) / noise + coefficient_cost(grams, ridge, len(log))
    return _Stretch(begin, end, ridge, coefs, likelihood - 0.5 * penalty)


def _average_state(model: SwitchingRegression, rounds: Floats) -> SwitchingRegression:
    """A model with one state: the average of all, weighted by their ``rounds`` (L,)."""
    weights = (rounds + 1e-12) / (rounds + 1e-12).sum()
    return replace(
        model, initial_probs=np.ones(1), transition_matrix=np.ones((1, 1)),
        reward_coefs=np.einsum("z,zbi->bi", weights, model.reward_coefs)[None],
        reward_precisions=model.reward_precisions[:1],
        noise_variances=model.noise_variances if model.clicks else np.full(1, weights @ model.noise_variances),
    )  # fmt: skip


def with_state(
    model: SwitchingRegression, state: SwitchingRegression, opening: float, closing: float
) -> SwitchingRegression:
    """``model`` and the state of ``state``, which begins with probability ``opening`` and ends with ``closing``."""
    n_states = model.n_states
    transition = np.full((n_states + 1, n_states + 1), opening)
    transition[:-1, :-1] = (1 - opening) * model.transition_matrix
    transition[-1] = np.append(np.full(n_states, closing / n_states), 1 - closing)
    return replace(
        model, initial_probs=np.append((1 - opening) * model.initial_probs, opening), transition_matrix=transition,
        reward_coefs=np.concatenate([model.reward_coefs, state.reward_coefs]),
        reward_precisions=np.concatenate([model.reward_precisions, state.reward_precisions]),
        noise_variances=np.concatenate([model.noise_variances, state.noise_variances]),
    )  # fmt: skip
