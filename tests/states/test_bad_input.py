"""Awkward logs: a valid result or a clear error, in bounded time and without warnings of other libraries."""

import signal
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import seachange as sc
from properties import examples
from seachange.errors import LogError, ParameterError, SeachangeError, SeachangeWarning

N = 160
EMISSIONS = ("gaussian", "gaussian per state", "bernoulli")
# CPU seconds that any of these logs may take; most take a fraction of one.
LONGEST = 60


@contextmanager
def within(seconds):
    """Fail if the work takes more CPU time."""

    def alarm(*_):
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, alarm)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def require_sound(oracle, log):
    """All outputs of a fitted oracle are finite, and probabilities sum to 1."""
    model, labels = oracle.model_, oracle.predict(log)
    n, n_states = len(log), model.n_states
    for probs in (labels.state_probs, model.filter(log), model.forecast(log)):
        assert probs.shape == (n, n_states)
        assert np.isfinite(probs).all()
        assert (probs >= 0).all()
        np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-9)
    assert ((labels.states >= 0) & (labels.states < n_states)).all()
    assert np.isfinite(model.predict_rewards(log)).all()
    assert np.isfinite(model.log_likelihood(log))
    assert (model.noise_variances > 0).all()
    for array in (model.initial_probs, model.transition_matrix, model.reward_coefs, model.reward_precisions):
        assert np.isfinite(array).all()
    report = oracle.report_
    assert np.isfinite([report.log_likelihood, report.bic, report.single_state_bic, *report.objectives]).all()
    assert 1 <= report.agreed <= len(report.restarts)


def fitted(log, **settings):
    """A valid fit; warnings of other libraries are errors."""
    with warnings.catch_warnings(), within(LONGEST):
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", SeachangeWarning)
        oracle = sc.HMMOracle(**settings).fit(log)
        require_sound(oracle, log)
    return oracle


def fitted_or_refused(log, **settings):
    """A valid fit, or a SeachangeError."""
    try:
        return fitted(log, **settings)
    except SeachangeError as error:
        if not str(error):
            raise AssertionError("an error without a message") from error
        return None


def awkward(case, clicks, n=N, seed=0):
    """Columns of a log with two alternating states, made awkward as ``case`` says."""
    g = np.random.default_rng(seed)
    actions = g.integers(3, size=n)
    states = (4 * np.arange(n) // n) % 2
    rewards = np.array([[0.2, 0.5, 0.8], [0.8, 0.5, 0.2]])[states, actions] + g.normal(0, 0.3, n)
    rewards = (rewards > 0.5) * 1.0 if clicks else rewards
    columns = {"actions": actions, "rewards": rewards, "propensities": np.full(n, 1 / 3), "n_actions": 3}
    contexts = g.normal(size=(n, 3))
    match case:
        case "constant rewards":
            columns["rewards"] = np.full(n, 1.0 if clicks else 3.7)
        case "all rewards zero":
            columns["rewards"] = np.zeros(n)
        case "constant rewards with contexts":
            columns |= {"rewards": np.full(n, 1.0 if clicks else -2.0), "contexts": contexts}
        case "separable contexts":
            columns |= {"rewards": (contexts[:, 0] > 0) * 1.0, "contexts": contexts}
        case "rewards without noise":
            columns |= {"rewards": (actions == states) * 1.0}
        case "rewards that are a feature":
            columns |= {"contexts": columns["rewards"][:, None]}
        case "collinear features":
            columns["contexts"] = np.column_stack([contexts, contexts @ [1.0, -2.0, 0.5], contexts[:, 0]])
        case "constant features":
            columns["contexts"] = np.column_stack([contexts[:, 0], np.ones(n), np.zeros(n)])
        case "features that differ by rounding alone":
            columns |= {"action_features": 1 + 1e-8 * g.normal(size=(n, 3, 1)), "rewards": np.round(columns["rewards"])}
        case "collinear features of actions":
            columns["action_features"] = np.repeat(g.normal(size=(n, 3, 1)), 4, axis=2)
        case "features of scale 1e8":
            columns["contexts"] = contexts * [1e8, 1.0, 1e-8]
        case "features of scale 1e8 and an offset":
            columns["contexts"] = 1e8 + contexts
        case "features of actions of scale 1e8":
            columns["action_features"] = g.normal(size=(n, 3, 2)) * [1e8, 1e-8]
        case "more features than rewards":
            columns |= {
                "contexts": g.normal(size=(n, 60)),
                "rewards": np.where(np.arange(n) % 4, np.nan, columns["rewards"]),
            }
            columns["missing_rewards"] = True
        case "sequences of length 1":
            columns["sequences"] = g.permutation(n)
        case "sequences of length 1 and 2":
            columns["sequences"] = np.arange(n) // np.where(np.arange(n) < n // 2, 1, 2)
        case "30 % missing rewards":
            columns |= {"rewards": np.where(g.random(n) < 0.3, np.nan, columns["rewards"]), "missing_rewards": True}
        case "all but two rewards missing":
            columns |= {"rewards": np.where(np.arange(n) < 2, columns["rewards"], np.nan), "missing_rewards": True}
        case "one action without a reward":
            columns |= {"rewards": np.where(actions == 1, np.nan, columns["rewards"]), "missing_rewards": True}
        case "an action that never occurs":
            columns["n_actions"] = 4
        case "duplicate rounds":
            columns |= {"actions": actions[np.arange(n) // 40], "rewards": columns["rewards"][np.arange(n) // 40]}
            columns["contexts"] = contexts[np.arange(n) // 40]
        case "one action":
            columns |= {"actions": np.zeros(n), "propensities": np.ones(n), "n_actions": 1}
        case "two rounds" | "three rounds":
            size = 2 if case == "two rounds" else 3
            columns = {name: value if name == "n_actions" else value[:size] for name, value in columns.items()}
        case "one round":
            columns = {name: value if name == "n_actions" else value[:1] for name, value in columns.items()}
        case "rewards of 1e12" | "rewards of 1e-12" | "rewards of 1e90" | "rewards of 1e-90":
            columns["rewards"] = columns["rewards"] * float(case.split()[-1])
        case "rewards of 1e12 that hardly differ":
            columns["rewards"] = 1e12 + columns["rewards"]
        case "one reward of 1e12":
            columns["rewards"] = np.where(np.arange(n) == n // 3, 1e12, columns["rewards"])
    return columns


EITHER = [
    "constant rewards", "all rewards zero", "constant rewards with contexts", "separable contexts",
    "rewards without noise", "rewards that are a feature", "collinear features", "constant features",
    "features that differ by rounding alone",
    "collinear features of actions", "features of scale 1e8", "features of scale 1e8 and an offset",
    "features of actions of scale 1e8", "more features than rewards", "sequences of length 1",
    "sequences of length 1 and 2", "30 % missing rewards", "all but two rewards missing",
    "one action without a reward", "an action that never occurs", "duplicate rounds", "one action", "one round",
    "two rounds", "three rounds",
]  # fmt: skip
NUMBERS_ONLY = [
    "rewards of 1e12", "rewards of 1e-12", "rewards of 1e90", "rewards of 1e-90", "rewards of 1e12 that hardly differ",
    "one reward of 1e12",
]  # fmt: skip


# Two states are more than these can hold: rewards that are one number, which no state can explain better than another
# (clicks have the noise of their rate), and one round.
CONSTANT = ("constant rewards", "all rewards zero", "constant rewards with contexts")


def may_be_refused(case, rewards):
    return case == "one round" or (case in CONSTANT and rewards != "bernoulli")


def log_of(case, clicks):
    return sc.BanditLog.from_arrays(**awkward(case, clicks))


@pytest.mark.parametrize("rewards", EMISSIONS)
@pytest.mark.parametrize("case", EITHER)
def test_a_given_number_of_states_is_fitted_if_the_log_supports_it(case, rewards):
    fit = fitted_or_refused if may_be_refused(case, rewards) else fitted
    fit(log_of(case, rewards == "bernoulli"), n_states=2, rewards=rewards)


@pytest.mark.parametrize("rewards", EMISSIONS[:2])
@pytest.mark.parametrize("case", NUMBERS_ONLY)
def test_rewards_of_any_size_are_fitted(case, rewards):
    fitted(log_of(case, False), n_states=2, rewards=rewards)


def every_other(cases):
    """Each case with clicks or with numbers, in turn, and the other way around in ``make test-long``."""
    for i, case in enumerate(cases):
        yield case, i % 2 == 0
        yield pytest.param(case, i % 2 == 1, marks=pytest.mark.long)


@pytest.mark.parametrize(("case", "clicks"), [*every_other(EITHER)])
def test_auto_always_has_an_answer(case, clicks):
    fitted(log_of(case, clicks))


@pytest.mark.parametrize("case", NUMBERS_ONLY)
def test_auto_always_has_an_answer_whatever_the_size_of_rewards(case):
    fitted(log_of(case, False))


@pytest.mark.parametrize(("rewards", "initial"), [("gaussian", "stationary"), ("bernoulli", "free")])
@pytest.mark.parametrize("case", EITHER)
def test_ridge_and_prior_may_be_zero(case, rewards, initial):
    fit = fitted_or_refused if may_be_refused(case, rewards) else fitted
    log = log_of(case, rewards == "bernoulli")
    fit(log, n_states=2, ridge=0, prior_segments=0, rewards=rewards, initial=initial)


@pytest.mark.parametrize("rewards", EMISSIONS)
def test_too_many_states_are_rejected(rewards):
    log = log_of("two rounds", rewards == "bernoulli")
    with pytest.raises(ParameterError, match=r"n_states=7 is too many for this log.*Use fewer states"):
        sc.HMMOracle(n_states=7, rewards=rewards).fit(log)


@pytest.mark.parametrize("rewards", EMISSIONS)
def test_more_states_than_exist_give_a_valid_fit(rewards):
    assert fitted(log_of("plain", rewards == "bernoulli"), n_states=6, rewards=rewards).model_.n_states == 6


@pytest.mark.parametrize("kind", ["contexts", "action_features"])
def test_a_feature_that_is_not_a_number_is_named_by_row_and_column(kind):
    columns = awkward("plain", False)
    features = np.ones((N, 4)) if kind == "contexts" else np.ones((N, 3, 4))
    features[17, ..., 2] = np.nan
    with pytest.raises(LogError, match=rf"{kind} must be finite \(column (0, )?2\); row 17 has nan \(1 of 160"):
        sc.BanditLog.from_arrays(**columns, **{kind: features})


def test_rewards_other_than_0_and_1_are_rejected_as_clicks():
    with pytest.raises(ParameterError, match='rewards="bernoulli" needs rewards of 0 or 1'):
        sc.HMMOracle(n_states=2, rewards="bernoulli").fit(log_of("plain", False))


def test_a_log_without_rewards_is_rejected():
    log = log_of("plain", False)
    with pytest.raises(ParameterError, match="no round of the log has a reward"):
        sc.HMMOracle(n_states=2).fit(log.with_rewards(np.full(N, np.nan)))


def test_an_unknown_reward_distribution_is_rejected():
    with pytest.raises(ParameterError, match="rewards must be"):
        sc.HMMOracle(n_states=2, rewards="poisson").fit(log_of("plain", False))


def test_an_unknown_initial_distribution_is_rejected():
    with pytest.raises(ParameterError, match="initial must be"):
        sc.HMMOracle(n_states=2, initial="uniform").fit(log_of("plain", False))


def test_states_survive_thirty_percent_missing_rewards():
    log = sc.BanditLog.from_arrays(**awkward("30 % missing rewards", False, n=1200))
    found = fitted(log, n_states=2).predict(log).states
    assert np.mean(found == (4 * np.arange(1200) // 1200) % 2) > 0.95


def test_windows_that_differ_only_by_rounding_are_not_states():
    log = sc.BanditLog.from_arrays(
        np.zeros(7),
        [1.0, 1, 1, 0, 0, 0, 0],
        np.ones(7),
        action_features=1 + 1e-15 * np.array([-1, 0, 1, 1, -1, -1, -1])[:, None, None],
    )
    with pytest.raises(ParameterError, match="n_states=3 is too many for this log"):
        sc.HMMOracle(n_states=3, rewards="gaussian").fit(log)


# ---------------------------------------------------------------------------------------------------------------------
# Fuzz


@st.composite
def logs(draw, sizes, widths, kinds):
    """Logs of some size, each awkward in several ways at once."""
    n = draw(sizes)
    n_actions = draw(st.integers(1, 4))
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    actions = g.integers(draw(st.integers(1, n_actions)), size=n)
    kind = draw(st.sampled_from(["normal", "clicks", "constant", "two values", "heavy", "steps"]))
    rewards = {
        "normal": lambda: g.normal(size=n),
        "clicks": lambda: g.integers(2, size=n) * 1.0,
        "constant": lambda: np.full(n, float(g.integers(2))),
        "two values": lambda: g.choice([-3.0, 5.0], size=n),
        "heavy": lambda: g.standard_cauchy(n),
        "steps": lambda: (np.arange(n) // 10) % 3 * 1.0,
    }[kind]()
    clicks = bool(np.isin(rewards, (0.0, 1.0)).all())
    if not clicks:
        rewards = rewards * draw(st.sampled_from([1.0, 1e-12, 1e12])) + draw(st.sampled_from([0.0, 1.0, -1e6]))
    columns = {"n_actions": n_actions}
    if draw(st.booleans()):
        rewards[g.random(n) < draw(st.sampled_from([0.1, 0.3, 0.9]))] = np.nan
        columns["missing_rewards"] = True
    if draw(st.booleans()):
        columns["sequences"] = g.integers(draw(st.sampled_from([1, 3, n])), size=n)
    features = draw(kinds)
    if features:
        width = draw(widths)
        values = g.normal(size=(n, width) if features == "shared" else (n, n_actions, width))
        values = values * draw(st.sampled_from([1.0, 1e8, 1e-8, 0.0])) + draw(st.sampled_from([0.0, 1.0]))
        if draw(st.booleans()):
            values[..., -1] = values[..., 0]
        columns["contexts" if features == "shared" else "action_features"] = values
    if draw(st.booleans()):
        order = g.integers(max(n // 3, 1), size=n)
        actions, rewards = actions[order], rewards[order]
    return sc.BanditLog.from_arrays(actions, rewards, np.full(n, 1 / n_actions), **columns), clicks


SETTINGS = st.fixed_dictionaries(
    {
        "n_states": st.sampled_from([1, 2, 3, 6, "auto"]),
        "rewards": st.sampled_from(EMISSIONS),
        "ridge": st.sampled_from(["auto", 0.0, 5.0]),
        "prior_segments": st.sampled_from([0.0, 1.0]),
        "initial": st.sampled_from(["free", "stationary"]),
        "expected_stay": st.sampled_from(["auto", 1.5, 1e6]),
    }
)


UNHURRIED = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "derandomize": True,
}
SMALL = logs(st.sampled_from([1, 2, 3, 7, 30, 90]), st.integers(1, 4), st.sampled_from([None, "shared", "per action"]))
# Sums are made of 128 rounds side by side and kept of 256; features are taken by fours, and from 16 on in blocks.
WIDE = logs(st.sampled_from([255, 257, 300]), st.integers(17, 20), st.sampled_from(["shared", "per action"]))


def fitted_or_refused_for_its_states(log, clicks, asked):
    """One state, and as many as there are, every log can hold that has a reward."""
    if asked["rewards"] == "bernoulli" and not clicks:
        asked = asked | {"rewards": "auto"}
    can_hold = asked["n_states"] in (1, "auto") and np.isfinite(log.rewards).any()
    (fitted if can_hold else fitted_or_refused)(log, **asked)


@settings(max_examples=examples(160), **UNHURRIED)
@given(SMALL, SETTINGS)
def test_no_log_breaks_the_oracle(made, asked):
    fitted_or_refused_for_its_states(*made, asked)


@settings(max_examples=examples(25), **UNHURRIED)
@given(WIDE, SETTINGS)
def test_no_log_of_many_features_and_several_blocks_of_rounds_breaks_the_oracle(made, asked):
    fitted_or_refused_for_its_states(*made, asked | {"restarts": 1, "max_iterations": 5})


@pytest.mark.filterwarnings("error", "ignore::seachange.errors.SeachangeWarning")
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 10))])
def test_tiny_rare_features_do_not_matter_without_a_ridge(seed):
    g = np.random.default_rng(seed)
    n = 90
    rewards = np.where(g.random(n) < 0.8, np.nan, 2e-12 * g.random(n))
    log = sc.BanditLog.from_arrays(
        np.zeros(n), rewards, np.ones(n), action_features=1e-8 * g.normal(size=(n, 1, 1)), missing_rewards=True
    )
    oracle = sc.HMMOracle(n_states=6, ridge=0.0, prior_segments=0.0, expected_stay=1.5).fit(log)
    assert np.isfinite(oracle.model_.reward_coefs).all()
