"""The exit codes of the command line. None is 1, which is what a Python traceback returns."""

from __future__ import annotations

ERROR, WARNINGS, NOT_USABLE, BUG = 2, 3, 4, 70
# 128 plus the number of the signal, as shells report it.
SIGNAL = 128
INTERRUPTED = SIGNAL + 2

SUMMARY = (
    "Exit codes: 0 success; 2 error; 3 log usable with warnings (check); 4 log not usable (check); 70 bug in "
    "Seachange; 130 interrupted."
)
