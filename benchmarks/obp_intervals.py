"""Open Bandit Pipeline's side of estimates.py: a point estimate and its bootstrap interval.

obp_intervals.py PROBLEM.npz ips|snips|dr RESAMPLES
"""

from __future__ import annotations

import sys
from importlib.metadata import version

import numpy as np

from peers import serve
from pipeline import import_pipeline


def main(path: str, estimator: str, resamples: int) -> None:
    """Send the result, then measure on request."""
    import_pipeline()
    from obp import ope

    side = {
        "ips": ope.InverseProbabilityWeighting,
        "snips": ope.SelfNormalizedInverseProbabilityWeighting,
        "dr": ope.DoublyRobust,
    }[estimator]()
    problem = np.load(path)
    arrays = {
        "reward": problem["rewards"],
        "action": problem["actions"],
        "pscore": problem["propensities"],
        "action_dist": problem["probs"][:, :, None],
        "position": np.zeros(len(problem["actions"]), dtype=int),
    }
    if estimator == "dr":
        arrays["estimated_rewards_by_reg_model"] = problem["predicted_rewards"][:, :, None]

    def run() -> dict[str, float]:
        interval: dict[str, float] = side.estimate_interval(
            **arrays, alpha=0.05, n_bootstrap_samples=resamples, random_state=0
        )
        return interval

    low, high = (float(run()[f"95.0% CI ({end})"]) for end in ("lower", "upper"))
    value = float(side.estimate_policy_value(**arrays))
    answer = {"value": value, "low": low, "high": high, "versions": {"obp": version("obp")}}
    serve(answer, run)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
