"""What is written as dsjson is read again as it was, by our reader and by Vowpal Wabbit."""

import json

import numpy as np
import polars
import pytest

import seachange as sc
from formats.vowpal_wabbit import driven
from seachange.errors import LogError, SeachangeWarning
from seachange.formats.dsjson import DsjsonLog, dsjson_frame, write_dsjson
from seachange.formats.vw_text import VwTextLog

N, K = 60, 3
KINDS = ("none", "shared", "per action", "masked", "without p")


def log_of(kind, **more):
    chance = np.random.default_rng(0)
    mask = np.ones((N, K), bool)
    if kind == "masked":
        mask[::2, 0] = False
    probs = chance.dirichlet(np.ones(K), N) * mask
    probs /= probs.sum(axis=1, keepdims=True)
    actions = np.array([chance.choice(K, p=row) for row in probs])
    given = {
        "contexts": chance.normal(size=(N, 2)) if kind == "shared" else None,
        "action_features": chance.normal(size=(N, K, 2)) if kind == "per action" else None,
        "action_mask": mask if kind == "masked" else None,
        "logging_probs": None if kind == "without p" else probs,
        "times": np.arange(N) * 60.25,
        "action_names": ["x", "y", "z"],
    }
    rewards = chance.random(N)
    return sc.BanditLog.from_arrays(actions, rewards, probs[np.arange(N), actions], **given | more)


def whole(raw):
    (part,) = raw.parts()
    assert part.rejected == ()
    return part


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_read_again_as_it_was(kind, tmp_path):
    log = log_of(kind)
    write_dsjson(log, tmp_path / "log.json")
    part = whole(DsjsonLog(tmp_path / "log.json"))
    taken = part.pool.names.gather(part.pool.offsets[:-1] + part.action.to_numpy())
    assert taken.to_list() == [log.action_names[action] for action in log.actions]
    np.testing.assert_array_equal(part.reward, log.rewards)
    np.testing.assert_allclose(part.propensity, log.propensities, rtol=1e-12)
    np.testing.assert_array_equal(part.time.to_numpy().astype("datetime64[us]").astype(np.int64) / 1e6, log.times)
    mask = np.ones((N, K), bool) if log.action_mask is None else log.action_mask
    np.testing.assert_array_equal(part.pool.lengths, mask.sum(axis=1))
    if kind != "without p":
        np.testing.assert_allclose(part.pool.probs, log.logging_probs[mask], rtol=1e-12)
    if kind == "shared":
        np.testing.assert_array_equal(part.features.to_numpy(), log.contexts)
    if kind == "per action":
        np.testing.assert_array_equal(part.pool.features.to_numpy().reshape(N, K, 2), log.contexts)


def test_rounds_of_a_file_are_read_again_as_they_were(tmp_path):
    text = tmp_path / "log.vw"
    text.write_text(
        "shared |user age:31 city=NY |hour h:3\n0:-1:0.5 'x|item price:2 red\n'y|item price:3 size:4\n\n"
        "'y|item price:1\n0:2:0.25 'z|item price:2\n"
    )
    before = whole(VwTextLog(text))
    dsjson_frame(before).write_ndjson(tmp_path / "log.json")
    after = whole(DsjsonLog(tmp_path / "log.json"))
    assert after.features.equals(before.features)
    assert after.pool.features.equals(before.pool.features.select(after.pool.features.columns))
    assert after.pool.names.equals(before.pool.names)
    assert after.pool.offsets.tolist() == before.pool.offsets.tolist()
    for name in ("action", "reward", "propensity"):
        assert getattr(after, name).equals(getattr(before, name))


def test_labels_stand_before_the_context_and_no_cost_is_negative_zero(tmp_path):
    write_dsjson(log_of("none").with_rewards(np.zeros(N)), tmp_path / "log.json")
    line = (tmp_path / "log.json").read_text().splitlines()[0]
    keys = list(json.loads(line))
    assert keys.index("c") > max(keys.index(key) for key in keys if key.startswith("_label"))
    assert '"_label_cost":0.0' in line


def test_what_dsjson_cannot_say_is_refused_or_said(tmp_path):
    log = log_of("none")
    unknown = sc.BanditLog.from_arrays(log.actions, log.rewards, n_actions=K)
    with pytest.raises(LogError, match="needs the propensity"):
        write_dsjson(unknown, tmp_path / "log.json")
    rewards = np.where(np.arange(N) < 2, np.nan, log.rewards)
    with pytest.raises(LogError, match=r"needs a reward in every round; 2 of 60"):
        write_dsjson(log.with_rewards(rewards), tmp_path / "log.json")
    assert not (tmp_path / "log.json").exists()
    with pytest.warns(SeachangeWarning, match="cannot store sequences"):
        write_dsjson(log_of("none", sequences=np.zeros(N, int)), tmp_path / "log.json")


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_vowpal_wabbit_reads_what_is_written(kind, tmp_path):
    log = log_of(kind)
    write_dsjson(log, tmp_path / "log.json")
    theirs = driven(f"--cb_adf --cb_type ips --dsjson -d {tmp_path / 'log.json'}")
    assert theirs["examples"] == N
    # A model that has learned nothing takes the first action of a round: its loss is minus that policy's estimate.
    first = np.zeros(N, int) if log.action_mask is None else log.action_mask.argmax(axis=1)
    policy = np.eye(K)[first]
    (ours,) = sc.evaluate(log, policy, ("ips",), force=True)
    assert -theirs["loss"] / N == pytest.approx(ours.value, rel=1e-5)


def test_columns_within_columns_become_objects(tmp_path):
    context = {"a": {"b": {"c": 1, "d": [1, 2]}}, "e.f": "g", "e": True, "_multi": [{"x": {"y": "z"}}]}
    line = {"_label_cost": 0, "_label_probability": 1, "a": [1], "p": [1], "c": context}
    (tmp_path / "log.json").write_text(json.dumps(line))
    dsjson_frame(whole(DsjsonLog(tmp_path / "log.json"))).write_ndjson(tmp_path / "again.json")
    before, after = (whole(DsjsonLog(tmp_path / name)).features for name in ("log.json", "again.json"))
    assert isinstance(before, polars.DataFrame)
    assert after.equals(before.select(after.columns))
    assert set(after.columns) == set(before.columns)
