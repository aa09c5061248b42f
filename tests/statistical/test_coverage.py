"""Coverage of intervals over logs of a world with known values."""

from collections import Counter

import numpy as np
import pytest

import seachange as sc

KINDS, K, USER_ROUNDS = 8, 4, 10
fixed = np.random.default_rng(7)
KIND_PROBS = fixed.dirichlet(np.full(KINDS, 3.0))
LOGGING = 0.8 * fixed.dirichlet(np.full(K, 3.0), size=KINDS) + 0.2 / K
TARGET = fixed.dirichlet(np.full(K, 0.7), size=KINDS)
CLICK = fixed.beta(2, 6, size=(KINDS, K))
VALUE = float(np.sum(KIND_PROBS[:, None] * TARGET * CLICK))
ALL = ("ips", "snips", "dm", "dr", "sndr", "switch-dr", "dr-os", "mrdr")
MEANS = ("ips", "dr", "mrdr", "switch-dr", "dr-os")


def sampled(n, seed, clustered):
    """A log and the policy's probabilities along it.

    Clustered: users of ten rounds, who share a context and click a quarter or seven quarters times as often as others.
    """
    generator = np.random.default_rng(seed)
    columns, lift = {}, 1.0
    if clustered:
        users = np.repeat(np.arange(n // USER_ROUNDS), USER_ROUNDS)
        kinds = generator.choice(KINDS, p=KIND_PROBS, size=n // USER_ROUNDS)[users]
        lift = generator.choice([0.25, 1.75], size=n // USER_ROUNDS)[users]
        columns["sequences"] = users
    else:
        kinds = generator.choice(KINDS, p=KIND_PROBS, size=n)
    actions = (generator.random(n)[:, None] > np.cumsum(LOGGING[kinds], axis=1)[:, :-1]).sum(axis=1)
    rewards = (generator.random(n) < lift * CLICK[kinds, actions]).astype(float)
    contexts = np.eye(KINDS)[kinds][:, 1:]
    log = sc.BanditLog.from_arrays(actions, rewards, LOGGING[kinds, actions], contexts=contexts, n_actions=K, **columns)
    return log, TARGET[kinds]


def coverage(n_logs, n, interval, estimators, *, clustered=False, **settings):
    """Share of logs whose interval contains the value, by estimator."""
    covered = Counter()
    for seed in range(n_logs):
        log, probs = sampled(n, seed, clustered)
        for estimate in sc.evaluate(log, probs, estimators, interval=interval, seed=seed, **settings):
            covered[estimate.estimator] += estimate.low <= VALUE <= estimate.high
    return {name: covered[name] / n_logs for name in estimators}


def require_close_to_95(found, tolerance):
    assert all(abs(share - 0.95) <= tolerance for share in found.values()), found


# 4.5 standard errors of the share of 200 logs are 0.07; of 2,000 they are 0.022, and what is promised is 0.015.
@pytest.mark.filterwarnings("ignore:The effective sample size behind:seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("interval", ["normal", "bootstrap"])
def test_intervals_of_a_few_logs_have_about_nominal_coverage(interval, clustered):
    estimators = ALL if interval == "normal" else ("snips", "dr")
    require_close_to_95(coverage(200, 1_000, interval, estimators, clustered=clustered), 0.07)


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("interval", ["bernstein", "sequence"])
def test_bounds_of_a_few_logs_contain_the_value(interval, clustered):
    found = coverage(60, 1_000, interval, MEANS, clustered=clustered, switch=np.inf, shrinkage=np.inf)
    assert min(found.values()) >= 0.95, found


def test_users_whose_rounds_depend_on_each_other_need_clusters():
    """Without clusters the intervals are too short, so the clustered logs of the other tests can detect that."""
    covered = 0
    for seed in range(200):
        log, probs = sampled(1_000, seed, clustered=True)
        alone = sc.BanditLog.from_arrays(log.actions, log.rewards, log.propensities, contexts=log.contexts, n_actions=K)
        (estimate,) = sc.evaluate(alone, probs, ("ips",))
        covered += estimate.low <= VALUE <= estimate.high
    assert covered / 200 < 0.9


def test_a_confidence_sequence_holds_at_all_rounds_at_once():
    for seed in range(40):
        log, probs = sampled(2_000, seed, clustered=False)
        watched = sc.watch(log, probs)
        assert (watched.low <= VALUE).all()
        assert (watched.high >= VALUE).all()
        assert watched.high[-1] - watched.low[-1] < 0.3


@pytest.mark.long
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("interval", ["normal", "bootstrap"])
def test_95_percent_intervals_contain_the_value_in_95_percent_of_logs(interval, clustered):
    require_close_to_95(coverage(2_000, 10_000, interval, ALL, clustered=clustered), 0.015)


@pytest.mark.long
@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("interval", ["bernstein", "sequence"])
def test_bounds_contain_the_value_in_at_least_95_percent_of_logs(interval, clustered):
    estimators = (*MEANS, "snips") if interval == "bernstein" else MEANS
    found = coverage(2_000, 10_000, interval, estimators, clustered=clustered, switch=np.inf, shrinkage=np.inf)
    assert min(found.values()) >= 0.95, found
