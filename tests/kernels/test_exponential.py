"""The vectorised exponential against NumPy's."""

import numpy as np
import pytest

from seachange.kernels.exponential import exp_in_place

pytestmark = pytest.mark.small


@pytest.mark.parametrize("size", [1, 5, 255, 256, 257, 1000])
def test_it_is_exp_to_one_unit_in_the_last_place(size):
    values = -np.random.default_rng(size).exponential(20, size).clip(max=690)
    found = values.copy()
    exp_in_place(found)
    np.testing.assert_allclose(found, np.exp(values), rtol=4.5e-16)


def test_the_ends_of_its_range_are_right():
    values = np.array([0.0, -0.0, -1e-300, -700.0, -1e300, -np.inf])
    exp_in_place(values)
    np.testing.assert_allclose(values, [1, 1, 1, np.exp(-700), np.exp(-700), np.exp(-700)], rtol=4.5e-16)


def test_an_element_does_not_depend_on_its_neighbours():
    values = -np.random.default_rng(0).exponential(5, 300)
    together = values.copy()
    exp_in_place(together)
    for i in range(0, 300, 7):
        alone = values[i : i + 1].copy()
        exp_in_place(alone)
        assert alone[0] == together[i]
