"""Logs and policies on which estimators must agree with Open Bandit Pipeline's. NumPy only, for its side too."""

from dataclasses import dataclass

import numpy as np

N_ROUNDS = 500
SETTINGS = (0.0, 0.3, 1.0, 7.5, 100.0, 1e6, float("inf"))


@dataclass(frozen=True)
class Inputs:
    """One log, one policy, one reward model."""

    actions: np.ndarray  # (n,)
    rewards: np.ndarray  # (n,)
    propensities: np.ndarray  # (n,)
    probs: np.ndarray  # (n, K): the policy
    predicted_rewards: np.ndarray  # (n, K): r̂


@dataclass(frozen=True)
class Case:
    """How inputs are drawn."""

    seed: int
    n_actions: int
    sharpness: float  # of the policy: its scores are this many standard deviations; inf is deterministic
    logging_sharpness: float  # of the policy that logged: the larger, the more extreme the weights
    rewards: str  # "clicks", "revenue" or "signed"


CASES = {
    "uniform logging, soft policy": Case(0, 5, 1.0, 0.0, "clicks"),
    "uniform logging, deterministic policy": Case(1, 4, np.inf, 0.0, "clicks"),
    "skewed logging, soft policy": Case(2, 10, 2.0, 1.0, "revenue"),
    "extreme weights, soft policy": Case(3, 6, 3.0, 4.0, "clicks"),
    "extreme weights, deterministic policy": Case(4, 6, np.inf, 3.0, "signed"),
    "two actions": Case(5, 2, 0.5, 2.0, "signed"),
    "the logging policy itself": Case(6, 8, 0.0, 0.0, "clicks"),
}


def inputs(name: str) -> Inputs:
    """The same arrays wherever they are drawn."""
    case = CASES[name]
    generator = np.random.default_rng(case.seed)
    shape = (N_ROUNDS, case.n_actions)
    logging_probs = _softmax(case.logging_sharpness * generator.standard_normal(shape))
    uniforms = generator.random((N_ROUNDS, 1))
    actions = np.minimum((logging_probs.cumsum(axis=1) < uniforms).sum(axis=1), case.n_actions - 1)
    scores = generator.standard_normal(shape)
    if np.isinf(case.sharpness):
        probs = np.eye(case.n_actions)[scores.argmax(axis=1)]
    else:
        probs = _softmax(case.sharpness * scores)
    rewards = {
        "clicks": lambda: (generator.random(N_ROUNDS) < 0.3).astype(float),
        "revenue": lambda: generator.exponential(20.0, N_ROUNDS),
        "signed": lambda: generator.standard_normal(N_ROUNDS),
    }[case.rewards]()
    predicted_rewards = rewards.mean() + rewards.std() * generator.standard_normal(shape)
    return Inputs(actions, rewards, logging_probs[np.arange(N_ROUNDS), actions], probs, predicted_rewards)


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)
