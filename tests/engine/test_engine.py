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


def test_an_iterator_is_read_only_as_far_ahead_as_there_are_workers():
    read = []

    def items():
        for item in range(20):
            read.append(item)
            yield item

    squares = map_in_order(lambda item: item**2, items(), workers=2)
    assert next(squares) == 0
    assert read == [0, 1, 2]
    assert list(squares) == [item**2 for item in range(1, 20)]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_is_passed_on(workers):
    def fail(item):
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"):
        list(map_in_order(fail, range(10), workers=workers))


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
