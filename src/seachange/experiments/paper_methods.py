"""The paper's methods, from a log to a deployer: single policies, change points with Exp4.S, HMM with posteriors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.deploy.exp4s import Exp4S
from seachange.deploy.posterior import PosteriorSampling
from seachange.deploy.single import SinglePolicy
from seachange.log.bandit_log import BanditLog
from seachange.policies.learners import DRLearner, IPSLearner, POEMLearner
from seachange.policies.per_state import learn_per_state
from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle

STATIONARY = ("IPS", "DR", "POEM")
SWITCHING = ("k-CD", "k-HMM")

Build = Callable[[BanditLog, int], BeliefDeployer]


def _single(learner: Any, log: BanditLog, n_states: int) -> BeliefDeployer:
    return SinglePolicy(learner.fit(log).policy_)


def _change_points(
    learner: Any, oracle: ChangePointOracle, mixing: Any, log: BanditLog, n_states: int
) -> BeliefDeployer:
    labels = oracle.clone().set_params(n_states=n_states).fit(log).predict(log)
    rewards = log.rewards
    mean = float(rewards.mean()) if rewards.min() >= 0 and rewards.max() <= 1 else None
    return Exp4S(learn_per_state(log, labels, learner), mixing=mixing, mean_reward=mean)


def _hmm(learner: Any, oracle: HMMOracle, log: BanditLog, n_states: int) -> BeliefDeployer:
    oracle = oracle.clone().set_params(n_states=n_states).fit(log)
    return PosteriorSampling(learn_per_state(log, oracle.predict(log), learner), hmm=oracle.model_)


def paper_detector(horizon: int) -> ChangePointOracle:
    """The detector with the paper's constants: w = 4,000 (less in a shorter world), c = √(2 log(8 T²) / w)."""
    window = min(4_000, horizon // 25)
    return ChangePointOracle(
        statistic="reward", window=window, threshold=math.sqrt(2 * math.log(8 * horizon**2) / window)
    )


def default_methods(horizon: int, hmm: HMMOracle | None = None) -> dict[str, Build]:
    """Every method with our defaults, or another ``hmm``; "as printed" keeps the paper's detector and mixing."""
    return {
        "IPS": partial(_single, IPSLearner()),
        "DR": partial(_single, DRLearner()),
        "POEM": partial(_single, POEMLearner()),
        "k-CD": partial(_change_points, DRLearner(), ChangePointOracle(), "corrected"),
        "k-CD (as printed)": partial(_change_points, IPSLearner(), paper_detector(horizon), "paper"),
        "k-HMM": partial(_hmm, DRLearner(), hmm or HMMOracle()),
    }


def paper_like_methods(horizon: int) -> dict[str, Build]:
    """Every method as close to the paper as its text allows."""
    ips = IPSLearner(temperature=1.0)
    return {
        "IPS": partial(_single, ips),
        "DR": partial(_single, DRLearner(temperature=1.0)),
        "POEM": partial(_single, POEMLearner(temperature=1.0)),
        "k-CD": partial(_change_points, ips, paper_detector(horizon), "corrected"),
        "k-CD (as printed)": partial(_change_points, ips, paper_detector(horizon), "paper"),
        "k-HMM": partial(_hmm, ips, HMMOracle()),
    }
