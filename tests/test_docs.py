"""Examples of the README and of the documentation run, and show what is printed; links and the built pages hold."""

import contextlib
import html.parser
import os
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars
import pytest

import seachange as sc
from documentation import PAGES, ROOT, blocks_of, run_page, suggested

TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
RUN = [page for page, text in TEXTS.items() if any(block.runs for block in blocks_of(text))]
LONG = [page for page in RUN if any("long" in block.words for block in blocks_of(TEXTS[page]))]


def write_clicks(folder: Path) -> None:
    """The tables that the README's examples read."""
    generator = np.random.default_rng(0)
    for name in ("clicks.csv", "later.csv"):
        n = 6000
        mood = (np.arange(n) // 1000) % 2
        item = generator.integers(3, size=n)
        rate = np.array([[0.7, 0.4, 0.2], [0.1, 0.4, 0.8]])[mood, item]
        table = {
            "ts": np.arange(n),
            "item_id": np.array(["boots", "coats", "lamps"])[item],
            "click": (generator.random(n) < rate).astype(int),
            "p": np.full(n, 1 / 3),
            "age": generator.integers(18, 80, size=n),
        }
        polars.DataFrame(table).write_csv(folder / name)


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """clicks.csv and later.csv of the README, and shop.parquet as the page about states makes it."""
    folder = tmp_path_factory.mktemp("logs")
    write_clicks(folder)
    with contextlib.chdir(folder):
        exec(next(blocks_of(TEXTS["docs/states.md"])).text, {})
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch, logs):
    """Where a page's examples run."""
    shutil.copytree(logs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", [page for page in RUN if page not in ("README.md", "docs/tutorial.md")])
def test_examples_run_and_show_what_is_printed(page, folder):
    run_page(page, TEXTS[page])


@pytest.mark.long
@pytest.mark.parametrize("page", LONG)
def test_long_examples_run_and_show_what_is_printed(page, folder):
    run_page(page, TEXTS[page], long=True)


def test_the_tutorial_is_a_strangers_path_from_a_table_to_a_report(folder):
    """Four commands at most; what is typed is what the command before it said, but for the names of columns."""
    ran = run_page("docs/tutorial.md", TEXTS["docs/tutorial.md"])
    path = require_path(ran.commands, "orders.html")
    assert len(path) <= 4
    (first, said), (second, _) = path[:2]
    assert first == "seachange check orders.csv"
    # The table's columns are called as they please: the first command can only ask which is which.
    words, columns = second.split(" --columns ")
    assert words == first
    assert "--columns" in said
    for pair in columns.split(","):
        word, _, column = pair.partition("=")
        assert word in ("action", "reward", "propensity", "time")
        assert f" {column}, " in said
    require_suggested(path[1:])
    assert "Switching between 3 policies" in (folder / "orders.html").read_text(encoding="utf-8")


def test_the_readme_does_the_real_thing(folder):
    ran = run_page("README.md", TEXTS["README.md"])
    require_suggested(require_path(ran.commands, "clicks.html"))
    model, later = ran.names["model"], ran.names["later"]
    assert model.n_states == 2
    assert ran.names["state"].rounds == 1
    assert len(ran.names["next_week"]) == 6000
    found = ran.names["estimate"]
    assert found == sc.evaluate_deployment(later, model)
    # The mean of each mood's best rate is 0.75; the log itself earned 0.43.
    assert found.value > 0.65
    assert found.gain.low > 0


def require_path(commands, report):
    """The commands of a page up to its first report, which must be there."""
    ends = [i for i, (command, _) in enumerate(commands) if command.startswith("seachange report ")]
    assert Path(report).is_file()
    assert ends
    return commands[: ends[0] + 1]


def require_suggested(path):
    """Every command but the first is, letter by letter, what the one before it suggests first."""
    for (_, printed), (command, _) in pairwise(path):
        assert suggested(printed)[0] == command


def test_the_readme_has_every_method_in_its_table_of_results():
    from seachange.experiments.paper_synthetic import METHODS, PAPER

    cells = [line.split("|") for line in TEXTS["README.md"].splitlines()]
    rows = {row[1].strip(" *"): row for row in cells if len(row) == 7}
    assert set(METHODS) <= set(rows)
    for method, figure in PAPER.items():
        assert float(rows[method][2]) == figure


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md", "benchmarks/README.md"])
def test_every_file_a_page_points_to_is_there(page):
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(((?!https?:)[^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_a_page_that_shows_something_else_fails(folder):
    page = "```python\nprint('as it is')\n```\n\n```text printed\nas it ...\n```\n"
    run_page("a page", page)
    with pytest.raises(AssertionError, match="but this was printed"):
        run_page("a page", page.replace("as it ...", "as it was"))
    with pytest.raises(AssertionError, match="but this was printed"):
        run_page("a page", "```console\n$ seachange --help\nno such words\n```\n")
    with pytest.raises(AssertionError, match="ended with 2"):
        run_page("a page", "```sh\nseachange learn no-such-file.csv -o here.seachange\n```\n")


def test_a_command_that_nobody_suggested_is_reported():
    said = "Written: a.seachange\nNext: seachange report a.csv a.seachange -o a.html  # to look at\n      seachange …\n"
    require_suggested([("seachange learn", said), ("seachange report a.csv a.seachange -o a.html", "")])
    with pytest.raises(AssertionError):
        require_suggested([("seachange learn", said), ("seachange report a.csv a.seachange", "")])


def test_every_part_of_the_package_has_its_names_in_the_reference():
    shown = set(re.findall(r"<!-- public names of (\w+) -->", "".join(TEXTS.values())))
    assert shown == set(sc._HOMES)
    assert set(re.findall(r"::: seachange\.simulate\.(\w+)", TEXTS["docs/api/simulate.md"])) == set(sc.simulate.__all__)


class Asked(html.parser.HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self):
        super().__init__()
        self.places = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.places.append(given.get("src"))
        if tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.places.append(given.get("href"))


def test_the_pages_build_and_ask_the_network_for_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="pip install --group docs")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) >= len(TEXTS)
    for page in pages:
        asked = Asked()
        asked.feed(page.read_text(encoding="utf-8"))
        assert not [place for place in asked.places if place and re.match("(https?:)?//", place)], page
    for sheet in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"(url\(|@import )['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet
    concept = (tmp_path / "site" / "concepts" / "log.html").read_text(encoding="utf-8")
    formulas = re.findall(r'<div class="formula">.*?</div>', concept)
    assert formulas
    assert not [each for each in formulas if "#ffffff" in each]  # they stand on dark pages too
    learned = (tmp_path / "site" / "api" / "states.html").read_text(encoding="utf-8")
    assert "the number that best predicts held-out rewards" in learned  # the comment beside HMMOracle.n_states
