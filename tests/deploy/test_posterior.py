"""HMM posterior sampling: its formula, and the filter of the log it is the live form of."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import seachange as sc
from seachange.deploy import Decision
from seachange.errors import ParameterError

pytestmark = pytest.mark.small


@pytest.fixture(scope="module")
def fitted():
    """A log without contexts, the model of its two states and a policy for each."""
    generator = np.random.default_rng(0)
    states = np.repeat([0, 1, 0, 1], 150)
    actions = generator.integers(2, size=600)
    rewards = np.where(states == actions, 1.0, 0.0) + generator.normal(0, 0.4, 600)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(600, 0.5))
    oracle = sc.HMMOracle(n_states=2).fit(log)
    return log, oracle.model_, sc.learn_per_state(log, oracle.predict(log), sc.IPSLearner())


def test_actions_and_beliefs_follow_the_formula(fitted):
    _, hmm, policies = fitted
    deployer, advice = sc.PosteriorSampling(policies, hmm=hmm), policies.advice(np.zeros((1, 0)))[0]
    state, belief = deployer.init(), hmm.initial_probs
    for uniform, reward in np.random.default_rng(1).random((50, 2)):
        decision = deployer.act(state, None, uniform)
        np.testing.assert_allclose(decision.probs, belief @ advice, rtol=0, atol=1e-12)
        state = deployer.update(state, decision, reward)
        likelihood = norm.pdf(reward, hmm.reward_coefs[:, decision.action, 0], np.sqrt(hmm.noise_variances))
        belief = (belief * likelihood) @ hmm.transition_matrix
        belief = belief / belief.sum()
        np.testing.assert_allclose(deployer.state_probs(state), belief, rtol=0, atol=1e-12)


def test_fed_with_a_log_it_is_the_filter_of_that_log(fitted):
    """Its belief before round t + 1, moved on from p(z_t | r_1:t), is that of the offline filter to the bit."""
    log, hmm, policies = fitted
    deployer, filtered = sc.PosteriorSampling(policies, hmm=hmm), hmm.filter(log)
    state = deployer.init()
    for t in range(len(log)):
        means = np.ascontiguousarray(hmm.reward_coefs[:, log.actions[t], 0])
        decision = Decision(int(log.actions[t]), 0.5, np.full(2, 0.5), t, means, deployer.fingerprint)
        state = deployer.update(state, decision, log.rewards[t])
        moved = np.array([sum(filtered[t, i] * hmm.transition_matrix[i, j] for i in range(2)) for j in range(2)])
        assert deployer.state_probs(state).tobytes() == moved.tobytes()


@pytest.mark.parametrize(("rewards", "variances"), [("gaussian", [0.5, 1.5]), ("bernoulli", []), ("hurdle", [1, 1])])
def test_a_run_without_rewards_moves_the_belief_as_states_do(fitted, rewards, variances):
    _, hmm, policies = fitted
    deployer = sc.PosteriorSampling(policies, replace(hmm, rewards=rewards, noise_variances=np.array(variances, float)))
    end, _ = deployer.run(deployer.init(), np.empty((9, 0)), np.ones((9, 2)), np.full((9, 2), np.nan), np.zeros(9))
    forgetful, state = replace(deployer, memory=0), deployer.init()
    for _ in range(9):
        state = forgetful.update(state, forgetful.act(state, None, 0.0), None)
    moved = hmm.initial_probs @ np.linalg.matrix_power(hmm.transition_matrix, 9)
    np.testing.assert_allclose(end.belief, moved, rtol=1e-12)
    assert end.to_bytes() == state.to_bytes()


def test_policies_and_states_must_match(fitted):
    _, hmm, policies = fitted
    with pytest.raises(ParameterError, match="the HMM has 2 states, but there are 1 policies"):
        sc.PosteriorSampling([policies[0]], hmm=hmm)


def test_an_hmm_of_clicks_takes_parts_of_a_click_and_no_more(make_log):
    log = make_log("none", n=1200)
    model = sc.learn(log, oracle=sc.HMMOracle(n_states=2, rewards="bernoulli"), objective="ips")
    deployer = model.deployer()
    decision = deployer.act(deployer.init(), None, 0.3)
    click, none, part = (
        deployer._evidence(decision, reward) / deployer._evidence(decision, reward)[0] for reward in (1.0, 0.0, 0.3)
    )
    np.testing.assert_allclose(part, click**0.3 * none**0.7, rtol=1e-12)
    with pytest.raises(sc.SeachangeError, match=r"rewards must be in \[0, 1\]; got \[3\.\]"):
        deployer.update(deployer.init(), decision, 3.0)
