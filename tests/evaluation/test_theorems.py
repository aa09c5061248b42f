"""The paper's bounds: their formulas, and that the corrected ones hold where the printed ones do not."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import seachange as sc
from seachange.errors import ParameterError
from seachange.evaluation.theorems import (
    Bound,
    Condition,
    Quantities,
    detector_bound,
    interval_regret_bound,
    ips_error_bound,
    least_window,
    optimality_gap_bound,
    regret_bound,
    softmax_class,
    switching_regret_bound,
    table_class,
)


def test_the_printed_formulas_are_the_papers():
    """T = 10,000, S = 4, K = 5, L = 3, M = 2, ε = 100, by hand."""
    q = Quantities(
        n_rounds=10_000, n_segments=4, n_actions=5, n_states=3, max_ratio=2.0, wrong_rounds=100, delta=0.1,
        expected_stay=2_500, learning_rate=0.1, share_rate=0.001,
    )  # fmt: skip
    assert ips_error_bound(q).printed == pytest.approx(200 + 2 * math.sqrt(20_000 * math.log(40)))
    gap = optimality_gap_bound(q)
    assert gap.printed == pytest.approx(400 + 4 * math.sqrt(20_000 * math.log(40)))
    assert "unproved" in gap.printed_flaw
    assert interval_regret_bound(q).printed == pytest.approx(math.sqrt(2 * 2_500 * 5 * math.log(3)))
    switching = switching_regret_bound(q)
    assert switching.printed == pytest.approx(2 * math.sqrt(4 * 10_000 * 5 * math.log(3)))
    assert regret_bound(q).printed == pytest.approx(gap.printed + switching.printed)
    assert regret_bound(q).corrected == pytest.approx(gap.corrected + switching.corrected)


def test_one_fixed_policy_gives_the_pointwise_bound_twice():
    q = Quantities(n_rounds=400, max_ratio=3.0, delta=0.1)
    gap, error = optimality_gap_bound(q), ips_error_bound(q)
    assert gap.corrected == pytest.approx(2 * error.corrected)
    assert error.corrected == pytest.approx(3 * math.sqrt(200 * math.log(20)))
    assert gap.probability == error.probability == pytest.approx(0.8)


def test_exp4s_with_the_rates_of_the_deployer_is_below_the_form_in_its_docstring():
    policies = sc.PolicySet(
        (sc.SoftmaxPolicy(np.zeros((4, 1)), sc.simulate.Synthetic(n_actions=4, horizon=9).log(0).joint),) * 3
    )
    for stay in (2.0, 50.0, 5_000.0):
        deployer = sc.Exp4S(policies, expected_stay=stay)
        assert interval_regret_bound(of_deployer(deployer, 3, 4)).corrected <= 2 * math.sqrt(
            4 * stay * (math.log(3 * stay) + 2)
        )


def of_deployer(deployer, n_states, n_actions, n_rounds=1_000, **more):
    """The quantities of Exp4.S."""
    return Quantities(
        n_rounds=n_rounds, n_states=n_states, n_actions=n_actions, learning_rate=deployer.rate(n_actions),
        share_rate=deployer.share_rate, exploration=deployer.exploration, baseline=deployer.baseline,
        **{"expected_stay": deployer.stay, **more},
    )  # fmt: skip


def test_what_is_at_stake_decides_whether_a_bound_says_anything():
    bound = Bound("x", "y", 5.0, "", 9.0, 10, 10.0, 0.9, (Condition("a", True),))
    assert not bound.vacuous
    assert bound.verdict == "applies"
    assert replace(bound, corrected=10.0).verdict == "vacuous"
    assert replace(bound, corrected=math.inf).vacuous
    assert replace(bound, conditions=(Condition("a", True), Condition("b", None))).verdict == "conditional"
    broken = replace(bound, conditions=(Condition("a", None), Condition("b", False)))
    assert broken.verdict == "does not apply"
    assert broken.n_broken == 1


def test_an_infinite_quantity_gives_an_infinite_bound_not_nan():
    q = Quantities(n_rounds=10, max_ratio=math.inf)
    assert optimality_gap_bound(q).corrected == ips_error_bound(q).corrected == math.inf
    none = detector_bound(Quantities(n_rounds=10, window=least_window(10, 0.0, 0.1), threshold=0.0, min_change=0.0))
    assert none.corrected == 0
    assert none.printed == math.inf


@pytest.mark.parametrize(
    "change",
    [
        {"max_ratio": 0.0}, {"delta": 0.0}, {"delta": 1.5}, {"n_rounds": 0}, {"reward_range": (1.0, 1.0)},
        {"n_segments": 11}, {"min_change": -1.0}, {"exploration": 1.0},
    ],
)  # fmt: skip
def test_quantities_that_cannot_be_are_refused(change):
    (name,) = change
    with pytest.raises(ParameterError, match=name):
        Quantities(**{"n_rounds": 10, **change})


# The IPS error of a fixed policy.


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 2.0)])
def test_the_ips_error_covers_also_where_it_is_largest(low, high):
    """A rare action with all the reward, which the policy always takes: weights 0 or M; some states wrong."""
    delta, n, p = 0.1, 200, 0.2
    generator = np.random.default_rng(0)
    wrong, misses, largest = 10, 0, 0.0
    bound = ips_error_bound(
        Quantities(n_rounds=n, max_ratio=1 / p, wrong_rounds=wrong, delta=delta, reward_range=(low, high))
    )
    for _ in range(2_000):
        taken = generator.random(n) < p
        rewards = np.where(generator.random(n) < 0.5, high, low)
        # In the first rounds the oracle believes in a state whose policy takes the other action.
        weights = np.where(np.arange(n) < wrong, (~taken) / (1 - p), taken / p)
        error = abs(weights @ rewards - n * (low + high) / 2)
        misses += error > bound.corrected
        largest = max(largest, error)
    assert misses <= 2_000 * delta
    assert largest > bound.corrected / 3


# The optimality gap.


def table_world(n_contexts, seed):
    """Mean rewards (C, K) of two actions, one a little better everywhere."""
    return np.tile([0.9, 0.5], (n_contexts, 1)), np.random.default_rng(seed)


def learned_gap(n_contexts, n, seed):
    """V(Π*) - V(Π̂) of the best table by IPS, contexts uniform, actions at random."""
    means, generator = table_world(n_contexts, seed)
    contexts, actions = generator.integers(n_contexts, size=n), generator.integers(2, size=n)
    rewards = (generator.random(n) < means[contexts, actions]).astype(float)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), contexts=contexts[:, None].astype(float))
    probs = sc.TabularLearner().fit(log).policy_.predict_proba(np.arange(n_contexts)[:, None].astype(float))
    return n * float((means.max(axis=1) - (probs * means).sum(axis=1)).mean())


@pytest.mark.filterwarnings("ignore:a table of:seachange.errors.SeachangeWarning")
def test_the_printed_gap_is_exceeded_by_a_policy_that_learns_by_heart_and_the_corrected_one_is_not():
    """As many contexts as rounds: the printed bound, for one fixed policy, knows nothing of the size of the class."""
    n = 60_000
    gap = learned_gap(n, n, seed=0)
    tables = table_class(n_contexts=n, n_actions=2, n_states=1, capped=False)
    bound = optimality_gap_bound(Quantities(n_rounds=n, max_ratio=2.0, delta=0.1, policy_class=tables))
    assert gap > bound.printed
    assert gap < bound.corrected
    assert bound.vacuous


def test_the_corrected_gap_covers_where_it_says_something():
    n = 4_000
    tables = table_class(n_contexts=5, n_actions=2, n_states=1, capped=False)
    bound = optimality_gap_bound(Quantities(n_rounds=n, max_ratio=2.0, delta=0.1, policy_class=tables))
    assert not bound.vacuous
    assert sum(learned_gap(5, n, seed) > bound.corrected for seed in range(20)) <= 2


@pytest.mark.parametrize("capped", [False, True])
def test_the_largest_deviation_over_tables_is_at_one_of_the_counted_vertices(capped):
    """A linear function of π(a | x) over {π ≤ cap, Σ π = 1}, by enumeration of vertices and by random policies."""
    from itertools import product

    generator = np.random.default_rng(0)
    n_actions = 3
    slopes, caps = generator.normal(size=n_actions), np.array([0.5, 0.45, 0.3]) if capped else np.ones(n_actions)
    vertices = set()
    for free in range(n_actions):
        for bounds in product([0, 1], repeat=n_actions - 1):
            point = np.insert(np.array(bounds) * np.delete(caps, free), free, 0.0)
            point[free] = 1 - point.sum()
            if -1e-12 <= point[free] <= caps[free] + 1e-12:
                vertices.add(tuple(np.round(point, 12)))
    size = table_class(n_contexts=1, n_actions=n_actions, n_states=1, capped=capped).log_size
    assert 0 < len(vertices) <= math.exp(size) + 1e-9
    highest = max(slopes @ np.array(vertex) for vertex in vertices)
    inside = [p for p in generator.dirichlet(np.ones(n_actions), size=5_000) if (p <= caps).all()]
    assert len(inside) > 50
    assert max(slopes @ p for p in inside) <= highest + 1e-9


@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 30))
def test_softmax_policies_differ_no_faster_than_their_coefficients(seed, scale):
    generator = np.random.default_rng(seed)
    features, one, other = generator.normal(size=(4, 3)), *(scale * generator.normal(size=(2, 3)))
    logs = [
        scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
        for scores in (features @ one, features @ other)
    ]
    gap = max(np.linalg.norm(a - b) for a in features for b in features)
    assert np.abs(logs[0] - logs[1]).max() <= gap * np.linalg.norm(one - other) * (1 + 1e-9) + 1e-12


def test_a_net_of_the_size_counted_covers_the_ball():
    """A greedy set of points r apart in a ball of radius W has at most (1 + 2 W / r)^d members."""
    generator = np.random.default_rng(0)
    points = generator.uniform(-2, 2, size=(20_000, 2))
    points, net, r = points[np.linalg.norm(points, axis=1) <= 2], np.empty((0, 2)), 0.5
    for point in points:
        if len(net) == 0 or np.linalg.norm(net - point, axis=1).min() > r:
            net = np.vstack([net, point])
    rounds = round(1 / math.expm1(r))
    counted = softmax_class(n_coefs=2, n_states=1, radius=2.0, n_rounds=rounds).log_size
    assert math.log(len(net)) <= counted
    assert counted == pytest.approx(2 * math.log1p(4 / math.log1p(1 / rounds)))


def test_a_larger_class_or_radius_costs_more():
    sizes = [softmax_class(n_coefs=5, n_states=2, radius=w, n_rounds=1_000) for w in (0.5, 3.0, 1e6)]
    assert sizes[0].log_size < sizes[1].log_size < sizes[2].log_size
    assert sizes[0].choice_price < sizes[1].choice_price < sizes[2].choice_price
    # The prices of all powers of 2 together: Σ 6 / (π² (j + 1)²) = 1.
    assert sum(6 / (math.pi**2 * (j + 1) ** 2) for j in range(100_000)) == pytest.approx(1, abs=1e-4)


# The detector; at the threshold of the paper see tests/statistical/test_detector_theorem.py.


def test_the_detector_keeps_to_the_corrected_bound_at_the_lower_threshold():
    n, delta, change = 12_000, 0.1, 0.6
    window = int(least_window(n, change, delta))
    assert window < 8 * math.log(16 * n / delta) / change**2
    edges = np.arange(0, n - 4 * window, 4 * window + 7)
    truth = np.searchsorted(edges, np.arange(n), side="right") - 1
    bound = detector_bound(
        Quantities(
            n_rounds=n, n_segments=len(edges), window=window, threshold=change / 2, min_change=change,
            shortest_segment=4 * window + 7, delta=delta,
        )
    )  # fmt: skip
    assert bound.verdict == "conditional"
    broken = 0
    for seed in range(60):
        rates = np.where(truth % 2, 0.8, 0.2)
        rewards = (np.random.default_rng(seed).random(n) < rates).astype(float)
        log = sc.BanditLog.from_arrays(np.zeros(n), rewards, np.ones(n))
        oracle = sc.ChangePointOracle(statistic="reward", window=window, threshold=change / 2)
        found = np.searchsorted(oracle.fit(log).predict(log).change_points, np.arange(n), side="right")
        broken += int(np.count_nonzero(found != truth)) > bound.corrected
    assert broken <= 60 * delta


def test_a_detector_outside_its_conditions_says_which():
    given = {"window": 100, "threshold": 0.2, "min_change": 0.3, "shortest_segment": 200, "delta": 0.1}
    bound = detector_bound(Quantities(n_rounds=1_000, n_segments=3, **given))
    assert [condition.holds for condition in bound.conditions] == [False, False, False]
    assert bound.corrected == 200
    assert bound.printed == 300


# Exp4.S.


class Always:
    """Takes one action."""

    def __init__(self, action, n_actions):
        self.probs = np.eye(n_actions)[action]

    def predict_proba(self, contexts, action_mask=None):
        return np.tile(self.probs, (len(contexts), 1))


class Clicks(sc.simulate.Synthetic):
    """Rewards are 0 or 1."""

    def _rounds(self, span, generator):
        rounds = super()._rounds(span, generator)
        clicks = generator.random(rounds.mean_rewards.shape) < rounds.mean_rewards
        return replace(rounds, rewards=clicks.astype(float))


def regrets(env, deployer, seeds):
    """Mean regret over seeds of every segment, against the best expert in it."""
    edges = np.flatnonzero(np.diff(env.state_sequence, prepend=-1))
    best = env.state_means.max(axis=1)[env.state_sequence]
    lost = [best - sc.simulate.rollout(env, deployer, seed).expected_rewards for seed in seeds]
    return np.add.reduceat(np.mean(lost, axis=0), edges)


SEQUENCES = {
    "even": np.repeat([0, 1, 2, 1, 0, 2], 500),
    "uneven": np.repeat([0, 1, 0, 2, 1], [1_800, 50, 700, 150, 300]),
    "fast": np.repeat(np.arange(60) % 3, 50),
}
WORLDS = {
    "all or nothing": np.eye(3),
    "close": 0.5 + 0.1 * np.eye(3),
    "costly": 0.1 * np.eye(3),
    "cheap": 0.9 + 0.1 * np.eye(3),
}


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_the_regret_of_exp4s_never_exceeds_its_bounds(world, sequence, exploration):
    states = SEQUENCES[sequence]
    env = sc.simulate.Synthetic(
        n_actions=3, n_states=3, horizon=3_000, states=states, mean_rewards=WORLDS[world], noise=0.0
    )
    policies = [Always(action, 3) for action in range(3)]
    n_segments = int((np.diff(states) != 0).sum()) + 1
    for stay in (20.0, 3_000 / n_segments):
        deployer = sc.Exp4S(policies, expected_stay=stay, exploration=exploration)
        lost = regrets(env, deployer, range(10))
        lengths = np.diff(np.append(np.flatnonzero(np.diff(states, prepend=-1)), 3_000))
        for regret, length in zip(lost, lengths, strict=True):
            assert regret <= interval_regret_bound(of_deployer(deployer, 3, 3, expected_stay=float(length))).corrected
        whole = of_deployer(deployer, 3, 3, 3_000, n_segments=n_segments)
        assert lost.sum() <= switching_regret_bound(whole).corrected


@pytest.mark.parametrize("rates", [(0.05, 0.3), (0.3, 0.6), (0.5, 0.95)], ids=["rare", "common", "frequent"])
@pytest.mark.parametrize("exploration", [0.0, 0.2])
@pytest.mark.parametrize("stay", [300, 3_000])
def test_the_regret_of_the_models_deployer_never_exceeds_the_bounds_of_the_model(rates, exploration, stay):
    """On average over runs in the world of its log: the deployer compares rewards with b, and η depends on the mean."""
    states, means = np.repeat(np.arange(12_000 // stay) % 3, stay), rates[0] + (rates[1] - rates[0]) * np.eye(3)
    env = Clicks(n_actions=3, n_states=3, horizon=12_000, states=states, mean_rewards=means)
    generator = np.random.default_rng(0)
    actions = generator.integers(3, size=12_000)
    rewards = (generator.random(12_000) < means[states, actions]).astype(float)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(12_000, 1 / 3), n_actions=3)
    model = sc.learn(log, oracle=sc.KnownStates(states), objective=sc.TabularLearner())
    deployer = model.deployer("exp4s", exploration=exploration)
    found = sc.model_bounds(log, model, exploration=exploration)
    assert found.quantities.learning_rate == deployer.rate(3)
    bounds = {bound.name: bound for bound in found.bounds}
    lost = regrets(env, deployer, range(6))
    assert lost.max() <= bounds["Exp4.S, one interval"].corrected
    assert lost.sum() <= bounds["Exp4.S, all segments"].corrected


def test_exp4s_as_printed_exceeds_the_printed_bound_and_the_corrected_one_does_not():
    env = sc.simulate.Synthetic(n_actions=3, n_states=1, horizon=3_000, mean_rewards=[[1.0, 0.0, 0.0]], noise=0.0)
    policies = [Always(action, 3) for action in range(3)]
    printed = interval_regret_bound(Quantities(n_rounds=1, n_states=3, n_actions=3, expected_stay=3_000.0)).printed
    as_printed, corrected = (
        regrets(env, sc.Exp4S(policies, expected_stay=3_000, mixing=mixing), range(10)).sum()
        for mixing in ("paper", "corrected")
    )
    assert as_printed > 3 * printed
    assert corrected < printed


def test_one_expert_has_nothing_to_regret():
    q = Quantities(n_rounds=100, n_actions=3, expected_stay=100.0, learning_rate=0.1, share_rate=0.1)
    assert interval_regret_bound(q).corrected == 0
    assert switching_regret_bound(replace(q, n_segments=2, exploration=0.1)).corrected == pytest.approx(10)
    assert interval_regret_bound(replace(q, n_states=2, share_rate=1.0)).corrected == math.inf


@given(
    st.integers(0, 10_000), st.floats(0.01, 1), st.floats(0.001, 3), st.floats(0, 0.5), st.floats(0.01, 1),
    st.floats(0, 1),
)  # fmt: skip
def test_one_round_gains_no_more_than_the_bound_allows(seed, baseline, rate, exploration, share, reward):
    """E log Σ w e^(-η c̃) + η Σ w c̃ over actions, exactly, against η (v ℓ) of the bound, for any weights and advice."""
    generator = np.random.default_rng(seed)
    n_states, n_actions = generator.integers(2, 5, size=2)
    advice = generator.dirichlet(np.full(n_actions, 0.3), size=n_states)
    weights = (1 - share) * generator.dirichlet(np.full(n_states, 0.2)) + share / n_states
    probs = (1 - exploration) * weights @ advice + exploration / n_actions
    rewards, gap = np.where(generator.random(n_actions) < 0.5, reward, 1.0), 0.0
    for a in np.flatnonzero(probs > 1e-12):
        costs = rate * (baseline - rewards[a]) * advice[:, a] / probs[a]
        lowest = costs.min()
        gap += probs[a] * (np.log(weights @ np.exp(lowest - costs)) - lowest + weights @ costs)
    q = Quantities(
        n_rounds=1, n_states=int(n_states), n_actions=int(n_actions), learning_rate=rate, share_rate=share,
        exploration=exploration, baseline=baseline, expected_stay=1.0,
    )  # fmt: skip
    assume(share < 1)
    divergence = (math.log(n_states / share) - math.log1p(-share)) / rate
    assert gap / rate <= interval_regret_bound(q).corrected - divergence - exploration + 1e-9
