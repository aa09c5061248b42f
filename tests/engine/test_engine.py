"""Maps keep their order; thread limits are undone."""

import time

import pytest
from threadpoolctl import threadpool_info

from seachange.engine import map_in_order, one_thread


def slow_square(x):
    time.sleep(0.02 * (3 - x % 4))
    return x * x


@pytest.mark.parametrize(("workers", "kind"), [(1, "threads"), (4, "threads"), (2, "processes")])
def test_results_come_in_the_order_of_the_items(workers, kind):
    assert list(map_in_order(slow_square, range(6), workers=workers, kind=kind)) == [0, 1, 4, 9, 16, 25]


def limits():
    return [library["num_threads"] for library in threadpool_info()]


def test_one_thread_holds_inside_and_is_undone_after():
    with one_thread():
        pass
    before = limits()
    with one_thread():
        with one_thread():
            assert set(limits()) == {1}
        assert set(limits()) == {1}
    assert limits() == before
