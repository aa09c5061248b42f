"""Exp4.S: its formulas, its floor, the printed variant."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.errors import ParameterError

pytestmark = pytest.mark.small


class Fixed:
    """The same distribution whatever the context."""

    def __init__(self, probs):
        self.probs = np.asarray(probs, dtype=float)

    def predict_proba(self, contexts, action_mask=None):
        probs = np.tile(self.probs, (len(contexts), 1))
        return probs if action_mask is None else probs * action_mask / (probs * action_mask).sum(axis=1, keepdims=True)


def by_the_text(weights, advice, action, propensity, reward, learning_rate, share_rate):
    """One round of the corrected algorithm, as the notes on the paper write it."""
    cost = (1 - reward) / propensity
    scaled = weights * np.exp(-learning_rate * cost * advice[:, action])
    return (1 - share_rate) * scaled / scaled.sum() + share_rate / len(weights)


distributions = st.integers(2, 4).flatmap(
    lambda k: st.lists(
        st.lists(st.floats(0.01, 1), min_size=k, max_size=k).map(lambda row: np.array(row) / sum(row)),
        min_size=2,
        max_size=5,
    )
)


@settings(max_examples=examples(60), deadline=None)
@given(
    advice=distributions,
    rewards=st.lists(st.floats(-5, 5), min_size=1, max_size=30),
    stay=st.floats(1, 1000),
    exploration=st.floats(0, 1),
    learning_rate=st.floats(0.001, 50),
    seed=st.integers(0, 99),
)
def test_probabilities_sum_to_one_and_keep_their_floor(advice, rewards, stay, exploration, learning_rate, seed):
    deployer = sc.Exp4S(
        [Fixed(row) for row in advice], expected_stay=stay, exploration=exploration, learning_rate=learning_rate
    )
    state, generator = deployer.init(), np.random.default_rng(seed)
    n_actions = len(advice[0])
    for reward in rewards:
        decision = deployer.act(state, None, generator.random())
        assert decision.probs.sum() == pytest.approx(1, abs=1e-12)
        assert decision.probs.min() >= exploration / n_actions - 1e-12
        state = deployer.update(state, decision, reward)
        weights = deployer.state_probs(state)
        assert weights.sum() == pytest.approx(1, abs=1e-9)
        assert weights.min() >= deployer.share_rate / len(advice) - 1e-12


@pytest.mark.parametrize("mixing", ["corrected", "paper"])
def test_weights_follow_the_formula(mixing):
    advice = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    deployer = sc.Exp4S([Fixed(row) for row in advice], expected_stay=50, mixing=mixing)
    share = 1 / 2 if mixing == "paper" else 1 / 50
    rate = np.sqrt(np.log(2) / (50 * 3)) if mixing == "paper" else np.sqrt((np.log(2 * 50) + 2) / (3 * 50))
    state, weights = deployer.init(), np.full(2, 0.5)
    for uniform, reward in zip(np.random.default_rng(0).random(40), np.random.default_rng(1).random(40), strict=True):
        decision = deployer.act(state, None, uniform)
        np.testing.assert_allclose(decision.probs, weights @ advice, rtol=0, atol=1e-12)
        state = deployer.update(state, decision, reward)
        weights = by_the_text(weights, advice, decision.action, decision.propensity, reward, rate, share)
        np.testing.assert_allclose(deployer.state_probs(state), weights, rtol=0, atol=1e-12)


def test_exploration_is_spread_over_actions_not_experts():
    deployer = sc.Exp4S([Fixed([1, 0, 0, 0]), Fixed([1, 0, 0, 0])], expected_stay=10, exploration=0.2)
    probs = deployer.act(deployer.init(), None, 0.5).probs
    np.testing.assert_allclose(probs, [0.85, 0.05, 0.05, 0.05])


def test_rewards_are_brought_to_the_unit_interval():
    advice = [Fixed([0.9, 0.1]), Fixed([0.1, 0.9])]
    unit = sc.Exp4S(advice, expected_stay=10)
    wide = sc.Exp4S(advice, expected_stay=10, reward_range=(-50, 150))
    decision = unit.act(unit.init(), None, 0.3)
    np.testing.assert_allclose(
        unit.update(unit.init(), decision, 0.25).belief,
        wide.update(wide.init(), decision, 0.0).belief,
        rtol=0,
        atol=1e-14,
    )


def test_rewards_of_a_known_mean_are_held_against_what_is_good():
    policies = [Fixed([0.9, 0.1]), Fixed([0.2, 0.8])]
    mean, good = 0.04, 0.04 + np.sqrt(0.04 * 0.96)
    told = sc.Exp4S(policies, expected_stay=100, mean_reward=mean)
    plain = sc.Exp4S(policies, expected_stay=100)
    assert told.rate(2) == pytest.approx(plain.rate(2) / np.sqrt(2 * mean * (1 - mean)))
    for reward in (0.0, 1.0):
        state = told.init()
        decision = told.act(state, None, 0.1)
        cost = (good - reward) / decision.propensity
        scaled = state.belief * np.exp(-told.rate(2) * cost * np.array([0.9, 0.2]))
        expected = 0.99 * scaled / scaled.sum() + 0.01 / 2
        np.testing.assert_allclose(told.update(state, decision, reward).belief, expected)
    # Rewards in other units, and rewards that are good on average anyway.
    scaled_up = sc.Exp4S(policies, expected_stay=100, mean_reward=4.0, reward_range=(0, 100))
    assert scaled_up.rate(2) == pytest.approx(told.rate(2))
    high = sc.Exp4S(policies, expected_stay=100, mean_reward=0.6)
    assert high.rate(2) == pytest.approx(plain.rate(2) / np.sqrt(0.4))  # (1 - m) m + (1 - m)²
    printed = sc.Exp4S(policies, expected_stay=100, mean_reward=mean, mixing="paper")
    assert printed.rate(2) == sc.Exp4S(policies, expected_stay=100, mixing="paper").rate(2)


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_a_mean_at_an_end_says_nothing(mean):
    policies = [Fixed([0.9, 0.1]), Fixed([0.2, 0.8])]
    told, plain = (sc.Exp4S(policies, expected_stay=100, mean_reward=each) for each in (mean, None))
    state = told.init()
    decision = told.act(state, None, 0.1)
    for reward in (0.0, 1.0):
        np.testing.assert_array_equal(
            told.update(state, decision, reward).belief, plain.update(state, decision, reward).belief
        )


@pytest.mark.large
def test_experts_are_distinguished_sooner_if_rewards_are_rare():
    class World:
        horizon, n_actions = 20_000, 2

        def rounds(self, seed, chunk):
            from seachange.simulate import Rounds

            rates = np.tile([0.06, 0.03], (self.horizon, 1))
            clicks = (np.random.default_rng(seed).random(rates.shape) < rates).astype(float)
            yield Rounds(np.empty((self.horizon, 0)), rates, clicks, np.zeros(self.horizon, dtype=np.int64))

    policies = [Fixed([0.99, 0.01]), Fixed([0.01, 0.99])]
    earned = {
        mean: np.mean([
            sc.simulate.rollout(World(), sc.Exp4S(policies, expected_stay=20_000, mean_reward=mean), seed)
            .expected_rewards.mean() for seed in range(10)
        ]) for mean in (None, 0.045)
    }  # fmt: skip
    assert earned[0.045] > earned[None] + 0.002


def test_the_stay_comes_from_the_segments_of_the_log(make_log):
    log = make_log(n=1200)
    labels = sc.KnownStates((6 * np.arange(1200) // 1200) % 2).fit(log).predict(log)
    assert sc.Exp4S(sc.learn_per_state(log, labels, sc.IPSLearner())).stay == 200


def test_the_corrected_mixing_recovers_from_a_change_and_the_printed_one_hardly_learns():
    experts = [Fixed([0.99, 0.01]), Fixed([0.01, 0.99])]
    generator = np.random.default_rng(0)
    shares = {}
    for mixing in ("corrected", "paper"):
        deployer = sc.Exp4S(experts, expected_stay=1000, mixing=mixing)
        state, chosen = deployer.init(), []
        for t in range(2000):
            decision = deployer.act(state, None, generator.random())
            good = decision.action == (0 if t < 1000 else 1)
            chosen.append(good)
            state = deployer.update(state, decision, float(good))
        shares[mixing] = np.mean(chosen[500:1000]), np.mean(chosen[1500:])
    assert min(shares["corrected"]) > 0.9
    assert max(shares["paper"]) < 0.75


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "give a number of rounds"),
        ({"expected_stay": 0.5}, "at least 1 round"),
        ({"expected_stay": 5, "mixing": "none"}, "mixing must be"),
        ({"expected_stay": 5, "exploration": 2.0}, "exploration must be"),
        ({"expected_stay": 5, "reward_range": (1, 1)}, "reward_range must be"),
        ({"expected_stay": 5, "mean_reward": 2.0}, "mean_reward must be within"),
    ],
)
def test_settings_that_cannot_work_are_named(words, message):
    with pytest.raises(ParameterError, match=message):
        sc.Exp4S([Fixed([0.5, 0.5])], **words)
