"""A model that was saved comes back as it was, and stays small."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import seachange as sc
from model.worlds import (
    KINDS,
    ORACLES,
    TRUTH,
    N,
    assert_same_bits,
    assert_same_models,
    learned,
    two_worlds,
)


@pytest.mark.parametrize("objective", ["ips", "dr", "poem"])
@pytest.mark.parametrize("oracle", ORACLES)
def test_a_loaded_model_is_the_saved_one(tmp_path, oracle, objective):
    model = learned(oracle=oracle, objective=objective)
    model.save(tmp_path / "shop.seachange")
    loaded = sc.load(tmp_path / "shop.seachange")
    assert_same_models(loaded, model)
    assert loaded.n_states == (1 if oracle == "none" else 2)
    assert loaded.world.n_states == loaded.n_states
    assert (loaded.world is getattr(loaded.oracle, "model_", None)) == (oracle in ("hmm", "hmm of clicks"))


@pytest.mark.parametrize("oracle", ["hmm", "change-point"])
def test_a_loaded_model_has_the_value_of_the_saved_one(tmp_path, oracle):
    model, later = learned("shared", oracle), two_worlds("shared", seed=1, start=N)
    model.save(tmp_path / "shop.seachange")
    loaded = sc.load(tmp_path / "shop.seachange")
    assert sc.evaluate_deployment(later, loaded, draws=4) == sc.evaluate_deployment(later, model, draws=4)


def test_a_trial_comes_back(tmp_path):
    model = sc.learn(two_worlds(n=1600), objective="dm")
    trial = model.trial
    assert (trial.n_states, trial.n_learned, trial.n_evaluated) == (2, 960, 640)
    assert trial.gain[0] == pytest.approx(trial.switching[0] - trial.single[0])
    model.save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").trial == trial


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("oracle", ["hmm", "change-point", "reward"])
def test_a_loaded_model_sees_the_same_states_in_another_log(tmp_path, kind, oracle):
    model, later = learned(kind, oracle), two_worlds(kind, seed=1)
    model.save(tmp_path / "shop.seachange")
    loaded = sc.load(str(tmp_path / "shop.seachange"))
    assert_same_models(loaded, model)
    assert_same_bits(loaded.oracle.predict(later).states, model.oracle.predict(later).states)
    assert_same_bits(loaded.label_ahead(later).state_probs, model.label_ahead(later).state_probs)
    contexts = later.contexts
    assert_same_bits(loaded.policies.advice(contexts), model.policies.advice(contexts))


@pytest.mark.parametrize("oracle", ORACLES)
def test_a_loaded_model_decides_like_the_saved_one_to_the_bit(tmp_path, oracle):
    model = learned("shared", oracle)
    model.save(tmp_path / "shop.seachange")
    rng = np.random.default_rng(5)
    contexts, uniforms, rewards = rng.normal(size=(60, 2)), rng.random(60), rng.random(60)
    runs = []
    for deployer in (model.deployer(), sc.load(tmp_path / "shop.seachange").deployer()):
        state, decisions = deployer.init(), []
        for context, uniform, reward in zip(contexts, uniforms, rewards, strict=True):
            decision = deployer.act(state, context, uniform)
            decisions.append((decision.action, decision.propensity, *decision.probs))
            state = deployer.update(state, decision, reward)
        runs.append(np.array([*decisions]))
        assert len(deployer.state_probs(state)) == model.n_states + deployer.learns  # the open state
    assert_same_bits(*runs)


def test_known_states_come_back_round_by_round(tmp_path):
    states = np.random.default_rng(3).integers(0, 3, N)
    model = sc.learn(two_worlds(), oracle=sc.KnownStates(states), objective="ips")
    model.save(tmp_path / "known.seachange")
    loaded = sc.load(tmp_path / "known.seachange")
    np.testing.assert_array_equal(loaded.oracle.predict(two_worlds()).states, states)
    assert_same_models(loaded, model)


def test_a_model_of_many_sequences_comes_back(tmp_path):
    log = two_worlds()
    chains = np.repeat(np.arange(8), N // 8)
    log = sc.BanditLog.from_arrays(log.actions, log.rewards, log.propensities, sequences=chains)
    model = sc.learn(log, oracle=sc.KnownStates(TRUTH))
    model.save(tmp_path / "chains.seachange")
    loaded = sc.load(tmp_path / "chains.seachange")
    assert loaded.labels.n_chains == 8
    assert_same_models(loaded, model)


def test_equal_models_make_equal_files(tmp_path, model):
    model.save(tmp_path / "one.seachange")
    sc.load(tmp_path / "one.seachange").save(tmp_path / "two.seachange")
    learned().save(tmp_path / "three.seachange")
    one, two, three = ((tmp_path / f"{name}.seachange").read_bytes() for name in ("one", "two", "three"))
    assert one == two == three


@pytest.mark.parametrize(
    "learner", [sc.IPSLearner(clip=np.inf), sc.DRLearner(clip=float("inf")), sc.IPSLearner(l2=1e-300, temperature=0.1)]
)
def test_settings_come_back_whatever_their_value(tmp_path, learner):
    sc.learn(two_worlds(), oracle="none", objective=learner).save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").learner.get_params() == learner.get_params()


def test_a_pair_among_the_settings_comes_back_as_a_pair(tmp_path):
    oracle = sc.ChangePointOracle(statistic="reward", n_states=2, window=50, threshold=0.25, reward_range=(-1.0, 2.0))
    sc.learn(two_worlds(), oracle=oracle, objective="ips").save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").oracle.get_params() == oracle.get_params()


def test_settings_may_be_numbers_of_numpy(tmp_path):
    learner = sc.DRLearner(clip=np.float64(20), max_iterations=np.int64(50), ridge=np.float32(1))
    sc.learn(two_worlds(), oracle="none", objective=learner).save(tmp_path / "shop.seachange")
    assert sc.load(tmp_path / "shop.seachange").learner.get_params() == learner.get_params()


def test_the_zip_holds_a_manifest_and_plain_arrays_only(content):
    assert "manifest.json" in content
    assert {Path(name).suffix for name in content} == {".json", ".npy"}
    for name, data in content.items():
        if name.endswith(".npy"):
            array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
            assert array.dtype.kind in "if"
            assert len(array) < N


def test_the_manifest_says_how_and_from_what_the_model_was_learned(content):
    manifest, log = json.loads(content["manifest.json"]), two_worlds()
    assert isinstance(manifest["schema"], int)
    assert {"python", "seachange", "numpy"} <= set(manifest["versions"])
    assert manifest["oracle"]["params"] == ORACLES["hmm"]().get_params()
    assert manifest["learner"]["params"] == sc.DRLearner().get_params()
    provenance = manifest["provenance"]
    assert provenance["fingerprint"] == log.fingerprint()
    assert provenance["n_rounds"] == N
    assert provenance["action_names"] == ["boots", "coats", "lamps"]
    assert provenance["time_range"] == [str(log.times[0]), str(log.times[-1])]


def test_the_time_range_is_that_of_all_sequences():
    log = sc.BanditLog.from_arrays(
        [0, 1, 0, 1], [0, 1, 1, 0], [0.5] * 4, times=[5.0, 9.0, 1.0, 2.0], sequences=[0, 0, 1, 1]
    )
    assert sc.learn(log, oracle="none", objective="dm").provenance.time_range == ("1.0", "9.0")


@pytest.mark.parametrize("oracle", ["known", "none"])
def test_the_file_does_not_grow_with_the_log(tmp_path, oracle):
    sizes = []
    for n in (2_000, 20_000):
        finder = sc.KnownStates(np.repeat([0, 1, 0, 1], n // 4)) if oracle == "known" else sc.SingleState()
        sc.learn(two_worlds(n=n), oracle=finder, objective="ips").save(tmp_path / "shop.seachange")
        sizes.append((tmp_path / "shop.seachange").stat().st_size)
    assert sizes[1] < sizes[0] + 100
