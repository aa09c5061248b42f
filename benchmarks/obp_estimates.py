"""Compute Open Bandit Pipeline's point estimates on generated inputs, for tests/published/obp_estimates.json.

obp_estimates.py [OUT.json]; run it in the peers' environment.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from pipeline import import_pipeline

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from published.obp_inputs import CASES, SETTINGS, Inputs, inputs

COMMAND = "benchmarks/obp_estimates.py tests/published/obp_estimates.json"


def main() -> None:
    """Write or print the estimates."""
    answers = {name: estimates(inputs(name)) for name in CASES}
    report = {"obp": version("obp"), "numpy": version("numpy"), "command": COMMAND, "estimates": answers}
    text = json.dumps(report, indent=1) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text)
    else:
        print(text, end="")


def estimates(given: Inputs) -> dict[str, float]:
    """The point estimate of every estimator; names include the setting, if there is one."""
    import_pipeline()
    from obp import ope

    arrays = {
        "reward": given.rewards,
        "action": given.actions,
        "pscore": given.propensities,
        "action_dist": given.probs[:, :, None],
        "estimated_rewards_by_reg_model": given.predicted_rewards[:, :, None],
        "position": np.zeros(len(given.actions), dtype=int),
    }
    sides = {
        "ips": ope.InverseProbabilityWeighting(),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting(),
        "dm": ope.DirectMethod(),
        "dr": ope.DoublyRobust(),
        "sndr": ope.SelfNormalizedDoublyRobust(),
    }
    for setting in SETTINGS:
        sides[f"ips, clip {setting}"] = ope.InverseProbabilityWeighting(lambda_=setting)
        sides[f"dr, clip {setting}"] = ope.DoublyRobust(lambda_=setting)
        sides[f"switch-dr {setting}"] = ope.SwitchDoublyRobust(lambda_=setting)
        # With shrinkage 0, it computes 0 / 0 if the policy never takes the logged action.
        if setting > 0 or (given.probs > 0).all():
            sides[f"dr-os {setting}"] = ope.DoublyRobustWithShrinkage(lambda_=setting)
    return {name: float(side.estimate_policy_value(**arrays)) for name, side in sides.items()}


if __name__ == "__main__":
    main()
