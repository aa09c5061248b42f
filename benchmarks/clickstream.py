"""Simulated decisions a second on one core: ten experts on six features of ten documents, on an invented front page.

Everything between the visits and the trace is on the clock: the sample, its documents and features, the experts'
advice, the choice, the click, and the belief. The clock is the processor's; each deployer keeps its best turn.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np

import seachange as sc
from seachange.experiments.yahoo import Settings, worlds
from seachange.policies.learners import DMLearner
from seachange.simulate import FrontPage, rollout

N_STATES = 10


def main() -> None:
    """Print decisions a second of each deployer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=6)
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", sc.SeachangeWarning)
    visits = FrontPage(n_days=arguments.days + 1).visits()
    world, _ = worlds(visits, Settings(days=arguments.days, next_days=1))
    log = world.log(0)
    known = np.arange(len(log)) * 2 * N_STATES // len(log) % N_STATES
    policies = sc.learn_per_state(log, sc.KnownStates(known).fit(log).predict(log), DMLearner())
    # What the HMM says does not matter to the clock.
    hmm = sc.HMMOracle(n_states=N_STATES, restarts=1, max_iterations=2).fit(log).model_
    deployers = {
        "posterior sampling": sc.PosteriorSampling(policies, hmm=hmm),
        "Exp4.S": sc.Exp4S(policies, mean_reward=float(log.rewards.mean())),
    }
    best = dict.fromkeys(deployers, np.inf)
    for _ in range(arguments.turns + 1):  # the first compiles
        for name, deployer in deployers.items():
            start = time.process_time()
            rollout(world, deployer, 0)
            best[name] = min(best[name], time.process_time() - start)
    print(json.dumps({name: round(len(log) / seconds) for name, seconds in best.items()}))


if __name__ == "__main__":
    main()
