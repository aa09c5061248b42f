"""Real streams with regime changes: regimes found from the log alone, and the reward for knowing them.

``insects_recur`` and ``usenet1`` (see the README beside the data) are logged bandits made from labelled streams, so a
policy can be run on them as if it had been there. Reference: the reward of a policy that knows the regime on the second
half, with per-regime ridge reward models (penalty 10) of the first half. Nothing is tuned to these two.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

import seachange as sc
from seachange.deploy.single import SinglePolicy
from seachange.states.labels import share_right


class Expected(NamedTuple):
    informed: float  # reward per round of the policy that knows the regime
    share: float  # of that, to be earned at least
    pooled: float  # of that, earned at most by one policy for all


STREAMS = {"insects_recur": Expected(0.699, 0.98, 0.85), "usenet1": Expected(0.811, 0.97, 0.80)}
SEEDS = range(10)


class Stream(NamedTuple):
    log: sc.BanditLog
    regimes: np.ndarray  # (n,)
    rewards: np.ndarray  # (n, K) of every action


@pytest.fixture(params=STREAMS)
def name(request):
    return request.param


@pytest.fixture
def stream(name, data_file):
    frame, truth = pl.read_parquet(data_file(f"{name}.parquet")), pl.read_parquet(data_file(f"{name}_truth.parquet"))
    columns = frame.select("action", "reward", "propensity").to_numpy().T
    contexts = frame.select(pl.col("^f[0-9]+$")).to_numpy()
    log = sc.BanditLog.from_arrays(*columns, contexts=contexts, times=frame["timestamp"].to_numpy())
    return Stream(log, truth["regime"].to_numpy(), np.eye(log.n_actions)[truth["label"].to_numpy()])


# Rewards per round of adaptive sampling at its defaults, to be earned at least.
ADAPTIVE = {"insects_recur": 0.695, "usenet1": 0.815, "elec2": 0.880, "weather": 0.790, "insects": 0.690}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::seachange.SeachangeWarning")
@pytest.mark.parametrize("name", ADAPTIVE, indirect=True)
def test_states_that_go_on_learning_earn_more(name, stream):
    """States recur in the first two streams, the third and fourth drift, and the last has a regime never logged."""
    deployer = sc.learn(stream.log[: len(stream.log) // 2]).deployer("adaptive")
    rewards = earned(stream, deployer)
    assert np.mean(rewards) >= ADAPTIVE[name]


def earned(stream, deployer):
    """Reward per round on the second half, by deployment seed."""
    half = len(stream.log) // 2
    contexts, rewards = stream.log[half:].contexts, stream.rewards[half:]
    uniforms = (np.random.default_rng(seed).random(len(rewards)) for seed in SEEDS)
    traces = (deployer.run(deployer.init(), contexts, rewards, rewards, each)[1] for each in uniforms)
    return [float(trace.rewards.mean()) for trace in traces]


@pytest.mark.parametrize("name", [pytest.param("insects_recur", marks=pytest.mark.long), "usenet1"], indirect=True)
def test_both_regimes_are_found_from_the_log_alone(stream):
    oracle = sc.HMMOracle(n_states="auto").fit(stream.log)
    assert oracle.model_.n_states == 2
    assert share_right(oracle.predict(stream.log).states, stream.regimes) >= 0.985


# BIC charges for every coefficient and calls two regimes of 99 words no better than one; they are right all the same.
@pytest.mark.filterwarnings("ignore::seachange.errors.NoChangeWarning")
@pytest.mark.parametrize("n_states", [2, pytest.param("auto", marks=pytest.mark.long)])
def test_the_second_half_earns_almost_as_much_as_with_known_regimes(name, stream, n_states):
    first, expected = stream.log[: len(stream.log) // 2], STREAMS[name]
    oracle = sc.HMMOracle(n_states=n_states).fit(first)
    policies = sc.learn_per_state(first, oracle.predict(first), sc.DMLearner())
    switching = np.mean(earned(stream, sc.PosteriorSampling(policies, hmm=oracle.model_)))
    assert switching >= expected.share * expected.informed
    pooled = np.mean(earned(stream, SinglePolicy(sc.DMLearner().fit(first).policy_)))
    assert pooled <= expected.pooled * expected.informed
