"""What the tests of the command line share."""

import pytest

from cli.shop import QUICK, N, succeed, table_of_two_worlds


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two logs, early.csv and late.csv, and what was learned from the first, shop.seachange."""
    path = tmp_path_factory.mktemp("shop")
    table_of_two_worlds(0).write_csv(path / "early.csv")
    table_of_two_worlds(1, start=N).write_csv(path / "late.csv")
    succeed("learn", path / "early.csv", "-o", path / "shop.seachange", *QUICK)
    return path
