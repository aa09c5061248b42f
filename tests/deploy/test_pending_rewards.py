"""Pending rewards: the tree of transfers next to a plain replay, and to the enumeration of state paths."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from seachange.deploy.pending_rewards import LEAF_ROUNDS, Branch, PendingRewards
from seachange.kernels.belief_updates import replay

pytestmark = pytest.mark.small


def transition_of(generator, n_states, stay):
    return stay * np.eye(n_states) + (1 - stay) * generator.dirichlet(np.ones(n_states), size=n_states)


def replayed(belief, evidences, transition):
    after = belief.copy()
    replay(after, evidences, transition)
    return after


def evidences_of(generator, n, n_states, sharpness):
    """Likelihoods relative to the likeliest state; ``sharpness`` is that of a few nats, or of hundreds."""
    logs = -sharpness * generator.exponential(size=(n, n_states))
    return np.exp(logs - logs.max(axis=1, keepdims=True))


def to_bits(pending):
    """What two windows must share to be the same to the bit, in all that is to come."""
    arrays = [pending.anchor, pending.evidences, pending.waiting]
    return [pending.end, *(array.tobytes() for array in arrays), _shape(pending.tree)]


def _shape(node):
    return (_shape(node.left), _shape(node.right)) if isinstance(node, Branch) else (node.first, len(node.waiting))


def depth(node):
    return 1 + max(depth(node.left), depth(node.right)) if isinstance(node, Branch) else 0


@settings(max_examples=examples(200), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n_states=st.integers(1, 4),
    first=st.one_of(st.integers(0, 3 * LEAF_ROUNDS), st.just(2**61)),
    memory=st.one_of(st.just(10**5), st.integers(1, 120)),
    late=st.floats(0.01, 0.9),
    sharpness=st.sampled_from([1.0, 30.0]),
)
def test_any_order_of_rewards_gives_the_belief_of_a_replay(seed, n_states, first, memory, late, sharpness):
    """Rounds pass, rewards arrive in any order, old rounds are dropped, and snapshots are restored in between."""
    generator, n = np.random.default_rng(seed), 150
    transition = transition_of(generator, n_states, generator.choice([0.5, 0.99]))
    evidences, start = evidences_of(generator, n, n_states, sharpness), generator.dirichlet(np.ones(n_states))
    known, waiting, pending = np.ones((n, n_states)), set(), None
    for t in range(n):
        waits = bool(generator.random() < late)
        known[t] = 1.0 if waits else evidences[t]
        waiting |= {t} if waits else set()
        if pending is not None:
            pending = pending.appended(known[t].copy(), waits).trimmed(memory, transition)
        elif waits:
            belief = replayed(start, known[:t], transition)
            pending = PendingRewards.of_rounds(belief, first + t, known[t : t + 1].copy(), np.ones(1, dtype=bool))
        waiting = {s for s in waiting if s > t - memory}
        for s in generator.permutation(sorted(waiting))[: max(generator.integers(-3, 4), 0)].tolist():
            assert pending.waits(first + s)
            before = to_bits(pending)
            amended = pending.amended(first + s, evidences[s])
            assert to_bits(pending) == before
            assert not amended.waits(first + s)
            known[s] = evidences[s]
            waiting.remove(s)
            expected = replayed(start, known[: t + 1], transition)
            np.testing.assert_allclose(amended.before(amended.end, transition), expected, rtol=0, atol=1e-12)
            pending = amended.trimmed(memory, transition)
        assert (pending is None) == (not waiting)
        if pending is None:
            continue
        oldest = min(waiting)
        assert pending.first == first + oldest
        assert pending.end == first + t + 1
        np.testing.assert_allclose(pending.anchor, replayed(start, known[:oldest], transition), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(pending.evidences, known[oldest : t + 1])
        assert pending.waiting.tolist() == [s in waiting for s in range(oldest, t + 1)]
        inside = int(generator.integers(oldest, t + 2))
        expected = replayed(start, known[:inside], transition)
        np.testing.assert_allclose(pending.before(first + inside, transition), expected, rtol=0, atol=1e-12)
        if generator.random() < 0.1:
            restored = PendingRewards.of_rounds(pending.anchor, pending.first, pending.evidences, pending.waiting)
            assert to_bits(restored) == to_bits(pending)
            assert same_beliefs(restored, pending, transition)
            pending = restored


def same_beliefs(one, two, transition):
    rounds = range(one.first, one.end)
    ends = one.before(one.end, transition).tobytes() == two.before(two.end, transition).tobytes()
    return ends and all(
        one.before(t, transition).tobytes() == two.before(t, transition).tobytes()
        and one.smoothed(t, transition).tobytes() == two.smoothed(t, transition).tobytes()
        for t in rounds
    )


@pytest.mark.large
def test_rewards_that_are_50000_rounds_late_give_the_belief_of_a_replay():
    """Products of many rounds lose no more than their rounding errors."""
    generator, n, n_states = np.random.default_rng(3), 50_000, 5
    transition = transition_of(generator, n_states, 0.9998)
    evidences, start = evidences_of(generator, n, n_states, 0.05), generator.dirichlet(np.ones(n_states))
    known = evidences.copy()
    late = generator.permutation(n)[:300]
    known[late] = 1.0
    pending = PendingRewards.of_rounds(start, 123_456, known, np.isin(np.arange(n), late))
    for count, t in enumerate(late.tolist()):
        known[t] = evidences[t]
        pending = pending.amended(123_456 + t, evidences[t])
        if count % 30 == 0:
            found = pending.before(pending.end, transition)
            np.testing.assert_allclose(found, replayed(start, known, transition), rtol=0, atol=1e-12)
            assert found.max() < 1 - 1e-6, "a belief that is certain tells nothing about rounding"
            inside = int(generator.integers(n))
            found = pending.before(123_456 + inside, transition)
            np.testing.assert_allclose(found, replayed(start, known[:inside], transition), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_states", [1, 2, 3])
def test_smoothing_weights_are_those_of_all_state_paths(n_states):
    """p(z_t | r_1:n) ∝ the sum over all paths through z_t of P_0(z_1) Π_s e_s(z_s) Φ(z_s, z_s+1)."""
    generator, n = np.random.default_rng(n_states), 7
    transition = transition_of(generator, n_states, 0.7)
    evidences, start = evidences_of(generator, n, n_states, 2.0), generator.dirichlet(np.ones(n_states))
    sums = np.zeros((n, n_states))
    for path in product(range(n_states), repeat=n):
        weight = start[path[0]] * np.prod([evidences[t, path[t]] for t in range(n)])
        weight *= np.prod([transition[path[t - 1], path[t]] for t in range(1, n)])
        sums[np.arange(n), path] += weight
    for first in (0, 3, LEAF_ROUNDS - 4):
        pending = PendingRewards.of_rounds(start, first, evidences, np.ones(n, dtype=bool))
        for t in range(n):
            expected = sums[t] / sums[t].sum()
            np.testing.assert_allclose(pending.smoothed(first + t, transition), expected, rtol=0, atol=1e-14)


def test_smoothing_weights_are_those_of_forward_and_backward_passes():
    """In a window of many leaves, with backward messages in plain numbers, which a few rounds do not underflow."""
    generator, n, n_states = np.random.default_rng(4), 200, 3
    transition = transition_of(generator, n_states, 0.95)
    evidences, start = evidences_of(generator, n, n_states, 1.0), generator.dirichlet(np.ones(n_states))
    pending, later = PendingRewards.of_rounds(start, 37, evidences, np.ones(n, dtype=bool)), np.ones(n_states)
    for t in reversed(range(n)):
        weights = replayed(start, evidences[:t], transition) * evidences[t] * (transition @ later)
        np.testing.assert_allclose(pending.smoothed(37 + t, transition), weights / weights.sum(), rtol=0, atol=1e-12)
        later = evidences[t] * (transition @ later)
        later /= later.sum()


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # of log(0), without the compiler
def test_states_that_rewards_rule_out_stay_ruled_out_and_certainty_does_not_underflow():
    """Products of the rows of states that are never left would underflow without their own factors."""
    n, transition = 5 * LEAF_ROUNDS, np.eye(3)
    evidences = np.tile([1e-40, 1.0, 1.0], (n, 1))
    evidences[n // 2, 2] = 0.0
    waiting = np.ones(n, dtype=bool)
    for start, expected in (([1.0, 0.0, 0.0], [1, 0, 0]), ([0.5, 0.0, 0.5], [1, 0, 0]), ([0.1, 0.2, 0.7], [0, 1, 0])):
        pending = PendingRewards.of_rounds(np.array(start), 3, evidences, waiting)
        np.testing.assert_array_equal(pending.before(n + 3, transition), expected)
        # After many rounds, a forward pass alone no longer knows about a state that was 1e-40 times as likely in each.
        for t in (3,) if start[0] == 0.5 else (3, n // 2 + 3, n + 2):
            np.testing.assert_array_equal(pending.smoothed(t, transition), expected)
    ruled_out = PendingRewards.of_rounds(np.array([0.0, 0.0, 1.0]), 3, evidences, waiting)
    assert np.isnan(ruled_out.before(n + 3, transition)).all()


@settings(max_examples=examples(200), deadline=None)
@given(first=st.integers(0, 2**62), n=st.integers(1, 3000), kept=st.floats(0, 1))
def test_a_tree_is_shallow_and_depends_only_on_its_rounds(first, n, kept):
    ones, waiting = np.ones((n, 1)), np.ones(n, dtype=bool)
    pending = PendingRewards.of_rounds(np.ones(1), first, ones, waiting)
    assert depth(pending.tree) <= np.log2(n / LEAF_ROUNDS + 1) + 2
    some = max(n // 2, 1)
    grown = PendingRewards.of_rounds(np.ones(1), first, ones[:some], waiting[:some])
    for _ in range(n - some):
        grown = grown.appended(np.ones(1), True)
    assert to_bits(grown) == to_bits(pending)
    memory = max(int(kept * n), 1)
    cut = pending.trimmed(memory, np.ones((1, 1)))
    assert to_bits(cut) == to_bits(
        PendingRewards.of_rounds(np.ones(1), first + n - memory, ones[:memory], waiting[:memory])
    )
