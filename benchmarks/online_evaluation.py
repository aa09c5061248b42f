"""Time both methods of evaluate_online on a log of a million rounds, without compilation."""

from __future__ import annotations

import argparse
import time

import numpy as np

import seachange as sc
from seachange.policies import SoftmaxPolicy


def main() -> None:
    """Evaluate a deployer with five experts, ten actions, and six features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    rounds = parser.parse_args().rounds
    deployer = exp4s(log_of(1_000))
    log = log_of(rounds)
    for method in ("replay", "dr-ns"):
        sc.evaluate_online(log[:1_000], deployer, method)
        for repeats in (1, 5):
            started, worked = time.perf_counter(), time.process_time()
            estimate = sc.evaluate_online(log, deployer, method, repeats=repeats)
            seconds, work = time.perf_counter() - started, time.process_time() - worked
            speed = f"{rounds / seconds / 1e6:8.2f} M rounds/s"
            print(
                f"{method:8}{passes(repeats):10}{seconds:8.2f} s ({work:.2f} s CPU){speed}"
                f"   value {estimate.value:.4f} ± {estimate.std_error:.4f}, {estimate.acceptance_rate:.1%} accepted"
            )


def passes(repeats: int) -> str:
    """Number of passes, as text."""
    return f"{repeats} pass{'es' if repeats > 1 else ''}"


def log_of(n: int, n_actions: int = 10, n_features: int = 6) -> sc.BanditLog:
    """Clicks on ten items with uniform logging."""
    generator = np.random.default_rng(0)
    contexts = generator.normal(size=(n, n_features))
    actions = generator.integers(n_actions, size=n)
    coefs = np.random.default_rng(1).normal(0, 0.4, (n_actions, n_features))
    rates = 1 / (1 + np.exp(3.0 - np.einsum("nd,nd->n", contexts, coefs[actions])))
    clicks = (generator.random(n) < rates).astype(float)
    return sc.BanditLog.from_arrays(actions, clicks, np.full(n, 1 / n_actions), contexts=contexts, n_actions=n_actions)


def exp4s(log: sc.BanditLog) -> sc.Exp4S:
    """Exp4.S with five linear policies."""
    coefs = np.random.default_rng(2).normal(size=(5, *log.joint.shape))
    return sc.Exp4S(sc.PolicySet(tuple(SoftmaxPolicy(each, log.joint) for each in coefs)), expected_stay=5_000)


if __name__ == "__main__":
    main()
