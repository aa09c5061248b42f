"""The fit statistic: false alarms at most delta, intervals that cover, and the paper's problem."""

import numpy as np
import pytest
from scipy.signal import lfilter

import seachange as sc
from seachange.simulate import Synthetic

pytestmark = pytest.mark.filterwarnings("ignore::seachange.errors.SeachangeWarning")
DELTA = 0.05


def autoregression(phi, n, generator):
    """Standard normal noise with autocorrelation φ^k."""
    return lfilter([1.0], [1.0, -phi], generator.normal(size=n + 200) * np.sqrt(1 - phi**2))[200:]


def stationary(kind, n, seed):
    """A log without change."""
    generator = np.random.default_rng([seed, 77])
    probs = {"unequal": [0.6, 0.25, 0.1, 0.04, 0.01], "rare": [0.5, 0.3, 0.15, 0.04, 0.005, 0.005]}
    chosen = np.array(probs.get(kind, [0.2] * 5))
    n_actions, more = len(chosen), {}
    actions = generator.choice(n_actions, size=n, p=chosen)
    if kind in ("normal", "unequal", "rare"):
        rewards = actions + generator.normal(size=n)
    elif kind in AUTOCORRELATED:
        rewards = actions + autoregression(AUTOCORRELATED[kind], n, generator)
    elif kind == "autocorrelated clicks":
        rewards = (generator.random(n) < 1 / (1 + np.exp(1.5 - autoregression(0.7, n, generator)))).astype(float)
    elif kind == "rare clicks":
        rewards = (generator.random(n) < 0.04).astype(float)
    elif kind == "revenue":
        rewards = (generator.random(n) < 0.04) * np.exp(generator.normal(size=n))
    elif kind == "uneven noise":
        rewards = generator.normal(size=n) * 10.0 ** (actions - 2)
    elif kind == "shared contexts":
        more["contexts"] = generator.normal(size=(n, 4))
        rewards = more["contexts"] @ np.array([1.0, -1.0, 0.5, 0.0]) + generator.normal(size=n)
    elif kind == "clicks with contexts":
        more["contexts"] = generator.normal(size=(n, 3))
        rates = 1 / (1 + np.exp(3 - more["contexts"] @ np.array([1.0, -0.7, 0.3])))
        rewards = (generator.random(n) < rates).astype(float)
    elif kind == "noise by context":
        more["contexts"] = generator.normal(size=(n, 2))
        rewards = more["contexts"].sum(axis=1) + generator.normal(size=n) * np.exp(more["contexts"][:, 0])
    elif kind == "action features":
        more["action_features"] = generator.normal(size=(n, n_actions, 6))
        rewards = more["action_features"][np.arange(n), actions].sum(axis=1) + generator.normal(size=n)
    elif kind == "logging that changes":
        late = np.arange(n) // (n // 4) % 2 == 1
        actions = np.where(late, n_actions - 1 - (actions * generator.random(n)).astype(int), actions)
        rewards = (generator.random(n) < 0.04 * (1 + actions / 3)).astype(float)
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 0.5), n_actions=n_actions, **more)


AUTOCORRELATED = {"somewhat autocorrelated": 0.3, "autocorrelated": 0.7}
STATIONARY = (
    "normal", "unequal", "rare", "rare clicks", "revenue", "uneven noise", "shared contexts", "clicks with contexts",
    "noise by context", "action features", "logging that changes", *AUTOCORRELATED, "autocorrelated clicks",
)  # fmt: skip


def false_alarms(kind, n, seeds):
    return sum(len(sc.ChangePointOracle().fit(stationary(kind, n, seed)).segmentation_.p_values) > 0 for seed in seeds)


@pytest.mark.parametrize("kind", STATIONARY)
def test_false_alarms_are_rare(kind):
    # At a rate of 0.05, more than 8 of 50 would be a chance of 1 in 1,000.
    assert false_alarms(kind, 1500, range(50)) <= 8


@pytest.mark.long
@pytest.mark.parametrize("n", [500, 10_000])
@pytest.mark.parametrize("kind", STATIONARY)
def test_false_alarms_are_at_most_delta(kind, n):
    runs = 400
    spread = np.sqrt(DELTA * (1 - DELTA) / runs)
    assert false_alarms(kind, n, range(runs)) / runs <= DELTA + 3 * spread


@pytest.mark.long
@pytest.mark.parametrize("n", [5000, 20_000])
@pytest.mark.parametrize("phi", AUTOCORRELATED.values())
@pytest.mark.parametrize(
    ("n_actions", "by_action"), [(1, False), (2, False), (5, False), (10, False), (2, True), (5, True)]
)
def test_autocorrelated_noise_is_not_taken_for_changes(n_actions, by_action, phi, n):
    alarms, runs = 0, 100
    for seed in range(runs):
        generator = np.random.default_rng([seed, 79])
        actions = generator.integers(n_actions, size=n)
        order = np.argsort(actions, kind="stable") if by_action else np.arange(n)
        rewards = actions.astype(float)
        rewards[order] += autoregression(phi, n, generator)
        log = sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / n_actions), n_actions=n_actions)
        alarms += len(sc.ChangePointOracle().fit(log).segmentation_.change_points) > 0
    assert alarms / runs <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / runs)


def test_changes_are_found_in_autocorrelated_noise_and_their_intervals_cover():
    covered = []
    for seed in range(40):
        generator = np.random.default_rng([seed, 80])
        actions, place = generator.integers(3, size=4000), int(generator.integers(1000, 3000))
        shifts = np.where(np.arange(4000) < place, 0.0, np.array([1.5, -1.5, 1.5])[actions])
        rewards = shifts + autoregression(0.7, 4000, generator)
        cut = sc.ChangePointOracle().fit(sc.BanditLog.from_arrays(actions, rewards, np.full(4000, 1 / 3))).segmentation_
        assert cut.long_run_variance == pytest.approx(1.7 / 0.3, rel=0.3)
        assert len(cut.change_points) <= 2
        near = np.argmin(np.abs(cut.change_points - place))
        covered.append(cut.low[near] <= place <= cut.high[near])
    assert np.mean(covered) >= 0.95 - 4.5 * np.sqrt(0.95 * 0.05 / 40)


def many_changes(phi, white, n_actions, n_changes, n, seed):
    """A log with changes of 0.75 to 2.25 standard deviations of autocorrelated noise, and their positions."""
    generator = np.random.default_rng([seed, 82])
    stay = n // (n_changes + 1)
    places = stay * np.arange(1, n_changes + 1) + generator.integers(-stay // 3, stay // 3, size=n_changes)
    shifts = generator.choice([-1.0, 1.0], size=n_actions) * generator.uniform(0.375, 1.125, size=(n_changes + 1, 1))
    shifts *= (-1.0) ** np.arange(n_changes + 1)[:, None]
    actions = generator.integers(n_actions, size=n)
    noise = (autoregression(phi, n, generator) + white * generator.normal(size=n)) / np.hypot(1, white)
    rewards = shifts[np.searchsorted(places, np.arange(n), side="right"), actions] + noise
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / n_actions), n_actions=n_actions), places


def logs_with_false_changes(seeds, *kind):
    """Logs with more changes than true ones, and the share of true ones found within 50 rounds."""
    alarms, found = 0, []
    for seed in seeds:
        log, places = many_changes(*kind, seed)
        changes = sc.ChangePointOracle().fit(log).segmentation_.change_points
        alarms += len(changes) > len(places)
        if len(places):
            gaps = np.abs(np.append(changes, -1000)[:, None] - places)
            found.append(np.mean(gaps.min(axis=0) <= 50))
    return alarms, np.mean(found) if found else 1.0


@pytest.mark.parametrize(("n_actions", "n_changes"), [(1, 29), (3, 29), (5, 0)])
def test_real_changes_do_not_hide_autocorrelated_noise(n_actions, n_changes):
    """Changes that it hides used to be taken as evidence that there is no such noise, so that false ones appeared."""
    phi, white = (0.7, 0.0) if n_changes else (0.9, 1.5)
    alarms, found = logs_with_false_changes(range(8), phi, white, n_actions, n_changes, 10_000 if n_changes else 5000)
    assert alarms <= 2
    assert found >= 0.5


@pytest.mark.long
@pytest.mark.parametrize("n_changes", [0, 5, 29])
@pytest.mark.parametrize("n_actions", [1, 3, 5])
@pytest.mark.parametrize(("phi", "white"), [(0.5, 0.0), (0.7, 0.0), (0.9, 1.5)])
def test_false_changes_are_rare_among_real_ones(phi, white, n_actions, n_changes):
    if white and n_actions > 1 and n_changes == 29:
        pytest.skip("slow noise that hides this many changes is taken for changes: decision 6")
    alarms, _ = logs_with_false_changes(range(60), phi, white, n_actions, n_changes, 10_000)
    assert alarms / 60 <= DELTA + 3 * np.sqrt(DELTA * (1 - DELTA) / 60)


@pytest.mark.parametrize(("stay", "gap"), [(100, 1.0), (50, 2.0)])
def test_frequent_changes_are_not_taken_for_autocorrelated_noise(stay, gap):
    """Many short stays escape the windows, and make the noise within the segments found look autocorrelated."""
    hits = []
    for seed in range(4):
        generator = np.random.default_rng([seed, 81])
        states = np.cumsum(generator.random(10_000) < 1 / stay) % 2
        rewards = gap * states + generator.normal(size=10_000)
        log = sc.BanditLog.from_arrays(np.zeros(10_000), rewards, np.ones(10_000))
        found = sc.ChangePointOracle(n_states=2).fit(log).predict(log).states
        hits.append(np.mean(found == states))
    assert np.mean(np.maximum(hits, 1 - np.array(hits))) > 0.85


CLICKS = {
    "clicks": (3000, [[0.2, 0.3, 0.4], [0.4, 0.3, 0.2]]),
    "rare clicks": (20_000, [[0.04, 0.03, 0.05], [0.08, 0.03, 0.02]]),
}


def one_change(kind, seed):
    """A log with one moderate change, and its position."""
    generator = np.random.default_rng([seed, 78])
    n, means = CLICKS.get(kind, (2000, None))
    place = n // 2 + int(generator.integers(-n // 8, n // 8))
    late, more = np.arange(n) >= place, {}
    actions, noise = generator.integers(3, size=n), generator.normal(size=n)
    if means is not None:
        rewards = (generator.random(n) < np.array(means)[late.astype(int), actions]).astype(float)
    elif kind == "normal":
        rewards = noise + late * np.array([0.5, -0.5, 0.5])[actions]
    elif kind == "small":
        rewards = noise + late * 0.25
    elif kind == "noise that grows":
        rewards = noise * np.where(late, 2.0, 0.5) + late * 0.5
    elif kind == "noise that shrinks":
        rewards = noise * np.where(late, 0.5, 2.0) + late * 0.5
    elif kind == "heavy tails":
        rewards = generator.standard_t(3, size=n) + late * 0.5
    elif kind == "skewed":
        rewards = generator.exponential(size=n) + late * 0.4
    elif kind == "revenue":
        rewards = (generator.random(n) < np.where(late, 0.35, 0.2)) * np.exp(0.5 * noise)
    else:
        more["contexts"] = contexts = generator.normal(size=(n, 10 if kind == "many features" else 2))
        slopes = 0.15 if kind == "many features" else np.array([0.6, 0.0])
        if kind == "noise by context":
            noise *= np.exp(0.7 * contexts[:, 0])
            slopes = np.array([1.0, 0.0])
        rewards = contexts.sum(axis=1) + late * (contexts * slopes).sum(axis=1) + noise
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / 3), n_actions=3, **more), place


# What the interval holds at least: what it says, or somewhat less where random walks of the noise are far from normal.
COVERAGES = {
    "normal": 0.95, "small": 0.95, "noise that grows": 0.95, "noise that shrinks": 0.95, "skewed": 0.95,
    "revenue": 0.95, "clicks": 0.95, "rare clicks": 0.95, "contexts": 0.95, "many features": 0.93,
    "heavy tails": 0.92, "noise by context": 0.92,
}  # fmt: skip


def intervals_of_one_change(kind, seeds):
    """(m, 3) low, position and high in the logs in which exactly one change was found."""
    held = []
    for seed in seeds:
        log, place = one_change(kind, seed)
        cut = sc.ChangePointOracle().fit(log).segmentation_
        if len(cut.change_points) == 1:
            held.append((cut.low[0], place, cut.high[0]))
    assert len(held) >= 0.75 * len(seeds)
    return np.array(held)


def require_coverage(kind, seeds):
    low, place, high = intervals_of_one_change(kind, seeds).T
    level = COVERAGES[kind]
    spread = np.sqrt(level * (1 - level) / len(place))
    assert np.mean((low <= place) & (place <= high)) >= level - 4.5 * spread


@pytest.mark.parametrize("kind", [kind for kind in COVERAGES if kind != "rare clicks"])
def test_intervals_cover(kind):
    require_coverage(kind, range(60))


@pytest.mark.long
@pytest.mark.parametrize("kind", COVERAGES)
def test_intervals_have_nominal_coverage(kind):
    require_coverage(kind, range(2000))


@pytest.mark.parametrize("seed", range(3))
def test_intervals_are_not_much_wider_than_if_the_fits_were_known(seed):
    widths, known = [], []
    for each in range(40 * seed, 40 * seed + 40):
        log, _ = one_change("normal", each)
        cut = sc.ChangePointOracle().fit(log).segmentation_
        if len(cut.change_points) != 1:
            continue
        widths.append(cut.high[0] - cut.low[0])
        shifts = np.array([0.5, -0.5, 0.5])[log.actions]
        evidence = np.append(0, np.cumsum(shifts * (shifts / 2 - log.rewards)))
        below = np.cumsum(np.exp(evidence - evidence.max()))
        first, last = np.searchsorted(below / below[-1], (0.025, 0.975))
        known.append(last - first)
    assert np.mean(widths) < 1.6 * np.mean(known)


def found_and_false(seeds):
    """True changes, those found within 500 rounds, and changes farther than that from any true one."""
    true = found = false = 0
    for seed in seeds:
        env = Synthetic(seed=seed)
        places = sc.ChangePointOracle().fit(env.log(seed)).segmentation_.change_points
        truth = np.flatnonzero(np.diff(env.state_sequence)) + 1
        gaps = np.abs(places[:, None] - truth)
        true += len(truth)
        found += (gaps.min(axis=0) <= 500).sum()
        false += (gaps.min(axis=1) > 500).sum()
    return true, found, false


def test_the_changes_of_the_papers_problem_are_found():
    true, found, false = found_and_false(range(5))
    assert found >= 0.95 * true
    assert false <= 0.05 * true


@pytest.mark.long
@pytest.mark.parametrize("seeds", [range(20), range(2000, 2040)], ids=["seeds 0-19", "seeds 2000-2039"])
def test_the_changes_of_the_papers_problem_are_found_on_many_seeds(seeds):
    true, found, false = found_and_false(seeds)
    assert found >= 0.95 * true
    assert false <= 0.05 * true


def test_many_short_sequences_share_their_states():
    generator = np.random.default_rng(0)
    worlds, n = generator.integers(2, size=2000), 100_000
    actions, sequences = generator.integers(3, size=n), np.repeat(np.arange(2000), 50)
    means = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[worlds[sequences], actions]
    for rewards, n_states in (((generator.random(n) < means), 2), ((generator.random(n) < 0.3), 1)):
        log = sc.BanditLog.from_arrays(actions, rewards.astype(float), np.full(n, 1 / 3), sequences=sequences)
        labels = sc.ChangePointOracle().fit(log).predict(log)
        assert labels.n_states == n_states
        if n_states == 2:
            assert np.mean(labels.states == (worlds ^ worlds[0])[sequences]) > 0.99
