"""What each policy does: how often it takes each action, and which features it responds to."""

from typing import Any

import numpy as np
from markupsafe import Markup

from seachange.analysis.formatting import count_of, shown_name
from seachange.analysis.policy_summary import Effect, PolicySummary
from seachange.analysis.report_content import ReportContent
from seachange.report.layout import LONG_NAME, MINUS, Section

MOST_ACTIONS = 12
MOST_HABITS = 4  # policies described in a sentence; the others are in the table
OFTEN, MOST_NAMED = 0.1, 3  # actions named in a sentence: those taken at least this often, and at most this many
ALWAYS, ALMOST = 1 - 1e-6, 0.995  # from these shares on, an action is taken always, and almost always
MIRRORED = 0.015  # two effects of a feature are shown as one swap of actions if they differ by less than this

TEMPLATE = """
<h2>{{ "What each policy does" if states.n_states > 1 else "What the policy does" }}</h2>
{{ basis_line(basis and basis.of_states) }}
<p class="lead">{% for habit in habits %}{{ "The" if loop.first else "the" }} policy {% if n_policies > 1 %}of state {{ loop.index0 }} {% endif %}{{ habit }}{{ "; " if not loop.last else "" }}{% endfor %}{% if n_policies > habits|length %}; the table shows the others{% endif %}.</p>
{% macro columns() %}<tr><th>action</th><th>log</th>{% for z in range(n_policies) %}<th>{% if states.n_states > 1 %}{{ chip(z) }} state {{ z }}{% else %}policy{% endif %}</th>{% endfor %}</tr>{% endmacro %}
{% macro shares(actions) %}
{% for action in actions %}
{% set logged = "%.1f" % (100 * summary.logging[action]) %}
<tr><th scope="row" class="name"><div class="clamp" title="{{ names[action] }}">{{ names[action] }}</div></th><td class="share"><div><i style="width:{{ logged }}%"></i></div><span>{{ percent(summary.logging[action]) }}</span></td>
{%- for probs in summary.probs %}<td class="share{% if probs[action] >= probs.max() %} top{% endif %}"><div><i style="width:{{ "%.1f" % (100 * probs[action]) }}%;background:var(--s{{ loop.index0 }})"></i><u style="left:{{ logged }}%"></u></div><span>{{ percent(probs[action]) }}</span></td>{% endfor %}</tr>
{% endfor %}
{% endmacro %}
<figure>
<div class="wide"><table class="shares"><thead>{{ columns() }}</thead><tbody>{{ shares(shown) }}</tbody></table></div>
<figcaption>How often {{ "each state’s" if states.n_states > 1 else "the" }} policy takes each action, averaged over {{ "all rounds" if summary.n_sampled == states.n_rounds else count_of(summary.n_sampled, "round") }}. The thin mark shows how often it was taken in the log.</figcaption>
</figure>
{% if more %}
<details><summary>{{ count_of(more|length, "more action") }}</summary>
<div class="wide"><table class="shares"><thead>{{ columns() }}</thead><tbody>{{ shares(more) }}</tbody></table></div></details>
{% endif %}
{% if effects %}
<h3>What drives the choices</h3>
<div class="cards">
  {% for card in effects %}
  <div class="card">
    <h3>{% if n_policies > 1 %}{{ chip(card.state) }} State {{ card.state }} {% endif %}<small>learned from {{ card.learned_from }}</small></h3>
    {% for row in card.rows %}
    <div class="effect"><div><span class="name">{{ row.feature }}</span>{% if row.action %} → <span class="name">{{ row.action }}</span>{% endif %}{% if row.instead %}, not <span class="name">{{ row.instead }}</span>{% endif %}</div><div class="axis"><i class="b{{ card.state }}" style="{{ "left:50%" if row.more else "right:50%" }};width:{{ "%.1f" % row.width }}%"></i></div><div class="n">{{ row.text }}</div></div>
    {% endfor %}
  </div>
  {% endfor %}
</div>
<p class="small">How much more often an action is taken, in percentage points, when a feature is high rather than low, all else equal. High and low are one standard deviation above and below the mean, 1 and 0, or this category and the others.{% if states.contexts != "shared" %} The feature is the action’s own.{% endif %}{% if mirrored %} “A, not B” means that A gains what B loses.{% endif %}</p>
<p class="small">These are averages over {{ count_of(summary.n_effect_rows, "round") }} of this log. They have no intervals: policies learned from another log may respond differently, especially if effects are small or a policy was learned from only a few rounds.</p>
{% elif summary.n_situations is not none %}
<p class="small">The policies are tables of {{ count_of(summary.n_situations, "situation") }} and have no coefficients.</p>
{% elif states.contexts == "none" %}
<p class="small">The log has no contexts, so each policy is a single distribution over actions.</p>
{% endif %}
"""


def view(content: ReportContent) -> dict[str, Any]:
    """How often each policy takes each action, beside the log; actions with the largest changes first."""
    summary, n_policies = content.policies, len(content.policies.probs)
    changed = np.abs(summary.probs - summary.logging).max(axis=0) + summary.probs.max(axis=0)
    order = np.argsort(-changed, kind="stable").tolist()
    largest = max((abs(effect.effect) for effect in summary.effects), default=1.0)
    effects: list[dict[str, Any]] = [
        {
            "state": state,
            "learned_from": count_of(summary.learned_from[state], "round"),
            "rows": _effect_rows([effect for effect in summary.effects if effect.state == state], largest),
        }
        for state in range(n_policies)
    ]
    return {
        "summary": summary,
        "names": summary.action_names,
        "shown": order[:MOST_ACTIONS],
        "more": order[MOST_ACTIONS:],
        "percent": _percent,
        "n_policies": n_policies,
        "effects": [each for each in effects if each["rows"]],
        "habits": [_habit(summary, state) for state in range(min(n_policies, MOST_HABITS))],
        "mirrored": any(row["instead"] for each in effects for row in each["rows"]),
    }


def _effect_rows(effects: list[Effect], largest: float) -> list[dict[str, Any]]:
    """What a policy responds to; if a feature swaps one action for another, both effects are one row."""
    rows = []
    for effect in effects:
        others = [each for each in effects if each.feature == effect.feature and each is not effect]
        swapped = len(others) == 1 and abs(effect.effect + others[0].effect) < MIRRORED
        if swapped and effect.effect < 0:
            continue
        rows.append({
            "action": effect.action,
            "instead": others[0].action if swapped else None,
            "feature": effect.feature,
            "text": f"{100 * effect.effect:+.0f}".replace("-", MINUS),
            "width": 50 * abs(effect.effect) / largest,
            "more": effect.effect > 0,
        })  # fmt: skip
    return rows


def _habit(summary: PolicySummary, state: int) -> Markup:
    """What a policy does most, as the end of a sentence."""
    row, name_of = summary.probs[state], Markup('<span class="name">{}</span>')
    order = np.argsort(-row, kind="stable")[:MOST_NAMED].tolist()
    names = [name_of.format(shown_name(summary.action_names[action], LONG_NAME)) for action in order]
    if row[order[0]] >= ALMOST:
        return Markup("{} takes {}").format("always" if row[order[0]] >= ALWAYS else "almost always", names[0])
    shares = [Markup("{} ({})").format(name, _percent(row[a])) for name, a in zip(names, order, strict=True)]
    often = shares[: np.count_nonzero(row[order] >= OFTEN)]
    if not often:
        return Markup("takes no action often; its most frequent is {}").format(shares[0])
    if len(often) == 1:
        return Markup("{} takes {}").format("mostly" if row[order[0]] > 0.5 else "most often", often[0])
    return Markup("takes {} or {}").format(Markup(", ").join(often[:-1]), often[-1])


def _percent(share: float) -> str:
    return "0%" if share == 0 else "< 0.5%" if share < 0.005 else "> 99%" if 0.995 <= share < ALWAYS else f"{share:.0%}"


SECTION = Section("policies", lambda _: "Policies", view, TEMPLATE)
