"""What can go wrong, as a tree.

SeachangeError
├── LogError (ValueError)           the log breaks a rule: which one, where, how often, what to do
├── ParameterError (ValueError)     a setting cannot work with this log
├── RefusedError (ValueError)       the log cannot support the answer: why, and what would cure it
├── NotFittedError (AttributeError) something learned was asked for before ``fit``
├── ModelFileError (ValueError)     a model file that cannot be trusted or understood
└── OutputError (OSError)           an output that exists already or cannot be written

SeachangeWarning (UserWarning)      the work goes on, but the user should know
└── NoChangeWarning                 one state explains the log as well as several
"""

from __future__ import annotations

from collections.abc import Iterable


class SeachangeError(Exception):
    """Every error of ours is one."""


class LogError(SeachangeError, ValueError):
    """The log breaks a rule."""


class ParameterError(SeachangeError, ValueError):
    """A setting cannot work, by itself or with this log."""


class RefusedError(SeachangeError, ValueError):
    """An answer that the log cannot support; ``force`` gives it all the same."""


class NotFittedError(SeachangeError, AttributeError):
    """Something learned was asked for before ``fit``."""


class ModelFileError(SeachangeError, ValueError):
    """A model file that cannot be trusted or understood."""


class OutputError(SeachangeError, OSError):
    """An output that exists already or cannot be written."""


class SeachangeWarning(UserWarning):
    """The work goes on, but the user should know."""


class NoChangeWarning(SeachangeWarning):
    """One state explains the log as well as several."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to end a message with, ``" Did you mean 'action'?"``; nothing where no known word is near."""
    from difflib import get_close_matches

    spelled = {each.lower().lstrip("-").replace("_", " "): each for each in known}
    wanted = word.lower().lstrip("-").replace("_", " ")
    near = get_close_matches(wanted, spelled, n=1) or [each for each in spelled if each.startswith(wanted)]
    return f" Did you mean {spelled[near[0]]!r}?" if near and wanted else ""
