"""Cost is linear in rounds: ten times the rounds take about ten times the processor's seconds, from 10⁴ to 10⁷.

15 times are allowed: caches hold a short log, and other work on the machine slows some runs. A cost of n log n would
pass, one of n² would not by far.
"""

import time
from itertools import pairwise

import numpy as np
import pytest

import seachange as sc

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
AT_MOST = 15
ORACLES = {
    "change-points": sc.ChangePointOracle(),
    "hidden Markov model": sc.HMMOracle(n_states=2, restarts=1, tolerance=0, max_iterations=5),
}


def clicks(n, width=0):
    """Clicks on three actions in a world that changes nine times, however long the log."""
    generator = np.random.default_rng(0)
    states, actions = np.arange(n) // (n // 10) % 2, generator.integers(3, size=n)
    columns = {"contexts": generator.normal(size=(n, width))} if width else {}
    rewards = (generator.random(n) < 0.3 + 0.1 * states).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), **columns)


def seconds(oracle, log, runs):
    """Of the processor in the fastest of some runs; of EM for each iteration, as the number of starts varies."""
    oracle.fit(log[:5000])
    spent = []
    for _ in range(runs):
        start = time.process_time()
        oracle.fit(log)
        spent.append(time.process_time() - start)
    restarts = oracle.report_.restarts if isinstance(oracle, sc.HMMOracle) else ()
    return min(spent) / max(1, sum(restart.iterations for restart in restarts))


@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("kind", ORACLES)
def test_ten_times_the_rounds_take_ten_times_as_long(kind, width):
    few, many = (seconds(ORACLES[kind].clone(), clicks(n, width), 3) for n in (20_000, 200_000))
    assert many < AT_MOST * few


@pytest.mark.long
@pytest.mark.parametrize("kind", ORACLES)
def test_cost_is_linear_up_to_ten_million_rounds(kind):
    spent = [seconds(ORACLES[kind].clone(), clicks(n), 2) for n in (10_000, 100_000, 1_000_000, 10_000_000)]
    assert all(many < AT_MOST * few for few, many in pairwise(spent)), spent
