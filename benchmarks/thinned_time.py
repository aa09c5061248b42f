"""Compare replay and DR-ns estimates of a switching policy with deployments that see all or some of their rewards."""

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
    env = Shop(seed=0, horizon=12_000)
    deployer = sc.learn(env.log(0)).deployer()
    full = [rollout(env, deployer, run).expected_rewards.mean() for run in range(n_logs)]
    print(f"A deployment that sees all of its rewards earns {mean_and_error(full)}.")
    for method in ("replay", "dr-ns"):
        estimates = [sc.evaluate_online(env.log(run), deployer, method) for run in range(1, n_logs + 1)]
        thinned = [deployed(env, deployer, run, each.acceptance_rate) for run, each in enumerate(estimates, start=1)]
        values = [each.value for each in estimates]
        share = np.mean([each.acceptance_rate for each in estimates])
        gaps = np.subtract(values, thinned)
        print(
            f"{method:7} estimates {mean_and_error(values)} ({share:.1%} of rounds accepted); a deployment "
            f"that sees as many rewards earns {mean_and_error(thinned)}; difference {mean_and_error(gaps)}"
        )


def deployed(env: Shop, deployer, run: int, share: float) -> float:
    """Mean reward of a deployment in the states of a log, which sees its rewards with probability ``share``."""
    generator, state, earned = np.random.default_rng([run, 0]), deployer.init(), 0.0
    rounds, seen = env._rounds(env.log_states(run), generator), generator.random(env.horizon) < share
    for t, uniform in enumerate(generator.random(env.horizon).tolist()):
        decision = deployer.act(state, rounds.contexts[t], uniform)
        earned += decision.probs @ rounds.mean_rewards[t]
        state = deployer.update(state, decision, rounds.rewards[t, decision.action] if seen[t] else None)
    return earned / env.horizon


def mean_and_error(values) -> str:
    """Mean ± standard error, as text."""
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


if __name__ == "__main__":
    main()
