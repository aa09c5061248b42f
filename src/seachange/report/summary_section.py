"""Summary: what switching would earn, compared with the logging policy and the best single policy."""

from typing import Any

import numpy as np

from seachange.analysis.comparison import Note, PolicyValue
from seachange.analysis.formatting import listed
from seachange.analysis.report_content import ReportContent
from seachange.evaluation.deployment import DeploymentEstimate, Difference
from seachange.evaluation.value_estimate import ValueEstimate
from seachange.report.drawing import Scale
from seachange.report.layout import (
    MOST_DECIMALS,
    Numbers,
    Section,
    further_reasons,
    numbers_of,
    reasons_text,
    refusals_of,
)

TEMPLATE = """
<h1>{% for sentence in headline %}{% if loop.first %}{{ sentence }}{% else %} <span>{{ sentence }}</span>{% endif %}{% endfor %}</h1>
{% if content.news %}
<div class="refusal"><p><strong>{{ content.news }}</strong> {{ advice }}</p></div>
{% endif %}
{% if refusal %}
<div class="refusal"><p><strong>Reason.</strong> {{ refusal }}</p></div>
{% endif %}
{% if basis %}<p class="ground"><strong>{{ basis.title }}.</strong> {{ basis.text }}</p>{% endif %}
{% if values %}
<figure class="compare" aria-label="Mean reward per round of each policy, with intervals">
  {% for name, row in values.shown %}
  {% set estimate = row.estimate %}
  <div class="row {{ row.role }}">
    <div class="who">{{ name }}{% if row.role == "single" %}<small>{{ row.name }}</small>{% endif %}</div>
    <div class="track">
      {% if estimate %}
      {% set left, right = values.scale.at(estimate.low), values.scale.at(estimate.high) %}
      <i class="whisker" style="left:{{ "%.2f" % left }}%;width:{{ "%.2f" % (right - left) }}%"></i>
      <i class="dot" style="left:{{ "%.2f" % values.scale.at(estimate.value) }}%"></i>
      {% endif %}
    </div>
    <div class="what">{% if estimate %}<b>{{ values.numbers.format(estimate.value) }}</b><small>{{ values.numbers.interval(estimate) }}</small>{% else %}<small>no estimate</small>{% endif %}</div>
  </div>
  {% endfor %}
  <div class="row last"><div class="who"></div>{{ scale(values.scale.ticks(4)) }}<div class="what"></div></div>
  <figcaption>Mean reward per round, with {{ values.confidence }} intervals.{% if values.simulated %} {{ values.simulated }}{% endif %}</figcaption>
</figure>
{% endif %}
{% if notes %}
<ul class="notes">{% for note in notes %}<li>{{ note }}</li>{% endfor %}</ul>
{% endif %}
{% if values and values.more_than_shown %}
<details>
  <summary>All policies and estimators</summary>
  <div class="wide"><table>
    <thead><tr><th>policy</th><th>estimator</th><th class="n">value</th><th class="n">{{ values.confidence }} interval</th><th class="n roomy">eff. sample size</th><th class="n roomy">largest weight</th></tr></thead>
    <tbody>
    {% for name, estimate, refusal in values.table %}
    <tr><td>{{ name }}</td>
    {% if not estimate %}<td colspan="5">{{ refusal or "No estimate, for the reason above." }}</td>
    {% else %}<td>{{ estimate.estimator }}</td><td class="n">{{ values.numbers.format(estimate.value) }}</td><td class="n">{{ values.numbers.interval(estimate) }}</td><td class="n roomy">{{ "{:,.0f}".format(estimate.effective_samples) }}</td><td class="n roomy">{{ "{:,.1f}".format(estimate.max_weight) }}</td>{% endif %}</tr>
    {% endfor %}
    </tbody>
  </table></div>
</details>
{% endif %}
"""


def view(content: ReportContent) -> dict[str, Any]:
    """The headline, the values on one scale, and all estimates."""
    return {
        "headline": headline(content),
        "advice": _advice(content),
        "refusal": reasons_text(refusals_of(content)),
        "notes": [note_text(note) for note in content.notes],
        "values": _values(content),
    }


def headline(content: ReportContent) -> list[str]:
    """The result in one or two sentences."""
    comparison, n_states = content.comparison, content.states.n_states
    if comparison is None:
        return ["This log cannot show what this model would earn."]
    numbers, estimate = numbers_of(comparison), comparison.switching.estimate
    if estimate is None:
        return [f"This log cannot show what {'switching' if n_states > 1 else 'this policy'} would earn."]
    who = f"Switching between {n_states} policies" if n_states > 1 else "This policy"
    interval = f"{estimate.confidence:.0%} interval {numbers.interval(estimate)}"
    first = f"{who} would earn {numbers.format(estimate.value)} per round ({interval})."
    others = (
        (comparison.over_logging, "the logging policy"),
        (comparison.over_single, "the best single policy"),
        (comparison.over_learning, "the same policy if it goes on learning"),
    )
    known = [(each, _compared(each, than, numbers)) for each, than in others if each is not None]
    clear = [text for each, text in known if each.significant]
    if unclear := [text for each, text in known if not each.significant]:
        clear.append(f"not significantly different from {' or '.join(unclear)}")
    return [first, f"That is {listed(clear)}."] if clear else [first]


def _advice(content: ReportContent) -> str:
    """What to deploy if there is a new regime."""
    learns = content.comparison is not None and content.comparison.frozen is not None
    if learns:
        return (
            "Do not deploy frozen policies. The default deployment goes on learning; or learn again with these rounds."
        )
    return "Learn again with these rounds before you deploy."


def note_text(note: Note) -> str:
    """A note as a sentence, with command-line options as fixes."""
    text = f"{note.intro}{note.reason.text(shell=True)}"
    text = f"{note.subject}: {text}" if note.subject else text
    return text[:1].upper() + text[1:]


def _compared(difference: Difference, than: str, numbers: Numbers) -> str:
    """``0.02 more than the log (+0.01 to +0.03)``, or ``the log (+0.01; −0.01 to +0.03)`` if it is not significant."""
    own = Numbers([difference.std_error])
    own.decimals = max(own.decimals, numbers.decimals)
    nearer = min(abs(difference.low), abs(difference.high))
    # More decimals if the interval would otherwise seem to end at 0.
    while difference.significant and own.decimals < MOST_DECIMALS and round(nearer, own.decimals) == 0:
        own.decimals += 1
    interval = own.interval(difference, sign=True)
    if not difference.significant:
        return f"{than} ({own.format(difference.value, sign=True)}; {interval})"
    more = "more" if difference.value > 0 else "less"
    return f"{own.format(abs(difference.value))} {more} than {than} ({interval})"


def _values(content: ReportContent) -> dict[str, Any] | None:
    """The values on one scale, and a table of all estimates."""
    comparison = content.comparison
    if comparison is None or comparison.logging.estimate is None:
        return None
    numbers, name = numbers_of(comparison), "Switching" if content.states.n_states > 1 else "The policy"
    shown = [
        (who, each)
        for who, each in (
            ("The logging policy", comparison.logging),
            ("The best single policy", comparison.single),
            ("The same, learning", comparison.learning_single),
            ("Switching, frozen", comparison.frozen),
            (name if comparison.frozen is None else "Switching, learning", comparison.switching),
        )
        if each is not None and (each.role != "single" or each.estimate is not None)
    ]
    known = [each.estimate for _, each in shown if each.estimate is not None]
    ends = [end for each in known for end in (each.low, each.value, each.high) if np.isfinite(end)]
    table = [each for _, each in shown]
    mixed = "switching by the log's rewards" if comparison.single is not None else comparison.switching.name
    table += [PolicyValue("switching", mixed, each) for each in comparison.others]
    by_state = [(f"in the rounds of state {z}", each) for z, each in enumerate(comparison.by_state) if each]
    table += [PolicyValue("switching", name, each) for name, each in by_state]
    return {
        "shown": shown,
        "scale": Scale(ends, 0.06),
        "table": [(each.name, each.estimate, further_reasons(each.refusals, content)) for each in table],
        "numbers": numbers,
        "more_than_shown": len(known) > 1,
        "confidence": f"{comparison.logging.estimate.confidence:.0%}",
        "simulated": _simulated(comparison.switching.estimate),
    }


def _simulated(estimate: ValueEstimate | None) -> str:
    """Which part of the value is simulated, in two sentences; empty if none is."""
    if not isinstance(estimate, DeploymentEstimate) or estimate.simulated_error == 0:
        return ""
    numbers = Numbers([estimate.simulated_error])
    estimated, part = numbers.format(estimate.value - estimate.simulated), numbers.format(estimate.simulated, sign=True)
    return (
        f"Of the value of switching, {estimated} is estimated from the rewards of the log, for a policy that learns "
        f"the state from them. The other {part} is simulated with the fitted model: it allows for a deployment that "
        f"sees only the rewards of its own actions{' and learns from them' if estimate.frozen is not None else ''}."
    )


SECTION = Section("summary", lambda _: "Summary", view, TEMPLATE)
