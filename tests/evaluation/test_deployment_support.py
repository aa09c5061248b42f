"""Which deployments a log can support, and what a refusal suggests."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import t as student

import seachange as sc
from evaluation.deployments import Custom, Fixed, only
from seachange.errors import RefusedError, SeachangeWarning
from seachange.evaluation.online import acceptance_of, follow


def test_a_tiny_propensity_is_diagnosed_not_infinite(deployers):
    from conftest import build_log

    log = build_log("none", 900)
    propensities = np.array(log.propensities)
    propensities[10] = 1e-6
    log = replace(log, arrays=log.arrays._replace(propensities=propensities))
    for settings_ in ({}, {"bound": 4.0}, {"method": "dr-ns", "quantile": 0.01}):
        weighty = r"The log rarely did what this policy would do.*\(largest weight: [\d.e+]+, round 10\)"
        with pytest.raises(RefusedError, match=weighty) as refused:
            sc.evaluate_online(log, deployers["exp4s", "none"], **settings_)
        # A lower bound would accept more, and that row would still have nearly all weight.
        assert "bound=" not in str(refused.value)
    with pytest.warns(SeachangeWarning, match="Forced"):
        robust = sc.evaluate_online(log, deployers["exp4s", "none"], "dr-ns", quantile=0.01, force=True)
    assert robust.effective_samples < 2
    assert np.isfinite(robust.value)
    assert (robust.low, robust.high) == (-np.inf, np.inf)


def test_a_fix_is_suggested_only_if_it_works(make_log):
    """A bound below the one that was used, a higher quantile, a longer log: each with what it promises kept."""
    generator = np.random.default_rng(0)
    actions = (generator.random(1_000) >= 0.02).astype(int)
    propensities = np.array([0.02, 0.98])[actions]
    actions[500], propensities[500] = 0, 0.0045
    log = sc.BanditLog.from_arrays(actions, generator.random(1_000), propensities)
    deployer = sc.SinglePolicy(Fixed([0.2, 0.8]))
    for method, fix in (("replay", r"bound=(?P<bound>10) \(99.9% of π / p are below it\)"),
                         ("dr-ns", r"quantile=(?P<quantile>0.01) \(beliefs become less exact\)")):  # fmt: skip
        exact = {"quantile": 0.0} if method == "dr-ns" else {}
        told = rf"\d+ of 1,000 rounds are accepted.*To fix this, pass {fix}, or use a log of about [\d,]+ rounds"
        with pytest.raises(RefusedError, match=told) as refused:
            sc.evaluate_online(log, deployer, method, **exact)
        (setting,) = re.search(told, str(refused.value)).groupdict().items()
        better = sc.evaluate_online(log, deployer, method, **{setting[0]: float(setting[1])})
        assert better.n_accepted >= 30
    with pytest.raises(RefusedError, match=r'To fix this, pass highest_rate="auto", or use a log of about') as refused:
        sc.evaluate_online(log, deployer, "dr-ns", quantile=0.01, highest_rate=0.015)
    # The bound is 1, and none is lower: a longer log alone would do.
    few = make_log("none", 60)
    with pytest.raises(RefusedError, match=r"To fix this, use a log of about \d+ rounds like these\."):
        sc.evaluate_online(few, sc.SinglePolicy(Fixed([1.0, 0.0, 0.0])))


def test_a_few_accepted_rounds_can_be_forced_but_not_one(make_log):
    log, deployer = make_log("none", 300), sc.SinglePolicy(Fixed([1.0, 0.0, 0.0]))
    taken = np.flatnonzero(log.actions == 0)
    short = log[: taken[5] + 1]
    with pytest.warns(
        SeachangeWarning, match=f"Forced .*Only 6 of {len(short)} rounds are accepted .*at least 30 are needed"
    ):
        forced = sc.evaluate_online(short, deployer, force=True)
    own = short.rewards[taken[:6]]
    assert forced.value == pytest.approx(own.mean())
    assert forced.high - forced.value == pytest.approx(student.ppf(0.975, 5) * own.std(ddof=1) / np.sqrt(6))
    with pytest.raises(RefusedError, match="Only 1 of"):
        sc.evaluate_online(log[: taken[0] + 1], deployer, force=True)


@pytest.mark.parametrize("logging_known", [False, True])
def test_what_lies_beyond_the_log_is_that_of_the_beliefs(deployers, make_log, logging_known):
    """The share of π_t on actions that the log could not take, along the walk, by acting and updating."""
    deployer, n = deployers["exp4s", "none"], 120
    log = make_log("none", 300, seed=3)
    log = log.take(np.flatnonzero(log.actions < 2)[:n])
    beyond = np.tile([0.0, 0.0, 1.0], (n, 1))
    if logging_known:
        beyond = np.eye(3)[(np.asarray(log.actions) + 1) % 3]
        log = replace(log, logging_probs=np.where(beyond > 0, 0.0, 0.5))
    for each in (deployer, Custom(deployer)):
        walk = only(follow(log, each, [acceptance_of(0.3)], [7]))
        state = deployer.init()
        for t in range(n):
            decision = deployer.act(state, None, 0.5)
            assert walk.beyond[t] == pytest.approx(decision.probs @ beyond[t], abs=1e-15)
            action, reward = log.actions[t], None
            if walk.accepted[t]:
                middle = decision.probs[:action].sum() + decision.probs[action] / 2
                decision, reward = deployer.act(state, None, middle), log.rewards[t]
            state = deployer.update(state, decision, reward)
