"""Replay and DR-ns: the arithmetic of a deployment led along a log."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from evaluation.deployments import KINDS, NAMES, Custom, Fixed, masked, only
from seachange.errors import ParameterError, RefusedError, SeachangeWarning
from seachange.evaluation.online import acceptance_of, follow, in_sequence, ratio_bounds
from seachange.evaluation.terms import FOLDS, fit_across
from seachange.kernels.replay_steps import include
from seachange.log.clusters import Clusters


@pytest.mark.small
@pytest.mark.parametrize(("name", "kind", "adaptive"), list(product(NAMES, KINDS, [False, True])))
def test_the_kernels_are_acting_and_updating_to_the_bit(deployers, make_log, name, kind, adaptive):
    """By a reference that knows ``act`` and ``update`` alone, on a log with masks and interleaved sequences."""
    deployer, n = deployers[name, kind], 240
    log = in_sequence(masked(make_log(kind, n, seed=3, sequences=np.arange(n) % 3)))
    acceptance = acceptance_of(1.0, 0.02, n) if adaptive else acceptance_of(0.3)
    walk = only(follow(log, deployer, [acceptance], [7]))
    uniforms = np.random.default_rng([7, 5]).random(n)
    state, seen, rate = None, [], 1.0 if adaptive else 0.3
    for t in range(n):
        if t % 80 == 0:
            state = deployer.init()
        context = None if kind == "none" else log.contexts[t]
        action, p = log.actions[t], log.propensities[t]
        decision, reward = deployer.act(state, context, 0.5, log.action_mask[t]), None
        probs = decision.probs
        assert (walk.chosen[t], walk.rates[t]) == (probs[action], rate)
        seen.append(p / probs[action] if probs[action] > 0 else np.inf)
        accepted = uniforms[t] * p < rate * probs[action]
        assert walk.accepted[t] == accepted
        if accepted:
            decision = deployer.act(state, context, probs[:action].sum() + probs[action] / 2, log.action_mask[t])
            assert decision.action == action
            reward = log.rewards[t]
        state = deployer.update(state, decision, reward)
        if adaptive:
            rate = min(1.0, np.sort(seen)[max(1, int(np.ceil(0.02 * len(seen)))) - 1])
    assert 10 < walk.accepted.sum() < n


@pytest.mark.small
@given(st.lists(st.one_of(st.floats(0, 10), st.just(np.inf)), min_size=1, max_size=60), st.floats(0, 0.999))
@settings(max_examples=60, deadline=None)
def test_the_kept_quantile_is_that_of_sorting(values, quantile):
    lower, upper, sizes = np.empty(len(values)), np.empty(len(values)), np.zeros(2, dtype=np.int64)
    for i, value in enumerate(values, start=1):
        include(lower, upper, sizes, quantile, value)
        assert -lower[0] == np.sort(values[:i])[max(1, int(np.ceil(quantile * i))) - 1]
        assert sizes.sum() == i


def test_no_belief_gives_a_ratio_above_its_bound(deployers, make_log):
    for kind in KINDS:
        log = masked(make_log(kind, 120, seed=5))
        for name in NAMES:
            deployer = deployers[name, kind]
            bounds = ratio_bounds(log, deployer)
            generator = np.random.default_rng(0)
            for t in range(len(log)):
                belief = generator.dirichlet(np.full(len(deployer.initial_belief), 0.3))
                state = replace(deployer.init(), belief=belief)
                context = None if kind == "none" else log.contexts[t]
                probs = deployer.act(state, context, 0.5, log.action_mask[t]).probs
                assert probs[log.actions[t]] / log.propensities[t] <= bounds[t] * (1 + 1e-12)


def enumerated(n_rounds, accept, logging, means, deployer):
    """Exact E[Σ counts] and E[Σ counts terms] of a walk, over all actions, clicks and acceptances of a tiny log.

    ``accept`` gives the probability of acceptance and the (count, term) of a round, accepted or not.
    """
    totals = np.zeros(2)

    def walk(state, t, probability, sums):
        if t == n_rounds:
            totals[:] += probability * np.array(sums)
            return
        unseen = deployer.act(state, None, 0.5)
        probs = unseen.probs
        for action, reward in product(range(len(logging)), (0.0, 1.0)):
            here = probability * logging[action] * (means[action] if reward else 1 - means[action])
            chance, taken, passed = accept(probs, action, reward)
            if here * chance > 0:
                decision = deployer.act(state, None, probs[:action].sum() + probs[action] / 2)
                walk(deployer.update(state, decision, reward), t + 1, here * chance, sums + taken)
            if here * (1 - chance) > 0:
                walk(deployer.update(state, unseen, None), t + 1, here * (1 - chance), sums + passed)

    walk(deployer.init(), 0, 1.0, np.zeros(2))
    return totals


@pytest.mark.small
def test_accepted_rounds_are_those_of_a_deployment_that_misses_rewards_by_enumeration():
    """With c π / p ≤ 1, what replay and DR-ns sum up has the expectation of a deployment that sees a share c of its
    rewards: in every round it acts, and with probability c it learns what it earned."""
    logging, means, rate = np.array([0.4, 0.6]), np.array([0.8, 0.3]), 0.4
    policies = sc.PolicySet((Fixed([0.9, 0.1]), Fixed([0.2, 0.8])))
    deployer = sc.Exp4S(policies, expected_stay=10, learning_rate=0.7)
    n, guess = 4, np.array([0.5, 0.6])

    def value(state, horizon):
        """E Σ r_t of the deployment from here on."""
        decision = deployer.act(state, None, 0.5)
        probs = decision.probs
        total = probs @ means
        if horizon > 1:
            total += (1 - rate) * value(deployer.update(state, decision, None), horizon - 1)
            for action, reward in product(range(2), (0.0, 1.0)):
                decision = deployer.act(state, None, probs[:action].sum() + probs[action] / 2)
                chance = probs[action] * (means[action] if reward else 1 - means[action])
                total += rate * chance * value(deployer.update(state, decision, reward), horizon - 1)
        return total

    expected = rate * value(deployer.init(), n)

    def by_replay(probs, action, reward):
        return rate * probs[action] / logging[action], np.array([1.0, reward]), np.zeros(2)

    def by_dr(probs, action, reward):
        term = probs @ guess + probs[action] / logging[action] * (reward - guess[action])
        return rate * probs[action] / logging[action], np.array([rate, rate * term]), np.array([rate, rate * term])

    for accept in (by_replay, by_dr):
        count, total = enumerated(n, accept, logging, means, deployer)
        assert count == pytest.approx(n * rate, abs=1e-12)
        assert total == pytest.approx(expected, abs=1e-12)


@pytest.mark.small
def test_uniform_logging_and_a_sure_policy_are_the_classical_replay(make_log):
    """Accepted are the rounds in which the log did what the policy would have done."""
    log = make_log("none", 600, seed=1)
    estimate = sc.evaluate_online(log, sc.SinglePolicy(Fixed([0.0, 0.0, 1.0])), repeats=2)
    same = log.actions == 2
    assert estimate.n_accepted == same.sum()
    assert estimate.value == pytest.approx(log.rewards[same].mean(), abs=1e-12)
    assert estimate.std_error == pytest.approx(log.rewards[same].std(ddof=1) / np.sqrt(same.sum()), rel=1e-9)
    assert estimate.acceptance_rate == pytest.approx(same.mean())
    assert estimate.effective_samples == pytest.approx(same.sum())
    assert estimate.notes == ()


@pytest.mark.small
def test_dr_ns_of_one_policy_is_dr_whatever_is_accepted(make_log):
    log, policy = make_log("shared", 900, seed=2), Fixed([0.2, 0.5, 0.3])
    (dr,) = sc.evaluate(log, policy, ("dr",))
    estimate = sc.evaluate_online(log, sc.SinglePolicy(policy), "dr-ns", highest_rate=0.5, quantile=0.0)
    assert estimate.value == pytest.approx(dr.value, abs=1e-12)
    assert estimate.std_error == pytest.approx(dr.std_error, rel=2e-2)


def test_a_sequence_is_a_deployment_of_its_own(deployers, make_log):
    """Two sequences, however their rounds lie, are judged as two logs."""
    deployer, n = deployers["posterior", "shared"], 400
    log = make_log("shared", n, seed=4, sequences=np.arange(n) % 2)
    apart = in_sequence(log)
    assert apart.sequences.tolist() == [0] * 200 + [1] * 200
    walk = only(follow(apart, deployer, [acceptance_of(0.3)], [1]))
    for part in (slice(0, 200), slice(200, 400)):
        uniforms = np.random.default_rng([1, 5]).random(n)[part]
        alone = apart[part]
        one = only(follow(alone, deployer, [acceptance_of(0.3)], [1]))
        if part.start == 0:
            assert one.chosen.tobytes() == walk.chosen[part].tobytes()
        assert walk.chosen[part][0] == one.chosen[0]
        np.testing.assert_array_equal(walk.accepted[part], uniforms * alone.propensities < 0.3 * walk.chosen[part])
    assert sc.evaluate_online(log, deployer).value == sc.evaluate_online(apart, deployer).value


def test_chunks_and_order_of_rounds_change_nothing(deployers, make_log, monkeypatch):
    from seachange.evaluation import online as following

    log = make_log("per action", 500, seed=6)
    whole = {m: sc.evaluate_online(log, deployers["exp4s", "per action"], m) for m in ("replay", "dr-ns")}
    monkeypatch.setattr(following, "CHUNK_ROUNDS", 33)
    for method, estimate in whole.items():
        cut = sc.evaluate_online(log, deployers["exp4s", "per action"], method)
        assert cut.value == pytest.approx(estimate.value, abs=1e-12)
        assert cut.n_accepted == estimate.n_accepted


def test_whoever_keeps_the_protocol_is_judged_alike(deployers, make_log):
    log, ours = masked(make_log("shared", 300, seed=8)), deployers["exp4s", "shared"]
    for method in ("replay", "dr-ns"):
        setting = {"bound": 6.0} if method == "replay" else {}
        # Masks that came after the propensities make weights that do not average 1.
        with pytest.warns(SeachangeWarning, match="the propensities are too small"):
            one = sc.evaluate_online(log, ours, method, repeats=2, force=True, **setting)
        with pytest.warns(SeachangeWarning, match="the propensities are too small"):
            two = sc.evaluate_online(log, Custom(ours), method, repeats=2, force=True, **setting)
        assert (two.value, two.n_accepted) == (pytest.approx(one.value, abs=1e-12), one.n_accepted)
        assert "Custom ran round by round" in two.notes[0]


def test_a_deployer_that_draws_otherwise_is_refused(deployers, make_log):
    class Backwards(Custom):
        def act(self, state, context, uniform, action_mask=None):
            return self.inner.act(state, context, 1 - 1e-9 - uniform, action_mask)

    with pytest.raises(ParameterError, match="Backwards cannot be replayed: act"):
        sc.evaluate_online(make_log("none", 300), Backwards(deployers["exp4s", "none"]))


def test_a_lower_bound_accepts_more_corrects_and_says_so():
    generator = np.random.default_rng(0)
    n, logging, means = 40_000, np.array([0.02, 0.98]), np.array([0.9, 0.2])
    actions = (generator.random(n) >= logging[0]).astype(int)
    rewards = (generator.random(n) < means[actions]).astype(float)
    log = sc.BanditLog.from_arrays(actions, rewards, logging[actions])
    deployer = sc.SinglePolicy(Fixed([0.5, 0.5]))
    exact, bounded = sc.evaluate_online(log, deployer), sc.evaluate_online(log, deployer, bound=5.0)
    assert exact.acceptance_rate == pytest.approx(1 / 25, abs=0.005)
    assert bounded.acceptance_rate > 2.5 * exact.acceptance_rate
    for estimate in (exact, bounded):
        assert abs(estimate.value - 0.55) < 4.5 * estimate.std_error
    assert bounded.max_weight == pytest.approx(5)
    assert any("above bound=5" in note for note in bounded.notes)


@pytest.mark.small
def test_a_deployment_need_not_take_every_action(make_log):
    log = make_log("none", 300, seed=1)
    estimate = sc.evaluate_online(log, sc.SinglePolicy(Fixed([0.0, 0.5, 0.5])), "dr-ns", repeats=2)
    assert np.isfinite([estimate.value, estimate.std_error, estimate.low, estimate.high]).all()
    assert estimate.acceptance_rate == pytest.approx(2 / 3, abs=0.1)


def test_thinning_is_reported_where_there_is_a_belief(deployers, make_log):
    log = make_log("none", 600)
    for method in ("replay", "dr-ns"):
        notes = sc.evaluate_online(log, deployers["posterior", "none"], method).notes
        assert any("saw the rewards of only" in note for note in notes)
        assert not sc.evaluate_online(log, sc.SinglePolicy(Fixed([0.2, 0.5, 0.3])), method).notes
    assert any("repeats=2" in n for n in sc.evaluate_online(log, deployers["single", "none"], repeats=1).notes)


def listing(log, deployer, predicted_rewards, uniforms, quantile, c_max, every_round=False):
    """V / C by the listing of DR-ns (Dudík, Erhan, Langford, Li 2012), line by line; T is the length of the log.

    A rejected round passes without a reward; in the listing it does not pass at all. Where ``every_round``, c follows
    each round, as ours does, and not accepted rounds only.
    """
    state, c, total, weight, ratios = deployer.init(), c_max, 0.0, 0.0, []
    for k in range(len(log)):
        action, reward, p = log.actions[k], log.rewards[k], log.propensities[k]
        context = None if log.joint.kind == "none" else log.contexts[k]
        decision = deployer.act(state, context, 0.5)
        probs = decision.probs
        r_k = probs @ predicted_rewards[k] + probs[action] / p * (reward - predicted_rewards[k, action])
        total, weight = total + c * r_k, weight + c
        ratios.append(p / probs[action] if probs[action] > 0 else np.inf)
        accepted = uniforms[k] <= c * probs[action] / p
        if accepted:
            decision = deployer.act(state, context, probs[:action].sum() + probs[action] / 2)
        state = deployer.update(state, decision, reward if accepted else None)
        if accepted or every_round:
            c = min(c_max, np.quantile(ratios, quantile, method="inverted_cdf"))
    return total / weight


@pytest.mark.parametrize(("name", "kind"), list(product(NAMES, KINDS)))
def test_dr_ns_is_the_listing(deployers, make_log, name, kind):
    log, deployer = make_log(kind, 400, seed=9), deployers[name, kind]
    seed = np.random.SeedSequence(4).generate_state(2)[1]
    uniforms = np.random.default_rng([seed, 5]).random(400)
    fit = fit_across(log, np.ones((400, 1)), Clusters(log).folds(FOLDS))
    predicted_rewards = fit.predict(slice(0, 400))
    # No p / π is below 1/3: c stays at c_max, whenever it is set.
    ours = sc.evaluate_online(log, deployer, "dr-ns", highest_rate=0.3, quantile=0.0, repeats=1, seed=4)
    assert ours.value == pytest.approx(listing(log, deployer, predicted_rewards, uniforms, 0.0, 0.3), abs=1e-12)
    # Where c moves, it does so after every round.
    ours = sc.evaluate_online(log, deployer, "dr-ns", highest_rate=1.0, quantile=0.05, repeats=1, seed=4)
    assert ours.value == pytest.approx(listing(log, deployer, predicted_rewards, uniforms, 0.05, 1.0, True), abs=1e-12)


def test_walks_that_differ_by_their_beliefs_widen_the_error(make_log):
    """s² = Σ ē² m / (m - 1) + 1.5 times the variance between walks that rewards do not explain, from the walks."""
    actions = np.random.default_rng(5).integers(3, size=900)
    rewards = np.array([0.9, 0.6, 0.3])[actions] + make_log("none", 900).rewards / 10
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(900, 1 / 3))
    policies = sc.PolicySet(tuple(Fixed(each) for each in np.eye(3)))
    # Rewards above the range that it knows are a triumph: it bets all on the first, and never changes its mind.
    deployer = sc.Exp4S(policies, expected_stay=1e9, learning_rate=9.0, reward_range=(-1.0, 0.0))
    estimate = sc.evaluate_online(log, deployer, repeats=8, seed=2)
    seeds = np.random.SeedSequence(2).generate_state(9)[1:].tolist()
    walks, _ = follow(log, deployer, [acceptance_of(1 / 3)] * 8, seeds)
    moves = np.array([w * (log.rewards - log.rewards[w].mean()) / w.sum() for w in walks.accepted])
    values = np.array([log.rewards[w].mean() for w in walks.accepted])
    by_rewards = np.square(moves - moves.mean(axis=0)).sum() / 7
    between = values.var(ddof=1) - by_rewards
    taken = np.mean([w.sum() for w in walks.accepted])
    of_rewards = np.square(moves.mean(axis=0)).sum() * taken / (taken - 1)
    assert between > by_rewards
    assert estimate.value == pytest.approx(values.mean(), abs=1e-12)
    assert estimate.std_error == pytest.approx(np.sqrt(of_rewards + 1.5 * between), rel=1e-9)


def test_what_cannot_be_is_refused_with_the_cure(deployers, make_log):
    log, deployer = make_log("none", 300), deployers["exp4s", "none"]
    for settings_, message in (
        ({"method": "magic"}, 'method must be "replay" or "dr-ns"'),
        ({"bound": 0.5}, "bound must be"),
        ({"quantile": 1.0}, "quantile must be in"),
        ({"highest_rate": 0.0}, "highest_rate must be"),
        ({"repeats": 0}, "repeats must be at least 1"),
        ({"confidence": 1.0}, "confidence must be between"),
    ):
        with pytest.raises(ParameterError, match=message):
            sc.evaluate_online(log, deployer, **settings_)
    with pytest.raises(ParameterError, match="Wrap a policy in SinglePolicy"):
        sc.evaluate_online(log, deployer.policies[0])
    with pytest.raises(ParameterError, match="learned from a log with the same actions"):
        sc.evaluate_online(log, sc.SinglePolicy(Fixed([0.5, 0.5])))
    with pytest.raises(RefusedError, match="Only 1 of 1 rounds"):
        sc.evaluate_online(log[:1].with_rewards(np.ones(1)), sc.SinglePolicy(Fixed([0.0, 0.0, 1.0])))


def test_all_rewards_equal_are_known_exactly(deployers, make_log):
    log = make_log("shared", 600).with_rewards(np.ones(600))
    estimate = sc.evaluate_online(log, deployers["exp4s", "shared"])
    assert (estimate.value, estimate.std_error, estimate.low, estimate.high) == (1, 0, 1, 1)
