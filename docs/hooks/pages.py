"""What mkdocs does beside building pages: formulas, lists of pages and of public names, fences with words for tests."""

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
    """Sections of the navigation that are named by a folder hold all its pages."""
    config.nav = _with_folders(config.nav, Path(config.docs_dir))
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Formulas are drawn; words after a fence's language are for the tests."""
    markdown = TEXT.sub(lambda found: _text(found[1]), markdown)
    markdown = FORMULA.sub(lambda found: _drawn(found[1]), markdown)
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
    """A page that lives elsewhere in the repository, without its title, its links as they are from docs/."""
    text = (ROOT / place).read_text(encoding="utf-8").partition("\n")[2]
    return text.replace("](../docs/", "](")


def _drawn(formula: str) -> str:
    """The formula as a picture within the page: no script, no font and no network, alike in every browser."""
    from matplotlib import rc_context
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    out = io.StringIO()
    settings = {"mathtext.fontset": "stix", "svg.fonttype": "path", "svg.hashsalt": "seachange"}
    with rc_context({**settings, "savefig.facecolor": "none"}):  # on a light page and on a dark one
        formula = formula.replace(r"\frac", r"\dfrac")  # as TeX has fractions in displays
        math_to_image(f"${formula}$", out, prop=FontProperties(size=13), format="svg", color="#123456")
    drawing = out.getvalue()[out.getvalue().index("<svg") :].replace("#123456", "currentColor")
    drawing = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing, flags=re.DOTALL)
    label = html.escape(" ".join(formula.split()), quote=True)
    drawing = drawing.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return f'<div class="formula">{"".join(line.strip() + " " for line in drawing.splitlines())}</div>'


def _tree() -> str:
    from seachange import errors

    return f"```\n{(errors.__doc__ or '').partition(chr(10) * 2)[2].strip()}\n```"


def _reference(home: str) -> str:
    """The public names that live in a part of the package, the verbs last."""
    import seachange

    names = sorted(seachange._HOMES.get(home, ()), key=lambda name: (name[0].islower(), name))
    return "\n\n".join(f"::: seachange.{name}" for name in names)
