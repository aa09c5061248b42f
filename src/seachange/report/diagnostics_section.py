"""Diagnostics: how far the estimates can be trusted, and what theory guarantees."""

from typing import Any, Literal

from seachange.analysis.formatting import count_of
from seachange.analysis.report_content import CLEAR, ReportContent
from seachange.evaluation.diagnostics import DOMINANT, LEAST_EFFECTIVE, MOST_MISSING, SURPRISING, Diagnostics
from seachange.report.layout import Section, refusals_of, share_text

Mark = Literal["good", "caution", "problem"]
Verdict = tuple[Mark, str, str]  # the verdict on a diagnostic, its name, and a sentence
# This many times the minimum effective sample size is plenty: the standard error is then known to about 4%.
PLENTY = 10
COMMON, RARE = 0.2, 0.05  # overlap of two policies: much, and hardly any
MOSTLY_CLEAR = 0.8  # share of rounds whose state must be clear for the states to be clear overall
FAR = 100  # more standard errors than this are not printed as a number
PROPENSITIES: dict[str, tuple[Mark, str]] = {
    "logged": ("good", "The log has the propensity of each action."),
    "estimated": (
        "caution",
        "Estimated, not logged. Values are only as accurate as these estimates, and intervals do not include their error.",
    ),
    "unknown": ("problem", "Missing. Values cannot be estimated without them; try --estimate-propensities."),
}

TEMPLATE = """
<h2>{{ "Why there is no estimate" if refused else "Diagnostics" }}</h2>
{{ basis_line(basis and basis.of_values) }}
{% if refusals %}
<div class="refusal">{% for text in refusals %}<p>{{ text }}</p>{% endfor %}</div>
{% endif %}
<dl class="verdicts">
  {% for mark, name, text in verdicts %}
  <div><dt><span class="mark {{ mark }}">{{ mark }}</span>{{ name }}</dt><dd>{{ text }}</dd></div>
  {% endfor %}
</dl>
"""


def view(content: ReportContent) -> dict[str, Any]:
    """Verdicts and further refusals."""
    comparison, refused = content.comparison, refusals_of(content)
    refusals: list[str] = []
    if comparison is not None and not refused and comparison.diagnostics is not None:
        refusals += [reason.text(shell=True) for reason in comparison.diagnostics.refusals]
    return {"refused": bool(refused), "refusals": refusals, "verdicts": _verdicts(content)}


def _verdicts(content: ReportContent) -> list[Verdict]:
    """All verdicts: on weights, on the log, on the states."""
    found = None if content.comparison is None else content.comparison.diagnostics
    verdicts = [] if found is None else _on_weights(found, content.holdout.first_round)
    mark, text = PROPENSITIES[content.origin["propensity_source"]]
    verdicts.append((mark, "Propensities", text))
    if content.states.n_dropped:
        rounds = count_of(content.states.n_dropped, "round")
        verdicts.append(("caution", "Dropped rounds", f"{rounds} broke a rule and were dropped."))
    share = content.clear_share
    if share is not None and content.states.n_states > 1:
        text = f"The likeliest state has a probability of at least {CLEAR:.0%} in {share_text(share, 1)} of the rounds."
        verdicts.append((_mark(share >= MOSTLY_CLEAR, share >= 0.5), "Clear states", text))
    return verdicts


def _on_weights(found: Diagnostics, first_round: int) -> list[Verdict]:
    size = found.effective_samples
    sample = f"{size:,.0f} of {count_of(found.n_rounds, 'round')} ({share_text(found.effective_share, 1)}); "
    sample += f"at least {LEAST_EFFECTIVE:.0f} are needed for an estimate."
    overlap = f"The policy and the logging policy agree on {share_text(found.overlap)} of choices."
    row, weight = found.largest_weights[0]
    heaviest = weight / max(found.n_rounds * found.mean_weight, 1e-300)
    largest = "All weights are 0: the log took none of the policy's actions."
    if weight > 0:
        largest = f"{weight:,.3g}, in round {first_round + row:,}: {share_text(heaviest, 1)} of the total. "
        largest += "No round dominates." if heaviest <= DOMINANT else "The estimate depends on this round."
    explained = abs(found.mean_weight_z) <= SURPRISING
    errors = f"{abs(found.mean_weight_z):.1f}" if abs(found.mean_weight_z) < FAR else f"over {FAR}"
    side = "below" if found.mean_weight_z < 0 else "above"
    mean = f"The weights average {found.mean_weight:.3f}, {errors} standard errors {side} 1: "
    mean += "the propensities agree with the logged actions." if explained else "chance does not explain this."
    missing = max(found.unsupported_mass or 0.0, found.unseen_mass)
    support = "The log contains every action that the policy takes."
    if missing:
        support = f"In {share_text(missing, 1)} of rounds, the policy takes actions that the log never took or could not take."
    return [
        (_mark(size >= PLENTY * LEAST_EFFECTIVE, size >= LEAST_EFFECTIVE), "Effective sample size", sample),
        (_mark(found.overlap >= COMMON, found.overlap >= RARE), "Overlap", overlap),
        (_mark(0 < heaviest <= DOMINANT, 0 < heaviest <= 0.5), "Largest weight", largest),
        (_mark(explained, abs(found.mean_weight - 1) <= MOST_MISSING), "Mean weight", mean),
        (_mark(missing == 0, missing <= MOST_MISSING), "Support", support),
    ]


def _mark(good: bool, usable: bool) -> Mark:
    return "good" if good else "caution" if usable else "problem"


SECTION = Section("diagnostics", lambda _: "Diagnostics", view, TEMPLATE)
