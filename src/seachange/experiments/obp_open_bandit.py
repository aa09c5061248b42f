"""Open Bandit Pipeline's table on its small sample: seven estimators of Bernoulli Thompson sampling.

Thompson sampling is the policy that the shop ran; it is evaluated on rounds with uniform random actions.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.integrate import trapezoid
from scipy.stats import beta
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

from seachange.datasets.open_bandit import OpenBanditLog
from seachange.errors import LogError
from seachange.experiments.obp_synthetic import cross_fitted_rewards, relative_errors
from seachange.log.bandit_log import BanditLog
from seachange.protocols import Floats, Ints

# The Beta priors of the 80 items of campaign "all" when logging started (Open Bandit Pipeline, prior_bts.yaml).
# fmt: off
CLICKS = (
    47, 8, 62, 142, 3, 14, 7, 857, 12, 15, 6, 100, 48, 23, 71, 61, 13, 16, 518, 30, 7, 4, 23, 8, 10, 11, 11, 18,
    121, 11, 11, 10, 14, 9, 204, 58, 3, 19, 42, 1013, 2, 328, 15, 31, 14, 138, 45, 55, 23, 38, 10, 401, 52, 6,
    3, 6, 5, 32, 35, 133, 52, 820, 43, 195, 8, 42, 40, 4, 32, 30, 9, 22, 6, 23, 5, 54, 8, 22, 65, 246,
)
SKIPS = (
    12198, 3566, 15993, 35522, 2367, 4609, 3171, 181745, 4372, 4951, 3100, 24665, 13210, 7061, 18061, 17449,
    5644, 6787, 111326, 8776, 3334, 2271, 7389, 2659, 3665, 4724, 3561, 5085, 27407, 4601, 4756, 4120, 4736,
    3788, 45292, 14719, 2189, 5589, 11995, 222255, 2308, 70034, 4801, 8274, 5421, 31912, 12213, 13576, 6230,
    10382, 4141, 85731, 12811, 2707, 2250, 2668, 2886, 9581, 9465, 28336, 12062, 162793, 12107, 41240, 3162,
    11604, 10818, 2923, 8897, 8654, 4000, 6580, 3174, 6766, 2602, 14506, 3968, 7523, 16532, 51964,
)
# fmt: on
GRID = 4001
TAIL = 1e-12  # the upper tail of every distribution that is ignored


def place_probs(clicks: npt.ArrayLike, skips: npt.ArrayLike, n_places: int) -> Floats:
    """P(action a has the k-th largest draw) (K, n_places), with independent draws θ_a ~ Beta(clicks_a, skips_a).

    ∫ f_a(x) P(exactly k - 1 of the others exceed x) dx, by the trapezoid rule.
    """
    posterior = beta(np.asarray(clicks)[:, None], np.asarray(skips)[:, None])
    draws = np.linspace(0.0, float(posterior.isf(TAIL).max()), GRID)
    densities, exceeding = posterior.pdf(draws), posterior.sf(draws)
    others = (_counts(np.delete(exceeding, action, axis=0), n_places) for action in range(len(exceeding)))
    return np.array([trapezoid(own * each, draws) for own, each in zip(densities, others, strict=True)])


def _counts(exceeding: Floats, n_places: int) -> Floats:
    """P(exactly j of the actions exceed x) (n_places, grid) for j below ``n_places``."""
    counts = np.zeros((n_places, exceeding.shape[1]))
    counts[0] = 1.0
    for above in exceeding:
        moved = counts[:-1] * above
        counts *= 1 - above
        counts[1:] += moved
    return counts


PUBLISHED = {
    "dm": (0.156876, 0.109898),
    "ips": (0.311082, 0.311170),
    "snips": (0.311795, 0.334736),
    "dr": (0.292464, 0.315485),
    "sndr": (0.302407, 0.328434),
    "switch-dr": (0.258410, 0.160598),
    "dr-os": (0.159520, 0.109660),
}
PUBLISHED_RUNS = 30
CAMPAIGN = "all"
N_PLACES = 3


@dataclass(frozen=True, eq=False)
class Sample:
    """Rounds logged with uniform random actions; Thompson sampling, and what it earned."""

    contexts: Floats  # (n, d) users, one-hot without the first value of each feature
    item_features: Floats  # (K, e) category numbers, then the price-like feature
    actions: Ints  # (n,)
    positions: Ints  # (n,) 0, 1 or 2
    rewards: Floats  # (n,) clicks
    propensities: Floats  # (n,)
    probs: Floats  # (K, places) of Thompson sampling
    value: float  # its click rate, from its own log


def read_sample(folder: Path) -> Sample:
    """Read the small sample, with the folders random/all and bts/all."""
    ours, theirs = OpenBanditLog(folder / "random" / CAMPAIGN), OpenBanditLog(folder / "bts" / CAMPAIGN)
    rounds, items = _rounds(ours), ours.items
    users = rounds.select(pl.col("^user_feature.*$"))
    price, categories = items["item_feature_0"], items.drop("item_feature_0")
    if len(items) != len(CLICKS):
        raise LogError(f"campaign {CAMPAIGN!r} has {len(CLICKS)} items; item_context.csv has {len(items)}.")
    if rounds["position"].n_unique() != N_PLACES:
        raise LogError(f"the page has {N_PLACES} positions; the log has {rounds['position'].n_unique()}.")
    return Sample(
        contexts=OneHotEncoder(drop="first", sparse_output=False).fit_transform(users.to_numpy()),
        item_features=np.column_stack([OrdinalEncoder().fit_transform(categories.to_numpy()), price]),
        actions=rounds["action"].to_numpy(),
        positions=np.unique(rounds["position"], return_inverse=True)[1],
        rewards=rounds["reward"].to_numpy(),
        propensities=rounds["propensity"].to_numpy(),
        probs=place_probs(CLICKS, SKIPS, N_PLACES),
        value=float(_rounds(theirs)["reward"].to_numpy().mean()),
    )


def run(seed: int, sample: Sample) -> dict[str, float]:
    """One bootstrap: every estimator's relative error for Thompson sampling."""
    picks = np.random.RandomState(seed).choice(len(sample.actions), size=len(sample.actions))
    actions, positions, rewards = sample.actions[picks], sample.positions[picks], sample.rewards[picks]
    predicted = cross_fitted_rewards(sample.contexts[picks], sample.item_features, actions, rewards, positions)
    log = BanditLog.from_arrays(actions, rewards, sample.propensities[picks], n_actions=len(sample.probs))
    return relative_errors(log, sample.probs.T[positions], predicted, sample.value)


def _rounds(log: OpenBanditLog) -> pl.DataFrame:
    """All rounds of a campaign."""
    if not (path := log.path / f"{CAMPAIGN}.csv").is_file():
        raise LogError(f"there is no file {str(path)!r}. --data must name the folder of Open Bandit's small sample.")
    parts = list(log.parts())
    if rejected := [line for part in parts for line in part.rejected]:
        raise LogError(f"line {rejected[0].line} of {str(path)!r} is invalid: {rejected[0].reason}.")
    if not parts:
        raise LogError(f"{str(path)!r} has no rounds.")
    return pl.concat([part.features.with_columns(part.action, part.reward, part.propensity) for part in parts])
