"""States over time: segments, probabilities, mean rewards and changes."""

from typing import Any

import numpy as np

from seachange.analysis.formatting import count_of, shown_name
from seachange.analysis.report_content import CLEAR, ReportContent
from seachange.analysis.states_summary import CERTAIN, Change, StatesSummary
from seachange.report.drawing import axis_ticks, states_drawing
from seachange.report.layout import LONG_NAME, Section, reward_numbers, rounded, share_text, short_edges

MOST_CHANGES = 200
DISTINCT_ERRORS = 2  # means closer than this many standard errors are not distinguished
FOUND_BY = {"hmm": ", found by a hidden Markov model", "change-point": ", found by change-point detection"}

TEMPLATE = """
<h2>{{ "States over time" if states.n_states > 1 else "The log over time" }}</h2>
{{ basis_line(basis and basis.of_states) }}
<p class="lead">{{ lead }}</p>
<figure class="time" data-figure="states" aria-label="Probability of each state over time{% if drawing.rewards %}, and the mean reward{% endif %}">
  {{ tools("the states") }}
  <div class="plot" style="height:{{ drawing.height }}px" tabindex="0" role="slider" aria-label="Position in time: arrow keys move, plus and minus zoom, 0 shows the whole log" aria-valuemin="0" aria-valuemax="100" aria-valuenow="0" aria-valuetext="the whole log">
    <svg viewBox="0 0 1000 {{ drawing.height }}" preserveAspectRatio="none" aria-hidden="true">{{ drawing.svg }}</svg>
    <div class="numbers" aria-hidden="true">{% for mark in drawing.numbers %}<span class="b{{ mark.state }}" data-x="{{ "%.3f" % mark.x }}" data-width="{{ "%.3f" % mark.width }}" style="left:{{ "%.2f" % mark.x }}%">{{ mark.state }}</span>{% endfor %}</div>
    {% for lane in drawing.lanes %}
    <div class="lane" style="top:{{ lane.top }}px"><span>{{ chip(lane.state) }} state {{ lane.state }} <small>{{ shares[lane.state] }} of rounds{% if best[lane.state] %}, <span class="name">{{ best[lane.state][0] }}</span> {{ best[lane.state][1] }}{% endif %}</small></span></div>
    {% endfor %}
    {% if drawing.rewards %}
    <div class="lane" style="top:{{ drawing.rewards.top }}px"><span>mean reward <small>smoothed, from {{ numbers.format(drawing.rewards.least) }} to {{ numbers.format(drawing.rewards.most) }}</small></span></div>
    {% endif %}
  </div>
  <div class="ticks" aria-hidden="true">{{ tick_labels(ticks) }}</div>
  {% if states.n_states > 1 %}
  <figcaption>{% if states.n_chains > 1 %}Share of rounds in each state.{% elif states.has_probs %}The height of a band is the probability of that state, given all rewards in the log.{% else %}Each round belongs to the state of its lane.{% endif %}
    {{ " " }}{% if states.changes|selectattr("low", "ne", none)|list %}Gray columns are {{ "%.0f" % (100 * states.confidence) }}% intervals for the change points.{% endif %}</figcaption>
  {% endif %}
</figure>
{% if states.changes %}
{% set timed = states.axis.timed %}
{% set placed, probable = states.changes|selectattr("low", "ne", none)|list, probabilities|select|list %}
<details{% if states.changes|length <= 12 %} open{% endif %}>
  <summary>{{ count_of(states.changes|length, "change") }}: when{{ ", and how probable" if probable }}</summary>
  <div class="wide"><table>
    <thead><tr><th class="n{% if timed %} roomy{% endif %}">first round</th>{% if timed %}<th>time</th>{% endif %}<th>from → to</th>{% if probable %}<th class="n">probability</th>{% endif %}{% if placed %}<th class="n roomy">95% interval (rounds)</th>{% endif %}</tr></thead>
    <tbody>{% for probability in probabilities %}
    {% set row = states.changes[loop.index0] %}
    {% set exact = row.low == row.high %}
    {% set rounds = "{:,}".format(row.low) ~ ("" if exact else " to {:,}".format(row.high)) if row.low is not none else "" %}
    {% set within %}{% if rounds %}<small class="phone">{{ "round" if exact else "rounds" }} {{ rounds }}</small>{% endif %}{% endset %}
    <tr><td class="n{% if timed %} roomy{% endif %}">{{ "{:,}".format(row.round) }}{% if not timed %}{{ within }}{% endif %}</td>{% if timed %}<td class="when">{{ states.axis.format(states.axis.at(row.round)|float) }}{{ within }}</td>{% endif %}<td>{{ chip(row.before) }} → {{ chip(row.after) }}</td>{% if probable %}<td class="n">{{ probability or "–" }}</td>{% endif %}{% if placed %}<td class="n roomy">{{ rounds or "–" }}</td>{% endif %}</tr>
    {% endfor %}</tbody>
  </table></div>
  {% if states.changes|length > probabilities|length %}<p class="small">{{ "{:,}".format(states.changes|length - probabilities|length) }} more changes are in the output of --json.</p>{% endif %}
</details>
{% endif %}
"""


def view(content: ReportContent) -> dict[str, Any]:
    """The figure of states and the table of changes."""
    states, rewards, numbers = content.states, content.mean_rewards, reward_numbers(content)
    drawing = states_drawing(states, rewards)
    shares = np.nan_to_num(states.bands.shares[:, states.in_use])
    return {
        "lead": _lead(content),
        "drawing": drawing,
        "shares": [f"{count / states.n_rounds:.1%}" for count in states.counts],
        "best": [_best(states, z) for z in range(states.n_states)],
        "numbers": numbers,
        "ticks": axis_ticks(states.axis.kind, drawing),
        "probabilities": [_probability_text(change) for change in states.changes[:MOST_CHANGES]],
        "figure": {
            "kind": states.axis.kind,
            "low": drawing["low"],
            "high": drawing["high"],
            "edges": short_edges(states.bands.edges),
            "rounds": states.bands.rounds.tolist(),
            "states": states.in_use,
            "probs": [[round(100 * share) for share in row] for row in shares.tolist()],
            "posterior": states.has_probs,
            "rewards": None if rewards is None else rounded(rewards, numbers.decimals + 1),
            "decimals": numbers.decimals,
        },
    }


def _lead(content: ReportContent) -> str:
    """How many states and changes there are, and how clear they are."""
    states = content.states
    by, n_used = FOUND_BY.get(states.oracle, ""), len(states.in_use)
    if states.n_states == 1:
        return "The model has one state, so it has one policy and never switches."
    some = f"{n_used} of the model's {states.n_states} states" if n_used < states.n_states else f"{n_used} states"
    changes = "" if states.n_chains > 1 else f" and {count_of(len(states.change_points), 'change')}"
    text = f"{some}{changes} in {count_of(states.n_rounds, 'round')}{by}."
    if n_used == 1:
        text = f"Of the model's {states.n_states} states, only state {states.in_use[0]} occurs in this log."
    if states.clock is not None and states.clock.followed:
        text = f"{text} {states.clock}"
    if content.clear_share is None:
        return text
    share = f"{share_text(content.clear_share)} of the rounds" if content.clear_share else "no round"
    return f"{text} The state is clear (probability of at least {CLEAR:.0%}) in {share}."


def _probability_text(change: Change) -> str:
    """The probability or the p-value of a change, if either is known."""
    if change.p_value is not None:
        return "p < 0.0001" if change.p_value < 1e-4 else f"p = {change.p_value:.2g}"
    if change.probability is None:
        return ""
    return "> 99.9%" if change.probability > CERTAIN else f"{change.probability:.1%}"


def _best(summary: StatesSummary, state: int) -> tuple[str, str] | None:
    """The action with the highest mean in a state, and how probable that is; None with fewer than two actions."""
    cells = summary.cells
    means = np.where(cells.rare, np.nan, cells.means)[state]
    if np.isfinite(means).sum() < 2:
        return None
    second, first = np.argsort(np.nan_to_num(means, nan=-np.inf), kind="stable")[-2:].tolist()
    doubt = DISTINCT_ERRORS * np.hypot(cells.std_errors[state, first], cells.std_errors[state, second])
    verb = "earns the most" if means[first] - means[second] > doubt else "probably earns the most"
    return shown_name(summary.action_names[first], LONG_NAME), verb


SECTION = Section("states", lambda content: "States" if content.states.n_states > 1 else "Log", view, TEMPLATE)
