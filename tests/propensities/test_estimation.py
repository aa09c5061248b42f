"""Propensities that nobody wrote down: estimated, calibrated, told apart from logged ones, and missed where needed."""

import io
import warnings

import numpy as np
import polars
import pytest
from rich.console import Console

import seachange as sc
from propensities.softmax_logged import KINDS, K, logged_by_softmax
from seachange.cli.tables import log_table
from seachange.errors import LogError, SeachangeWarning
from seachange.propensities.estimation import RatePrior


def distance(found, truth):
    """Mean total variation distance."""
    return np.abs(found - truth).sum(axis=1).mean() / 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_logging_policy_is_found_at_the_rate_of_its_coefficients(kind):
    """Four times the rounds halve the distance; a slack of 1.5 for chance."""
    distances = []
    for n in (2_000, 8_000):
        found = [
            distance(sc.estimate_logging_probs(log), truth)
            for log, truth in (logged_by_softmax(kind, n, seed) for seed in range(3))
        ]
        distances.append(np.mean(found))
    assert distances[0] < 0.04
    assert distances[1] < 1.5 * distances[0] / 2


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_are_distributions_that_keep_masks_and_agree_with_the_propensities(kind):
    log, _ = logged_by_softmax(kind, 500)
    probs, propensities = sc.estimate_logging_probs(log), sc.estimate_propensities(log)
    assert probs.shape == (500, K)
    assert propensities.shape == (len(log),)
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    np.testing.assert_array_equal(propensities, probs[np.arange(500), log.actions])
    assert ((propensities > 0) & (propensities <= 1)).all()
    if log.masked:
        assert (probs[~log.action_mask] == 0).all()
        assert (probs[log.action_mask] > 0).all()
    else:
        assert (probs > 0).all()


def test_without_contexts_they_are_the_expected_rates_of_the_other_blocks():
    actions = np.array([0, 0, 1, 0, 1, 1, 2, 0, 0, 0])
    log = sc.BanditLog.from_arrays(actions, np.ones(10))
    probs = sc.estimate_logging_probs(log, folds=5)
    prior = RatePrior.of(np.bincount(actions).astype(float), np.full(3, 10.0))
    for block in range(5):
        others = np.bincount(np.delete(actions, [2 * block, 2 * block + 1]), minlength=3).astype(float)
        rates = prior.means(others, np.full(3, 8.0))
        np.testing.assert_allclose(probs[2 * block : 2 * block + 2], [rates / rates.sum()] * 2)


def test_contexts_that_say_nothing_cost_nearly_nothing():
    """Noise is shrunk to the frequencies, by ridge and sharpness: held-out log-loss stays at theirs."""
    generator = np.random.default_rng(0)
    actions = generator.choice(3, size=1_000, p=[0.6, 0.3, 0.1])
    noisy = sc.BanditLog.from_arrays(actions, np.ones(1_000), contexts=generator.normal(size=(1_000, 40)))
    truth = np.tile([0.6, 0.3, 0.1], (1_000, 1))
    assert distance(sc.estimate_logging_probs(noisy), truth) < 0.05


def test_units_and_offsets_of_features_change_nothing():
    log, _ = logged_by_softmax("shared", 1_000)
    moved = sc.BanditLog.from_arrays(
        log.actions, log.rewards, contexts=(log.contexts - 7.0) * [1e6, 1e-6, 3.0], n_actions=K
    )
    np.testing.assert_allclose(sc.estimate_propensities(log), sc.estimate_propensities(moved), atol=1e-4)


def test_ips_with_estimates_is_as_near_to_the_truth_as_its_error_says():
    """z-scores of the IPS value of a fixed policy over 20 logs, propensities estimated: no bias beyond chance."""
    scores = []
    for seed in range(20):
        log, truth = logged_by_softmax("shared", 1_500, seed, sharp=0.5)
        means = np.array([0.2, 0.4, 0.6, 0.8])
        log = log.with_rewards((np.random.default_rng(seed).random(1_500) < means[log.actions]).astype(float))
        weights = 0.25 / sc.estimate_propensities(log) * log.rewards
        with_truth = 0.25 / truth[np.arange(1_500), log.actions] * log.rewards
        scores.append((weights.mean() - 0.5) / (with_truth.std(ddof=1) / np.sqrt(1_500)))
    assert abs(np.mean(scores)) < 4.5 * max(np.std(scores, ddof=1), 0.2) / np.sqrt(20)
    assert np.sqrt(np.mean(np.square(scores))) < 1.5


@pytest.mark.parametrize(
    ("actions", "n_actions", "told"),
    [(np.zeros(60, int), 3, "only 'action 0' was ever taken"), (np.arange(60) % 2, 3, "1 of 3 actions were never")],
)
@pytest.mark.parametrize("contexts", [None, np.random.default_rng(0).normal(size=(60, 2))], ids=["none", "shared"])
def test_actions_that_were_never_taken_are_reported(actions, n_actions, told, contexts):
    log = sc.BanditLog.from_arrays(actions, np.ones(60), contexts=contexts, n_actions=n_actions)
    with pytest.warns(SeachangeWarning, match=told):
        found = sc.estimate_propensities(log)
    assert ((found > 0) & (found <= 1)).all()


def test_a_context_that_decides_the_action_is_reported_and_nothing_becomes_0():
    contexts = np.linspace(-1, 1, 400)[np.random.default_rng(0).permutation(400), None]
    log = sc.BanditLog.from_arrays((contexts[:, 0] > 0).astype(int), np.ones(400), contexts=contexts)
    with pytest.warns(SeachangeWarning, match=r"the contexts all but determine the action in \d+% of the rounds"):
        probs = sc.estimate_logging_probs(log)
    assert probs.min() > 0
    np.testing.assert_allclose(probs.sum(axis=1), 1)


def test_fewer_rounds_than_coefficients_are_reported():
    generator = np.random.default_rng(0)
    log = sc.BanditLog.from_arrays(np.arange(20) % 2, np.ones(20), contexts=generator.normal(size=(20, 30)))
    with pytest.warns(SeachangeWarning, match="20 rounds are too few for the 62 coefficients"):
        found = sc.estimate_propensities(log)
    assert ((found > 0) & (found <= 1)).all()


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.small
@pytest.mark.parametrize("n", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_handful_of_rounds_gives_probabilities(kind, n):
    log, _ = logged_by_softmax(kind, n)
    found = sc.estimate_propensities(log)
    assert found.shape == (n,)
    assert ((found > 0) & (found <= 1)).all()


def test_one_action_is_taken_with_certainty():
    log = sc.BanditLog.from_arrays([0, 0, 0], np.ones(3))
    np.testing.assert_array_equal(sc.estimate_propensities(log), 1)


def test_a_constant_or_huge_feature_does_no_harm():
    log, _ = logged_by_softmax("shared", 300)
    contexts = np.column_stack([log.contexts, np.full(300, 0.1), np.full(300, 1e80), log.contexts[:, 0] * 1e60])
    found = sc.estimate_propensities(sc.BanditLog.from_arrays(log.actions, log.rewards, contexts=contexts, n_actions=K))
    assert ((found > 0) & (found <= 1)).all()


def test_the_same_seed_gives_the_same_estimates_and_a_log_with_propensities_may_be_asked_too():
    log, truth = logged_by_softmax("shared", 300)
    known = log.with_propensities(truth)
    np.testing.assert_array_equal(sc.estimate_propensities(known, seed=3), sc.estimate_propensities(log, seed=3))
    assert len(sc.estimate_propensities(known)) == len(known)


def test_folds_must_be_a_count():
    with pytest.raises(ValueError, match="folds must be at least 1"):
        sc.estimate_propensities(logged_by_softmax("none", 9)[0], folds=0)


# A log without propensities.


def test_a_log_without_propensities_says_so():
    log, _ = logged_by_softmax("shared", 100)
    assert not log.propensities_known
    assert not log[10:40].propensities_known
    assert not log.take(np.array([3, 5])).propensities_known
    assert not log.with_rewards(np.ones(100)).propensities_known
    with pytest.raises(LogError, match=r"this log has none\. Name their column.*estimate_propensities"):
        _ = log.propensities


def test_the_whole_logging_distribution_holds_the_propensities():
    log = sc.BanditLog.from_arrays([0, 1], [1.0, 0.0], logging_probs=[[0.3, 0.7], [0.4, 0.6]])
    assert log.propensities_known
    assert log.propensities.tolist() == [0.3, 0.6]


def test_a_table_without_propensities_becomes_a_log_without_propensities(tmp_path):
    frame = polars.DataFrame({"action": ["a", "b", "a"], "reward": [1.0, 0.0, 1.0], "age": [1.0, 2.0, 3.0]})
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    logs = [
        sc.BanditLog.from_frame(frame),
        sc.read_log(tmp_path / "log.csv"),
        sc.read_log(tmp_path / "log.parquet", on_disk=True),
    ]
    for log in logs:
        assert not log.propensities_known
        assert log.context_names == ("age",)
        assert log.fingerprint() == logs[0].fingerprint()


def test_what_needs_propensities_names_the_cure():
    log, _ = logged_by_softmax("shared", 100)
    for learner in (sc.IPSLearner(), sc.DRLearner(), sc.POEMLearner()):
        with pytest.raises(LogError, match=r"Learner .* needs the propensities.*estimate_propensities"):
            learner.fit(log)
        with pytest.raises(LogError, match="estimate_propensities"):
            sc.learn(log, oracle="none", objective=learner)
    policy = sc.DMLearner().fit(log).policy_
    with pytest.raises(LogError, match="evaluating a policy needs the propensities"):
        sc.evaluate(log, policy)


@pytest.mark.parametrize("oracle", [sc.HMMOracle(n_states=2, restarts=1), sc.ChangePointOracle(n_states=2)])
def test_oracles_and_the_direct_method_do_without(make_log, oracle):
    known = make_log("shared")
    log = sc.BanditLog.from_arrays(known.actions, known.rewards, contexts=known.contexts, n_actions=3)
    np.testing.assert_array_equal(
        oracle.clone().fit(log).predict(log).states, oracle.clone().fit(known).predict(known).states
    )
    model = sc.learn(log, oracle=oracle.clone(), objective="dm")
    assert model.provenance.propensity_source == "unknown"


def test_estimated_propensities_are_distinguished_and_said(tmp_path):
    log, truth = logged_by_softmax("shared", 300)
    estimated = log.with_propensities(sc.estimate_propensities(log), estimated=True)
    assert estimated.propensities_known
    assert estimated.propensities_estimated
    assert estimated[:9].propensities_estimated
    with pytest.warns(SeachangeWarning, match="learning uses estimated propensities") as told:
        model = sc.learn(estimated, oracle="none", objective="ips")
    assert len(told) == 1
    with pytest.warns(SeachangeWarning, match="evaluating a policy uses estimated propensities") as told:
        sc.evaluate(estimated, sc.SoftmaxPolicy(np.zeros(log.joint.shape), log.joint), ("dr",))
    assert len(told) == 1
    assert told[0].filename == __file__
    model.save(tmp_path / "m.seachange")
    assert sc.load(tmp_path / "m.seachange").provenance.propensity_source == "estimated"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = sc.learn(log.with_propensities(truth), oracle="none", objective="ips")
    assert model.provenance.propensity_source == "logged"


def test_a_whole_distribution_may_be_given():
    log, truth = logged_by_softmax("masked", 100)
    whole = log.with_propensities(truth)
    np.testing.assert_array_equal(whole.logging_probs, truth)
    np.testing.assert_array_equal(whole.propensities, truth[np.arange(100), log.actions])
    assert whole.with_propensities(whole.propensities).logging_probs is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.full(99, 0.5), r"shape \(100,\), or \(100, 4\).*\(99,\)"),
        (np.r_[np.full(99, 0.5), 0], r"propensities must be in \(0, 1\]; row 99 has 0 \(1 of 100"),
        (np.full((100, K), 0.3), "sum to 1"),
    ],
)
def test_propensities_that_cannot_be_are_refused(given, message):
    with pytest.raises(LogError, match=message):
        logged_by_softmax("none", 100)[0].with_propensities(given)


def test_the_table_of_a_log_says_where_its_propensities_are_from():
    log, truth = logged_by_softmax("none", 50)
    for given, word in ((log, "none"), (log.with_propensities(truth, estimated=True), "estimated")):
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(log_table(given))
        assert word in console.export_text()
