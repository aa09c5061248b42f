"""How long states last, and how many there are when they do not last long.

Worlds without contexts, with a random matrix of means, in which every two states differ in the rewards of their actions
by a noise standard deviation in root mean square (0.7 for clicks, whose standard deviation counts as 0.5). The full
runs are ``long``; the suite runs small ones.
"""

import numpy as np
import pytest

import seachange as sc
from seachange.analysis.states_summary import summarize_states

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")


def random_means(g, n_states, clicks):
    """(L, K) means of 3 to 6 actions."""
    n_actions, least = int(g.integers(3, 7)), 0.35 if clicks else 1.0
    while True:
        means = g.uniform(0.05, 0.95, (n_states, n_actions)) if clicks else g.normal(size=(n_states, n_actions))
        gaps = np.sqrt(np.square(means[:, None] - means[None]).mean(axis=2)) + 9 * np.eye(n_states)
        if gaps.min() >= least:
            return means


def geometric_states(g, n, n_states, stay):
    """States that last ``stay`` rounds on average and change to any other."""
    leaves = g.random(n) < 1 / stay
    return np.cumsum(leaves * g.integers(1, n_states, size=n)) % n_states


def cycle(n, n_states, stay):
    """States that last ``stay`` rounds each, in turn."""
    return np.arange(n) // stay % n_states


def log_of(g, states, clicks=False):
    means = random_means(g, int(states.max()) + 1, clicks)
    actions = g.integers(means.shape[1], size=len(states))
    expected = means[states, actions]
    rewards = (g.random(len(states)) < expected) * 1.0 if clicks else expected + g.normal(size=len(states))
    return sc.BanditLog.from_arrays(actions, rewards, np.full(len(states), 1 / means.shape[1]), n_actions=len(means.T))


def generator(seed, *key):
    return np.random.default_rng([7700, seed, *key])


def stay_ratios(n, stay, seeds, n_states=None):
    """Mean stays that the fits print over those of the true states; ``n_states`` None: as many as there are."""
    ratios = []
    for seed in seeds:
        g, number = generator(seed, n, stay), 2 + seed % 2
        states = geometric_states(g, n, number, stay)
        oracle = sc.HMMOracle(n_states=n_states or number).fit(log := log_of(g, states, clicks=seed % 4 > 1))
        counts = oracle.predict(log).counts
        printed = n / np.sum(counts / oracle.model_.expected_stays)
        ratios.append(printed * (1 + np.count_nonzero(np.diff(states))) / n)
    return np.array(ratios)


def n_states_of(log):
    return sc.HMMOracle(n_states="auto").fit(log).model_.n_states


@pytest.mark.parametrize("stay", [30, 100, 500])
def test_stays_are_not_overestimated(stay):
    assert np.mean(stay_ratios(6000, stay, range(8))) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(("n_states", "clicks"), [(2, True), (3, False)])
def test_states_that_last_fifteen_rounds_are_found(n_states, clicks):
    g = generator(1, n_states, clicks)
    assert n_states_of(log_of(g, geometric_states(g, 6000, n_states, 15), clicks)) == n_states


@pytest.mark.parametrize(("n_states", "stay"), [(3, 10), (2, 30)])
def test_a_state_does_not_count_twice_because_its_stays_are_regular(n_states, stay):
    g = generator(2, n_states, stay)
    assert n_states_of(log_of(g, cycle(6000, n_states, stay))) == n_states


@pytest.mark.parametrize("clicks", [False, True])
def test_segments_that_are_too_short_to_be_found_are_announced(clicks):
    g = generator(3, clicks)
    states = geometric_states(g, 40_000, 2, 30)
    oracle = sc.HMMOracle(n_states=2).fit(log := log_of(g, states, clicks))
    summary, found = summarize_states(log, oracle), oracle.predict(log).states
    right = found == (states if np.mean(found == states) > 0.5 else 1 - states)
    starts = np.flatnonzero(np.diff(states, prepend=-1))
    lengths = np.diff(starts, append=len(states))
    seen = np.add.reduceat(right, starts) > lengths / 2
    shortest = summary.transitions.shortest_segment
    assert seen[lengths < shortest / 2].mean() < 0.5 < 0.85 < seen[lengths > 1.5 * shortest].mean()
    # The Gaussian states are told apart sooner, and most of their segments are found.
    sentence = f"It takes about {int(np.ceil(shortest))} rounds to tell the states apart."
    assert (sentence in summary.missed_segments) == clicks


def test_segments_are_not_called_too_short_if_states_last():
    g = generator(4)
    log = log_of(g, geometric_states(g, 10_000, 2, 1000))
    right, alike = (sc.HMMOracle(n_states=2, ridge=ridge).fit(log) for ridge in ("auto", 1e9))
    assert summarize_states(log, right).missed_segments == ""
    assert "are hard to distinguish" in summarize_states(log, alike).missed_segments


@pytest.mark.long
@pytest.mark.parametrize("n", [6_000, 24_000, 100_000])
@pytest.mark.parametrize("stay", [30, 100, 500])
@pytest.mark.parametrize("n_states", [None, "auto"])
def test_printed_stays_are_within_ten_percent(n, stay, n_states):
    ratios = stay_ratios(n, stay, range(100, 116 if n < 100_000 else 108), n_states)
    assert np.mean(ratios) == pytest.approx(1, abs=0.1)
    assert np.std(ratios) < 0.2


@pytest.mark.long
@pytest.mark.parametrize(("n", "stay"), [(10_000, 50), (30_000, 100), (30_000, 200)])
def test_of_40_worlds_with_two_short_lived_states_38_have_two(n, stay):
    found = []
    for seed in range(200, 240):
        g = generator(seed, n, stay)
        found.append(n_states_of(log_of(g, geometric_states(g, n, 2, stay), clicks=seed % 4 == 3)))
    assert found.count(2) >= 38, found


@pytest.mark.long
def test_of_100_stationary_worlds_97_have_one_state():
    n, found = 10_000, {}
    noises = (
        lambda g, mean: mean + g.normal(size=n),
        lambda g, mean: (g.random(n) < 0.05 + 0.1 * mean) * 1.0,
        lambda g, mean: mean + g.standard_t(2.5, n),
        lambda g, mean: mean + g.lognormal(0, 1.2, n),
        lambda g, mean: g.exponential(0.5 + mean),
        lambda g, mean: (g.random(n) < 0.05 + 0.02 * mean) * g.lognormal(1, 1, n),
    )
    for seed in range(300, 400):
        g = generator(seed)
        n_actions = int(g.integers(3, 7))
        actions = g.integers(n_actions, size=n)
        rewards = noises[seed % len(noises)](g, 2 * g.random(n_actions)[actions])
        log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / n_actions), n_actions=n_actions)
        found[seed] = n_states_of(log)
    wrong = {seed: number for seed, number in found.items() if number != 1}
    assert len(wrong) <= 3, wrong


@pytest.mark.long
@pytest.mark.parametrize("clicks", [False, True])
@pytest.mark.parametrize("stay", [10, 30])
def test_cycles_of_three_states_have_two_to_four(stay, clicks):
    for seed in range(400, 406):
        assert 2 <= n_states_of(log_of(generator(seed, stay), cycle(12_000, 3, stay), clicks)) <= 4
