"""Invariances of a fit, and the consistency of its report."""

import numpy as np
import pytest

import seachange as sc
from seachange.states.em import EM, EMRun, Prior
from seachange.states.expectation import Chain
from seachange.states.hmm_fitting import Starts
from seachange.states.switching_regression import SwitchingRegression

EMISSIONS = ("gaussian", "gaussian per state", "bernoulli")


def switching_log(n=1500, seed=0, clicks=False, noises=(0.3, 0.3), **columns):
    """Two states that alternate every n / 6 rounds and may differ in noise."""
    g = np.random.default_rng(seed)
    states, actions = (6 * np.arange(n) // n) % 2, g.integers(3, size=n)
    means = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions]
    rewards = (g.random(n) < means) * 1.0 if clicks else means + np.array(noises)[states] * g.normal(size=n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **columns)


def with_holes(log, share=0.3):
    return log.with_rewards(np.where(np.random.default_rng(9).random(len(log)) < share, np.nan, log.rewards))


def same_model(one, two):
    for name in ("initial_probs", "transition_matrix", "reward_coefs", "reward_precisions", "noise_variances"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.rewards == two.rewards


@pytest.mark.parametrize("rewards", EMISSIONS)
def test_the_numbers_of_states_do_not_change_the_likelihood(rewards):
    g = np.random.default_rng(0)
    log = switching_log(300, clicks=rewards == "bernoulli", sequences=np.arange(300) // 60)
    model = SwitchingRegression(
        initial_probs=g.dirichlet(np.ones(4)), transition_matrix=g.dirichlet(np.ones(4), size=4),
        reward_coefs=g.normal(size=(4, 3, 1)), reward_precisions=np.ones((4, 3, 1, 1)),
        noise_variances=np.empty(0) if rewards == "bernoulli" else np.geomspace(0.1, 1, 4),
        joint=log.joint, rewards=rewards,
    )  # fmt: skip
    order = np.array([2, 0, 3, 1])
    other = model.reordered(order)
    assert other.log_likelihood(log) == pytest.approx(model.log_likelihood(log), rel=1e-12)
    np.testing.assert_allclose(other.smooth(log), model.smooth(log)[:, order], atol=1e-12)
    np.testing.assert_allclose(other.forecast(log), model.forecast(log)[:, order], atol=1e-12)
    np.testing.assert_allclose(other.predict_rewards(log), model.predict_rewards(log), atol=1e-12)


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("sequences", [None, np.arange(900) // 45, np.arange(900) % 30])
@pytest.mark.parametrize("kind", ["none", "shared"])
def test_the_objective_never_decreases_with_missing_rewards_and_sequences(rewards, sequences, kind):
    columns = {"contexts": np.random.default_rng(1).normal(size=(900, 2))} if kind == "shared" else {}
    log = with_holes(switching_log(900, clicks=rewards == "bernoulli", sequences=sequences, **columns))
    chain, prior = Chain(log, 200, 2), Prior(1.0, 1.0, 100.0, log.units, noise=(1.0, 1.0))
    residuals = chain.log.rewards - np.nanmean(chain.log.rewards)
    starts = Starts(chain, residuals, np.nanvar(residuals), rewards, 0, log.units)
    start = starts.from_windows(15, 3, prior)
    run = EM(chain, prior, tolerance=-1.0, max_iterations=40).finish(start)
    assert (np.diff(run.objectives) >= -1e-9 * abs(run.objective)).all()
    assert run.objective > run.objectives[0]


@pytest.mark.parametrize("clicks", [False, True])
def test_the_number_of_workers_changes_nothing_of_auto(clicks):
    log = switching_log(1200, clicks=clicks)
    one, two = (sc.HMMOracle(workers=workers).fit(log) for workers in (1, 2))
    same_model(one.model_, two.model_)
    assert one.report_.state_counts == two.report_.state_counts
    assert one.report_.restarts == two.report_.restarts


@pytest.mark.parametrize("n_states", [2, "auto"])
@pytest.mark.parametrize("clicks", [False, True])
def test_the_report_is_consistent_with_itself_and_with_the_model(n_states, clicks):
    log = switching_log(1200, clicks=clicks)
    oracle = sc.HMMOracle(n_states=n_states).fit(log)
    report = oracle.report_
    assert 1 <= report.agreed <= len(report.restarts)
    objectives = [restart.objective for restart in report.restarts]
    assert objectives == sorted(objectives, reverse=True)
    assert not report.restarts[0].abandoned
    assert (np.diff(report.objectives) >= -1e-9 * abs(report.objectives[-1])).all()
    assert report.iterations == len(report.objectives) - 1
    assert report.log_likelihood == pytest.approx(oracle.model_.log_likelihood(log), rel=1e-9)
    counts = report.state_counts
    assert [count.n_states for count in counts] == list(range(1, len(counts) + 1))
    if n_states == "auto":
        assert counts[0].gain == 0.0
        assert report.single_state_bic == counts[0].bic
        chosen = next(count for count in counts if count.n_states == oracle.model_.n_states)
        assert chosen.gain > 0
        assert chosen.predictive == max(count.predictive for count in counts[: chosen.n_states])


@pytest.mark.parametrize("seed", range(3))
def test_states_with_different_noise_get_their_own_variance(seed):
    log = switching_log(3000, seed, noises=(0.15, 0.6))
    oracle = sc.HMMOracle(n_states=2).fit(log)
    assert oracle.model_.rewards == "gaussian per state"
    np.testing.assert_allclose(np.sqrt(oracle.model_.noise_variances), [0.15, 0.6], rtol=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_states_with_equal_noise_share_one_variance(seed):
    assert sc.HMMOracle(n_states=2).fit(switching_log(3000, seed)).model_.rewards == "gaussian"


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("clicks", [False, True])
@pytest.mark.parametrize("n_states", [2, 3, 4])
def test_abandoned_runs_would_not_have_won(clicks, n_states, monkeypatch):
    log = switching_log(1500, 3, clicks)
    early = sc.HMMOracle(n_states=n_states).fit(log)
    monkeypatch.setattr(EMRun, "out_of_reach", lambda *_: False)
    patient = sc.HMMOracle(n_states=n_states).fit(log)
    assert not any(restart.abandoned for restart in patient.report_.restarts)
    best = patient.report_.restarts[0].objective
    assert early.report_.restarts[0].objective == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(early.model_.reward_coefs, patient.model_.reward_coefs, atol=1e-3)
