"""Worlds that drift, streams of labels, and rewards that come late."""

import numpy as np
import pytest

import seachange as sc
from seachange.deploy.rivals import KLUCB, LinearThompson
from seachange.simulate import MovingLinear, PiecewiseBernoulli, RandomWalk, Stream, rollout


def small_stream(n=1200, split=0.5):
    generator = np.random.default_rng(0)
    features, regimes = generator.normal(size=(n, 3)), np.arange(n) // 100 % 2
    labels = np.where(regimes == 0, features[:, 0] > 0, features[:, 0] < 0).astype(int)
    return Stream(features=features, labels=labels, regimes=regimes, split=split)


WORLDS = {
    "walk": RandomWalk(horizon=500, n_actions=4),
    "gaussian walk": RandomWalk(horizon=500, n_actions=4, noise=0.5),
    "jumps": MovingLinear(horizon=600),
    "turn": MovingLinear(path="turn", horizon=600),
    "stream": small_stream(),
    "piecewise": PiecewiseBernoulli(segment_means=[[0.1, 0.9], [0.9, 0.1]], horizon=501),
}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


@every_world
def test_rounds_are_the_same_for_a_seed_whatever_the_chunks(world):
    whole, parts = [list(world.rounds(3, chunk)) for chunk in (10_000, 1000)]
    for name in ("contexts", "mean_rewards", "rewards", "states"):
        np.testing.assert_array_equal(*(np.concatenate([getattr(r, name) for r in made]) for made in (whole, parts)))
    assert sum(map(len, whole)) == world.horizon
    log = world.log(0)
    assert log.n_actions == world.n_actions
    assert log.fingerprint() == world.log(0).fingerprint() != world.log(1).fingerprint()


@pytest.mark.parametrize("noise", [None, 0.5])
def test_a_walk_stays_in_the_unit_interval_and_moves_by_its_step(noise):
    world = RandomWalk(horizon=20_000, noise=noise)
    (rounds,) = world.rounds(0, 20_000)
    assert rounds.mean_rewards.min() >= 0
    assert rounds.mean_rewards.max() <= 1
    steps = np.diff(rounds.mean_rewards, axis=0)
    inside = ((rounds.mean_rewards > 0.3) & (rounds.mean_rewards < 0.7))[:-1]
    assert steps[inside].var() == pytest.approx(0.003, rel=0.03)
    errors = (rounds.rewards - rounds.mean_rewards).mean()
    assert abs(errors) < 4.5 * 0.5 / np.sqrt(rounds.rewards.size)


def test_the_linear_world_has_the_published_path():
    jumps, turn = MovingLinear().parameters, MovingLinear(path="turn").parameters
    assert jumps[[0, 999, 1000, 2000, 3000, 5999]].tolist() == [[1, 0], [1, 0], [-1, 0], [0, 1], [0, -1], [0, -1]]
    np.testing.assert_allclose(turn[[0, 1500, 3000, 5999]], [[1, 0], [0.5**0.5, 0.5**0.5], [0, 1], [0, 1]], atol=1e-12)
    (rounds,) = MovingLinear().rounds(0, 6000)
    assert np.linalg.norm(rounds.contexts, axis=2).max() <= 1 + 1e-12


def test_a_stream_pays_for_the_label_and_logs_its_first_part():
    world = small_stream(split=0.25)
    assert (world.first, world.horizon) == (300, 900)
    (rounds,) = world.rounds(0, 10_000)
    np.testing.assert_array_equal(rounds.rewards.argmax(axis=1), world.labels[300:])
    log = world.log(0)
    np.testing.assert_array_equal(log.rewards, log.actions == world.labels[:300])
    assert log.propensities.min() >= 0.125
    np.testing.assert_allclose(log.logging_probs.sum(axis=1), 1)
    assert world.log_states(0).tolist() == world.regimes[:300].tolist()


def test_a_stream_is_read_from_its_two_files(data_file):
    world = Stream.read(data_file("usenet1.parquet"))
    assert (world.n_actions, world.first, world.horizon) == (2, 700, 700)
    with pytest.raises(sc.SeachangeError, match="a stream needs the files"):
        Stream.read("nothing.parquet")


def test_late_rewards_come_late_and_not_at_all_at_the_end():
    world = PiecewiseBernoulli(segment_means=[[0.2, 0.8]], horizon=300)
    for deployer in (KLUCB(n_actions=2), LinearThompson(joint=world.log(0).joint)):
        on_time, never = rollout(world, deployer, 0), rollout(world, deployer, 0, delay=1000)
        late = rollout(world, deployer, 0, delay=20)
        # Without rewards, nothing is learned.
        assert never.expected_rewards.mean() == pytest.approx(0.5, abs=0.05)
        np.testing.assert_array_equal(late.propensities[:21], never.propensities[:21])
        assert on_time.expected_rewards.mean() > late.expected_rewards.mean() - 0.05 > 0.55


def test_a_belief_deployer_amends_rewards_of_their_own_rounds(make_log):
    model = sc.learn(make_log("none", n=400), n_states=2, objective="ips")
    world = PiecewiseBernoulli(segment_means=[[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]], horizon=100)
    deployer = model.deployer("posterior", exploration=0.5)
    trace = rollout(world, deployer, 0, delay=7)
    state, decisions = deployer.init(), []
    (rounds,), uniforms = world.rounds(0, 100), np.random.default_rng([0, 4]).random(100)
    for t in range(50):
        decisions.append(deployer.act(state, None, uniforms[t]))
        assert (decisions[t].action, decisions[t].propensity) == (trace.actions[t], trace.propensities[t])
        state = deployer.update(state, decisions[t], None)
        if t >= 7:
            state = deployer.amend(state, decisions[t - 7], rounds.rewards[t - 7, decisions[t - 7].action])
