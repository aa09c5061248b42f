"""Logs and models whose reports are looked at, and what is on a page."""

from html.parser import HTMLParser

import numpy as np

import seachange as sc
from seachange.analysis.report_content import report_content
from seachange.report.page import page_of

# Names that end scripts, attributes and tags, or call elsewhere.
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "\"'><svg onload=alert(2)> & {{ 7 * 7 }}",
    "https://example.org/x.js <!-- ]]> \u2028",
)
ITEMS = ("boots", "coats", "lamps")
DAY = 86_400


def two_worlds(
    n=1500, seed=0, start=0, timed=True, names=("boots", "coats", "lamps"), contexts=True, propensities=True
):
    """Rewards of three actions in two worlds that take turns of 300 rounds, which differ in what is best."""
    generator = np.random.default_rng(seed)
    states = (np.arange(n) // 300) % 2
    actions = generator.integers(3, size=n)
    hour = generator.normal(size=n)
    rewards = np.array([[0.1, 0.5, 0.9], [0.9, 0.5, 0.2]])[states, actions] + generator.normal(0, 0.3, n)
    rewards += 0.3 * hour * (actions == 1)
    times = np.datetime64("2026-01-01", "s") + (start + np.arange(n)) * np.timedelta64(DAY // 150, "s")
    return sc.BanditLog.from_arrays(
        actions,
        rewards,
        np.full(n, 1 / 3) if propensities else None,
        contexts=hour[:, None] if contexts else None,
        times=times if timed else None,
        n_actions=3,
        action_names=names,
        context_names=["<hour>"] if contexts else None,
    )


def learned(log, oracle="hmm", n_states=2):
    """A model of two states, quickly."""
    return sc.learn(log, oracle=oracle, n_states=n_states, objective="dm")


def page_and_findings(log, model, **asked):
    """Both, of a log and a model."""
    found = report_content(log, model, log_name="later.csv", model_name="shop.seachange", **asked)
    return page_of(found), found


class Elements(HTMLParser):
    """Every tag and attribute of a page, its texts, and the text of its scripts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.texts, self.scripts, self._inside = [], [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._inside = tag

    def handle_data(self, text):
        (self.scripts if self._inside == "script" else self.texts).append(text)

    def handle_endtag(self, tag):
        self._inside = None


def words(page):
    """All text of a page, in order."""
    return " ".join(" ".join(Elements(page).texts).split())
