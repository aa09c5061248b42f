"""A report in a real browser: it renders, complains of nothing, asks for nothing, and answers pointers and keys."""

import re

import pytest

from report.browser import NAMES, Browser, find_chromium
from report.pages import HOSTILE, learned, page_and_findings, two_worlds

STATES, COURSE = 'figure[data-figure="states"]', 'figure[data-figure="values"]'
VIEW = "document.querySelector('{} .plot svg').getAttribute('viewBox').split(' ').map(Number)"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A report with hostile names."""
    model = learned(two_worlds(names=HOSTILE))
    page, _ = page_and_findings(two_worlds(seed=1, start=1500, names=HOSTILE), model)
    target = tmp_path_factory.mktemp("report") / "report.html"
    target.write_text(page, encoding="utf-8")
    return target


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(f"needs a browser, and there is none of {', '.join(NAMES)}; make chromium installs one")
    found = Browser(chromium, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def view(browser, figure):
    """Left and width of what a figure shows, of 1,000."""
    left, _, width, _ = browser.evaluate(VIEW.format(figure))
    return left, width


def tip(browser):
    return browser.evaluate("(t => t.hidden ? null : t.textContent)(document.querySelector('.tip'))")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_without_complaint_or_request(browser, path, width, scheme):
    browser.open(path, width, media=[("prefers-color-scheme", scheme)])
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [path.as_uri()]
    assert browser.evaluate("document.querySelectorAll('section').length") == 7
    # Nothing is wider than the page, and every figure is there.
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    for figure in (STATES, COURSE):
        _, _, across, high = browser.box(f"{figure} .plot")
        assert across > 0.8 * min(width, 1060) - 60
        assert high > 100
    darkness = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", darkness)[:3])) < 200) == (scheme == "dark")
    assert browser.evaluate("document.querySelectorAll('.ticks span').length") >= 4


def test_nothing_is_cut_off_or_covered_on_a_phone(browser, path):
    browser.open(path, 390)
    outside = """
      [...document.querySelectorAll('.ticks span, .scale span')].filter(e => { const b = e.getBoundingClientRect(),
        a = e.parentElement.getBoundingClientRect(); return b.left < a.left - .5 || b.right > a.right + .5 }).length
    """
    assert browser.evaluate(outside) == 0
    links = "[...document.querySelectorAll('nav a')].map(e => e.getBoundingClientRect().right)"
    assert max(browser.evaluate(links)) < 390
    # Labels stand beside the figure, and the table of changes has room.
    left, _, _, _ = browser.box(f"{COURSE} .plot")
    labels = f"[...document.querySelectorAll('{COURSE} .level')].map(e => e.getBoundingClientRect())"
    ends = browser.evaluate(f"{labels}.map(b => [b.left, b.right])")
    assert len(ends) >= 2
    assert all(start >= 0 and end < left for start, end in ends)
    changes = "(e => [e.scrollWidth, e.clientWidth])(document.querySelector('#states details .wide'))"
    needed, there = browser.evaluate(changes)
    assert needed <= there


def test_a_label_near_the_edge_keeps_its_tick(browser, path):
    browser.open(path, 390)
    ticks = f"""
      [...document.querySelectorAll('{STATES} .ticks span')].map(e => {{ const b = e.getBoundingClientRect(),
        a = e.parentElement.getBoundingClientRect(), mark = parseFloat(getComputedStyle(e, '::before').left);
        return [100 * (b.left + mark - a.left) / a.width, Number(e.style.getPropertyValue('--at'))] }})
    """
    found = browser.evaluate(ticks)
    assert len(found) >= 3
    for drawn, meant in found:
        assert drawn == pytest.approx(meant, abs=0.3)


def test_text_can_be_read_on_its_ground(browser, path):
    luminance = """
      (() => { const parse = c => c.match(/[\\d.]+/g).map(Number), lin = v => { v /= 255;
        return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 };
      const lum = c => { const [r, g, b] = parse(c).map(lin); return .2126 * r + .7152 * g + .0722 * b };
      const paper = lum(getComputedStyle(document.body).backgroundColor);
      return [...document.querySelectorAll('p, h1, h1 span, h2, figcaption, small, td, th, dt, dd, .mark, summary')]
        .map(e => lum(getComputedStyle(e).color)).map(l => (Math.max(l, paper) + .05) / (Math.min(l, paper) + .05)) })()
    """
    for scheme in ("light", "dark"):
        browser.open(path, media=[("prefers-color-scheme", scheme)])
        assert min(browser.evaluate(luminance)) >= 4.5


def test_hovering_tells_time_state_probability_and_reward(browser, path):
    browser.open(path)
    left, top, width, _ = browser.box(f"{STATES} .plot")
    browser.mouse("mouseMoved", left + 0.1 * width, top + 60)
    first = tip(browser)
    assert re.fullmatch(r"2026-01-1\d \d\d:\d\d(:\d\d)?\nstate 0: \d+%.*\nmean reward \(smoothed\): 0\.\d+", first), (
        first
    )
    browser.mouse("mouseMoved", left + 0.3 * width, top + 60)
    assert "state 1: " in tip(browser).split("\n")[1].split(",")[0]
    browser.mouse("mouseMoved", left + 0.3 * width, top - 80)
    assert tip(browser) is None
    left, top, width, _ = browser.box(f"{COURSE} .plot")
    browser.mouse("mouseMoved", left + 0.4 * width, top + 60)
    assert re.search(r"Switching: [\d.]+ \([\d.]+ to [\d.]+\)", tip(browser)), tip(browser)
    browser.mouse("mouseMoved", left + 0.99 * width, top + 60)
    assert tip(browser).startswith("next period")
    assert browser.complaints == []


def test_dragging_zooms_and_a_button_shows_all_again(browser, path):
    browser.open(path)
    left, top, width, _ = browser.box(f"{STATES} .plot")
    before = browser.evaluate(f"document.querySelector('{STATES} .ticks').textContent")
    browser.drag(left + 0.2 * width, left + 0.4 * width, top + 60)
    start, shown = view(browser, STATES)
    assert (start, shown) == pytest.approx((200, 200), abs=3)
    assert browser.evaluate(f"document.querySelector('{STATES} .ticks').textContent") != before
    # What is under the pointer is told by where it is in the zoomed figure.
    browser.mouse("mouseMoved", left + 0.5 * width, top + 60)
    assert "state 1" in tip(browser)
    browser.evaluate(f"document.querySelector('{STATES} [data-do=reset]').click()")
    assert view(browser, STATES) == pytest.approx((0, 1000))
    assert browser.evaluate(f"document.querySelector('{STATES} [data-do=reset]').disabled")
    browser.evaluate(f"document.querySelector('{COURSE} [data-do=in]').click()")
    assert view(browser, COURSE) == pytest.approx((250, 500))
    assert browser.complaints == []


def test_two_fingers_zoom_on_a_phone(browser, path):
    browser.open(path, 360)
    left, top, width, _ = browser.box(f"{STATES} .plot")
    browser.pinch((left + 0.4 * width, left + 0.6 * width), (left + 0.2 * width, left + 0.8 * width), top + 60)
    start, shown = view(browser, STATES)
    assert shown == pytest.approx(1000 / 3, rel=0.05)
    assert start == pytest.approx(1000 / 3, rel=0.05)
    assert browser.complaints == []


def test_keys_move_and_zoom(browser, path):
    browser.open(path)
    browser.evaluate(f"document.querySelector('{STATES} .plot').focus()")
    browser.key("ArrowRight")
    first = tip(browser)
    for _ in range(5):
        browser.key("ArrowRight")
    assert tip(browser) != first
    assert browser.evaluate(f"document.querySelector('{STATES} .plot').ariaValueText") == tip(browser)
    browser.key("+", "+")
    assert view(browser, STATES)[1] == pytest.approx(500)
    browser.key("End")
    assert sum(view(browser, STATES)) == pytest.approx(1000)
    browser.key("0", "0")
    assert view(browser, STATES) == pytest.approx((0, 1000))
    assert tip(browser) is None
    assert browser.complaints == []


def test_without_scripts_everything_is_there(browser, path):
    browser.open(path, scripts=False)
    document = browser.ask("DOM.getDocument", depth=-1)["root"]
    html = browser.ask("DOM.getOuterHTML", nodeId=document["nodeId"])["outerHTML"]
    assert html.count('<path class="s0"') == 1
    assert ">Jan " in html
    assert browser.complaints == []


def test_it_prints_whole(browser, path):
    browser.open(path, media=[("prefers-color-scheme", "dark")])
    browser.drag(*(browser.box(f"{STATES} .plot")[0] + x for x in (100, 300)), browser.box(f"{STATES} .plot")[1] + 60)
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 3 <= pages <= 12
    # Printing shows the whole log and everything that was folded away; afterwards all is as it was.
    assert view(browser, STATES) == pytest.approx((0, 1000))
    assert browser.evaluate("document.querySelectorAll('details:not([open])').length") > 0
    assert browser.complaints == []
