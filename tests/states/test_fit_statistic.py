"""ChangePointOracle(statistic="fit") on every kind of log."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.errors import NoChangeWarning, ParameterError, SeachangeWarning

KINDS = ("none", "shared", "per action")


def hidden_change(kind="none", n=1200, seed=0, missing=0.0, cuts=(400, 800), **more):
    """Two worlds with the same mean reward: actions or features swap their effects at ``cuts``."""
    generator = np.random.default_rng(seed)
    states = np.searchsorted(cuts, np.arange(n), side="right") % 2
    actions = generator.integers(2, size=n)
    rewards = generator.normal(0, 0.5, n)
    if kind == "none":
        rewards += np.array([[0.0, 1.0], [1.0, 0.0]])[states, actions]
    if kind == "shared":
        more["contexts"] = generator.normal(size=(n, 2))
        rewards += more["contexts"][np.arange(n), states]
    if kind == "per action":
        more["action_features"] = generator.normal(size=(n, 2, 3))
        rewards += more["action_features"][np.arange(n), actions, states]
    rewards[generator.random(n) < missing] = np.nan
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), n_actions=2, missing_rewards=missing > 0, **more)
    return log, states


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_changes_that_average_out(kind, missing):
    log, states = hidden_change(kind, missing=missing)
    oracle = sc.ChangePointOracle().fit(log)
    labels = oracle.predict(log)
    assert labels.n_states == 2
    assert np.mean(labels.states == states) > 0.97
    cut = oracle.segmentation_
    assert len(cut.change_points) == 2
    assert (cut.p_values < 1e-4).all()
    assert (cut.low <= cut.change_points).all()
    assert (cut.change_points <= cut.high).all()
    assert cut.segment_states.tolist() == [0, 1, 0]
    assert cut.segment_starts.tolist() == [0, *cut.change_points]


def test_the_papers_statistic_does_not():
    log, _ = hidden_change()
    with pytest.warns(NoChangeWarning):
        assert sc.ChangePointOracle(statistic="reward").fit(log).predict(log).n_states == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_log_keeps_the_numbers_of_the_states(kind):
    log, _ = hidden_change(kind)
    oracle = sc.ChangePointOracle().fit(log)
    later, states = hidden_change(kind, n=900, seed=1, cuts=(300,))
    np.testing.assert_array_equal(oracle.predict(log).states[::100], hidden_change(kind)[1][::100])
    assert np.mean(oracle.predict(later).states == states) > 0.97
    with pytest.raises(ParameterError, match="fitted with coefficients of shape"):
        oracle.predict(sc.BanditLog.from_arrays([0, 3], [0.0, 1.0], [0.5, 0.5], n_actions=4))


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_too_short_to_split_still_gets_a_state(kind):
    oracle = sc.ChangePointOracle().fit(hidden_change(kind)[0])
    second = hidden_change(kind)[0][420:450]
    assert oracle.predict(second).states.tolist() == [1] * 30


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_are_split_separately_and_share_their_states(kind):
    log, states = hidden_change(kind, sequences=np.repeat([2, 0, 1], [600, 400, 200]))
    oracle = sc.ChangePointOracle().fit(log)
    labels = oracle.predict(log)
    assert labels.n_chains == 3
    assert len(labels.change_points) == 2
    # States are numbered by first appearance in the order of the sequences, where the first is the second world.
    assert np.mean(labels.states == (1 - states)) > 0.97
    assert 600 not in labels.change_points
    # The same rounds with the sequences interleaved.
    turn = np.concatenate([np.arange(600) * 3, np.arange(400) * 3 + 1, np.arange(200) * 3 + 2])
    mixed = np.argsort(turn, kind="stable")
    again = sc.ChangePointOracle().fit(log.take(mixed))
    np.testing.assert_array_equal(again.predict(log.take(mixed)).states, labels.states[mixed])
    assert sorted(mixed[again.segmentation_.change_points]) == oracle.segmentation_.change_points.tolist()


def test_the_boundary_of_sequences_is_not_a_change():
    log, _ = hidden_change(sequences=np.repeat([0, 1, 2], 400))
    oracle = sc.ChangePointOracle().fit(log)
    assert len(oracle.segmentation_.change_points) == 0
    assert oracle.segmentation_.segment_states.tolist() == [0, 1, 0]


def test_the_segmentation_describes_each_state():
    log, _ = hidden_change("shared")
    cut = sc.ChangePointOracle().fit(log).segmentation_
    for z in range(2):
        inside = np.repeat(cut.segment_states, np.diff(cut.segment_starts, append=len(log))) == z
        for a in range(2):
            chosen = inside & (log.actions == a)
            features = np.column_stack([log.contexts[chosen], np.ones(chosen.sum())])
            np.testing.assert_allclose(cut.state_precisions[z, a], features.T @ features, rtol=1e-9)
            fit = np.linalg.lstsq(features, log.rewards[chosen], rcond=None)[0]
            np.testing.assert_allclose(cut.state_coefs[z, a], fit, atol=0.02)
            assert cut.state_rounds[z, a] == chosen.sum()
    assert cut.noise_variances == pytest.approx([0.25, 0.25], abs=0.04)


def test_a_given_window_and_threshold_are_used():
    log, _ = hidden_change()
    cut = sc.ChangePointOracle(window=100, threshold=20).fit(log).segmentation_
    assert (cut.windows.tolist(), cut.threshold) == ([100], 20)
    assert len(cut.change_points) == 2
    with pytest.warns(NoChangeWarning, match="no evidence of change"):
        assert len(sc.ChangePointOracle(window=100, threshold=500).fit(log).segmentation_.change_points) == 0


@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_a_stricter_delta_finds_no_more():
    log, _ = hidden_change(n=300, cuts=(100, 200))
    counts = []
    for delta in (0.5, 0.05, 1e-12):
        cut = sc.ChangePointOracle(delta=delta).fit(log).segmentation_
        assert (cut.p_values <= delta).all()
        counts.append(len(cut.change_points))
    assert counts == sorted(counts, reverse=True)


def test_empty_states_keep_their_slots_with_a_warning():
    log, _ = hidden_change()
    with pytest.warns(SeachangeWarning, match="only 3 segments"):
        oracle = sc.ChangePointOracle(n_states=5).fit(log)
    assert oracle.predict(log).n_states == 5
    assert np.isnan(oracle.segmentation_.state_coefs[3:]).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"window": 700}, "window=700 needs at least 1400 rounds; the log has 1200"),
        ({"window": 0}, "window must be at least 1"),
        ({"threshold": -1.0}, "threshold must be positive"),
        ({"delta": 0.0}, "delta must be in"),
        ({"statistic": "median"}, "statistic must be"),
        ({"min_change": 0.1}, 'min_change=.* needs statistic="reward"'),
        ({"reward_range": (0, 1)}, 'reward_range=.* needs statistic="reward"'),
        ({"n_states": 0}, "n_states must be"),
    ],
)
def test_invalid_settings_are_named(params, message):
    with pytest.raises(ParameterError, match=message):
        sc.ChangePointOracle(**params).fit(hidden_change()[0])


def odd_logs():
    """Logs that have broken detectors, by name."""
    generator = np.random.default_rng(0)
    n, actions, step = 300, generator.integers(2, size=300), np.repeat([0.0, 2.0], 150)
    noise, x = generator.normal(size=n), generator.normal(size=(n, 2))
    holes = np.where(generator.random(n) < 0.3, np.nan, noise)
    propensities = np.full(n, 0.5)

    def log(rewards, **more):
        return sc.BanditLog.from_arrays(actions, rewards, propensities, n_actions=2, missing_rewards=True, **more)

    return {
        "constant rewards": (log(np.full(n, 5.0)), 0),
        "constant rewards with contexts": (log(np.full(n, 5.0), contexts=x), 0),
        "no clicks": (log(np.zeros(n)), 0),
        "collinear features": (log(noise, contexts=np.column_stack([x, 2 * x[:, 0], np.ones(n)])), 0),
        "features of odd scales": (log(noise + step, contexts=x * [1e8, 1e-8]), 1),
        "large rewards": (log(1e8 + noise + step), 1),
        "small rewards": (log(1e-8 * (noise + step)), 1),
        "no noise": (log(step), 1),
        "sequences of one round": (log(noise, sequences=np.arange(n)), 0),
        "missing rewards": (log(holes), 0),
        "missing rewards with contexts": (log(holes, contexts=x), 0),
        "nothing observed": (log(np.full(n, np.nan)), 0),
        "more features than rounds": (log(noise, contexts=generator.normal(size=(n, 70)))[:60], 0),
        "separable clicks": (log((x[:, 0] > 0).astype(float), contexts=x), 0),
        "a rare action": (sc.BanditLog.from_arrays(np.arange(n) == 7, noise, propensities), 0),
        "one round": (sc.BanditLog.from_arrays([0], [1.0], [1.0]), 0),
        "five rounds": (sc.BanditLog.from_arrays([0] * 5, [0.0, 0.0, 1.0, 1.0, 1.0], [1.0] * 5), 0),
    }


@settings(max_examples=examples(40), deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    n=st.integers(1, 150),
    n_states=st.sampled_from(["auto", 1, 3]),
    missing=st.sampled_from([0.0, 0.3, 0.95]),
    chains=st.integers(1, 20),
    digits=st.sampled_from([0, 1, 12]),
)
@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_any_log_gets_complete_labels(kind, seed, n, n_states, missing, chains, digits):
    sequences = np.random.default_rng(seed).integers(chains, size=n)
    log, _ = hidden_change(kind, n=n, seed=seed, missing=missing, cuts=(50,), sequences=sequences)
    # Few digits make rewards that repeat, and blocks that never vary.
    log = log.with_rewards(np.round(log.rewards, digits))
    oracle = sc.ChangePointOracle(n_states=n_states).fit(log)
    cut, labels = oracle.segmentation_, oracle.predict(log)
    assert labels.states.shape == (n,)
    assert labels.states.min() >= 0
    assert labels.states.max() < labels.n_states
    assert (np.diff(labels.change_points) > 0).all()
    np.testing.assert_array_equal(labels.change_points, cut.change_points)
    assert np.isfinite(cut.p_values).all()
    assert len(cut.segment_starts) == len(cut.change_points) + len(np.unique(sequences))
    np.testing.assert_array_equal(labels.states[cut.segment_starts], cut.segment_states)


@pytest.mark.parametrize("n_states", ["auto", 1, 4])
@pytest.mark.parametrize("name", list(odd_logs()))
@pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
def test_unusual_logs_get_a_sensible_answer(name, n_states):
    log, changes = odd_logs()[name]
    oracle = sc.ChangePointOracle(n_states=n_states).fit(log)
    cut, labels = oracle.segmentation_, oracle.predict(log)
    assert len(cut.change_points) == changes
    assert len(labels.states) == len(log)
    assert labels.states.max() < labels.n_states
    for field in dataclasses.fields(cut):
        value = getattr(cut, field.name)
        if isinstance(value, np.ndarray) and not field.name.startswith("state_"):
            assert np.isfinite(value).all(), field.name
    filled = ~np.isnan(cut.state_values)
    assert filled[np.unique(cut.segment_states)].all()
    assert np.isfinite(cut.state_coefs[filled]).all()
