"""What a dsjson line says beside its features: action, cost, probabilities, time; and whether it is a round at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from seachange.kernels import json_lines as kernel
from seachange.kernels.json_tokens import NO_MOMENT, NUMBER
from seachange.kernels.json_tokens import moments as moments_at
from seachange.kernels.letters import address_of
from seachange.log.readers.json_leaves import FAULTS, NO_TEXT, JsonLeaves, Wanted
from seachange.log.readers.leaf_features import Reasons
from seachange.protocols import Bools, Floats, Ints

if TYPE_CHECKING:
    import polars

SEVERAL_SLOTS = "several slots are chosen for at once (conditional bandit or slates); a round has one action"
FORBIDDEN = {
    "_outcomes": SEVERAL_SLOTS,
    "_slot": SEVERAL_SLOTS,
    "_label_ca": "the action is a number on a line (continuous actions), not one of a list",
    "_label": "the label is not at the top of the line",
    "__aid": "the actions' features are kept elsewhere (deduplicated log)",
}
COSTS = ("_label_cost", "_label_Cost")
PROBABILITIES = ("_label_probability", "_label_Probability")
ACTIONS = ("_label_Action", "_label_action")
FLAGS = ("_skipLearn", "_deferred", "DeferredAction")
WANTED = Wanted(
    values=(*COSTS, *PROBABILITIES, *ACTIONS, *FLAGS, "_labelIndex", "pdrop", "Timestamp", "RewardValue"),
    texts=("EventId",),
    lists=("a", "p", "_p"),
    objects=("o",),
    refused=("_outcomes", "_label_ca", "_label"),
    inner=(("o", "DeferredAction"), ("o", "ActionTaken")),
    features="c",
    items="_multi",
    underscored=("_tag", "_text"),
    forbidden=FORBIDDEN,
)  # fmt: skip
# Writers round: probabilities to single precision or to some digits.
SUM_TOLERANCE = 1e-4
ROUNDING = 1e-7  # sums that are further off are mended
STATED_TOLERANCE = 1e-5


@dataclass(frozen=True, eq=False)
class Labels:
    """Of every line of a block; what stands in lines with a reason means nothing."""

    reasons: Reasons  # why a line is no round
    costs: Floats
    actions: Ints  # from 0 on
    propensities: Floats
    probs: Floats  # of every item, NaN where the line does not say
    with_probs: Bools
    dropped: Floats  # the probability that an event like this was not logged
    times: polars.Series
    events: polars.Series


def labels_of(leaves: JsonLeaves) -> Labels:
    """Read and check what is not a feature."""
    lines = _Lines(leaves)
    refuse = lines.reasons.give
    cost, stated = lines.number(*COSTS), lines.number(*PROBABILITIES)
    refuse(lines.has("RewardValue") & ~lines.has(*COSTS), "an observation that was joined to no decision")
    refuse(leaves.n_items == 0, "there is no decision in it: c has no list of actions _multi")
    for name in FLAGS:
        refuse(lines.has(name) & ~lines.flag(name) & ~lines.unflagged(name), f"{name} is neither true nor false")
    refuse(lines.flag("_skipLearn"), "marked as not to be learned from (_skipLearn)")
    activated = lines.flag("o.ActionTaken") | lines.unflagged("o.DeferredAction")
    never = lines.flag("_deferred") | (lines.flag("DeferredAction") & ~activated)
    refuse(never, "the decision was put off and never carried out (DeferredAction)")
    refuse(~lines.has(*COSTS), "there is no _label_cost")
    refuse(np.isnan(cost), "_label_cost is not a number")
    dropped = np.where(lines.has("pdrop"), lines.number("pdrop"), 0.0)
    refuse(~((dropped >= 0) & (dropped < 1)), "pdrop is not a probability below 1")
    actions, probs, with_probs = _choices(lines)
    refuse(lines.has(*ACTIONS) & (lines.number(*ACTIONS) != actions + 1), "_label_Action is not the first of a")
    refuse(lines.has("_labelIndex") & (lines.number("_labelIndex") != actions), "_labelIndex is not that of a")
    propensities = np.where(with_probs, probs[np.minimum(lines.offsets[:-1] + actions, len(probs) - 1)], stated)
    refuse(~with_probs & ~lines.has(*PROBABILITIES), "there is no probability, neither p nor _label_probability")
    refuse(~((propensities > 0) & (propensities <= 1)), "the probability of the action taken is not in (0, 1]")
    # Some writers multiply by the probability that the event was logged.
    alike = [np.abs(stated - wanted) <= STATED_TOLERANCE for wanted in (propensities, propensities * (1 - dropped))]
    refuse(lines.has(*PROBABILITIES) & ~(alike[0] | alike[1]), "_label_probability is not the first of p")
    refuse(~with_probs & (dropped > 0), "with pdrop, it takes p to know the probability of the action")
    times, events = lines.times(), lines.texts("EventId")
    return Labels(lines.reasons, cost, actions, propensities, probs, with_probs, dropped, times, events)


def _choices(lines: _Lines) -> tuple[Ints, Floats, Bools]:
    """The action taken, by a; and p in the order of the items."""
    leaves, refuse, refuse_lines = lines.leaves, lines.reasons.give, lines.reasons.give_to
    chosen, listed = leaves.found(lines.leaves.known["a"]), leaves.found(leaves.known["p"], leaves.known["_p"])
    counts = np.bincount(chosen.rows, minlength=len(leaves))
    p_counts = np.bincount(listed.rows, minlength=len(leaves))
    refuse(counts == 0, "there is no list of actions a")
    refuse(counts != leaves.n_items, "a does not have as many actions as _multi")
    refuse((p_counts != leaves.n_items) & (p_counts > 0), "p does not have as many probabilities")
    sizes = leaves.n_items[chosen.rows]
    off = ~chosen.of_kind(NUMBER) | (chosen.numbers != np.floor(chosen.numbers))
    off |= ~((chosen.numbers >= 1) & (chosen.numbers <= sizes))
    refuse_lines(chosen.rows[off], "a has something else than numbers of actions, from 1 on")
    off = ~listed.of_kind(NUMBER) | ~((listed.numbers >= 0) & (listed.numbers <= 1 + SUM_TOLERANCE))
    refuse_lines(listed.rows[off], "p has something else than probabilities")
    good = lines.reasons.none()
    mine = good[chosen.rows]
    place = lines.offsets[chosen.rows[mine]] + chosen.numbers[mine].astype(np.int64) - 1
    hits = np.bincount(place, minlength=lines.offsets[-1])
    refuse_lines(lines.line_of_item[(hits != 1) & good[lines.line_of_item]], "a names an action twice")
    with_probs = p_counts > 0
    probs = np.full(max(int(lines.offsets[-1]), 1), np.nan)
    probs[place[with_probs[chosen.rows[mine]]]] = listed.numbers[good[listed.rows]]
    sums = np.bincount(listed.rows, listed.numbers, len(leaves))
    refuse(with_probs & (np.abs(sums - 1) > SUM_TOLERANCE), "p does not sum to 1")
    rounded = with_probs & (np.abs(sums - 1) > ROUNDING)
    if rounded.any():
        probs[: len(lines.line_of_item)] /= np.where(rounded, sums, 1.0)[lines.line_of_item]
    actions = np.zeros(len(leaves), np.int64)
    first = np.searchsorted(chosen.rows, np.flatnonzero(good))
    actions[good] = chosen.numbers[first].astype(np.int64) - 1
    return actions, probs, with_probs


class _Lines:
    """The lines of a block, with the reasons why some are no rounds."""

    def __init__(self, leaves: JsonLeaves) -> None:
        self.leaves = leaves
        self.reasons = Reasons(len(leaves))
        for k in np.flatnonzero(leaves.faults).tolist():
            self.reasons.texts[k] = _fault(leaves, k)
        self.offsets: Ints = np.concatenate([[0], np.cumsum(leaves.n_items)])
        self.line_of_item: Ints = np.repeat(np.arange(len(leaves)), leaves.n_items)

    def has(self, *names: str) -> Bools:
        """Where one of these keys has a value."""
        present = np.zeros(len(self.leaves), bool)
        present[self.leaves.found(*(self.leaves.known[name] for name in names)).rows] = True
        return present

    def number(self, *names: str) -> Floats:
        """The number of a key, whatever its spelling; NaN where there is none or several."""
        found = self.leaves.found(*(self.leaves.known[name] for name in names))
        numbers = np.full(len(self.leaves), np.nan)
        single = found.kinds == NUMBER  # and in no array
        numbers[found.rows[single]] = found.numbers[single]
        numbers[found.rows[1:][found.rows[1:] == found.rows[:-1]]] = np.nan
        return numbers

    def flag(self, name: str, kind: int = kernel.TRUE) -> Bools:
        """Where a key is true, at least once."""
        found = self.leaves.found(self.leaves.known[name])
        flags = np.zeros(len(self.leaves), bool)
        flags[found.rows[found.of_kind(kind)]] = True
        return flags

    def unflagged(self, name: str) -> Bools:
        """Where a key is false, at least once."""
        return self.flag(name, kernel.FALSE)

    def texts(self, name: str) -> polars.Series:
        """The text of a key, null where there is none."""
        import polars

        found = self.leaves.found(self.leaves.known[name])
        codes = np.full(len(self.leaves), -1, np.int64)
        words = found.kinds == kernel.STRING
        codes[found.rows[words]] = found.numbers[words].astype(np.int64)
        places = polars.Series(codes)
        return self.leaves.strings.gather(places.set(places < 0, None)).alias(name)

    def times(self) -> polars.Series:
        """Timestamps as moments in UTC."""
        import polars

        found = self.leaves.found(self.leaves.known["Timestamp"])
        moments = np.full(len(self.leaves), NO_MOMENT, np.int64)
        words = found.kinds == kernel.STRING
        letters = np.frombuffer(self.leaves.text, np.uint8)
        moments[found.rows[words]] = moments_at(address_of(letters), found.starts[words])
        none = moments == NO_MOMENT
        self.reasons.give(self.has("Timestamp") & none, "Timestamp is not a time like 2026-01-31T23:59:59.5Z")
        return polars.Series(moments.view("datetime64[us]"))


def _fault(leaves: JsonLeaves, k: int) -> str:
    """What is wrong with the form of a line."""
    fault, place = int(leaves.faults[k]), int(leaves.places[k])
    if fault == kernel.NOT_ALLOWED:
        begin = int(leaves.starts[k]) + place + 1
        key = leaves.text[begin : begin + 20].decode(errors="replace")
        return next(reason for word, reason in FORBIDDEN.items() if key.startswith(word))
    return FAULTS[fault] + ("" if fault in (kernel.TOO_LARGE, NO_TEXT) else f" at byte {place + 1}")
