"""Tables of what was seen before, against dictionaries; sketches, against the truth."""

import numpy as np
import pytest

from check.tables import TableLog, sound_table
from seachange.check import check_log
from seachange.check.counters import LEFT_OUT, NEW, OTHER, SAME, SLICES, SeenKeys, Slices
from seachange.log.column_statistics import Distinct


def hashes(rng, size, distinct):
    """Keys that repeat, spread over all 64 bits."""
    keys = rng.integers(1, np.iinfo(np.uint64).max, distinct, dtype=np.uint64)
    return keys[rng.integers(0, distinct, size)]


def by_dictionary(keys, values):
    last, found = {}, []
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        found.append(NEW if key not in last else SAME if last[key] == value else OTHER)
        last[key] = value
    return found


def test_repeats_are_those_that_a_dictionary_sees():
    rng = np.random.default_rng(0)
    keys, values = hashes(rng, 9_000, 4_000), rng.integers(0, 2, 9_000).astype(np.uint64)
    table = SeenKeys(largest=None)
    found = np.concatenate([table.repeats(keys[i : i + 700], values[i : i + 700]) for i in range(0, 9_000, 700)])
    assert found.tolist() == by_dictionary(keys, values)
    assert table.share == 1


def test_a_full_table_sees_all_repeats_of_a_share_of_the_keys():
    rng = np.random.default_rng(1)
    keys, values = hashes(rng, 20_000, 12_000), np.zeros(20_000, dtype=np.uint64)
    table = SeenKeys(largest=1 << 11)
    found = table.repeats(keys, values)
    barrier = np.iinfo(np.uint64).max >> table.level
    assert table.share < 1
    exact = np.array(by_dictionary(keys, values))
    assert (found[keys <= barrier] == exact[keys <= barrier]).all()
    assert (found[keys > barrier] == LEFT_OUT).all()
    assert (found == SAME).sum() / table.share == pytest.approx((exact == SAME).sum(), rel=0.15)


def test_values_before_are_those_of_a_dictionary():
    rng = np.random.default_rng(2)
    keys, values = hashes(rng, 5_000, 900), rng.normal(size=5_000)
    values[::7] = np.nan
    last, expected = {}, []
    for key, value in zip(keys.tolist(), values.tolist(), strict=True):
        expected.append(np.nan if np.isnan(value) else last.get(key, np.nan))
        if not np.isnan(value):
            last[key] = value
    table = SeenKeys(np.float64)
    found = np.concatenate([table.before(keys[:1234], values[:1234]), table.before(keys[1234:], values[1234:])])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("distinct", [1, 17, 1_000, 30_000])
def test_distinct_values_are_counted_exactly_or_to_a_few_per_cent(distinct):
    rng, counter = np.random.default_rng(3), Distinct()
    keys = rng.integers(0, np.iinfo(np.uint64).max, distinct, dtype=np.uint64)
    for part in np.array_split(np.concatenate([keys, rng.permutation(keys)]), 9):
        counter.add(part)
    assert counter.exact == (distinct <= 1_024)
    assert counter.count == pytest.approx(distinct, rel=0 if counter.exact else 0.15)


def test_slices_hold_the_sums_of_equal_runs_of_rounds():
    rng = np.random.default_rng(4)
    weights, slices = rng.normal(size=1_003), Slices()
    sums = slices.sums()
    for part in np.array_split(weights, 13):
        sums.add(slices.extend(len(part)), part)
    assert SLICES / 2 < slices.count <= SLICES
    assert slices.lengths.sum() == 1_003
    expected = [weights[i : i + slices.size].sum() for i in range(0, 1_003, slices.size)]
    np.testing.assert_allclose(sums.values[0, : slices.count], expected)


def test_repeated_rounds_are_estimated_when_not_all_can_be_remembered(monkeypatch):
    monkeypatch.setattr(SeenKeys.__init__, "__defaults__", (np.uint64, 1 << 11))
    rng = np.random.default_rng(5)
    table = sound_table(n=20_000)
    again = np.sort(np.concatenate([np.arange(20_000), rng.choice(20_000, 2_000, replace=False)]))
    log = TableLog(table[again])
    whole = log.parts
    log.parts = lambda _=None: whole(1_000)
    found = check_log(log)
    [finding] = found.findings
    assert finding.rule == "duplicate-rounds"
    assert found.duplicates_seen < 0.25
    # About a tenth of a thousand are looked at in the end: the standard error is 6 %.
    assert finding.count == pytest.approx(2_000, rel=0.25)
