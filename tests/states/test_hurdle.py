"""Revenue that is mostly zero: whether there is a purchase depends on the state, and how much it is on the action."""

import numpy as np
import pytest

import seachange as sc
from seachange.states.switching_regression import LiveFilter, SwitchingRegression, bought, state_rewards

RATES = np.array([[0.30, 0.05, 0.10], [0.05, 0.30, 0.10]])
AMOUNTS = np.array([0.4, 0.5, 2.0])  # the third action sells least often but earns most


def revenue(n=3000, seed=0, scale=1.0, stay=250):
    rng = np.random.default_rng(seed)
    states, actions = np.arange(n) // stay % 2, rng.integers(3, size=n)
    sold = rng.random(n) < RATES[states, actions]
    rewards = scale * sold * AMOUNTS[actions] * np.exp(rng.normal(0, 0.7, n) - 0.245)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3), states


@pytest.fixture(scope="module")
def log():
    return revenue()[0]


@pytest.fixture(scope="module")
def oracle(log):
    return sc.HMMOracle(n_states=2).fit(log)


def test_states_are_those_of_purchases(log, oracle):
    clicks = sc.HMMOracle(n_states=2).fit(bought(log))
    assert (oracle.model_.rewards, clicks.model_.rewards) == ("hurdle", "bernoulli")
    np.testing.assert_array_equal(oracle.model_.smooth(log), clicks.model_.smooth(bought(log)))
    assert oracle.model_.log_likelihood(log) == clicks.model_.log_likelihood(bought(log))
    truth = revenue()[1]
    assert max(np.mean(oracle.predict(log).states == truth), np.mean(oracle.predict(log).states != truth)) > 0.9


def test_a_mean_reward_is_the_chance_of_a_purchase_times_its_mean_amount(log, oracle):
    model, means = oracle.model_, oracle.model_.mean_rewards(log)
    for action in range(3):
        rounds = np.flatnonzero(log.actions == action)
        chances = 1 / (1 + np.exp(-model.reward_coefs[:, action, 0]))
        paid = log.rewards[rounds][log.rewards[rounds] > 0]
        np.testing.assert_allclose(means[rounds], np.tile(means[rounds[0]], (len(rounds), 1)))
        np.testing.assert_allclose(means[rounds[0]] / chances, np.full(2, paid.mean()), rtol=0.05)
        np.testing.assert_allclose(means[rounds[0], 0] / chances[0], means[rounds[0], 1] / chances[1])


def test_deployments_and_live_filters_follow_the_filter(log, oracle):
    model = sc.learn(log, oracle=oracle, objective="dm")
    deployer, live = model.deployer(), LiveFilter(oracle)
    state, watched, expected = deployer.init(), live.init(), oracle.model_.forecast(log[:200])
    for t in range(200):
        np.testing.assert_allclose(state.belief, expected[t], atol=1e-12)
        decision = deployer.act(state, np.empty(0), 0.5)
        scores = oracle.model_.reward_coefs[:, log.actions[t], 0]
        object.__setattr__(decision, "by_state", scores)
        state = deployer.update(state, decision, float(log.rewards[t]))
        watched = live.update(watched, None, int(log.actions[t]), float(log.rewards[t]))
    np.testing.assert_allclose(watched.state_probs, oracle.model_.filter(log[:200])[-1], atol=1e-12)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0, 0, 0, 2.5], "hurdle"),
        ([0, 0, 0, 5], "hurdle"),
        ([0, np.nan, 0, 0.2], "hurdle"),
        ([0, 0, 0, 1], "bernoulli"),
        ([0, 0, -1, 2.5], "gaussian"),
        ([0] * 150 + [-3.0] + [2.5] * 49, "hurdle"),
        ([0] * 150 + [-3.0] * 3 + [2.5] * 47, "gaussian"),
        ([0, 3, 1, 2.5], "gaussian"),
    ],
)
def test_auto_chooses_a_hurdle_if_most_rewards_are_zero_and_hardly_any_negative(rewards, expected):
    n = len(rewards)
    log = sc.BanditLog.from_arrays(np.arange(n) % 2, rewards, np.full(n, 0.5), missing_rewards=True)
    assert state_rewards(log, "auto") == expected


def test_negative_rewards_are_no_hurdle():
    log = sc.BanditLog.from_arrays([0, 1, 0], [0.0, -1.0, 2.0], np.full(3, 0.5))
    with pytest.raises(sc.errors.ParameterError, match="at least 0"):
        sc.HMMOracle(n_states=2, rewards="hurdle").fit(log)


def test_the_currency_does_not_matter():
    cents, euros = (sc.HMMOracle(n_states=2).fit(revenue(scale=scale)[0]) for scale in (100.0, 1.0))
    assert isinstance(cents.model_, SwitchingRegression)
    np.testing.assert_allclose(cents.model_.reward_coefs, euros.model_.reward_coefs, rtol=1e-9)
    np.testing.assert_allclose(cents.model_.amounts, 100 * euros.model_.amounts, rtol=1e-6)


@pytest.mark.parametrize("kind", ["hmm", "known"])
@pytest.mark.filterwarnings("ignore::seachange.SeachangeWarning")
def test_models_of_purchases_are_saved_and_evaluated(kind, tmp_path):
    (first, states), later = revenue(4000, seed=1), revenue(3000, seed=2)[0]
    oracle = sc.HMMOracle(n_states=2) if kind == "hmm" else sc.KnownStates(states)
    model = sc.learn(first, oracle=oracle)
    assert model.world.rewards == "hurdle"
    model.save(tmp_path / "model.sc")
    loaded = sc.load(tmp_path / "model.sc")
    np.testing.assert_array_equal(loaded.world.amounts, model.world.amounts)
    found, again = sc.evaluate_deployment(later, model), sc.evaluate_deployment(later, loaded)
    assert (found.value, found.low, found.high) == (again.value, again.low, again.high)
    # The third action earns 0.2 in both states; following the states by purchases earns less than that.
    assert found.low < 0.2 < found.high


def test_policies_maximize_revenue_not_purchases(log, oracle):
    policies = sc.learn(log, oracle=oracle, objective="dm").policies
    probs = [policy.predict_proba(np.empty((1, 0)))[0] for policy in policies]
    assert [int(np.argmax(each)) for each in probs] == [2, 2]


def test_adaptive_sampling_does_not_learn_amounts(log, oracle):
    model = sc.learn(log, oracle=oracle, objective="dm")
    with pytest.raises(sc.errors.ParameterError, match="amounts of purchases are not learned"):
        model.deployer("adaptive")
