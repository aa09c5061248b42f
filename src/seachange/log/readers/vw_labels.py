"""Labels of Vowpal Wabbit's text: which action was taken, its cost and probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seachange.kernels import json_lines
from seachange.kernels import vw_lines as kernel
from seachange.kernels.decimals import powers_of_five
from seachange.kernels.letters import address_of
from seachange.log.readers.json_leaves import entered
from seachange.log.readers.leaf_features import Reasons
from seachange.log.readers.leaves import Leaves, room_for, without_bad_letters
from seachange.protocols import Floats, Ints

if TYPE_CHECKING:
    import polars

NO_TEXT = 100
FAULTS = {
    kernel.ONLY_BLANKS: "a line of blanks, which does not end a round as an empty line does",
    kernel.AFTER_BLANKS: "the line before is of blanks, which does not end a round as an empty line does",
    kernel.NAMELESS_SCALE: "a namespace has a scale but no name",
    kernel.BAD_SCALE: "the scale of a namespace is no number of at most 19 digits",
    kernel.SCALED: "in a namespace with a scale, a feature's value is no number of at most 19 digits",
    kernel.NAMELESS_FEATURE: "a feature has no name",
    kernel.NO_VALUE: "a feature has no value after its colon",
    kernel.BAD_VALUE: "a feature's value is neither a number nor a text",
    json_lines.TOO_LARGE: "a number is larger than any double",
    NO_TEXT: "letters are not UTF-8",
}
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
ACTION = r"^[1-9][0-9]{0,8}$"  # Vowpal Wabbit counts them from 1 on
PLACE = r"^[0-9]{1,9}$"  # where each action has its line, the number does not matter
# What a word before the bar is.
ALONE, LABELLED, UNLIKELY, SHARED, MALFORMED = range(5)


class VwLeaves(Leaves):
    """Leaves of Vowpal Wabbit's text."""

    repeated = ("text",)

    def __init__(self, text: bytes | bytearray, with_items: bool) -> None:
        self.original = text
        self.text, no_text = without_bad_letters(text, b"|")  # blanks would end a round
        letters = np.frombuffer(self.text, np.uint8)
        n_lines, most_words = kernel.counted(letters)
        paths = json_lines.no_paths()
        for key in ("label", "tag", "shared", "items"):
            entered(paths, 0, key, json_lines.FEATURES)
        tape, strings = room_for(most_words, most_words)
        self.starts, self.faults, self.roles, self.examples, n_leaves, n_strings = kernel.taken_apart(
            address_of(letters), n_lines, with_items, paths, tape, strings, powers_of_five()
        )
        self.faults[no_text] = NO_TEXT
        self.keep(paths, tape, n_leaves, strings.spans[:n_strings])

    def name(self, keys: tuple[str, ...]) -> str:
        """What a feature is called; bare words are all of their namespace."""
        return ".".join(filter(None, keys)) or "words"


class Words(NamedTuple):
    """Words before the bar, in the order of the text."""

    lines: Ints
    kinds: Ints
    actions: Ints
    costs: Floats
    probabilities: Floats


@dataclass(frozen=True, eq=False)
class Labels:
    """Of every example of a block; what stands in those with a reason means nothing."""

    reasons: Reasons
    lines: Ints  # in the block: where each begins
    bad_lines: dict[int, int]  # where it goes wrong, if that is known
    n_items: Ints  # with features of their own
    actions: Ints  # their numbers, or their places among the items
    costs: Floats
    propensities: Floats
    listed: Words | None = None  # all actions that could be chosen, where they have no lines of their own


def labels_of_lines(leaves: VwLeaves) -> Labels:
    """Labels where every line is an example."""
    words, n = _words(leaves, ACTION), len(leaves)
    reasons = Reasons(n)
    _give_faults(leaves, reasons, np.arange(n))
    reasons.give(np.bincount(words.lines, minlength=n) == 0, "there is no label action:cost:probability")
    reasons.give_to(words.lines[words.kinds == MALFORMED], "the label is not action:cost:probability")
    reasons.give_to(words.lines[words.kinds == SHARED], "there is a line for what actions share, but none for actions")
    pairs = np.stack([words.lines, words.actions])[:, words.kinds != MALFORMED]
    twice = np.unique(pairs, axis=1, return_counts=True)
    reasons.give_to(twice[0][0][twice[1] > 1], "an action is listed twice")
    actions, costs, propensities = _taken(words, words.lines, reasons)
    return Labels(
        reasons, np.arange(n), {}, np.zeros(n, np.int64), actions, costs, propensities, words
    )  # fmt: skip


def labels_of_examples(leaves: VwLeaves) -> Labels:
    """Labels where every line is an action or what all actions share, and an empty line ends an example."""
    words, filled = _words(leaves, PLACE), np.flatnonzero(leaves.examples >= 0)
    n = int(leaves.examples.max(initial=-1)) + 1
    reasons, of_line = Reasons(n), leaves.examples
    first = filled[np.searchsorted(of_line[filled], np.arange(n))]
    bad_lines = _give_faults(leaves, reasons, of_line)
    is_action = leaves.roles == kernel.ACTION_LINE
    n_items = np.bincount(of_line[is_action], minlength=n)
    reasons.give(n_items == 0, "there are no actions")
    shared = np.flatnonzero(leaves.roles == kernel.SHARED_LINE)
    late = shared[first[of_line[shared]] != shared]
    reasons.give_to(of_line[late], "what is shared stands behind an action, or twice")
    several = np.flatnonzero(np.bincount(words.lines, minlength=len(leaves)) > 1)
    reasons.give_to(of_line[several], "a line has several labels")
    mine = is_action[words.lines]
    words = Words(*(column[mine] for column in words))
    reasons.give_to(of_line[words.lines[words.kinds == MALFORMED]], "the label is not action:cost:probability")
    item = np.cumsum(is_action) - 1
    begin = np.concatenate([[0], np.cumsum(n_items)])[:-1]
    place = item[words.lines] - begin[of_line[words.lines]]
    actions, costs, propensities = _taken(words._replace(actions=place), of_line[words.lines], reasons)
    return Labels(reasons, first, bad_lines, n_items, actions, costs, propensities)


def _taken(words: Words, example: Ints, reasons: Reasons) -> tuple[Ints, Floats, Floats]:
    """The one action with a cost of every example."""
    reasons.give_to(example[words.kinds == UNLIKELY], "a cost has no probability")
    labelled = words.kinds == LABELLED
    counts = np.bincount(example[labelled], minlength=reasons.n)
    reasons.give(counts == 0, "no action has a cost and a probability")
    reasons.give(counts > 1, "several actions have a cost; in a round, one is taken")
    odd = labelled & ~((words.probabilities > 0) & (words.probabilities <= 1))
    reasons.give_to(example[odd], "the probability of the action taken is not in (0, 1]")
    reasons.give_to(example[labelled & ~np.isfinite(words.costs)], "the cost is larger than any double")
    actions, costs, propensities = np.zeros(reasons.n, np.int64), np.zeros(reasons.n), np.zeros(reasons.n)
    to = example[labelled]
    actions[to], costs[to], propensities[to] = (
        column[labelled] for column in (words.actions, words.costs, words.probabilities)
    )
    return actions, costs, propensities


def _words(leaves: VwLeaves, action: str) -> Words:
    """Words before the bar, read."""
    import polars

    found = leaves.found(kernel.LABEL)
    codes, place = np.unique(found.numbers.astype(np.int64), return_inverse=True)
    parts = leaves.strings.gather(codes).to_frame("word").select(
        polars.col("word"), polars.col("word").str.split(":").alias("part")
    )  # fmt: skip
    columns = parts.select(
        n=polars.col("part").list.len(),
        action=_integer(polars.col("part").list.get(0), action),
        cost=_number(polars.col("part").list.get(1, null_on_oob=True)),
        probability=_number(polars.col("part").list.get(2, null_on_oob=True)),
        shared=polars.col("word") == "shared",
    )
    n, known = columns["n"].to_numpy(), columns["action"].is_not_null().to_numpy()
    costs, probabilities = columns["cost"].to_numpy(), columns["probability"].to_numpy()
    kinds = np.full(len(codes), MALFORMED)
    kinds[known & (n == 1)] = ALONE
    kinds[known & (n == 2) & ~np.isnan(costs)] = UNLIKELY
    kinds[known & (n == 3) & ~np.isnan(costs) & ~np.isnan(probabilities)] = LABELLED
    kinds[columns["shared"].to_numpy()] = SHARED
    actions = columns["action"].fill_null(0).to_numpy()
    return Words(found.rows, kinds[place], actions[place], costs[place], probabilities[place])


def _integer(word: polars.Expr, form: str) -> polars.Expr:
    import polars

    return polars.when(word.str.contains(form)).then(word).cast(polars.Int64, strict=False)


def _number(word: polars.Expr) -> polars.Expr:
    """NaN where it is none."""
    import polars

    return polars.when(word.str.contains(NUMBER)).then(word).cast(polars.Float64, strict=False).fill_null(np.nan)


def _give_faults(leaves: VwLeaves, reasons: Reasons, example: Ints) -> dict[int, int]:
    """Reasons for what is wrong with the form of lines, and where that is."""
    lines: dict[int, int] = {}
    for k in np.flatnonzero(leaves.faults).tolist():
        if example[k] >= 0:
            reasons.texts.setdefault(int(example[k]), FAULTS[int(leaves.faults[k])])
            lines.setdefault(int(example[k]), k)
    return lines
