"""The paper's theorem on the detector, as a statement about 200 logs that satisfy its conditions.

Segments longer than 4w, changes of at least Δ in the logging policy's value, (R/2)-sub-Gaussian rewards, w and c from
min_change, delta and reward_range: with probability at least 1 - δ at most S w rounds are labelled wrong.
"""

import numpy as np
import pytest

import seachange as sc

DELTA = 0.1


def wrong_rounds(found, truth):
    """Rounds labeled with another segment's number (segments are numbered in time)."""
    return int(np.count_nonzero(found != truth))


def violations(draw_rewards, spread, min_change, reward_range, n_logs):
    """Logs, of ``n_logs``, with more than S w wrong rounds."""
    count = 0
    for seed in range(n_logs):
        generator = np.random.default_rng(seed)
        oracle = sc.ChangePointOracle(statistic="reward", min_change=min_change, delta=DELTA, reward_range=reward_range)
        # The window depends on the length of the log only through a logarithm: fix the length first.
        n = 40_000
        (window,), _ = oracle.settings_for(sc.BanditLog.from_arrays(np.zeros(n), np.resize(spread, n), np.ones(n)))
        lengths = []
        while sum(lengths) + 4 * window + 2 <= n:
            lengths.append(int(generator.integers(4 * window + 1, 6 * window)))
        lengths[-1] += n - sum(lengths)
        if lengths[-1] <= 4 * window:
            lengths[-2:] = [sum(lengths[-2:])]
        steps = min_change * (1 + 0.2 * generator.random(len(lengths)))
        values = np.cumsum(steps * np.where(np.arange(len(lengths)) % 2, 1, -1))
        truth = np.repeat(np.arange(len(lengths)), lengths)
        rewards = draw_rewards(values - values.min(), truth, generator)
        log = sc.BanditLog.from_arrays(np.zeros(n), rewards, np.ones(n))
        labels = oracle.fit(log).predict(log)
        segments = np.repeat(
            np.arange(len(labels.change_points) + 1), np.diff(labels.change_points, prepend=0, append=n)
        )
        count += wrong_rounds(segments, truth) > len(lengths) * window
    return count


def clicks(values, truth, generator):
    """Rewards in [0, 1]: the theorem's own case, R = 1."""
    means = 0.1 + values[truth]
    assert means.max() <= 1
    return (generator.random(len(truth)) < means).astype(float)


def synthetic_like(values, truth, generator):
    """N(μ(a), 0.5²) with μ(a) in [0, 1]: (1/√2)-sub-Gaussian, R = √2, as the paper's synthetic rewards are."""
    actions = generator.integers(2, size=len(truth))
    means = 0.1 + values[truth] + np.where(actions == 0, -0.1, 0.1)
    return means + generator.normal(0, 0.5, len(truth))


@pytest.mark.parametrize(
    ("draw", "spread", "reward_range"),
    [(clicks, [0.0, 1.0], (0.0, 1.0)), (synthetic_like, [-1.0, 2.0], (0.0, 2**0.5))],
    ids=["clicks", "Gaussian rewards"],
)
def test_at_most_a_share_delta_of_logs_has_more_than_s_w_wrong_rounds(draw, spread, reward_range):
    broken = violations(draw, spread, 0.5, reward_range, n_logs=200)
    assert broken <= DELTA * 200
