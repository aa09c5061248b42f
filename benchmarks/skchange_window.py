"""skchange's side of change_points.py: time both selection methods and keep the faster one.

    skchange_window.py REWARDS.npy WINDOW REPEATS

Prints JSON. MovingWindow's statistic is the CUSUM of the rewards on both sides of a round: |μ⁺ - μ⁻| √(w / 2).
"""

from __future__ import annotations

import json
import sys
import timeit
from importlib.metadata import version

import numpy as np
from skchange.detectors import MovingWindow
from skchange.interval_scorers import CUSUM

SELECTIONS = ("detection_length", "local_optimum")


def main(path: str, window: int, repeats: int) -> None:
    """Time detection, after a fit that sets the penalty and a warm-up that compiles."""
    rewards = np.load(path).reshape(-1, 1)
    sides = []
    for selection in SELECTIONS:
        detector = MovingWindow(CUSUM(), bandwidth=window, selection_method=selection).fit(rewards)
        found = detector.predict(rewards)
        seconds = min(timeit.repeat(lambda detector=detector: detector.predict(rewards), repeat=repeats, number=1))
        sides.append({"way": f"predict, {selection}", "seconds": seconds, "changes": len(found)})
    best = min(sides, key=lambda side: side["seconds"])
    print(json.dumps({"side": best, "versions": {name: version(name) for name in ("skchange", "numba")}}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
