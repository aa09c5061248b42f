"""Estimates against the exact answer."""

from itertools import product

import numpy as np
import pytest

import seachange as sc
from seachange.errors import ParameterError, RefusedError, SeachangeWarning
from seachange.evaluation import evaluate_logging, evaluate_states
from seachange.policies.reward_models import fit_rewards

pytestmark = pytest.mark.small
# Logs of one or two rounds say too little of any policy, and that is said.
of_tiny_logs = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
TINY = {"force": True}

# A world of 2 contexts, 2 actions and rewards 0 or 1, small enough to list every log of 2 rounds.
CONTEXTS = np.array([[0.0], [1.0]])
CONTEXT_PROBS = np.array([0.3, 0.7])
CLICK = np.array([[0.2, 0.9], [0.6, 0.1]])
LOGGING = np.array([[0.25, 0.75], [0.5, 0.5]])


class Table:
    """π(a | x) by looking x up."""

    def __init__(self, probs):
        self.probs = np.asarray(probs)

    def predict_proba(self, contexts, action_mask=None):
        return self.probs[np.asarray(contexts)[:, 0].astype(int)]


TARGET = Table([[0.9, 0.1], [0.2, 0.8]])


def every_log(n):
    """(probability, log) of all logs of n rounds."""
    rounds = [
        (CONTEXT_PROBS[x] * LOGGING[x, a] * (CLICK[x, a] if r else 1 - CLICK[x, a]), x, a, r)
        for x, a, r in product(range(2), repeat=3)
    ]
    for chosen in product(rounds, repeat=n):
        p, x, a, r = (np.array(column) for column in zip(*chosen, strict=True))
        yield p.prod(), sc.BanditLog.from_arrays(a, r, LOGGING[x, a], contexts=CONTEXTS[x], n_actions=2)


@of_tiny_logs
def test_ips_is_unbiased_by_enumeration():
    exact = np.sum(CONTEXT_PROBS[:, None] * TARGET.probs * CLICK)
    expected = sum(p * sc.evaluate(log, TARGET, ("ips",), **TINY)[0].value for p, log in every_log(2))
    assert expected == pytest.approx(exact, abs=1e-14)


@of_tiny_logs
def test_clipped_ips_has_the_bias_of_its_formula():
    clip = 1.2
    weights = np.minimum(clip, TARGET.probs / LOGGING)
    exact = np.sum(CONTEXT_PROBS[:, None] * LOGGING * weights * CLICK)
    expected = sum(p * sc.evaluate(log, TARGET, ("ips",), clip=clip, **TINY)[0].value for p, log in every_log(1))
    assert expected == pytest.approx(exact, abs=1e-14)


@of_tiny_logs
def test_the_latent_estimator_is_unbiased_with_the_true_states():
    """Two rounds of two states, each judged by its own policy: the mean of the two values."""
    other = Table([[0.5, 0.5], [1.0, 0.0]])
    policies = sc.PolicySet((TARGET, other))
    values = [np.sum(CONTEXT_PROBS[:, None] * policy.probs * CLICK) for policy in (TARGET, other)]
    expected = 0.0
    for p, log in every_log(2):
        labels = sc.KnownStates([0, 1]).fit(log).predict(log)
        expected += p * sc.evaluate(log, policies, ("ips",), labels=labels, **TINY)[0].value
    assert expected == pytest.approx(np.mean(values), abs=1e-14)


@of_tiny_logs
def test_dr_with_any_reward_model_is_unbiased_by_enumeration():
    guess = np.array([[0.4, -0.7], [0.5, 0.2]])
    exact = np.sum(CONTEXT_PROBS[:, None] * TARGET.probs * CLICK)
    expected = 0.0
    for p, log in every_log(2):
        predicted_rewards = guess[log.contexts[:, 0].astype(int)]
        expected += p * sc.evaluate(log, TARGET, ("dr",), predicted_rewards=predicted_rewards, **TINY)[0].value
    assert expected == pytest.approx(exact, abs=1e-14)


@of_tiny_logs
@pytest.mark.parametrize("estimator", ["dr", "mrdr"])
def test_dr_with_models_of_other_rounds_is_unbiased_by_enumeration(estimator):
    """With models fitted to the rounds themselves this fails: their errors would depend on the rewards they correct."""
    exact = np.sum(CONTEXT_PROBS[:, None] * TARGET.probs * CLICK)
    expected = sum(p * sc.evaluate(log, TARGET, (estimator,), **TINY)[0].value for p, log in every_log(3))
    assert expected == pytest.approx(exact, abs=1e-14)


@pytest.mark.parametrize("interval", ["normal", "bernstein"])
def test_mrdr_is_dr_with_the_fits_of_its_own_weights(interval):
    """r̂ of a block of time by least squares on the others with π (1 - p) / p², and within the range where it counts."""
    log = sampled_log(400, 5)
    x, everyone = log.contexts[:, 0].astype(int), np.arange(400)
    taken, p = TARGET.probs[x, log.actions], log.propensities
    predicted = np.empty((400, 2))
    for block in np.split(everyone, 5):
        noisy = taken * (1 - p) / p**2
        noisy[block] = 0.0
        (model,) = fit_rewards(log, noisy[:, None], 1.0)
        predicted[block] = model.predict(log)[block]
    if interval == "bernstein":
        predicted = np.clip(predicted, 0, 1)
    expected = np.mean(
        (TARGET.probs[x] * predicted).sum(axis=1) + taken / p * (log.rewards - predicted[everyone, log.actions])
    )
    (found,) = sc.evaluate(log, TARGET, ("mrdr",), interval=interval)
    assert found.value == pytest.approx(expected, rel=1e-9)


@pytest.mark.filterwarnings("ignore:clip=3 removes")
def test_every_estimator_is_its_formula():
    log = sampled_log(400, 5)
    x, everyone = log.contexts[:, 0].astype(int), np.arange(400)
    probs, predicted_rewards = TARGET.probs[x], np.random.default_rng(0).random((400, 2))
    w, r, m = probs[everyone, log.actions] / log.propensities, log.rewards, predicted_rewards[everyone, log.actions]
    d = (probs * predicted_rewards).sum(axis=1)
    expected = {
        "ips": np.mean(w * r),
        "snips": np.sum(w * r) / np.sum(w),
        "dm": np.mean(d),
        "dr": np.mean(d + w * (r - m)),
        "sndr": np.mean(d) + np.mean(w * (r - m)) / np.mean(w),
        "switch-dr": np.mean(d + w * (w <= 1.7) * (r - m)),
        "dr-os": np.mean(d + w * 0.9 / (w**2 + 0.9) * (r - m)),
        "mrdr": np.mean(d + w * (r - m)),
    }
    for policy in (TARGET, probs):
        found = sc.evaluate(
            log, policy, tuple(expected), predicted_rewards=predicted_rewards, switch=1.7, shrinkage=0.9
        )
        assert {e.estimator: e.value for e in found} == pytest.approx(expected, abs=1e-12)
    clipped = sc.evaluate(log, TARGET, ("ips", "dr"), predicted_rewards=predicted_rewards, clip=3.0)
    assert clipped[0].value == pytest.approx(np.mean(np.minimum(w, 3.0) * r), abs=1e-12)
    assert clipped[1].value == pytest.approx(np.mean(d + np.minimum(w, 3.0) * (r - m)), abs=1e-12)


@pytest.mark.filterwarnings("ignore:The effective sample size behind:seachange.errors.SeachangeWarning")
def test_the_ends_of_switching_and_shrinking_are_the_direct_method_and_dr():
    log = sampled_log(400, 6)
    dm, dr = sc.evaluate(log, TARGET, ("dm", "dr"))
    for end, same in ((0, dm), (np.inf, dr)):
        for estimate in sc.evaluate(log, TARGET, ("switch-dr", "dr-os"), switch=end, shrinkage=end):
            assert estimate.value == pytest.approx(same.value, abs=1e-12)
            assert estimate.setting == end


def sampled_log(n, seed):
    generator = np.random.default_rng(seed)
    x = (generator.random(n) < CONTEXT_PROBS[1]).astype(int)
    a = (generator.random(n) < LOGGING[x, 1]).astype(int)
    r = (generator.random(n) < CLICK[x, a]).astype(float)
    return sc.BanditLog.from_arrays(a, r, LOGGING[x, a], contexts=CONTEXTS[x], n_actions=2)


@pytest.mark.large
@pytest.mark.parametrize("estimator", ["ips", "snips", "dm", "dr"])
def test_standard_errors_are_the_spread_over_logs(estimator):
    exact = np.sum(CONTEXT_PROBS[:, None] * TARGET.probs * CLICK)
    estimates = [sc.evaluate(sampled_log(1500, seed), TARGET, (estimator,))[0] for seed in range(200)]
    values = np.array([estimate.value for estimate in estimates])
    stated = np.mean([estimate.std_error for estimate in estimates])
    # The spread of 200 values is known to a factor of 1 ± 3 / √400.
    assert values.std(ddof=1) / stated == pytest.approx(1, abs=0.16)
    assert abs(values.mean() - exact) / (values.std(ddof=1) / np.sqrt(200)) < 4.5
    covered = np.mean([estimate.low <= exact <= estimate.high for estimate in estimates])
    assert covered > 0.88


def test_snips_of_equal_rewards_is_exact():
    log = sampled_log(200, 0)
    ones = sc.BanditLog.from_arrays(log.actions, np.ones(200), log.propensities, contexts=log.contexts)
    estimate = sc.evaluate(ones, TARGET, ("snips",))[0]
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1, 1, 1), abs=1e-12)


def test_the_logging_policy_judged_by_weights_of_one_earns_the_mean_reward():
    log = sampled_log(500, 1)
    for estimate in sc.evaluate(log, Table(LOGGING), ("ips", "snips")):
        assert estimate.value == pytest.approx(log.rewards.mean())
        assert estimate.effective_samples == pytest.approx(500)
        assert estimate.max_weight == pytest.approx(1)
    assert evaluate_logging(log).value == pytest.approx(log.rewards.mean())


@pytest.mark.filterwarnings("ignore:The effective sample size behind:seachange.errors.SeachangeWarning")
def test_effective_samples_and_largest_weight_are_those_of_the_weights():
    log = sampled_log(100, 2)
    x = log.contexts[:, 0].astype(int)
    weights = TARGET.probs[x, log.actions] / log.propensities
    estimate = sc.evaluate(log, TARGET, ("ips",))[0]
    assert estimate.effective_samples == pytest.approx(weights.sum() ** 2 / np.sum(weights**2))
    assert estimate.max_weight == pytest.approx(weights.max())
    with pytest.warns(SeachangeWarning, match="clip=0.5 removes"):
        assert sc.evaluate(log, TARGET, ("ips",), clip=0.5)[0].max_weight == 0.5


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_all_estimators_work_for_every_kind_of_context(make_log, kind):
    log = make_log(kind)
    policy = sc.IPSLearner().fit(log).policy_
    for estimate in sc.evaluate(log, policy):
        assert estimate.low < estimate.value < estimate.high
        assert np.isfinite([estimate.value, estimate.std_error]).all()


@pytest.mark.large
def test_each_state_is_judged_on_its_own_rounds(make_log):
    log = make_log("none", n=1200)
    labels = sc.KnownStates((6 * np.arange(1200) // 1200) % 2).fit(log).predict(log)
    policies = sc.learn_per_state(log, labels, sc.DRLearner())
    first, second = evaluate_states(log, policies, labels)
    assert first.value == pytest.approx(0.8, abs=4 * first.std_error)
    assert second.value == pytest.approx(0.8, abs=4 * second.std_error)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"estimators": ("magic",)}, "got 'magic'"),
        ({"clip": 0.0}, "clip must be positive"),
        ({"confidence": 1.0}, "confidence must be between"),
    ],
)
def test_bad_requests_are_named(words, message):
    with pytest.raises(ParameterError, match=message):
        sc.evaluate(sampled_log(10, 0), TARGET, **words)


def test_a_policy_set_needs_labels():
    with pytest.raises(ParameterError, match="needs labels"):
        sc.evaluate(sampled_log(10, 0), sc.PolicySet((TARGET, TARGET)))


class Only:
    """Always one action."""

    def __init__(self, action):
        self.action = action

    def predict_proba(self, contexts, action_mask=None):
        return np.tile(np.eye(2)[self.action], (len(contexts), 1))


def test_nothing_is_claimed_of_actions_that_were_never_taken():
    log = sc.BanditLog.from_arrays([0] * 50, [0.5] * 50, [0.9] * 50, n_actions=2)
    with pytest.raises(RefusedError, match=r"effective sample size is 0.0 of 50"):
        sc.evaluate(log, Only(1))
    with pytest.warns(SeachangeWarning, match="effective sample size"):
        estimates = sc.evaluate(log, Only(1), force=True)
    assert all(estimate.std_error == np.inf for estimate in estimates)


def test_a_policy_half_of_which_the_log_never_tried_is_refused():
    log = sc.BanditLog.from_arrays([0] * 400, np.tile([0.0, 1.0], 200), [1.0] * 400, n_actions=2)
    with pytest.raises(
        RefusedError, match=r"average 0.50, not 1: 50% of its choices are actions that the log never took"
    ):
        sc.evaluate(log, Half(), ("ips",))


class Half:
    """Either of two actions."""

    def predict_proba(self, contexts, action_mask=None):
        return np.full((len(contexts), 2), 0.5)


def test_the_direct_method_follows_the_level_of_rewards():
    log = sampled_log(600, 3)
    moved = log.with_rewards(log.rewards + 1000.0)
    (low,), (high,) = sc.evaluate(log, TARGET, ("dm",)), sc.evaluate(moved, TARGET, ("dm",))
    assert high.value - 1000 == pytest.approx(low.value, abs=1e-6)
    assert high.std_error == pytest.approx(low.std_error, rel=1e-3)


def test_a_model_is_not_a_policy_and_the_error_names_the_fix():
    with pytest.raises(ParameterError, match="label_ahead"):
        sc.evaluate(sampled_log(50, 0), object())
