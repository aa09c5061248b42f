"""What a log can and cannot say of a policy."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError, RefusedError, SeachangeWarning

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


def test_a_log_of_few_rounds_is_refused_with_the_cure():
    log = uniform_log(20)
    with pytest.raises(RefusedError, match=r"20.0 effective rounds of 20.*A longer log.*force=True"):
        sc.evaluate(log, fixed([1 / 3] * 3, 20))
    with pytest.warns(SeachangeWarning, match="not to be relied on"):
        sc.evaluate(log, fixed([1 / 3] * 3, 20), force=True)


def test_tiny_propensities_are_a_diagnosis_and_no_infinity():
    n = 1000
    actions, propensities = np.zeros(n, dtype=int), np.full(n, 1 - 1e-6)
    actions[17], propensities[17] = 1, 1e-6
    log = sc.BanditLog.from_arrays(actions, np.ones(n), propensities, n_actions=2)
    with pytest.raises(RefusedError, match=r"1.0 effective rounds of 1,000.*row 17, is 9e\+05"):
        sc.evaluate(log, fixed([0.1, 0.9], n))
    found = sc.diagnose(log, fixed([0.1, 0.9], n))
    assert found.largest_weights[0] == (17, pytest.approx(9e5))
    assert found.least_propensity == 1e-6
    assert "row 17 alone has 100% of all weight" in found.notes[0]
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
        SeachangeWarning, match=r"clip=2 cuts off \d+.\d% of the policy's weight, which earned 0.0"
    ) as told:
        (clipped,) = sc.evaluate(log, probs, ("ips",), clip=2.0)
    (whole,) = sc.evaluate(log, probs, ("ips",))
    assert f"{whole.value - clipped.value:.4g} a round" in str(told[0].message)


def test_many_actions_that_were_never_taken_are_no_fault_where_weights_average_1():
    """The policy that logged, over 2,000 actions of which 100 rounds can take 100 at most."""
    log = uniform_log(100, k=2000)
    found = sc.diagnose(log, fixed(np.full(2000, 1 / 2000), 100))
    assert found.unseen_mass > 0.9
    assert found.sound


@pytest.mark.parametrize(
    ("probs", "message"),
    [
        (fixed([0.5, 0.5, 0.5], 600), "row 0 go from 0.5 up and add up to 1.5"),
        (fixed([1.5, -0.5, 0.0], 600), "row 0 go from -0.5 up"),
        (fixed([np.nan, 0.5, 0.5], 600), "add up to nan"),
        (fixed([0.5, 0.5], 600), r"shape \(600, 3\); these have \(600, 2\)"),
    ],
)
def test_what_is_no_distribution_is_named(probs, message):
    with pytest.raises(ParameterError, match=message):
        sc.diagnose(uniform_log(), probs)


def test_a_policy_that_shows_what_could_not_be_shown_is_named():
    mask = np.ones((600, 3), dtype=bool)
    mask[5] = [True, True, False]
    actions = np.random.default_rng(0).integers(2, size=600)
    log = sc.BanditLog.from_arrays(actions, np.ones(600), np.full(600, 0.5), action_mask=mask, n_actions=3)
    with pytest.raises(ParameterError, match=r"in row 5 it gives them 0.2"):
        sc.diagnose(log, fixed([0.4, 0.4, 0.2], 600))
