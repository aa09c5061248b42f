"""The examples of CONTRIBUTING.md are registered for real and driven through the contracts of the built-in parts."""

import inspect
import json

import numpy as np
import polars
import pytest

import seachange as sc
from check.tables import TableLog, sound_table
from cli import test_shared_options as commands_contract
from cli.shop import run, succeed, succeed_in_json
from conftest import build_log
from contracts import test_checks as checks_contract
from contracts import test_deployers as deployers_contract
from contracts import test_estimators as estimators_contract
from contracts import test_formats as formats_contract
from contracts import test_oracles_and_learners as parts_contract
from contracts import test_report_sections as sections_contract
from documentation import ROOT, blocks_of
from seachange.analysis.report_content import report_content
from seachange.check import check_log
from seachange.check.tally import CHECKS
from seachange.cli.commands import app
from seachange.evaluation.formulas import ESTIMATORS
from seachange.reading import FORMATS
from seachange.registry import DEPLOYERS, LEARNERS, ORACLES
from seachange.report.page import SECTIONS, page_of

KINDS = ("none", "shared", "per action")
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {block.words[0]: block for block in blocks_of(PAGE) if block.language == "python"}


@pytest.fixture
def register():
    """Runs an example, which registers its extension; everything registered is forgotten after the test."""
    lists = [(each, list(each)) for each in (FORMATS, CHECKS, SECTIONS, app.registered_commands)]
    registries = [(each, dict(each._classes), list(each.names)) for each in (ORACLES, LEARNERS, DEPLOYERS)]
    estimators = dict(ESTIMATORS)

    def run_example(kind):
        block = EXAMPLES[kind]
        exec(compile("\n" * block.line + block.text, "CONTRIBUTING.md", "exec"), {"__name__": "example"})

    yield run_example
    for each, before in lists:
        each[:] = before
    for each, classes, named in registries:
        each._classes, each.names = classes, named
    ESTIMATORS.clear()
    ESTIMATORS.update(estimators)


def drive(module, subject, **given):
    """Call every test of a contract that takes ``subject``, and others of these arguments; how many there are."""
    tests = [test for name, test in list(vars(module).items()) if name.startswith("test_")]
    tests = [test for test in tests if subject in inspect.signature(test).parameters]
    able = [test for test in tests if set(inspect.signature(test).parameters) <= set(given)]
    for test in able:
        test(**{each: given[each] for each in inspect.signature(test).parameters})
    return len(able)


def test_every_kind_of_extension_has_an_example():
    assert set(EXAMPLES) == {
        "oracle", "learner", "deployer", "estimator", "format", "check", "section", "command",
    }  # fmt: skip
    for kind in EXAMPLES:
        assert f"](#a{'n' if kind in ('oracle', 'estimator') else ''}-{'report-' * (kind == 'section')}{kind})" in PAGE


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_oracle_labels_rounds(register, kind):
    register("oracle")
    oracle = ORACLES.by_name("moving-average", "")()
    assert drive(parts_contract, "oracle", make_log=build_log, oracle=oracle, kind=kind) == 1
    assert drive(parts_contract, "estimator", estimator=oracle) == 1


def test_a_new_oracle_is_learned_with_saved_and_known_to_the_command_line(register, tmp_path):
    register("oracle")
    log = build_log("shared")
    model = sc.learn(log, oracle="moving-average", objective="dm")
    model.save(tmp_path / "own")
    loaded = sc.load(tmp_path / "own")
    np.testing.assert_array_equal(loaded.oracle.predict(log).states, model.labels.states)
    sc.write_log(log, tmp_path / "log.parquet")
    settings = ("--oracle", "moving-average", "--objective", "dm", "--quiet", "--json")
    result = run("learn", tmp_path / "log.parquet", "-o", tmp_path / "m", *settings)
    assert json.loads(result.stdout)["n_states"] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_learner_learns_policies(register, kind):
    register("learner")
    learner = LEARNERS.by_name("cautious", "")()
    assert drive(parts_contract, "learner", make_log=build_log, learner=learner, kind=kind) == 2
    assert drive(parts_contract, "estimator", estimator=learner) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_deployer_decides(register, kind, tmp_path):
    register("deployer")
    model = sc.learn(deployers_contract._log(kind), oracle=sc.HMMOracle(n_states=2, rewards="gaussian"))
    deployers = {("win-stay", kind): model.deployer("win-stay", exploration=0.05)}
    assert drive(deployers_contract, "name", deployers=deployers, name="win-stay", kind=kind, tmp_path=tmp_path) == 10


def test_a_new_deployer_is_evaluated_on_a_log_and_in_a_world(register):
    register("deployer")
    log = deployers_contract._log("shared")
    model = sc.learn(log, n_states=2, objective="ips")
    found = sc.evaluate_online(log, model.deployer("win-stay"), "dr-ns")
    assert found.low < found.value < found.high
    world = sc.simulate.Shop(seed=0)
    trained = sc.learn(world.log(0), n_states=2, objective="dm")
    assert np.isfinite(sc.simulate.rollout(world, trained.deployer("win-stay"), 0).expected_rewards).all()


def test_a_new_estimator_estimates(register):
    register("estimator")
    assert drive(estimators_contract, "name", name="truncated-ips") == 6
    for interval in ("normal", "bootstrap", "bernstein", "sequence"):
        estimators_contract.test_every_interval_contains_the_value_or_is_refused_with_a_way_out(
            "truncated-ips", interval
        )


def test_a_new_format_is_read(register, tmp_path, monkeypatch):
    register("format")
    rows = [f"{item}|{t % 2}|0.25" for t, item in enumerate(["boots", "coats", "lamps"] * 4)]
    monkeypatch.setitem(formats_contract.SAMPLES, "pipe", ("log.pipe", formats_contract.lines(lambda: rows)))
    formats_contract.test_every_registered_format_is_in_this_contract()
    assert drive(formats_contract, "name", tmp_path=tmp_path, name="pipe") == 2
    formats_contract.test_a_file_that_was_cut_short_gives_its_whole_rounds_or_an_error(tmp_path, "pipe", 0.93)
    (tmp_path / "bad.pipe").write_text("boots|1|0.5\nno round\n")
    found = check_log(tmp_path / "bad.pipe")
    assert (found.format, found.n_rounds, found.n_usable) == ("pipe", 2, 1)


def test_a_new_check_finds(register):
    register("check")
    checks_contract.test_no_check_finds_anything_in_a_sound_log()
    checks_contract.test_every_check_copes_with_an_empty_log_and_one_of_one_round()
    checks_contract.test_registered_checks_run_once_per_log()
    table = sound_table()
    users = polars.Series(np.where(np.arange(len(table)) % 4 == 0, "ann", "bot"))
    checks_contract.assert_sound_findings(TableLog(table.with_columns(sequence=users)), {"dominant-sequence"})


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("case", sections_contract.CASES)
def test_a_new_section_is_shown(register, case):
    register("section")
    content = report_content(*sections_contract.CASES[case](), commands=["seachange report"])
    sections_contract.test_ids_are_unique_and_can_be_linked_to()
    sections_contract.test_a_section_renders_alone(SECTIONS[-1], content)
    assert "Size of the log" in page_of(content)


def test_a_new_command_runs(register, tmp_path):
    register("command")
    commands_contract.test_every_command_can_be_quiet_and_answers_in_json(("size",))
    commands_contract.test_every_line_of_help_starts_with_a_verb()
    for width in (80, 200):
        commands_contract.test_help_fits_the_terminal_and_names_every_option(("size",), width)
    sc.write_log(build_log(), tmp_path / "log.parquet")
    assert "600 rounds" in succeed("size", tmp_path / "log.parquet")[0]
    assert succeed_in_json("size", tmp_path / "log.parquet")[0] == {"n_rounds": 600}
