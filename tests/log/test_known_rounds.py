"""A log is known again by some of its rounds."""

from dataclasses import replace

import numpy as np
import pytest

import seachange as sc
from seachange.log.fingerprint import REMEMBERED, remembered, share_known
from seachange.model_file import Provenance


def some_log(n, seed, contexts="numbers", times=None):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 3)) if contexts == "numbers" else generator.integers(2, size=(n, 2)).astype(float)
    clicks = (generator.random(n) < 0.2).astype(float)
    return sc.BanditLog.from_arrays(
        generator.integers(4, size=n), clicks, np.full(n, 0.25), contexts=x, times=times, n_actions=4
    )


@pytest.mark.parametrize("n", [40, 400, 5000])
def test_any_part_of_a_log_is_known_again(n):
    log = some_log(n, 0)
    hashes = remembered(log)
    assert len(hashes) == min(n, REMEMBERED)
    assert share_known(log, hashes) == 1
    assert share_known(log[n // 4 :], hashes) == 1
    assert share_known(log.take(np.arange(0, n, 2)), hashes) == 1
    assert share_known(some_log(n, 1), hashes) == 0


def test_the_share_that_is_known_again_is_estimated():
    old, new = some_log(6000, 0), some_log(6000, 1)
    halves = old[:3000], new[:3000]
    half = sc.BanditLog.from_arrays(
        *(np.concatenate([getattr(part, name) for part in halves]) for name in ("actions", "rewards")),
        np.full(6000, 0.25),
        contexts=np.concatenate([part.contexts for part in halves]),
        n_actions=4,
    )
    assert share_known(half, remembered(old)) == pytest.approx(0.5, abs=0.12)


def test_rounds_that_are_alike_tell_nothing():
    assert remembered(some_log(3000, 0, contexts="few")) == ()
    assert share_known(some_log(3000, 0, contexts="few"), ()) is None


def test_a_part_of_the_log_without_times_is_not_an_unseen_log():
    provenance, log = Provenance.of(some_log(3000, 0)), some_log(3000, 0)[300:]
    assert provenance.overlap(log) == "about 100% of these rounds are among those that the model was learned from"
    assert provenance.overlap(some_log(3000, 1)) is None
    assert provenance.knows(some_log(3000, 1))
    assert not Provenance.of(some_log(3000, 0, contexts="few")).knows(log)


def test_times_in_seconds_and_dates_are_compared():
    seconds = 1_767_225_600.0 + np.arange(3000)
    provenance = Provenance.of(some_log(3000, 0, "few", seconds.astype("datetime64[s]")))
    assert "50.0% of these rounds" in provenance.overlap(some_log(3000, 1, "few", seconds - 1500.0))
    assert provenance.overlap(some_log(3000, 1, "few", seconds + 3000.0)) is None


def logs_of_three_months(contexts):
    """Three logs, each of a month, with a month between them."""
    months = [np.datetime64(f"2026-0{month}-01") + np.arange(3000).astype("timedelta64[m]") for month in (1, 3, 5)]
    return [some_log(3000, seed, contexts, times) for seed, times in enumerate(months)]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("contexts", ["numbers", "few"])
def test_each_log_that_was_joined_is_known_again(contexts, timed):
    early, between, late = logs_of_three_months(contexts)
    if not timed:
        early, between, late = (replace(log, times=None) for log in (early, between, late))
    joined = sc.BanditLog.joined([early, late])
    provenance = Provenance.of(joined)
    for log in (early, late, joined):
        assert provenance.overlap(log) == "the model was learned from this log"
        assert provenance.holds(log)
    assert not provenance.holds(between)
    assert provenance.overlap(between) is None
    if timed or contexts == "numbers":
        assert provenance.overlap(late[300:]) is not None
        assert provenance.knows(between)


def test_a_short_log_that_was_joined_with_a_long_one_is_known_again_by_some_of_its_rounds():
    """Hardly any of its rounds are among the smallest hashes of all rounds."""
    short, long = some_log(300, 0), some_log(60_000, 1)
    provenance = Provenance.of(sc.BanditLog.joined([long, short]))
    assert share_known(short[10:], provenance.remembered) is None
    assert provenance.overlap(short[10:]) == (
        "about 100% of these rounds are among those that the model was learned from"
    )
    assert provenance.overlap(some_log(300, 2)) is None


def test_the_time_between_logs_that_were_joined_is_not_known():
    early, between, late = logs_of_three_months("few")
    provenance = Provenance.of(sc.BanditLog.joined([early, late]))
    both = sc.BanditLog.joined([early[1500:], between, late[:1500]])
    assert provenance.overlap(both) == (
        "50.0% of these rounds fall in the periods of the logs that the model was learned from "
        "(2026-01-01 00:00 to 2026-01-03 01:59 and 2026-05-01 00:00 to 2026-05-03 01:59)"
    )
    assert provenance.overlap(between) is None


def test_joining_joined_logs_remembers_every_log():
    logs = logs_of_three_months("few")
    twice = sc.BanditLog.joined([sc.BanditLog.joined(logs[:2]), logs[2]])
    assert twice.parts == sc.BanditLog.joined(logs).parts
    assert [part.fingerprint for part in twice.parts] == [log.fingerprint() for log in logs]
    assert twice[:100].parts == ()
