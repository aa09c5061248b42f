"""The bounds of a model: every quantity from the right place, every condition told."""

import io
import json
import math
from dataclasses import replace

import msgspec
import numpy as np
import polars
import pytest
from rich.console import Console

import seachange as sc
from cli.shop import fail, succeed, succeed_in_json
from seachange.cli.value_tables import bounds_document, bounds_view
from seachange.errors import LogError, ParameterError
from seachange.evaluation.theorems import Quantities, optimality_gap_bound, table_class

NAMES = ["detector error", "IPS error", "optimality gap", "Exp4.S, one interval", "Exp4.S, all segments", "regret"]
ORACLES = {
    "hmm": lambda n: sc.HMMOracle(n_states=2, restarts=1),
    "fit": lambda n: sc.ChangePointOracle(n_states=2),
    "reward": lambda n: sc.ChangePointOracle(statistic="reward", window=n // 20, threshold=0.3, n_states=2),
    "known": lambda n: sc.KnownStates(np.repeat([0, 1, 0, 1], n // 4)),
    "none": lambda n: sc.SingleState(),
}


def clicks(n=2_000, seed=0, **more):
    """Two worlds in turn, which differ in which action is best and in what all of them earn."""
    generator = np.random.default_rng(seed)
    states, actions = np.repeat([0, 1, 0, 1], n // 4), generator.integers(3, size=n)
    rates = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.5]])[states, actions]
    rewards = (generator.random(n) < rates).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **more)


def by_name(found):
    return {bound.name: bound for bound in found.bounds}


def rules(bound, holds):
    return [condition.rule for condition in bound.conditions if condition.holds is holds]


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize(
    "learner", [sc.IPSLearner(), sc.DRLearner(), sc.TabularLearner()], ids=lambda learner: type(learner).__name__
)
def test_every_oracle_and_learner_has_all_bounds_and_no_nan(oracle, learner):
    log = clicks()
    model = sc.learn(log, oracle=ORACLES[oracle](2_000), objective=learner.clone())
    found = sc.model_bounds(log, model)
    assert [bound.name for bound in found.bounds] == NAMES
    for bound in found.bounds:
        for value in (bound.printed, bound.corrected, bound.total):
            assert value >= 0
        assert bound.conditions
        assert bound.total <= 2_000
    maximized = "the policies maximize the IPS estimate over their class"
    told = {
        condition.rule[: len(maximized)]: condition.holds for condition in by_name(found)["optimality gap"].conditions
    }
    assert told[maximized] is {"IPSLearner": None, "DRLearner": False, "TabularLearner": True}[type(learner).__name__]
    document = json.loads(msgspec.json.encode(bounds_document(found)))
    assert [row["name"] for row in document["bounds"]] == NAMES
    assert all({"printed", "corrected", "vacuous", "verdict", "conditions"} <= row.keys() for row in document["bounds"])


def test_the_quantities_are_the_models():
    log = clicks()
    model = sc.learn(log, oracle=ORACLES["known"](2_000), objective=sc.TabularLearner())
    found = sc.model_bounds(log, model, delta=0.1)
    made_of = found.quantities
    assert (made_of.n_rounds, made_of.n_segments, made_of.n_states, made_of.n_actions) == (2_000, 4, 2, 3)
    assert made_of.shortest_segment == 500
    assert made_of.max_ratio == pytest.approx(3)
    assert made_of.wrong_rounds == 0
    segments = log.rewards.reshape(4, 500).mean(axis=1)
    assert made_of.min_change == pytest.approx(np.abs(np.diff(segments)).min())
    assert made_of.policy_class.log_size == pytest.approx(2 * math.log(3))
    tables = table_class(n_contexts=1, n_actions=3, n_states=2, capped=False)
    expected = optimality_gap_bound(
        Quantities(n_rounds=2_000, max_ratio=made_of.max_ratio, delta=0.1, policy_class=tables)
    )
    gap = by_name(found)["optimality gap"]
    assert (gap.printed, gap.corrected) == (expected.printed, expected.corrected)
    assert gap.total == pytest.approx(log.rewards.sum())


def test_a_bound_above_what_the_log_earned_says_nothing_and_a_long_log_has_some_that_say_something():
    short = clicks(200)
    model = sc.learn(short, oracle=ORACLES["known"](200), objective=sc.TabularLearner())
    assert by_name(sc.model_bounds(short, model))["optimality gap"].verdict == "vacuous"
    long = clicks(80_000)
    model = sc.learn(long, oracle=ORACLES["known"](80_000), objective=sc.TabularLearner())
    found = by_name(sc.model_bounds(long, model))
    assert found["optimality gap"].verdict == "conditional"
    assert found["regret"].verdict == "conditional"
    assert found["regret"].corrected == pytest.approx(
        found["optimality gap"].corrected + found["Exp4.S, all segments"].corrected
    )


def test_the_log_it_was_learned_from_proves_nothing_of_a_value():
    log, later = clicks(seed=0), clicks(seed=1)
    model = sc.learn(log, oracle=sc.SingleState(), objective="ips")
    rule = "the policy was not learned from this log"
    assert rule in rules(by_name(sc.model_bounds(log, model))["IPS error"], False)
    assert rule in rules(by_name(sc.model_bounds(later, model))["IPS error"], True)


def test_what_is_given_is_taken():
    log = clicks()
    model = sc.learn(log, oracle=sc.SingleState(), objective="ips")
    found = sc.model_bounds(log, model, max_ratio=2.0, min_change=0.25, wrong_rounds=7)
    assert (found.quantities.max_ratio, found.quantities.min_change, found.quantities.wrong_rounds) == (2.0, 0.25, 7)
    assert any("on the log: 3" in rule for rule in rules(by_name(found)["IPS error"], False))
    capped = sc.learn(
        clicks(logging_probs=np.full((2_000, 3), 1 / 3)),
        oracle=sc.SingleState(),
        objective=sc.TabularLearner(max_ratio=1.5),
    )
    found = sc.model_bounds(log, capped)
    assert found.quantities.max_ratio == 1.5
    assert found.quantities.policy_class.log_size == pytest.approx(math.log(3) + 2 * math.log(2))


def test_estimated_propensities_are_a_condition_and_missing_ones_an_error():
    log = clicks()
    model = sc.learn(log, oracle=sc.SingleState(), objective="ips")
    bare = sc.BanditLog.from_arrays(log.actions, log.rewards, n_actions=3)
    with pytest.raises(LogError, match="estimate_propensities"):
        sc.model_bounds(bare, model)
    found = sc.model_bounds(bare.with_propensities(sc.estimate_propensities(bare), estimated=True), model)
    assert "the estimated propensities are correct" in rules(by_name(found)["optimality gap"], None)
    with pytest.raises(ParameterError, match="delta"):
        sc.model_bounds(log, model, delta=0)


def test_the_theorem_applies_to_the_paper_detector_with_its_own_settings():
    """Segments of more than 4 w rounds, w and c as the corollary has them, a state for every segment."""
    n = 12_000
    truth = np.repeat([0, 1], n // 2)
    rewards = (np.random.default_rng(0).random(n) < np.where(truth, 0.9, 0.1)).astype(float)
    log = sc.BanditLog.from_arrays(np.arange(n) % 2, rewards, np.full(n, 0.5))
    window = math.ceil(4 / 0.8**2 * math.log(4 * n / 0.05))
    oracle = sc.ChangePointOracle(statistic="reward", window=window, threshold=0.4, n_states=2)
    model = sc.learn(log, oracle=oracle, objective=sc.TabularLearner())
    found = by_name(sc.model_bounds(log, model, min_change=0.8))
    assert found["detector error"].verdict == "conditional"
    assert found["detector error"].corrected == window


def test_a_log_as_long_as_told_makes_a_bound_informative():
    """Beyond the length told, the bound of such a log is informative; at 3/4 of it, it is not."""

    def gap(n):
        log = clicks(n)
        model = sc.learn(log, oracle=ORACLES["known"](n), objective=sc.TabularLearner())
        return by_name(sc.model_bounds(log, model))["optimality gap"]

    assert gap(200).vacuous
    told = gap(200).informative_from
    assert not gap(4 * round(told / 4 * 1.1)).vacuous
    assert gap(4 * round(told / 4 * 0.75)).vacuous
    assert gap(4 * round(told / 4 * 1.1)).informative_from == pytest.approx(1.1 * told, abs=4)


def test_rare_rewards_without_exploration_have_no_bound_at_any_length():
    generator = np.random.default_rng(0)
    states, actions = np.repeat([0, 1], 2_000), generator.integers(3, size=4_000)
    rewards = (generator.random(4_000) < np.array([[0.02, 0.1, 0.02], [0.1, 0.02, 0.02]])[states, actions]).astype(
        float
    )
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(4_000, 1 / 3), n_actions=3)
    model = sc.learn(log, oracle=sc.KnownStates(states), objective=sc.TabularLearner())
    regret = by_name(sc.model_bounds(log, model))["Exp4.S, all segments"]
    assert (regret.vacuous, regret.informative_from) == (True, None)
    regret = by_name(sc.model_bounds(log, model, exploration=0.01))["Exp4.S, all segments"]
    assert regret.informative_from > 4_000
    assert 'model.deployer("exp4s", exploration=0.01)' in regret.conditions[-1].rule


def test_the_command_prints_all_of_it_and_json(tmp_path):
    log = clicks(200)
    table = polars.DataFrame({"action": log.actions, "reward": log.rewards, "propensity": log.propensities})
    table.write_csv(tmp_path / "log.csv")
    succeed("learn", tmp_path / "log.csv", "-o", tmp_path / "m", "--oracle", "none", "--objective", "ips")
    stdout, _ = succeed("bounds", tmp_path / "log.csv", tmp_path / "m")
    for word in ("vacuous", "optimality gap (informative from about", "Exp4.S, all segments: ", "? rewards always"):
        assert word in " ".join(stdout.split())
    result, stderr = succeed_in_json(
        "bounds", tmp_path / "log.csv", tmp_path / "m", "--delta", "0.1", "--max-ratio", "4", "--exploration", "0.1"
    )
    assert result["quantities"]["delta"] == 0.1
    assert result["quantities"]["max_ratio"] == 4
    assert result["quantities"]["exploration"] == 0.1
    assert [row["name"] for row in result["bounds"]] == NAMES
    assert "optimality gap" in stderr
    assert "delta" in fail(ParameterError, "bounds", tmp_path / "log.csv", tmp_path / "m", "--delta", "2")


def shown(found):
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(bounds_view(found))
    return console.export_text()


def test_vacuous_bounds_take_a_few_words_and_the_others_show_every_condition():
    log = clicks()
    found = sc.model_bounds(log, sc.learn(log, oracle=sc.SingleState(), objective="dr"))
    first = found.bounds[0]
    silent = replace(first, name="one", total=0.0, informative_from=4.2e9)
    never, telling = replace(silent, name="two", informative_from=None), replace(first, total=np.inf)
    assert (silent.vacuous, telling.vacuous) == (True, False)
    assert shown(replace(found, bounds=(telling, telling))).startswith("No bound is vacuous for this log")
    text = shown(replace(found, bounds=(silent, telling, never)))
    assert text.startswith("2 of 3 bounds are vacuous for this log")
    assert "one (informative from about 4e9 rounds), two (not informative at any length)." in " ".join(text.split())
    assert all(condition.rule in text for condition in telling.conditions)
    text = shown(replace(found, bounds=(silent,)))
    assert text.startswith("All bounds are vacuous for this log")
    assert len(text.strip().splitlines()) == 1
    assert "4e9" in text
    assert shown(replace(found, bounds=(replace(silent, informative_from=12_345.0),))).count("12,000 rounds") == 1
