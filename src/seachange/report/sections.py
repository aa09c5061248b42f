"""The sections of the report, in order.

To add a section, write a module with a ``Section`` and list it in ``SECTIONS``; page.py needs no change.
``tests/contracts/test_report_sections.py`` then checks it.
"""

from __future__ import annotations

from seachange.report import (
    diagnostics_section,
    differences_section,
    over_time_section,
    policies_section,
    settings_section,
    states_section,
    summary_section,
)
from seachange.report.layout import Section

SECTIONS: list[Section] = [
    summary_section.SECTION,
    states_section.SECTION,
    differences_section.SECTION,
    policies_section.SECTION,
    over_time_section.SECTION,
    diagnostics_section.SECTION,
    settings_section.SECTION,
]
