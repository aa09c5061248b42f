"""The probability of the action taken is told from other numbers in (0, 1], whatever the column is called."""

import warnings

import numpy as np
import polars as pl
import pytest

import seachange as sc
from seachange.errors import SeachangeWarning
from seachange.propensities.signature import InverseSums, behaves_like_propensities, unnamed_propensities


def softmax(rng, n, n_actions):
    scores = rng.normal(size=(n, 3)) @ rng.normal(size=(3, n_actions)) * 0.5 + rng.normal(size=n_actions) * 0.5
    probs = np.exp(scores)
    return 0.9 * probs / probs.sum(axis=1, keepdims=True) + 0.1 / n_actions


def greedy(rng, n, n_actions):
    probs = np.full((n, n_actions), 0.2 / n_actions)
    probs[np.arange(n), rng.integers(0, n_actions, n)] += 0.8
    return probs


def fixed(rng, n, n_actions):
    return np.tile(0.8 * rng.dirichlet(np.full(n_actions, 2.0)) + 0.2 / n_actions, (n, 1))


def alike(rng, n, n_actions):
    return np.full((n, n_actions), 1 / n_actions)


def taken(rng, probs):
    """(n,) actions, and their propensities."""
    actions = (probs.cumsum(axis=1) > rng.random((len(probs), 1))).argmax(axis=1)
    return actions, probs[np.arange(len(probs)), actions]


def told(values, actions, name="column", parts=3):
    sums = InverseSums()
    for rows in np.array_split(np.arange(len(values)), parts):
        sums.add(values[rows], actions[rows])
    return behaves_like_propensities(sums, name)


def other_numbers(rng, probs, actions):
    """Numbers in (0, 1] that are not the propensities, some of them near."""
    n, n_actions = probs.shape
    rows, rates = np.arange(n), np.clip(rng.beta(2, 5, n_actions), 0.01, 1)
    yield "uniform", 1 - rng.random(n)
    yield "beta", np.clip(rng.beta(*rng.uniform(0.5, 8, 2), n), 1e-6, 1)
    yield "rates", rng.choice(rng.uniform(0.01, 1, rng.integers(2, 30)), n)
    yield "constant", np.full(n, rng.choice([0.5, 1 / n_actions, 0.1, 1.0]))
    yield "mean of 1/x near the number of actions", rng.uniform(0.2032, 1, n) * min(1, 2 / n_actions)
    yield "rate of the action", rates[actions]
    yield "score of the action", np.clip(rates[actions] * rng.uniform(0.5, 1.5, n), 1e-3, 1)
    if np.ptp(probs, axis=1).max() > 0.05:
        yield "greatest probability", probs.max(axis=1)
        yield "probability of the next action", probs[rows, (actions + 1) % n_actions]


@pytest.mark.parametrize("n_actions", [2, 3, 5, 10, 50])
@pytest.mark.parametrize("policy", [softmax, greedy, fixed, alike])
def test_nothing_is_invented(policy, n_actions):
    claimed = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        actions, _ = taken(rng, probs := policy(rng, int(rng.choice([600, 2_000, 5_000])), n_actions))
        claimed += [(seed, name) for name, values in other_numbers(rng, probs, actions) if told(values, actions)]
    assert claimed == []


@pytest.mark.parametrize("n_actions", [2, 3, 5, 10, 50])
@pytest.mark.parametrize("policy", [softmax, greedy, fixed])
def test_propensities_are_recognized_by_what_they_are_and_not_by_their_name(policy, n_actions):
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        actions, propensities = taken(rng, policy(rng, 20_000, n_actions))
        found.append(told(propensities, actions))
    assert np.mean(found) >= 0.9


def test_the_same_chance_throughout_is_reported_only_by_its_name_and_as_one_by_the_number_of_actions():
    rng = np.random.default_rng(0)
    actions, propensities = taken(rng, alike(rng, 5_000, 4))
    assert told(propensities, actions, "pi_b")
    assert not told(propensities, actions, "discount")
    assert not told(np.full(5_000, 0.3), actions, "pi_b")


def test_numbers_that_do_not_depend_on_the_action_need_a_name_that_says_so():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 5_000)
    values = rng.uniform(0.2032, 1, 5_000)  # the mean of 1/x is 2
    assert not told(values, actions, "discount")
    assert told(values, actions, "showProb")


@pytest.mark.parametrize("odd", [0.0, np.nan, 1.5, -0.1])
def test_one_impossible_value_rules_a_column_out(odd):
    rng = np.random.default_rng(0)
    actions, propensities = taken(rng, softmax(rng, 5_000, 4))
    assert told(propensities, actions)
    propensities[4_000] = odd
    assert not told(propensities, actions)
    sums = InverseSums()
    sums.add(propensities, actions)
    assert not sums.possible


def test_actions_that_were_not_there_throughout_do_not_hide_it():
    rng = np.random.default_rng(0)
    probs = softmax(rng, 20_000, 4)
    probs[:10_000, 3] = 0
    actions, propensities = taken(rng, probs / probs.sum(axis=1, keepdims=True))
    sums = InverseSums()
    sums.add(propensities, actions)
    assert not behaves_like_propensities(sums, "column")
    assert behaves_like_propensities(sums, "column", np.array([True, True, True, False]))


def table(seed=0, n=5_000):
    rng = np.random.default_rng(seed)
    actions, propensities = taken(rng, softmax(rng, n, 4))
    return pl.DataFrame(
        {
            "action": actions, "reward": rng.integers(0, 2, n), "odd name": propensities, "age": rng.normal(size=n),
            "share": 1 - rng.random(n), "city": rng.choice(["Rome", "Oslo"], n),
        }
    )  # fmt: skip


def test_estimating_from_the_propensities_themselves_is_warned_of():
    log = sc.BanditLog.from_frame(table())
    with pytest.warns(
        SeachangeWarning, match=r"'odd name' behaves like .* columns=\{\"propensity\": 'odd name'\}"
    ) as said:
        sc.estimate_propensities(log)
    assert said[0].filename == __file__
    assert "--columns 'propensity=odd name'" in said[0].message.fix.shell
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sc.estimate_propensities(sc.BanditLog.from_frame(table().drop("odd name")))


def test_contexts_given_as_arrays_are_looked_at_too():
    frame = table()
    contexts = frame.select("age", "odd name").to_numpy()
    for precision in (np.float64, np.float32):
        log = sc.BanditLog.from_arrays(frame["action"], frame["reward"], None, contexts=contexts.astype(precision))
        assert unnamed_propensities(log) == [log.context_names[1]]
