"""The sentences of a report: each fact once, true of these rounds, and none left over where there is no value."""

import warnings

import numpy as np
import pytest

import seachange as sc
from report.pages import Elements, learned, page_and_findings, two_worlds, words
from seachange.analysis.formatting import stored_time_text
from seachange.analysis.policy_summary import Effect, PolicySummary
from seachange.errors import SeachangeWarning
from seachange.evaluation.deployment import Difference
from seachange.report.layout import Numbers, share_text
from seachange.report.policies_section import _effect_rows, _habit
from seachange.report.summary_section import _compared


@pytest.fixture(scope="module")
def said(model, later):
    return words(page_and_findings(later, model)[0])


@pytest.fixture(scope="module")
def held_out(model):
    page, found = page_and_findings(two_worlds(), model)
    return words(page), found


def test_of_two_states_each_difference_is_reported_once(said):
    assert said.count("'boots' earns") == 1
    assert said.count("'lamps' earns") == 1
    assert "more than in state 0 (" in said
    assert "less than" not in said


def test_the_log_ends_with_its_last_round(said, later):
    first, last = (str(time).replace("T", " ") for time in later.times[[0, -1]])
    assert f"· {first} to {last} ·" in said


def test_held_out_rounds_are_reported_at_the_top_and_where_the_figures_are(held_out):
    text, found = held_out
    assert "Evaluated on held-out rounds with relearned policies. The model was learned from this log" in text
    assert "from the first 900 rounds (60%) and evaluated on the last 600 rounds" in text
    assert text.count("Held-out rounds 900 to 1,499, with policies relearned from earlier rounds.") == 2
    assert text.count("All 1,500 rounds, with this model.") == 3
    row, _ = found.comparison.diagnostics.largest_weights[0]
    assert f", in round {900 + row:,}: " in text


def test_rounds_after_the_known_ones_are_judged_with_the_model_itself():
    log = two_worlds(n=2100)
    text = words(page_and_findings(log, learned(log[:1500]))[0])
    assert "All values are therefore estimated on the last 600 rounds, which the model has not seen." in text
    assert "Held-out rounds 1,500 to 2,099." in text
    assert "relearned" not in text


def test_a_new_regime_is_reported_at_the_top(model, later, said):
    rewards = later.rewards.copy()
    rewards[900:] = later.actions[900:] == 1
    page, found = page_and_findings(later.with_rewards(rewards), model)
    text, (regime,) = words(page), found.states.new_regimes
    assert abs(regime.first - 900) < 10
    since = str(later.times[regime.first]).replace("T", " ")[:16]
    assert f"New regime since {since}: none of the 2 known states explains these rewards." in text
    assert "Do not deploy frozen policies." in text
    assert "New regime" not in said


@pytest.mark.parametrize("known", [True, False])
def test_a_refusal_is_reported_once_and_nothing_is_left_over(model, later, known):
    rounds = np.flatnonzero(later.actions == 1)
    alone = later.take(rounds).with_propensities(np.ones(len(rounds)))
    log = alone if known else two_worlds(seed=1, start=1500, propensities=False)
    text = words(page_and_findings(log, model)[0])
    reason = "of its choices are actions that the log never took" if known else "The log has no propensities"
    assert text.count(reason) == 1
    assert "No values over time, for the reason above." in text
    assert "best single policy" not in text
    assert ("All rounds of this log are in one state" in text) == known


def test_one_state_is_not_described_as_several():
    model = learned(two_worlds(), "none")
    text = words(page_and_findings(two_worlds(seed=1, start=1500), model)[0])
    assert "The model has one state, so it has one policy and never switches." in text
    for plural in ("state 0", "states last", "How the states differ", "each state"):
        assert plural not in text


def test_one_round_is_one(model):
    page, _ = page_and_findings(two_worlds(n=1, seed=1, start=1500), model)
    text = words(page)
    assert "1 rounds" not in text
    assert "The model was not learned from this one round, judging by its" in text
    assert "All weights are 0: the log took none of the policy's actions." in text


def test_many_states_refer_to_the_table():
    generator, n, n_states = np.random.default_rng(0), 4000, 8
    states, actions = (np.arange(n) // 100) % n_states, generator.integers(3, size=n)
    rewards = generator.random((n_states, 3))[states, actions] + generator.normal(0, 0.1, n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeachangeWarning)
        text = words(page_and_findings(log, sc.learn(log, oracle=sc.KnownStates(states), objective="dm"))[0])
    assert "; the table shows the others." in text
    assert "force=True" not in text


def test_effects_say_what_they_rest_on():
    names = ["hour", "age"]
    generator, n = np.random.default_rng(0), 1200
    actions, contexts = generator.integers(2, size=n), generator.normal(size=(n, 2))
    rewards = contexts[:, 0] * (2 * actions - 1) + generator.normal(0, 0.1, n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), contexts=contexts, context_names=names)
    text = words(page_and_findings(log, sc.learn(log, oracle="none", objective="ips"))[0])
    assert "learned from 1,200 rounds" in text
    assert "They have no intervals" in text
    assert "averages over 600 rounds of this log" in text


def test_a_feature_that_swaps_two_actions_is_one_row():
    effects = [
        Effect(0, "boots", "hour", -0.4, ""),
        Effect(0, "coats", "hour", 0.395, ""),
        Effect(0, "a", "age", -0.1, ""),
    ]
    rows = _effect_rows(effects, 0.4)
    assert [(row["feature"], row["action"], row["instead"], row["text"]) for row in rows] == [
        ("hour", "coats", "boots", "+40"),
        ("age", "a", None, "−10"),
    ]


@pytest.mark.parametrize(
    ("probs", "told"),
    [
        ([1.0, 0.0, 0.0], "always takes a"),
        ([0.997, 0.003, 0.0], "almost always takes a"),
        ([0.95, 0.05, 0.0], "mostly takes a (95%)"),
        ([0.2, 0.5, 0.3], "takes b (50%), c (30%) or a (20%)"),
        ([0.6, 0.4, 0.0], "takes a (60%) or b (40%)"),
        ([0.02] * 50, "takes no action often; its most frequent is a (2%)"),
    ],
)
def test_habits_of_policies(probs, told):
    names = tuple("abcdefghijklmnopqrstuvwxyz"[i] if i < 26 else str(i) for i in range(len(probs)))
    summary = PolicySummary(names, np.array([probs]), np.zeros(len(probs)), (), None, 1, 1, (1,))
    assert "".join(Elements(str(_habit(summary, 0))).texts) == told


@pytest.mark.parametrize(
    ("share", "decimals", "told"),
    [
        (0.0, 0, "0%"),
        (0.004, 0, "less than 1%"),
        (0.0002, 1, "less than 0.1%"),
        (0.998, 0, "more than 99%"),
        (1.0, 0, "100%"),
        (0.423, 1, "42.3%"),
    ],
)
def test_shares_never_say_none_or_all_of_what_is_not(share, decimals, told):
    assert share_text(share, decimals) == told


def test_a_difference_that_is_distinguished_has_no_end_at_nothing():
    difference = Difference(-0.0093, 0.0045, -0.0181, -0.0003, 0.95)
    assert _compared(difference, "it", Numbers([0.04])) == "0.0093 less than it (−0.0181 to −0.0003)"


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        ("2025-03-01T08:18:00.000000", "2025-03-01 08:18:00"),
        ("2025-03-01T08:18:00.25", "2025-03-01 08:18:00.25"),
        ("17.0", "17"),
    ],
)
def test_times_are_reported_without_what_says_nothing(stored, told):
    assert stored_time_text(stored) == told
