"""Settings: how the model was made, on what, with which versions and commands."""

from typing import Any

from seachange.analysis.report_content import ReportContent
from seachange.report.layout import MINUS, Section

TEMPLATE = """
<h2>Settings and provenance</h2>
<dl class="pairs">
  <div><dt>State oracle</dt><dd>{{ origin.oracle }}{% for name, value in origin.oracle_settings.items() %} <code>{{ name }}={{ value }}</code>{% endfor %}</dd></div>
  <div><dt>Policy learner</dt><dd>{{ origin.learner }}{% for name, value in origin.learner_settings.items() %} <code>{{ name }}={{ value }}</code>{% endfor %}{% if origin.choice %}<br>{{ origin.choice }}{% endif %}</dd></div>
  <div><dt>Learned from</dt><dd>{{ count_of(learned_from.n_rounds, "round") }}{% if learned_from.time_range %}, {{ learned_from.time_range|map("time_text")|join(" to ") }}{% endif %}, mean reward {{ "%.4g" % learned_from.mean_reward }}, propensities {{ learned_from.propensity_source }}<br><code>{{ learned_from.fingerprint }}</code></dd></div>
  <div><dt>This log</dt><dd>{{ count_of(origin.n_rounds, "round") }}{% if origin.time_range %}, {{ origin.time_range|map("time_text")|join(" to ") }}{% endif %}, rewards from {{ reward_range }}, propensities {{ origin.propensity_source }}<br><code>{{ origin.fingerprint }}</code></dd></div>
  <div><dt>Versions</dt><dd>{% for name, value in origin.versions.items() %}{{ name }} {{ value }}{{ ", " if not loop.last }}{% endfor %}</dd></div>
</dl>
{% if origin.commands %}
<h3>Commands</h3>
<pre>{% for command in origin.commands %}{{ command }}
{% endfor %}</pre>
{% endif %}
"""


def view(content: ReportContent) -> dict[str, Any]:
    """The origin of the model and of the log."""
    return {
        "origin": content.origin,
        "learned_from": content.learned_from,
        "reward_range": " to ".join(f"{end:.4g}".replace("-", MINUS) for end in content.origin["reward_range"]),
    }


SECTION = Section("settings", lambda _: "Settings", view, TEMPLATE)
