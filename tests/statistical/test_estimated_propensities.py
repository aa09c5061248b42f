"""Estimated propensities with many actions and few rounds: weights of mean 1, calibration, values."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import SeachangeWarning

pytestmark = [
    # Actions that were never taken, and that estimates are used.
    pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning"),
]
WORLDS = ["uniform", "zipf", "two kinds"]
KINDS = ["none", "shared"]


def logging_policy(world, n_actions):
    ranks = np.arange(1, n_actions + 1)
    scores = {"uniform": np.ones(n_actions), "zipf": 1 / ranks, "two kinds": np.where(2 * ranks > n_actions, 10.0, 1.0)}
    return scores[world] / scores[world].sum()


def logged(world, n_actions, n_rounds, kind, seed):
    """A log whose actions do not depend on contexts, its true propensities, and its expected rewards."""
    generator = np.random.default_rng([seed, n_actions, n_rounds])
    probs = logging_policy(world, n_actions)
    actions = generator.choice(n_actions, size=n_rounds, p=probs)
    click = generator.uniform(0.1, 0.5, n_actions)
    rewards = (generator.random(n_rounds) < click[actions]).astype(float)
    contexts = generator.normal(size=(n_rounds, 2)) if kind == "shared" else None
    log = sc.BanditLog.from_arrays(actions, rewards, probs[actions], contexts=contexts, n_actions=n_actions)
    return log, click.mean()


def judged(log, estimates, value):
    """One log: the uniform policy by estimated and by true propensities."""
    uniform = np.full((len(log), log.n_actions), 1 / log.n_actions)
    report = sc.propensity_report(log, estimates)
    estimated = log.with_propensities(estimates, estimated=True)
    true_weights, weights = (1 / log.n_actions / each.propensities for each in (log, estimated))
    names = ("ips", "snips", "dr")
    truths = sc.evaluate(log, uniform, names)
    found = sc.evaluate(estimated, uniform, names)  # is not refused
    return {
        "weight": weights.mean() - 1,
        "error": true_weights.std(ddof=1) / np.sqrt(len(log)),
        "calibration": report.calibration_error / report.error_by_chance,
        "least": estimated.propensities.min() / log.propensities.min(),
        "scores": [(mine.value - value) / theirs.std_error for mine, theirs in zip(found, truths, strict=True)],
    }


def assert_sound(world, n_actions, n_rounds, kind, seeds):
    found = []
    for seed in seeds:
        log, value = logged(world, n_actions, n_rounds, kind, seed)
        found.append(judged(log, sc.estimate_logging_probs(log), value))
    column = {name: np.array([each[name] for each in found]) for name in found[0]}
    # With the true propensities of a uniform policy the error is 0; estimates have one of their own.
    error = np.maximum(column["error"], 0.01)
    assert (np.abs(column["weight"]) < 4.5 * error).all(), column["weight"]
    assert abs(column["weight"].mean()) < max(4.5 * error.mean() / np.sqrt(len(found)), 0.01), column["weight"]
    # Chance alone makes 1 on average, and strays by a quarter in one log of ten bins.
    assert column["calibration"].mean() < 1 + max(0.5, 4.5 * 0.25 / np.sqrt(len(found)))
    assert column["least"].min() > 0.1
    assert np.abs(column["scores"]).max() < 4.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("n_actions", "n_rounds"), [(50, 250), (50, 500), (200, 1_000), (200, 2_000)])
def test_few_rounds_of_many_actions_give_propensities_that_can_be_used(world, n_actions, n_rounds, kind):
    assert_sound(world, n_actions, n_rounds, kind, range(5 if kind == "none" else 2))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    ("n_actions", "n_each"), [(50, 5), (50, 10), (50, 30), (50, 100), (200, 5), (200, 10), (200, 30), (200, 100),
                              (1_000, 5), (1_000, 10), (1_000, 30)]
)  # fmt: skip
def test_propensities_can_be_used_over_many_seeds(world, n_actions, n_each, kind):
    seeds = range(100, 120) if n_actions * n_each <= 20_000 and kind == "none" else range(100, 103)
    assert_sound(world, n_actions, n_actions * n_each, kind, seeds)


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS)
def test_a_hundred_rounds_for_each_of_a_thousand_actions(world):
    """Weights alone: the whole distribution would take a gigabyte."""
    for seed in range(3):
        log, _ = logged(world, 1_000, 100_000, "none", seed)
        found = sc.estimate_propensities(log)
        error = np.std(1 / (1_000 * log.propensities)) / np.sqrt(len(log))
        assert abs(np.mean(1 / (1_000 * found)) - 1) < 4.5 * max(error, 0.001)
        assert found.min() > 0.1 * log.propensities.min()


@pytest.mark.long
def test_ten_thousand_actions():
    """One round in ten thousand for each action: estimates are about that, and no value depends on a single round."""
    log, _ = logged("uniform", 10_000, 20_000, "none", 0)
    found = sc.estimate_propensities(log)
    assert found.min() > 0.1 / 10_000
    assert abs(np.mean(1 / (10_000 * found)) - 1) < 0.02


def catalogue(seed, n_rounds=8_000, n_actions=40, n_features=5):
    """Contexts that matter, with decreasing popularity of actions."""
    generator = np.random.default_rng(seed)
    contexts = generator.normal(size=(n_rounds, n_features))
    scores = 0.5 * contexts @ generator.normal(size=(n_features, n_actions)) - np.log(np.arange(1, n_actions + 1))
    probs = np.exp(scores - scores.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    actions = np.minimum((probs.cumsum(axis=1) < generator.random((n_rounds, 1))).sum(axis=1), n_actions - 1)
    return sc.BanditLog.from_arrays(actions, generator.random(n_rounds), contexts=contexts, n_actions=n_actions), probs


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_contexts_that_matter_are_used(seed):
    """No more is lost to the truth than half a round for each coefficient explains, with a slack of 1.5."""
    log, truth = catalogue(seed)
    found = sc.estimate_logging_probs(log)
    lost = (truth * np.log(truth / found)).sum(axis=1).mean()
    assert lost < 1.5 * 40 * 6 / (2 * len(log))
    report = sc.propensity_report(log, found)
    assert report.calibration_error < 2 * report.error_by_chance
    weights = 1 / (40 * found[np.arange(len(log)), log.actions])
    assert abs(weights.mean() - 1) < 4.5 * weights.std() / np.sqrt(len(log))


def test_rejecting_estimates_does_not_blame_the_logging_format():
    """A logging policy that changed: its last actions were rare before."""
    generator = np.random.default_rng(0)
    actions = np.concatenate([generator.integers(0, 3, 4_000), generator.integers(2, 6, 1_000)])
    log = sc.BanditLog.from_arrays(actions, np.ones(5_000))
    estimated = log.with_propensities(sc.estimate_logging_probs(log), estimated=True)
    with pytest.raises(sc.SeachangeError, match=r"average \S+, not 1: .*propensity_report") as refused:
        sc.evaluate(estimated, np.full((5_000, 6), 1 / 6))
    assert "written down" not in str(refused.value)
    with pytest.warns(SeachangeWarning, match="estimated propensities"):
        sc.evaluate(estimated, np.full((5_000, 6), 1 / 6), force=True)
