"""A small table that tests read in many ways."""

import datetime as dt

import numpy as np

STAMPS = [dt.datetime(2026, 1, 1, 12) + dt.timedelta(minutes=i) for i in range(6)]
MAPPING = {"action": "item id", "reward": "clicked?", "propensity": "π"}


def table(**changes):
    """Six rounds with three named actions under the usual column names; a column set to None is left out."""
    columns = {
        "action": ["lamps", "boots", "coats", "boots", "lamps", "boots"],
        "reward": [1, 0, 0, 1, 1, 0],
        "propensity": [0.25, 0.5, 0.25, 0.5, 0.25, 0.5],
        "age": [30.5, 41.0, 25.0, 33.0, 57.0, 19.0],
        "hour": [1, 2, 3, 4, 5, 6],
    }
    return {name: values for name, values in (columns | changes).items() if values is not None}


def oddly_named():
    return {MAPPING.get(name, name): values for name, values in table().items()}


def standardised(values):
    """Numbers less their mean, in units of their standard deviation."""
    return (np.array(values, dtype=np.float64) - np.mean(values)) / np.std(values)


def assert_table(log):
    """``log`` is ``table()``."""
    assert log.action_names == ("boots", "coats", "lamps")
    assert log.context_names == ("age", "hour")
    assert log.actions.tolist() == [2, 0, 1, 0, 2, 0]
    assert log.rewards.tolist() == table()["reward"]
    assert log.propensities.tolist() == table()["propensity"]
    expected = np.stack([standardised(table()["age"]), standardised(table()["hour"])], axis=1)
    np.testing.assert_allclose(log.contexts, expected, rtol=1e-12)
