"""The fit statistic: false alarms at most delta, intervals that cover, and the paper's problem."""

import numpy as np
import pytest

import seachange as sc
from seachange.simulate import Synthetic

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
DELTA = 0.05


def stationary(kind, n, seed):
    """A log without change."""
    generator = np.random.default_rng([seed, 77])
    probs = {"unequal": [0.6, 0.25, 0.1, 0.04, 0.01], "rare": [0.5, 0.3, 0.15, 0.04, 0.005, 0.005]}
    chosen = np.array(probs.get(kind, [0.2] * 5))
    n_actions, more = len(chosen), {}
    actions = generator.choice(n_actions, size=n, p=chosen)
    if kind in ("normal", "unequal", "rare"):
        rewards = actions + generator.normal(size=n)
    elif kind == "rare clicks":
        rewards = (generator.random(n) < 0.04).astype(float)
    elif kind == "revenue":
        rewards = (generator.random(n) < 0.04) * np.exp(generator.normal(size=n))
    elif kind == "uneven noise":
        rewards = generator.normal(size=n) * 10.0 ** (actions - 2)
    elif kind == "shared contexts":
        more["contexts"] = generator.normal(size=(n, 4))
        rewards = more["contexts"] @ np.array([1.0, -1.0, 0.5, 0.0]) + generator.normal(size=n)
    elif kind == "clicks with contexts":
        more["contexts"] = generator.normal(size=(n, 3))
        rates = 1 / (1 + np.exp(3 - more["contexts"] @ np.array([1.0, -0.7, 0.3])))
        rewards = (generator.random(n) < rates).astype(float)
    elif kind == "noise by context":
        more["contexts"] = generator.normal(size=(n, 2))
        rewards = more["contexts"].sum(axis=1) + generator.normal(size=n) * np.exp(more["contexts"][:, 0])
    elif kind == "action features":
        more["action_features"] = generator.normal(size=(n, n_actions, 6))
        rewards = more["action_features"][np.arange(n), actions].sum(axis=1) + generator.normal(size=n)
    elif kind == "logging that changes":
        late = np.arange(n) // (n // 4) % 2 == 1
        actions = np.where(late, n_actions - 1 - (actions * generator.random(n)).astype(int), actions)
        rewards = (generator.random(n) < 0.04 * (1 + actions / 3)).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), n_actions=n_actions, **more)


STATIONARY = (
    "normal", "unequal", "rare", "rare clicks", "revenue", "uneven noise", "shared contexts", "clicks with contexts",
    "noise by context", "action features", "logging that changes",
)  # fmt: skip


def false_alarms(kind, n, seeds):
    return sum(len(sc.ChangePointOracle().fit(stationary(kind, n, seed)).segmentation_.p_values) > 0 for seed in seeds)


@pytest.mark.parametrize("kind", STATIONARY)
def test_false_alarms_are_rare(kind):
    # At a rate of 0.05, more than 8 of 50 would be a chance of 1 in 1,000.
    assert false_alarms(kind, 1500, range(50)) <= 8


@pytest.mark.long
@pytest.mark.parametrize("n", [500, 10_000])
@pytest.mark.parametrize("kind", STATIONARY)
def test_false_alarms_are_at_most_delta(kind, n):
    runs = 400
    spread = np.sqrt(DELTA * (1 - DELTA) / runs)
    assert false_alarms(kind, n, range(runs)) / runs <= DELTA + 3 * spread


def one_change(kind, seed):
    """A log with one moderate change, and its place."""
    generator = np.random.default_rng([seed, 78])
    n, middle, means = {
        "normal": (2000, 1000, [[0.0, 0.0, 0.0], [0.5, -0.5, 0.5]]),
        "clicks": (3000, 1500, [[0.2, 0.3, 0.4], [0.4, 0.3, 0.2]]),
        "rare clicks": (20_000, 10_000, [[0.04, 0.03, 0.05], [0.08, 0.03, 0.02]]),
    }[kind]
    place = middle + int(generator.integers(-middle // 4, middle // 4))
    actions = generator.integers(3, size=n)
    chosen = np.array(means)[(np.arange(n) >= place).astype(int), actions]
    rewards = chosen + generator.normal(size=n) if kind == "normal" else (generator.random(n) < chosen).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3), place


def coverage(kind, seeds):
    """Share of logs in which exactly the change was found whose interval holds the place."""
    hits = []
    for seed in seeds:
        log, place = one_change(kind, seed)
        cut = sc.ChangePointOracle().fit(log).segmentation_
        if len(cut.change_points) == 1:
            hits.append(cut.low[0] <= place <= cut.high[0])
    assert len(hits) >= 0.9 * len(seeds)
    return np.mean(hits)


@pytest.mark.parametrize("kind", ["normal", "clicks"])
def test_intervals_cover(kind):
    assert coverage(kind, range(150)) >= 0.89


@pytest.mark.long
@pytest.mark.parametrize("kind", ["normal", "clicks", "rare clicks"])
def test_intervals_cover_as_often_as_they_say(kind):
    assert coverage(kind, range(1000)) >= 0.93


def found_and_false(seeds):
    """True changes, those found within 500 rounds, and changes farther than that from any true one."""
    true = found = false = 0
    for seed in seeds:
        env = Synthetic(seed=seed)
        places = sc.ChangePointOracle().fit(env.log(seed)).segmentation_.change_points
        truth = np.flatnonzero(np.diff(env.state_sequence)) + 1
        gaps = np.abs(places[:, None] - truth)
        true += len(truth)
        found += (gaps.min(axis=0) <= 500).sum()
        false += (gaps.min(axis=1) > 500).sum()
    return true, found, false


def test_the_changes_of_the_papers_problem_are_found():
    true, found, false = found_and_false(range(5))
    assert found >= 0.95 * true
    assert false <= 0.05 * true


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(20), range(2000, 2040)], ids=["seeds 0-19", "seeds 2000-2039"])
def test_the_changes_of_the_papers_problem_are_found_on_many_seeds(seeds):
    true, found, false = found_and_false(seeds)
    assert found >= 0.95 * true
    assert false <= 0.05 * true


def test_many_short_sequences_share_their_states():
    generator = np.random.default_rng(0)
    worlds, n = generator.integers(2, size=2000), 100_000
    actions, sequences = generator.integers(3, size=n), np.repeat(np.arange(2000), 50)
    means = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[worlds[sequences], actions]
    for rewards, n_states in (((generator.random(n) < means), 2), ((generator.random(n) < 0.3), 1)):
        log = sc.BanditLog.from_arrays(actions, rewards.astype(float), np.full(n, 1 / 3), sequences=sequences)
        labels = sc.ChangePointOracle().fit(log).predict(log)
        assert labels.n_states == n_states
        if n_states == 2:
            assert np.mean(labels.states == (worlds ^ worlds[0])[sequences]) > 0.99
