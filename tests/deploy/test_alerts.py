"""Alerts of adaptive sampling: what they say, how seldom they are wrong, and how soon they come."""

import numpy as np
import pytest

import seachange as sc
from seachange.deploy.alerts import Alert

N_ACTIONS, STAY = 3, 400
MEANS = np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
NEW = np.array([0.0, 1.0, 0.0])


def states_of(generator, n):
    return np.cumsum(generator.random(n) < 1 / STAY) % 2


@pytest.fixture(scope="module")
def deployer():
    generator, n = np.random.default_rng(0), 12_000
    actions = generator.integers(N_ACTIONS, size=n)
    rewards = generator.normal(MEANS[states_of(generator, n), actions], 0.4)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / N_ACTIONS))
    return sc.learn(log, n_states=2, objective="dm").deployer("adaptive")


def run(deployer, means, seed, state=None):
    generator, n = np.random.default_rng(seed), len(means)
    rewards = generator.normal(means, 0.4)
    state = deployer.init() if state is None else state
    return deployer.run(state, np.empty((n, 0)), means, rewards, generator.random(n))[0]


def unchanged(seed, n=20_000):
    return MEANS[states_of(np.random.default_rng([seed, 1]), n)]


def false_alerts(deployer, count):
    return [alert for seed in range(count) for alert in deployer.alerts(run(deployer, unchanged(seed), seed))]


def test_nothing_is_reported_while_nothing_changes(deployer):
    """In 400,000 rounds, at most 0.4 false alerts of each kind are expected; 6 in all have a probability below 1e-3."""
    assert len(false_alerts(deployer, 20)) < 6


@pytest.mark.long
def test_false_alerts_have_the_stated_rate(deployer):
    """200 deployments of 20,000 rounds: 4 of each kind are expected at most. A new regime may be over at the end."""
    found = false_alerts(deployer, 200)
    for kinds in (("new regime", "known again"), ("drift",), ("shortfall",)):
        assert sum(alert.kind in kinds for alert in found) <= 10


def test_a_new_regime_is_reported_once_with_its_start_and_its_end(deployer):
    state = run(deployer, unchanged(1, 3000), 1)
    assert deployer.alerts(state) == []
    state = run(deployer, np.tile(NEW, (500, 1)), 2, state)
    (alert,) = (each for each in deployer.alerts(state) if each.kind == "new regime")
    assert 2990 < alert.since < 3100
    assert str(alert) == f"New regime since round {alert.since:,}: no state of the log explains these rewards."
    later = run(deployer, np.tile(NEW, (500, 1)), 3, state)
    assert alert in deployer.alerts(later)
    back = deployer.alerts(run(deployer, unchanged(2, 500), 4, later))
    assert "new regime" not in [each.kind for each in back]
    (known,) = (each for each in back if each.kind == "known again")
    assert 4000 <= known.since < 4200


def test_a_state_that_drifts_is_named(deployer):
    """State 0 keeps its best action, whose reward falls slowly; state 1 stays as it is."""
    means = unchanged(3, 8000)
    means[:, 0] -= np.where(means[:, 0] > 0.5, np.linspace(0, 0.35, 8000), 0)
    found = deployer.alerts(run(deployer, means, 5))
    assert [each.state for each in found if each.kind == "drift"] == [0]


def test_lower_rewards_of_all_actions_are_a_shortfall(deployer):
    found = deployer.alerts(run(deployer, 0.6 * unchanged(4, 1500), 6))
    assert "shortfall" in [each.kind for each in found]


def test_a_change_of_state_is_no_shortfall():
    """Far levels: just after a change, the reward of the new state is far from what the belief expects."""
    generator, n, levels = np.random.default_rng(2), 20_000, np.array([[40.0, 36.0], [9.0, 10.0]])
    states, actions = np.arange(n) // 1000 % 2, generator.integers(2, size=n)
    rewards = generator.normal(levels[states, actions], 1.0)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5))
    deployer = sc.learn(log, n_states=2, objective="dm").deployer("adaptive")
    means = levels[np.arange(10_000) // 1000 % 2]
    drawn, none = generator.normal(means, 1.0), np.empty((10_000, 0))
    state, _ = deployer.run(deployer.init(), none, means, drawn, generator.random(10_000))
    assert deployer.alerts(state) == []


def test_alerts_survive_a_restart_and_late_rewards(deployer):
    """Round by round, with rewards that come 5 rounds late and a snapshot in the middle."""
    generator, state, waiting = np.random.default_rng(7), deployer.init(), []
    for t, means in enumerate(np.concatenate([unchanged(5, 100), np.tile(NEW, (400, 1))])):
        decision = deployer.act(state, None, generator.random())
        state = deployer.update(state, decision, None)
        waiting.append((decision, generator.normal(means[decision.action], 0.4)))
        if t >= 5:
            state = deployer.amend(state, *waiting[t - 5])
        if t == 250:
            state = sc.DeploymentState.from_bytes(state.to_bytes())
    assert "new regime" in [alert.kind for alert in deployer.alerts(state)]


@pytest.mark.long
def test_new_regimes_are_reported_within_500_rounds(deployer):
    """By any alert, in regimes that cost the frozen deployment at least 20% of what it earned before, 0.9."""
    frozen, reported = sc.PosteriorSampling(deployer.policies, hmm=deployer.hmm), []
    for seed in range(1000, 1600):
        means = np.tile(np.random.default_rng(seed).uniform(0, 1, N_ACTIONS), (500, 1))
        trace = frozen.run(frozen.init(), np.empty((500, 0)), means, means, np.random.default_rng(seed).random(500))[1]
        if trace.expected_rewards.mean() < 0.8 * 0.9:
            before = run(deployer, unchanged(seed, 2000), seed)
            found = deployer.alerts(run(deployer, means, seed + 1, before))
            reported.append(any(alert.since > 1900 for alert in found))
    assert len(reported) > 100
    assert np.mean(reported) >= 0.95


def test_deployers_that_watch_for_nothing_have_no_alerts(deployer):
    frozen = sc.PosteriorSampling(deployer.policies, hmm=deployer.hmm)
    assert frozen.alerts(frozen.init()) == []
    with pytest.raises(sc.SeachangeError):
        frozen.alerts(deployer.init())


def test_alerts_are_plain_records():
    assert Alert("drift", 3, 1) == Alert("drift", 3, 1)
    assert str(Alert("drift", 1200, 1)) == "State 1 has changed since round 1,200: rewards differ from the log."
