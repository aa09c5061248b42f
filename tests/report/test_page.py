"""What a report says, and that nothing in it comes from elsewhere or runs that should not."""

import json
import re
import warnings

import numpy as np
import pytest

import seachange as sc
from report.pages import HOSTILE, Elements, learned, page_and_findings, two_worlds, words
from seachange.analysis.report_content import as_document, report_content
from seachange.analysis.timeline import round_ticks, time_ticks
from seachange.errors import ParameterError, SeachangeWarning
from seachange.model_file import Provenance
from seachange.report.layout import Numbers
from seachange.report.page import page_of
from seachange.report.summary_section import headline


@pytest.fixture(scope="module")
def report(later, model):
    return page_and_findings(later, model, commands=["seachange report later.csv"])


def figures_of(page):
    return json.loads(re.search(r'<script type="application/json" id="figures">(.*?)</script>', page, re.S)[1])


def test_the_headline_has_the_numbers_of_evaluate_deployment(report, later, model):
    page, found = report
    expected = sc.evaluate_deployment(later, model)
    assert found.comparison.switching.estimate == expected
    assert found.comparison.single.estimate == expected.single
    assert found.comparison.logging.estimate == expected.logging
    said = headline(found)[0]
    digits = [float(number) for number in re.findall(r"\d+\.\d+", said)]
    assert digits == pytest.approx([expected.value, expected.low, expected.high], abs=0.0051)
    assert said in words(page)


def test_differences_are_those_of_the_values(report):
    answer = report[1].comparison
    assert answer.over_logging.value == pytest.approx(answer.switching.estimate.value - answer.logging.estimate.value)
    assert answer.over_single.value == pytest.approx(answer.switching.estimate.value - answer.single.estimate.value)
    # Two policies that are judged by the same rewards differ by less noise than both have.
    assert answer.over_logging.std_error < answer.switching.estimate.std_error + answer.logging.estimate.std_error
    assert answer.over_logging.low > 0


def test_the_parts_come_in_the_order_of_questions(report):
    page, _ = report
    parts = [value for tag, name, value in Elements(page).attributes if tag == "section" and name == "id"]
    assert parts == ["summary", "states", "differences", "policies", "values", "diagnostics", "settings"]
    assert "seachange report later.csv" in words(page)


def test_nothing_is_fetched_from_elsewhere(report):
    page, _ = report
    found = Elements(page)
    assert not {"img", "iframe", "object", "embed", "audio", "video", "form", "base"} & set(found.tags)
    for tag, name, value in found.attributes:
        if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
            assert value.startswith(("#", "data:")), (tag, name, value)
    assert "http" not in page.replace("http-equiv", "")
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(|sendBeacon", "".join(found.scripts))
    assert not re.search(r"url\(|@import|@font-face", page)
    assert "default-src 'none'" in page


def test_names_from_a_log_are_text_and_nothing_else():
    log = two_worlds(names=HOSTILE)
    page, _ = page_and_findings(two_worlds(seed=1, start=1500, names=HOSTILE), learned(log))
    found = Elements(page)
    assert "img" not in found.tags
    assert found.tags.count("script") == 2
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    texts = "".join(found.texts)
    for name in HOSTILE:
        assert name in texts, "the name is there, as it is"
    assert "49" not in re.findall(r"& (\d+)", texts)


def test_numbers_of_figures_are_numbers(report):
    page, _ = report
    text = re.search(r'id="figures">(.*?)</script>', page, re.S)[1]
    assert not re.search(r"NaN|Infinity|undefined", text)
    figures = figures_of(page)
    assert set(figures) == {"states", "values"}
    assert len(figures["states"]["edges"]) == len(figures["states"]["probs"]) + 1
    assert not re.search(r"\b(nan|inf|None|undefined)\b", words(page))
    for _, name, value in Elements(page).attributes:
        if name in ("d", "x", "y", "width", "height", "style", "viewbox"):
            assert not re.search(r"nan|inf|None", value), (name, value)


def test_what_a_program_reads_is_what_the_page_says(report):
    _, found = report
    document = json.loads(json.dumps(as_document(found), allow_nan=False))
    assert document["comparison"]["switching"]["estimate"]["value"] == found.comparison.switching.estimate.value
    assert document["states"]["n_states"] == 2
    assert len(document["policies"]["probs"]) == 2
    assert document["holdout"]["kind"] == "unseen"


def test_a_model_is_not_judged_on_what_it_learned_from(model):
    log = two_worlds()
    page, found = page_and_findings(log, model)
    assert found.holdout.kind == "held out"
    assert found.holdout.first_round == 900
    # The same by hand: learn alike from the first part, judge on the rest.
    alike = sc.learn(log[:900], oracle=sc.HMMOracle(n_states=2, align_to=model.oracle), objective=model.learner)
    expected = sc.evaluate_deployment(log[900:], alike)
    assert found.comparison.switching.estimate.value == pytest.approx(expected.value, rel=1e-9)
    assert found.comparison.over_single.value == pytest.approx(expected.gain.value, rel=1e-9)
    assert "learned from this log" in words(page)


def test_a_log_too_short_to_learn_alike_is_refused_and_the_rest_is_reported():
    log = two_worlds(n=1, contexts=False)
    model = learned(two_worlds(contexts=False))
    model = sc.SwitchingModel(**(vars(model) | {"provenance": Provenance.of(log)}))
    page, found = page_and_findings(log, model)
    assert found.comparison is None
    assert "This log cannot show what this model would earn" in words(page)
    assert "later log" in words(page)


def test_a_log_of_other_actions_is_not_a_log_of_the_model(model):
    with pytest.raises(ParameterError, match="the action 'a', which the model does not have"):
        report_content(two_worlds(seed=1, names=("a", "b", "c")), model)


@pytest.mark.parametrize("timed", [True, False])
def test_rounds_that_a_model_knows_are_left_out(timed):
    log = two_worlds(n=2100, timed=timed)
    model = learned(log[:1500])
    _, found = page_and_findings(log, model)
    assert (found.holdout.kind, found.holdout.first_round, found.holdout.n_rounds) == ("rest", 1500, 600)
    assert found.comparison.logging.estimate.value == pytest.approx(log.rewards[1500:].mean())


def test_a_refusal_comes_with_a_fix():
    model = learned(two_worlds())
    log = two_worlds(seed=1, start=1500)
    rounds = np.flatnonzero(log.actions == 1)
    alone = log.take(rounds).with_propensities(np.ones(len(rounds)))
    page, found = page_and_findings(alone, model)
    assert found.comparison.switching.estimate is None
    said = words(page)
    assert "This log cannot show what switching would earn." in said
    assert "never took" in said
    assert "log with some exploration" in said
    assert "force=True" not in page
    assert "problem Support" in said


def test_a_log_without_propensities_names_the_fix(model):
    page, found = page_and_findings(two_worlds(seed=1, start=1500, propensities=False), model)
    assert [reason.rule for reason in found.comparison.switching.refusals] == ["propensities"]
    assert "--estimate-propensities" in words(page)


def test_estimated_propensities_are_reported(model):
    log = two_worlds(seed=1, start=1500, propensities=False)
    log = log.with_propensities(sc.estimate_propensities(log), estimated=True)
    page, found = page_and_findings(log, model)
    assert "Estimated, not logged." in words(page)
    assert len([note for note in found.notes if "uses estimated propensities" in str(note.reason)]) == 1


def test_states_of_a_detector_are_judged_by_the_deployment_too():
    model = learned(two_worlds(contexts=False), "change-point", "auto")
    assert model.n_states == 2
    log = two_worlds(seed=1, start=1500, contexts=False)
    page, found = page_and_findings(log, model)
    expected = sc.evaluate_deployment(log, model)
    assert found.comparison.switching.estimate == expected
    assert found.comparison.over_single == expected.gain
    assert np.isfinite(found.values.switching.values).any()
    assert "is simulated with the fitted model" in words(page)


def test_one_state_is_compared_with_the_log_alone():
    model = learned(two_worlds(), "none")
    page, found = page_and_findings(two_worlds(seed=1, start=1500), model)
    assert found.comparison.single is None
    assert found.comparison.over_single is None
    assert "This policy would earn" in words(page)
    assert "best single policy" not in words(page)


@pytest.mark.parametrize("timed", [True, False])
def test_logs_with_and_without_times_have_an_axis(timed, model):
    page, _ = page_and_findings(two_worlds(seed=1, start=1500, timed=timed, contexts=True), model)
    assert figures_of(page)["states"]["kind"] == ("date" if timed else "round")
    assert ("Jan" in words(page)) == timed


def test_a_long_log_of_many_states_and_actions_stays_small():
    generator = np.random.default_rng(0)
    n, n_actions, n_states = 60_000, 60, 12
    states = generator.integers(n_states, size=n)  # as restless as can be
    names = [f"a rather long name of product {i}, in a large size and a dark colour" for i in range(n_actions)]
    log = sc.BanditLog.from_arrays(
        generator.integers(n_actions, size=n), generator.random(n), np.full(n, 1 / n_actions), action_names=names
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        model = sc.learn(log, oracle=sc.KnownStates(states), objective="dm")
        page = page_of(report_content(log, model))
    assert len(page.encode()) < 1_000_000
    assert len(figures_of(page)["states"]["rounds"]) <= 2_000


def test_sequences_have_shares_of_rounds_instead_of_segments():
    log = two_worlds(n=1200, contexts=False)
    several = sc.BanditLog.from_arrays(
        log.actions, log.rewards, log.propensities, times=log.times, n_actions=3, sequences=np.arange(1200) % 40
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        page, found = page_and_findings(several, learned(several))
    assert found.states.n_chains == 40
    assert "Share of rounds in each state" in words(page)


def test_axes_have_round_ticks():
    assert [said for _, said in round_ticks(0.18, 0.68, 5)] == ["0.2", "0.3", "0.4", "0.5", "0.6"]
    assert [said for _, said in round_ticks(-1.0, 1.0, 4)] == ["−1.0", "−0.5", "0.0", "0.5", "1.0"]
    start = np.datetime64("2026-01-13T12:00", "s").astype(float)
    assert [said for _, said in time_ticks("date", start, start + 3 * 86_400, 5)] == ["Jan 14", "Jan 15", "Jan 16"]
    assert [said for _, said in time_ticks("date", start, start + 4000, 4)] == ["12:00", "12:30", "13:00"]
    assert [said for _, said in time_ticks("date", start, start + 90 * 86_400, 5)] == [
        "Feb 2026",
        "Mar 2026",
        "Apr 2026",
    ]
    assert [said for _, said in time_ticks("round", 0, 12_000, 4)] == ["0", "5,000", "10,000"]


@pytest.mark.parametrize(
    ("error", "value", "said"), [(0.0104, 0.64091, "0.641"), (0.004, 0.64091, "0.641"), (18.0, 12345.6, "12,346")]
)
def test_numbers_have_the_decimals_that_their_error_allows(error, value, said):
    assert Numbers([error]).format(value) == said
    assert Numbers([error]).format(-value) == f"−{said}"
