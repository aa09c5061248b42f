"""What ``seachange states`` tells, against the same numbers by brute force."""

from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy.special import expit
from scipy.stats import norm, t

import seachange as sc
from seachange.analysis.state_contrasts import StateFits, contrasts, reward_cells
from seachange.analysis.states_summary import as_document, change_intervals, change_probabilities, summarize_states
from seachange.states.labels import StateLabels, labels_from_states
from seachange.states.switching_regression import SwitchingRegression


def world(n=900, seed=0, clicks=False, **columns):
    """Rewards of three actions in two states that take turns of n / 3 rounds, and those states."""
    generator = np.random.default_rng(seed)
    states = (3 * np.arange(n) // n) % 2
    actions = generator.integers(3, size=n)
    means = np.array([[0.1, 0.5, 0.9], [0.9, 0.5, 0.2]])[states, actions]
    rewards = (generator.random(n) < means) * 1.0 if clicks else means + generator.normal(0, 0.3, n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **columns)
    return log, states


def soft_labels(log, states, seed=0):
    """Labels with probabilities that are not quite sure."""
    probs = np.random.default_rng(seed).dirichlet((0.3, 0.3), len(states))
    probs[np.arange(len(states)), states] += 1
    return labels_from_states(states, 2, log, probs / 2)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("clicks", [False, True])
def test_mean_rewards_and_their_intervals_by_hand(soft, clicks):
    log, states = world(clicks=clicks)
    labels = soft_labels(log, states) if soft else labels_from_states(states, 2, log)
    cells = reward_cells(log, labels, 0.9)
    for state in range(2):
        for action in range(3):
            mine = log.actions == action
            weights = labels.weights(soft=True)[state][mine]
            rewards, n = log.rewards[mine], weights.sum()
            mean = (weights @ rewards) / n
            assert cells.rounds[state, action] == pytest.approx(n)
            assert cells.means[state, action] == pytest.approx(mean)
            if clicks:
                # Wilson's interval: the rates whose score test does not reject the mean.
                for bound in (cells.low[state, action], cells.high[state, action]):
                    error = np.sqrt(bound * (1 - bound) / n)
                    assert abs(mean - bound) / error == pytest.approx(norm.ppf(0.95))
            else:
                spread = np.sqrt(weights @ np.square(rewards - mean) / (n - 1))
                half = t.ppf(0.95, n - 1) * spread / np.sqrt(n)
                assert cells.high[state, action] - mean == pytest.approx(half)
                assert mean - cells.low[state, action] == pytest.approx(half)


def test_rounds_without_a_reward_count_for_nothing_and_rare_cells_are_named():
    log, states = world(n=600)
    rewards = log.rewards.copy()
    rewards[(log.actions == 1) & (states == 1)] = np.nan
    rewards[np.flatnonzero((log.actions == 2) & (states == 0))[3:]] = np.nan
    labels = labels_from_states(states, 2, log)
    cells = reward_cells(log.with_rewards(rewards), labels, 0.95)
    assert cells.rounds[1, 1] == 0
    assert np.isnan(cells.means[1, 1])
    assert cells.rounds[0, 2] == 3
    np.testing.assert_array_equal(cells.rare, [[False, False, True], [False, True, False]])
    assert cells.best == [1, 0]
    assert cells.best_rare == [2, None]  # in three rounds


def test_intervals_hold_the_mean_as_often_as_they_say():
    held = 0
    for seed in range(60):
        log, states = world(n=240, seed=seed, clicks=True)
        cells = reward_cells(log, labels_from_states(states, 2, log), 0.9)
        truth = np.array([[0.1, 0.5, 0.9], [0.9, 0.5, 0.2]])
        held += int(((cells.low <= truth) & (truth <= cells.high)).sum())
    error = np.sqrt(0.9 * 0.1 * 360)
    assert abs(held - 0.9 * 360) < 4.5 * error


def small_model(generator, kind="gaussian"):
    transition = np.array([[0.8, 0.1, 0.1], [0.15, 0.8, 0.05], [0.1, 0.2, 0.7]])
    variances = np.empty(0) if kind == "bernoulli" else np.full(3, 0.5)
    log = sc.BanditLog.from_arrays(np.zeros(7, int), generator.integers(2, size=7), np.ones(7), n_actions=1)
    model = SwitchingRegression(
        np.array([0.5, 0.3, 0.2]), transition, generator.normal(size=(3, 1, 1)), np.ones((3, 1, 1, 1)), variances,
        log.joint, kind,
    )  # fmt: skip
    return log, model


def path_posteriors(log, model):
    """Every path of states, and its posterior probability, by enumeration."""
    paths = np.array(list(product(range(3), repeat=len(log))))
    weights = model.initial_probs[paths[:, 0]]
    for i in range(1, len(log)):
        weights = weights * model.transition_matrix[paths[:, i - 1], paths[:, i]]
    scores = model.reward_coefs[:, 0, 0]
    for i, reward in enumerate(log.rewards):
        if model.rewards == "bernoulli":
            likelihood = np.where(reward > 0.5, expit(scores), expit(-scores))
        else:
            likelihood = norm.pdf(reward, scores, np.sqrt(model.noise_variances))
        weights = weights * likelihood[paths[:, i]]
    return paths, weights / weights.sum()


@pytest.mark.small
@pytest.mark.parametrize("kind", ["gaussian", "bernoulli"])
@pytest.mark.parametrize("seed", range(5))
def test_the_interval_of_a_change_by_enumeration_of_all_paths(kind, seed):
    log, model = small_model(np.random.default_rng(seed), kind)
    paths, weights = path_posteriors(log, model)
    labels = labels_from_states(np.array([0, 0, 1, 1, 1, 2, 2]), 3, log)
    posteriors = model.smooth(log)
    for confidence in (0.5, 0.8):
        low, high = change_intervals(model, model.filter(log), posteriors, labels, confidence)
        for i, (first, change, end, new) in enumerate([(1, 2, 5, 1), (3, 5, 7, 2)]):
            sure = change + np.argmax(posteriors[change:end, new])
            there = paths[:, sure] == new
            # p(the place ≤ t): the world stays in the new state from t to the sure round.
            reached = [
                weights[there & (paths[:, place : sure + 1] == new).all(axis=1)].sum() / weights[there].sum()
                for place in range(first, sure + 1)
            ]
            assert low[i] == first + np.argmax(np.array(reached) >= (1 - confidence) / 2)
            assert high[i] == first + np.argmax(np.array(reached) >= (1 + confidence) / 2)


@pytest.mark.small
@pytest.mark.parametrize("seed", range(5))
def test_a_change_is_at_least_as_sure_as_said_by_enumeration_of_all_paths(seed):
    log, model = small_model(np.random.default_rng(seed))
    paths, weights = path_posteriors(log, model)
    states = np.array([0, 0, 1, 1, 1, 2, 2])
    labels = labels_from_states(states, 3, log)
    bounds = change_probabilities(model.smooth(log), labels)
    for bound, (start, change, end) in zip(bounds, [(0, 2, 5), (2, 5, 7)], strict=True):
        before = (paths[:, start:change] == states[start]).any(axis=1)
        after = (paths[:, change:end] == states[change]).any(axis=1)
        assert bound <= weights[before & after].sum() + 1e-12


def test_the_places_of_known_changes_lie_in_their_intervals():
    held, total = 0, 0
    for seed in range(8):
        log, states = world(n=1200, seed=seed)
        summary = summarize_states(log, sc.HMMOracle(n_states=2, seed=seed).fit(log))
        truth = np.flatnonzero(np.diff(states)) + 1
        assert len(summary.changes) == len(truth)
        for change, place in zip(summary.changes, truth, strict=True):
            assert change.low <= change.round <= change.high
            assert change.high - change.low < 60
            assert change.probability > 0.99
            held += change.low <= place <= change.high
            total += 1
    assert held >= total - 3  # 16 intervals of 95 %


def test_contrasts_by_hand():
    log, _ = world()
    generator = np.random.default_rng(1)
    coefs = generator.normal(size=(3, 3, 1)) * 10
    covariances = generator.uniform(0.5, 2, size=(3, 3, 1, 1))
    rounds = np.array([10.0, 20.0, 30.0])
    found = contrasts(log, StateFits(coefs, covariances, False), rounds, most=3)
    assert found
    for contrast in found:
        action = log.action_names.index(contrast.action)
        others = [state for state in range(3) if state != contrast.state]
        weights = rounds[others] / rounds[others].sum()
        elsewhere = weights @ coefs[others, action, 0]
        variance = covariances[contrast.state, action, 0, 0] + weights**2 @ covariances[others, action, 0, 0]
        assert contrast.here == pytest.approx(coefs[contrast.state, action, 0])
        assert contrast.elsewhere == pytest.approx(elsewhere)
        assert contrast.std_errors == pytest.approx((contrast.here - elsewhere) / np.sqrt(variance))
        assert abs(contrast.std_errors) > norm.isf(0.025 / 9)
    by_state = [abs(contrast.std_errors) for contrast in found if contrast.state == 0]
    assert by_state == sorted(by_state, reverse=True)


def test_effects_of_features_are_of_one_deviation_and_rewards_of_clicks_are_averages_over_contexts():
    generator = np.random.default_rng(2)
    contexts = np.column_stack([generator.normal(5, 3, 400), generator.integers(2, size=400), np.full(400, 7.0)])
    log = sc.BanditLog.from_arrays(
        generator.integers(2, size=400), generator.integers(2, size=400), np.full(400, 0.5), contexts=contexts,
        action_names=["yes", "no"], context_names=["age", "phone", "always 7"],
    )  # fmt: skip
    coefs = generator.normal(size=(2, 2, 4)) * 0.2
    covariances = np.tile(1e-6 * np.eye(4), (2, 2, 1, 1))
    found = contrasts(log, StateFits(coefs, covariances, True), np.array([200.0, 200.0]), most=99)
    assert {contrast.feature for contrast in found} == {None, "age", "phone"}
    rows = np.column_stack([contexts, np.ones(400)])
    for contrast in found:
        action = log.action_names.index(contrast.action)
        mine, other = coefs[contrast.state, action], coefs[1 - contrast.state, action]
        if contrast.feature is None:
            gradients = [(expit(rows @ c) * expit(-(rows @ c))) @ rows / 400 for c in (mine, other)]
            assert contrast.here == pytest.approx(expit(rows @ mine).mean())
            error = np.sqrt(sum(1e-6 * g @ g for g in gradients))
            assert contrast.std_errors == pytest.approx((contrast.here - contrast.elsewhere) / error)
        elif contrast.feature == "age":
            assert (contrast.scale, contrast.unit) == ("log-odds", "standard deviation")
            assert contrast.here == pytest.approx(mine[0] * contexts[:, 0].std())
            assert contrast.step == pytest.approx(contexts[:, 0].std())
            assert contrast.std_errors == pytest.approx((mine[0] - other[0]) / np.sqrt(2e-6))
        else:
            assert (contrast.unit, contrast.step) == ("0 to 1", None)
            assert contrast.here == pytest.approx(mine[1])


def test_effects_of_raw_numbers_are_reported_for_a_standard_deviation_in_their_own_unit():
    generator = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "action": generator.choice(["yes", "no"], 400), "reward": generator.random(400),
            "propensity": np.full(400, 0.5), "age": generator.normal(40, 12, 400),
        }
    )  # fmt: skip
    log = sc.BanditLog.from_frame(frame)
    coefs = np.array([[[0.5, 0], [0.0, 0]], [[-0.5, 0], [0.0, 0]]])
    fits = StateFits(coefs, np.tile(1e-6 * np.eye(2), (2, 2, 1, 1)), False)
    found = [each for each in contrasts(log, fits, np.array([200.0, 200.0])) if each.feature == "age"]
    assert sorted(each.here for each in found) == pytest.approx([-0.5, 0.5])
    assert all(each.step == pytest.approx(frame["age"].std(ddof=0)) for each in found)


def test_standard_errors_are_those_of_the_model():
    log, _ = world()
    oracle = sc.HMMOracle(n_states=2).fit(log)
    summary = summarize_states(log, oracle)
    model = oracle.model_
    best = summary.contrasts[0]
    action = log.action_names.index(best.action)
    variances = model.noise_variances / model.reward_precisions[:, action, 0, 0]
    gap = model.reward_coefs[best.state, action, 0] - model.reward_coefs[1 - best.state, action, 0]
    assert best.std_errors == pytest.approx(gap / np.sqrt(variances.sum()))


def test_nothing_stands_out_where_states_are_alike():
    log, _ = world()
    coefs = np.random.default_rng(0).normal(0, 0.1, size=(2, 3, 1))
    assert contrasts(log, StateFits(coefs, np.full((2, 3, 1, 1), 0.1), False), np.array([1.0, 1.0])) == ()


def test_a_state_without_rounds_distinguishes_nothing_and_breaks_nothing():
    log, states = world()
    summary = summarize_states(log, sc.KnownStates(np.where(states == 1, 2, 0)))
    assert summary.counts[1] == 0
    assert {contrast.state for contrast in summary.contrasts} == {0, 2}
    assert np.isnan(summary.transitions.expected_stays[1])
    as_document(summary)


def test_stays_of_labels_are_counted():
    log, states = world()
    moves = summarize_states(log, sc.KnownStates(states)).transitions
    np.testing.assert_allclose(moves.matrix, [[598 / 599, 1 / 599], [1 / 300, 299 / 300]])
    np.testing.assert_allclose(moves.expected_stays, [600, 300])
    np.testing.assert_allclose(moves.leaving, [[0, 1], [1, 0]])


def test_a_segmentation_is_shown_with_p_values_and_intervals():
    log, states = world()
    labels = labels_from_states(states, 2, log)

    class Cut:
        change_points = labels.change_points
        p_values = np.array([1e-9, 0.01])
        low, high = np.array([290, 580]), np.array([305, 620])

    class Oracle:
        segmentation_ = Cut()

    first, second = summarize_states(log, Oracle(), labels).changes
    assert (first.round, first.low, first.high, first.p_value) == (300, 290, 305, 1e-9)
    assert (second.before, second.after, second.p_value) == (1, 0, 0.01)
    Cut.change_points = np.array([299, 600])  # of another log
    assert summarize_states(log, Oracle(), labels).changes[0].p_value is None


def test_labels_may_come_with_any_oracle():
    log, states = world()
    labels = StateLabels(states, 2, np.array([300, 600]))
    assert summarize_states(log, sc.SingleState(), labels).oracle == "other"


def test_intervals_of_changes_hold_them_as_often_as_they_say_where_the_model_is_right():
    generator, n, size = np.random.default_rng(3), 200_000, 3
    states = np.cumsum((generator.random(n) < 1e-3) * generator.integers(1, size, n)) % size
    means = np.array([[0.1, 0.5, 0.9], [0.9, 0.5, 0.1], [0.5, 0.9, 0.1]])
    actions = generator.integers(3, size=n)
    rewards = means[states, actions] + generator.normal(0, 0.6, n)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3)
    transition = np.full((size, size), 1e-3 / (size - 1))
    np.fill_diagonal(transition, 1 - 1e-3)
    oracle = sc.HMMOracle(n_states=size)
    oracle.model_ = SwitchingRegression(
        np.full(size, 1 / size), transition, means[:, :, None], np.ones((size, 3, 1, 1)), np.full(size, 0.36), log.joint
    )
    truth = np.flatnonzero(np.diff(states)) + 1
    changes = [change for change in summarize_states(log, oracle).changes if change.probability > 0.999]
    held = [any(change.low <= place <= change.high for place in truth) for change in changes]
    assert len(changes) > 100
    assert np.mean(held) > 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / len(held))
    assert np.mean([change.high - change.low for change in changes]) < 100
