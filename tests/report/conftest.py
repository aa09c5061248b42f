"""What most pages are made of: a model of two worlds, and a log that it has not seen."""

import pytest

from report.pages import learned, two_worlds


@pytest.fixture(scope="module")
def model():
    return learned(two_worlds())


@pytest.fixture(scope="module")
def later():
    return two_worlds(seed=1, start=1500)
