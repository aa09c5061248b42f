"""Regrets of bandit algorithms on piecewise-stationary Bernoulli arms.

Source: Besson's thesis (SMPyBandits), means and standard deviations of the final regret over 1,000 runs. Tolerance: for
klUCB and its oracle, the larger of 5% and three standard errors of the published figure; for tuned algorithms, 20%, or
a smaller regret. With few runs, three standard errors of ours are added.

Two things the tables do not say, but which their figures need: the third problem has 100,000 rounds, as in 20,000 even
the worst actions lose less than the regret of sliding-window klUCB; and the oracle restarts only the action that was
taken just before a change. Tuned algorithms are told
the number of changes.

Exp3.S is left out for the third problem: ours loses 1,063 (10 runs), and 837 with the best of seven exploration rates
from 0.01 to 0.2, instead of 665.

Command: ``seachange replicate piecewise --runs 1000 --problems Pb1,Pb2,Pb3``
"""

import json
import math

import numpy as np
import pytest

from cli.shop import misuse, succeed_in_json
from seachange.experiments import piecewise_regrets as experiment
from seachange.experiments.piecewise_regrets import PUBLISHED, PUBLISHED_RUNS
from seachange.simulate import PiecewiseBernoulli

EXACT = ("oracle", "klUCB")
UNMATCHED = ("Pb3", "Exp3.S")
CASES = [(problem, name) for problem, figures in PUBLISHED.items() for name in figures if (problem, name) != UNMATCHED]


def regrets(problem, name, n_runs):
    return np.array([experiment.regret(seed, problem, name) for seed in range(n_runs)])


def judge(problem, name, found, slack):
    mean, deviation = PUBLISHED[problem][name]
    if name in EXACT:
        tolerance = max(0.05 * mean, 3 * deviation / math.sqrt(PUBLISHED_RUNS))
        assert abs(found.mean() - mean) <= tolerance + slack
    else:
        assert found.mean() <= 1.2 * mean + slack


@pytest.mark.parametrize(("problem", "name"), [case for case in CASES if case[0] != "Pb3"])
def test_a_few_runs_are_near_the_published_regrets(problem, name):
    found = regrets(problem, name, 60)
    judge(problem, name, found, 3 * found.std(ddof=1) / math.sqrt(len(found)))


@pytest.mark.long
@pytest.mark.parametrize(("problem", "name"), CASES)
def test_published_regrets(problem, name):
    judge(problem, name, regrets(problem, name, PUBLISHED_RUNS), 0.0)


def test_the_means_are_those_of_the_shared_file(data_file):
    shared = json.loads(data_file("piecewise_bernoulli.json").read_text())
    for problem in PUBLISHED:
        assert PiecewiseBernoulli.published(problem).means.tolist() == shared[problem]["means"]


def test_the_command_prints_both_regrets():
    answer, _ = succeed_in_json("replicate", "piecewise", "--runs", "2", "--problems", "Pb1", "--workers", "1")
    rows = {row["method"]: row for row in answer["rows"]}
    assert rows["oracle"]["published"] == 37
    assert rows["klUCB"]["mean"] == pytest.approx(np.mean(regrets("Pb1", "klUCB", 2)))
    assert "'Pb9' is not one of Pb1, Pb2, Pb3" in misuse("replicate", "piecewise", "--problems", "Pb9")
