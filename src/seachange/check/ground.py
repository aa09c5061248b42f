"""Can the log support learning, and for how many states?

A state has a reward model of its own. It takes at least as many rewarded rounds as the model has coefficients (with
fewer, learning by weighted rewards would learn them by heart, and ``learn`` does not try), and ten for each action.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from seachange.check.context_tally import ContextTally
from seachange.check.record import Finding, LearningGround
from seachange.check.tally import Tally
from seachange.states.selection import FEWEST_BLOCKS, MOST_STATES

EVENTS_AN_ACTION = 10
# A text with more values than this is not given a coefficient for each.
MOST_VALUES = 50
# Shorter logs have not the blocks on which states are judged.
FEWEST_ROUNDS = 2 * FEWEST_BLOCKS
# Findings about columns that no model would be given.
USELESS = (
    "reward-leak",
    "action-leak",
    "propensity-unnamed",
    "column-empty",
    "column-constant",
    "column-of-ones",
    "identifier",
    "event-id",
    "identifier-text",
)


def ground_of(tally: Tally, findings: Iterable[Finding]) -> LearningGround:
    """What there is, and what a state needs."""
    left_out = {name for each in findings if each.rule in USELESS for name in each.names}
    width = sum(_coefs(each) for name, each in tally.contexts.items() if name not in left_out)
    of_pool = sum(_coefs(each) for each in tally.pool_contexts.values())
    n_actions = tally.actions.count if tally.pool is None or tally.pool_named else tally.pool[1]
    n_coefs = of_pool + width if of_pool else n_actions * (width + 1)
    rewards = tally.rewards
    rewarded = rewards.count - rewards.zeros
    clicks = rewards.zeros + rewards.ones == rewards.count
    events = min(rewarded, rewards.zeros) if clicks else rewarded
    needed = max(n_coefs, EVENTS_AN_ACTION * (1 if of_pool else n_actions), 1)
    return LearningGround(n_coefs, events, needed, min(events // needed, MOST_STATES))


def _coefs(context: ContextTally) -> int:
    if context.kind in ("number", "whole number", "yes or no", "date"):
        return 1 + (context.n_missing > 0)
    return min(context.distinct.count, MOST_VALUES) + (context.n_missing > 0)


def judge_ground(tally: Tally, ground: LearningGround) -> Iterator[Finding]:
    """Too little to learn from."""
    if tally.n_rounds < FEWEST_ROUNDS:
        yield Finding(
            "few-rounds",
            "error",
            f"The log has {tally.n_rounds:,} rounds; with fewer than {FEWEST_ROUNDS} nothing can be said.",
            "Log longer.",
            tally.n_rounds,
        )
    elif ground.most_states < 1:
        yield Finding(
            "few-rewards",
            "warning",
            f"{ground.n_events:,} rewarded rounds for a model of {ground.n_coefs:,} coefficients, of which even one "
            f"state needs {ground.needed:,}.",
            "Learn a single policy (--oracle none), from fewer contexts or fewer actions, or log longer.",
            ground.n_events,
        )
