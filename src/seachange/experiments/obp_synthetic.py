"""Open Bandit Pipeline's synthetic table: relative errors of seven estimators of a soft policy over 30 actions.

Source: zr-obp, examples/synthetic (README.md and evaluate_off_policy_estimators.py), 10,000 rounds, 30 actions,
5 features, β = -3, 20 runs. Run i draws from seed i in the order of the published script, so seeds from 0 on give the
published worlds.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from seachange.errors import SeachangeWarning
from seachange.evaluation.estimators import ValueEstimate, evaluate
from seachange.experiments.paper_synthetic import std_of
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints

# Relative errors: the mean and the standard deviation over runs.
Published = tuple[float, float]
PUBLISHED = {
    "dm": (0.074390, 0.024525),
    "ips": (0.009481, 0.006899),
    "snips": (0.006665, 0.004541),
    "dr": (0.006175, 0.004245),
    "sndr": (0.006118, 0.003997),
    "switch-dr": (0.006175, 0.004245),
    "dr-os": (0.021951, 0.013337),
}
PUBLISHED_RUNS = 20
N_ROUNDS, N_ACTIONS, N_FEATURES = 10_000, 30, 5
INVERSE_TEMPERATURE = -3.0  # β: the logging policy prefers actions with low rewards

# Reward models and policies of the published script.
CLASSIFIER = {"C": 100.0, "max_iter": 10_000}
FOLDS, FOLD_SEED = 3, 12345
PLAIN = ("dm", "ips", "snips", "dr", "sndr")
TUNED = ("switch-dr", "dr-os")
# The candidates of Open Bandit Pipeline's examples, for both τ and λ.
CANDIDATES = (10.0, 50.0, 100.0, 500.0, 1000.0, 5000.0, 10000.0, math.inf)
SLOPE_DELTA = 0.05  # δ of SLOPE's one-sided intervals when the numbers were published; newer versions use 0.1
CLOSE = 3.0  # standard errors within which two numbers count as equal


class Rounds(NamedTuple):
    """Logged rounds, with the true mean rewards."""

    contexts: Floats  # (n, d)
    mean_rewards: Floats  # (n, K)
    actions: Ints  # (n,)
    rewards: Floats  # (n,)
    propensities: Floats  # (n,)


def two_logs(seed: int, n_rounds: int) -> Iterator[Rounds]:
    """Two logs of one world: P(r = 1 | x, a) = σ(z), z the standardized x̃'θ + ã'ψ + x̃'Mã.

    x̃ = (1, x) and ã = (1, one-hot a); θ, ψ and M are uniform on (-1, 1), x is normal, π_0 ∝ exp(β P(r = 1 | x, a)). As
    in the published script, both logs draw their actions from the same uniform numbers.
    """
    generator, world = np.random.RandomState(seed), np.random.RandomState(seed)
    shapes = (N_FEATURES + 1, N_ACTIONS + 1, (N_FEATURES + 1, N_ACTIONS + 1))
    context_coefs, action_coefs, joint_coefs = (world.uniform(-1, 1, size=shape) for shape in shapes)
    uniforms = np.random.RandomState(seed).uniform(size=n_rounds)
    one_hot = np.insert(np.eye(N_ACTIONS), 0, 1.0, axis=1)
    for _ in range(2):
        contexts = generator.normal(size=(n_rounds, N_FEATURES))
        extended = np.insert(contexts, 0, 1.0, axis=1)
        scores = (extended @ context_coefs)[:, None] + (action_coefs + extended @ joint_coefs) @ one_hot.T
        means = expit((scores - scores.mean()) / scores.std())
        logging_probs = softmax(INVERSE_TEMPERATURE * means, axis=1)
        actions = (logging_probs.cumsum(axis=1) > uniforms[:, None]).argmax(axis=1)
        everyone = np.arange(n_rounds)
        rewards = generator.binomial(1, means[everyone, actions]).astype(np.float64)
        yield Rounds(contexts, means, actions, rewards, logging_probs[everyone, actions])


def run(seed: int, n_rounds: int = N_ROUNDS) -> dict[str, float]:
    """One run: every estimator's relative error for a policy learned from other rounds of the same world."""
    known, later = two_logs(seed, n_rounds)
    probs = learned_probs(known, later.contexts)
    predicted = cross_fitted_rewards(later.contexts, np.eye(N_ACTIONS), later.actions, later.rewards)
    log = BanditLog.from_arrays(later.actions, later.rewards, later.propensities, n_actions=N_ACTIONS)
    value = float(np.einsum("ta,ta->t", probs, later.mean_rewards).mean())
    return relative_errors(log, probs, predicted, value)


def learned_probs(known: Rounds, contexts: Floats) -> Floats:
    """π(a | x) ∝ exp P̂(a | x), P̂ the classifier of the logged actions with the weights r / p."""
    classifier = LogisticRegression(**CLASSIFIER).fit(known.contexts, known.actions, known.rewards / known.propensities)
    scores = np.zeros((len(contexts), N_ACTIONS))
    scores[:, classifier.classes_] = classifier.predict_proba(contexts)
    return np.asarray(softmax(scores, axis=1))


# Errors of estimators


def cross_fitted_rewards(
    contexts: Floats, action_features: Floats, actions: Ints, rewards: Floats, positions: Ints | None = None
) -> Floats:
    """r̂(x_t, a) (n, K) = σ(u'x_t + v'g_a + c), fitted on the folds without round t.

    ``action_features`` (K, e) are the g_a. Each of the ``positions``, if given, has its own fit.
    """
    predicted = np.empty((len(actions), len(action_features)))
    places = np.zeros(len(actions), dtype=np.int64) if positions is None else positions
    joint = np.concatenate([contexts, action_features[actions]], axis=1)
    for known, held_out in KFold(FOLDS, shuffle=True, random_state=FOLD_SEED).split(joint):
        for place in np.unique(places):
            fit, predict = known[places[known] == place], held_out[places[held_out] == place]
            predicted[predict] = _predict(joint[fit], rewards[fit], contexts[predict], action_features)
    return predicted


def _predict(joint: Floats, rewards: Floats, contexts: Floats, action_features: Floats) -> Floats | float:
    if rewards.min() == rewards.max():
        return float(rewards[0])
    model = LogisticRegression(**CLASSIFIER).fit(joint, rewards)
    own, other = np.split(model.coef_[0], [contexts.shape[1]])
    return np.asarray(expit((contexts @ own + model.intercept_[0])[:, None] + action_features @ other))


@dataclass(frozen=True)
class EstimatorResult:
    """One estimator's relative error |V̂ - V| / V over all runs."""

    estimator: str
    mean: float
    std: float  # over runs
    published: float
    published_std: float
    within: bool  # the means differ by at most three standard errors


def relative_errors(log: BanditLog, probs: Floats, predicted: Floats, value: float) -> dict[str, float]:
    """|V̂ - V| / V of every estimator, for a policy (n, K) with true value V and a given reward model."""
    with warnings.catch_warnings():
        # Errors are measured even for values that would be refused.
        warnings.simplefilter("ignore", SeachangeWarning)
        given: dict[str, Any] = {"predicted_rewards": predicted, "force": True}
        found = evaluate(log, probs, PLAIN, **given)
        tuned = [evaluate(log, probs, TUNED, switch=each, shrinkage=each, **given) for each in CANDIDATES]
        found += [chosen_by_slope(candidates, len(log)) for candidates in zip(*tuned, strict=True)]
    return {estimate.estimator: abs(estimate.value - value) / value for estimate in found}


def chosen_by_slope(estimates: Sequence[ValueEstimate], n_rounds: int) -> ValueEstimate:
    """The setting with the narrowest interval that agrees with all wider ones (SLOPE, Su et al. 2020).

    In order of decreasing width c_i = t_{1-δ} s_i: the last i for which every pair j < k ≤ i has
    |V̂_j - V̂_k| ≤ c_k + (√6 - 1) c_j, the constant of Tucker and Lee (2021).
    """
    reach = float(student.ppf(1 - SLOPE_DELTA, n_rounds - 1))
    wide = sorted(estimates, key=lambda estimate: -estimate.std_error)
    for i, narrow in enumerate(wide[1:], start=1):
        for other in wide[:i]:
            allowed = reach * (narrow.std_error + (math.sqrt(6) - 1) * other.std_error)
            if abs(other.value - narrow.value) > allowed:
                return wide[i - 1]
    return wide[-1]


def summarize_errors(
    runs: Sequence[Mapping[str, float]], published: Mapping[str, Published], published_runs: int
) -> list[EstimatorResult]:
    """The table: mean and spread of each estimator's error, and whether it matches the published one."""
    results = []
    for name, (published_mean, published_std) in published.items():
        errors = [run[name] for run in runs]
        mean, std = float(np.mean(errors)), std_of(errors)
        error = math.sqrt(std**2 / len(runs) + published_std**2 / published_runs)
        within = abs(mean - published_mean) <= CLOSE * error
        results.append(EstimatorResult(name, mean, std, published_mean, published_std, within))
    return results
