"""Tables: the exact optimum over all policies, its constraints, and unseen contexts."""

import io
import zipfile
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from model.worlds import load_failing, npy, write_zip
from properties import examples
from seachange.errors import LogError, ParameterError, SeachangeWarning
from seachange.policies.reward_models import cross_fitted
from seachange.policies.tabular import situations_of

C, K = 3, 3


def table_log(n=60, seed=0, *, negative=False, masked=False, kind="shared", varying=False):
    """Rounds of three contexts and three actions, with the whole logging distribution."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(C, size=n)
    probs = generator.dirichlet(np.ones(K), size=n if varying else C)
    probs = 0.05 / K + 0.95 * (probs if varying else probs[kinds])
    more = {}
    if masked:
        mask = generator.random((4, K)) < 0.7
        mask[np.arange(4), generator.integers(K, size=4)] = True
        more["action_mask"] = mask[generator.integers(4, size=n)]
        probs = np.where(more["action_mask"], probs, 0)
        probs /= probs.sum(axis=1, keepdims=True)
    actions = np.minimum((probs.cumsum(axis=1) < generator.random(n)[:, None]).sum(axis=1), K - 1)
    if masked:
        actions = np.where(probs[np.arange(n), actions] > 0, actions, probs.argmax(axis=1))
    rewards = np.round(generator.normal(size=n) if negative else generator.random(n), 3)
    if kind == "shared":
        more["contexts"] = np.array([[0.0, 1.5], [1.0, -2.0], [1.0, 0.0]])[kinds]
    if kind == "per action":
        more["action_features"] = generator.normal(size=(C, K, 2))[kinds]
    return sc.BanditLog.from_arrays(actions, rewards, logging_probs=probs, n_actions=K, **more)


def value_of(log, probs, clip=np.inf, weights=None, modeled=None):
    """V̂ per round of a table's policy, by definition; groups (context, action, p) with a loss are not clipped."""
    everyone, counts = np.arange(len(log)), np.ones(len(log)) if weights is None else weights
    model = np.zeros((len(log), K)) if modeled is None else np.broadcast_to(modeled, (len(log), K))
    ratios = probs[everyone, log.actions] / log.propensities
    residuals = log.rewards - model[everyone, log.actions]
    clipped = np.minimum(clip, ratios)
    places = situations_of(log).of_round
    for t in everyone:
        alike = (places == places[t]) & (log.actions == log.actions[t]) & (log.propensities == log.propensities[t])
        if (counts * residuals)[alike].sum() < 0:
            clipped[t] = ratios[t]
    return float((counts * ((probs * model).sum(axis=1) + clipped * residuals)).sum() / counts.sum())


def from_least(log, weights=None):
    """The log with its rewards relative to the smallest one that counts, and that one."""
    least = log.rewards[slice(None) if weights is None else weights > 0].min()
    return log.with_rewards(log.rewards - least), least


def filled(log, clip, caps, weights=None):
    """The optimum of clipped IPS by water-filling: in each situation, probability goes where it adds most.

    What π(a | x) adds is concave and piecewise linear: with the breaks M p its slope falls.
    """
    counts = np.ones(len(log)) if weights is None else weights
    situations, total = situations_of(log), 0.0
    for row in range(len(situations.masks)):
        pieces = []
        for a in range(K):
            here = (situations.of_round == row) & (log.actions == a)
            gains = (counts * log.rewards / log.propensities)[here]
            breaks = np.minimum(clip * log.propensities[here], 1)
            at = 0.0
            for end in sorted({*breaks[breaks < caps[row, a]], caps[row, a]}):
                pieces.append((gains[breaks > at].sum(), end - at))
                at = end
        left = 1.0
        for slope, length in sorted(pieces, reverse=True):
            step = min(length, left)
            total, left = total + slope * step, left - step
    return total / counts.sum()


def caps_of(log, max_ratio=None):
    situations = situations_of(log)
    caps = np.where(situations.masks, 1.0, 0.0)
    if max_ratio is not None:
        for row in range(len(caps)):
            least = log.logging_probs[situations.of_round == row].min(axis=0)
            caps[row] = np.minimum(caps[row], max_ratio * least)
    return caps


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("negative", [False, True])
def test_ips_without_clipping_is_the_best_of_all_deterministic_policies(seed, negative):
    log = table_log(40, seed, negative=negative)
    learner, (log, least) = sc.TabularLearner().fit(log), from_least(log)
    places = situations_of(log).of_round
    best = max(value_of(log, np.eye(K)[np.array(choice)][places]) for choice in product(range(K), repeat=C))
    found = learner.policy_.predict_proba(log.contexts)
    assert value_of(log, found) == pytest.approx(best, abs=1e-9)
    assert learner.optimum_ == pytest.approx(best + least, abs=1e-9)


@pytest.mark.parametrize("objective", ["dm", "dr"])
def test_dm_and_dr_are_the_best_of_all_deterministic_policies(objective):
    log = table_log(50, negative=True)
    learner = sc.TabularLearner(objective=objective, ridge=1.0).fit(log)
    n_folds = 5 if objective == "dr" else 1
    model = cross_fitted(log, np.ones(50), 1.0, n_folds=n_folds)
    seen = log if objective == "dr" else log.with_rewards(model[np.arange(50), log.actions])
    places = situations_of(log).of_round
    best = max(
        value_of(seen, np.eye(K)[np.array(choice)][places], modeled=model) for choice in product(range(K), repeat=C)
    )
    assert learner.optimum_ == pytest.approx(best, abs=1e-9)


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
@settings(max_examples=examples(40), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    clip=st.sampled_from([0.5, 1.0, 1.7, 3.0, 10.0]),
    max_ratio=st.sampled_from([None, 1.0, 1.5, 4.0]),
    masked=st.booleans(),
)
def test_clipped_ips_equals_water_filling(seed, clip, max_ratio, masked):
    log = table_log(30, seed, masked=masked)
    weights = np.random.default_rng(seed).integers(0, 3, size=30).astype(float)
    weights[0] = 1.0
    learner = sc.TabularLearner(clip=clip, max_ratio=max_ratio).fit(log, weights)
    log, least = from_least(log, weights)
    best = filled(log, clip, caps_of(log, max_ratio), weights)
    assert learner.optimum_ == pytest.approx(best + least, abs=1e-7)
    found = learner.policy_.predict_proba(log.contexts, log.action_mask)
    assert value_of(log, found, clip, weights) == pytest.approx(best, abs=1e-6)
    assert (found <= caps_of(log, max_ratio)[situations_of(log).of_round] + 1e-6).all()


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_clipping_with_losses_maximizes_a_lower_bound():
    """No random policy has a higher bound, and the bound is below the clipped value of every policy."""
    log = table_log(40, negative=True)
    learner, generator = sc.TabularLearner(objective="dr", clip=1.5, ridge=1.0).fit(log), np.random.default_rng(0)
    found = learner.policy_.predict_proba(log.contexts, log.action_mask)
    model, taken = cross_fitted(log, np.ones(40), 1.0), (np.arange(40), log.actions)
    assert learner.optimum_ == pytest.approx(value_of(log, found, 1.5, modeled=model), abs=1e-7)
    for _ in range(500):
        probs = generator.dirichlet(np.full(K, 0.3), size=C)[situations_of(log).of_round]
        bound = value_of(log, probs, 1.5, modeled=model)
        assert bound <= learner.optimum_ + 1e-9
        corrections = np.minimum(1.5, probs[taken] / log.propensities) @ (log.rewards - model[taken]) / 40
        assert bound <= (probs * model).sum() / 40 + corrections + 1e-12


def test_max_ratio_holds_and_costs_value():
    log = table_log(300)
    learner = sc.TabularLearner(max_ratio=1.5).fit(log)
    ratios = learner.policy_.predict_proba(log.contexts) / log.logging_probs
    assert ratios.max() == pytest.approx(1.5, abs=1e-6)
    free = sc.TabularLearner().fit(log).optimum_
    wider = sc.TabularLearner(max_ratio=1.5001).fit(log).optimum_
    assert learner.optimum_ < wider < free
    assert sc.TabularLearner(max_ratio=1.0).fit(log).optimum_ == pytest.approx(log.rewards.mean(), abs=0.2)
    np.testing.assert_allclose(
        sc.TabularLearner(max_ratio=1.0).fit(log).policy_.predict_proba(log.contexts), log.logging_probs, atol=1e-6
    )


def test_the_softmax_learner_reaches_the_optimum_from_below():
    """With an indicator for each context the softmax class has every table in its closure: l2 → 0 closes the gap."""
    kinds = np.random.default_rng(1).integers(C, size=400)
    base = table_log(400)
    log = sc.BanditLog.from_arrays(base.actions, base.rewards, np.full(400, 1 / 3), contexts=np.eye(C)[kinds])
    log, _ = from_least(log)
    best = sc.TabularLearner().fit(log).optimum_
    gaps = []
    for l2 in (1e-1, 1e-3, 1e-5, 1e-7, 1e-9):
        policy = sc.IPSLearner(l2=l2, steepness=1.0, clip=np.inf, baseline=0.0).fit(log).policy_
        gaps.append(best - value_of(log, policy.predict_proba(log.contexts)))
    assert all(gap > -1e-12 for gap in gaps)
    assert (np.diff(gaps) < 0).all()
    assert gaps[-1] < 1e-3 * best
    warm = []
    for tau in (0.3, 0.1, 0.03, 0.01):
        policy = sc.IPSLearner(l2=0.0, temperature=tau, clip=np.inf, baseline=0.0).fit(log).policy_
        warm.append(best - value_of(log, policy.predict_proba(log.contexts)))
    assert (np.diff(warm) < 0).all()
    assert 0 < warm[-1] < 0.01 * best


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_every_kind_of_context_has_a_table(kind):
    log = table_log(90, kind=kind)
    policy = sc.TabularLearner().fit(log).policy_
    assert len(policy.probs) == (1 if kind == "none" else C)
    probs = policy.predict_proba(log.contexts)
    np.testing.assert_array_equal(probs, policy.probs[situations_of(log).of_round])
    np.testing.assert_allclose(probs.sum(axis=1), 1)


@pytest.mark.filterwarnings("ignore:clip=2:seachange.errors.SeachangeWarning")
def test_a_whole_weight_is_a_repeated_round():
    log, times = table_log(60), np.random.default_rng(1).integers(0, 3, size=60)
    weighted = sc.TabularLearner(clip=2.0, max_ratio=2.0).fit(log, times)
    repeated = sc.TabularLearner(clip=2.0, max_ratio=2.0).fit(log.take(np.repeat(np.arange(60), times)))
    assert weighted.optimum_ == pytest.approx(repeated.optimum_, abs=1e-9)


def test_an_unseen_context_gets_the_best_context_free_policy():
    log = table_log(200)
    bare = sc.BanditLog.from_arrays(log.actions, log.rewards, log.propensities, n_actions=K)
    best = sc.TabularLearner().fit(bare).policy_.predict_proba(np.empty((1, 0)))
    found = sc.TabularLearner().fit(log).policy_.predict_proba([[9.0, 9.0], [0.0, 1.5]])
    np.testing.assert_allclose(found[:1], best)
    assert found[1].max() == 1


def test_a_context_without_rewards_gets_it_too():
    actions, kinds = np.array([0, 1, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1])
    rewards = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 0.0])
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(6, 0.5), contexts=kinds[:, None])
    policy = sc.TabularLearner().fit(log).policy_
    np.testing.assert_allclose(policy.predict_proba([[0.0], [1.0], [2.0]]), [[0, 1]] * 3, atol=1e-12)


def test_masks_of_the_log_and_of_predictions_are_respected():
    log = table_log(200, masked=True)
    policy = sc.TabularLearner().fit(log).policy_
    probs = policy.predict_proba(log.contexts, log.action_mask)
    assert (probs[~log.action_mask] == 0).all()
    np.testing.assert_allclose(probs.sum(axis=1), 1)
    for mask in product([False, True], repeat=K):
        if any(mask):
            needed = policy.predict_proba([[0.0, 1.5], [7.0, 7.0]], [mask, mask])
            assert (needed[:, ~np.array(mask)] == 0).all()
            np.testing.assert_allclose(needed.sum(axis=1), 1)


def test_a_smaller_action_set_uses_the_widest_row_and_is_uniform_if_that_has_no_probability():
    log = sc.BanditLog.from_arrays([0, 1, 2], [0.1, 0.9, 0.5], np.full(3, 1 / 3), contexts=[[1.0]] * 3)
    policy = sc.TabularLearner().fit(log).policy_
    assert policy.predict_proba([[1.0]]).tolist() == [[0, 1, 0]]
    assert policy.predict_proba([[1.0]], [[True, True, False]]).tolist() == [[0, 1, 0]]
    assert policy.predict_proba([[1.0]], [[True, False, True]]).tolist() == [[0.5, 0, 0.5]]


def test_negative_zero_equals_zero_and_float32_contexts_are_matched():
    log = sc.BanditLog.from_arrays([0, 1], [0.0, 1.0], [0.5, 0.5], contexts=[[0.0], [-0.0]])
    assert len(sc.TabularLearner().fit(log).policy_.probs) == 1
    narrow = np.array([[0.1], [0.7]], dtype=np.float32)
    log = sc.BanditLog.from_arrays([0, 1, 1, 0], [1.0, 0.0, 1.0, 0.0], np.full(4, 0.5), contexts=narrow[[0, 0, 1, 1]])
    np.testing.assert_allclose(
        sc.TabularLearner().fit(log).policy_.predict_proba([[0.1], [0.7]]), np.eye(2), atol=1e-12
    )


def test_max_ratio_holds_in_all_rounds_of_a_context_or_is_rejected():
    log = table_log(20, varying=True)
    with pytest.raises(ParameterError, match=r"max_ratio=1.1 allows no policy.*Use at least") as caught:
        sc.TabularLearner(max_ratio=1.1).fit(log)
    needed = float(str(caught.value).split("Use at least ")[1].split(",")[0])
    learner = sc.TabularLearner(max_ratio=1.01 * needed).fit(log)
    ratios = learner.policy_.predict_proba(log.contexts) / log.logging_probs
    assert ratios.max() < 1.01 * needed * (1 + 1e-6)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"clip": 0.0}, "clip must be positive"),
        ({"max_ratio": 0.5}, "max_ratio must be None or at least 1"),
        ({"objective": "luck"}, "objective must be one of"),
    ],
)
def test_invalid_settings_are_rejected(settings_, message):
    with pytest.raises(ParameterError, match=message):
        sc.TabularLearner(**settings_).fit(table_log(20))


def test_missing_columns_are_named_with_the_fix():
    log = table_log(20)
    bare = sc.BanditLog.from_arrays(log.actions, log.rewards, contexts=log.contexts, n_actions=K)
    with pytest.raises(LogError, match="estimate_propensities"):
        sc.TabularLearner().fit(bare)
    assert sc.TabularLearner(objective="dm").fit(bare).policy_.probs.shape == (C, K)
    assert sc.learn(bare, oracle="none", objective=sc.TabularLearner(objective="dm")).n_states == 1
    known = bare.with_propensities(log.propensities)
    with pytest.raises(ParameterError, match="estimate_logging_probs"):
        sc.TabularLearner(max_ratio=2.0).fit(known)


def test_continuous_contexts_raise_a_warning_and_then_an_error(monkeypatch):
    generator = np.random.default_rng(0)
    log = sc.BanditLog.from_arrays(
        generator.integers(2, size=300), generator.random(300), np.full(300, 0.5), contexts=generator.random((300, 1))
    )
    with pytest.warns(SeachangeWarning, match="will overfit"):
        sc.TabularLearner().fit(log)
    monkeypatch.setattr("seachange.policies.tabular.MAX_CELLS", 500)
    with pytest.raises(ParameterError, match="300 in 300 rounds"):
        sc.TabularLearner().fit(log)


@pytest.mark.parametrize("kind", ["none", "shared", "per action"])
def test_a_model_of_tables_is_saved_and_decides_to_the_bit(tmp_path, kind):
    log = table_log(400, kind=kind, masked=True)
    states = sc.KnownStates(np.repeat([0, 1], 200))
    model = sc.learn(log, oracle=states, objective=sc.TabularLearner(objective="dr", clip=20.0, max_ratio=4.0))
    model.save(tmp_path / "m.seachange")
    again = sc.load(tmp_path / "m.seachange")
    assert again.learner.get_params() == model.learner.get_params()
    np.testing.assert_array_equal(
        again.policies.advice(log.contexts, log.action_mask), model.policies.advice(log.contexts, log.action_mask)
    )
    one, other = (each.deployer() for each in (model, again))
    left, right = (
        each.act(each.init(), None if kind == "none" else log.contexts[0], 0.3, log.action_mask[0])
        for each in (one, other)
    )
    np.testing.assert_array_equal(left.probs, right.probs)
    assert left.action == right.action


@pytest.mark.parametrize(
    ("name", "spoilt", "message"),
    [
        ("policy1.probs", lambda a: a / 2, "sum to 1"),
        ("policy0.fallback", lambda a: a[:2], "shape"),
        ("policy0.contexts", lambda a: a[:-1], "shape"),
        ("policy1.masks", lambda a: a.astype(str), "plain array of numbers"),
    ],
)
def test_a_corrupt_table_is_rejected(tmp_path, name, spoilt, message):
    log = table_log(100)
    model = sc.learn(log, oracle=sc.KnownStates(np.repeat([0, 1], 50)), objective=sc.TabularLearner())
    model.save(tmp_path / "good.seachange")
    with zipfile.ZipFile(tmp_path / "good.seachange") as archive:
        content = {each: archive.read(each) for each in archive.namelist()}
    array = np.lib.format.read_array(io.BytesIO(content[f"{name}.npy"]), allow_pickle=False)
    bad = write_zip(tmp_path / "bad.seachange", content | {f"{name}.npy": npy(spoilt(array))})
    assert message in load_failing(bad)
