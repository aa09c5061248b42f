"""Findings → one HTML file."""

from __future__ import annotations

import base64
import hashlib
import json
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from seachange.report.bounds import bound_number
from seachange.report.colours import colour_of, ink_on
from seachange.report.findings import Findings
from seachange.report.over_time import Course
from seachange.report.page import states_views, views
from seachange.report.page.basis import basis_of
from seachange.report.page.course_drawing import course_drawing
from seachange.report.page.drawing import states_drawing
from seachange.report.page.ticks import time_ticks
from seachange.report.page.verdicts import verdicts_of
from seachange.report.page.wording import (
    MINUS,
    Numbers,
    headline,
    moment_told,
    numbers_of,
    refusal_of,
    refusal_told,
    refused_as_well,
    said_on_page,
    state_told,
)
from seachange.report.tables import contexts_told, count_of
from seachange.report.timeline import TimeAxis

# A phone has room for about as many ticks, and the figure draws others when it is wider.
TICKS = 5
# How much white is mixed into colours on a dark page.
LIGHTER = 0.22


def page_of(findings: Findings) -> str:
    """The page, as text."""
    environment = Environment(
        loader=PackageLoader("seachange.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["as_moment"] = moment_told
    script = _file("figures.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    states = states_drawing(findings.states, findings.mean_rewards)
    course = None if findings.course is None else course_drawing(findings.course)
    figures: dict[str, Any] = {"states": _states_figure(findings, states)}
    if findings.course is not None and course is not None:
        course["ticks_of_time"] = _ticks(findings.course.axis, course)
        figures["course"] = _course_figure(findings.course, course)
    refusal = refusal_of(findings)
    return environment.get_template("report.html").render(
        findings=findings,
        states=findings.states,
        style=Markup(_file("style.css") + _colours(findings.states.n_states)),
        script=Markup(script),
        script_digest=digest,
        figures=_embedded(figures),
        headline=headline(findings),
        basis=basis_of(findings),
        refusal=refusal,
        # How states that rewards helped to find are judged is told with the ground.
        notes=[said_on_page(note) for note in findings.notes if "evaluate_online(" not in note],
        values=views.values_view(findings),
        states_drawing=states | {"ticks": _ticks(findings.states.axis, states)},
        course_drawing=course,
        course_refusal=refused_as_well(findings.course_refusal, refusal),
        course_told=_course_told(findings.course),
        state_told=state_told(findings),
        overview=states_views.overview_view(findings.states),
        changes=states_views.changes_view(findings.states),
        contrasts=states_views.contrasts_view(findings.states),
        rewards=states_views.rewards_view(findings.states),
        evidence=states_views.evidence_view(findings.states),
        policies=views.policies_view(findings),
        verdicts=verdicts_of(findings),
        bounds=_bounds(findings),
        ground_refusals=_ground_refusals(findings, refusal),
        reward_range=" to ".join(f"{end:.4g}".replace("-", MINUS) for end in findings.origin.reward_range),
        contexts=contexts_told(findings.learned_from.joint, findings.learned_from.context_names),
        count_of=count_of,
        reward_numbers=_reward_numbers(findings),
    )


def _file(name: str) -> str:
    return files("seachange.report.page").joinpath(name).read_text(encoding="utf-8")


def _colours(n_states: int) -> str:
    """A colour for each state, in shapes (s), lines (w) and behind text (b), lighter on a dark page."""
    light, dark, rules = [], [], []
    for state in range(n_states):
        colour = colour_of(state)
        light.append(f"--s{state}:{colour};--i{state}:{ink_on(colour)}")
        lighter = _lighter(colour)
        dark.append(f"--s{state}:{lighter};--i{state}:{ink_on(lighter)}")
        rules.append(
            f".s{state}{{fill:var(--s{state})}}.w{state}{{stroke:var(--s{state})}}"
            f".b{state}{{background:var(--s{state});color:var(--i{state})}}"
        )
    return (
        f"\n:root{{{';'.join(light)}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{';'.join(dark)}}}}}\n"
        + "\n".join(rules)
    )


def _lighter(colour: str) -> str:
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(part + LIGHTER * (255 - part)):02x}" for part in parts)


def _embedded(figures: dict[str, Any]) -> Markup:
    """JSON inside a script element: nothing in it can end the element."""
    text = json.dumps(figures, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _states_figure(findings: Findings, drawing: dict[str, Any]) -> dict[str, Any]:
    """What the script needs to tell of a place in the figure of states."""
    states, rewards = findings.states, findings.mean_rewards
    shares = np.nan_to_num(states.bands.shares[:, states.in_use])
    return {
        "kind": states.axis.kind,
        "low": drawing["low"],
        "high": drawing["high"],
        "edges": _short(states.bands.edges),
        "rounds": states.bands.rounds.tolist(),
        "states": states.in_use,
        "probs": [[round(100 * share) for share in row] for row in shares.tolist()],
        "posterior": states.has_probs,
        "rewards": None if rewards is None else _rounded(rewards, _reward_numbers(findings).decimals + 1),
        "decimals": _reward_numbers(findings).decimals,
    }


def _course_figure(course: Course, drawing: dict[str, Any]) -> dict[str, Any]:
    series = [each for each in (course.logging, course.single, course.switching) if each is not None]
    kinds = [kind for kind in ("logging", "single", "switching") if getattr(course, kind) is not None]
    errors = [float(e) for each in series for e in (each.high - each.low) / 4 if np.isfinite(e)]
    decimals = Numbers(np.quantile(errors, [0.5]).tolist() if errors else [], course.logging.values.tolist()).decimals
    names = {"logging": "Logging policy", "single": "Best single policy", "switching": "Switching"}
    told = course.forecast
    return {
        "kind": course.axis.kind,
        "low": drawing["low"],
        "high": drawing["high"],
        "edges": _short(course.edges),
        "decimals": decimals,
        "series": [
            {
                "name": names[kind] if kind != "switching" or each.name == "switching" else "The policy",
                "values": _rounded(each.values, decimals + 2),
                "low": _rounded(each.low, decimals + 2),
                "high": _rounded(each.high, decimals + 2),
            }
            for kind, each in zip(kinds, series, strict=True)
        ],
        "forecast": None if told is None else _rounded(np.array([told.value, told.low, told.high]), decimals + 2),
    }


def _short(edges: np.ndarray[Any, Any]) -> list[float]:
    """Positions to a ten-thousandth of the axis, which a figure cannot show."""
    decimals = int(np.clip(5 - np.floor(np.log10(np.ptp(edges) or 1.0)), 0, 9))
    return [round(edge, decimals) if decimals else round(edge) for edge in edges.tolist()]


def _rounded(values: np.ndarray[Any, Any], decimals: int) -> list[float | None]:
    return [round(value, decimals) if np.isfinite(value) else None for value in values.tolist()]


def _ticks(axis: TimeAxis, drawing: dict[str, Any]) -> list[tuple[float, str]]:
    low, high = drawing["low"], drawing["high"]
    found = time_ticks(axis.kind, low, high, TICKS)
    return [(100 * (value - low) / (high - low), said) for value, said in found]


def _ground_refusals(findings: Findings, main: str | None) -> list[str]:
    """What the diagnostics and the deployment refuse, where it was not said with the answer."""
    answer = findings.answer
    if answer is None:
        return []
    found = [] if answer.diagnostics is None or main else [refusal_told(each) for each in answer.diagnostics.refusals]
    online = None if main else refused_as_well(answer.online_refusal, main)
    return [*found, *([f"The deployment itself, led along the log, has no value. {online}"] if online else [])]


def _bounds(findings: Findings) -> list[dict[str, str]]:
    """What theorems promise, each in a line."""
    return [
        {
            "name": f"{bound.name}: {bound.bounds}",
            "most": bound_number(bound.corrected),
            "stake": bound_number(bound.total),
            "verdict": "applies if its other conditions hold" if bound.verdict == "applies if" else bound.verdict,
        }
        for bound in (() if findings.bounds is None else findings.bounds.bounds)
    ]


def _course_told(course: Course | None) -> list[str]:
    """What comes next, or why nobody can say."""
    if course is None:
        return []
    if course.refusal is not None:
        return [f"Values of switching by period can't be said. {refusal_told(course.refusal)}"]
    if course.forecast is None:
        return [f"There is no forecast. {refusal_told(course.forecast_refusal)}"]
    told, say = course.forecast, Numbers([course.forecast.std_error])
    shape = "the level of" if told.degree == 0 else "a line through"
    return [
        f"The next period is expected to earn {say.say(told.value)} a round ({told.confidence:.0%} interval "
        f"{say.say(told.low)} to {say.say(told.high)}), by {shape} {count_of(told.n_periods, 'period')}; such "
        f"forecasts missed the estimates of past periods by {say.say(told.past_error)} (root mean square)."
    ]


def _reward_numbers(findings: Findings) -> Numbers:
    if findings.answer is not None and findings.answer.logging.estimate is not None:
        return numbers_of(findings.answer)
    return Numbers([], findings.states.mean_rewards.tolist())
