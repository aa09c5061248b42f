"""Open Bandit Pipeline's tables of relative errors.

Source: the examples of zr-obp (``examples/synthetic`` and ``examples/obd``), as the two experiments cite them.
Tolerance: three standard errors of the difference of means; and as the published worlds and bootstraps are drawn again,
estimators that have no reward model in them agree to the printed digits, but for the Monte Carlo error of the published
probabilities of Thompson sampling (1,000,000 draws) where ours are integrals.

Commands: ``seachange replicate obp-synthetic``, ``seachange replicate open-bandit --data DIR``
"""

import numpy as np
import polars as pl
import pytest

import seachange as sc
from cli.shop import fail, succeed_in_json
from seachange.errors import LogError, RefusedError
from seachange.evaluation.estimators import ValueEstimate
from seachange.experiments import obp_open_bandit as open_bandit
from seachange.experiments import obp_synthetic
from seachange.experiments.obp_open_bandit import CLICKS, SKIPS, place_probs
from seachange.experiments.obp_synthetic import (
    chosen_by_slope,
    cross_fitted_rewards,
    relative_errors,
    summarize_errors,
)

PLAIN = ("ips", "snips")
# Relative errors of IPS by Open Bandit Pipeline 0.5.7 itself: in its first three worlds (their scores standardised, as
# when the figures were published), and in its first bootstrap.
SYNTHETIC_IPS = (0.0063915384, 0.0015179374, 0.0173709263)
OPEN_BANDIT_IPS = 0.1005733


def rows_within(rows):
    return {row["estimator"]: row["within"] for row in rows}


def test_a_part_of_the_synthetic_table():
    runs = [obp_synthetic.run(seed) for seed in range(3)]
    np.testing.assert_allclose([run["ips"] for run in runs], SYNTHETIC_IPS, rtol=0, atol=2e-6)
    assert all(row.within for row in summarize_errors(runs, obp_synthetic.PUBLISHED, obp_synthetic.PUBLISHED_RUNS))


@pytest.mark.long
def test_the_synthetic_table():
    answer, _ = succeed_in_json("replicate", "obp-synthetic")
    assert answer["runs"] == 20
    assert all(rows_within(answer["rows"]).values()), answer["rows"]
    for row in answer["rows"]:
        if row["estimator"] in PLAIN:
            assert row["mean"] == pytest.approx(row["published"], rel=0, abs=2e-6)
        assert row["std"] == pytest.approx(row["published_std"], rel=0.01)


@pytest.mark.long
def test_the_synthetic_table_with_other_worlds():
    answer, _ = succeed_in_json("replicate", "obp-synthetic", "--seed", "1000")
    assert all(rows_within(answer["rows"]).values()), answer["rows"]


def test_a_part_of_the_open_bandit_table(data_file):
    sample = open_bandit.read_sample(data_file("open_bandit"))
    assert sample.value == 0.0042
    run = open_bandit.run(0, sample)
    assert run["ips"] == pytest.approx(OPEN_BANDIT_IPS, rel=0, abs=0.005)
    assert set(run) == set(open_bandit.PUBLISHED)


@pytest.mark.long
def test_the_open_bandit_table(data_file):
    answer, _ = succeed_in_json("replicate", "open-bandit", "--data", data_file("open_bandit"))
    assert answer["runs"] == 30
    assert all(rows_within(answer["rows"]).values()), answer["rows"]
    for row in answer["rows"]:
        if row["estimator"] in PLAIN:
            assert row["mean"] == pytest.approx(row["published"], rel=0, abs=0.003)


@pytest.mark.long
def test_the_open_bandit_table_with_other_bootstraps(data_file):
    answer, _ = succeed_in_json("replicate", "open-bandit", "--data", data_file("open_bandit"), "--seed", "1000")
    assert all(rows_within(answer["rows"]).values()), answer["rows"]


def test_a_folder_without_the_data_is_refused(tmp_path):
    message = fail(LogError, "replicate", "open-bandit", "--data", tmp_path)
    assert "all.csv" in message
    assert "--data" in message


def test_other_tables_are_refused(tmp_path):
    for policy in ("random", "bts"):
        (tmp_path / policy / "all").mkdir(parents=True)
        pl.DataFrame({"click": [0, 1]}).write_csv(tmp_path / policy / "all" / "all.csv")
    with pytest.raises(LogError, match="no column 'item_id'"):
        open_bandit.read_sample(tmp_path)
    header = "timestamp,item_id,position,click,propensity_score,user_feature_0\n"
    (tmp_path / "random" / "all" / "all.csv").write_text(header)
    with pytest.raises(LogError, match="has no rounds"):
        open_bandit.read_sample(tmp_path)
    (tmp_path / "random" / "all" / "all.csv").write_text(header + "yesterday,1,1,0,0.5,a\n")
    with pytest.raises(LogError, match=r"line 2 of .*all.csv' is invalid: timestamp must be"):
        open_bandit.read_sample(tmp_path)


def test_places_by_enumeration():
    """Two actions: P(θ_0 > θ_1) of Beta(1, 1) and Beta(2, 1) is 1/3."""
    np.testing.assert_allclose(place_probs([1, 2], [1, 1], 2), [[1 / 3, 2 / 3], [2 / 3, 1 / 3]], atol=1e-6)


def test_places_are_those_of_draws():
    probs = place_probs(CLICKS, SKIPS, 3)
    np.testing.assert_allclose(probs.sum(axis=0), 1.0, atol=1e-9)
    n = 20_000
    draws = np.random.default_rng(0).beta(CLICKS, SKIPS, size=(n, len(CLICKS)))
    ranked = np.argsort(-draws, axis=1)[:, :3]
    counts = np.stack([np.bincount(ranked[:, place], minlength=len(CLICKS)) for place in range(3)], axis=1)
    z = (counts - n * probs) / np.sqrt(n * probs * (1 - probs) + 1)
    assert np.abs(z).max() < 4.5


def test_reward_models_do_not_see_the_round_they_predict():
    generator = np.random.default_rng(0)
    contexts, actions = generator.normal(size=(60, 2)), generator.integers(3, size=60)
    rewards = (generator.random(60) < 0.5).astype(float)
    predicted = cross_fitted_rewards(contexts, np.eye(3), actions, rewards)
    changed = rewards.copy()
    changed[7] = 1 - changed[7]
    moved = np.abs(cross_fitted_rewards(contexts, np.eye(3), actions, changed) - predicted).max(axis=1)
    assert moved[7] == 0
    assert (moved > 0).sum() == 40


def test_a_position_without_clicks_has_a_model_all_the_same():
    generator = np.random.default_rng(0)
    positions = np.repeat([0, 1], 30)
    rewards = np.where(positions == 0, 0.0, generator.random(60) < 0.5).astype(float)
    actions = generator.integers(2, size=60)
    predicted = cross_fitted_rewards(generator.normal(size=(60, 1)), np.eye(2), actions, rewards, positions)
    assert (predicted[positions == 0] == 0).all()
    assert (predicted[positions == 1] > 0).all()


def test_errors_are_measured_also_where_no_value_would_be_given(make_log):
    log = make_log(n=60)
    probs = np.tile([1.0, 0.0, 0.0], (60, 1))
    with pytest.raises(RefusedError):
        sc.evaluate(log, probs)
    errors = relative_errors(log, probs, np.full((60, 3), 0.25), 0.5)
    assert errors["dm"] == pytest.approx(0.5)
    assert all(np.isfinite(error) for error in errors.values())


def estimate(value, error):
    return ValueEstimate("dr-os", value, error, value - error, value + error, 100.0, 1.0)


def test_slope_stops_before_the_first_disagreement():
    wide, narrow, off = estimate(1.0, 0.5), estimate(1.1, 0.1), estimate(9.0, 0.01)
    assert chosen_by_slope([off, wide, narrow], 1000) is narrow
    assert chosen_by_slope([narrow, wide], 1000) is narrow
    assert chosen_by_slope([estimate(9.0, 0.1), wide], 1000) is wide


def test_within_means_three_standard_errors():
    published = {"ips": (0.10, 0.04)}
    runs = [{"ips": 0.10 + shift} for shift in (-0.01, 0.01)]
    error = np.sqrt(0.0002 / 2 + 0.0016 / 4)
    for shift, within in ((2.9 * error, True), (3.1 * error, False)):
        (row,) = summarize_errors([{"ips": run["ips"] + shift} for run in runs], published, 4)
        assert row.within is within
