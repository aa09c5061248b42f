"""The lines of a decision log: what a deployment writes down and a log is read from again.

{"decision": "7f3a", "time": "2026-11-16T10:00:00Z", "context": {"age": 31}, "action": "red", "propensity": 0.25}
{"decision": "7f3a", "time": "2026-11-16T10:04:09Z", "reward": 1.0}

A line with an action is a decision: the raw record that was decided on, the action's name and how likely it was. Where
the actions differ from decision to decision it also has ``actions``, the names of those that could be chosen, and with
them, one entry an action, ``features`` (raw records) and ``probs`` (the whole distribution). ``model`` is the
fingerprint of what decided. A line without an action is a reward, which may come at any time, or never.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class DecisionLine(msgspec.Struct, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A decision or a reward. A field of another name is an error: what it was meant for would be lost silently."""

    decision: str
    time: datetime | None = None
    context: dict[str, Any] | None = None
    action: str | None = None
    propensity: float | None = None
    actions: list[str] | None = None
    features: list[dict[str, Any]] | None = None
    probs: list[float] | None = None
    model: str | None = None
    reward: float | None = None


def broken_rule(line: DecisionLine) -> str | None:
    """The first rule that a line breaks."""
    if line.action is None:
        if line.reward is None:
            return "a line must have an action (a decision) or a reward"
        given = (line.context, line.propensity, line.actions, line.features, line.probs)
        return None if given == (None,) * len(given) else "a decision must have an action"
    if line.reward is not None:
        return "a decision and its reward must be lines of their own"
    if line.propensity is None or line.context is None:
        return "a decision must have a context and a propensity"
    if line.actions is None:
        return "features and probs need a list of actions" if line.features or line.probs else None
    if len(set(line.actions)) < len(line.actions):
        return "actions must differ"
    if line.action not in line.actions:
        return "the action must be one of actions"
    for name, each in (("features", line.features), ("probs", line.probs)):
        if each is not None and len(each) != len(line.actions):
            return f"{name} must have one entry an action"
    return None
