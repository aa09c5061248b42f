"""The paper's synthetic problem: its states, table and figure."""

from functools import partial

import numpy as np
import pytest

import seachange as sc
from seachange.engine import map_in_order
from seachange.experiments.paper_synthetic import (
    METHODS,
    run_methods,
    run_states,
    summarize,
    summarize_states,
)
from seachange.simulate import Synthetic
from seachange.states.labels import share_right


def random_times(seed, n=100_000):
    """The paper's order of states, with change times drawn at random."""
    cuts = np.sort(np.random.default_rng([seed, 9]).choice(np.arange(1, n), size=8, replace=False))
    order = np.array([0, 1, 2, 3, 4, 3, 2, 1, 0])
    return np.repeat(order, np.diff(cuts, prepend=0, append=n))


@pytest.mark.parametrize("times", ["the paper's", "random"])
def test_states_are_right_in_999_rounds_of_1000(times):
    shares = []
    for seed in range(4):
        env = Synthetic(seed=seed, states=random_times(seed) if times == "random" else None)
        log = env.log(seed)
        labels = sc.HMMOracle(n_states=5).fit(log).predict(log)
        shares.append(share_right(labels.states, env.state_sequence))
    assert np.mean(shares) >= 0.999
    assert min(shares) >= 0.995


def test_a_run_ranks_every_method_as_expected():
    values = run_methods(seed=3, n_states=5, horizon=50_000)
    assert tuple(values) == METHODS
    ours = {name: value for name, (value, _) in values.items()}
    assert max(ours["IPS"], ours["DR"], ours["POEM"]) < ours["k-CD"] < ours["k-HMM"] < ours["oracle"]
    assert ours["k-CD (as printed)"] < ours["k-CD"]


def in_processes(run, n_runs, workers=2):
    return list(map_in_order(run, range(n_runs), workers=workers, kind="processes"))


def test_workers_change_nothing():
    run = partial(run_methods, n_states=2, horizon=2_000)
    assert in_processes(run, 2, workers=1) == in_processes(run, 2, workers=2)


def test_one_state_gives_one_policy_with_any_oracle():
    values = run_states(seed=0, counts=[1, 2], horizon=5_000)
    assert values["k-CD"][0] == pytest.approx(values["k-HMM"][0], abs=1e-6)
    rows = summarize_states([values], [1, 2])
    assert [(row.method, row.n_states) for row in rows] == [("k-CD", 1), ("k-CD", 2), ("k-HMM", 1), ("k-HMM", 2)]


@pytest.mark.long
def test_the_table_over_100_seeds():
    rows = {row.method: row for row in summarize(in_processes(partial(run_methods, n_states=5), 100))}
    assert rows["k-HMM"].oracle_share >= 0.99
    assert rows["k-CD"].oracle_share >= 0.95
    assert 0.67 <= rows["k-CD (as printed)"].oracle_share <= 0.73
    assert max(rows[name].mean for name in ("IPS", "DR", "POEM")) < rows["k-CD"].mean < rows["k-HMM"].mean


@pytest.mark.long
def test_reward_rises_to_five_states_and_not_after():
    runs = in_processes(partial(run_states, counts=range(1, 11)), 20)
    curve = np.array([run["k-HMM"] for run in runs])
    # Differences within a world: worlds differ far more than numbers of states do.
    for k in range(1, 5):
        gains = curve[:, k] - curve[:, k - 1]
        assert gains.mean() > 2 * gains.std(ddof=1) / np.sqrt(len(gains)), f"no rise from k = {k} to {k + 1}"
    for k in range(5, 10):
        gains = curve[:, k] - curve[:, 4]
        assert gains.mean() <= 2 * gains.std(ddof=1) / np.sqrt(len(gains)), f"a rise from k = 5 to {k + 1}"
