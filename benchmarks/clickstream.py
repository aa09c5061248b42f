"""Measure simulated decisions per second on one core: ten experts, six features of ten documents, simulated front page.

The time includes everything between the visits and the trace: sampling, documents and features, the experts' advice,
decisions, clicks, and belief updates. It is processor time; the best run of each deployer counts.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np

import seachange as sc
from seachange.experiments.paper_yahoo import Settings, worlds
from seachange.policies.learners import DMLearner
from seachange.simulate import FrontPage, rollout

N_STATES = 10


def main() -> None:
    """Print the decisions per second of each deployer."""
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
    # The quality of the HMM does not affect the time.
    hmm = sc.HMMOracle(n_states=N_STATES, restarts=1, max_iterations=2).fit(log).model_
    deployers = {
        "posterior sampling": sc.PosteriorSampling(policies, hmm=hmm),
        "Exp4.S": sc.Exp4S(policies, mean_reward=float(log.rewards.mean())),
    }
    best = dict.fromkeys(deployers, np.inf)
    for _ in range(arguments.turns + 1):  # the first run compiles
        for name, deployer in deployers.items():
            start = time.process_time()
            rollout(world, deployer, 0)
            best[name] = min(best[name], time.process_time() - start)
    print(json.dumps({name: round(len(log) / seconds) for name, seconds in best.items()}))


if __name__ == "__main__":
    main()
