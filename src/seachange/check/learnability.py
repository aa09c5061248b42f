"""Whether the log can support learning, and for how many states.

Each state has its own reward model, which needs at least as many rewarded rounds as it has coefficients (with fewer, it
would memorize them), and ten per action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seachange.check.context_checks import USELESS, ContextTally
from seachange.check.log_check import Check, Finding, Learnability
from seachange.states.state_count import FEWEST_BLOCKS, MOST_STATES

if TYPE_CHECKING:
    from seachange.check.tally import Tally

EVENTS_PER_ACTION = 10
# Text with more values than this does not get a coefficient for each.
MOST_VALUES = 50
# Shorter logs have too few blocks to compare states.
FEWEST_ROUNDS = 2 * FEWEST_BLOCKS
# Findings that make counting rewards pointless.
NOTHING_TO_LEARN = {"no-rounds", "single-action", "many-actions", "reward-constant", "reward-missing", "reward-text"}


def learnability_of(tally: Tally) -> Learnability:
    """The rewarded rounds in the log, and how many each state needs."""
    contexts, rewards = tally.contexts, tally.rewards
    unused = {name for each in tally.found if each.rule in USELESS for name in each.names}
    width = sum(_coefs(each) for name, each in contexts.shared.items() if name not in unused)
    of_actions = sum(_coefs(each) for each in contexts.of_actions.values())
    by_place = contexts.pool is not None and not contexts.pool_named
    n_actions = contexts.pool[1] if by_place and contexts.pool is not None else tally.actions.count
    n_coefs = of_actions + width if of_actions else n_actions * (width + 1)
    rewarded = rewards.count - rewards.zeros
    events = min(rewarded, rewards.zeros) if rewards.clicks else rewarded
    needed = max(n_coefs, EVENTS_PER_ACTION * (1 if of_actions else n_actions), 1)
    return Learnability(n_coefs, events, needed, min(events // needed, MOST_STATES))


def _coefs(context: ContextTally) -> int:
    if context.kind in ("number", "integer", "boolean", "date"):
        return 1 + (context.n_missing > 0)
    return min(context.distinct.count, MOST_VALUES) + (context.n_missing > 0)


class LearnabilityChecks(Check):
    """Too few rounds or rewards."""

    def findings(self, tally: Tally) -> Iterator[Finding]:
        """Too few rounds, or too few rewards for one state."""
        if any(each.severity == "error" and each.rule in NOTHING_TO_LEARN for each in tally.found):
            return
        found = learnability_of(tally)
        if tally.n_rounds < FEWEST_ROUNDS:
            yield Finding(
                "few-rounds", "error", "The log is too short",
                f"The log has {tally.n_rounds:,} rounds; at least {FEWEST_ROUNDS} are needed.", "Log longer.",
                tally.n_rounds, numbers={"rounds": tally.n_rounds, "needed": FEWEST_ROUNDS},
            )  # fmt: skip
        elif found.most_states < 1:
            yield Finding(
                "few-rewards", "warning", "The log has too few rewards",
                f"The log has {found.n_events:,} rewarded rounds, but a single state needs {found.needed:,} for its "
                f"{found.n_coefs:,} coefficients.",
                "Learn a single policy with --oracle none, use fewer contexts or actions, or log longer.",
                found.n_events, numbers={"events": found.n_events, "needed": found.needed, "coefs": found.n_coefs},
            )  # fmt: skip
