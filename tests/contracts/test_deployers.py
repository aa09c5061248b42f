"""Every deployer, driven through the protocol."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.deploy import Decision, DeploymentState
from seachange.deploy.pending_rewards import PendingRewards
from seachange.errors import ModelFileError, ParameterError, SeachangeError
from seachange.protocols import Deployer
from seachange.registry import DEPLOYERS

KINDS = ("none", "shared", "per action")
NAMES = ("adaptive", "exp4s", "exp4s as printed", "posterior", "single")


@pytest.fixture(scope="module")
def deployers(request):
    """{(name, kind of context): deployer}, all learned from the same small logs."""
    from itertools import product

    made = {}
    for kind in KINDS:
        log = _log(kind, 400)
        model = sc.learn(log, oracle=sc.HMMOracle(n_states=2, rewards="gaussian"), objective="ips")
        made["adaptive", kind] = sc.AdaptiveSampling(model.policies, model.world, model.evidence, opening=0.05)
        made["exp4s", kind] = sc.Exp4S(model.policies, exploration=0.05)
        made["exp4s as printed", kind] = sc.Exp4S(model.policies, mixing="paper")
        made["posterior", kind] = sc.PosteriorSampling(model.policies, hmm=model.oracle.model_)
        made["single", kind] = sc.SinglePolicy(model.policies[0])
    assert set(made) == set(product(NAMES, KINDS))
    return made


def _log(kind, n=1200):
    generator = np.random.default_rng(0)
    states = (6 * np.arange(n) // n) % 2
    actions = generator.integers(3, size=n)
    rewards = (generator.random(n) < np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions]).astype(float)
    columns = {
        "none": {},
        "shared": {"contexts": generator.normal(size=(n, 2))},
        "per action": {
            "action_features": np.concatenate([np.tile(np.eye(3), (n, 1, 1)), generator.normal(size=(n, 3, 1))], 2)
        },
    }[kind]
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **columns)


def contexts_of(kind, n, seed):
    generator = np.random.default_rng(seed)
    shape = {"none": (n, 0), "shared": (n, 2), "per action": (n, 3, 4)}[kind]
    return generator.normal(size=shape)


def context_at(contexts, t):
    return None if contexts.shape[1:] == (0,) else contexts[t]


def same(one, two):
    """To the bit, also in what late rewards will need."""
    return one.to_bytes() == two.to_bytes()


def n_pending(state):
    return 0 if state.pending is None else len(state.pending.waiting)


every_deployer = pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in NAMES for kind in KINDS])


@every_deployer
def test_it_keeps_the_protocol_and_never_changes_a_state(deployers, name, kind):
    deployer, contexts = deployers[name, kind], contexts_of(kind, 20, 1)
    assert isinstance(deployer, Deployer)
    state = deployer.init()
    for t in range(20):
        before = DeploymentState.from_bytes(state.to_bytes())
        decision = deployer.act(state, context_at(contexts, t), 0.05 * t)
        assert 0 <= decision.action < 3
        assert decision.propensity == decision.probs[decision.action] > 0
        assert decision.probs.sum() == pytest.approx(1, abs=1e-12)
        after = deployer.update(state, decision, 1.0)
        waiting = deployer.update(state, decision, None)
        deployer.amend(waiting, decision, 0.0)
        assert same(state, before)
        assert deployer.state_probs(after).sum() == pytest.approx(1, abs=1e-9)
        state = after


@every_deployer
@settings(max_examples=examples(25), deadline=None)
@given(
    exploration=st.floats(0, 1),
    mask=st.lists(st.booleans(), min_size=3, max_size=3).filter(any),
    rewards=st.lists(st.floats(0, 1), max_size=5),
    seed=st.integers(0, 99),
)
def test_exploration_is_a_floor_and_the_propensity_is_what_was_drawn_with(
    deployers, name, kind, exploration, mask, rewards, seed
):
    deployer, context = (
        replace(deployers[name, kind], exploration=exploration),
        context_at(contexts_of(kind, 1, seed), 0),
    )
    state = deployer.init()
    for reward in rewards:
        state = deployer.update(state, deployer.act(state, context, 0.5), reward)
    drawn = [deployer.act(state, context, (u + 0.5) / 100, mask) for u in range(100)]
    probs, allowed = drawn[0].probs, np.array(mask)
    assert probs.sum() == pytest.approx(1, abs=1e-12)
    assert (probs[~allowed] == 0).all()
    assert probs[allowed].min() >= exploration / allowed.sum() - 1e-12
    assert all(decision.propensity == probs[decision.action] for decision in drawn)
    shares = np.bincount([decision.action for decision in drawn], minlength=3) / 100
    np.testing.assert_allclose(shares, probs, rtol=0, atol=0.0101)  # of a hundred numbers, one more or less


@pytest.mark.parametrize(("oracle", "n_states"), [("hmm", 2), ("none", 1)])
def test_a_model_deploys_with_the_exploration_that_is_asked_for(oracle, n_states):
    model = sc.learn(_log("none"), oracle=oracle, n_states=n_states, objective="ips")
    for kind in ("auto", "exp4s") if oracle == "hmm" else ("auto",):
        assert model.deployer(kind).exploration == 0
        deployer = model.deployer(kind, exploration=0.3)
        assert deployer.act(deployer.init(), None, 0.5).probs.min() >= 0.1 - 1e-12
        with pytest.raises(ParameterError, match="exploration must be"):
            model.deployer(kind, exploration=1.5)


@pytest.mark.small
@every_deployer
def test_a_rollout_is_acting_and_updating_to_the_bit(deployers, name, kind):
    deployer, n = deployers[name, kind], 400
    contexts, generator = contexts_of(kind, n, 2), np.random.default_rng(3)
    means = generator.random((n, 3))
    rewards, uniforms = means + generator.normal(0, 0.3, (n, 3)), generator.random(n)
    mask = generator.random((n, 3)) < 0.7
    mask[~mask.any(axis=1), 0] = True
    end, trace = deployer.run(deployer.init(), contexts, means, rewards, uniforms, mask)
    state = deployer.init()
    for t in range(n):
        assert deployer.state_probs(state).tobytes() == trace.state_probs[t].tobytes()
        decision = deployer.act(state, context_at(contexts, t), uniforms[t], mask[t])
        assert (decision.action, decision.propensity) == (trace.actions[t], trace.propensities[t])
        assert mask[t, decision.action]
        assert trace.expected_rewards[t] == pytest.approx(decision.probs @ means[t], abs=1e-12)
        assert trace.rewards[t] == rewards[t, decision.action]
        state = deployer.update(state, decision, rewards[t, decision.action])
    assert same(end, state)


@pytest.mark.small
@every_deployer
@pytest.mark.parametrize("fast", [True, False])
def test_a_run_with_missing_rewards_is_updating_without_them_to_the_bit(deployers, name, kind, fast, monkeypatch):
    deployer, n = deployers[name, kind], 200
    contexts, generator = contexts_of(kind, n, 2), np.random.default_rng(3)
    rewards, uniforms = generator.random((n, 3)), generator.random(n)
    rewards[generator.random((n, 3)) < 0.4] = np.nan
    if not fast:
        monkeypatch.setattr(type(deployer), "kernels", None)
    end, trace = deployer.run(deployer.init(), contexts, np.ones((n, 3)), rewards, uniforms)
    forgetful = replace(deployer, memory=0)  # late rewards are not awaited
    state = deployer.init()
    for t in range(n):
        decision = forgetful.act(state, context_at(contexts, t), uniforms[t])
        reward = rewards[t, decision.action]
        assert trace.actions[t] == decision.action
        np.testing.assert_array_equal(trace.rewards[t], reward)
        state = forgetful.update(state, decision, None if np.isnan(reward) else reward)
    assert 50 < np.isnan(trace.rewards).sum() < 110
    assert same(end, state)


@every_deployer
def test_a_late_reward_counts_at_its_own_round(deployers, name, kind):
    """Whatever the order in which rewards come, the belief is the one they would have made on time, up to rounding."""
    deployer, n = deployers[name, kind], 30
    contexts, generator = contexts_of(kind, n, 4), np.random.default_rng(5)
    rewards, uniforms = generator.random(n), generator.random(n)
    late = generator.random(n) < 0.5
    state, decisions = deployer.init(), []
    for t in range(n):
        decisions.append(deployer.act(state, context_at(contexts, t), uniforms[t]))
        state = deployer.update(state, decisions[t], None if late[t] else rewards[t])
    for t in generator.permutation(np.flatnonzero(late)):
        state = deployer.amend(state, decisions[t], rewards[t])
    on_time = deployer.init()
    for t in range(n):
        on_time = deployer.update(on_time, decisions[t], rewards[t])
    np.testing.assert_allclose(state.belief, on_time.belief, rtol=0, atol=1e-12)
    assert state.rounds == on_time.rounds
    assert state.pending is None


@every_deployer
def test_a_snapshot_goes_on_to_the_bit(deployers, name, kind, tmp_path):
    """Saved in the middle of a run, with rewards still to come."""
    deployer, contexts = deployers[name, kind], contexts_of(kind, 60, 6)
    uniforms = np.random.default_rng(7).random(60)

    def run(chosen, state, rounds):
        decisions = []
        for t in rounds:
            decisions.append(chosen.act(state, context_at(contexts, t), uniforms[t]))
            state = chosen.update(state, decisions[-1], None if t % 5 == 3 else float(t % 2))
        return state, decisions

    middle, early = run(deployer, deployer.init(), range(30))
    (tmp_path / "state").write_bytes(middle.to_bytes())
    restored = DeploymentState.from_bytes((tmp_path / "state").read_bytes())
    assert same(restored, middle)
    one, ones = run(deployer, middle, range(30, 60))
    two, twos = run(deployer, restored, range(30, 60))
    assert same(deployer.amend(one, early[28], 1.0), deployer.amend(two, early[28], 1.0))
    assert [(d.action, d.propensity) for d in ones] == [(d.action, d.propensity) for d in twos]


def test_a_deployer_of_a_loaded_model_goes_on_to_the_bit(tmp_path):
    for oracle in ("hmm", "change-point", "none"):
        chosen = (
            sc.ChangePointOracle(statistic="reward", window=100, threshold=0.05) if oracle == "change-point" else oracle
        )
        model = sc.learn(_log("shared"), oracle=chosen, n_states=2, objective="dr")
        model.save(tmp_path / oracle)
        one, two = model.deployer(), sc.load(tmp_path / oracle).deployer()
        assert type(one) is type(two)
        a = one.init()
        for u in np.random.default_rng(0).random(40):
            a = one.update(a, one.act(a, [u, 1 - u], u), u)
        b = DeploymentState.from_bytes(a.to_bytes())
        for u in np.random.default_rng(1).random(40):
            first, second = one.act(a, [u, 1 - u], u), two.act(b, [u, 1 - u], u)
            assert (first.action, first.propensity) == (second.action, second.propensity)
            a, b = one.update(a, first, u), two.update(b, second, u)
        assert same(a, b)


def test_late_rewards_may_come_after_a_restart(deployers):
    deployer = deployers["posterior", "shared"]
    state = deployer.init()
    decision = deployer.act(state, [0.5, -0.5], 0.5)
    waiting = deployer.update(state, decision, None)
    later, kept = DeploymentState.from_bytes(waiting.to_bytes()), Decision.from_bytes(decision.to_bytes())
    assert (kept.action, kept.propensity, kept.round) == (decision.action, decision.propensity, 0)
    assert same(deployer.amend(later, kept, 1.0), deployer.amend(waiting, decision, 1.0))
    on_time = deployer.update(state, decision, 1.0)
    np.testing.assert_allclose(deployer.amend(later, kept, 1.0).belief, on_time.belief, rtol=0, atol=1e-12)


@pytest.mark.parametrize("memory", [0, 1, 4])
def test_no_more_than_memory_is_kept_and_nothing_once_rewards_come(deployers, memory):
    deployer = sc.Exp4S(deployers["exp4s", "none"].policies, memory=memory)
    state = deployer.init()
    for t in range(20):
        state = deployer.update(state, deployer.act(state, None, 0.5), None if t < 10 else 1.0)
        assert n_pending(state) <= memory
    assert state.pending is None


def test_one_reward_that_never_comes_is_forgotten(deployers):
    deployer = sc.Exp4S(deployers["exp4s", "none"].policies, memory=5)
    state = deployer.update(deployer.init(), deployer.act(deployer.init(), None, 0.5), None)
    for t in range(5):
        assert n_pending(state) == t + 1
        state = deployer.update(state, deployer.act(state, None, 0.5), 1.0)
    assert state.pending is None


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in NAMES[1:] for kind in KINDS])
def test_a_deployment_starts_where_a_log_ends(deployers, name, kind):
    """As if it had made the decisions of the log itself."""
    deployer, generator = deployers[name, kind], np.random.default_rng(11)
    log = _log(kind, 90)
    rewards = np.where(generator.random(90) < 0.2, np.nan, generator.random(90))
    mask = generator.random((90, 3)) < 0.7
    mask[np.arange(90), log.actions] = True
    log = sc.BanditLog.from_arrays(
        log.actions, rewards, generator.uniform(0.2, 1, 90), action_mask=mask, missing_rewards=True, n_actions=3,
        **({"none": {}, "shared": {"contexts": log.contexts}, "per action": {"action_features": log.contexts}}[kind]),
    )  # fmt: skip
    state = deployer.init()
    for t in range(90):
        decision = deployer.act(state, context_at(log.contexts, t), 0.5, mask[t])
        advice = deployer.policies.advice(log.contexts[t : t + 1], mask[t : t + 1])[0]
        by_state = deployer._by_state(log.contexts[t : t + 1], advice, log.actions[t])
        taken = replace(decision, action=int(log.actions[t]), propensity=float(log.propensities[t]), by_state=by_state)
        state = deployer.update(state, taken, None if np.isnan(rewards[t]) else rewards[t])
        if t % 30 == 29:
            started = deployer.start_from(log[: t + 1])
            # Rewards that are still missing in the log never come.
            np.testing.assert_allclose(started.belief, state.belief, rtol=0, atol=1e-12)
            assert (started.rounds, started.pending) == (0, None)
    first = deployer.act(started, context_at(log.contexts, 0), 0.5)
    assert deployer.update(started, first, 1.0).rounds == 1
    assert same(DeploymentState.from_bytes(started.to_bytes()), started)


def test_a_log_of_sequences_or_of_other_actions_has_no_state_at_its_end(deployers):
    log = _log("none", 60)
    users = sc.BanditLog.from_arrays(log.actions, log.rewards, log.propensities, sequences=np.arange(60) // 2)
    more = sc.BanditLog.from_arrays(log.actions, log.rewards, log.propensities, n_actions=4)
    for name in NAMES:
        with pytest.raises(ParameterError, match="every sequence of a log starts anew"):
            deployers[name, "none"].start_from(users)
    for name in ("exp4s", "posterior"):
        with pytest.raises(ParameterError, match="this log"):
            deployers[name, "none"].start_from(more)


@every_deployer
@pytest.mark.parametrize("short", ["contexts", "mean_rewards", "rewards", "uniforms", "action_mask", "actions"])
def test_a_run_whose_arrays_differ_in_length_is_refused(deployers, name, kind, short):
    """Kernels do not check; longer uniforms crashed the process."""
    deployer, n = deployers[name, kind], 6
    arrays = {"contexts": contexts_of(kind, n, 8), "uniforms": np.linspace(0, 0.9, n)}
    arrays |= {"mean_rewards": np.ones((n, 3)), "rewards": np.ones((n, 3)), "action_mask": np.ones((n, 3), dtype=bool)}
    deployer.run(deployer.init(), **arrays)
    changed = {name: arrays[name][:, :2] for name in ("mean_rewards", "rewards", "action_mask")}
    changed = changed if short == "actions" else {short: arrays[short][: n - 1]}
    with pytest.raises(SeachangeError):
        deployer.run(deployer.init(), **(arrays | changed))


@pytest.mark.parametrize("uniform", [-0.1, 1.0, np.nan])
def test_a_run_with_a_uniform_beyond_its_range_is_refused(deployers, uniform):
    deployer, ones = deployers["exp4s", "none"], np.ones((2, 3))
    with pytest.raises(ParameterError, match="uniforms must be in"):
        deployer.run(deployer.init(), np.empty((2, 0)), ones, ones, np.array([0.5, uniform]))


def test_a_run_with_infinite_rewards_is_refused(deployers):
    deployer, ones = deployers["adaptive", "none"], np.ones((2, 3))
    with pytest.raises(ParameterError, match="rewards must be finite"):
        deployer.run(deployer.init(), np.empty((2, 0)), ones, np.inf * ones, np.zeros(2))


@pytest.mark.parametrize("uniform", ["a", None, 1j, np.array([0.1, 0.2]), -0.1, 1.0, np.nan])
def test_a_uniform_that_is_not_a_number_is_refused(deployers, uniform):
    deployer = deployers["exp4s", "none"]
    with pytest.raises(ParameterError, match="uniform"):
        deployer.act(deployer.init(), None, uniform)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", -5), ("belief", [0.5, 0.5]), ("belief", np.array(["a", "b"], dtype=object)), ("pending", []),
        ("pending", PendingRewards.of_rounds(np.full(2, 0.5), 0, np.ones((1, 2)), np.ones(1, dtype=bool))),
        ("pending", PendingRewards.of_rounds(np.ones(1), -1, np.ones((1, 1)), np.ones(1, dtype=bool))),
    ],
)  # fmt: skip
def test_a_state_made_by_hand_is_refused_if_kernels_cannot_take_it(deployers, field, value):
    deployer = deployers["exp4s", "none"]
    with pytest.raises(ParameterError, match="damaged"):
        deployer.act(replace(deployer.init(), **{field: value}), None, 0.5)


@pytest.mark.parametrize(
    ("field", "value"),
    [("propensity", "a"), ("propensity", None), ("by_state", np.ones((2, 1))), ("by_state", None), ("round", 0.5)],
)
def test_a_decision_made_by_hand_is_refused_if_kernels_cannot_take_it(deployers, field, value):
    deployer = deployers["exp4s", "none"]
    decision = replace(deployer.act(deployer.init(), None, 0.5), **{field: value})
    with pytest.raises(ParameterError, match="damaged"):
        deployer.update(deployer.init(), decision, 1.0)


def test_a_reward_beyond_doubles_is_refused(deployers):
    deployer = deployers["exp4s", "none"]
    with pytest.raises(ParameterError, match="finite"):
        deployer.update(deployer.init(), deployer.act(deployer.init(), None, 0.5), 10**400)


@every_deployer
def test_rewards_beyond_all_measure_leave_probabilities(deployers, name, kind):
    """In a rollout and step by step alike."""
    deployer, n = deployers[name, kind], 6
    contexts, uniforms = contexts_of(kind, n, 8), np.linspace(0, 0.9, n)
    rewards = np.repeat([[1e200], [-1e200], [1e307], [0.5], [-1e307], [1.0]], 3, axis=1)
    end, trace = deployer.run(deployer.init(), contexts, rewards, rewards, uniforms)
    state = deployer.init()
    for t in range(n):
        decision = deployer.act(state, context_at(contexts, t), uniforms[t])
        state = deployer.update(state, decision, rewards[t, decision.action])
    assert same(end, state)
    assert np.isfinite(trace.state_probs).all()
    assert end.belief.sum() == pytest.approx(1)


def test_a_state_of_another_deployment_is_refused(deployers):
    one, two = deployers["single", "none"], deployers["exp4s", "none"]
    with pytest.raises(ParameterError, match="the state belongs to another deployer"):
        two.act(one.init(), None, 0.5)
    decision = two.act(two.init(), None, 0.5)
    with pytest.raises(ParameterError, match="the state belongs to another deployer"):
        two.update(one.init(), decision, 1.0)


@pytest.mark.parametrize("context", [[np.nan, 1.0], [np.inf, 1.0], ["a", 1.0], {"x": 1}, [1.0], None])
def test_a_context_that_is_none_is_refused(deployers, context):
    deployer = deployers["posterior", "shared"]
    with pytest.raises(SeachangeError):
        deployer.act(deployer.init(), context, 0.5)


def test_masks_bind_policies_that_know_none():
    class Stubborn:
        def predict_proba(self, contexts, action_mask=None):
            return np.tile([1.0, 0.0, 0.0], (len(contexts), 1))

    deployer = sc.SinglePolicy(Stubborn())
    probs = deployer.act(deployer.init(), None, 0.5, [False, True, True]).probs
    np.testing.assert_allclose(probs, [0, 0.5, 0.5])
    with pytest.raises(ParameterError, match="must allow an action"):
        deployer.act(deployer.init(), None, 0.5, [False, False, False])


def test_a_round_beyond_memory_is_refused_and_the_rest_still_counts(deployers):
    made = deployers["exp4s", "none"]
    deployer = sc.Exp4S(made.policies, memory=3)
    state, decisions = deployer.init(), []
    for _ in range(6):
        decisions.append(deployer.act(state, None, 0.5))
        state = deployer.update(state, decisions[-1], None)
    assert n_pending(state) == 3
    with pytest.raises(ParameterError, match="memory=3"):
        deployer.amend(state, decisions[2], 1.0)
    assert not same(deployer.amend(state, decisions[3], 1.0), state)


def test_rewards_come_once_and_in_their_own_round(deployers):
    deployer = deployers["posterior", "none"]
    state = deployer.init()
    decision = deployer.act(state, None, 0.5)
    with pytest.raises(ParameterError, match="has not passed yet"):
        deployer.amend(state, decision, 1.0)
    later = deployer.update(state, decision, 1.0)
    with pytest.raises(ParameterError, match="already has a reward"):
        deployer.amend(later, decision, 1.0)
    with pytest.raises(ParameterError, match="the decision is of round 0, but the deployment is at round 1"):
        deployer.update(later, decision, 1.0)
    with pytest.raises(ParameterError, match="finite"):
        deployer.update(state, decision, float("nan"))
    with pytest.raises(ParameterError, match="uniform must be"):
        deployer.act(state, None, 1.0)


@pytest.mark.parametrize("record", [DeploymentState, Decision])
@pytest.mark.parametrize(
    "snapshot", [b"nonsense", b"", b"\x80", b"\x91" * 10**5, b"\x81\xa1a" * 10**5, "text", None, 3]
)
def test_a_snapshot_that_is_none_is_refused(record, snapshot):
    with pytest.raises(ModelFileError, match="not a snapshot"):
        record.from_bytes(snapshot)


def with_field(record, name, value):
    """The snapshot of a record, with another value in it."""
    if isinstance(value, np.ndarray):
        value = {"dtype": value.dtype.str, "shape": value.shape, "data": value.tobytes()}
    return msgspec.msgpack.encode(msgspec.msgpack.decode(record.to_bytes()) | {name: value})


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("belief", np.array([-5.0, 9.0]), "sum to 1"),  # which gave a propensity of 2.25
        ("belief", np.array([0.5, 0.6]), "sum to 1"),
        ("belief", np.array([np.nan, 1.0]), "sum to 1"),
        ("belief", np.array([np.inf, 0.0]), "sum to 1"),
        ("belief", np.array([1.0]), "the same length"),
        ("belief", np.array([[0.5, 0.5]]), "vector"),
        ("belief", np.array([]), "vector"),
        ("belief", np.array([True, False]), "vector"),
        ("belief", 0.5, "vector"),
        ("anchor", np.array([2.0, -1.0]), "sum to 1"),
        ("anchor", np.array([1.0]), "the same length"),
        ("rounds", -1, "rounds"),
        ("rounds", 2.5, "rounds"),
        ("rounds", 2**62, "rounds"),
        ("rounds", 1, "kept than have passed"),
        ("evidences", np.ones((3, 1)), "the same length"),
        ("evidences", np.ones(6), "the same length"),
        ("evidences", np.ones((2, 2)), "the same length"),
        ("evidences", np.zeros((3, 2)), "evidence"),
        ("evidences", -np.ones((3, 2)), "evidence"),
        ("evidences", np.full((3, 2), np.nan), "evidence"),
        ("waiting", np.ones(3), "flags"),
        ("waiting", np.ones((3, 1), dtype=bool), "the same length"),
        ("deployer", 7, "deployer"),
    ],
)
def test_a_state_that_no_deployment_can_have_is_refused(name, value, rule):
    half = np.array([0.5, 0.5])
    pending = PendingRewards.of_rounds(half, 4, np.ones((3, 2)), np.array([True, False, True]))
    sound = DeploymentState(half, 7, pending, "5f2a")
    assert same(DeploymentState.from_bytes(sound.to_bytes()), sound)
    with pytest.raises(ModelFileError, match=rule):
        DeploymentState.from_bytes(with_field(sound, name, value))


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("action", 3, "action"), ("action", -1, "action"), ("action", 0.0, "action"),
        ("propensity", 0.0, "propensity"), ("propensity", 2.25, "propensity"), ("propensity", np.nan, "propensity"),
        ("probs", np.array([-0.5, 1.0, 0.5]), "sum to 1"), ("probs", np.array([0.25, 0.5, 0.5]), "sum to 1"),
        ("probs", np.ones((3, 1)) / 3, "vector"), ("round", -1, "round"), ("round", 1e3, "round"),
        ("by_state", np.array([np.inf, 0.0]), "finite"), ("by_state", np.array([True]), "vector"),
        ("by_state", 1.0, "vector"), ("deployer", 0.5, "deployer"),
    ],
)  # fmt: skip
def test_a_decision_that_no_deployer_makes_is_refused(name, value, rule):
    sound = Decision(1, 0.5, np.array([0.25, 0.5, 0.25]), 7, np.array([0.1, 0.9]), "5f2a")
    assert Decision.from_bytes(sound.to_bytes()).propensity == 0.5
    with pytest.raises(ModelFileError, match=rule):
        Decision.from_bytes(with_field(sound, name, value))


@every_deployer
def test_records_that_do_not_fit_the_deployer_are_refused(deployers, name, kind):
    deployer, context = deployers[name, kind], context_at(contexts_of(kind, 1, 9), 0)
    state = deployer.init()
    decision = deployer.act(state, context, 0.5)
    n_states = len(state.belief)
    for broken in (replace(decision, by_state=np.ones(n_states + 1)), replace(decision, propensity=2.25)):
        with pytest.raises(ParameterError, match="the decision is damaged"):
            deployer.update(state, broken, 1.0)
    with pytest.raises(ParameterError, match="what act"):
        deployer.update(state, None, 1.0)
    one, more = (np.full(count, 1 / count) for count in (n_states, n_states + 1))
    waits = np.ones(1, dtype=bool)
    for broken in (
        replace(state, belief=np.full(n_states, 7.0)), replace(state, belief=more),
        replace(state, pending=PendingRewards.of_rounds(one, 0, one[None], waits)),  # the round has not passed
        replace(state, rounds=1, pending=PendingRewards.of_rounds(more, 0, more[None], waits)),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match="damaged"):
            deployer.act(broken, context, 0.5)
        with pytest.raises(ParameterError, match="damaged"):
            deployer.update(broken, decision, 1.0)


@every_deployer
def test_a_snapshot_of_another_model_is_refused(deployers, name, kind):
    deployer, context = deployers[name, kind], context_at(contexts_of(kind, 1, 9), 0)
    policies = [replace(policy, coefs=policy.coefs + 1) for policy in deployer.policies]
    others = {"posterior": {"policies": policies}, "single": {"policy": policies[0]}}
    other = replace(deployer, **others.get(name, {"policies": replace(deployer.policies, policies=policies)}))
    state = DeploymentState.from_bytes(other.init().to_bytes())
    decision = Decision.from_bytes(other.act(state, context, 0.5).to_bytes())
    mine = deployer.init()
    for use in (
        lambda: deployer.act(state, context, 0.5), lambda: deployer.update(state, decision, 1.0),
        lambda: deployer.amend(state, decision, 1.0), lambda: deployer.update(mine, decision, 1.0),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=r"belongs to another deployer.*start again with init\(\)"):
            use()


@every_deployer
def test_exploration_and_memory_may_change_between_snapshots(deployers, name, kind):
    deployer, context = deployers[name, kind], context_at(contexts_of(kind, 1, 9), 0)
    state = DeploymentState.from_bytes(deployer.init().to_bytes())
    changed = replace(deployer, exploration=0.5, memory=7)
    assert changed.update(state, changed.act(state, context, 0.5), 1.0).rounds == 1


def test_a_mask_of_another_length_is_refused():
    class Uniform:
        def predict_proba(self, contexts, action_mask=None):
            return np.full((len(contexts), 3), 1 / 3)

    deployer = sc.SinglePolicy(Uniform())
    for mask in ([True], [True] * 4, [[True] * 3], True):
        with pytest.raises(SeachangeError, match="action_mask"):
            deployer.act(deployer.init(), None, 0.5, mask)


def test_every_registered_deployer_is_in_this_contract(deployers):
    assert {type(made) for made in deployers.values()} == set(DEPLOYERS)


def test_a_model_makes_the_deployer_that_is_asked_for():
    many = sc.learn(_log("none"), n_states=2, objective="ips")
    one = sc.learn(_log("none"), oracle="none", objective="ips")
    assert [type(many.deployer(kind)) for kind in ("auto", "frozen", "posterior", "exp4s")] == [
        sc.AdaptiveSampling, sc.PosteriorSampling, sc.PosteriorSampling, sc.Exp4S,
    ]  # fmt: skip
    assert [type(one.deployer(kind)) for kind in ("auto", "frozen", "single", "exp4s", "adaptive")] == [
        sc.SinglePolicy, sc.SinglePolicy, sc.SinglePolicy, sc.Exp4S, sc.AdaptiveSampling,
    ]  # fmt: skip
    assert {many.deployer(kind, memory=7).memory for kind in ("auto", "posterior", "exp4s")} == {7}
    assert many.deployer("single").policy is many.single
    assert one.single is one.policies[0]
    with pytest.raises(ParameterError, match="an HMM found"):
        one.deployer("posterior")
    with pytest.raises(ParameterError, match="Did you mean 'posterior'"):
        one.deployer("posteriors")
    with pytest.raises(ParameterError, match="memory must be"):
        one.deployer(memory=-1)
