"""The state of every round, as a table for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seachange.outputs import written_whole

if TYPE_CHECKING:
    from seachange.log.bandit_log import BanditLog
    from seachange.states.labels import StateLabels


def write_states(path: Path, log: BanditLog, labels: StateLabels) -> None:
    """Write a row a round to a CSV or Parquet file: its number from 0 on, time, sequence, state, and how sure that is.

    Rounds that were left out when the log was read have no number. Only an HMM says how sure it is.
    """
    import polars

    columns: dict[str, Any] = {"round": np.arange(len(log))}
    if log.times is not None:
        times = np.asarray(log.times)
        columns["time"] = times.astype("datetime64[us]") if times.dtype.kind == "M" else times
    if log.sequences is not None:
        columns["sequence"] = log.sequences
    columns["state"] = labels.states
    if labels.state_probs is not None:
        columns["probability"] = labels.state_probs[np.arange(len(log)), labels.states]
    table = polars.DataFrame(columns)
    with written_whole(path) as beside:
        if path.suffix.lower() == ".csv":
            table.write_csv(beside)
        else:
            table.write_parquet(beside)
