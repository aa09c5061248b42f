"""Every check, driven through ``check_log``: silent on sound logs, and its findings are complete sentences."""

import pytest

from check.broken_logs import BROKEN, broken_log
from check.tables import TableLog, sound_table
from seachange.check import check_log
from seachange.check.tally import CHECKS, Tally

SEVERITIES = {"error", "warning", "note"}


def assert_sound_findings(log, rules):
    """The findings with these rules are there, complete, and the same whatever the size of the parts."""
    found = [each for each in check_log(log).findings if each.rule in rules]
    assert {each.rule for each in found} == rules
    for each in found:
        assert each.severity in SEVERITIES
        assert each.title[0].isupper()
        assert not each.title.endswith(".")
        assert each.evidence.endswith(".")
        assert each.fix
    parts = log.parts
    for rows in (700, 37):
        log.parts = lambda _=None, rows=rows: parts(rows)
        assert [each for each in check_log(log).findings if each.rule in rules] == found
    log.parts = parts


@pytest.mark.parametrize("name", BROKEN)
def test_a_finding_is_complete_and_does_not_depend_on_the_parts(name):
    rule, log = broken_log(name)
    assert_sound_findings(log, {rule})


def test_no_check_finds_anything_in_a_sound_log():
    assert check_log(TableLog(sound_table())).findings == ()


def test_every_check_copes_with_an_empty_log_and_one_of_one_round():
    for rows in (0, 1):
        log = TableLog(sound_table().head(rows))
        assert check_log(log).n_rounds == rows


def test_registered_checks_run_once_per_log():
    assert [type(each) for each in Tally().checks[-len(CHECKS) :]] == CHECKS
    assert len({type(each) for each in Tally().checks}) == len(Tally().checks)
