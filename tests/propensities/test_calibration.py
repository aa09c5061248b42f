"""Predicted against observed: what a report on propensities says of right and of wrong ones."""

import numpy as np
import pytest

import seachange as sc
from propensities.softmax_logged import K, logged_by_softmax
from seachange.errors import LogError


def test_the_report_of_right_propensities_shows_chance_alone():
    log, truth = logged_by_softmax("shared", 20_000)
    report = sc.propensity_report(log, truth)
    assert report.calibration_error < 3 * report.error_by_chance
    inside = [row.observed_low <= row.predicted <= row.observed_high for row in report.bins]
    assert sum(inside) >= len(inside) - 2
    for action in report.actions:
        assert abs(action.mean_weight - 1) < 4.5 * action.mean_weight_error
    assert report.log_loss < report.marginal_log_loss
    assert sum(row.n_choices for row in report.bins) == 20_000 * K


def test_the_report_of_wrong_propensities_shows_where():
    log, truth = logged_by_softmax("shared", 20_000)
    flat = 0.5 * truth + 0.5 / K
    report = sc.propensity_report(log, flat)
    assert report.calibration_error > 10 * report.error_by_chance
    assert report.bins[0].predicted > report.bins[0].observed_high
    assert report.bins[-1].predicted < report.bins[-1].observed_low


def test_the_report_by_enumeration():
    actions = np.array([0, 0, 1, 0])
    log = sc.BanditLog.from_arrays(actions, np.ones(4))
    probs = np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.8, 0.2]])
    report = sc.propensity_report(log, probs, bins=100)
    assert [(b.low, b.high, b.n_choices, b.predicted, b.observed) for b in report.bins] == [
        (0.2, 0.2, 1, 0.2, 0.0),
        (0.5, 0.5, 6, 0.5, 0.5),
        (0.8, 0.8, 1, 0.8, 1.0),
    ]
    assert report.calibration_error == pytest.approx((0.2 + 0 + 0.2) / 8)
    assert [a.n_taken for a in report.actions] == [3, 1]
    assert report.actions[0].predicted_taken == pytest.approx(2.3)
    assert report.actions[0].mean_weight == pytest.approx((2 + 2 + 1.25) / 4)
    assert report.log_loss == pytest.approx(-np.log([0.5, 0.5, 0.5, 0.8]).mean())
    assert report.least == 0.5


def test_the_report_is_printed_whole():
    log, truth = logged_by_softmax("shared", 500)
    text = repr(sc.propensity_report(log, truth))
    for word in ("calibration error", "log-loss", "By propensity", "By action", "action 3"):
        assert word in text


def test_a_report_needs_the_whole_distribution():
    log, truth = logged_by_softmax("none", 50)
    with pytest.raises(LogError, match=r"shape \(50, 4\); got \(50,\).*estimate_logging_probs"):
        sc.propensity_report(log, truth[:, 0])
    with pytest.raises(LogError, match="sum to 1"):
        sc.propensity_report(log, truth / 2)
