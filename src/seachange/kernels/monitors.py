"""Monitors of adaptive sampling: has a regime begun that no state explains, a state drifted, or a reward fallen?"""

import numpy as np

from seachange.kernels.compiler import compiled
from seachange.kernels.emission import LARGEST, click_rate

LEAST, MOST_LOG = 1e-300, 500.0
# Places in ``Learners.monitors``; those of drifts come last, one per state. Times are rounds, or -1.
ROUNDS, OPEN_START, OPENED, CLOSED, DRIFT, DRIFT_START, SHORT, SHORT_START, SHORTFALL, DRIFTED = range(10)
# A regime is over if the open state has less than this probability.
SHUT = 0.05
# The shortfall that is watched for: a share of the expected reward, in deviations of rewards at least and at most.
SHARE_LOST, LEAST_SHIFT, MOST_SHIFT = 0.2, 0.05, 1.0


@compiled
def shortfall(predicted, reward, belief, total, rules):
    """log p(r | each state pays 20% less) - log p(r | each state pays as expected), for states in the usual mode."""
    n_states, usual, clicks = rules.owners.max() + (0 if rules.has_open else 1), rules.usual, rules.variances.size == 0
    as_expected, less = 0.0, 0.0
    nearest = LARGEST
    for h in range(usual, usual + n_states):
        share, score, variance = belief[h] / total, predicted[0, h], predicted[1, h]
        if clicks:
            rate = click_rate(score / np.sqrt(1.0 + 0.125 * np.pi * variance))
            as_expected += share * (reward * rate + (1.0 - reward) * (1.0 - rate))
            rate *= 1.0 - SHARE_LOST
            less += share * (reward * rate + (1.0 - reward) * (1.0 - rate))
        else:
            gap = (reward - score) / np.sqrt(rules.variances[h] * (1.0 + variance))
            nearest = min(nearest, 0.5 * gap * gap)
    if not clicks:
        for h in range(usual, usual + n_states):
            deviation = np.sqrt(rules.variances[h] * (1.0 + predicted[1, h]))
            gap, density = (reward - predicted[0, h]) / deviation, belief[h] / total / deviation
            shift = min(max(SHARE_LOST * abs(predicted[0, h]) / deviation, LEAST_SHIFT), MOST_SHIFT)
            as_expected += density * np.exp(nearest - 0.5 * gap * gap)
            less += density * np.exp(nearest - 0.5 * (gap + shift) * (gap + shift))
    return np.log(max(less, LEAST)) - np.log(max(as_expected, LEAST))


@compiled
def watch(belief, weights, predicted, evidence, reward, learners, rules):
    """Update the monitors with a reward: ``belief`` is from before it, ``weights`` from after it.

    A regime is new once the odds of the open state exceed A times the probability of entering it. Drift and shortfall
    are CUSUM statistics R ← max{R, 1} p_1(r) / p_0(r) that exceed A, with p_0 the prediction of the usual mode and p_1
    that of the drifting mode or of a shortfall. If nothing has changed, the mean number of rounds until an alarm of a
    kind is at least about A.
    """
    monitors, usual = learners.monitors, rules.usual
    monitors[ROUNDS] += 1.0
    if usual < 0:
        return
    unknown = weights[weights.size - 1] if rules.has_open else 0.0
    if unknown < SHUT:
        if monitors[OPENED] >= 0.0:
            monitors[OPENED], monitors[CLOSED] = -1.0, monitors[ROUNDS]
        monitors[OPEN_START] = monitors[ROUNDS]
    elif monitors[OPENED] < 0.0 and np.log(unknown / max((1.0 - unknown) * rules.enter, LEAST)) > rules.alarm:
        monitors[OPENED], monitors[CLOSED] = monitors[OPEN_START], -1.0
    n_states = monitors.size - DRIFTED
    known, explained = LEAST, LEAST
    for h in range(usual, usual + n_states):
        known += belief[h]
        explained += belief[h] * evidence[h]
    if rules.drifting >= 0:
        drifted, by_drift = LEAST, LEAST
        for h in range(rules.drifting, rules.drifting + n_states):
            drifted += belief[h]
            by_drift += belief[h] * evidence[h]
        if grown(monitors, DRIFT, np.log(by_drift / drifted) - np.log(explained / known), rules.alarm):
            z, highest = 0, -1.0
            for state in range(n_states):
                of_state = weights[usual + state] + weights[rules.drifting + state]
                if of_state > highest:
                    z, highest = state, of_state
            if monitors[DRIFTED + z] < 0.0:
                monitors[DRIFTED + z] = monitors[DRIFT_START]
    is_short = grown(monitors, SHORT, shortfall(predicted, reward, belief, known, rules), rules.alarm)
    if is_short and monitors[SHORTFALL] < 0.0:
        monitors[SHORTFALL] = monitors[SHORT_START]


@compiled
def grown(monitors, place, log_ratio, alarm):
    """Update the logarithm of the statistic at ``place``, which the round of its last 1 follows; is it an alarm?"""
    if monitors[place] <= 0.0:
        monitors[place], monitors[place + 1] = 0.0, monitors[ROUNDS] - 1.0
    monitors[place] += min(log_ratio, MOST_LOG)
    if monitors[place] <= alarm:
        return False
    monitors[place] = 0.0
    return True
