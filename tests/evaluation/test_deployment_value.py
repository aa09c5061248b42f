"""evaluate_deployment: what it is made of, by enumeration and by slow loops; whom it compares; when it refuses."""

import warnings
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import seachange as sc
from evaluation.deployments import Fixed
from seachange.evaluation import deployment
from seachange.evaluation.estimators import evaluate_logging
from seachange.kernels.forward_backward import sample_path
from seachange.states.expectation import Chain, expectation
from seachange.states.new_states import updated

MEANS = np.array([[0.9, 0.4, 0.1], [0.1, 0.4, 0.9]])


def changing(n: int, seed: int, kind: str = "none", stay: int = 60, clicks: bool = False, **columns) -> sc.BanditLog:
    """Two states with opposite best actions."""
    generator = np.random.default_rng([seed, 3])
    states, actions = (np.arange(n) // stay) % 2, generator.integers(3, size=n)
    contexts = {"contexts": generator.normal(size=(n, 2))} if kind == "shared" else {}
    if kind == "per action":
        contexts = {"action_features": np.eye(3)[None] + generator.normal(0, 0.1, (n, 3, 3))}
    means = MEANS[states, actions]
    rewards = (generator.random(n) < means).astype(float) if clicks else means + generator.normal(0, 0.3, n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **contexts, **columns)


@pytest.fixture(scope="module", params=["none", "shared", "per action", "clicks"])
def learned(request) -> tuple[sc.SwitchingModel, sc.BanditLog]:
    clicks, kind = request.param == "clicks", request.param.replace("clicks", "none")
    model = sc.learn(changing(1200, 0, kind, clicks=clicks), n_states=2, objective="dm")
    return model, changing(600, 1, kind, clicks=clicks)


@pytest.mark.small
def test_paths_are_drawn_from_their_posterior_by_enumeration():
    generator = np.random.default_rng(0)
    n, starts = 5, np.array([True, False, False, True, False])
    initial, transition = np.array([0.7, 0.3]), np.array([[0.8, 0.2], [0.3, 0.7]])
    evidence = generator.random((n, 2)) + 0.1
    posterior, filtered = {}, np.empty((n, 2))
    for path in product((0, 1), repeat=n):
        weights = [
            (initial[z] if starts[t] else transition[path[t - 1], z]) * evidence[t, z] for t, z in enumerate(path)
        ]
        posterior[path] = np.prod(weights)
    total = sum(posterior.values())
    for t in range(n):
        before = initial if starts[t] else filtered[t - 1] @ transition
        filtered[t] = before * evidence[t] / (before @ evidence[t])
    drawn, counts, n_draws = np.empty(n, dtype=np.int64), dict.fromkeys(posterior, 0), 4000
    for _ in range(n_draws):
        sample_path(filtered, np.append(starts[1:], True), transition, generator.random(n), drawn)
        counts[tuple(drawn.tolist())] += 1
    for path, weight in posterior.items():
        share = weight / total
        assert abs(counts[path] / n_draws - share) < 4.5 * np.sqrt(share * (1 - share) / n_draws)


@pytest.mark.parametrize("exploration", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["adaptive", "posterior", "exp4s"])
def test_simulated_differences_are_those_of_slow_loops(learned, kind, exploration):
    model, log = learned
    log = log[:40]
    if kind == "exp4s":  # chains of their own
        log = replace(log, sequences=np.arange(40) // 25)
    deployer, world, chain = model.deployer(kind, exploration=exploration), model.world, Chain(log)
    deployers = deployer, *deployment._others(deployer, model)
    path = (np.arange(40) // 7) % 2
    found = deployment._differences_in(world, log, chain, path, deployers, model, np.random.default_rng(5))
    generator, clicks = np.random.default_rng(5), world.rewards == "bernoulli"
    noise = generator.random(40) if clicks else generator.standard_normal(40)
    uniforms = generator.random(40)
    live, earned, alone, mixed = sc.LiveFilter(world), np.zeros(3), 0.0, 0.0
    for t in range(40):
        if chain.starts[t]:
            states, belief = [each.init() for each in deployers], live.init()
        context = None if log.joint.kind == "none" else log.contexts[t]
        row = log.joint.rows(log.contexts[t : t + 1])[0]
        features = [row[a if len(row) > 1 else 0] for a in range(3)]
        coefs = [world.reward_coefs[path[t], a if world.reward_coefs.shape[1] > 1 else 0] for a in range(3)]
        means = np.array([c @ f for c, f in zip(coefs, features, strict=True)])
        means = 1 / (1 + np.exp(-means)) if clicks else means
        rewards = (
            (noise[t] < means).astype(float) if clicks else means + np.sqrt(world.noise_variances[path[t]]) * noise[t]
        )
        for i, each in enumerate(deployers):
            decision = each.act(states[i], context, uniforms[t])
            earned[i] += decision.probs @ means
            states[i] = each.update(states[i], decision, float(rewards[decision.action]))
        alone += model.single.predict_proba(log.contexts[t : t + 1])[0] @ means
        advice = model.policies.advice(log.contexts[t : t + 1])[0]
        mixed += ((1 - exploration) * belief.forecast @ advice + exploration / 3) @ means
        belief = live.update(belief, context, int(log.actions[t]), float(rewards[log.actions[t]]))
    own, frozen, learning_single = earned
    expected = [own - mixed, own - alone, frozen - mixed, frozen - alone, learning_single - alone]
    if kind != "adaptive":
        assert len(deployers) == 1
        found, expected = found[:2], expected[:2]
    assert found == pytest.approx(np.array(expected) / 40, abs=1e-9)


def test_the_value_is_the_doubly_robust_one_plus_what_was_simulated(learned):
    model, log = learned
    found = sc.evaluate_deployment(log, model, draws=4)
    (mixed,) = sc.evaluate(log, model.policies, ("dr",), labels=model.label_ahead(log))
    assert found.value - found.simulated == pytest.approx(mixed.value, abs=1e-12)
    assert found.simulated_error > 0
    assert found.low < found.value < found.high
    assert found.logging.value == pytest.approx(log.rewards.mean())
    assert found.gain.value == pytest.approx(found.value - found.single.value, abs=1e-9)
    assert found.over_logging.value == pytest.approx(found.value - found.logging.value, abs=1e-9)
    assert found.gain.low > 0
    if found.learning_single is not None:
        assert found.over_learning.value == pytest.approx(found.value - found.learning_single.value, abs=1e-9)
        assert found.over_learning.low < found.over_learning.value < found.over_learning.high


def test_a_single_policy_needs_no_simulation(learned):
    model, log = learned
    found, switching = sc.evaluate_deployment(log, model, "single"), sc.evaluate_deployment(log, model, draws=2)
    assert (found.simulated, found.simulated_error) == (0.0, 0.0)
    assert (found.gain.value, found.gain.low, found.gain.high) == (0.0, 0.0, 0.0)
    for one in (found.single, switching.single):
        assert (found.value, found.low, found.high) == (one.value, one.low, one.high)
    assert found.logging == switching.logging
    (alone,) = sc.evaluate(log, model.single, ("dr",))
    assert abs(found.value - alone.value) < alone.std_error  # the same estimator with another reward model


def test_more_draws_and_other_seeds_change_little():
    model, log = sc.learn(changing(1200, 0), n_states=2, objective="dm"), changing(600, 1)
    values = [sc.evaluate_deployment(log, model, draws=30, seed=seed) for seed in range(4)]
    error = max(each.simulated_error for each in values)
    assert np.std([each.value for each in values]) < 3 * error / np.sqrt(30)
    again = sc.evaluate_deployment(log, model, draws=30, seed=0)
    assert (again.value, again.low, again.high) == (values[0].value, values[0].low, values[0].high)


def test_every_oracle_has_a_world_and_every_deployer_a_value():
    log, later = changing(3000, 0, stay=300), changing(900, 1, stay=300)
    states = (np.arange(3000) // 300) % 2
    for oracle in ("change-point", sc.KnownStates(states), sc.HMMOracle(n_states=2)):
        model = sc.learn(log, oracle, objective="dm")
        assert model.n_states == 2
        assert model.world is not None
        for kind in ("auto", "exp4s", "single"):
            found = sc.evaluate_deployment(later, model, kind, draws=4)
            assert 0.3 < found.value < 0.95
    assert sc.learn(log, "none", objective="dm").world.n_states == 1


def test_a_model_is_not_evaluated_on_its_own_rounds():
    log = changing(600, 0)
    model = sc.learn(log, n_states=2, objective="dm")
    with pytest.raises(sc.RefusedError, match="learned from this log") as refusal:
        sc.evaluate_deployment(log, model)
    assert "use a later log" in str(refusal.value)
    assert np.isfinite(sc.evaluate_deployment(log, model, force=True, draws=2).value)


def test_actions_that_the_log_never_took_are_refused():
    model, log = sc.learn(changing(1200, 0), n_states=2, objective="dm"), changing(900, 1)
    log = log.take(np.flatnonzero(log.actions == 1))
    with pytest.raises(sc.RefusedError):
        sc.evaluate_deployment(log, model)


def test_intervals_of_long_stays_are_wider_than_those_of_independent_rounds():
    """Rounds of one stay are not independent observations of what a deployment earns."""
    generator = np.random.default_rng(0)
    means, states = np.array([[0.9, 0.8], [0.1, 0.2]]), (np.arange(3000) // 100) % 2
    actions = generator.integers(2, size=3000)
    rewards = means[states, actions] + generator.normal(0, 0.1, 3000)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(3000, 0.5))
    model = sc.learn(log[:1500], n_states=2, objective="dm")
    found = sc.evaluate_deployment(log[1500:], model, draws=4)
    (mixed,) = sc.evaluate(log[1500:], model.policies, ("dr",), labels=model.label_ahead(log[1500:]))
    assert found.std_error > 3 * mixed.std_error


def test_the_single_policy_and_the_world_survive_the_file(tmp_path):
    log, later = changing(3000, 0, stay=300), changing(600, 1, stay=300)
    for oracle in ("change-point", "hmm"):
        model = sc.learn(log, oracle, n_states=2, objective="ips")
        model.save(tmp_path / f"{oracle}.seachange")
        loaded = sc.load(tmp_path / f"{oracle}.seachange")
        one, two = (sc.evaluate_deployment(later, each, draws=3) for each in (model, loaded))
        assert (one.value, one.single.value, one.low) == (two.value, two.single.value, two.low)


def test_switching_that_does_not_pay_is_not_learned():
    """Two states in which the same action is best: a single policy earns as much, and more if states are mistaken."""
    generator = np.random.default_rng(0)
    means, states = np.array([[0.9, 0.2, 0.5], [0.6, 0.5, 0.1]]), (np.arange(4000) // 50) % 2
    actions = generator.integers(3, size=4000)
    rewards = means[states, actions] + generator.normal(0, 0.2, 4000)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(4000, 1 / 3))
    assert sc.learn(log, n_states=2, objective="dm").n_states == 2
    with pytest.warns(sc.SeachangeWarning, match="does not pay"):
        model = sc.learn(log, objective="dm")
    assert model.n_states == 1
    assert model.trial is not None
    assert model.trial.n_states > 1
    assert abs(model.trial.expected_gain) < 1e-6


def test_switching_that_pays_is_kept_with_its_numbers():
    model = sc.learn(changing(3000, 0), objective="dm")
    assert model.n_states == 2
    assert model.trial is not None
    assert model.trial.gain[1] > 0
    assert (model.trial.n_learned, model.trial.n_evaluated) == (1800, 1200)


def one_change(n: int, place: float, seed: int) -> sc.BanditLog:
    """The best of two actions changes once."""
    generator = np.random.default_rng(seed)
    late, actions = np.arange(n) >= place * n, generator.integers(2, size=n)
    rewards = np.where(actions == late, 0.8, 0.1) + generator.normal(0, 0.3, n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5))


@pytest.mark.parametrize("oracle", ["hmm", "change-point"])
def test_a_state_that_begins_after_the_trial_is_kept(oracle):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sc.SeachangeWarning)
        assert sc.learn(one_change(3000, 0.7, 0), oracle, objective="dm").n_states == 2
        assert sc.learn(one_change(3000, 0.5, 0), oracle, objective="dm").n_states == 2


def test_a_precise_simulation_does_not_overrule_a_clear_log():
    model, log = sc.learn(changing(1200, 0), n_states=2, objective="dm"), changing(600, 1)
    found = sc.evaluate_deployment(log, model, draws=4)

    def expected(gain: float, error: float, simulated: float, simulated_error: float) -> float:
        there = replace(found.gain, value=gain, std_error=error)
        return replace(found, gain=there, simulated_gain=simulated, simulated_gain_error=simulated_error).expected_gain

    assert expected(0.1, 0.02, -0.002, 0.002) > 0.09
    assert expected(0.01, 0.02, -0.02, 0.002) < 0
    assert expected(0.0, 0.0, 0.0, 0.0) == 0


@pytest.mark.parametrize("oracle", ["hmm", "change-point"])
@pytest.mark.parametrize("kind", ["shared", "per action"])
def test_the_origin_and_the_unit_of_features_do_not_matter(oracle, kind):
    values, simulated = [], []
    for shift, unit in ((0.0, 1.0), (10.0, 1.0), (1e4, 3.0)):
        log, later = (changing(n, seed, kind, stay=300) for n, seed in ((2400, 0), (900, 1)))
        name = {"shared": "contexts", "per action": "action_features"}[kind]
        model, later = (
            sc.BanditLog.from_arrays(
                each.actions, each.rewards, each.propensities, n_actions=3, **{name: (each.contexts + shift) * unit}
            )
            for each in (log, later)
        )
        learned = sc.learn(model, oracle, n_states=2, objective="dm")
        found = sc.evaluate_deployment(later, learned, draws=4)
        values.append((found.value - found.simulated, found.single.value, *learned.world.expected_stays))
        simulated.append(found.simulated)
    np.testing.assert_allclose(values[1:], [values[0]] * 2, rtol=1e-4)
    # Rounding may change single decisions.
    np.testing.assert_allclose(simulated[1:], simulated[0], atol=0.5 * found.simulated_error)


def test_an_action_that_was_never_taken_has_a_finite_value():
    generator = np.random.default_rng(0)
    states, actions = (np.arange(2000) // 100) % 2, generator.integers(2, size=2000)
    rewards = (actions == states) + generator.normal(0, 0.3, 2000)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(2000, 0.5), n_actions=3)
    model = sc.learn(log[:1200], sc.HMMOracle(n_states=2, ridge=0.0), objective="ips")
    found = sc.evaluate_deployment(log[1200:], model, draws=8)
    assert 0.7 < found.value < 1.1
    assert np.isfinite(found.simulated_error)


def test_bad_settings_are_refused():
    model, log = sc.learn(changing(600, 0), n_states=2, objective="dm"), changing(300, 1)
    for draws in (0, 1):
        with pytest.raises(sc.SeachangeError, match="draws must be at least 2"):
            sc.evaluate_deployment(log, model, draws=draws)
    with pytest.raises(sc.SeachangeError, match="the log is empty"):
        sc.evaluate_deployment(log[:0], model)
    with pytest.raises(sc.SeachangeError, match=r"needs a model, .* got a str"):
        sc.evaluate_deployment(log, "shop.seachange")


# Policies whose values are known

LOGGING, CLICKS = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.6])
FIRST, LAST = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])


def logged(n, seed):
    """Clicks of three actions."""
    generator = np.random.default_rng(seed)
    actions = generator.choice(3, n, p=LOGGING)
    rewards = (generator.random(n) < CLICKS[actions]) * 1.0
    return sc.BanditLog.from_arrays(actions, rewards, LOGGING[actions], n_actions=3)


@pytest.fixture(scope="module")
def model():
    """One state, whose policy prefers the last action; the single policy prefers the first."""
    learned = sc.learn(logged(300, 99), oracle="none", objective="dm")
    return replace(learned, policies=sc.PolicySet((Fixed(LAST),), 300), single=Fixed(FIRST))


def values_of(log, model, **settings):
    """The policy of its state is deployed by Exp4.S, as "auto" would deploy the single policy."""
    return sc.evaluate_deployment(log, model, "exp4s", **settings)


def test_values_and_differences_are_doubly_robust(model):
    log = logged(3000, 0)
    found = values_of(log, model)
    (last,), (first,) = (sc.evaluate(log, Fixed(each), ("dr",)) for each in (LAST, FIRST))
    assert found.value == pytest.approx(last.value, rel=1e-12)
    assert found.single.value == pytest.approx(first.value, rel=1e-12)
    assert found.logging.value == pytest.approx(evaluate_logging(log).value, rel=1e-12)
    assert found.gain.value == pytest.approx(last.value - first.value)
    assert found.over_logging.value == pytest.approx(last.value - log.rewards.mean())
    assert (found.simulated, found.simulated_error) == (0, 0)
    same = values_of(log, replace(model, single=Fixed(LAST))).gain
    assert (same.value, same.std_error, same.significant) == (0, 0, False)


def test_exploration_mixes_the_policy_with_uniform_choices(model):
    log = logged(3000, 0)
    (mixed,) = sc.evaluate(log, Fixed(0.7 * LAST + 0.1), ("dr",))
    assert values_of(log, model, exploration=0.3).value == pytest.approx(mixed.value, rel=1e-9)


def test_intervals_hold_the_value_and_the_differences_as_often_as_they_say(model):
    runs, truths = 200, np.array([LAST @ CLICKS, (LAST - FIRST) @ CLICKS, (LAST - LOGGING) @ CLICKS])
    held, errors = np.zeros(3), []
    for seed in range(runs):
        found = values_of(logged(800, seed), model)
        parts = (found, found.gain, found.over_logging)
        held += [each.low <= truth <= each.high for each, truth in zip(parts, truths, strict=True)]
        errors.append([(each.value - truth) / each.std_error for each, truth in zip(parts, truths, strict=True)])
    assert (np.abs(held / runs - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / runs)).all()
    assert (np.abs(np.mean(errors, axis=0)) < 4.5 / np.sqrt(runs)).all()


def test_what_the_log_cannot_support_is_refused(model):
    with pytest.raises(sc.RefusedError, match="effective sample size"):
        values_of(logged(20, 0), model)


# Held-out rounds with a regime that the model never saw

REGIMES = np.array([[0.95, 0.1, 0.1, 0.8], [0.1, 0.95, 0.8, 0.1], [0.95, 0.1, 0.8, 0.1]])


def logged_regimes(regimes: np.ndarray, seed: int, clicks: bool) -> sc.BanditLog:
    """Two of four actions tell that the third regime is the first, the other two that it is the second."""
    generator, n = np.random.default_rng([seed, 9]), len(regimes)
    actions = generator.integers(4, size=n)
    means = REGIMES[regimes, actions]
    rewards = (generator.random(n) < means).astype(float) if clicks else means + generator.normal(0, 0.5, n)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.25), n_actions=4)


@pytest.mark.parametrize(("clicks", "missed"), [(False, 3), (True, 2)])
def test_a_new_regime_is_simulated_as_a_state_of_its_own(clicks, missed):
    """Simulated with known states only, it changes quickly between them, and the value is ``missed`` errors too low."""
    generator, known = np.random.default_rng(0), np.repeat([0, 1, 0, 1, 0, 1], 500)
    regimes = np.concatenate([known[:1000], np.full(2000, 2)])
    log, later = logged_regimes(known, 0, clicks), logged_regimes(regimes, 1, clicks)
    model = sc.learn(log, sc.KnownStates(known), objective="dm")
    found, deployer = sc.evaluate_deployment(later, model), model.deployer()

    means, n, truths = REGIMES[regimes], len(regimes), []
    for _ in range(40):
        noise = generator.random((n, 1)) if clicks else generator.normal(0, 0.5, (n, 1))
        rewards = (noise < means).astype(float) if clicks else means + noise
        _, trace = deployer.run(deployer.init(), later.contexts, means, rewards, generator.random(n))
        truths.append(trace.expected_rewards.mean())
    assert found.new_states == 1
    assert abs(found.value - np.mean(truths)) < 2 * found.std_error

    world, chain = model.world, Chain(later)
    without = updated(world, world, expectation(world, chain), later.units)
    difference = deployment._simulated(later, without, chain, (deployer,), model, 16, 0)[:, 0].mean()
    assert found.value - found.simulated + difference < np.mean(truths) - missed * found.std_error


def test_known_states_are_not_new(learned):
    model, log = learned
    assert sc.evaluate_deployment(log, model, draws=2).new_states == 0
