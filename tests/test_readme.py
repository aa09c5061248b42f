"""What the README shows, run as it stands on a table with its column names."""

import re
import shlex
from pathlib import Path

import numpy as np
import polars
import pytest
from typer.testing import CliRunner

from seachange.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with clicks.csv and later.csv, in which the examples run."""
    generator = np.random.default_rng(0)
    for name in ("clicks.csv", "later.csv"):
        n = 6000
        mood = (np.arange(n) // 1000) % 2
        item = generator.integers(3, size=n)
        rate = np.array([[0.7, 0.4, 0.2], [0.1, 0.4, 0.8]])[mood, item]
        table = {
            "ts": np.arange(n),
            "item_id": np.array(["boots", "coats", "lamps"])[item],
            "click": (generator.random(n) < rate).astype(int),
            "p": np.full(n, 1 / 3),
            "age": generator.normal(size=n),
        }
        polars.DataFrame(table).write_csv(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_ten_lines_of_python_do_the_real_thing(folder, capsys):
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    names = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["model"].n_states == 2
    assert names["state"].rounds == 1
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in printed] == ["ips", "snips", "dm", "dr", "show"]
    # The mean of each mood's best rate is 0.75; the log itself earned 0.43.
    assert all(float(line[1]) > 0.65 for line in printed[:4])


def test_the_shell_commands_run_as_shown(folder):
    commands = [line for line in README.splitlines() if line.startswith(("seachange learn", "seachange evaluate"))]
    assert len(commands) == 2
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        assert result.exit_code == 0, result.output
    assert (folder / "clicks.seachange").is_file()


def test_every_file_the_readme_points_to_is_there():
    root = Path(__file__).parents[1]
    targets = re.findall(r"\]\(((?!http)[^)]+)\)", README)
    assert targets
    for target in targets:
        assert (root / target).exists(), target


def test_the_table_of_results_has_every_method():
    from seachange.experiments.synthetic import METHODS, PAPER

    rows = {cells[1].strip(" *"): cells for line in README.splitlines() if len(cells := line.split("|")) == 7}
    assert set(METHODS) <= set(rows)
    for method, figure in PAPER.items():
        assert float(rows[method][2]) == figure


def test_the_log_of_the_page_about_states_is_made_as_shown(tmp_path, monkeypatch):
    import seachange as sc

    page = (Path(__file__).parents[1] / "docs" / "states.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "docs/states.md", "exec"), {})
    columns = {"action": "item", "reward": "click", "propensity": "p", "time": "ts"}
    assert len(sc.read_log(tmp_path / "shop.parquet", columns)) == 30_000
