"""Confidence sequences: their formula, and that they know the past only."""

from itertools import product

import numpy as np
import pytest
from scipy.special import zeta

import seachange as sc
from seachange.evaluation.value_estimate import running_interval, stitched_boundary
from seachange.log.clusters import FIRST_FOLD, Clusters

pytestmark = pytest.mark.small
CLICK, LOGGING, TARGET = np.array([0.2, 0.9]), np.array([0.25, 0.75]), np.array([0.6, 0.4])


def log_of(rewards, sequences=None):
    n = len(rewards)
    return sc.BanditLog.from_arrays(np.zeros(n, dtype=int), rewards, np.ones(n), n_actions=1, sequences=sequences)


def boundary(variance, scale, error):
    """Howard et al. (2021), equation 10, with η = 2 and s = 1.4, for one moment."""
    v = max(variance / scale**2, 1.0)
    level = 1.4 * np.log(np.log(2 * v) / np.log(2)) + np.log(zeta(1.4) / error)
    k1, k2 = (2**0.25 + 2**-0.25) / np.sqrt(2), (np.sqrt(2) + 1) / 2
    return scale * (np.sqrt(k1**2 * v * level + k2**2 * level**2) + k2 * level)


@pytest.mark.parametrize("clustered", [False, True])
def test_a_confidence_sequence_is_its_formula_written_out(clustered):
    """One cluster after the other: the guess is made of those before, steps down go from the guess to the limit."""
    generator = np.random.default_rng(0)
    terms, limits, guesses = generator.uniform(-2.0, 5.0, size=60), (-2.0, 5.0), (0.0, 1.0)
    names = np.sort(generator.integers(25, size=60)) if clustered else np.arange(60)
    found = running_interval(terms, limits, guesses, Clusters(log_of(np.ones(60), names if clustered else None)), 0.9)
    total, rounds, variance, largest = 0.0, 0, 0.0, 0
    for g, name in enumerate(np.unique(names)):
        members = terms[names == name]
        guess = min(max(total / rounds, 0.0), 1.0) if rounds else 0.5
        variance += (members.sum() - len(members) * guess) ** 2
        total, rounds, largest = total + members.sum(), rounds + len(members), max(largest, len(members))
        down, up = boundary(variance, largest * (1.0 + 2.0), 0.05), boundary(variance, largest * (5.0 - 0.0), 0.05)
        assert found.values[g] == pytest.approx(total / rounds, rel=1e-12)
        assert found.low[g] == pytest.approx((total - down) / rounds, rel=1e-12)
        assert found.high[g] == pytest.approx((total + up) / rounds, rel=1e-12)


def test_what_cannot_step_up_stays_below_0():
    variances = np.array([0.0, 1.0, 5.0])
    assert stitched_boundary(variances, np.array([0.0, -1.0, 2.0]), 0.05) == pytest.approx(
        [0.0, 0.0, boundary(5.0, 2.0, 0.05)]
    )


def growing_log(n, *, clustered=False, known=False):
    """Contexts grow, and so do the weights: the log's first part has other scales than the whole."""
    generator = np.random.default_rng(1)
    contexts = generator.normal(size=(n, 2)) * np.linspace(0.5, 3.0, n)[:, None]
    rare = np.linspace(0.5, 0.1, n)
    logging = np.column_stack([1 - rare, rare])
    actions = (generator.random(n) < rare).astype(int)
    rewards = (generator.random(n) < 0.2 + 0.5 * (contexts[:, 0] > 0)).astype(float)
    users = np.searchsorted(np.cumsum(generator.integers(1, 6, size=n)), np.arange(n), side="right")
    return sc.BanditLog.from_arrays(
        actions, rewards, logging[np.arange(n), actions], contexts=contexts, n_actions=2,
        logging_probs=logging if known else None, sequences=users if clustered else None,
    )  # fmt: skip


@pytest.mark.parametrize("estimator", ["ips", "dr", "mrdr"])
@pytest.mark.parametrize(("clustered", "known"), [(False, False), (False, True), (True, False)])
def test_watching_a_log_that_grew_changes_nothing_that_was_seen(estimator, clustered, known):
    """No fold, fit, ridge, weight or cluster of later rounds is in an earlier bound, and no reward either."""
    log = growing_log(2_000, clustered=clustered, known=known)
    part = log[:500]
    if clustered:  # whole users
        part = log[: int(np.flatnonzero(np.diff(log.sequences))[200]) + 1]
    probs = np.tile([0.6, 0.4], (2_000, 1))
    whole, first = sc.watch(log, probs, estimator), sc.watch(part, probs[: len(part)], estimator)
    seen = len(first.values)
    assert seen < len(whole.values)
    for name in ("values", "low", "high"):
        assert getattr(whole, name)[:seen] == pytest.approx(getattr(first, name), rel=1e-9)
    (last,) = sc.evaluate(log, probs, (estimator,), interval="sequence")
    assert (whole.low[-1], whole.high[-1]) == pytest.approx((last.low, last.high), rel=1e-12)


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("estimator", ["ips", "dr", "mrdr"])
def test_every_term_is_worth_the_policy_given_its_past_by_enumeration(estimator):
    """The last round of a log, after a past in which the second fold has a model, in all its ways."""
    n, generator = FIRST_FOLD + 8, np.random.default_rng(2)
    actions = (generator.random(n) < LOGGING[1]).astype(int)
    rewards = (generator.random(n) < CLICK[actions]).astype(float)
    expected, terms = 0.0, []
    for action, reward in product(range(2), repeat=2):
        actions[-1], rewards[-1] = action, reward
        log = sc.BanditLog.from_arrays(actions, rewards, LOGGING[actions], n_actions=2)
        values = sc.watch(log, np.tile(TARGET, (n, 1)), estimator, force=True).values
        terms.append(n * values[-1] - (n - 1) * values[-2])
        expected += LOGGING[action] * (CLICK[action] if reward else 1 - CLICK[action]) * terms[-1]
    assert expected == pytest.approx(TARGET @ CLICK, rel=1e-9)
    # With a model, a round without a reward is not worth 0.
    assert (terms[0] != pytest.approx(0, abs=0.01)) == (estimator != "ips")


def test_folds_that_grow_are_each_as_long_as_all_before():
    log = log_of(np.ones(8 * FIRST_FOLD))
    assert np.bincount(Clusters(log).growing_folds()).tolist() == [FIRST_FOLD * size for size in (1, 1, 2, 4)]
    names = np.repeat(np.arange(2 * FIRST_FOLD), 3)
    folds = Clusters(log_of(np.ones(len(names)), names)).growing_folds()
    assert np.bincount(folds).tolist() == [3 * FIRST_FOLD, 3 * FIRST_FOLD]
    assert (np.diff(folds) >= 0).all()
