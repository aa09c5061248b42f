"""learn() says what is odd about a log, and takes objects, not classes."""

from dataclasses import replace

import numpy as np
import pytest

import seachange as sc
from seachange import learning
from seachange.errors import LogError, ParameterError
from seachange.model_file import Trial


@pytest.mark.parametrize("reward", [0.0, 1.0, -2.5])
def test_rewards_that_are_all_the_same_are_reported(reward):
    log = sc.BanditLog.from_arrays(np.arange(300) % 3, np.full(300, reward), np.full(300, 1 / 3))
    with pytest.warns(sc.SeachangeWarning, match=f"all rewards are {reward:g}: every policy earns the same"):
        model = sc.learn(log, oracle="none")
    assert np.isfinite(model.policies[0].predict_proba(np.zeros((1, 0)))).all()


def test_propensities_that_were_filled_in_are_reported(make_log):
    log = make_log("none")
    filled = sc.BanditLog.from_arrays(log.actions, log.rewards, np.ones(len(log)))
    with pytest.warns(sc.SeachangeWarning, match="all propensities are 1, yet 3 actions were taken"):
        sc.learn(filled, oracle="none", objective="ips")


def few_rounds(n):
    rng = np.random.default_rng(0)
    return sc.BanditLog.from_arrays(np.arange(n) % 3, rng.normal(size=n), np.full(n, 1 / 3))


@pytest.mark.parametrize("n", [3, 29])
def test_no_value_is_promised_for_a_handful_of_rounds(n):
    with pytest.warns(sc.SeachangeWarning) as caught:
        model = sc.learn(few_rounds(n))
    notes = [str(each.message) for each in caught]
    assert any(note.startswith(f"the log has only {n} rounds, too few to compare objectives") for note in notes)
    assert model.choice is None
    assert isinstance(model.learner, sc.DMLearner)


def test_more_states_than_rounds_is_one_clear_error():
    rule = "n_states=40 is too many for this log, which has 3 rounds with a reward. Use fewer states."
    with pytest.raises(ParameterError, match=f"^{rule}$"):
        sc.learn(few_rounds(3), n_states=40)


def test_states_without_rounds_are_reported_once():
    with pytest.warns(sc.SeachangeWarning) as caught:
        sc.learn(few_rounds(300), oracle="change-point", n_states=40, objective="ips")
    notes = [str(w.message) for w in caught]
    assert "39 states have no rounds and will use the policy of the whole log. Use fewer states." in notes
    assert len(notes) == 2


def test_a_class_is_not_a_learner(make_log):
    with pytest.raises(ParameterError, match=r"a learner object: DRLearner\(\), not the class"):
        sc.learn(make_log("none"), oracle="none", objective=sc.DRLearner)


def changing(n=800):
    """Two actions whose rewards trade places every 100 rounds."""
    rng, late = np.random.default_rng(0), np.arange(n) // 100 % 2
    actions = rng.integers(2, size=n)
    return sc.BanditLog.from_arrays(actions, rng.normal(np.where(late, actions, 1 - actions), 0.3), np.full(n, 0.5))


def test_switching_that_pays_on_held_out_rounds_is_kept():
    model = sc.learn(changing(), objective="dm")
    assert model.n_states == model.trial.n_states == 2
    assert (model.trial.n_learned, model.trial.n_evaluated) == (480, 320)
    assert model.trial.gain[1] > 0
    assert sc.learn(changing(), n_states=2, objective="dm").trial is None, "a given number of states is not tried out"


def test_a_state_that_hardly_occurs_before_the_held_out_rounds_is_not_tried_out():
    rng, n = np.random.default_rng(3), 3_000
    late = (np.arange(n) > 2_000) | (np.abs(np.arange(n) - 1_000) < 20)  # 39 rounds before the cut at 1,800
    actions = rng.integers(2, size=n)
    log = sc.BanditLog.from_arrays(actions, rng.normal(np.where(late, actions, 1 - actions), 1.0), np.full(n, 0.5))
    with pytest.warns(sc.SeachangeWarning, match=r"2 states occur almost only in the last 1,200 rounds"):
        model = sc.learn(log, objective="dm")
    assert model.n_states == 2
    assert model.trial.expected_gain < 1e-4


def test_switching_that_does_not_pay_gives_way_to_the_single_policy(monkeypatch):
    trial = Trial(2, 480, 320, 0.95, (0.5, 0.4, 0.6), (0.6, 0.5, 0.7), (0.5, 0.4, 0.6), (-0.1, -0.2, 0.0), -0.1)
    monkeypatch.setattr(learning, "try_out", lambda log, model, seed: trial)
    told = r"switching among 2 states does not pay. .* 0\.5 per round .* 0\.6\. .* gain is -0\.1\. .*Pass n_states=2"
    with pytest.warns(sc.SeachangeWarning, match=told):
        model = sc.learn(changing(), objective="dm")
    assert (model.n_states, model.trial, model.world.n_states) == (1, trial, 1)
    assert model.single is model.policies[0]
    alone = sc.learn(changing(), oracle="none", objective="dm")
    np.testing.assert_array_equal(
        model.single.predict_proba(np.zeros((1, 0))), alone.single.predict_proba(np.zeros((1, 0)))
    )


def two_worlds(kind, seed=0, n=1200):
    """Two worlds in turn, 200 rounds each, with any kind of context, with sequences, or with masks."""
    rng = np.random.default_rng(seed)
    states, x = np.arange(n) // 200 % 2, rng.normal(size=(n, 3))
    given = {"propensities": np.full(n, 1 / 3), "times": np.arange(n), "n_actions": 3}
    mask = np.ones((n, 3), dtype=bool)
    if kind == "masked":
        mask[np.arange(n), rng.integers(3, size=n)] = False
        given |= {"action_mask": mask, "propensities": np.full(n, 0.5)}
    actions = np.array([rng.choice(np.flatnonzero(allowed)) for allowed in mask])
    if kind == "shared":
        given["contexts"] = x[:, :2]
    if kind == "per action":
        given["action_features"] = x[:, :, None]
    if kind == "sequences":
        given["sequences"] = np.arange(n) // 100 % 4
    effect = x[np.arange(n), actions] * (1 - 2 * states) if kind in ("shared", "per action") else 0.0
    rewards = np.array([[0.1, 0.5, 0.9], [0.9, 0.5, 0.1]])[states, actions] + effect + rng.normal(0, 0.2, n)
    return sc.BanditLog.from_arrays(actions, rewards, **given)


@pytest.mark.parametrize("kind", ["none", "shared", "per action", "masked", "sequences"])
def test_a_model_of_two_halves_is_the_model_of_the_whole_log(kind, tmp_path):
    whole = two_worlds(kind)
    early, late = whole.split(0.5)
    models = [sc.learn(log, n_states=2, objective="dm") for log in (whole, [early, late], (late, early))]
    for name, model in zip("abc", models, strict=True):
        replace(model, provenance=replace(model.provenance, parts=())).save(tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abc"}) == 1
    assert [part.fingerprint for part in models[1].provenance.parts] == [early.fingerprint(), late.fingerprint()]
    models[1].save(tmp_path / "d")
    assert sc.load(tmp_path / "d").provenance == models[1].provenance


def test_rounds_without_rewards_are_joined_like_others():
    whole = two_worlds("shared")
    rewards = np.where(np.arange(len(whole)) % 3 == 0, np.nan, whole.rewards)
    whole = whole.with_rewards(rewards)
    found, expected = (
        sc.HMMOracle(n_states=2).fit(log) for log in (sc.BanditLog.joined(whole.split(0.4)), whole)
    )  # fmt: skip
    np.testing.assert_array_equal(found.model_.reward_coefs, expected.model_.reward_coefs)


def test_states_keep_their_numbers_when_an_old_log_is_learned_from_again_with_a_new_one():
    old = sc.learn(two_worlds("none"), n_states=2, objective="dm")
    later = two_worlds("none", seed=1)
    rewards = np.where(np.arange(1200) >= 900, later.rewards + 2 * (later.actions == 1), later.rewards)
    later = replace(later.with_rewards(rewards)[200:], times=np.arange(1200, 2200))  # begins in state 1
    again = sc.learn([two_worlds("none"), later], n_states=3, objective="dm", align_to=old)
    np.testing.assert_array_equal(again.labels.states[:1200], old.labels.states)
    assert (again.labels.states[1900:] == 2).mean() > 0.9
    np.testing.assert_allclose(again.world.reward_coefs[:2], old.world.reward_coefs, atol=0.1)


def test_only_logs_are_joined():
    with pytest.raises(LogError, match=r"BanditLog\.joined needs a BanditLog; got a str"):
        sc.learn(["early.csv", "late.csv"])
    with pytest.raises(LogError, match="needs at least one log"):
        sc.learn([])
