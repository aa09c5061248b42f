"""The shape of the source tree: no import cycles, and one meaning per module name."""

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"


def modules():
    """Every module of the package, by its dotted name."""
    found = {}
    for path in sorted((SOURCE / "seachange").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path, known):
    """The modules of the package that a file imports, inside functions too; imports for type checkers don't count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (inner & known.keys()) or {node.module}
    return names & known.keys()


def test_no_module_imports_itself_in_a_circle_not_even_lazily():
    known = modules()
    graph = {name: imported(path, known) - {name} for name, path in known.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_two_modules_have_the_same_name():
    by_name = defaultdict(list)
    for name, path in modules().items():
        if path.name != "__init__.py":
            by_name[path.stem].append(name)
    assert {name: places for name, places in by_name.items() if len(places) > 1} == {}
