"""The report page: sections, style and script in one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seachange.analysis.formatting import count_of, describe_contexts
from seachange.analysis.report_content import ReportContent
from seachange.figures import color_of, ink_on
from seachange.report.layout import Section, basis_of, signed, time_text
from seachange.report.sections import SECTIONS

# How much white is mixed into colors on a dark page.
LIGHTER = 0.22
MACROS = '{% from "macros.html" import chip, tick_labels, scale, basis_line, tools %}\n'


def page_of(content: ReportContent, sections: Sequence[Section] = SECTIONS) -> str:
    """The page, as text."""
    environment = Environment(
        loader=PackageLoader("seachange.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"time_text": time_text, "signed": signed}
    shared = {"content": content, "states": content.states, "basis": basis_of(content), "count_of": count_of}
    views = {section.id: section.view(content) for section in sections}
    parts = {
        section.id: Markup(environment.from_string(MACROS + section.template).render(shared | views[section.id]))
        for section in sections
    }
    script = _file("figures.js")
    return environment.get_template("report.html").render(
        **shared,
        parts=parts,
        titles={section.id: section.title(content) for section in sections},
        style=Markup(_file("style.css") + _colors(content.states.n_states)),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        figures=_embedded({name: view["figure"] for name, view in views.items() if "figure" in view}),
        contexts=describe_contexts(content.learned_from.joint, content.learned_from.context_names),
    )


def _file(name: str) -> str:
    return files("seachange.report").joinpath(name).read_text(encoding="utf-8")


def _colors(n_states: int) -> str:
    """A color for each state in shapes (s), in lines (w) and behind text (b), lighter on a dark page."""
    light, dark, rules = [], [], []
    for state in range(n_states):
        color = color_of(state)
        parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        lighter = "#" + "".join(f"{round(part + LIGHTER * (255 - part)):02x}" for part in parts)
        light.append(f"--s{state}:{color};--i{state}:{ink_on(color)}")
        dark.append(f"--s{state}:{lighter};--i{state}:{ink_on(lighter)}")
        rules.append(
            f".s{state}{{fill:var(--s{state})}}.w{state}{{stroke:var(--s{state})}}"
            f".b{state}{{background:var(--s{state});color:var(--i{state})}}"
        )
    return (
        f"\n:root{{{';'.join(light)}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{';'.join(dark)}}}}}\n"
        + "\n".join(rules)
    )


def _embedded(figures: dict[str, Any]) -> Markup:
    """JSON inside a script element, escaped so that nothing in it can end the element."""
    text = json.dumps(figures, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
