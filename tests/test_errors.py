"""Errors and warnings have a problem and a fix, which Python and the command line render."""

import pickle
import warnings

import pytest

from seachange.errors import Fix, LogError, OutputError, RefusedError, SeachangeError, SeachangeWarning

FIX = Fix("Pass force=True.", "Use --force.")


@pytest.mark.parametrize("kind", [LogError, OutputError, RefusedError, SeachangeWarning])
def test_a_message_is_a_problem_and_a_fix_for_its_reader(kind):
    message = kind("it broke.", FIX)
    assert (message.problem, message.fix) == ("it broke.", FIX)
    assert str(message) == "it broke. Pass force=True."
    assert message.shell_text == "it broke. Use --force."
    assert str(kind("it broke.")) == kind("it broke.").shell_text == "it broke."


def test_a_fix_without_an_option_is_not_shown_in_a_shell():
    assert LogError("it broke.", Fix("Call fit.")).shell_text == "it broke."


@pytest.mark.parametrize("kind", [LogError, OutputError])
def test_errors_cross_processes_whole(kind):
    again = pickle.loads(pickle.dumps(kind("it broke.", FIX)))
    assert isinstance(again, SeachangeError)
    assert (str(again), again.problem, again.fix) == ("it broke. Pass force=True.", "it broke.", FIX)


def test_a_warning_given_as_text_has_no_fix():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("careful.", SeachangeWarning, stacklevel=1)
    assert (caught[0].message.problem, caught[0].message.fix) == ("careful.", None)
