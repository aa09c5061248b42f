"""``sc.evaluate_deployment`` against the truth: coverage, bias, and claims of a gain, in simulated worlds.

An estimator that is exactly at a threshold fails a long test in 1% of runs. Intervals are judged by the value on the
states of the held-out rounds; benchmarks/headline.py shows the value on fresh paths of states as well.
"""

import numpy as np
import pytest

import seachange as sc
from statistical.headline import GENERATORS, measured, summarized
from statistical.worlds import CANNOT_PAY, make_world

FIRST_SEED = 5000
pytestmark = pytest.mark.filterwarnings("ignore::seachange.SeachangeWarning")


@pytest.mark.parametrize(("name", "n_worlds"), [("revealing actions strong", 6), ("long stays", 3), ("cycles", 3)])
def test_estimates_of_a_few_worlds_contain_the_truth(name, n_worlds):
    records = [measured(name, FIRST_SEED + i, fast=True, repetitions=40) for i in range(n_worlds)]
    found = summarized(records)
    assert found.numbers == n_worlds
    assert found.covered >= n_worlds - n_worlds // 3  # more misses have a probability below 1%
    z = [
        (each["estimate"]["value"]["value"] - each["truth"]["same"])
        / ((each["estimate"]["value"]["high"] - each["estimate"]["value"]["low"]) / 3.92)
        for each in records
    ]
    assert abs(np.mean(z)) < 4.5 / np.sqrt(n_worlds)
    # Much wider intervals would contain the truth, too.
    assert found.std_error < 3 * np.mean([plain_error(name, FIRST_SEED + i) for i in range(n_worlds)])


def plain_error(name, seed):
    """The standard error of the doubly robust value of the same policies, if the log's rewards tell them the state."""
    world = make_world(name, seed)
    model = sc.learn(world.first, n_states=world.n_states, objective="dm")
    (found,) = sc.evaluate(world.later, model.policies, ("dr",), labels=model.label_ahead(world.later))
    return found.std_error


def test_no_gain_is_claimed_where_switching_cannot_pay():
    records = [measured(name, FIRST_SEED + i, fast=True, repetitions=20) for name in CANNOT_PAY for i in range(2)]
    assert summarized(records).false_claims <= 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("generator", "name"), [(each, name) for each, worlds in GENERATORS.items() for name in worlds.FAMILIES]
)
def test_estimates_of_60_worlds_keep_their_promises(generator, name):
    found = summarized([measured(name, FIRST_SEED + i, generator=generator) for i in range(60)])
    assert found.shortfalls() == []
