"""``n_states="auto"``: one state if nothing changes, and the true number if states are well separated.

At least 19 of 20 stationary logs of various kinds must get 1 state, and at least 18 of 20 logs each with 2, 3, 5 and 8
well-separated states the right number: every pair of states differs by at least half a noise standard deviation in some
action, and stays last at least 2,000 rounds. The full runs are ``long``; the suite runs small ones.
"""

from itertools import cycle

import numpy as np
import pytest
from scipy.special import expit

import seachange as sc
from seachange.errors import NoChangeWarning

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")

# ---------------------------------------------------------------------------------------------------------------------
# Worlds that do not change: the reward of an action in a context has one distribution at all times.


def uniform_log(g, n, n_actions, rewards_of, **columns):
    """A log of actions at random; ``rewards_of`` takes the actions."""
    actions = g.integers(n_actions, size=n)
    return sc.BanditLog.from_arrays(
        actions, rewards_of(actions), np.full(n, 1 / n_actions), n_actions=n_actions, **columns
    )


def gaussian(g):
    means = g.random(5)
    return uniform_log(g, 8000, 5, lambda a: means[a] + g.normal(0, 0.7, len(a)))


def tiny(g):
    means, n = g.random(3), int(g.integers(40, 400))
    return uniform_log(g, n, 3, lambda a: means[a] + g.normal(0, 0.7, n))


def many_rounds(g):
    means = g.random(4)
    return uniform_log(g, 60_000, 4, lambda a: means[a] + g.normal(0, 0.5, len(a)))


def clicks(g):
    rates = g.uniform(0.1, 0.6, 6)
    return uniform_log(g, 8000, 6, lambda a: (g.random(len(a)) < rates[a]) * 1.0)


def rare_clicks(g):
    rates = g.uniform(0.005, 0.03, 10)
    return uniform_log(g, 30_000, 10, lambda a: (g.random(len(a)) < rates[a]) * 1.0)


def revenue(g):
    rates = g.uniform(0.05, 0.3, 4)
    return uniform_log(g, 15_000, 4, lambda a: (g.random(len(a)) < rates[a]) * g.lognormal(1, 1, len(a)))


def cents(g):
    means = g.uniform(1e6, 3e6, 4)
    return uniform_log(g, 8000, 4, lambda a: np.round(means[a] + g.normal(0, 1e6, len(a))))


def ratings(g):
    means = g.uniform(2, 4, 5)
    return uniform_log(g, 8000, 5, lambda a: np.clip(np.round(means[a] + g.normal(0, 1, len(a))), 1, 5))


def heavy_tails(g):
    means = g.random(4)
    return uniform_log(g, 8000, 4, lambda a: means[a] + g.standard_t(2.0, len(a)))


def outliers(g):
    means = g.random(4)
    return uniform_log(
        g,
        8000,
        4,
        lambda a: means[a] + g.normal(0, 0.5, len(a)) + 50 * g.normal(size=len(a)) * (g.random(len(a)) < 0.01),
    )


def near_duplicate_actions(g):
    means = np.repeat(g.random(4), 3) + g.normal(0, 1e-3, 12)
    return uniform_log(g, 10_000, 12, lambda a: means[a] + g.normal(0, 0.3, len(a)))


def fifty_actions(g):
    means = g.random(50)
    return uniform_log(g, 20_000, 50, lambda a: means[a] + g.normal(0, 0.7, len(a)))


def noise_by_action(g):
    means, noise = g.random(5), np.geomspace(0.1, 2, 5)
    return uniform_log(g, 8000, 5, lambda a: means[a] + noise[a] * g.normal(size=len(a)))


def noise_by_context(g):
    contexts, means = g.normal(size=(8000, 2)), g.random(4)
    return uniform_log(
        g,
        8000,
        4,
        lambda a: contexts[:, 0] * means[a] + np.exp(contexts[:, 1]) * g.normal(size=8000),
        contexts=contexts,
    )


def linear_contexts(g):
    contexts, coefs = g.normal(size=(8000, 6)), g.normal(size=(4, 6))
    return uniform_log(g, 8000, 4, lambda a: np.sum(contexts * coefs[a], 1) + g.normal(size=8000), contexts=contexts)


def clicks_of_contexts(g):
    contexts, coefs = g.normal(size=(8000, 12)), 0.4 * g.normal(size=(4, 12))
    return uniform_log(
        g, 8000, 4, lambda a: (g.random(8000) < expit(np.sum(contexts * coefs[a], 1) - 1)) * 1.0, contexts=contexts
    )


def features_of_actions(g):
    features, coefs = g.normal(size=(8000, 6, 5)), g.normal(size=5)
    return uniform_log(
        g, 8000, 6, lambda a: features[np.arange(8000), a] @ coefs + g.normal(size=8000), action_features=features
    )


def nonlinear_contexts(g):
    contexts = g.normal(size=(8000, 3))
    wave, bend = np.sin(2 * contexts[:, 0]) * contexts[:, 1], np.abs(contexts[:, 2])
    return uniform_log(g, 8000, 3, lambda a: wave + bend * (a == 0) + g.normal(0, 0.3, 8000), contexts=contexts)


def short_sequences(g):
    means = g.random(4)
    return uniform_log(g, 8000, 4, lambda a: means[a] + g.normal(0, 0.7, len(a)), sequences=np.arange(8000) // 20)


def missing_at_random(g):
    means = g.random(4)
    return uniform_log(
        g,
        8000,
        4,
        lambda a: np.where(g.random(8000) < 0.3, np.nan, means[a] + g.normal(0, 0.7, 8000)),
        missing_rewards=True,
    )


def missing_where_low(g):
    """Low rewards are rarely reported, at a constant rate."""
    means = g.random(4)

    def rewards(actions):
        found = means[actions] + g.normal(0, 0.7, 8000)
        return np.where(g.random(8000) < 0.7 * (found < 0.3), np.nan, found)

    return uniform_log(g, 8000, 4, rewards, missing_rewards=True)


def drifting_logging_policy(g):
    """The logging policy learns: its propensities change all the time, expected rewards do not."""
    n, n_actions = 10_000, 5
    means = g.random(n_actions)
    scores = np.linspace(0, 1, n)[:, None] * 4 * means + 0.5 * np.cumsum(g.normal(size=(n, n_actions)), 0) / np.sqrt(n)
    return drawn_log(g, np.exp(scores), means)


def alternating_action_mix(g):
    """Two logging policies alternate every thousand rounds; expected rewards do not change."""
    n, n_actions = 10_000, 5
    mixes = g.dirichlet(np.ones(n_actions), size=2) + 0.02
    return drawn_log(g, mixes[(np.arange(n) // 1000) % 2], g.random(n_actions))


def action_masks(g):
    """The available actions change with the hour."""
    n, n_actions = 10_000, 6
    mask = (np.arange(n)[:, None] // 700 + np.arange(n_actions)) % 3 > 0
    return drawn_log(g, mask * 1.0, g.random(n_actions), action_mask=mask)


def drawn_log(g, weights, means, **columns):
    probs = weights / weights.sum(1, keepdims=True)
    actions = (probs.cumsum(1) > g.random((len(probs), 1))).argmax(1)
    return sc.BanditLog.from_arrays(
        actions, means[actions] + g.normal(0, 0.7, len(actions)), probs[np.arange(len(probs)), actions],
        logging_probs=probs, n_actions=len(means), **columns,
    )  # fmt: skip


def seasonal_contexts(g):
    """Hour and season are in the contexts, with linear effects."""
    angle, n = np.arange(8000) / 400, 8000
    contexts, coefs = np.stack([np.sin(angle), np.cos(angle)], 1), g.normal(size=(4, 2))
    return uniform_log(g, n, 4, lambda a: np.sum(contexts * coefs[a], 1) + g.normal(size=n), contexts=contexts)


def shifting_contexts(g):
    """The mix of users changes; their click rates, linear in the context, do not."""
    n = 8000
    contexts = g.normal(size=(n, 3)) + 1.5 * ((np.arange(n) // 1000) % 2)[:, None]
    coefs = g.normal(size=(4, 3))
    return uniform_log(g, n, 4, lambda a: np.sum(contexts * coefs[a], 1) + g.normal(size=n), contexts=contexts)


STATIONARY = [
    gaussian, tiny, many_rounds, clicks, rare_clicks, revenue, cents, ratings, heavy_tails, outliers,
    near_duplicate_actions, fifty_actions, noise_by_action, noise_by_context, linear_contexts, clicks_of_contexts,
    features_of_actions, nonlinear_contexts, short_sequences, missing_at_random, missing_where_low,
    drifting_logging_policy, alternating_action_mix, action_masks, seasonal_contexts, shifting_contexts,
]  # fmt: skip

# ---------------------------------------------------------------------------------------------------------------------
# Worlds that change.

CHANGING = ("gaussian", "clicks", "contexts", "gaussian once", "skewed policy", "barely")


def separated_means(g, n_states, n_actions, is_clicks):
    """(L, K) means of which every two differ by half a standard deviation in some action."""
    means = []
    while len(means) < n_states:
        new = g.uniform(0.05, 0.95, n_actions) if is_clicks else 1.2 * g.random(n_actions)
        noise = [np.sqrt(np.maximum(new * (1 - new), old * (1 - old))) if is_clicks else 1.0 for old in means]
        if all((np.abs(new - old) / sd).max() >= 0.5 for old, sd in zip(means, noise, strict=True)):
            means.append(new)
    return np.array(means)


def changing_log(g, n_states, kind, longest=5000):
    """Stays of 2,000 rounds and more, each state visited twice or, for some kinds, once."""
    n_actions = int(g.integers(3, 7))
    means = separated_means(g, n_states, n_actions, kind == "clicks")
    if kind == "barely":
        # Every two states differ by half a standard deviation and no more, some of them in one action alone.
        codes = g.permutation(2**n_actions)[:n_states, None] >> np.arange(n_actions) & 1
        means = g.random(n_actions) + 0.5 * codes
    visits = np.concatenate([g.permutation(n_states) for _ in range(1 if kind == "gaussian once" else 2)])
    states = np.repeat(visits, g.integers(2000, longest, size=len(visits)))
    n, columns = len(states), {}
    mix = (
        g.dirichlet(np.full(n_actions, 3.0)) * 0.8 + 0.2 / n_actions
        if kind == "skewed policy"
        else np.full(n_actions, 1 / n_actions)
    )
    actions = g.choice(n_actions, size=n, p=mix)
    expected = means[states, actions]
    if kind == "contexts":
        columns["contexts"] = g.normal(size=(n, 3))
        expected = expected + np.sum(
            columns["contexts"] * (0.4 * g.normal(size=(n_states, n_actions, 3)))[states, actions], 1
        )
    rewards = (g.random(n) < expected) * 1.0 if kind == "clicks" else expected + g.normal(size=n)
    return sc.BanditLog.from_arrays(actions, rewards, mix[actions], n_actions=n_actions, **columns)


def visitors(g, n_states, n_users=400, length=50):
    """Short sequences: users start in a random state and leave it after 25 rounds on average."""
    n_actions, n = int(g.integers(3, 7)), n_users * length
    means = 2 * separated_means(g, n_states, n_actions, False)
    states = g.integers(n_states, size=(n_users, length))
    for t in range(1, length):
        others = (states[:, t - 1] + g.integers(1, n_states, size=n_users)) % n_states
        states[:, t] = np.where(g.random(n_users) < 1 / 25, others, states[:, t - 1])
    sequences = np.repeat(np.arange(n_users), length)
    return uniform_log(g, n, n_actions, lambda a: means[states.ravel(), a] + g.normal(size=n), sequences=sequences)


def thirty_percent_missing(g, n_states):
    """Of the rewards, at random."""
    log = changing_log(g, n_states, "gaussian")
    return log.with_rewards(np.where(g.random(len(log)) < 0.3, np.nan, log.rewards))


def actions_with_features(g, n_states):
    """The actions share their coefficients, which differ by half a noise standard deviation in some feature."""
    visits = np.concatenate([g.permutation(n_states), g.permutation(n_states)])
    states = np.repeat(visits, g.integers(2000, 5000, size=len(visits)))
    n, n_actions, coefs = len(states), int(g.integers(3, 7)), separated_means(g, n_states, 5, False)
    features = g.normal(size=(n, n_actions, 5))

    def rewards(actions):
        return np.sum(features[np.arange(n), actions] * coefs[states], axis=1) + g.normal(size=n)

    return uniform_log(g, n, n_actions, rewards, action_features=features)


# ---------------------------------------------------------------------------------------------------------------------


def n_states_of(log):
    return sc.HMMOracle(n_states="auto").fit(log).model_.n_states


def stationary_log(kind, seed):
    return kind(np.random.default_rng([seed, len(kind.__name__)]))


@pytest.mark.parametrize(
    "kind", [tiny, clicks, revenue, ratings, alternating_action_mix, shifting_contexts, missing_where_low]
)
def test_a_world_that_does_not_change_has_one_state(kind):
    assert n_states_of(stationary_log(kind, 7001)) == 1


@pytest.mark.parametrize("seed", [7246, 7319])
def test_states_that_are_better_by_a_millionth_are_not_chosen(seed):
    """In these logs a second state, equal up to a millionth, predicts better by a millionth: by more than its error."""
    g = np.random.default_rng(seed)
    n = 600 if seed == 7246 else 1200
    actions = g.integers(3, size=n)
    rewards = np.round(g.normal(3, 1, n)) if seed == 7246 else g.exponential(1, n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3))
    assert sc.HMMOracle(n_states="auto", restarts=2).fit(log).model_.n_states == 1


@pytest.mark.parametrize(("n_states", "kind"), [(2, "clicks"), (2, "contexts"), (3, "gaussian")])
def test_well_separated_states_are_counted(n_states, kind):
    log = changing_log(np.random.default_rng([7001, n_states]), n_states, kind, longest=2500)
    assert n_states_of(log) == n_states


@pytest.mark.parametrize("world", [thirty_percent_missing, actions_with_features])
def test_states_are_counted_with_missing_rewards_and_with_features_of_actions(world):
    assert n_states_of(world(np.random.default_rng(7200), 2)) == 2


def test_states_of_short_sequences_are_counted():
    assert n_states_of(visitors(np.random.default_rng(7200), 2, n_users=100)) == 2


@pytest.mark.long
@pytest.mark.parametrize("seed", [7100, 7101])
def test_of_20_stationary_logs_19_have_one_state(seed):
    found = {kind.__name__: n_states_of(stationary_log(kind, seed)) for kind in STATIONARY}
    wrong = {name: n_states for name, n_states in found.items() if n_states != 1}
    assert len(wrong) <= 0.05 * len(found), wrong


@pytest.mark.long
@pytest.mark.parametrize("n_states", [2, 3, 5, 8])
def test_of_20_changing_logs_18_have_the_right_number_of_states(n_states):
    found = {
        (kind, seed): n_states_of(changing_log(np.random.default_rng([seed, n_states]), n_states, kind))
        for seed, kind in zip(range(7100, 7120), cycle(CHANGING))
    }
    wrong = {case: count for case, count in found.items() if count != n_states}
    assert len(wrong) <= 2, wrong


@pytest.mark.long
@pytest.mark.parametrize(
    ("world", "numbers"), [(visitors, (2, 3)), (thirty_percent_missing, (2, 3, 5)), (actions_with_features, (2, 3, 5))]
)
def test_of_10_changing_logs_of_other_kinds_9_have_the_right_number_of_states(world, numbers):
    found = {
        (n_states, seed): n_states_of(world(np.random.default_rng([seed, n_states]), n_states))
        for seed, n_states in zip(range(7200, 7210), cycle(numbers))
    }
    wrong = {case: count for case, count in found.items() if count != case[0]}
    assert len(wrong) <= 1, wrong


@pytest.mark.parametrize("lingering", [0.5, 0.8])
def test_noise_that_lingers_is_not_a_state(lingering):
    generator = np.random.default_rng(7600)
    actions, noise = generator.integers(4, size=3000), generator.normal(size=3000)
    for t in range(1, 3000):
        noise[t] += lingering * noise[t - 1]
    log = sc.BanditLog.from_arrays(actions, generator.random(4)[actions] + noise, np.full(3000, 0.25))
    with pytest.warns(NoChangeWarning):
        assert sc.HMMOracle().fit(log).model_.n_states == 1
