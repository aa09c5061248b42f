"""Run benchmarks in a peer's own interpreter, in turn with ours. Uses only the standard library.

A peer first sends a description and its result, then makes one measurement for every line it reads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

# XLA splits loops that touch more bytes than this; dynamax's float64 scans are faster as one kernel.
TUNED_XLA_FLAGS = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000"
# Runs longer than this, in seconds, are not repeated.
LONG = 2.0


class Peer:
    """A script of this folder, run by the peers' interpreter on the core this process is pinned to."""

    def __init__(self, python: Path, script: str, *arguments: object, x64: bool = True, tuned: bool = False) -> None:
        environment = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_ENABLE_X64": "1" if x64 else "0",
            "XLA_FLAGS": TUNED_XLA_FLAGS if tuned else "",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [str(python), str(Path(__file__).with_name(script)), *map(str, arguments)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answer: dict[str, Any] = self._read()

    def seconds(self) -> float:
        """Make one measurement."""
        assert self._process.stdin is not None
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return float(self._read()["seconds"])

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the peer process ended unexpectedly: {self._process.args}")
        return dict(json.loads(line))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


def serve(answer: dict[str, Any], run: Callable[[], object]) -> None:
    """The peer's end of ``Peer``."""
    print(json.dumps(answer), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"seconds": timed(run)}), flush=True)


def timed(run: Callable[[], object]) -> float:
    """Processor time of one run, in seconds. On one core, this is wall time minus the time of other programs."""
    before = time.process_time()
    run()
    return time.process_time() - before


def fastest(ways: dict[str, Callable[[], object]]) -> str:
    """Name of the fastest variant after a warm-up."""
    seconds = {}
    for way, run in ways.items():
        run()
        seconds[way] = timed(run)
        if seconds[way] < LONG:
            seconds[way] = min(seconds[way], timed(run), timed(run))
        print(f"  {way}: {seconds[way]:.3f} s", file=sys.stderr)
    return min(seconds, key=seconds.__getitem__)


def pin_to_one_core() -> int | None:
    """Pin this process and its children to the last core, which has the fewest interrupts; None if not supported."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core
