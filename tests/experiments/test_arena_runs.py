"""The arena: shares, worst cases, and a tiny one run from the command line."""

import csv

import numpy as np
import pytest

from cli.shop import misuse, succeed, succeed_in_json
from seachange.experiments.arena_runs import Played, play, summarize, worst_cases
from seachange.experiments.arena_worlds import WORLDS, arena_named
from seachange.registry import DEPLOYERS

TINY = ("--runs", "2", "--rounds", "1000", "--workers", "1")


def played(reward, is_reference=True):
    return is_reference, Played(reward, (1, 2), (0.0, 1.0))


def test_shares_are_relative_to_the_best_reference():
    runs = [
        {"default": played(0.6, False), "LinTS": played(0.8), "mTS": played(0.4), "posterior": played(0.9, False)},
        {"default": played(0.5, False), "LinTS": played(0.7), "mTS": played(0.6)},
    ]
    results = {each.method: each for each in summarize("a", runs)}
    assert set(results) == {"default", "LinTS", "mTS"}  # posterior sampling did not apply in every run
    assert {each.best_reference for each in results.values()} == {"LinTS"}
    assert results["default"].share == pytest.approx(1.1 / 1.5)
    assert results["LinTS"].share == results["LinTS"].low == results["LinTS"].high == 1
    assert results["mTS"].share == pytest.approx(1 / 1.5)
    assert results["mTS"].low < results["mTS"].share < results["mTS"].high


def test_one_run_has_no_interval():
    (only,) = summarize("a", [{"LinTS": played(0.8)}])
    assert (only.share, only.low, only.high) == (1, None, None)


def test_the_interval_of_a_share_covers_it():
    generator, covered = np.random.default_rng(0), 0
    for _ in range(400):
        pairs = generator.multivariate_normal([0.6, 0.8], [[0.01, 0.006], [0.006, 0.01]], size=8)
        runs = [{"mTS": played(a), "LinTS": played(b)} for a, b in pairs]
        result = {each.method: each for each in summarize("a", runs)}["mTS"]
        covered += result.best_reference == "mTS" or result.low < 0.75 < result.high
    assert abs(covered / 400 - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / 400)


def test_the_worst_case_is_the_smallest_share():
    results = [
        *summarize("a", [{"default": played(0.6, False), "LinTS": played(0.8), "klUCB": played(0.2)}]),
        *summarize("b", [{"default": played(0.6, False), "LinTS": played(0.5), "mTS": played(0.7)}]),
    ]
    worst = {each.method: (each.environment, each.share, each.n_environments) for each in worst_cases(results)}
    assert worst["default"] == ("a", pytest.approx(0.75), 2)
    assert worst["LinTS"] == ("b", pytest.approx(5 / 7), 2)
    assert list(worst)[:2] == ["default", "LinTS"]  # those of fewer environments come last


@pytest.mark.parametrize("name", [name for name in WORLDS if name != "front-page"])
def test_every_world_has_a_log_and_regimes_that_fit(name):
    arena = arena_named(name, 0, 1000)
    assert arena.log.n_actions == arena.world.n_actions
    rounds = list(arena.world.rounds(0, 300))
    assert sum(map(len, rounds)) == arena.world.horizon
    if arena.states is not None:
        assert len(arena.states) == arena.world.horizon
        assert len(arena.log_states) == len(arena.log)
        assert set(arena.states) <= set(arena.log_states)


def test_variants_of_the_paper_differ_from_it_as_they_say():
    worlds = {name: arena_named(name, 3, 1000) for name in ("paper", "other-order", "gradual", "new-state")}
    logs = [worlds[name].log.fingerprint() for name in ("paper", "other-order", "gradual")]
    assert len(set(logs)) == 1
    assert (worlds["other-order"].states != worlds["paper"].states).any()
    means = {name: next(iter(each.world.rounds(0, 1000))).mean_rewards for name, each in worlds.items()}
    np.testing.assert_array_equal(means["new-state"], means["paper"])
    jumps = {name: np.abs(np.diff(each, axis=0)).max() for name, each in means.items()}
    assert jumps["gradual"] < 0.1 * jumps["paper"]
    np.testing.assert_allclose(means["gradual"][[0, -1]], means["paper"][[0, -1]])


def test_the_regime_is_the_best_thing_to_be_told():
    run = play(("paper", 1), 2000, ("regime told", "single", "mTS"))
    assert run["regime told"][1].reward > max(run["single"][1].reward, run["mTS"][1].reward)
    assert set(run) == {"regime told", "single", "mTS"}


def test_a_tiny_arena_writes_its_tables_and_curves(tmp_path):
    out = tmp_path / "arena"
    methods = "default,klUCB,LinTS,D-LinTS"
    arguments = ("arena", "--environments", "revealing,walk", "--methods", methods, *TINY)
    answer, stderr = succeed_in_json(*arguments, "--out", out)
    assert f"Wrote curves and results to {out}" in stderr
    assert [each["method"] for each in answer["results"][:4]].count("default") == 1
    assert {each["environment"] for each in answer["worst_cases"]} <= {"revealing", "walk"}
    for row in answer["worst_cases"]:
        shares = [each["share"] for each in answer["results"] if each["method"] == row["method"]]
        assert row["share"] == min(shares)
        assert row["n_environments"] == 2
    assert sorted(path.name for path in out.iterdir()) == [
        "results.csv", "revealing.csv", "revealing.png", "walk.csv", "walk.png"
    ]  # fmt: skip
    lines = list(csv.DictReader((out / "walk.csv").read_text().splitlines()))
    last = {line["method"]: line for line in lines}
    reward = {e["method"]: e["reward"] for e in answer["results"] if e["environment"] == "walk"}
    by_regret = sorted(last, key=lambda method: float(last[method]["regret"]))
    assert by_regret == sorted(reward, key=lambda method: -reward[method])
    text, _ = succeed(*arguments)
    assert text.startswith("Worst case over environments, 2 runs each")


@pytest.mark.long
def test_every_registered_deployer_and_stream_files_can_take_part(data_file):
    path = data_file("usenet1.parquet")
    answer, _ = succeed_in_json("arena", "--environments", path, "--methods", "regime told,default,exp4s,LinTS", *TINY)
    assert {each["environment"] for each in answer["results"]} == {"usenet1"}
    assert {each["method"] for each in answer["results"]} == {"regime told", "default", "exp4s", "LinTS"}
    assert "exp4s" in DEPLOYERS.names


def test_unknown_names_are_refused():
    assert "an environment is paper" in misuse("arena", "--environments", "nowhere", *TINY)
    assert "no method is called nobody" in misuse("arena", "--environments", "walk", "--methods", "nobody", *TINY)
