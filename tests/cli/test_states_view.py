"""``seachange states`` as people see it: tables, words, the figure, and the command on every kind of log."""

import json
import re
from dataclasses import replace

import numpy as np
import polars
import pytest
from matplotlib.image import imread
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

import seachange as sc
from seachange.analysis.formatting import describe_contrast, new_regimes_text
from seachange.analysis.state_contrasts import Contrast
from seachange.analysis.states_summary import Evidence, as_document, summarize_states
from seachange.analysis.timeline import TimeAxis
from seachange.cli.commands import app
from seachange.cli.states_view import states_view
from seachange.errors import OutputError
from seachange.figures import draw_states
from seachange.states.new_states import NewRegime
from seachange.states.state_count import StateCount

N = 600
DAYS = np.datetime64("2026-03-01T00:00:00", "ms") + np.arange(N) * np.timedelta64(3_600_000, "ms")
KEYS = {
    "oracle", "rewards", "n_rounds", "n_sequences", "n_states", "counts", "segment_counts", "mean_rewards", "actions",
    "contexts", "context_names", "n_dropped", "confidence", "change_points", "changes", "changes_per_sequence",
    "segments", "over_time", "rewards_by_action", "distinguishing", "transitions", "clock", "evidence",
    "new_regimes",
}  # fmt: skip


def arrays(kind, seed=0):
    """Columns of a log of two states in turn, of one of several kinds."""
    generator = np.random.default_rng(seed)
    states = (np.arange(N) // 150) % 2
    actions = generator.integers(3, size=N)
    means = np.array([[0.1, 0.5, 0.9], [0.9, 0.5, 0.1]])[states, actions]
    columns = {"rewards": means + generator.normal(0, 0.2, N)}
    if kind == "clicks":
        columns["rewards"] = (generator.random(N) < means).astype(float)
    if kind == "contexts":
        columns |= {"contexts": generator.normal(size=(N, 2)), "context_names": ["age", "[b]hour"]}
        columns["rewards"] = columns["rewards"] + np.where(states, 0.3, -0.3) * columns["contexts"][:, 0]
    if kind == "per action":
        columns["action_features"] = np.tile(np.eye(3), (N, 1, 1)) + generator.normal(0, 0.01, size=(N, 3, 3))
    if kind == "dates":
        columns["times"] = DAYS
    if kind == "sequences":
        columns["sequences"] = np.repeat(np.arange(20), 30)
    if kind == "missing":
        columns["rewards"] = np.where(generator.random(N) < 0.3, np.nan, columns["rewards"])
        columns["missing_rewards"] = True
    return actions, columns


KINDS = ("none", "clicks", "contexts", "per action", "dates", "sequences", "missing")


@pytest.fixture(scope="module")
def summaries():
    """A summary of every kind of log."""
    found = {}
    for kind in KINDS:
        actions, columns = arrays(kind)
        log = sc.BanditLog.from_arrays(
            actions, columns.pop("rewards"), np.full(N, 1 / 3), action_names=["[red]boots", "$coats_", "lamps\x1b[2J"],
            **columns,
        )  # fmt: skip
        found[kind] = summarize_states(log, sc.HMMOracle(n_states=2, restarts=2).fit(log))
    found["single"] = summarize_states(log, sc.SingleState())
    found["many"] = summarize_states(log, sc.KnownStates(np.arange(N) // 2 % 13))
    return found


def printed(summary, width):
    console = Console(width=width, highlight=False, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(states_view(summary, width))
    console.file.close()
    return console.export_text()


@pytest.mark.parametrize("kind", [*KINDS, "single", "many"])
@pytest.mark.parametrize("width", [60, 80, 160])
def test_every_line_fits_and_names_are_printed_as_they_are(summaries, kind, width):
    text = printed(summaries[kind], width)
    assert max(map(len, text.splitlines())) <= width
    assert "[red]boots" in text
    assert "$coats_" in text
    assert "\x1b" not in text
    assert "nan" not in text


def test_the_strip_shows_the_states_in_turn(summaries):
    text = printed(summaries["dates"], 80)
    strip = next(line for line in text.splitlines() if line.startswith("segments")).split()[1]
    assert "".join(sign for i, sign in enumerate(strip) if i == 0 or sign != strip[i - 1]).replace("·", "") == "0101"
    assert "2026-03-01" in text
    assert "days" in text


def test_long_lists_are_cut_and_say_so(summaries):
    assert "the first 20; 279 more" in printed(summaries["many"], 80)


def test_logs_with_contexts_say_what_the_averages_are_over(summaries):
    claim = "Averages over the contexts"
    assert claim in printed(summaries["contexts"], 80)
    assert claim not in printed(summaries["none"], 80)
    assert re.search(r"'age' \+[\d.]+ lowers", printed(summaries["contexts"], 160))


def test_the_contexts_are_named(summaries):
    assert "contexts 2 features per round: age, [b]hour" in printed(summaries["contexts"], 80)
    assert "contexts 3 features per action: x0, x1, x2" in printed(summaries["per action"], 80)
    assert "contexts no contexts" not in printed(summaries["none"], 80)
    assert as_document(summaries["contexts"])["context_names"] == ["age", "[b]hour"]


def test_states_without_rounds_take_one_line(tmp_path):
    actions, columns = arrays("none")
    log = sc.BanditLog.from_arrays(actions, columns["rewards"], np.full(N, 1 / 3), n_actions=3)
    summary = summarize_states(log, sc.KnownStates(np.where(np.arange(N) < 300, 4, 40)))
    text = printed(summary, 80)
    assert "39 more states without rounds." in text
    assert len(text.splitlines()) < 35
    for state in range(41):
        assert (f"state {state} " in text) == (state in (4, 40))
    draw_states(tmp_path / "states.png", summary)
    assert imread(tmp_path / "states.png").shape[0] < 1000
    alone = summarize_states(log, sc.KnownStates(np.full(N, 1)))
    assert "1 more state without rounds." in printed(alone, 80)
    draw_states(tmp_path / "alone.png", alone)


def test_an_action_that_earned_most_in_a_few_rounds_has_a_star():
    actions, rewards = np.arange(N) % 2, np.arange(N) % 2 * 0.5
    actions[5], rewards[5] = 2, 0.9
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(N, 1 / 3), action_names=["a", "b", "c"])
    text = printed(summarize_states(log, sc.SingleState()), 80)
    assert "b, c*" in text
    assert "* fewer than 20 rounds." in text


def test_the_weighting_of_rounds_is_shown(summaries):
    assert "Rounds are numbered from 0." in printed(summaries["none"], 80)
    dropped = printed(replace(summaries["none"], n_dropped=3), 80)
    assert "Rounds are numbered from 0; dropped rounds are not counted." in dropped


def test_a_lower_bic_of_more_states_is_explained(summaries):
    counts = tuple(StateCount(n, 0.0, bic, 0.0, 0.0, 1.0) for n, bic in ((1, 49118.0), (2, 42767.0), (3, 39487.0)))
    claim = "BIC alone would choose 3, but the extra states"
    evidence = Evidence(counts, 49118.0, 49118.0, 0.0, True)
    assert claim in printed(replace(summaries["single"], evidence=evidence), 80)
    assert claim not in printed(replace(summaries["single"], evidence=replace(evidence, counts=counts[:1])), 80)


def test_sequences_are_reported_together(summaries):
    text = printed(summaries["sequences"], 80)
    assert "in 20 sequences" in text
    assert "changes on average" in text
    assert "segments 0" not in text


@pytest.mark.parametrize(
    ("contrast", "words"),
    [
        (
            ("boots", None, 0.72, 0.41, 12.34, "reward"),
            "'boots' earns 0.31 more than in other states (0.72 vs. 0.41, 12.3 SE)",
        ),
        (
            ("boots", None, 0.1, 0.41, -5.0, "reward"),
            "'boots' earns 0.31 less than in other states (0.10 vs. 0.41, 5.0 SE)",
        ),
        (
            ("coats", "age", -0.1, 0.3, -4, "reward"),
            "'age' lowers the reward of 'coats' by 0.100 (in other states raises it by 0.300, 4.0 SE)",
        ),
        (
            (None, "price", 0.1, 0.3, -4.0, "reward"),
            "'price' raises the reward by 0.100 (in other states by 0.300, 4.0 SE)",
        ),
        (
            ("coats", "age", 0.0, np.log(2), -4.0, "log-odds"),
            "'age' multiplies the odds of a reward for 'coats' by 1.00 (in other states by 2.00, 4.0 SE)",
        ),
    ],
)
def test_contrasts_describe_contrast(contrast, words):
    assert describe_contrast(Contrast(0, *contrast, "")) == words


@pytest.mark.parametrize(("unit", "shown"), [(1e-6, "0.00000"), (1.0, "0.9"), (1e6, "925,")])
def test_rewards_of_any_size_are_shown_with_figures_that_matter(unit, shown):
    actions, columns = arrays("none")
    log = sc.BanditLog.from_arrays(actions, unit * columns["rewards"], np.full(N, 1 / 3), action_names=["a", "b", "c"])
    summary = summarize_states(log, sc.KnownStates((np.arange(N) // 150) % 2))
    line = next(line for line in printed(summary, 80).splitlines() if line.startswith("c "))
    mean, half = line.split()[1:3]
    assert mean.startswith(shown)
    assert float(half.strip("±*").replace(",", "")) == pytest.approx(
        summary.cells.high[0, 2] - summary.cells.means[0, 2], rel=0.1
    )


def test_evidence_marks_the_number_that_was_chosen():
    actions, columns = arrays("none")
    log = sc.BanditLog.from_arrays(actions, columns["rewards"], np.full(N, 1 / 3), n_actions=3)
    summary = summarize_states(log, sc.HMMOracle(restarts=2).fit(log))
    (line,) = [line for line in printed(summary, 80).splitlines() if "← chosen" in line]
    assert line.startswith("2")
    count = summary.evidence.counts[1]
    assert f"{count.gain:+,.1f} ± {count.gain_error:,.1f}" in line
    assert f"{count.bic:,.1f}" in line


@pytest.mark.parametrize("kind", [*KINDS, "single", "many"])
def test_the_figure_of_every_kind_of_log(summaries, kind, tmp_path):
    draw_states(tmp_path / "states.png", summaries[kind])
    assert imread(tmp_path / "states.png").shape[1] > 1000


@pytest.mark.parametrize("kind", [*KINDS, "single", "many"])
def test_the_document_is_json_with_the_documented_keys(summaries, kind):
    document = as_document(summaries[kind])
    assert set(document) == KEYS
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    size, n_actions = document["n_states"], len(document["actions"])
    assert np.shape(document["rewards_by_action"]["rounds"]) == (size, n_actions)
    assert len(document["over_time"]["edges"]) == len(document["over_time"]["state_probs"]) + 1


@pytest.mark.parametrize(
    ("n_regimes", "n_states", "text"),
    [
        (0, 3, ""),
        (1, 1, "New regime since round 10: the known state does not explain these rewards."),
        (1, 3, "New regime since round 10: none of the 3 known states explains these rewards."),
        (2, 3, "2 new regimes, from round 10 to round 14 and since round 20: none of the 3 known states explains these "
               "rewards."),
        (4, 3, "4 new regimes, from round 10 to round 14, from round 20 to round 24, from round 30 to round 34, and "
               "since round 40: none of the 3 known states explains these rewards."),
        (6, 3, "6 new regimes, from round 10 to round 14, from round 20 to round 24, 3 more, and since round 60: none "
               "of the 3 known states explains these rewards."),
    ],
)  # fmt: skip
def test_new_regimes_are_one_sentence(n_regimes, n_states, text):
    numbers = range(1, n_regimes + 1)
    regimes = [NewRegime(10 * i, 10 * i + 4, None, None, i == n_regimes) for i in numbers]
    knots = np.array([0.0, 100.0])
    assert new_regimes_text(regimes, n_states, TimeAxis("round", knots, knots, None)) == text


def test_dates_of_new_regimes_are_to_the_minute():
    axis = TimeAxis("date", np.array([0.0, 100.0]), np.array([0.0, 6000.0]) + 1.7e9, 60.0)
    text = new_regimes_text([NewRegime(10, 20, "", "", False)], 2, axis)
    assert text.startswith("New regime from 2023-11-14 22:23 to 2023-11-14 22:33: ")


def test_no_place_and_no_p_value_are_a_dash(summaries):
    summary = summaries["none"]
    changes = (replace(summary.changes[0], low=None, high=None, p_value=0.0213), *summary.changes[1:])
    text = printed(replace(summary, changes=changes), 80)
    assert "0.021" in text


def write(kind, path):
    """A log of one kind as a Parquet file."""
    actions, columns = arrays(kind)
    rewards = columns["rewards"]
    table = {"action": actions, "reward": rewards, "propensity": np.full(N, 1 / 3)}
    if kind == "contexts":
        table |= {"age": columns["contexts"][:, 0], "hour": columns["contexts"][:, 1]}
    if kind == "dates":
        table["time"] = DAYS
    if kind == "sequences":
        table["sequence"] = columns["sequences"]
    polars.DataFrame(table).write_parquet(path)
    return path


def run(*arguments, columns="80"):
    return CliRunner(env={"COLUMNS": columns}).invoke(app, ["states", *map(str, arguments)])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "per action"])
def test_the_command_on_every_kind_of_log(kind, tmp_path):
    path = write(kind, tmp_path / "log.parquet")
    options = ["--states", "2", "--figure", tmp_path / "states.png", "--json"]
    options += ["--missing-rewards"] if kind == "missing" else []
    result = run(path, *options)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert set(document) == KEYS
    assert document["rewards"] == ("bernoulli" if kind == "clicks" else "gaussian")
    assert (tmp_path / "states.png").stat().st_size > 10_000
    assert "How the states differ" in result.stderr
    assert "states.png" in result.stderr


def test_rewards_may_be_declared_gaussian(tmp_path):
    path = write("clicks", tmp_path / "log.parquet")
    result = run(path, "--states", "2", "--rewards", "gaussian", "--json")
    assert json.loads(result.stdout)["rewards"] == "gaussian"
    result = run(path, "--oracle", "change-point", "--rewards", "gaussian")
    assert result.exit_code == 2
    assert "--rewards" in Text.from_ansi(result.stderr).plain


def test_a_figure_is_not_written_over_another(tmp_path):
    path = write("none", tmp_path / "log.parquet")
    (tmp_path / "states.png").write_text("precious")
    result = run(path, "--states", "2", "--figure", tmp_path / "states.png")
    assert isinstance(result.exception, OutputError)
    assert (tmp_path / "states.png").read_text() == "precious"
    assert run(path, "--states", "2", "--figure", tmp_path / "states.png", "--force").exit_code == 0
    assert (tmp_path / "states.png").read_bytes().startswith(b"\x89PNG")
    assert run(path, "--figure", tmp_path / "states.pdf").exit_code == 2


def test_missing_rewards_are_bad_rows_unless_allowed(tmp_path):
    path = write("missing", tmp_path / "log.parquet")
    result = run(path, "--states", "2")
    assert isinstance(result.exception, sc.SeachangeError)


def test_the_states_of_a_model_are_shown_whatever_the_options_for_finding_them(tmp_path):
    path = write("none", tmp_path / "log.parquet")
    sc.learn(sc.read_log(path), n_states=2).save(tmp_path / "m.seachange")
    result = run(path, tmp_path / "m.seachange", "--states", "5", "--json")
    assert json.loads(result.stdout)["n_states"] == 2
    assert "the states are the model's" in result.stderr
    assert "the log the model was learned from" not in result.stderr


def test_evidence_of_another_log_is_labeled(tmp_path):
    path = write("none", tmp_path / "log.parquet")
    sc.learn(sc.read_log(path)[:400], n_states=2).save(tmp_path / "m.seachange")
    result = run(path, tmp_path / "m.seachange", "--json", "--figure", tmp_path / "states.png")
    assert json.loads(result.stdout)["evidence"]["of_this_log"] is False
    assert "This evidence is from the log the model was learned from." in result.stderr
