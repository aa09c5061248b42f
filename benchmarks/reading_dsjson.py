"""Compare reading dsjson with a json.loads loop over the same lines, and measure peak memory.

reading_dsjson.py [MEGABYTES]; the file repeats one block of simulated decisions. Both sides take turns. Times are wall
time, and ours uses one thread per core, so a busy machine lowers the ratio.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from seachange.formats.dsjson import DsjsonLog

N_ACTIONS = 8
RUNS = 5


def main(megabytes: int) -> None:
    """Write the file, read it with both, and print one JSON document."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.json"
        block = "".join(json.dumps(decision(t), separators=(",", ":")) + "\n" for t in range(10_000)).encode()
        with path.open("wb") as file:
            for _ in range(max(1, round(megabytes * 1e6 / len(block)))):
                file.write(block)
        n_lines = read(path)
        seconds: dict[str, list[float]] = {"json.loads": [], "seachange": []}
        for _ in range(RUNS):
            seconds["seachange"].append(timed(lambda: read(path)))
            seconds["json.loads"].append(timed(lambda: loop(path)))
        best = {name: min(all_runs) for name, all_runs in seconds.items()}
        print(json.dumps({
            "megabytes": path.stat().st_size / 1e6, "lines": n_lines, "seconds": best,
            "ratio": best["json.loads"] / best["seachange"],
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }))  # fmt: skip


def read(path: Path) -> int:
    """Read all rounds of the file and count them."""
    return sum(len(part) for part in DsjsonLog(path).parts())


def loop(path: Path) -> None:
    """Parse every line, as a script would."""
    with path.open() as file:
        for line in file:
            json.loads(line)


def timed(run: Callable[[], object]) -> float:
    """Wall time in seconds."""
    before = time.perf_counter()
    run()
    return time.perf_counter() - before


def decision(t: int) -> dict[str, object]:
    """One line, in the format the service writes."""
    chance = random.Random(t)
    order = chance.sample(range(1, N_ACTIONS + 1), N_ACTIONS)
    probs = [0.825] + [0.025] * (N_ACTIONS - 1)
    user = {"age": chance.randrange(90), "city": chance.choice(["Paris", "Oslo", "New York"]), "f": chance.random()}
    items = [{"item": {"id": f"item{k}", "price": round(chance.random() * 100, 2), "kind": chance.choice("abc")}}
             for k in range(N_ACTIONS)]  # fmt: skip
    return {
        "_label_cost": -float(chance.random() < 0.1), "_label_probability": probs[0], "_label_Action": order[0],
        "_labelIndex": order[0] - 1, "o": [], "Version": "1",
        "Timestamp": f"2026-03-01T{t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}.3960000Z",
        "EventId": f"{chance.getrandbits(128):032x}", "a": order,
        "c": {"user": user, "_multi": items}, "p": probs, "VWState": {"m": f"{chance.getrandbits(128):032x}"},
    }  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
