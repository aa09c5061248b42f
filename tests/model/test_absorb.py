"""What an adaptive deployment has learned is kept in a model, to go on from."""

from dataclasses import replace

import numpy as np
import polars
import pytest

import seachange as sc
from cli.shop import succeed, succeed_in_json
from model.worlds import KINDS, ORACLES, K, assert_same_bits, assert_same_models, learned
from seachange.deploy import adaptive_sampling
from seachange.deploy.alerts import Alert
from seachange.errors import NotFittedError, ParameterError, SeachangeWarning
from seachange.kernels.monitors import DRIFTED, OPENED

TWO_WORLDS = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.5]])
# Clicks of two regimes that the log holds, and of one that comes later.
RATES = np.array([[0.30, 0.10, 0.05], [0.05, 0.10, 0.30], [0.05, 0.35, 0.05]])
# Rewards of two regimes; later, the best action of the first earns less and less.
BEFORE = np.array([[0.9, 0.5, 0.1], [0.1, 0.5, 0.9]])
AFTER = np.array([[0.2, 0.5, 0.1], [0.1, 0.5, 0.9]])


def deployed(deployer, means, seed, state=None, contexts=None, rewards=None):
    """A deployment in a world with these mean rewards: its state and its course."""
    rng = np.random.default_rng([seed, 3])
    rewards = (rng.random(means.shape) < means).astype(float) if rewards is None else rewards
    contexts = np.empty((len(means), 0)) if contexts is None else contexts
    return deployer.run(deployer.init() if state is None else state, contexts, means, rewards, rng.random(len(means)))


def in_two_worlds(deployer, model, n=400, seed=5):
    """The state after more rounds of the worlds that ``learned`` models know; nothing has changed."""
    rng = np.random.default_rng(seed)
    means = TWO_WORLDS[np.arange(n) // 100 % 2]
    kind, clicks = model.provenance.joint.kind, model.world.rewards == "bernoulli"
    contexts = {"none": np.empty((n, 0)), "shared": rng.normal(size=(n, 2))}.get(kind)
    if contexts is None:
        contexts = np.concatenate([np.tile(np.eye(K), (n, 1, 1)), rng.normal(size=(n, K, 1))], axis=2)
    rewards = means + rng.normal(0, 0.1, (n, K))
    rewards = (rewards > 0.5).astype(float) if clicks else rewards
    return deployed(deployer, means, seed, contexts=contexts, rewards=rewards)[0]


def clicks_model(seed, n=8000, **settings):
    rng = np.random.default_rng(seed)
    actions = rng.integers(K, size=n)
    clicks = (rng.random(n) < RATES[np.arange(n) // 1000 % 2, actions]).astype(float)
    log = sc.BanditLog.from_arrays(actions, clicks, np.full(n, 1 / K))
    return sc.learn(log, **({"n_states": 2, "objective": "dr"} | settings))


def in_new_regime(model, seed=0, **settings):
    """An adaptive deployment of ``clicks_model`` in the midst of a regime that no state explains."""
    deployer = replace(model.deployer("adaptive"), **settings)
    state, _ = deployed(deployer, RATES[np.repeat([0, 1, 2], 1000)], seed)
    assert "new regime" in [alert.kind for alert in deployer.alerts(state)]
    return deployer, state


@pytest.fixture(scope="module")
def clicks():
    return clicks_model(0)


@pytest.fixture(scope="module")
def regime(clicks):
    """A deployment in a new regime, and the model that has absorbed it."""
    deployer, state = in_new_regime(clicks)
    return deployer, state, clicks.absorb(deployer, state)


def with_alerts(deployer, state, *places):
    """``state`` with the alerts at these places of the monitors."""
    learners = deployer.learners(state)
    learners.monitors[list(places)] = 1.0
    flat = np.concatenate([each.ravel() for each in learners])
    return replace(state, learned=flat)


def assert_goes_on(before, state, absorbed, modes):
    """The learners of the absorbed model's deployer start where ``modes`` of the states were in ``state``."""
    after = absorbed.deployer("adaptive")
    old, new = before.learners(state), after.learners(after.init())

    def place(deployer, hypothesis):
        return [each for each in deployer.hypotheses if each[1] != "frozen"].index(hypothesis)

    for z, mode in enumerate(modes):
        was = place(before, (None, mode) if mode == "open" else (z, mode))
        now = place(after, (z, "learning"))
        np.testing.assert_allclose(new.coefs[now], old.coefs[was], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(new.covariances[now], old.covariances[was], rtol=1e-9, atol=1e-9)
        known = np.linalg.inv(absorbed.evidence.units.grams(absorbed.world.reward_precisions[z]))
        known = known if old.covariances.shape[-1] > 1 else np.diagonal(known, axis1=-2, axis2=-1)[..., None]
        np.testing.assert_allclose(known, old.covariances[was], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "oracle"),
    [*((kind, "hmm") for kind in KINDS), *(("shared", oracle) for oracle in ORACLES if oracle not in ("hmm", "none"))],
)
def test_learning_goes_on_where_it_was(kind, oracle):
    model = learned(kind, oracle)
    deployer = model.deployer("adaptive", exploration=0.2)
    state = in_two_worlds(deployer, model)
    assert deployer.alerts(state) == []
    absorbed = model.absorb(deployer, state)
    assert_goes_on(deployer, state, absorbed, ["learning"] * model.n_states)
    moved = np.abs(absorbed.world.reward_coefs - model.world.reward_coefs).max()
    assert moved > 1e-4
    # Nothing has drifted, so policies, labels and the trial are those of the log.
    assert list(absorbed.policies) == list(model.policies)
    assert (absorbed.labels, absorbed.single, absorbed.provenance) == (model.labels, model.single, model.provenance)
    assert sc.AdaptiveSampling.suits(absorbed)
    assert isinstance(absorbed.deployer(), sc.AdaptiveSampling)


def test_variances_go_on_where_they_were_if_there_are_no_covariances(monkeypatch):
    monkeypatch.setattr(adaptive_sampling, "MOST_NUMBERS", 20)
    model = learned("shared")
    with pytest.warns(SeachangeWarning, match="only variances are kept"):
        deployer = model.deployer("adaptive", exploration=0.2)
    state = in_two_worlds(deployer, model)
    assert deployer.learners(state).covariances.shape[-1] == 1
    absorbed = model.absorb(deployer, state)
    with pytest.warns(SeachangeWarning, match="only variances are kept"):
        assert_goes_on(deployer, state, absorbed, ["learning"] * 2)


def test_a_state_that_drifted_is_as_its_drifting_mode_knows_it():
    model = learned("shared")
    deployer = replace(model.deployer("adaptive", exploration=0.2), forgetting=0.98)
    state = with_alerts(deployer, in_two_worlds(deployer, model), DRIFTED + 1)
    assert deployer.alerts(state) == [Alert("drift", 1, 1)]
    absorbed = model.absorb(deployer, state)
    learners, places = deployer.learners(state), [each for each in deployer.hypotheses if each[1] != "frozen"]
    units = absorbed.evidence.units
    for z, mode in enumerate(["learning", "drifting"]):
        own = places.index((z, mode))
        np.testing.assert_allclose(units.coefs(absorbed.world.reward_coefs[z]), learners.coefs[own], atol=1e-9)
        # Forgetting may leave less than the prior in some direction, which no evidence can say.
        precisions = absorbed.evidence.grams[z] + adaptive_sampling.STATE_PRECISION * np.eye(3)
        gaps = np.linalg.eigvalsh(precisions) - np.linalg.eigvalsh(np.linalg.inv(learners.covariances[own]))
        assert (gaps >= -1e-6).all()
    assert absorbed.policies[0] is model.policies[0]
    contexts = np.random.default_rng(0).normal(size=(50, 2))
    rows = np.column_stack([contexts, np.ones(50)])
    best = (rows @ absorbed.world.reward_coefs[1].T).argmax(axis=1)
    assert (absorbed.policies[1].predict_proba(contexts).argmax(axis=1) == best).all()
    assert absorbed.policies[1].predict_proba(contexts).max(axis=1).min() > 0.99
    assert absorbed.trial is None


@pytest.mark.parametrize(
    ("modes", "source"),
    [
        (("learning",), "learning"),
        (("drifting", "open"), "drifting"),
        (("frozen", "drifting"), None),
        (("frozen", "open"), None),
        (("open",), None),
    ],
)
def test_a_deployer_without_some_modes_keeps_what_its_other_modes_learned(modes, source):
    model = learned("shared")
    deployer = replace(model.deployer("adaptive", exploration=0.2), modes=modes, forgetting=0.9999)
    state = in_two_worlds(deployer, model)
    absorbed = model.absorb(deployer, state)
    if source is None:
        assert_same_bits(absorbed.world.reward_coefs, model.world.reward_coefs)
        assert_same_bits(absorbed.world.reward_precisions, model.world.reward_precisions)
        assert_same_bits(absorbed.evidence.grams, model.evidence.grams)
    else:
        assert_goes_on(deployer, state, absorbed, [source] * 2)
    assert absorbed.n_states == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_learned_during_drift_earns_more_than_the_old_one(seed):
    """The best action of state 0 loses its lead; then 0.5 is to be had there, and the old policy gets 0.2."""
    rng, n, later = np.random.default_rng(seed), 6000, 16_000

    def regimes(count):
        return np.cumsum(rng.random(count) < 1 / 400) % 2

    actions, noise = rng.integers(K, size=n), 0.4
    log = sc.BanditLog.from_arrays(actions, rng.normal(BEFORE[regimes(n), actions], noise), np.full(n, 1 / K))
    model = sc.learn(log, n_states=2, objective="dr")
    falling, share = regimes(later), np.linspace(0, 1, later)[:, None]
    means = (1 - share) * BEFORE[falling] + share * AFTER[falling]
    deployer = model.deployer("adaptive", exploration=0.1)
    state, _ = deployed(deployer, means, seed, rewards=rng.normal(means, noise))
    first = int(model.world.reward_coefs[0, 0, 0] < 0.5)  # the state of the first regime
    assert first in [alert.state for alert in deployer.alerts(state) if alert.kind == "drift"]
    absorbed = model.absorb(deployer, state)
    means = AFTER[regimes(6000)]
    rewards, earned = rng.normal(means, noise), []
    for each in (model, absorbed):
        assert each.policies[first].predict_proba(np.empty((1, 0))).argmax() == (each is absorbed)
        earned.append(deployed(each.deployer("frozen"), means, seed, rewards=rewards)[1].expected_rewards.mean())
    best = means.max(axis=1).mean()
    assert earned[1] > earned[0] + 0.05
    assert earned[1] > 0.93 * best > earned[0]


@pytest.mark.parametrize("seed", range(3))
def test_a_new_regime_becomes_a_state_with_a_policy(seed):
    model = clicks_model(seed)
    deployer, state = in_new_regime(model, seed)
    absorbed = model.absorb(deployer, state)
    assert (model.n_states, absorbed.n_states, absorbed.labels.n_states, absorbed.world.n_states) == (2, 3, 3, 3)
    assert list(absorbed.policies)[:2] == list(model.policies)
    assert float(absorbed.policies[2].predict_proba(np.empty((1, 0)))[0] @ RATES[2]) >= 0.9 * RATES[2].max()
    np.testing.assert_allclose(absorbed.world.transition_matrix.sum(axis=1), 1)
    assert absorbed.world.expected_stays[2] == pytest.approx(1 / deployer.closing)
    # Should the regime come back, a frozen deployment knows it; the old regimes are not worse for it.
    means, earned = RATES[np.repeat([0, 1, 2, 0, 2, 1], 1000)], []
    for each in (model, absorbed):
        trace = deployed(each.deployer("frozen"), means, seed + 10)[1]
        earned.append(trace.expected_rewards.reshape(6, 1000).mean(axis=1))
    returned = [2, 4]
    assert (earned[1][returned] >= 0.8 * 0.35).all()
    assert (earned[0][returned] < 0.5 * 0.35).all()
    assert np.delete(earned[1] - earned[0], returned).min() > -0.02


def test_the_learners_of_a_new_state_start_where_the_open_state_was(clicks, regime):
    deployer, state, absorbed = regime
    assert_goes_on(deployer, state, absorbed, ["learning", "learning", "open"])
    assert absorbed.trial is None
    assert absorbed.labels.counts.tolist() == [*clicks.labels.counts, 0]
    assert_same_bits(absorbed.labels.states, clicks.labels.states)


def test_later_logs_are_labeled_with_the_new_state(regime):
    absorbed = regime[2]
    rng, truth = np.random.default_rng(4), np.repeat([0, 2, 1], 1000)
    actions = rng.integers(K, size=3000)
    rewards = (rng.random(3000) < RATES[truth, actions]).astype(float)
    later = sc.BanditLog.from_arrays(actions, rewards, np.full(3000, 1 / K))
    for labels in (absorbed.oracle.predict(later), absorbed.label_ahead(later)):
        assert labels.n_states == 3
        assert (labels.states[truth == 2] == 2).mean() > 0.9
        assert (labels.states[truth != 2] == 2).mean() < 0.1
    assert absorbed.oracle.clone().n_states == 3
    assert not hasattr(absorbed.oracle, "report_")  # that was about the log, and two states
    assert sc.evaluate_deployment(later, absorbed, draws=4).value > 0.25


def test_a_regime_that_has_ended_is_no_state(clicks):
    deployer, state = in_new_regime(clicks)
    state, _ = deployed(deployer, RATES[np.repeat([0, 1], 1000)], 7, state)
    assert "known again" in [alert.kind for alert in deployer.alerts(state)]
    assert clicks.absorb(deployer, state).n_states == 2


def test_a_model_of_one_state_goes_on_and_may_get_another():
    model = clicks_model(0, oracle="none", n_states="auto")
    deployer = model.deployer("adaptive")
    state, _ = deployed(deployer, np.tile(RATES[:2].mean(axis=0), (1000, 1)), 0)
    assert deployer.alerts(state) == []
    absorbed = model.absorb(deployer, state)
    assert_goes_on(deployer, state, absorbed, ["learning"])
    assert absorbed.single is absorbed.policies[0] is model.single
    drifted = model.absorb(deployer, with_alerts(deployer, state, DRIFTED))
    assert drifted.n_states == 1
    assert drifted.single is drifted.policies[0] is not model.single
    state, _ = deployed(deployer, np.tile(RATES[2], (1000, 1)), 0, state)
    assert "new regime" in [alert.kind for alert in deployer.alerts(state)]
    absorbed = model.absorb(deployer, state)
    assert absorbed.n_states == 2
    assert absorbed.single is model.single
    assert isinstance(absorbed.deployer(), sc.AdaptiveSampling)


def test_in_an_unchanged_world_decisions_hardly_change(clicks):
    means = RATES[np.arange(4000) // 1000 % 2]
    deployer = clicks.deployer("adaptive")
    state, _ = deployed(deployer, means, 1)
    assert deployer.alerts(state) == []
    absorbed = clicks.absorb(deployer, state)
    one, other = (deployed(each.deployer("frozen"), means, 2)[1] for each in (clicks, absorbed))
    assert (one.actions == other.actions).mean() > 0.98
    assert other.expected_rewards.mean() > one.expected_rewards.mean() - 0.002
    # Before the first round, nothing has been learned.
    same = clicks.absorb(deployer, deployer.init())
    assert_same_bits(deployed(same.deployer("frozen"), means, 2)[1].actions, one.actions)


def run_again(model):
    deployer = model.deployer("adaptive")
    return model.absorb(deployer, deployed(deployer, RATES[np.repeat([2, 0], 500)], 9)[0])


def test_an_absorbed_model_is_saved_and_goes_on_to_the_bit(tmp_path, regime):
    absorbed = regime[2]
    absorbed.save(tmp_path / "shop.seachange")
    loaded = sc.load(tmp_path / "shop.seachange")
    assert_same_models(loaded, absorbed)
    assert loaded.world is loaded.oracle.model_
    assert not hasattr(loaded.oracle, "report_")
    means = RATES[np.repeat([2, 1], 500)]
    for kind in ("auto", "frozen"):
        one, other = (deployed(each.deployer(kind), means, 3)[1] for each in (absorbed, loaded))
        assert_same_bits(one.actions, other.actions)
        assert_same_bits(one.propensities, other.propensities)
    twice = run_again(loaded)
    assert_same_models(twice, run_again(absorbed))
    assert_same_bits(twice.evidence.grams, run_again(absorbed).evidence.grams)
    twice.save(tmp_path / "twice.seachange")
    assert_same_models(sc.load(tmp_path / "twice.seachange"), twice)


@pytest.mark.parametrize("oracle", ORACLES)
def test_absorbed_models_of_all_oracles_are_saved(tmp_path, oracle):
    model = learned("per action", oracle)
    deployer = model.deployer("adaptive", exploration=0.2)
    state = with_alerts(deployer, in_two_worlds(deployer, model), OPENED, DRIFTED)
    absorbed = model.absorb(deployer, state)
    assert absorbed.n_states == model.n_states + 1
    absorbed.save(tmp_path / "shop.seachange")
    assert_same_models(sc.load(tmp_path / "shop.seachange"), absorbed)


@pytest.mark.filterwarnings("ignore:columns that are not used")
def test_every_command_takes_an_absorbed_model(tmp_path):
    def table(seed, regimes):
        rng = np.random.default_rng(seed)
        actions = rng.integers(K, size=len(regimes))
        clicks = (rng.random(len(regimes)) < RATES[regimes, actions]).astype(int)
        time = seed * 100_000 + np.arange(len(regimes))
        return polars.DataFrame({"time": time, "action": actions, "click": clicks, "propensity": 1 / K})

    table(0, np.arange(8000) // 1000 % 2).write_csv(tmp_path / "early.csv")
    table(1, np.repeat([0, 2, 1, 2], 1000)).write_csv(tmp_path / "late.csv")
    log = sc.read_log(tmp_path / "early.csv", {"reward": "click"})
    model = sc.learn(log, n_states=2, objective="dr")
    model.absorb(*in_new_regime(model)).save(tmp_path / "shop.seachange")
    shop, early, late = (tmp_path / name for name in ("shop.seachange", "early.csv", "late.csv"))
    assert succeed_in_json("inspect", shop)[0]["state_rounds"] == [*model.labels.counts, 0]
    for log in (early, late):
        found, said = succeed_in_json("states", log, shop)
        assert found["n_states"] == 3
        succeed("report", log, shop, "-o", tmp_path / "report.html", "--force")
        succeed("evaluate", log, shop)
        assert "state 2" in said or "1 more state without rounds" in said
        assert found["evidence"] is None  # of the number of states: that was of the old model
    assert min(found["counts"]) > 900


# Errors


def test_only_an_adaptive_deployment_can_be_absorbed(clicks):
    for kind, name in (("posterior", "PosteriorSampling"), ("exp4s", "Exp4S"), ("single", "SinglePolicy")):
        deployer = clicks.deployer(kind)
        with pytest.raises(ParameterError, match=f"{name} learns nothing that a model could keep"):
            clicks.absorb(deployer, deployer.init())
    with pytest.raises(ParameterError, match="takes an adaptive deployer"):
        clicks.absorb(None, None)


def test_a_deployment_of_another_model_is_refused(clicks, regime):
    deployer, state, absorbed = regime
    for other in (clicks_model(1), absorbed, learned("shared")):
        with pytest.raises(ParameterError, match="the deployer is of another model"):
            other.absorb(deployer, state)
    alone = deployer.without_states(clicks.single)
    with pytest.raises(ParameterError, match="the deployer is of another model"):
        clicks.absorb(alone, alone.init())
    # Other policies are another model, too.
    swapped = replace(clicks, policies=sc.PolicySet(tuple(clicks.policies)[::-1]))
    with pytest.raises(ParameterError, match="the deployer is of another model"):
        swapped.absorb(deployer, state)


def test_the_deployer_may_have_any_settings(clicks):
    deployer, state = in_new_regime(clicks, forgetting=0.999, boldness=0.8, exploration=0.05, memory=7)
    assert clicks.absorb(deployer, state).n_states == 3


def test_a_state_of_another_deployer_is_refused(clicks, regime):
    deployer = regime[0]
    for state in (replace(deployer, forgetting=0.99).init(), clicks.deployer("posterior").init()):
        with pytest.raises(ParameterError, match="belongs to another deployer"):
            clicks.absorb(deployer, state)
    with pytest.raises(ParameterError, match="state must be what init"):
        clicks.absorb(deployer, b"state")


def test_a_damaged_state_is_refused(clicks, regime):
    deployer, state, _ = regime
    n_coefs = deployer.rules.start.coefs.size
    for place, value in ((0, np.nan), (n_coefs, -1.0), (n_coefs, 0.0), (-1, np.inf)):
        learned = state.learned.copy()
        learned[place] = value
        with pytest.raises(ParameterError, match="damaged: restore an earlier one"):
            clicks.absorb(deployer, replace(state, learned=learned))
    with pytest.raises(ParameterError, match="damaged: restore an earlier one"):
        clicks.absorb(deployer, replace(state, learned=state.learned[:-1]))


def test_purchases_and_models_without_reward_models_are_refused(clicks, regime):
    deployer, state, _ = regime
    hurdle = replace(clicks, world=replace(clicks.world, rewards="hurdle", amounts=np.ones((K, 1))))
    with pytest.raises(ParameterError, match="amounts of purchases are not learned"):
        hurdle.absorb(deployer, state)
    for model in (replace(clicks, world=None), replace(clicks, evidence=None)):
        with pytest.raises(ParameterError, match="needs a model with reward models; learn it again"):
            model.absorb(deployer, state)


def test_the_old_model_stays_as_it_was(tmp_path):
    model = clicks_model(0)
    model.save(tmp_path / "before.seachange")
    deployer, state = in_new_regime(model)
    before = state.to_bytes()
    model.absorb(deployer, state)
    model.save(tmp_path / "after.seachange")
    assert (tmp_path / "before.seachange").read_bytes() == (tmp_path / "after.seachange").read_bytes()
    assert state.to_bytes() == before


def test_an_oracle_that_absorbed_has_no_report(regime):
    with pytest.raises((NotFittedError, AttributeError), match="no report_; it has learned model_"):
        _ = regime[2].oracle.report_
