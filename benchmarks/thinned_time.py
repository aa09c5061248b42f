"""What replay and DR-ns say of a learned switching policy, beside deployments in full and thinned as they were."""

from __future__ import annotations

import argparse

import numpy as np

import seachange as sc
from seachange.simulate import Shop, rollout


def main() -> None:
    """Learn from one log of the shop, judge on others, deploy in the same moods."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100)
    n_logs = parser.parse_args().logs
    env = Shop(seed=0)
    deployer = sc.learn(env.log(0)).deployer()
    full = [rollout(env, deployer, run).expected_rewards.mean() for run in range(n_logs)]
    print(f"deciding in every round earns {told(full)}")
    for method in ("replay", "dr-ns"):
        estimates = [sc.evaluate_online(env.log(run), deployer, method) for run in range(1, n_logs + 1)]
        thinned = [deployed(env, deployer, run, each) for run, each in enumerate(estimates, start=1)]
        values = [each.value for each in estimates]
        share = np.mean([each.acceptance_rate for each in estimates])
        gaps = np.subtract(values, thinned)
        print(
            f"{method:7} says {told(values)}, {share:.1%} of rounds accepted; thinned alike it earns {told(thinned)}, "
            f"difference {told(gaps)}"
        )


def deployed(env: Shop, deployer, run: int, estimate: sc.OnlineEstimate, again: int = 5) -> float:
    """Mean reward of deployments through the moods of a log, in rounds that a coin leaves as often as were accepted."""
    earned = []
    for seed in range(again):
        generator = np.random.default_rng([run, seed])
        moods = env.log_states(run)[generator.random(env.horizon) < estimate.acceptance_rate]
        rounds = env._rounds(moods, generator)
        uniforms = generator.random(len(moods))
        _, trace = deployer.run(deployer.init(), rounds.contexts, rounds.mean_rewards, rounds.rewards, uniforms)
        earned.append(trace.expected_rewards.mean())
    return float(np.mean(earned))


def told(values) -> str:
    """A mean and its standard error."""
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


if __name__ == "__main__":
    main()
