"""The two worlds of D-LinUCB (Russac, Vernade and Cappé 2019), with the settings of the published experiments.

Source: the repository YRussac/WeightedLinearBandits (λ = 0.1, δ = 0.01, S = 1, σ = 1; for the jumps, discount 0.99412
and window 170). It publishes curves, no numbers: D-LinUCB loses least, and algorithms that never forget lose most. The
published dLinUCB misses most jumps, as the noise is large.
"""

import math

import numpy as np
import pytest

from seachange.deploy.rivals import DLinUCB, DynamicLinUCB, LinUCB, SWLinUCB
from seachange.simulate import MovingLinear, rollout

PATHS = {"jumps": 4 + math.sqrt(2), "turn": math.pi / 2}  # their lengths
N_RUNS = 6


@pytest.mark.parametrize("path", PATHS)
def test_discounted_rounds_lose_least(path):
    world = MovingLinear(path=path)
    window = (2 * world.horizon / PATHS[path]) ** (2 / 3)
    if path == "jumps":
        assert (round(1 - 1 / window, 5), round(window)) == (0.99412, 170)
    known = {"joint": world.log(0).joint, "noise": 1.0, "ridge": 0.1}
    rivals = {
        "D-LinUCB": DLinUCB(**known, discount=1 - 1 / window), "SW-LinUCB": SWLinUCB(**known, window=int(window)),
        "LinUCB": LinUCB(**known), "dLinUCB": DynamicLinUCB(**known),
    }  # fmt: skip
    best = [next(world.rounds(seed, world.horizon)).mean_rewards.max(axis=1).sum() for seed in range(N_RUNS)]
    regret = {
        name: np.mean([best[seed] - rollout(world, rival, seed).expected_rewards.sum() for seed in range(N_RUNS)])
        for name, rival in rivals.items()
    }
    assert min(regret, key=regret.get) == "D-LinUCB"
    if path == "jumps":
        assert regret["SW-LinUCB"] < 0.7 * min(regret["LinUCB"], regret["dLinUCB"])
