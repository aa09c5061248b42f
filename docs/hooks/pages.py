"""MkDocs hooks: render formulas, list pages and public names, and strip test markers from code fences."""

from __future__ import annotations

import html
import io
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FORMULA = re.compile(r"^\$\$\n(.+?)\n\$\$$", re.DOTALL | re.MULTILINE)
FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)
TEXT = re.compile(r"^<!-- text of (\S+) -->$", re.MULTILINE)
TREE = "<!-- tree of errors -->"
NAMES = re.compile(r"^<!-- public names of (\w+) -->$", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Expand folders in the navigation to all their pages."""
    config.nav = _with_folders(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace the placeholders of a page, render its formulas, and strip test markers from code fences."""
    markdown = TEXT.sub(lambda found: _text(found[1]), markdown)
    markdown = FORMULA.sub(lambda found: _rendered(found[1]), markdown)
    if TREE in markdown:
        markdown = markdown.replace(TREE, _tree())
    return NAMES.sub(lambda found: _reference(found[1]), FENCE.sub(r"\1", markdown))


def _with_folders(nav: list[Any], docs: Path) -> list[Any]:
    entries: list[Any] = []
    for entry in nav:
        title, place = next(iter(entry.items())) if isinstance(entry, dict) else (None, entry)
        if isinstance(place, list):
            entries.append({title: _with_folders(place, docs)})
        elif title and (docs / place).is_dir():
            entries.append({title: sorted(page.relative_to(docs).as_posix() for page in (docs / place).glob("*.md"))})
        else:
            entries.append(entry)
    return entries


def _text(place: str) -> str:
    """The text of a page outside docs/, without its title and with links relative to docs/."""
    text = (ROOT / place).read_text(encoding="utf-8").partition("\n")[2]
    return text.replace("](../docs/", "](")


def _rendered(formula: str) -> str:
    """Render a formula as inline SVG, which needs no scripts, fonts, or network."""
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    out = io.StringIO()
    settings = {"mathtext.fontset": "stix", "svg.fonttype": "path", "svg.hashsalt": "seachange"}
    with rc_context({**settings, "savefig.facecolor": "none"}):  # for light and dark pages
        formula = formula.replace(r"\frac", r"\dfrac")  # display-style fractions, as in TeX
        math_to_image(f"${formula}$", out, prop=FontProperties(size=13), format="svg", color="#123456")
    svg = out.getvalue()[out.getvalue().index("<svg") :].replace("#123456", "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.DOTALL)
    label = html.escape(" ".join(formula.split()), quote=True)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f'<div class="formula">{"".join(line.strip() + " " for line in svg.splitlines())}</div>'


def _tree() -> str:
    from seachange import errors

    return f"```\n{(errors.__doc__ or '').partition(chr(10) * 2)[2].strip()}\n```"


def _reference(home: str) -> str:
    """The public names of a part of the package, classes before functions."""
    import seachange

    names = sorted(seachange._HOMES.get(home, ()), key=lambda name: (name[0].islower(), name))
    return "\n\n".join(f"::: seachange.{name}" for name in names)
