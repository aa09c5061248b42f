"""A model takes the raw columns that its log had: later files and single records."""

import numpy as np
import polars as pl
import pytest

import seachange as sc
from log.raw_rounds import ListLog, rounds_of
from seachange.errors import LogError, ParameterError, SeachangeError
from seachange.log.encoding import log_from_raw
from seachange.log.raw import Pool

WORDS = {"action": "item", "reward": "click", "propensity": "p", "time": "when"}


def table(seed=0, n=400):
    rng = np.random.default_rng(seed)
    actions = rng.integers(3, size=n)
    age, city = rng.normal(40, 10, n), rng.choice(["Oslo", "Bergen", "Molde"], n, p=[0.6, 0.3, 0.1])
    means = 0.2 + 0.2 * actions * (city == "Oslo") + 0.01 * (age - 40) * (actions == 1)
    return pl.DataFrame(
        {
            "item": np.array(["boots", "coats", "lamps"])[actions],
            "click": means + rng.normal(0, 0.1, n),
            "p": np.full(n, 1 / 3),
            "when": np.arange(n) + 1000 * seed,
            "age": age,
            "city": city,
        }
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    sc.learn(sc.BanditLog.from_frame(table(), WORDS), oracle="none", objective="dm").save(path)
    return sc.load(path)


def test_a_later_file_is_read_without_saying_its_columns_again(model, tmp_path):
    table(1).write_parquet(tmp_path / "later.parquet")
    log = model.read_log(tmp_path / "later.parquet")
    assert log.features == model.features
    age = model.features.shared[0]
    np.testing.assert_array_equal(log.contexts[:, 0], (table(1)["age"].to_numpy() - age.mean) / age.scale)
    same = sc.read_log(tmp_path / "later.parquet", features=model.features)
    assert same.fingerprint() == log.fingerprint()
    model.label_ahead(log)


def test_a_word_may_have_another_column_now(model, tmp_path):
    table(1).rename({"click": "bought"}).with_columns(more=pl.lit(1)).write_csv(tmp_path / "later.csv")
    log = model.read_log(tmp_path / "later.csv", {"reward": "bought"})
    assert log.rewards.tolist() == table(1)["click"].to_list()


def test_a_column_that_the_features_need_is_named_where_it_is_absent(model, tmp_path):
    table(1).drop("city").write_csv(tmp_path / "later.csv")
    with pytest.raises(LogError, match="no column 'city'"):
        model.read_log(tmp_path / "later.csv")


def test_a_log_in_units_of_its_own_is_refused(model):
    log = sc.BanditLog.from_frame(table(1), WORDS)
    with pytest.raises(ParameterError, match=r"encodes its columns differently.*features=model\.features"):
        model.label_ahead(log)
    with pytest.raises(ParameterError, match="encodes its columns differently"):
        sc.learn(log, oracle="none", objective="dm", align_to=model)


def test_a_raw_record_is_decided_like_its_encoded_row(model):
    log = sc.BanditLog.from_frame(table(1), features=model.features)
    deployer = model.deployer()
    state = deployer.init()
    for t, record in enumerate(table(1).head(20).to_dicts()):
        decision = model.decide(deployer, state, record, 0.3)
        expected = deployer.act(state, log.contexts[t], 0.3)
        assert decision.probs.tobytes() == expected.probs.tobytes()
        assert model.action_name(decision) == ("boots", "coats", "lamps")[expected.action]


def test_a_model_of_arrays_takes_records_of_plain_numbers(tmp_path):
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(300, 2))
    given = rng.integers(2, size=300), rng.random(300), np.full(300, 0.5)
    arrays = sc.BanditLog.from_arrays(*given, contexts=contexts, context_names=["age", "hour"])
    model = sc.learn(arrays, oracle="none", objective="dm")
    assert model.features is None
    deployer = model.deployer()
    decision = model.decide(deployer, deployer.init(), {"age": 1.5, "hour": -2}, 0.5)
    assert decision.probs.tolist() == deployer.act(deployer.init(), [1.5, -2.0], 0.5).probs.tolist()
    columns = dict(zip(("action", "reward", "propensity"), given, strict=True))
    frame = pl.DataFrame(columns | {"age": contexts[:, 0], "hour": contexts[:, 1]})
    frame.with_columns(pl.format("action {}", "action").alias("action")).write_parquet(tmp_path / "log.parquet")
    assert model.read_log(tmp_path / "log.parquet").fingerprint() == arrays.fingerprint()


def test_a_model_of_lists_decides_among_the_actions_of_a_record():
    rng, n = np.random.default_rng(0), 300
    lengths = rng.integers(2, 4, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    price = rng.normal(10, 3, offsets[-1])
    taken = rng.integers(lengths)
    rewards = -0.1 * price[offsets[:-1] + taken] + rng.normal(0, 0.1, n)
    part = rounds_of(
        pl.DataFrame({"hour": rng.normal(size=n)}), action=pl.Series(taken), reward=pl.Series(rewards),
        propensity=pl.Series(1 / lengths), pool=Pool(offsets, pl.DataFrame({"price": price})),
    )  # fmt: skip
    model = sc.learn(log_from_raw(ListLog([part])), oracle="none", objective="dm")
    deployer = model.deployer()
    record = {"hour": 0.0, "actions": [{"price": 14.0}, {"price": 5.0}]}
    decision = model.decide(deployer, deployer.init(), record, 0.5)
    assert decision.action == 1
    assert decision.probs[2] == 0


def test_a_record_with_a_letter_wrong_is_not_decided(model):
    deployer = model.deployer()
    with pytest.raises(LogError, match=r"'age' is missing\. There is 'aeg'"):
        model.decide(deployer, deployer.init(), {"aeg": 41, "city": "Oslo"}, 0.3)


def test_arguments_in_each_others_places_are_named(model):
    deployer, record = model.deployer(), {"age": 41, "city": "Oslo"}
    state = deployer.init()
    for given in (
        (deployer, record, state, 0.3),
        (state, deployer, record, 0.3),
        (deployer, record, record, 0.3),
        (model, state, record, 0.3),
        (deployer, state, 0.3, record),
        (deployer, state, state, 0.3),
    ):
        with pytest.raises(ParameterError) as raised:
            model.decide(*given)
        kinds = [type(value).__name__ for value in given]
        said = "got {}, {}, {}, {}.".format(*kinds)
        assert str(raised.value).startswith("decide(deployer, state, record, uniform) takes ")
        assert str(raised.value).endswith(said)
    with pytest.raises(ParameterError, match="state must be what init"):
        deployer.act(record, None, 0.3)


NAMES = ("boots", "coats", "lamps")


@pytest.mark.parametrize(
    "mask",
    [
        ["coats", "lamps"],
        {"lamps", "coats"},
        ("coats", "coats", "lamps"),
        {"boots": False, "coats": True, "lamps": True},
        {"boots": 0, "coats": 1, "lamps": np.bool_(True)},
        [False, True, True],
        np.array([False, True, True]),
    ],
)
def test_actions_are_masked_by_name_or_by_flag(model, mask):
    deployer = model.deployer(exploration=0.3)
    record = {"age": 41.0, "city": "Oslo"}
    decisions = [model.decide(deployer, deployer.init(), record, uniform, mask) for uniform in (0.0, 0.5, 0.99)]
    assert {model.action_name(decision) for decision in decisions} <= {"coats", "lamps"}
    assert all(decision.probs[0] == 0 for decision in decisions)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("coats", "collection of action names"),
        (["coat"], "'coat', which is not an action of the model. Did you mean 'coats'"),
        ({"coats": True}, "every action to True or False; 'boots' is missing"),
        ({"boots": True, "coats": True, "lamps": True, "hats": True}, "'hats'"),
        ([0, 1, 1], "one True or False for each of the 3"),
        ([True], "one True or False for each of the 3"),
        (3, "one True or False"),
        ([], "must allow an action"),
        (dict.fromkeys(NAMES, False), "must allow an action"),
    ],
)
def test_a_mask_that_makes_no_sense_is_named(model, mask, message):
    deployer = model.deployer()
    with pytest.raises(SeachangeError, match=message):
        model.decide(deployer, deployer.init(), {"age": 41.0, "city": "Oslo"}, 0.5, mask)
