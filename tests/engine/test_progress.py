"""Stages of long work: how much is done is known to whoever listens, from any thread, and to nobody else."""

import threading

import pytest

from seachange.engine import listening, map_in_order, stage


def test_without_a_listener_stages_are_of_no_consequence():
    with stage("outer", 2) as outer:
        with stage("inner", 2):
            assert outer.parts == []
        outer.advance()
        assert outer.share == 0.5


def test_parts_are_shares_of_the_step_they_are_in():
    with listening() as root, stage("outer", 4) as outer:
        outer.advance()
        with stage("inner", 2) as inner:
            assert root.parts == [outer]
            assert outer.parts == [inner]
            assert outer.share == 1 / 4
            inner.advance()
            assert outer.share == (1 + 1 / 2) / 4
            outer.step = 2
            assert outer.share == (1 + 2 * 1 / 2) / 4
        assert outer.parts == []
    assert root.parts == []


def test_a_stage_of_unknown_length_is_as_far_as_its_only_part():
    with listening(), stage("outer") as outer:
        assert outer.share is None
        with stage("inner", 4) as inner:
            inner.advance(3)
            assert outer.share == 3 / 4
        assert outer.share is None


def test_what_is_reached_never_falls_and_no_share_is_more_than_one():
    with listening(), stage("climbing", 2) as climbing:
        climbing.reach(1)
        climbing.reach(0.5)
        assert climbing.share == 0.5
        climbing.advance(10)
        assert climbing.share == 1
    with stage("nothing to do", 0) as nothing:
        assert nothing.share == 1


def test_what_is_expected_may_change_on_the_way():
    with listening(), stage("searching") as searching:
        searching.expect(10, step=2, detail="trying 2")
        searching.advance(2)
        assert (searching.share, searching.detail) == (0.2, "trying 2")
        searching.expect(20, step=3, detail="trying 3")
        assert searching.share == 0.1


def test_stages_of_threads_are_parts_of_the_stage_around_them():
    together = threading.Barrier(3, timeout=300)

    def work(number):
        with stage(f"part {number}", 2) as part:
            part.advance()
            together.wait()
            together.wait()

    with listening() as root, stage("all", 2) as outer:
        seen = []

        def look():
            together.wait()
            seen.append((root.share, sorted(part.name for part in outer.parts)))
            together.wait()

        watcher = threading.Thread(target=look)
        watcher.start()
        list(map_in_order(work, [0, 1], workers=2))
        watcher.join()
    # Each is half of a step, two of which are the whole.
    assert seen == [(1 / 2, ["part 0", "part 1"])]


def test_the_listener_hears_of_every_end_before_the_work_goes_on():
    heard = []
    with listening(lambda: heard.append("end")):
        with stage("one"):
            with stage("within"):
                pass
            assert heard == []
        assert heard == ["end"]

        def fail():
            with stage("two"):
                raise ValueError

        with pytest.raises(ValueError, match=r"^$"):
            fail()
        assert heard == ["end", "end"]
