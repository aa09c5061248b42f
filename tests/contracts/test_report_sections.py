"""Every section of the report, rendered alone, for logs and models of all kinds; and that adding one is easy."""

import json
import re
import warnings
from functools import cache

import numpy as np
import pytest

import seachange as sc
from report.pages import Elements, learned, two_worlds, words
from seachange.analysis.report_content import report_content
from seachange.errors import SeachangeWarning
from seachange.report.layout import Section
from seachange.report.page import SECTIONS, page_of


def later(**asked):
    return two_worlds(seed=1, start=1500, **asked)


@cache
def model():
    return learned(two_worlds())


def one_action():
    log = later()
    rounds = np.flatnonzero(log.actions == 1)
    return log.take(rounds).with_propensities(np.ones(len(rounds)))


def sequences():
    log = two_worlds(n=600, contexts=False)
    return sc.BanditLog.from_arrays(
        log.actions, log.rewards, log.propensities, times=log.times, n_actions=3, sequences=np.arange(600) % 20
    )


CASES = {
    "new rounds": lambda: (later(), model()),
    "held out": lambda: (two_worlds(), model()),
    "one state": lambda: (later(), learned(two_worlds(), "none")),
    "change points": lambda: (later(contexts=False), learned(two_worlds(contexts=False), "change-point", "auto")),
    "no propensities": lambda: (later(propensities=False), model()),
    "no support": lambda: (one_action(), model()),
    "no times": lambda: (later(timed=False), learned(two_worlds(timed=False))),
    "sequences": lambda: ((log := sequences()), learned(log)),
    "one round": lambda: (two_worlds(n=1, seed=1, start=1500), model()),
}


@pytest.fixture(scope="module", params=CASES)
def content(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        return report_content(*CASES[request.param](), commands=["seachange report"])


def test_ids_are_unique_and_can_be_linked_to():
    ids = [section.id for section in SECTIONS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z-]+", each) for each in ids)


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.id)
def test_a_section_renders_alone(section, content):
    view = section.view(content)
    assert all(isinstance(key, str) for key in view)
    json.dumps(view.get("figure"), allow_nan=False)
    page = page_of(content, [section])
    elements, text = Elements(page), words(page[page.index("<main>") :])
    assert [value for tag, name, value in elements.attributes if (tag, name) == ("section", "id")] == [section.id]
    assert [value for tag, name, value in elements.attributes if (tag, name) == ("a", "href")] == [f"#{section.id}"]
    assert {"h1", "h2"} & set(elements.tags)
    assert f">{section.title(content)}</a>" in page
    assert not re.search(r"\b(nan|inf|None|undefined)\b|\{[{%]|Reason\(|Fix\(", text)
    assert not re.search(r" a round\b|can.t be said|\btold\b|favours|, or\.|\.\.(?!\.)", text)
    for tag in ("table", "div", "figure", "details", "p", "ul", "dl", "section"):
        assert page.count(f"<{tag}>") + page.count(f"<{tag} ") == page.count(f"</{tag}>"), tag


def test_a_new_section_needs_no_change_of_the_page(content):
    section = Section(
        "sizes",
        lambda _: "Sizes",
        lambda content: {"n_rounds": content.states.n_rounds, "figure": {"points": [1, 2]}},
        '<h2>Sizes</h2><p>{{ count_of(n_rounds, "round") }}, {{ chip(0) }}</p>',
    )
    page = page_of(content, (*SECTIONS, section))
    assert f"Sizes {content.states.n_rounds:,} round" in words(page)
    assert '"sizes":{"points":[1,2]}' in page
    assert page.count("<section ") == len(SECTIONS) + 1
