"""Compare replay and DR-ns estimates of a switching policy with full and with equally thinned deployments."""

from __future__ import annotations

import argparse

import numpy as np

import seachange as sc
from seachange.simulate import Shop, rollout


def main() -> None:
    """Learn from one log of the shop, evaluate on others, and deploy in the same states."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100)
    n_logs = parser.parse_args().logs
    env = Shop(seed=0)
    deployer = sc.learn(env.log(0)).deployer()
    full = [rollout(env, deployer, run).expected_rewards.mean() for run in range(n_logs)]
    print(f"Deciding in every round earns {mean_and_error(full)}.")
    for method in ("replay", "dr-ns"):
        estimates = [sc.evaluate_online(env.log(run), deployer, method) for run in range(1, n_logs + 1)]
        thinned = [deployed(env, deployer, run, each) for run, each in enumerate(estimates, start=1)]
        values = [each.value for each in estimates]
        share = np.mean([each.acceptance_rate for each in estimates])
        gaps = np.subtract(values, thinned)
        print(
            f"{method:7} estimates {mean_and_error(values)} ({share:.1%} of rounds accepted); an equally thinned "
            f"deployment earns {mean_and_error(thinned)}; difference {mean_and_error(gaps)}"
        )


def deployed(env: Shop, deployer, run: int, estimate: sc.OnlineEstimate, repeats: int = 5) -> float:
    """Mean reward of deployments in the states of a log, with rounds kept at random at the acceptance rate."""
    earned = []
    for seed in range(repeats):
        generator = np.random.default_rng([run, seed])
        states = env.log_states(run)[generator.random(env.horizon) < estimate.acceptance_rate]
        rounds = env._rounds(states, generator)
        uniforms = generator.random(len(states))
        _, trace = deployer.run(deployer.init(), rounds.contexts, rounds.mean_rewards, rounds.rewards, uniforms)
        earned.append(trace.expected_rewards.mean())
    return float(np.mean(earned))


def mean_and_error(values) -> str:
    """Mean ± standard error, as text."""
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


if __name__ == "__main__":
    main()
