"""Results print in a few lines."""

import seachange as sc
from seachange.params import table_of
from seachange.policies.objective_choice import Candidate, Choice


def test_rows_stand_below_each_other():
    assert table_of("Title", [], [("a", "1"), ("long", "two")]) == "Title\n  a     1\n  long  two"
    assert table_of("Title", ("", "n"), [("a", "1"), ("b", "10")]) == "Title\n      n\n  a   1\n  b  10"
    assert table_of("Title", [], []) == "Title"


def test_a_choice_shows_its_candidates():
    choice = Choice("dm", (Candidate("dr", 0.61, 0.0, 0.0), Candidate("dm", 0.6085, 0.0015, 0.002)), 3)
    assert repr(choice).splitlines() == [
        "Choice: dm (3 held-out blocks of time)",
        "       value              gap",
        "  dr    0.61  0.0000 ± 0.0000",
        "  dm  0.6085  0.0015 ± 0.0020  chosen",
    ]


def test_values_diagnostics_and_propensities_are_short(make_log):
    log = make_log("shared", n=2000)
    policy = sc.DMLearner().fit(log).policy_
    (estimate,) = sc.evaluate(log, policy, ("dr",))
    assert repr(estimate).startswith(f"ValueEstimate(dr: {estimate.value:.4g}, 95% interval {estimate.low:.4g} to ")
    assert repr(sc.evaluate_online(log, sc.SinglePolicy(policy))).startswith("OnlineEstimate(replay: ")
    told = repr(sc.diagnose(log, policy)).splitlines()
    assert told[0] == "Diagnostics: sound"
    assert told[1].split()[:2] == ["effective", "sample"]
    told = repr(sc.propensity_report(log, sc.estimate_logging_probs(log))).splitlines()
    assert told[0] == "PropensityReport: 2,000 rounds"
    assert [line.split()[1] for line in told[-3:]] == ["0", "1", "2"]
    assert max(map(len, told)) <= 80


def test_no_value_is_reported_with_its_reason(make_log):
    log = make_log(n=20)
    found = sc.diagnose(log, sc.DMLearner().fit(log).policy_)
    assert repr(found).startswith("Diagnostics: no estimate should be given")
    assert str(found.refusals[0]) in repr(found)
