"""Value over time: switching, the best single policy and the log by period, and a forecast."""

from typing import Any

import numpy as np

from seachange.analysis.formatting import count_of
from seachange.analysis.report_content import ReportContent
from seachange.analysis.value_series import ValueSeries
from seachange.report.drawing import axis_ticks, values_drawing
from seachange.report.layout import Numbers, Section, further_reasons, reasons_text, rounded, short_edges

TEMPLATE = """
<h2>Value over time</h2>
{{ basis_line(basis and basis.of_values) }}
{% if drawing %}
<p class="lead">{{ lead }}</p>
<figure class="time" data-figure="values" style="--axis:{{ drawing.axis }}rem" aria-label="Mean reward by period">
  <div class="key"><span class="switching">{{ "switching" if states.n_states > 1 else "the policy" }}, with intervals</span>{% if content.values.single %}<span class="single">best single policy</span>{% endif %}<span class="logging">logging policy</span>{% if content.values.forecast %}<span class="forecast">forecast</span>{% endif %}</div>
  {{ tools("the values") }}
  <div class="plot" style="height:{{ drawing.height }}px" tabindex="0" role="slider" aria-label="Period: arrow keys move, plus and minus zoom, 0 shows the whole log" aria-valuemin="0" aria-valuemax="100" aria-valuenow="0" aria-valuetext="the whole log">
    <svg viewBox="0 0 1000 {{ drawing.height }}" preserveAspectRatio="none" aria-hidden="true">{{ drawing.svg }}</svg>
    {% for y, text in drawing.ticks %}<div class="level" style="top:{{ "%.1f" % y }}px" aria-hidden="true">{{ text }}</div>{% endfor %}
  </div>
  <div class="ticks" aria-hidden="true">{{ tick_labels(ticks) }}</div>
  <figcaption>Mean reward per round, {{ content.values.period }}.{% if drawing.gaps %} Gaps: too few rounds.{% endif %}</figcaption>
</figure>
{% else %}
<p class="lead">No values over time{% if refusal %}. {{ refusal }}{% else %}, for the reason above.{% endif %}</p>
{% endif %}
"""


def view(content: ReportContent) -> dict[str, Any]:
    """The figure of values by period, and the forecast."""
    values = content.values
    if values is None:
        return {"drawing": None, "refusal": further_reasons(content.values_refusals, content)}
    drawing = values_drawing(values)
    ticks = axis_ticks(values.axis.kind, drawing)
    return {"drawing": drawing, "ticks": ticks, "lead": _lead(values), "figure": _figure(values, drawing)}


def _lead(values: ValueSeries) -> str:
    """The forecast, or why there is none."""
    found = values.forecast
    if found is None:
        return f"No forecast. {reasons_text(values.forecast_refusals)}"
    numbers = Numbers([found.std_error])
    shape = "the average level of" if found.degree == 0 else "a linear trend over"
    return (
        f"The next period is forecast to earn {numbers.format(found.value)} per round ({found.confidence:.0%} interval "
        f"{numbers.format(found.low)} to {numbers.format(found.high)}), based on {shape} "
        f"{count_of(found.n_periods, 'period')}. Past forecasts made this way had a root mean square error of "
        f"{numbers.format(found.past_error)}."
    )


def _figure(values: ValueSeries, drawing: dict[str, Any]) -> dict[str, Any]:
    series = [("Logging policy", values.logging)]
    if values.single is not None:
        series.append(("Best single policy", values.single))
    series.append((values.switching.name.capitalize(), values.switching))
    errors = [float(e) for _, each in series for e in (each.high - each.low) / 4 if np.isfinite(e)]
    decimals = Numbers(errors and [np.median(errors)], values.logging.values.tolist()).decimals
    found = values.forecast
    return {
        "kind": values.axis.kind,
        "low": drawing["low"],
        "high": drawing["high"],
        "edges": short_edges(values.edges),
        "decimals": decimals,
        "series": [
            {"name": name} | {key: rounded(getattr(each, key), decimals + 2) for key in ("values", "low", "high")}
            for name, each in series
        ],
        "forecast": None if found is None else rounded(np.array([found.value, found.low, found.high]), decimals + 2),
    }


SECTION = Section("values", lambda _: "Value over time", view, TEMPLATE)
