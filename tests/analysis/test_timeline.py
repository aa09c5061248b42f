"""The axis of time, and the shares of states along it."""

import numpy as np
import pytest

import seachange as sc
from seachange.analysis.states_summary import as_document, summarize_states
from seachange.analysis.timeline import bands, time_axis, time_ticks
from seachange.states.labels import labels_from_states


def log_of(n, **columns):
    return sc.BanditLog.from_arrays(np.zeros(n, int), np.arange(n) / n, np.ones(n), n_actions=1, **columns)


def test_without_times_the_axis_counts_rounds():
    axis = time_axis(log_of(50), 1)
    assert axis.kind == "round"
    np.testing.assert_array_equal(axis.at([0, 10, 50]), [0, 10, 50])
    assert axis.format_duration(10) == ""


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_dates_are_read_in_any_resolution(unit):
    days = np.datetime64("2026-01-01") + np.arange(30).astype("timedelta64[D]")
    axis = time_axis(log_of(30, times=days.astype(f"datetime64[{unit}]")), 1)
    assert axis.kind == "date"
    assert axis.format(float(axis.at(3))) == "2026-01-04 00:00:00"
    assert axis.format_duration(7) == "7 days"


def test_unix_times_are_dates_and_other_numbers_are_seconds():
    dates = time_axis(log_of(3, times=1_577_836_800 + 60 * np.arange(3)), 1)
    assert (dates.kind, dates.format(float(dates.at(1)))) == ("date", "2020-01-01 00:01:00")
    assert dates.format_duration(80) == "80 min"
    seconds = time_axis(log_of(3, times=[0.0, 10.0, 20.0]), 1)
    assert (seconds.kind, seconds.format_duration(3)) == ("seconds", "30 s")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_unix_times_are_dates_in_any_unit(unit, kind):
    dates = np.datetime64("2026-03-01T12:00", unit) + np.arange(3) * np.timedelta64(1, "h")
    axis = time_axis(log_of(3, times=dates.astype(np.int64).astype(kind)), 1)
    assert (axis.kind, axis.format(float(axis.at(1)))) == ("date", "2026-03-01 13:00:00")
    assert axis.format_duration(5) == "5 h"


def test_rounds_that_share_a_time_are_spread_up_to_the_next():
    axis = time_axis(log_of(6, times=[0, 0, 10, 10, 10, 10]), 1)
    np.testing.assert_allclose(axis.at([0, 1, 2, 4, 6]), [0, 5, 10, 11, 12])


def test_bands_are_means_of_the_probabilities():
    log = log_of(10)
    probs = np.random.default_rng(0).dirichlet(np.ones(3), 10)
    labels = labels_from_states(np.argmax(probs, axis=1), 3, log, probs)
    found = bands(log, labels, time_axis(log, 1), most=5)
    np.testing.assert_array_equal(found.edges, [0, 2, 4, 6, 8, 10])
    np.testing.assert_allclose(found.shares, probs.reshape(5, 2, 3).mean(axis=1))
    np.testing.assert_allclose(found.coarser(1).shares[0], probs.mean(axis=0))


def test_a_long_log_is_drawn_in_few_columns():
    n = 300_000
    log = log_of(n)
    summary = summarize_states(log, sc.KnownStates((np.arange(n) // 1000) % 2))
    assert len(summary.bands.rounds) == 2000
    assert summary.bands.rounds.sum() == n
    assert len(summary.changes) == 299


@pytest.mark.parametrize("timed", [False, True])
def test_sequences_are_counted_together_wherever_their_rounds_stand_in_the_log(timed):
    sequences = np.tile([3, 1, 2], 40)
    rounds = np.repeat(np.arange(40), 3)
    states = (rounds >= 20 + sequences).astype(int)
    columns = {"times": rounds.astype(float)} if timed else {}
    summary = summarize_states(log_of(120, sequences=sequences, **columns), sc.KnownStates(states))
    assert summary.n_chains == 3
    assert summary.segments is None
    assert summary.changes == ()
    np.testing.assert_array_equal(summary.changes_per_chain, [0, 3])
    assert summary.axis.kind == ("seconds" if timed else "round of its sequence")
    assert summary.bands.rounds.sum() == 120
    np.testing.assert_allclose(summary.bands.shares[[0, -1]], [[1, 0], [0, 1]])


def test_a_gap_in_time_belongs_to_the_stretch_around_it():
    log = log_of(100, times=np.concatenate([np.arange(50), 10_000 + np.arange(50)]))
    summary = summarize_states(log, sc.KnownStates((np.arange(100) >= 20).astype(int)))
    shares = summary.bands.coarser(20).shares
    np.testing.assert_allclose(shares[1:], np.tile([0.0, 1.0], (19, 1)))


def test_the_axis_of_sequences_ends_with_their_last_round():
    times = np.array([0.0, 90.0, 10.0, 100.0])
    axis = time_axis(log_of(4, times=times, sequences=[0, 0, 1, 1]), 2)
    assert axis.seconds_per_round == 90
    assert axis.values[-1] == 125


def test_times_that_never_pass_break_nothing():
    summary = summarize_states(log_of(2, times=[5.0, 5.0]), sc.KnownStates([0, 1]))
    assert as_document(summary)["transitions"]["expected_stays_seconds"] == [0.0, None]


def test_ticks_name_the_month_they_are_in():
    start, end = (float(np.datetime64(day, "s").astype(np.int64)) for day in ("2026-10-05", "2026-11-03"))
    ticks = time_ticks("date", start, end, 10)
    months = {value: str(np.datetime64(int(value), "s"))[5:7] for value, _ in ticks}
    assert all(text.startswith({"10": "Oct", "11": "Nov"}[months[value]]) for value, text in ticks)
    assert {text[:3] for _, text in ticks} == {"Oct", "Nov"}
