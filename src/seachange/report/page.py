"""The report page: sections, style and script in one HTML file that loads nothing.

To add a section, write a module with a ``Section`` and list it in ``SECTIONS``. Its contract test is
``tests/contracts/test_report_sections.py``.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seachange.analysis.formatting import count_of, describe_contexts, stored_time_text
from seachange.analysis.report_content import ReportContent
from seachange.figures import color_of, ink_on
from seachange.report import (
    diagnostics_section,
    differences_section,
    over_time_section,
    policies_section,
    settings_section,
    states_section,
    summary_section,
)
from seachange.report.layout import Section, basis_of, signed

SECTIONS: list[Section] = [
    summary_section.SECTION,
    states_section.SECTION,
    differences_section.SECTION,
    policies_section.SECTION,
    over_time_section.SECTION,
    diagnostics_section.SECTION,
    settings_section.SECTION,
]
LIGHTER = 0.22  # how much white is mixed into colors on a dark page
MACROS = '{% from "macros.html" import chip, tick_labels, scale, basis_line, tools %}\n'


def page_of(content: ReportContent, sections: Sequence[Section] = SECTIONS) -> str:
    """The page, as text."""
    loader = PackageLoader("seachange.report", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"time_text": stored_time_text, "signed": signed}
    shared = {"content": content, "states": content.states, "basis": basis_of(content), "count_of": count_of}
    views = {section.id: section.view(content) for section in sections}
    templates = {section.id: environment.from_string(MACROS + section.template) for section in sections}
    parts = {name: Markup(template.render(shared | views[name])) for name, template in templates.items()}
    data = {name: view["figure"] for name, view in views.items() if "figure" in view}
    # Escaped below, so that nothing in the JSON can end its script element.
    figures, script = json.dumps(data, allow_nan=False, separators=(",", ":")), _file("figures.js")
    return environment.get_template("report.html").render(
        **shared,
        parts=parts,
        titles={section.id: section.title(content) for section in sections},
        style=Markup(_file("style.css") + _colors(content.states.n_states)),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        figures=Markup(figures.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")),
        contexts=describe_contexts(content.learned_from.joint, content.learned_from.context_names),
    )


def _file(name: str) -> str:
    return files("seachange.report").joinpath(name).read_text(encoding="utf-8")


def _colors(n_states: int) -> str:
    """A color for each state in shapes (s), in lines (w) and behind text (b), lighter on a dark page."""

    def lighter(color: str) -> str:
        parts = bytes.fromhex(color[1:])
        return "#" + bytes(round(part + LIGHTER * (255 - part)) for part in parts).hex()

    def variables(colors: list[str]) -> str:
        return ";".join(f"--s{z}:{color};--i{z}:{ink_on(color)}" for z, color in enumerate(colors))

    light = [color_of(state) for state in range(n_states)]
    dark = variables([lighter(color) for color in light])
    rules = [
        f".s{z}{{fill:var(--s{z})}}.w{z}{{stroke:var(--s{z})}}.b{z}{{background:var(--s{z});color:var(--i{z})}}"
        for z in range(n_states)
    ]
    root = f":root{{{variables(light)}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    return "\n".join(["", root, *rules])
