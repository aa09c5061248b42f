"""Work that threads share while one of them goes through the items in order."""

import threading

import pytest

from seachange.engine import SharedWork


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(workers):
    with SharedWork(lambda item: item**2, workers) as work:
        for item in range(100):
            work.give(item)
        assert list(work.results()) == [item**2 for item in range(100)]


def test_this_thread_helps_while_it_waits():
    started, helped = threading.Event(), threading.Event()
    this = threading.current_thread()

    def first_waits_for_others(item):
        if threading.current_thread() is this:
            helped.set()
        elif item == 0:
            started.set()
            assert helped.wait(timeout=30)
        return item

    with SharedWork(first_waits_for_others, workers=2) as work:
        work.give(0)
        assert started.wait(timeout=30)
        work.give(1)
        assert list(work.results()) == [0, 1]


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_is_passed_on(workers):
    def fail(item):
        raise ValueError(f"item {item}")

    with SharedWork(fail, workers) as work:
        for item in range(10):
            work.give(item)
        with pytest.raises(ValueError, match="item 0"):
            list(work.results())
