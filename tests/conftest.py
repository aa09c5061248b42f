"""Small logs that every part can be driven with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import properties  # noqa: F401 - registers the profiles
import seachange as sc

settings.load_profile("short")  # --hypothesis-profile=long replaces it

KINDS = ("none", "shared", "per action")


def build_log(kind: str = "none", n: int = 600, seed: int = 0, **columns: object) -> sc.BanditLog:
    """Clicks of three actions in a world of two states that alternate every n / 6 rounds."""
    generator = np.random.default_rng(seed)
    states = (6 * np.arange(n) // n) % 2
    actions = generator.integers(3, size=n)
    means = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions]
    rewards = (generator.random(n) < means).astype(float)
    if kind == "shared":
        columns["contexts"] = generator.normal(size=(n, 2))
    if kind == "per action":
        columns["action_features"] = np.concatenate(
            [np.tile(np.eye(3), (n, 1, 1)), generator.normal(size=(n, 3, 1))], axis=2
        )
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **columns)


@pytest.fixture
def make_log() -> Callable[..., sc.BanditLog]:
    """``build_log`` as a fixture."""
    return build_log


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """The path of a file of real data, which is not part of the project; skips the test where it is not there."""
    folder = Path(os.environ.get("SEACHANGE_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")

    def find(name: str) -> Path:
        if not (folder / name).exists():
            pytest.skip(f"needs {name}, which is not in {folder}; SEACHANGE_DATA says where the data are")
        return folder / name

    return find
