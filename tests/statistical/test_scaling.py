"""Cost is linear in rounds: ten times the rounds take about ten times the CPU time.

15 times are allowed: caches hold a short log, and other work on the machine slows some runs. A cost of n log n would
pass, one of n² would not by far. (``make bench-scaling`` measures whole fits of EM up to 10⁷ rounds.)
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
    # So few iterations that no run converges before: all make the same number of them.
    "hidden Markov model": sc.HMMOracle(n_states=2, restarts=1, ridge=1.0, tolerance=0, max_iterations=2),
}


def clicks(n, width=0):
    """Clicks on three actions in a world that changes nine times, regardless of length."""
    generator = np.random.default_rng(0)
    states, actions = np.arange(n) // (n // 10) % 2, generator.integers(3, size=n)
    columns = {"contexts": generator.normal(size=(n, width))} if width else {}
    rewards = (generator.random(n) < 0.3 + 0.1 * states).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), **columns)


def seconds(oracle, log, runs):
    """CPU seconds of the fastest of some runs."""
    oracle.fit(log[:5000])
    spent = []
    for _ in range(runs):
        start = time.process_time()
        oracle.fit(log)
        spent.append(time.process_time() - start)
    return min(spent)


@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("kind", ORACLES)
def test_ten_times_the_rounds_take_ten_times_as_long(kind, width):
    few, many = (seconds(ORACLES[kind].clone(), clicks(n, width), 3) for n in (20_000, 200_000))
    assert many < AT_MOST * few


@pytest.mark.long
@pytest.mark.parametrize(("kind", "most"), [("change-points", 10_000_000), ("hidden Markov model", 4_000_000)])
def test_cost_is_linear_up_to_millions_of_rounds(kind, most):
    spent = [seconds(ORACLES[kind].clone(), clicks(n), 2) for n in (most // 1000, most // 100, most // 10, most)]
    assert all(many < AT_MOST * few for few, many in pairwise(spent)), spent
