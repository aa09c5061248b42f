"""How the states differ: contrasts, mean rewards by action, expected stays, and the evidence for their number."""

from typing import Any

import numpy as np

from seachange.analysis.formatting import decimals_for, describe_contrast, stay_text
from seachange.analysis.report_content import ReportContent
from seachange.analysis.state_contrasts import Contrast
from seachange.analysis.states_summary import StatesSummary
from seachange.protocols import Floats
from seachange.report.drawing import Scale, dots
from seachange.report.layout import LONG_NAME, MINUS, Numbers, Section

MOST_ACTIONS, MOST_CONTRASTS = 12, 4

TEMPLATE = """
<h2>{{ "How the states differ" if states.n_states > 1 else "Rewards by action" }}</h2>
{{ basis_line(basis and basis.of_states) }}
{% if cards %}
<div class="cards">
  {% for card in cards %}
  <div class="card">
    <h3>{{ chip(card.state) }} State {{ card.state }}</h3>
    {% if card.contrasts %}<ul>{% for text in card.contrasts %}<li>{{ text }}</li>{% endfor %}</ul>{% else %}<p class="small">{{ card.empty }}</p>{% endif %}
  </div>
  {% endfor %}
</div>
{% if cards|selectattr("contrasts")|list %}<p class="small">SE: standard errors. Only differences that are significant after correction for multiple comparisons are listed.{% if cards|selectattr("features")|list %} Feature effects are per standard deviation, or for 1 versus 0.{% endif %}</p>{% endif %}
{% elif states.n_states > 1 %}
<p class="lead">All rounds of this log are in one state, so there is nothing to compare.</p>
{% endif %}
{% if rewards %}
<h3>Mean reward by action{% if cards %} and state{% endif %}</h3>
<figure class="actions">
  {% if rewards.n_columns > 1 %}<div class="key" aria-hidden="true">{% for state in states.in_use %}<span>{{ chip(state) }} state {{ state }}</span>{% endfor %}</div>{% endif %}
  {% for row in rewards.rows %}
  <div class="row" title="{{ row.text }}"><div class="who name clamp" title="{{ row.name }}">{{ row.name }}</div><svg role="img" aria-label="{{ row.text }}" viewBox="0 0 1000 {{ row.height }}" height="{{ row.height }}" preserveAspectRatio="none">{{ row.svg }}</svg></div>
  {% endfor %}
  <div class="row last"><div class="who"></div>{{ scale(rewards.ticks) }}</div>
  <figcaption>{{ "%.0f" % (100 * states.confidence) }}% intervals{% if states.contexts != "none" %}, averaged over the rounds in which the action was taken{% endif %}. Faint dots are based on fewer than 20 rounds.
    {% if rewards.left_out %}Shown are {{ rewards.rows|length }} of the {{ rewards.n_taken }} actions that the log took{% if rewards.n_columns > 1 %}, those that differ most between states{% endif %}.{% endif %}
    {% if rewards.never_taken %}The log never took the other {{ "action" if rewards.never_taken == 1 else rewards.never_taken ~ " actions" }}.{% endif %}</figcaption>
</figure>
{% endif %}
{% if states.n_states > 1 %}
{% set optional = " roomy" if states.n_states > 2 else "" %}
<h3>How long {{ "states last" if states.in_use|length > 1 else "the state lasts" }}</h3>
<div class="wide"><table>
  <thead><tr><th>state</th><th class="n roomy">rounds</th><th class="n">share</th><th class="n roomy">segments</th><th class="n{{ optional }}">mean reward</th><th class="n">expected stay</th>{% if states.n_states > 2 %}<th>next state</th>{% endif %}</tr></thead>
  <tbody>{% for state in states.in_use %}<tr><td class="when">{{ chip(state) }} state {{ state }}</td><td class="n roomy">{{ "{:,}".format(states.counts[state]) }}</td><td class="n">{{ "{:.1%}".format(states.counts[state] / states.n_rounds) }}</td><td class="n roomy">{{ "{:,}".format(states.segment_counts[state]) }}</td><td class="n{{ optional }}">{{ numbers.format(states.mean_rewards[state]) }}</td><td class="n">{{ stays[state][0] or "–" }}{% if stays[state][1] %}<small class="under">{{ stays[state][1] }}</small>{% endif %}</td>{% if states.n_states > 2 %}<td>{% for z, share in next_states[state] %}<span class="next">{{ chip(z) }} {{ "{:.0%}".format(share) }}</span>{% endfor %}</td>{% endif %}</tr>{% endfor %}</tbody>
</table></div>
{% if states.missed_segments %}<p class="small">{{ states.missed_segments }}</p>{% endif %}
{% endif %}
{% if evidence %}
<h3>Why {{ count_of(states.n_states, "state") }}</h3>
{% if not evidence.counts %}
<p>The number of states was given. By BIC, {{ states.n_states }} states fit {{ "better than one" if evidence.bic < evidence.single_state_bic else "no better than one" }} ({{ "{:,.0f}"|signed(evidence.bic) }} vs. {{ "{:,.0f}"|signed(evidence.single_state_bic) }}; lower is better).</p>
{% else %}
<p>The chosen number of states best predicts held-out rewards. For each number of states, the table shows the gain in log-likelihood over the best smaller number.</p>
<div class="wide"><table class="evidence">
  <thead><tr><th>states</th><th>gain over the best smaller number</th><th class="n"></th><th class="n roomy">BIC</th></tr></thead>
  <tbody>{% for row in evidence.counts %}{% set chosen, first = row.n_states == states.n_states, row.n_states == 1 %}<tr{% if chosen %} class="chosen"{% endif %}><td>{{ row.n_states }}{% if chosen %} <small>chosen</small>{% endif %}</td><td><i class="bar" style="width:{{ "%.1f" % (0 if first else 100 * [row.gain, 0]|max / largest_gain) }}%"></i></td><td class="n">{% if not first %}{{ "{:+,.1f} ± {:,.1f}"|signed(row.gain, row.gain_error) }}{% endif %}</td><td class="n roomy">{{ "{:,.0f}"|signed(row.bic) }}</td></tr>{% endfor %}</tbody>
</table></div>
{% endif %}
{% if not evidence.of_this_log %}<p class="small">This evidence is from the log the model was learned from.</p>{% endif %}
{% endif %}
"""


def view(content: ReportContent) -> dict[str, Any]:
    """Contrasts, rewards by action, expected stays, and evidence."""
    states, evidence = content.states, content.states.evidence
    counts = () if evidence is None else evidence.counts
    return {
        "cards": _cards(states),
        "rewards": _rewards(states),
        "numbers": Numbers([], states.mean_rewards.tolist()),
        "stays": [stay_text(states, state) for state in range(states.n_states)],
        "next_states": [
            [(z, row[z]) for z in np.argsort(-np.nan_to_num(row), kind="stable")[:3].tolist() if row[z] > 0.005]
            for row in states.transitions.leaving
        ],
        "evidence": evidence if counts or states.n_states > 1 else None,
        "largest_gain": max((abs(count.gain) + count.gain_error for count in counts[1:]), default=1.0) or 1.0,
    }


def _cards(summary: StatesSummary) -> list[dict[str, Any]]:
    """The contrasts of each state as sentences; with two states, each difference once, where it is larger."""
    used, cards = summary.in_use, []
    for state in used if len(used) > 1 else []:
        contrasts = [each for each in summary.contrasts if each.state == state]
        elsewhere, empty = "in other states", "No significant differences from the other states."
        if len(used) == 2:
            other = next(each for each in used if each != state)
            elsewhere = f"in state {other}"
            empty = f"All differences are listed under state {other}." if contrasts else empty
            contrasts = [each for each in contrasts if _larger_here(each)]
        else:
            contrasts = contrasts[:MOST_CONTRASTS]
        texts = [describe_contrast(each, elsewhere, LONG_NAME, MINUS) for each in contrasts]
        with_features = any(each.feature is not None for each in contrasts)
        cards.append({"state": state, "contrasts": texts, "empty": empty, "features": with_features})
    return cards


def _larger_here(contrast: Contrast) -> bool:
    """Whether the reward, or the effect of the feature, is larger in this state."""
    here, elsewhere = contrast.here, contrast.elsewhere
    return here >= elsewhere if contrast.feature is None else abs(here) >= abs(elsewhere)


def _rewards(summary: StatesSummary) -> dict[str, Any] | None:
    """Mean reward by action and state on one scale; actions that differ most between states first."""
    cells, used = summary.cells, summary.in_use
    means = np.where(cells.rounds >= 1, cells.means, np.nan)
    steady = np.where(cells.rare, np.nan, means)[used]
    taken = np.flatnonzero(np.isfinite(means[used]).any(axis=0))
    if len(taken) == 0:
        return None
    shown = np.array(sorted(taken.tolist(), key=lambda action: -_spread(steady[:, action]))[:MOST_ACTIONS])
    low, high = (np.where(np.isnan(end), means, end) for end in (cells.low, cells.high))
    # The scale covers the intervals of reliable cells, and only the means of the others.
    ends = [np.where(cells.rare, means, end)[used][:, shown] for end in (low, high)]
    scale, rows, decimals = Scale(np.array(ends), 0.04), [], decimals_for(summary)
    for action in shown.tolist():
        marks, texts = [], []
        for state in (z for z in used if not np.isnan(means[z, action])):
            left, mean, right = (float(each[state, action]) for each in (low, means, high))
            marks.append((scale.at(left), scale.at(mean), scale.at(right), state, bool(cells.rare[state, action])))
            texts.append(f"state {state}: {mean:z,.{decimals}f} ({cells.rounds[state, action]:,.0f} rounds)")
        rows.append({
            "name": summary.action_names[action],
            "svg": dots(marks, height := max(9 * len(marks), 14)),
            "height": height,
            "text": "; ".join(texts).replace("-", MINUS),
        })  # fmt: skip
    return {
        "rows": rows,
        "ticks": scale.ticks(5),
        "left_out": len(taken) - len(rows),
        "n_taken": len(taken),
        "never_taken": summary.n_actions - len(taken),
        "n_columns": len(used),
    }


def _spread(means: Floats) -> float:
    known = means[np.isfinite(means)]
    return float(np.ptp(known)) if len(known) > 1 else -1.0


SECTION = Section(
    "differences", lambda content: "Differences" if content.states.n_states > 1 else "Rewards", view, TEMPLATE
)
