"""The signature of propensities: how a column behaves if it holds the probability of the action taken.

If p_t = π_0(a_t | x_t), then for every action a that is always available

    (1/n) Σ_t 1{a_t = a} / p_t ≈ 1    to within    √Σ_t 1{a_t = a} (1/p_t² - 1/p_t) / n.

Other numbers in (0, 1] satisfy this only by coincidence: one coincidence per action if they differ between actions. If
they do not, and all actions are equally frequent, a single coincidence is enough (the mean of 1/x is the number of
actions), so further evidence is needed: the column's name, or two values that fit an epsilon-greedy policy.
"""

import re

import numpy as np

from seachange.log.bandit_log import BanditLog
from seachange.log.column_statistics import variance_between
from seachange.log.features import Number
from seachange.log.raw import PART_ROWS
from seachange.log.validation import LEAST_PROPENSITY
from seachange.protocols import Bools, Floats, Ints

MOST_ACTIONS = 2_000  # actions that are checked, in order of their numbers
FEWEST_ROUNDS, FEWEST_EACH = 500, 30
# Standard errors by which means may differ; larger standard errors than this give no evidence.
REACH, WIDEST_ERROR = 4.0, 0.25
# Largest probability of a coincidence for all actions, assuming that unrelated numbers are off by a factor of e.
COINCIDENCE = 0.005
SURE = 8.0  # standard deviations beyond which numbers differ between actions
AS_WRITTEN = 1e-3  # tolerance for values written with few digits
ROUNDING = 1e-5  # error of encoding and decoding a number in single precision
WORDS = re.compile(r"p|p0|pi|pi0|π|π0|pr|probs?|proba|probability|probabilities|propensit(y|ies)|pscores?|chances?")


class InverseSums:
    """Sums of 1 / x of a column by action, accumulated over parts of a log."""

    def __init__(self) -> None:
        self.possible = True  # all numbers are in (0, 1] so far
        self.n_rounds = 0
        self.lowest, self.highest = np.inf, -np.inf
        self.sums: Floats = np.zeros((3, 0))  # (3, K) how many, Σ 1/x, Σ 1/x²

    def add(self, values: Floats, codes: Ints) -> None:
        """Add numbers (NaN if missing) and their actions (-1 if missing)."""
        if not self.possible or not len(values):
            return
        # min and max pass NaN on only if it comes first.
        self.lowest = min(float(values.min()), self.lowest)
        self.highest = max(float(values.max()), self.highest)
        self.n_rounds += len(values)
        self.possible = self.lowest >= LEAST_PROPENSITY and self.highest <= 1.0  # false for NaN
        if not self.possible:
            self.sums = np.zeros((3, 0))
            return
        tracked = (codes >= 0) & (codes < MOST_ACTIONS)
        known, inverse = codes[tracked], 1 / values[tracked]
        width = max(self.sums.shape[1], int(known.max(initial=-1)) + 1)
        self.sums = np.pad(self.sums, ((0, 0), (0, width - self.sums.shape[1])))
        for row, weights in zip(self.sums, (None, inverse, inverse**2), strict=True):
            row += np.bincount(known, weights, width)


def behaves_like_propensities(column: InverseSums, name: str, throughout: Bools | None = None) -> bool:
    """Whether a column has the signature; ``throughout`` (K,) marks actions that are always available (None: all)."""
    counts, inverse, squares = column.sums
    there = counts > 0
    n, n_actions = column.n_rounds, int(there.sum())
    if not column.possible or n < FEWEST_ROUNDS or n_actions < 2:
        return False
    means, errors = inverse / n, np.sqrt(np.maximum(squares - inverse, 0)) / n
    always = there if throughout is None else there & throughout[: len(there)]
    reliable = always & (counts >= FEWEST_EACH) & (errors < WIDEST_ERROR)
    if reliable.sum() < 2 or counts[reliable].sum() < 0.5 * n:
        return False
    slack = REACH * errors + 1e-9
    if (means > 1 + slack).any() or (means < 1 - slack)[reliable].any():
        return False
    # Over all actions, the mean of 1/p is their number, which is a much sharper test.
    total = inverse.sum() / n
    reach = REACH * np.sqrt(max(squares.sum() / n - total**2, 0) / n) + 1e-9
    whole = bool(always[there].all())
    if total > n_actions + reach or (whole and total < n_actions - reach):
        return False
    if column.highest - column.lowest < 1e-9:
        return _named(name) and abs(column.highest * n_actions - 1) < AS_WRITTEN
    if variance_between(*column.sums[:, there])[1] > SURE:
        return bool(np.minimum(slack[reliable], 1.0).prod() < COINCIDENCE)
    return whole and reach < WIDEST_ERROR * n_actions and (_greedy(column, n_actions) or _named(name))


def unnamed_propensities(log: BanditLog) -> list[str]:
    """The columns among a log's contexts that have the signature."""
    if log.joint.kind != "shared" or log.masked:
        return []
    numbers = _numbers(log)
    columns = {column: InverseSums() for column, _, _ in numbers.values()}
    for part in log.chunks(PART_ROWS):
        for index, (column, mean, scale) in numbers.items():
            if columns[column].possible:
                values = part.contexts[:, index] * scale + mean
                columns[column].add(np.where(np.abs(values - 1) < ROUNDING, 1.0, values), part.actions)
    return [name for name, sums in columns.items() if behaves_like_propensities(sums, name)]


def _numbers(log: BanditLog) -> dict[int, tuple[str, float, float]]:
    """Contexts that are plain numbers without missing values: index, column, mean and scale."""
    if log.features is None:
        return {index: (name, 0.0, 1.0) for index, name in enumerate(log.context_names)}
    numbers, index = {}, 0
    for feature in log.features.shared:
        if isinstance(feature, Number) and feature.place is None and not (feature.marked or feature.seconds):
            numbers[index] = (feature.column, feature.mean, feature.scale)
        index += len(feature.names)
    return numbers


def _greedy(column: InverseSums, n_actions: int) -> bool:
    """Whether there are only two values: one for the greedy action, one for each of the others."""
    if abs(column.highest + (n_actions - 1) * column.lowest - 1) > AS_WRITTEN:
        return False
    count, inverse, squares = column.sums.sum(axis=1)
    low, high = 1 / column.highest, 1 / column.lowest
    # Σ (1/x - low) (high - 1/x), which is 0 only if every round has one of the two values.
    return bool((low + high) * inverse - squares - low * high * count < 1e-6 * squares)


def _named(name: str) -> bool:
    words = re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name)
    return any(WORDS.fullmatch(word.lower()) for word in words)
