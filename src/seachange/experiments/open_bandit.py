"""Open Bandit Pipeline's table on its small sample: what Thompson sampling earned, estimated from uniform choices.

Source: zr-obp, examples/obd (README.md and evaluate_off_policy_estimators.py), behaviour random, evaluation bts,
campaign all, logistic regression, 30 bootstraps. Bootstrap i is drawn from the seed i as in the published script, so
the samples are the published ones; other seeds give other samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from seachange.engine import map_in_order
from seachange.errors import LogError
from seachange.experiments.estimator_errors import Published, relative_errors
from seachange.experiments.reward_model import cross_fitted_rewards
from seachange.experiments.thompson import CLICKS, SKIPS, place_probs
from seachange.log.bandit_log import BanditLog
from seachange.log.readers.open_bandit import OpenBanditLog
from seachange.protocols import Floats, Ints

PUBLISHED = {
    "dm": Published(0.156876, 0.109898),
    "ips": Published(0.311082, 0.311170),
    "snips": Published(0.311795, 0.334736),
    "dr": Published(0.292464, 0.315485),
    "sndr": Published(0.302407, 0.328434),
    "switch-dr": Published(0.258410, 0.160598),
    "dr-os": Published(0.159520, 0.109660),
}
PUBLISHED_RUNS = 30
CAMPAIGN = "all"
N_PLACES = 3


@dataclass(frozen=True, eq=False)
class Sample:
    """What the shop logged while it chose uniformly, and what Thompson sampling earned there."""

    contexts: Floats  # (n, d) users, one-hot without each feature's first value
    item_features: Floats  # (K, e) categories by number, then the price-like feature
    actions: Ints  # (n,)
    positions: Ints  # (n,) place on the page: 0, 1, 2
    rewards: Floats  # (n,) clicks
    propensities: Floats  # (n,)
    value: float  # mean click under Thompson sampling, in a log of its own


def read_sample(folder: Path) -> Sample:
    """Read the small sample that has the folders random/all and bts/all."""
    ours, theirs = OpenBanditLog(folder / "random" / CAMPAIGN), OpenBanditLog(folder / "bts" / CAMPAIGN)
    rounds, items = _rounds(ours), ours.items
    users = [name for name in rounds.columns if name.startswith("user_feature")]
    categories = [name for name in items.columns if name != "item_feature_0"]
    if len(items) != len(CLICKS):
        raise LogError(f"campaign {CAMPAIGN!r} has {len(CLICKS)} items; item_context.csv has {len(items)}.")
    if rounds["position"].n_unique() != N_PLACES:
        raise LogError(f"the shop's page has {N_PLACES} places; the log has {rounds['position'].n_unique()}.")
    return Sample(
        contexts=np.concatenate([_one_hot(rounds[name])[:, 1:] for name in users], axis=1),
        item_features=np.stack([*(_numbered(items[name]) for name in categories), items["item_feature_0"]], axis=1),
        actions=rounds["action"].to_numpy(),
        positions=_numbered(rounds["position"]),
        rewards=rounds["reward"].to_numpy(),
        propensities=rounds["propensity"].to_numpy(),
        value=float(_rounds(theirs)["reward"].to_numpy().mean()),
    )


def run(seed: int, sample: Sample, probs: Floats) -> dict[str, float]:
    """One bootstrap: every estimator's relative error for the policy ``probs`` (K, places)."""
    picks = np.random.RandomState(seed).choice(len(sample.actions), size=len(sample.actions))
    actions, positions, rewards = sample.actions[picks], sample.positions[picks], sample.rewards[picks]
    modelled = cross_fitted_rewards(sample.contexts[picks], sample.item_features, actions, rewards, positions)
    log = BanditLog.from_arrays(actions, rewards, sample.propensities[picks], n_actions=len(probs))
    return relative_errors(log, probs.T[positions], modelled, sample.value)


def replicate(sample: Sample, seeds: Sequence[int], workers: int) -> Iterator[dict[str, float]]:
    """``run`` for every seed, in order."""
    probs = place_probs(CLICKS, SKIPS, N_PLACES)
    return map_in_order(partial(run, sample=sample, probs=probs), seeds, workers=workers, kind="processes")


def _rounds(log: OpenBanditLog) -> pl.DataFrame:
    """All rounds of a campaign in one table."""
    if not (path := log.path / f"{CAMPAIGN}.csv").is_file():
        raise LogError(f"there is no file {str(path)!r}. --data is the folder of Open Bandit's small sample.")
    parts = list(log.parts())
    if rejected := [line for part in parts for line in part.rejected]:
        raise LogError(f"line {rejected[0].line} of {str(path)!r} is no round: {rejected[0].reason}.")
    if not parts:
        raise LogError(f"{str(path)!r} has no rounds.")
    return pl.concat([part.features.with_columns(part.action, part.reward, part.propensity) for part in parts])


def _numbered(column: pl.Series) -> Ints:
    """Values as their places among the sorted distinct ones."""
    return np.unique(column.to_numpy(), return_inverse=True)[1].astype(np.int64)


def _one_hot(column: pl.Series) -> Floats:
    numbers = _numbered(column)
    return np.eye(numbers.max() + 1)[numbers]
