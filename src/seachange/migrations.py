"""Model files of earlier schemas, brought up to the present one step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from seachange.archive import Arrays

SCHEMA = 4


def migrated(manifest: dict[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The manifest as the present schema has it; ``arrays`` gains what it lacks."""
    if manifest.get("schema") == 1:
        _from_first(manifest, arrays)
    if manifest.get("schema") == 2:
        _from_second(manifest)
    if manifest.get("schema") == 3:
        _from_third(manifest)
    return manifest


def _from_first(manifest: dict[str, Any], arrays: Arrays) -> None:
    """Schema 1 knew Gaussian rewards with one noise, and the paper's detector without p-values and fits."""
    learned, kind, n_states = manifest["oracle"]["learned"], manifest["oracle"]["kind"], manifest["n_states"]
    if kind == "HMMOracle":
        report = learned["report"]
        ends = report["restarts"]
        best = max(ends)
        report["restarts"] = [{"objective": end, "iterations": 0, "converged": True, "given_up": False} for end in ends]
        report["agreed"] = sum(best - end <= 1e-6 * max(abs(best), 1.0) for end in ends)
        report["ridge"] = manifest["oracle"]["params"]["ridge"]
        # Nobody had asked then how well states foresee held-out rewards.
        report["state_counts"] = []
        learned["rewards"] = "gaussian"
        arrays["hmm_noise_variances"] = np.full(n_states, float(learned["noise_variance"]))
    if kind == "ChangePointOracle":
        found, values = arrays["cut_change_points"], arrays["cut_state_values"]
        learned["statistic"] = "reward"
        arrays |= {
            "cut_windows": np.array([int(learned["window"])]),
            "cut_p_values": np.full(len(found), np.nan),
            "cut_low": found,
            "cut_high": found,
            "cut_segment_starts": np.append(0, found),
            "cut_state_coefs": values[:, None, None],
            "cut_state_precisions": np.zeros((len(values), 1, 1, 1)),
            "cut_state_rounds": np.zeros((len(values), 1)),
            "cut_noise_variances": np.ones(1),
        }
    manifest["schema"] = 2


def _from_second(manifest: dict[str, Any]) -> None:
    """Schema 2 knew no logs without propensities."""
    manifest["provenance"]["propensity_source"] = "logged"
    manifest["schema"] = 3


def _from_third(manifest: dict[str, Any]) -> None:
    """Schema 3 knew no raw features: contexts were numbers, taken as they are."""
    manifest["features"] = None
    manifest["schema"] = 4
