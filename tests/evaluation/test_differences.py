"""Differences between policies that are judged on the same rounds."""

import numpy as np
import pytest

import seachange as sc
from seachange.errors import RefusedError
from seachange.evaluation.estimators import evaluate_difference, evaluate_logging, worst_case_difference


def logged(n, seed):
    """Clicks of three actions, and two policies that prefer the first and the last."""
    generator = np.random.default_rng(seed)
    logging = np.array([0.5, 0.3, 0.2])
    actions = generator.choice(3, n, p=logging)
    means = np.array([0.2, 0.5, 0.6])
    log = sc.BanditLog.from_arrays(actions, (generator.random(n) < means[actions]) * 1.0, logging[actions], n_actions=3)
    first, last = (np.tile(probs, (n, 1)) for probs in ([0.7, 0.2, 0.1], [0.1, 0.2, 0.7]))
    return log, first, last, float((last[0] - first[0]) @ means), float((last[0] - logging) @ means)


def test_a_difference_is_that_of_the_two_values():
    log, first, last, _, _ = logged(3000, 0)
    values = [sc.evaluate(log, policy, ("dr",))[0].value for policy in (first, last)]
    assert evaluate_difference(log, last, first).value == pytest.approx(values[1] - values[0])
    over_log = evaluate_difference(log, last)
    assert over_log.value == pytest.approx(values[1] - log.rewards.mean())
    same = evaluate_difference(log, last, last)
    assert (same.value, same.std_error) == (0, 0)


def test_intervals_hold_the_difference_as_often_as_they_say():
    held, held_over_log, errors, runs = 0, 0, [], 300
    for seed in range(runs):
        log, first, last, apart, over_log = logged(800, seed)
        found, other = evaluate_difference(log, last, first), evaluate_difference(log, last)
        held += found.low <= apart <= found.high
        held_over_log += other.low <= over_log <= other.high
        errors.append((found.value - apart) / found.std_error)
    spread = np.sqrt(0.95 * 0.05 / runs)
    for share in (held / runs, held_over_log / runs):
        assert abs(share - 0.95) < 4.5 * spread
    assert abs(np.mean(errors)) < 4.5 / np.sqrt(runs)


def test_without_pairs_errors_add_up():
    log, first, _, _, _ = logged(3000, 0)
    one, other = sc.evaluate(log, first, ("dr",))[0], evaluate_logging(log)
    found = worst_case_difference(one, other)
    assert found.std_error == one.std_error + other.std_error
    paired = evaluate_difference(log, first)
    assert found.value == pytest.approx(paired.value)
    assert found.high - found.low > paired.high - paired.low
    assert not found.paired


def test_what_the_log_cannot_support_is_refused():
    log, _, last, _, _ = logged(20, 0)
    with pytest.raises(RefusedError, match="effective sample size"):
        evaluate_difference(log, last)
