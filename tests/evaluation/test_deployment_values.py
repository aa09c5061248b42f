"""The value of a deployment, its gain, and their intervals; of simulated parts, that they are those of the world."""

from dataclasses import replace

import numpy as np
import pytest

import seachange as sc
from evaluation.deployments import Fixed
from seachange.errors import RefusedError
from seachange.evaluation.deployment import value_of_deployment
from seachange.evaluation.estimators import evaluate_logging
from seachange.kernels.forward_backward import sample_path

LOGGING, MEANS = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.5, 0.6])
FIRST, LAST = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.2, 0.7])


def logged(n, seed):
    """Clicks of three actions."""
    generator = np.random.default_rng(seed)
    actions = generator.choice(3, n, p=LOGGING)
    rewards = (generator.random(n) < MEANS[actions]) * 1.0
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
    runs, truths = 200, np.array([LAST @ MEANS, (LAST - FIRST) @ MEANS, (LAST - LOGGING) @ MEANS])
    held, errors = np.zeros(3), []
    for seed in range(runs):
        found = values_of(logged(800, seed), model)
        parts = (found, found.gain, found.over_logging)
        held += [each.low <= truth <= each.high for each, truth in zip(parts, truths, strict=True)]
        errors.append([(each.value - truth) / each.std_error for each, truth in zip(parts, truths, strict=True)])
    assert (np.abs(held / runs - 0.95) < 4.5 * np.sqrt(0.95 * 0.05 / runs)).all()
    assert (np.abs(np.mean(errors, axis=0)) < 4.5 / np.sqrt(runs)).all()


def test_what_the_log_cannot_support_is_refused(model):
    with pytest.raises(RefusedError, match="effective sample size"):
        values_of(logged(20, 0), model)


def test_rounds_that_a_model_was_learned_from_are_refused_unless_forced(model):
    with pytest.raises(RefusedError, match="cannot be evaluated on rounds that it was learned from: the model was"):
        values_of(logged(300, 99), model)
    assert values_of(logged(300, 99), model, force=True) == value_of_deployment(logged(300, 99), model, "exp4s")


@pytest.mark.small
def test_paths_of_states_are_drawn_given_all_rewards_by_enumeration():
    """Against p(z_1:n | r_1:n) of every path of a tiny chain, with two sequences."""
    generator = np.random.default_rng(0)
    initial, transition = np.array([0.3, 0.7]), np.array([[0.8, 0.2], [0.4, 0.6]])
    evidence, starts = generator.uniform(0.1, 1, (4, 2)), np.array([True, False, True, False])
    exact, filtered = {}, np.empty((4, 2))
    for path in np.ndindex(2, 2, 2, 2):
        chance = 1.0
        for t, z in enumerate(path):
            chance *= (initial[z] if starts[t] else transition[path[t - 1], z]) * evidence[t, z]
        exact[path] = chance
    for t in range(4):
        before = initial if starts[t] else filtered[t - 1] @ transition
        filtered[t] = before * evidence[t] / (before @ evidence[t])
    draws, counts, path = 4_000, dict.fromkeys(exact, 0), np.empty(4, dtype=np.int64)
    for uniforms in generator.random((draws, 4)):
        sample_path(filtered, np.append(starts[1:], True), transition, uniforms, path)
        counts[tuple(path.tolist())] += 1
    total = sum(exact.values())
    for each, chance in exact.items():
        share = chance / total
        assert abs(counts[each] / draws - share) < 4.5 * np.sqrt(share * (1 - share) / draws)
