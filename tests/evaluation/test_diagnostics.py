"""What a log can and cannot say of a policy."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from seachange.errors import ParameterError, RefusedError, SeachangeWarning
from seachange.evaluation.diagnostics import diagnostics_of, highest_clip, miscalibration, weight_limit
from seachange.evaluation.estimators import evaluate_logging
from seachange.evaluation.terms import effective_samples, support_of

pytestmark = pytest.mark.small


def uniform_log(n=600, k=3, seed=0, **columns):
    generator = np.random.default_rng(seed)
    actions = generator.integers(k, size=n)
    rewards = (generator.random(n) < 0.2 + 0.1 * actions).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / k), n_actions=k, **columns)


def fixed(probs, n):
    return np.tile(np.asarray(probs, dtype=float), (n, 1))


def test_diagnostics_are_their_formulas():
    log, probs = uniform_log(), fixed([0.7, 0.2, 0.1], 600)
    found = sc.diagnose(log, probs, clip=2.0)
    w = probs[0][log.actions] * 3
    clipped = np.minimum(w, 2.0)
    assert found.effective_samples == pytest.approx(clipped.sum() ** 2 / np.sum(clipped**2))
    assert found.effective_share == pytest.approx(found.effective_samples / 600)
    assert found.overlap == pytest.approx(np.minimum(w, 1).mean())
    assert found.mean_weight == pytest.approx(w.mean())
    assert found.mean_weight_z == pytest.approx((w.mean() - 1) / (w.std(ddof=1) / np.sqrt(600)))
    assert found.clipped_mass == pytest.approx(1 - clipped.sum() / w.sum())
    assert found.clipped_reward == pytest.approx(np.mean((w - clipped) * log.rewards))
    assert [weight for _, weight in found.largest_weights] == pytest.approx([2.1] * 5)
    assert all(log.actions[row] == 0 for row, _ in found.largest_weights)
    assert found.unseen_mass == 0
    assert found.unsupported_mass is None
    assert found.sound


def test_the_overlap_is_the_mass_that_both_policies_share():
    n, logging, target = 200_000, np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.2, 0.7])
    actions = np.random.default_rng(0).choice(3, p=logging, size=n)
    log = sc.BanditLog.from_arrays(actions, np.zeros(n), logging[actions], n_actions=3)
    assert sc.diagnose(log, fixed(target, n)).overlap == pytest.approx(np.minimum(logging, target).sum(), abs=0.005)


def test_a_log_of_few_rounds_is_refused_with_the_only_fix():
    log = uniform_log(20)
    with pytest.raises(
        RefusedError,
        match=r"sample size is 20.0 of 20 rounds.*To fix this, use a longer log \(about 30 rounds\)\. Pass force",
    ):
        sc.evaluate(log, fixed([1 / 3] * 3, 20))
    with pytest.warns(SeachangeWarning, match="not reliable"):
        sc.evaluate(log, fixed([1 / 3] * 3, 20), force=True)


def test_neither_a_longer_log_nor_a_clip_fixes_a_policy_that_the_log_never_followed():
    actions = np.random.default_rng(0).integers(2, size=500)
    log = sc.BanditLog.from_arrays(actions, np.ones(500), np.full(500, 0.5), n_actions=3)
    few, off = sc.diagnose(log, fixed([0, 0, 1], 500)).refusals
    assert (few.rule, few.numbers["effective_samples"]) == ("effective sample size", 0)
    assert few.fixes == (
        "evaluate a policy whose actions the log took",
        "collect a log that takes the policy's actions",
    )
    assert str(off).endswith(
        "100% of its choices are actions that the log never took. To fix this, log those actions some of the time."
    )
    (half,) = sc.diagnose(log, fixed([0.25, 0.25, 0.5], 500)).refusals
    assert "50% of its choices are actions that the log never took" in half.problem
    assert half.fixes == ("leave those actions out", "log with some exploration")


def rare_log(n, share, seed=0):
    """Two actions, the second in a small share of the rounds."""
    actions = (np.random.default_rng(seed).random(n) < share).astype(int)
    return sc.BanditLog.from_arrays(actions, np.ones(n), np.where(actions == 1, share, 1 - share), n_actions=2)


def test_the_log_that_is_long_enough_is_long_enough():
    (refusal,) = sc.diagnose(rare_log(300, 0.05), fixed([0.1, 0.9], 300)).refusals
    needed = int(re.search(r"a longer log \(about ([\d,]+) rounds", str(refusal))[1].replace(",", ""))
    assert needed < 2_000
    for seed in range(10):
        found = sc.diagnose(rare_log(needed, 0.05, seed), fixed([0.1, 0.9], needed))
        assert found.effective_samples > 0.7 * 30
    # One rare round is no measure of how often such come: the weight is.
    (refusal,) = sc.diagnose(one_rare_round(1e-6), fixed([0.1, 0.9], 1000)).refusals
    assert "about 27,000,0" in str(refusal)
    assert "clip" not in str(refusal)


@given(st.integers(0, 2**32), st.floats(0.5, 4.0), st.integers(31, 200))
@settings(max_examples=40, deadline=None)
def test_a_clip_is_offered_where_it_works_and_only_there(seed, sigma, n):
    """Against trying every weight as a clip."""
    generator = np.random.default_rng(seed)
    propensities = np.exp(-np.abs(generator.normal(0, sigma, size=n)))
    log = sc.BanditLog.from_arrays(np.zeros(n, dtype=int), np.ones(n), propensities, n_actions=1)
    found = sc.diagnose(log, np.ones((n, 1)))
    w = 1 / propensities
    able = [clip for clip in w if np.minimum(w, clip).sum() ** 2 / np.sum(np.minimum(w, clip) ** 2) >= 30]
    assert highest_clip(w, 30.0) == max(able)
    few = next((each for each in found.refusals if each.rule == "effective sample size"), None)
    assert (few is None) == (found.effective_samples >= 30)
    if few is None:
        return
    offered = re.search(r"clip=([\d.e+]+) \(which removes ([\d.]+)%", str(few))
    below = float(np.format_float_positional(max(able), 2, fractional=False))  # two digits, to the nearest
    below -= 10 ** (np.floor(np.log10(max(able))) - 1) if below > max(able) else 0
    assert (offered is not None) == (1 - np.minimum(w, below).sum() / w.sum() <= 0.5)
    if offered is not None:
        assert float(offered[1]) == pytest.approx(below)
        clipped = sc.diagnose(log, np.ones((n, 1)), clip=float(offered[1]))
        assert clipped.effective_samples >= 30
        assert clipped.clipped_mass == pytest.approx(float(offered[2]) / 100, abs=0.002)


def test_weights_that_are_not_numbers_are_refused():
    log = uniform_log()
    support = support_of(log, lambda rounds: fixed([1 / 3] * 3, rounds.stop - rounds.start))
    assert diagnostics_of(log, support, np.inf).sound
    spoilt = support.weights.copy()
    spoilt[3] = np.nan
    found = diagnostics_of(log, replace(support, weights=spoilt), np.inf)
    assert len(found.refusals) == 2
    assert not found.sound


@given(st.integers(0, 2**32), st.floats(-300, 300))
@settings(max_examples=25, deadline=None)
def test_effective_rounds_do_not_depend_on_the_unit_of_weights(seed, exponent):
    weights = np.random.default_rng(seed).exponential(size=50)
    plain = weights.sum() ** 2 / np.sum(weights**2)
    assert effective_samples(weights * 10.0**exponent) == pytest.approx(plain, rel=1e-9)


def one_rare_round(propensity):
    actions, propensities = np.zeros(1000, dtype=int), np.full(1000, 1 - propensity)
    actions[17], propensities[17] = 1, propensity
    return sc.BanditLog.from_arrays(actions, np.ones(1000), propensities, n_actions=2)


@pytest.mark.parametrize("interval", ["normal", "bootstrap", "bernstein", "sequence"])
@pytest.mark.parametrize("propensity", [1e-6, 1e-12])
def test_no_interval_of_tiny_propensities_is_nan(propensity, interval):
    names = ("ips", "dr", "mrdr") if interval in ("bernstein", "sequence") else tuple(sc.evaluation.ESTIMATORS)
    with pytest.warns(SeachangeWarning, match="Forced"):
        estimates = sc.evaluate(
            one_rare_round(propensity), fixed([0.1, 0.9], 1000), names, interval=interval, force=True
        )
    assert np.isfinite([estimate.value for estimate in estimates]).all()
    assert not np.isnan([[e.std_error, e.low, e.high, e.effective_samples, e.max_weight] for e in estimates]).any()
    found = sc.diagnose(one_rare_round(propensity), fixed([0.1, 0.9], 1000))
    assert np.isfinite([found.effective_samples, found.mean_weight, found.mean_weight_z, found.overlap]).all()


def test_actions_that_are_logged_with_next_to_no_probability_are_those_that_could_not_be_taken():
    logging = fixed([0.5, 0.5, 1e-320], 400)
    actions = np.random.default_rng(0).integers(2, size=400)
    log = sc.BanditLog.from_arrays(actions, np.ones(400), np.full(400, 0.5), logging_probs=logging)
    probs = fixed([0.48, 0.48, 0.04], 400)
    assert sc.diagnose(log, probs).unsupported_mass == pytest.approx(0.04)
    with pytest.warns(SeachangeWarning, match="could not take"):
        (found,) = sc.evaluate(log, probs, ("ips",), interval="bernstein")
    assert found.high - found.low < 1


def test_tiny_propensities_are_a_diagnosis_and_no_infinity():
    n, log = 1000, one_rare_round(1e-6)
    with pytest.raises(RefusedError, match=r"sample size is 1.0 of 1,000 rounds.*largest weight: 9e\+05, round 17"):
        sc.evaluate(log, fixed([0.1, 0.9], n))
    found = sc.diagnose(log, fixed([0.1, 0.9], n))
    assert found.largest_weights[0] == (17, pytest.approx(9e5))
    assert found.least_propensity == 1e-6
    assert (found.notes[0].rule, found.notes[0].numbers["row"]) == ("largest weight", 17)
    assert "Row 17 alone has 100% of all weight" in str(found.notes[0])
    with pytest.warns(SeachangeWarning):
        estimates = sc.evaluate(log, fixed([0.1, 0.9], n), tuple(sc.evaluation.ESTIMATORS), force=True)
    assert np.isfinite([estimate.value for estimate in estimates]).all()
    assert not np.isnan([[e.std_error, e.low, e.high] for e in estimates]).any()


def test_actions_that_the_log_could_not_take_are_refused():
    logging = fixed([0.5, 0.5, 0.0], 400)
    actions = np.random.default_rng(0).integers(2, size=400)
    log = sc.BanditLog.from_arrays(actions, np.ones(400), np.full(400, 0.5), logging_probs=logging)
    found = sc.diagnose(log, fixed([0.4, 0.4, 0.2], 400))
    assert found.unsupported_mass == pytest.approx(0.2)
    assert found.unseen_mass == pytest.approx(0.2)
    with pytest.raises(RefusedError, match=r"20.0% of its rounds on actions that the log could not take"):
        sc.evaluate(log, fixed([0.4, 0.4, 0.2], 400))
    with pytest.warns(SeachangeWarning, match=r"1.00% of the policy's choices are actions that the log could not take"):
        sc.evaluate(log, fixed([0.495, 0.495, 0.01], 400))


def test_propensities_of_another_log_are_noticed():
    log = uniform_log(2000)
    wrong = sc.BanditLog.from_arrays(log.actions, log.rewards, np.full(2000, 1 / 6), n_actions=3)
    with pytest.raises(RefusedError, match=r"average 2.00, not 1: the propensities are too small"):
        sc.evaluate(wrong, fixed([1 / 3] * 3, 2000))


def test_clipping_says_what_it_costs():
    log, probs = uniform_log(), fixed([0.9, 0.05, 0.05], 600)
    with pytest.warns(
        SeachangeWarning, match=r"clip=2 removes \d+.\d% of the policy's weight, which earned 0.0"
    ) as told:
        (clipped,) = sc.evaluate(log, probs, ("ips",), clip=2.0)
    (whole,) = sc.evaluate(log, probs, ("ips",))
    assert f"{whole.value - clipped.value:.4g} per round" in str(told[0].message)


def test_many_untaken_actions_are_fine_if_weights_average_1():
    """The policy that logged, over 2,000 actions of which 100 rounds can take 100 at most."""
    log = uniform_log(100, k=2000)
    found = sc.diagnose(log, fixed(np.full(2000, 1 / 2000), 100))
    assert found.unseen_mass > 0.9
    assert found.sound


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (fixed([0.5, 0.5, 0.5], 600), "row 0 the smallest is 0.5 and they sum to 1.5"),
        (fixed([1.5, -0.5, 0.0], 600), "row 0 the smallest is -0.5"),
        (fixed([np.nan, 0.5, 0.5], 600), "sum to nan"),
        (fixed([0.5, 0.5], 600), r"shape \(600, 3\); got \(600, 2\)"),
    ],
)
def test_an_invalid_distribution_is_named(probs, message):
    with pytest.raises(ParameterError, match=message):
        sc.diagnose(uniform_log(), probs)


def test_a_policy_that_shows_what_could_not_be_shown_is_named():
    mask = np.ones((600, 3), dtype=bool)
    mask[5] = [True, True, False]
    actions = np.random.default_rng(0).integers(2, size=600)
    log = sc.BanditLog.from_arrays(actions, np.ones(600), np.full(600, 0.5), action_mask=mask, n_actions=3)
    with pytest.raises(ParameterError, match=r"in row 5 it gives them 0.2"):
        sc.diagnose(log, fixed([0.4, 0.4, 0.2], 600))


def test_weights_are_bounded_by_default_if_propensities_are_estimated():
    """By √n: one round has a weight of 1 / 0.001, and n is 400."""
    propensities = np.full(400, 0.5)
    propensities[7] = 0.001
    log = sc.BanditLog.from_arrays(np.zeros(400, dtype=int), np.ones(400), propensities, n_actions=2)
    estimated = log.with_propensities(propensities, estimated=True)
    policy = fixed([0.5, 0.5], 400)
    assert weight_limit(estimated, None) == 20
    assert weight_limit(estimated, 7.0) == 7
    assert weight_limit(log, None) == np.inf
    assert sc.diagnose(log, policy).clipped_mass == 0
    assert sc.diagnose(estimated, policy).clipped_mass == pytest.approx(1 - (399 + 20) / (399 + 500))
    with pytest.raises(ValueError, match="clip must be positive"):
        weight_limit(log, 0.0)


def test_an_interval_includes_a_further_error_by_pythagoras():
    estimate = evaluate_logging(uniform_log())
    wider = estimate.widened(3 * estimate.std_error)
    assert wider.value == estimate.value
    assert wider.std_error == pytest.approx(np.sqrt(10) * estimate.std_error)
    assert wider.high - wider.low == pytest.approx(np.sqrt(10) * (estimate.high - estimate.low), rel=0.01)
    assert estimate.widened(0.0) is estimate


def test_weights_that_change_the_mean_of_predictions_are_miscalibrated():
    """Weights of mean 1 that favor the rounds with high predictions."""
    generator, n = np.random.default_rng(0), 2_000
    predicted = np.repeat([0.0, 1.0], n // 2)
    rewards = predicted + 0.1 * generator.normal(size=n)
    direct = np.full(n, 0.5)
    assert not [*miscalibration(rewards, np.ones(n), predicted, direct)]
    (reason,) = miscalibration(rewards, np.where(predicted > 0, 1.5, 0.5), predicted, direct)
    assert reason.rule == "calibration"
    assert reason.numbers["bias"] == pytest.approx(0.25, abs=0.01)
