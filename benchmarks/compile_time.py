"""Measure the compile time of all state kernels: both oracles on logs of every kind."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator


def main() -> None:
    """Run with an empty cache, then again with a warm one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", action="store_true", help="fit in this process and print what was compiled")
    if parser.parse_args().fits:
        compile_all()
        return
    with tempfile.TemporaryDirectory() as cache:
        for heading in ("cold", "cached"):
            print(f"{heading}:")
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            subprocess.run([sys.executable, __file__, "--fits"], check=True, env=environment)


def compile_all() -> None:
    """Print seconds per kernel, without the kernels it calls."""
    from numba.core import event

    with event.install_recorder("numba:compile") as recorder:
        fit_everything()
    own: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    running: list[list[float]] = []
    total = 0.0
    for moment, happened in recorder.buffer:
        if happened.is_start:
            running.append([moment, 0.0])
            continue
        start, inside = running.pop()
        name = happened.data["dispatcher"].py_func.__qualname__
        own[name][0] += 1
        own[name][1] += moment - start - inside
        if running:
            running[-1][1] += moment - start
        else:
            total += moment - start
    for name, (times, seconds) in sorted(own.items(), key=lambda entry: -entry[1][1])[:12]:
        print(f"  {name:28}{times:4.0f} times{seconds:8.2f} s")
    print(f"  {'all':28}{sum(times for times, _ in own.values()):4.0f} times{total:8.2f} s")


def fit_everything() -> None:
    """Fit both oracles on small logs with every kind of context and reward, with and without sequences."""
    import warnings

    import numpy as np

    import seachange as sc

    warnings.simplefilter("ignore", sc.SeachangeWarning)
    n = 1200
    for log in logs(n, np.random.default_rng(0)):
        oracle = sc.HMMOracle(n_states=2, max_iterations=5).fit(log)
        oracle.predict(log)
        oracle.model_.filter(log)
        for statistic in ("fit", "reward"):
            sc.ChangePointOracle(statistic=statistic).fit(log).predict(log)


def logs(n: int, generator) -> Iterator:
    """Logs with and without contexts, action features, and sequences; clicks and other rewards; many features."""
    import numpy as np

    import seachange as sc

    states, actions = np.arange(n) // 200 % 2, generator.integers(3, size=n)
    clicks = 1.0 * (generator.random(n) < np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions])
    contexts, features = generator.normal(size=(n, 2)), generator.normal(size=(n, 3, 4))
    for columns in (
        {},
        {"contexts": contexts},
        {"action_features": features},
        {"action_features": features, "sequences": np.arange(n) // 10},
        {"contexts": contexts, "sequences": np.arange(n) // 10},
    ):
        for rewards in (clicks, clicks + generator.normal(size=n)):
            yield sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **columns)
    one = np.zeros(n, dtype=int)
    many = generator.normal(size=(n, 1, 20))
    yield sc.BanditLog.from_arrays(one, clicks + 0.5, np.ones(n), n_actions=1, action_features=many)


if __name__ == "__main__":
    main()
