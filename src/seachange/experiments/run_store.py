"""Results of runs in a file, a line each, so that an experiment that was interrupted goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from seachange.errors import OutputError
from seachange.outputs import written_whole

SETTINGS, RUNS = "settings.json", "runs.jsonl"


class RunStore:
    """What has been run in ``folder`` with these very settings; runs of others are refused."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._runs = folder / RUNS
        kept = folder / SETTINGS
        if kept.exists() and self._runs.exists():
            earlier = json.loads(kept.read_text())
            differ = [name for name in {**earlier, **settings} if earlier.get(name) != settings.get(name)]
            if differ:
                told = "; ".join(_difference(name, earlier.get(name), settings.get(name)) for name in sorted(differ))
                raise OutputError(f"{str(folder)!r} holds runs of another experiment ({told}): name another folder.")
        else:
            with written_whole(kept) as beside:
                beside.write_text(json.dumps(settings, indent=1))

    def done(self) -> dict[str, Any]:
        """The results so far, by the names of their runs."""
        if not self._runs.exists():
            return {}
        results = {}
        for line in self._runs.read_text().splitlines():
            try:
                found = json.loads(line)
            except json.JSONDecodeError:  # it was being written when the work stopped
                continue
            results[found["run"]] = found["result"]
        return results

    def add(self, run: str, result: Any) -> None:
        """Keep the result of a run."""
        torn = self._runs.exists() and not self._runs.read_bytes().endswith(b"\n")
        with self._runs.open("a") as file:
            file.write("\n" * torn + json.dumps({"run": run, "result": result}) + "\n")


def _difference(name: str, theirs: Any, ours: Any) -> str:
    if isinstance(theirs, list) or isinstance(ours, list):
        return f"{name}: others"
    return f"{name}: {theirs} there, {ours} here"
