"""inspect: everything that is in a model is said, to people and to programs."""

import re

import numpy as np
import polars as pl
import pytest

import seachange as sc
from cli.shop import COLUMNS, ITEMS, fail, succeed, succeed_in_json
from seachange.errors import ModelFileError
from seachange.model_file import SCHEMA

pytestmark = pytest.mark.filterwarnings("ignore:columns that are not used")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A model of raw columns of many kinds."""
    rng, n = np.random.default_rng(0), 12_000
    actions = rng.integers(0, 3, n)
    frame = pl.DataFrame(
        {
            "item": np.array(ITEMS)[actions],
            "click": (rng.random(n) < np.array([0.2, 0.5, 0.7])[actions]).astype(int),
            "p": np.full(n, 1 / 3),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 12, n)),
            "city": rng.choice(["Oslo", "Bergen"], n, p=[0.7, 0.3]),
            "page": [f"/{i % 1100}" for i in range(n)],
            "user": [{"tags": ["new", "big"][: i % 3]} for i in range(n)],
            "session": [f"s{i}" for i in range(n)],
        }
    )
    path = tmp_path_factory.mktemp("shop") / "shop.seachange"
    log = sc.BanditLog.from_frame(frame, {"action": "item", "reward": "click", "propensity": "p"})
    sc.learn(log, oracle="none", objective="dm").save(path)
    return path


def test_the_whole_content_of_a_model_is_shown(shop):
    model, (said, _) = sc.load(shop), succeed("inspect", shop)
    age = model.features.shared[0]
    for told in (
        "SingleState()", "DMLearner(", "SinglePolicy", "seachange", f"schema      {SCHEMA}", "12,000",
        "action=item, reward=click, propensity=p", "boots, coats, lamps", model.provenance.fingerprint,
        f"mean {age.mean:.6g}, standard deviation {age.scale:.6g}", "age, age missing",
        "one of Oslo, Bergen, other",
        "64 buckets (crc32)", "lists of new, big, other", "user.tags", "Not used: session (identifiers",
    ):  # fmt: skip
        assert told in said, told


def test_the_document_holds_the_model_for_programs(shop):
    model, (found, said) = sc.load(shop), succeed_in_json("inspect", shop)
    assert said.startswith("Model")
    assert found["schema"] == SCHEMA
    assert found["n_states"] == 1
    assert found["oracle"] == {"kind": "SingleState", "settings": {}}
    assert found["learner"]["kind"] == "DMLearner"
    assert found["log"]["n_rounds"] == 12_000
    assert found["log"]["context_names"] == list(model.features.context_names)
    kinds = {feature["column"]: feature["type"] for feature in found["features"]["shared"]}
    assert kinds == {"age": "number", "city": "category", "page": "hashed", "user.tags": "category"}
    assert found["features"]["columns"] == {"action": "item", "reward": "click", "propensity": "p"}


def test_a_model_that_an_hmm_found_says_its_states_and_why_its_objective(folder):
    said, _ = succeed("inspect", folder / "shop.seachange")
    assert re.search(r"states +2, lasting [\d,]+ rounds on average", said)
    assert "HMMOracle(n_states=2" in said
    assert sc.load(folder / "shop.seachange").choice.reason in re.sub(r"\s+", " ", said)
    assert COLUMNS.split(",")[0] in said
    assert "[red]hour" in said


def test_a_model_of_arrays_says_so(tmp_path):
    rng = np.random.default_rng(0)
    log = sc.BanditLog.from_arrays(
        rng.integers(2, size=200), rng.random(200), np.full(200, 0.5), contexts=rng.random((200, 2))
    )
    sc.learn(log, oracle="none", objective="dm").save(tmp_path / "m")
    said, _ = succeed("inspect", tmp_path / "m")
    assert "given as arrays and used as they are" in said
    assert succeed_in_json("inspect", tmp_path / "m")[0]["features"] is None


def test_a_file_that_is_not_a_model_is_named(tmp_path):
    (tmp_path / "m").write_text("nothing")
    assert "is not a model file" in fail(ModelFileError, "inspect", tmp_path / "m")
