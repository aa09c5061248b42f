"""Visits of a front page are the same through files as without them."""

from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pytest

from seachange.datasets.yahoo_r6 import YahooLog
from seachange.errors import LogError
from seachange.kernels.feature_rows import draw_documents
from seachange.simulate import FrontPage, Visits
from seachange.simulate.clickstream import visits_of
from seachange.simulate.front_page import write_days

DAY = 86_400


@pytest.fixture(scope="module")
def visits():
    return FrontPage(seed=3, n_days=2).visits()


def assert_same(ours, theirs):
    for field in fields(Visits):
        one, other = getattr(ours, field.name), getattr(theirs, field.name)
        assert one.dtype == other.dtype, field.name
        np.testing.assert_array_equal(one, other, err_msg=field.name)


def test_visits_are_the_same_through_files_and_broken_lines_are_counted(visits, tmp_path):
    few = visits.where(np.flatnonzero(visits.times % 17 == 0))
    paths = write_days(few, tmp_path, broken=0.01)
    assert [path.name[-11:] for path in paths] == ["20090501.gz", "20090502.gz"]
    rejected = Counter()
    read = visits_of(YahooLog(tmp_path), rejected=rejected)
    # Pools and documents that none of the few visits saw are not in the files.
    assert_same(
        replace(read, pools=few.pools, pool_documents=few.pool_documents),
        replace(few, document_ids=read.document_ids, document_features=read.document_features),
    )
    np.testing.assert_array_equal(read.pool_documents[read.pools], few.pool_documents[few.pools])
    np.testing.assert_array_equal(few.document_features[: len(read.document_ids)], read.document_features)
    np.testing.assert_array_equal(few.document_ids[few.shown], read.document_ids[read.shown])
    assert 60 < rejected.total() < 145  # 10,164 visits
    assert len(rejected) >= 2


def test_visits_are_kept_in_a_file(visits, tmp_path):
    visits.save(tmp_path / "visits")
    assert_same(Visits.load(tmp_path / "visits"), visits)


def test_a_log_without_lists_has_no_visits(tmp_path):
    from seachange.formats.csv import CsvLog

    (tmp_path / "log.csv").write_text("action,reward,x\n1,0,2\n0,1,3\n")
    with pytest.raises(LogError, match="a time and a list of documents"):
        visits_of(CsvLog(tmp_path / "log.csv"))


def test_every_second_has_one_of_its_visits():
    times = np.repeat(np.arange(3_000), 3)
    base = FrontPage(n_days=1).visits().where(np.arange(len(times)))
    visits = replace(base, times=times, users=np.arange(len(times), dtype=np.float32)[:, None])
    drawn = visits.one_per_second(np.random.default_rng(0))
    np.testing.assert_array_equal(drawn.times, np.arange(3_000))
    places = drawn.users[:, 0] - 3 * np.arange(3_000)
    counts = np.bincount(places.astype(int), minlength=3)
    assert np.abs(counts - 1_000).max() < 4.5 * np.sqrt(3_000 * 2 / 9)


def test_documents_are_drawn_evenly_with_the_one_that_was_shown():
    n, generator = 40_000, np.random.default_rng(1)
    pool_documents = np.array([[0, 1, 2, 3, 4, 5], [2, 4, 6, 7, -1, -1]], dtype=np.int32)
    pools = generator.integers(2, size=n).astype(np.int32)
    shown = pool_documents[pools, generator.integers(np.array([6, 4])[pools])]
    documents, actions = np.empty((n, 3), dtype=np.int32), np.empty(n, dtype=np.int64)
    draw_documents(pool_documents, pools, shown, generator.random((n, 3)), documents, actions)
    np.testing.assert_array_equal(documents[np.arange(n), actions], shown)
    assert (np.sort(documents, axis=1)[:, 1:] > np.sort(documents, axis=1)[:, :-1]).all()
    for pool, members in enumerate(([0, 1, 2, 3, 4, 5], [2, 4, 6, 7])):
        mine = documents[pools == pool]
        assert set(mine.ravel()) == set(members)
        for place in range(3):
            counts = np.bincount(mine[:, place], minlength=8)[members]
            expected = len(mine) / len(members)
            assert np.abs(counts - expected).max() < 4.5 * np.sqrt(expected)
    # Given the documents, each of them was shown with the same probability: that is the propensity.
    counts = np.bincount(actions, minlength=3)
    assert np.abs(counts - n / 3).max() < 4.5 * np.sqrt(n / 3)


def test_the_front_page_is_as_yahoo_describes_its_own():
    page = FrontPage(seed=1)
    visits = page.visits()
    assert len(visits) == 10 * DAY
    np.testing.assert_array_equal(np.diff(visits.times), 1)
    sizes = visits.pool_sizes[visits.pools]
    assert 19 < sizes.mean() < 21.5
    assert sizes.min() >= 12
    assert 200 < len(visits.document_ids) < 400
    assert abs(visits.clicks.mean() - 0.04) < 0.002
    for memberships in (visits.document_features[:, 1:], visits.users[:, 1:]):
        np.testing.assert_allclose(memberships.sum(axis=1), 1, atol=2e-6)
    assert (visits.document_features[:, 0] == 1).all()
    assert (visits.pool_documents[visits.pools] == visits.shown[:, None]).any(axis=1).all()


def test_click_rates_differ_and_move_as_published_ones_do():
    page = FrontPage(seed=2)
    visits, times = page.visits(), np.arange(0, 10 * DAY, 1800)
    logs = np.full((len(times), len(visits.document_ids)), np.nan)
    for row, time in enumerate(times):
        there = visits.pool_documents[visits.pools[time]]
        there = there[there >= 0].astype(np.int64)
        logs[row, there] = np.log(page.click_rates(there, np.full(len(there), time)))
    long_lived = logs[:, (~np.isnan(logs)).sum(axis=0) >= 24]
    # Standard deviations of logarithms: 0.61 and 0.28 between documents, 0.35 and 0.20 over time.
    assert 0.28 < np.nanstd(logs, axis=1).mean() < 0.61
    assert 0.17 < np.nanstd(long_lived, axis=0).mean() < 0.43
