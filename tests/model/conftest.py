"""A model, and the files in its zip."""

import pytest

from model.worlds import content_of, learned


@pytest.fixture(scope="module")
def model():
    return learned()


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    """The files in the zip of an HMM's model, by name."""
    path = tmp_path_factory.mktemp("model") / "good.seachange"
    model.save(path)
    return content_of(path)
