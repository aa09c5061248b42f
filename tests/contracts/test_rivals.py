"""Every rival, driven through the protocol of deployers."""

import numpy as np
import pytest

from seachange.deploy.rivals import (
    CUSUMKLUCB,
    GLRKLUCB,
    KLUCB,
    DiscountedLinearThompson,
    DiscountedThompson,
    DiscountedUCB,
    DLinUCB,
    DynamicLinUCB,
    Exp3S,
    LinearThompson,
    LinUCB,
    MonitoredKLUCB,
    RestartedLinearThompson,
    Rival,
    RivalState,
    SlidingWindowKLUCB,
    SWLinUCB,
)
from seachange.deploy.rivals.arms import ArmRival
from seachange.deploy.rivals.linear import LinearRival
from seachange.errors import ModelFileError, ParameterError
from seachange.log.joint_features import JointFeatures
from seachange.protocols import Deployer

pytestmark = pytest.mark.small

N = 160
JOINTS = {
    "none": JointFeatures("none", 3, 0),
    "shared": JointFeatures("shared", 3, 2),
    "per action": JointFeatures("per action", 3, 2),
}
ARMS = [
    KLUCB(n_actions=3),
    KLUCB(n_actions=3, restarts=(40, 90)),
    DiscountedUCB(n_actions=3, discount=0.95),
    SlidingWindowKLUCB(n_actions=3, window=25),
    MonitoredKLUCB(n_actions=3, horizon=N, window=4),
    CUSUMKLUCB(n_actions=3, horizon=N, warmup=5),
    GLRKLUCB(n_actions=3, horizon=N),
    Exp3S(n_actions=3, horizon=N),
    DiscountedThompson(n_actions=3),
]
LINEAR = [
    make(joint=joint, **settings)
    for joint in JOINTS.values()
    for make, settings in (
        (LinUCB, {}), (LinearThompson, {}), (DLinUCB, {"discount": 0.95}), (SWLinUCB, {"window": 25}),
        (DiscountedLinearThompson, {"discount": 0.9}), (RestartedLinearThompson, {"horizon": N}),
        (DynamicLinUCB, {"memory": 20, "n_models": 3, "noise": 0.1}),
    )
]  # fmt: skip


def label(rival):
    return f"{type(rival).__name__}-{rival.joint.kind}"


every_rival = pytest.mark.parametrize("rival", ARMS + LINEAR, ids=label)


def contexts_of(rival, n, generator):
    return generator.normal(size={"none": (n, 0), "shared": (n, 2), "per action": (n, 3, 2)}[rival.joint.kind])


def rounds_of(rival, n=N, seed=0):
    """Rounds whose best action changes halfway, so that detectors find something."""
    generator = np.random.default_rng(seed)
    means = np.where(np.arange(n)[:, None] < n // 2, [0.1, 0.4, 0.9], [0.9, 0.4, 0.1])
    mask = generator.random((n, 3)) < 0.7
    mask[~mask.any(axis=1), 1] = True
    rewards = (generator.random((n, 3)) < means).astype(float)
    return contexts_of(rival, n, generator), means, rewards, generator.random(n), mask


def test_every_rival_is_in_this_contract():
    def leaves(base):
        return {base} if not base.__subclasses__() else set().union(*map(leaves, base.__subclasses__()), {base})

    assert leaves(Rival) - {Rival, ArmRival, LinearRival} == {type(rival) for rival in ARMS + LINEAR}


@every_rival
def test_a_run_is_acting_and_updating_to_the_bit(rival):
    contexts, means, rewards, uniforms, mask = rounds_of(rival)
    end, trace = rival.run(rival.init(), contexts, means, rewards, uniforms, mask)
    assert isinstance(rival, Deployer)
    state = rival.init()
    for t in range(N):
        before = state.memory.tobytes()
        context = None if rival.joint.kind == "none" else contexts[t]
        decision = rival.act(state, context, uniforms[t], mask[t])
        assert (decision.action, decision.propensity) == (trace.actions[t], trace.propensities[t])
        assert mask[t, decision.action]
        assert (decision.probs[~mask[t]] == 0).all()
        assert decision.probs.sum() == pytest.approx(1, abs=1e-9)
        assert trace.expected_rewards[t] == pytest.approx(decision.probs @ means[t], abs=1e-12)
        after = rival.update(state, decision, rewards[t, decision.action])
        assert state.memory.tobytes() == before
        state = RivalState.from_bytes(after.to_bytes())
    assert state.memory.tobytes() == end.memory.tobytes()
    assert state.rounds == end.rounds == N


@every_rival
def test_a_reward_that_is_amended_at_once_counts_like_one_on_time(rival):
    contexts, _, rewards, uniforms, _ = rounds_of(rival)
    late = on_time = rival.init()
    for t in range(12):
        context = None if rival.joint.kind == "none" else contexts[t]
        decision = rival.act(on_time, context, uniforms[t])
        on_time = rival.update(on_time, decision, rewards[t, decision.action])
        late = rival.amend(rival.update(late, decision, None), decision, rewards[t, decision.action])
    # Arms note the round of a restart, which is one later.
    views = [rival._views(state.memory)._asdict() for state in (late, on_time)]
    for name in views[0]:
        if name != "starts":
            np.testing.assert_allclose(views[0][name], views[1][name], atol=1e-12)
    with pytest.raises(ParameterError, match="has not passed"):
        rival.amend(on_time, rival.act(on_time, context, 0.5), 1.0)


@every_rival
def test_records_of_another_rival_are_refused(rival):
    other = KLUCB(n_actions=3, reward_range=(0, 2)).init()
    with pytest.raises(ParameterError, match="belongs to another deployer"):
        rival.act(other, None, 0.5)
    with pytest.raises(ModelFileError, match="not a"):
        RivalState.from_bytes(b"nonsense")


@pytest.mark.parametrize("rival", [r for r in LINEAR if isinstance(r, LinUCB | LinearThompson | DLinUCB)], ids=label)
def test_a_warm_start_is_ridge_regression_on_the_log(rival, make_log):
    log = make_log(rival.joint.kind, n=200)
    if rival.joint != log.joint:
        rival = type(rival)(joint=log.joint, **({"discount": 0.95} if isinstance(rival, DLinUCB) else {}))
    memory = rival._views(rival.start_from(log).init().memory)
    rows, actions, rewards = log.arrays.rows, log.actions, log.rewards
    n_blocks, size = log.joint.shape
    for b in range(n_blocks):
        own = np.flatnonzero(actions == b) if n_blocks > 1 else np.arange(len(log))
        features = np.array([
            rows[t if len(rows) > 1 else 0, actions[t] if rows.shape[1] > 1 else 0] for t in own
        ])  # fmt: skip
        expected = np.linalg.solve(features.T @ features + np.eye(size), features.T @ rewards[own])
        np.testing.assert_allclose(memory.coefs[b], expected, atol=1e-9)


@pytest.mark.parametrize("kind", JOINTS)
@pytest.mark.parametrize(("make", "settings"), [(LinUCB, {}), (SWLinUCB, {"window": 30}), (DLinUCB, {"discount": 0.9})])
def test_online_estimates_are_weighted_ridge_regression(kind, make, settings):
    rival = make(joint=JOINTS[kind], ridge=0.5, **settings)
    contexts, means, rewards, uniforms, mask = rounds_of(rival)
    end, trace = rival.run(rival.init(), contexts, means, rewards, uniforms, mask)
    memory, rows = rival._views(end.memory), rival.joint.rows(contexts)
    ages = N - 1 - np.arange(N)
    weights = settings.get("discount", 1.0) ** ages * (ages < settings.get("window", N))
    for b, coefs in enumerate(memory.coefs):
        own = np.flatnonzero(trace.actions == b) if len(memory.coefs) > 1 else np.arange(N)
        features = np.array([
            rows[t if len(rows) > 1 else 0, trace.actions[t] if rows.shape[1] > 1 else 0] for t in own
        ])  # fmt: skip
        gram = (features * weights[own, None]).T @ features + 0.5 * np.eye(features.shape[1])
        np.testing.assert_allclose(coefs, np.linalg.solve(gram, features.T @ (weights * trace.rewards)[own]), atol=1e-8)


@pytest.mark.parametrize("rival", [r for r in ARMS + LINEAR if r.joint.kind != "per action"], ids=label)
def test_rivals_earn_more_than_chance(rival):
    """Features per action are noise here, so they are left out."""
    contexts, means, rewards, uniforms, _ = rounds_of(rival)
    means, rewards = means[: N // 2], rewards[: N // 2]
    _, trace = rival.run(rival.init(), contexts[: N // 2], means, rewards, uniforms[: N // 2])
    slow = isinstance(rival, Exp3S | DiscountedUCB)
    assert trace.expected_rewards.mean() > means.mean() + (-0.05 if slow else 0.03)
