"""A model, and the files in its zip."""

import zipfile

import pytest

from model.worlds import learned


@pytest.fixture(scope="module")
def model():
    return learned()


@pytest.fixture(scope="module")
def content(model, tmp_path_factory):
    """The files in the zip of an HMM's model, by name."""
    path = tmp_path_factory.mktemp("model") / "good.seachange"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
