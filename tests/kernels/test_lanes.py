"""The vectorized exponential against NumPy's."""

import numpy as np
import pytest
from numba import njit

from seachange.kernels.lanes import exp_of, exp_of_single

pytestmark = pytest.mark.small


@njit
def exps(values):
    """exp_of() in a loop that can be vectorized."""
    found = np.empty(values.size)
    for i in range(values.size):
        found[i] = exp_of(values[i])
    return found


@pytest.mark.parametrize("size", [1, 5, 255, 256, 257, 1000])
def test_it_is_exp_to_two_units_in_the_last_place(size):
    values = -np.random.default_rng(size).exponential(20, size).clip(max=690)
    np.testing.assert_allclose(exps(values), np.exp(values), rtol=4.5e-16)


def test_the_ends_of_its_range_are_exact():
    values = np.array([0.0, -0.0, -1e-300, -700.0, -1e300, -np.inf])
    np.testing.assert_allclose(exps(values), [1, 1, 1, np.exp(-700), np.exp(-700), np.exp(-700)], rtol=4.5e-16)


def test_an_element_does_not_depend_on_its_neighbors():
    values = -np.random.default_rng(0).exponential(5, 300)
    together = exps(values)
    for i in range(0, 300, 7):
        assert exps(values[i : i + 1])[0] == together[i]
        assert exp_of(values[i]) == together[i]


@njit
def single_exps(values):
    """exp_of_single() in a loop that can be vectorized."""
    found = np.empty(values.size, np.float32)
    for i in range(values.size):
        found[i] = exp_of_single(values[i])
    return found


def test_single_precision_is_exp_to_three_units_in_the_last_place():
    values = -np.random.default_rng(0).exponential(10, 2000).clip(max=86).astype(np.float32)
    np.testing.assert_allclose(single_exps(values), np.exp(values.astype(np.float64)), rtol=3.6e-7)
    ends = np.array([0.0, -0.0, -87.0, -1e30, -np.inf], np.float32)
    np.testing.assert_allclose(single_exps(ends), np.exp(ends.clip(min=-87).astype(np.float64)), rtol=3.6e-7)
