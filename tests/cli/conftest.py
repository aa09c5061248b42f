"""What the tests of the command line share."""

import pytest

from cli.shop import QUICK, N, new_regime, succeed, table_of_two_worlds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with early.csv, late.csv and new.csv, which ends in a new regime, and a model of the first."""
    path = tmp_path_factory.mktemp("shop")
    table_of_two_worlds(0).write_csv(path / "early.csv")
    table_of_two_worlds(1, start=N).write_csv(path / "late.csv")
    new_regime(table_of_two_worlds(2, start=N)).write_csv(path / "new.csv")
    succeed("learn", path / "early.csv", "-o", path / "shop.seachange", *QUICK)
    return path
