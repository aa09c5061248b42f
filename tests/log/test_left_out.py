"""Columns that become no features, unless a user names them."""

import datetime as dt
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import seachange as sc
from log.raw_rounds import ListLog, fitted, rounds_of
from seachange.errors import SeachangeWarning
from seachange.log import feature_fitting
from seachange.log.feature_fitting import fit_features
from seachange.log.features import Category, Number

pytestmark = pytest.mark.small


def test_moments_are_features_only_where_they_are_asked_for():
    days = [dt.date(2026, 1, 1), dt.date(2026, 1, 3)]
    frame = pl.DataFrame({"signup": days})
    assert fitted(frame).shared == (Number("signup", pytest.approx(1767312000.0), 86400.0, seconds=True),)
    for told in (days[1], dt.datetime(2026, 1, 3), "2026-01-03", "2026-01-03T00:00:00Z", 1767398400):
        assert fitted(frame).encode_record({"signup": told})[0].tolist() == [1.0]
    with pytest.warns(SeachangeWarning, match=r"'signup' \(timestamps, which never repeat\)"):
        assert fit_features(ListLog(), [rounds_of(frame)]).shared == ()


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None] * 200, "no values"),
        ([7] * 200, "always 7"),
        (["x"] * 200, "always 'x'"),
        (list(range(5, 405, 2)), "increasing integers, such as row numbers"),
        ([f"id {i}" for i in range(200)], "identifiers, which never repeat"),
        ([b"x"] * 200, "unsupported type"),
    ],
)
def test_columns_without_use_are_left_out_with_a_reason_unless_they_are_named(values, reason):
    frame = pl.DataFrame({"age": np.sin(np.arange(200)), "column": values})
    for parts in ([rounds_of(frame)], [rounds_of(frame[:90]), rounds_of(frame[90:])]):
        with pytest.warns(SeachangeWarning, match=r"not used as features: 'column' .*list them under contexts"):
            spec = fit_features(ListLog(), parts)
        assert spec.context_names == ("age",)
        assert [(column.column, column.reason) for column in spec.left_out] == [("column", reason)]
    if reason == "unsupported type":
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert any(name.startswith("column") for name in fitted(frame).context_names)


@pytest.mark.parametrize(("each", "kept"), [(2, False), (9, False), (12, True), (40, True)])
def test_texts_that_hardly_come_again_are_not_features_unless_they_are_named(each, kept):
    generator = np.random.default_rng(0)
    texts = generator.permutation(np.repeat([f"user {i}" for i in range(1500)], each)).tolist()
    frame = pl.DataFrame({"action": [0, 1] * (len(texts) // 2), "reward": 1.0, "propensity": 0.5, "user": texts})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        log = sc.BanditLog.from_frame(frame)
    assert [str(one.message) for one in said if "'user' (identifiers, which occur" in str(one.message)] == [
        str(one.message) for one in said
    ]
    assert (len(said) == 0) == kept == (len(log.context_names) == feature_fitting.BUCKETS)
    assert len(sc.BanditLog.from_frame(frame, {"contexts": "user"}).context_names) == feature_fitting.BUCKETS


def test_the_number_of_distinct_texts_is_estimated_over_parts():
    parts = [pl.Series([f"{i % 30_000}" for i in range(start, start + 20_000)]) for start in range(0, 80_000, 20_000)]
    facts = feature_fitting.ColumnFacts()
    for part in parts:
        facts.merge(feature_fitting._facts("x", "text", part))
    assert facts.distinct.count == pytest.approx(30_000, rel=0.1)


def test_identifiers_are_those_that_come_once_in_the_whole_log_and_not_in_a_part_of_it():
    texts = pl.DataFrame({"user": [f"u{i}" for i in range(200)]})
    parts = [rounds_of(texts, 1 + 200 * k) for k in range(5)]
    (user,) = fit_features(ListLog(), parts).shared
    assert isinstance(user, Category)
    many = [rounds_of(pl.DataFrame({"user": [f"u{i}" for i in range(3000)]})) for _ in range(2)]
    with pytest.warns(SeachangeWarning, match=r"identifiers, which occur 2\.\d times each|occur 1\.9"):
        fit_features(ListLog(), many)
    once = [rounds_of(pl.DataFrame({"user": [f"u{i}" for i in range(k, k + 3000)]})) for k in (0, 3000)]
    with pytest.warns(SeachangeWarning, match="identifiers, which never repeat"):
        fit_features(ListLog(), once)


@pytest.mark.parametrize("cut", [600, 250])
def test_what_the_action_tells_is_not_a_context_unless_it_is_named(cut):
    generator = np.random.default_rng(0)
    actions = generator.choice(["hat", "bag", "shoe"], 600)
    price = np.array([{"hat": 5.0, "bag": 30.0, "shoe": 60.0}[action] for action in actions])
    frame = pl.DataFrame({"action": actions, "age": generator.normal(size=600), "rare": np.arange(600) == 7})
    frame = frame.with_columns(item=pl.Series([{"price": each, "stars": 4} for each in price]))
    halves = [part for part in (frame[:cut], frame[cut:]) if len(part)]
    parts = [replace(rounds_of(part.drop("action")), action=part["action"]) for part in halves]
    with pytest.warns(SeachangeWarning, match=r"'item.price' \(determined by the action taken"):
        spec = fit_features(ListLog(), parts)
    assert spec.context_names == ("age", "rare")
    log = ListLog()
    log.contexts = ["age", "item"]
    assert "item.price" in fit_features(log, parts).context_names


def test_dates_in_text_are_moments():
    days = [f"2026-03-{1 + i // 20:02}" for i in range(200)]
    frame = rounds_of(pl.DataFrame({"age": np.sin(np.arange(200)), "day": days}))
    with pytest.warns(SeachangeWarning, match=r"'day' \(timestamps, which never repeat\)"):
        assert fit_features(ListLog(), [frame]).context_names == ("age",)
