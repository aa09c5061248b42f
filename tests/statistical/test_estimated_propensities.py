"""Estimated propensities: many actions with few rounds, and logging policies that no linear model fits."""

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


def leaf(x):
    """(n,) the leaf of a tree of depth 3."""
    first = x[:, 0] > 0.2
    second = np.where(first, x[:, 1] > -0.3, x[:, 2] > 0.1)
    return 4 * first + 2 * second + np.where(second, x[:, 2] > 0.5, x[:, 1] > 0.4)


CURVES = {  # what logging policy and rewards depend on
    "linear": lambda x, leaves: x[:, :2],
    "product": lambda x, leaves: x[:, :1] * x[:, 1:2],
    "absolute": lambda x, leaves: np.abs(x[:, :1]) - 0.8,
    "tree": lambda x, leaves: leaves[leaf(x)],
}


def curved(kind, seed, n_rounds=None):
    """A log without propensities, its true ones, and policies with their values over all contexts."""
    generator = np.random.default_rng([seed, list(CURVES).index(kind)])
    n, n_actions, d = (int(generator.integers(low, high)) for low, high in ((10_000, 20_001), (3, 6), (3, 7)))
    leaves, n = generator.normal(size=(8, 3)), n_rounds or n
    width = CURVES[kind](np.zeros((1, d)), leaves).shape[1]
    slopes = generator.normal(size=(width, n_actions))
    slopes *= 1.2 / slopes.std() if width == 1 else 1
    earned = 0.7 * slopes + 0.5 * generator.normal(size=slopes.shape)
    base, levels = 0.3 * generator.normal(size=n_actions), 0.5 * generator.normal(size=n_actions)
    tilt = 0.5 * generator.normal(size=(d, n_actions))

    def softmax(scores):
        probs = np.exp(scores - scores.max(axis=1, keepdims=True))
        return probs / probs.sum(axis=1, keepdims=True)

    def everything(x):
        z = CURVES[kind](x, leaves)
        means = z @ earned + levels
        better = 0.7 * np.eye(n_actions)[means.argmax(axis=1)] + 0.3 / n_actions
        policies = {"uniform": np.full_like(means, 1 / n_actions), "tilted": softmax(x @ tilt), "better": better}
        return 0.95 * softmax(z @ slopes + base) + 0.05 / n_actions, means, policies

    x = generator.normal(size=(n, d))
    probs, means, policies = everything(x)
    actions = np.minimum((probs.cumsum(axis=1) < generator.random((n, 1))).sum(axis=1), n_actions - 1)
    rewards = means[np.arange(n), actions] + generator.normal(size=n)
    _, means, everywhere = everything(np.random.default_rng(5).normal(size=(200_000, d)))
    values = {name: (probs * means).sum(axis=1).mean() for name, probs in everywhere.items()}
    return sc.BanditLog.from_arrays(actions, rewards, contexts=x, n_actions=n_actions), probs, policies, values


def misses(kind, seed, names, n_rounds=None):
    """Errors in half-widths of the interval, by estimator, for each of these policies; NaN if refused."""
    log, _, policies, values = curved(kind, seed, n_rounds)
    estimated = log.with_propensities(sc.estimate_logging_probs(log), estimated=True)
    for name in names:
        try:
            found = sc.evaluate(estimated, policies[name], ("dr", "ips", "snips"))
            yield [2 * (each.value - values[name]) / (each.high - each.low) for each in found]
        except sc.RefusedError:
            yield [np.nan] * 3


@pytest.mark.parametrize("kind", CURVES)
def test_values_hold_if_the_logging_policy_is_not_linear(kind):
    """A miss of 3 half-widths is outside the interval by its own width."""
    (found,) = misses(kind, 100, ["better"], 6_000)
    assert np.nanmax(np.abs([*found, 0])) < 2


@pytest.mark.long
@pytest.mark.parametrize("kind", CURVES)
def test_intervals_cover_if_the_logging_policy_is_not_linear(kind):
    found = np.array([each for seed in range(8) for each in misses(kind, seed, ["uniform", "tilted", "better"])])
    refused = np.isnan(found[:, 0])
    covered, worst = (np.abs(found[~refused]) <= 1).mean(axis=0), np.abs(found[~refused]).max(axis=0)
    report = f"{kind}: refused {refused.sum()} of {len(found)}; dr, ips, snips cover {covered}, worst {worst}"
    print(report)  # noqa: T201
    assert refused.mean() < 0.25, report
    assert covered.min() >= 0.9, report
    assert worst.max() < 3, report


@pytest.mark.parametrize("kind", ["product", "absolute"])
def test_propensities_of_a_linear_model_are_refused_if_the_policy_is_not_linear(kind, monkeypatch):
    monkeypatch.setattr("seachange.propensities.estimation.boostable_rounds", lambda log: 0)
    log, _, policies, _ = curved(kind, 0, 8_000)
    estimated = log.with_propensities(sc.estimate_logging_probs(log), estimated=True)
    for policy in policies.values():
        with pytest.raises(sc.RefusedError, match="estimated propensities are"):
            sc.evaluate(estimated, policy, ("dr",))


def test_a_logging_policy_that_changed_is_refused_although_all_weights_average_1():
    generator, n = np.random.default_rng(0), 6_000
    probs = np.where(np.arange(n)[:, None] < n // 2, [0.7, 0.3], [0.3, 0.7])
    actions = (generator.random(n) > probs[:, 0]).astype(int)
    log = sc.BanditLog.from_arrays(actions, generator.random(n))
    always = np.tile([1.0, 0.0], (n, 1))
    sc.evaluate(log.with_propensities(probs, estimated=True), always)
    overall = log.with_propensities(np.full((n, 2), 0.5), estimated=True)
    with pytest.raises(sc.RefusedError, match="the logging policy changed over time"):
        sc.evaluate(overall, always)
