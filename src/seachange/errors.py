"""The exception tree.

SeachangeError
├── LogError (ValueError)           the log breaks a rule: which one, where, how often, how to fix it
├── ParameterError (ValueError)     a parameter is invalid, by itself or with this log
├── RefusedError (ValueError)       the log cannot support the answer
├── NotFittedError (AttributeError) a learned attribute was read before ``fit``
├── ModelFileError (ValueError)     a model file is damaged or not understood
└── OutputError (OSError)           an output exists already or cannot be written

SeachangeWarning (UserWarning)      the work continues, but the user should know
├── NoChangeWarning                 one state explains the log as well as several
└── UnmatchedStatesWarning          states of an earlier model are not in the log

Errors and warnings have two fields, ``problem`` and ``fix``. Their text shows the Python form of the fix;
``shell_text`` shows the command-line form.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Fix:
    """How to solve a problem, as a sentence for each audience; ``shell`` is None if no option does it."""

    python: str
    shell: str | None = None


class _Message(Exception):  # noqa: N818
    """A problem and, if there is one, its fix."""

    def __init__(self, problem: str, fix: Fix | None = None) -> None:
        super().__init__(problem if fix is None else f"{problem} {fix.python}")
        self.problem, self.fix = problem, fix

    @property
    def shell_text(self) -> str:
        """The message for users of the command line."""
        return self.problem if self.fix is None or self.fix.shell is None else f"{self.problem} {self.fix.shell}"


class SeachangeError(_Message):
    """Base class of all errors of this package."""


class LogError(SeachangeError, ValueError):
    """The log breaks a rule."""


class ParameterError(SeachangeError, ValueError):
    """A parameter is invalid, by itself or with this log."""


class RefusedError(SeachangeError, ValueError):
    """The log cannot support the answer; ``force=True`` returns it anyway."""


class NotFittedError(SeachangeError, AttributeError):
    """A learned attribute was read before ``fit``."""


class ModelFileError(SeachangeError, ValueError):
    """A model file is damaged or not understood."""


class OutputError(SeachangeError, OSError):
    """An output exists already or cannot be written."""


class SeachangeWarning(_Message, UserWarning):
    """The work continues, but the user should know."""


class NoChangeWarning(SeachangeWarning):
    """One state explains the log as well as several."""


class UnmatchedStatesWarning(SeachangeWarning):
    """States of an earlier model are not in the log."""


def require(holds: bool, rule: str, error: type[SeachangeError] = ParameterError) -> None:
    """Raise an ``error`` with the text ``rule`` unless it ``holds``."""
    if not holds:
        raise error(rule)


def warn(
    problem: str, fix: Fix | None = None, *, stacklevel: int = 2, category: type[SeachangeWarning] = SeachangeWarning
) -> None:
    """Like ``warnings.warn``; by default at the line that called the function that warns."""
    warnings.warn(category(problem, fix), stacklevel=stacklevel + 1)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" Did you mean 'action'?"``, to end a message with; empty if no known word is close."""
    from difflib import get_close_matches

    spelled = {each.lower().lstrip("-").replace("_", " "): each for each in known}
    wanted = word.lower().lstrip("-").replace("_", " ")
    close = get_close_matches(wanted, spelled, n=1) or [each for each in spelled if each.startswith(wanted)]
    return f" Did you mean {spelled[close[0]]!r}?" if close and wanted else ""
