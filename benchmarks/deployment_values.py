"""Compare evaluate_deployment, replay and DR-ns with deployments in the states of the logs they are computed from."""

import argparse

import numpy as np

import seachange as sc
from seachange.simulate import Shop


def main() -> None:
    """Learn from one log of the shop, evaluate on others, and deploy in the same states."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100)
    env, runs = Shop(seed=0), range(1, parser.parse_args().logs + 1)
    model = sc.learn(env.log(0))
    deployer = model.deployer()
    earned = np.array([deployed(env, deployer, run) for run in runs])
    print(f"The deployment earns {mean_and_error(earned)}.")
    estimates = {
        "deployment": [sc.evaluate_deployment(env.log(run), model, unseen=True) for run in runs],
        "replay": [sc.evaluate_online(env.log(run), deployer, "replay") for run in runs],
        "dr-ns": [sc.evaluate_online(env.log(run), deployer, "dr-ns") for run in runs],
    }
    for name, found in estimates.items():
        values = np.array([each.value for each in found])
        covered = np.mean([each.low <= value <= each.high for each, value in zip(found, earned, strict=True)])
        share = np.mean([getattr(each, "acceptance_rate", 1.0) for each in found])
        print(
            f"{name:10} {mean_and_error(values)}, error {mean_and_error(values - earned)}, {covered:.0%} of intervals "
            f"contain what was earned, rewards seen in {share:.1%} of rounds"
        )


def deployed(env: Shop, deployer, run: int, repeats: int = 5) -> float:
    """Mean reward of deployments in the states of a log."""
    earned = []
    for seed in range(repeats):
        generator = np.random.default_rng([run, seed])
        rounds = env._rounds(env.log_states(run), generator)
        uniforms = generator.random(len(rounds))
        _, trace = deployer.run(deployer.init(), rounds.contexts, rounds.mean_rewards, rounds.rewards, uniforms)
        earned.append(trace.expected_rewards.mean())
    return float(np.mean(earned))


def mean_and_error(values) -> str:
    """Mean ± standard error, as text."""
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


if __name__ == "__main__":
    main()
