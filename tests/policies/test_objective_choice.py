"""The objective is chosen on held-out time, and the choice is reported."""

import re
import warnings

import numpy as np
import pytest

import seachange as sc
from seachange.policies.objective_choice import choose_objective
from seachange.policies.reward_models import fit_rewards, reward_kind
from seachange.simulate import Clicks


def test_the_choice_is_the_best_on_held_out_time_and_gives_its_reason():
    log = Clicks(horizon=6000, click_rate=0.2).log(0)
    learner = sc.AutoLearner().fit(log)
    names = [candidate.name for candidate in learner.choice_.candidates]
    assert {"dm", "dm (least squares)", "cross-entropy"} <= set(names)
    assert len(set(names)) == len(names)
    values = [candidate.value for candidate in learner.choice_.candidates]
    assert values == sorted(values, reverse=True)
    assert learner.choice_.candidates[0].gap == 0
    taken = learner.choice_.candidates[names.index(learner.choice_.chosen)]
    assert taken.gap <= taken.gap_error
    assert learner.choice_.reason.startswith(f"{learner.choice_.chosen}. It is the ")
    assert "held-out blocks of time" in learner.choice_.reason
    # Values on held-out time are optimistic, so the reason has only their differences.
    for other in learner.choice_.candidates:
        gap = f"{other.name} {other.value - taken.value:+.2g}"
        assert (gap in learner.choice_.reason) == (other is not taken)


def test_the_simplest_of_equally_good_candidates_is_chosen():
    log = Clicks(horizon=900, click_rate=0.3, n_actions=3, n_features=2).log(0)
    same = {"first": sc.DMLearner(), "second": sc.DMLearner()}
    assert choose_objective(log, np.ones((900, 1)), candidates=same)[1].chosen == "first"
    log = Clicks(horizon=3000, click_rate=0.3, n_actions=3, n_features=2).log(0)
    hopeless = {"hopeless": sc.IPSLearner(temperature=1e6), "dm": sc.DMLearner()}
    choice = choose_objective(log, np.ones((3000, 1)), candidates=hopeless)[1]
    assert choice.chosen == "dm"
    assert "It is the best on" in choice.reason


def test_held_out_values_are_the_doubly_robust_ones_written_out():
    log = Clicks(horizon=900, click_rate=0.3, n_actions=3, n_features=2).log(0)
    _, choice = choose_objective(log, np.ones((900, 1)), n_folds=3, candidates={"ips": sc.IPSLearner(l2=0.1)})
    values = []
    for start in (0, 300, 600):
        held_out = log[start : start + 300]
        outside = np.r_[0:start, start + 300 : 900]
        weights = np.isin(np.arange(900), outside).astype(float)
        policy = sc.IPSLearner(l2=0.1).fit(log, weights).policy_
        model = sc.DMLearner().fit(log, weights).reward_model_
        probs, predicted = policy.predict_proba(held_out.contexts), model.predict(held_out)
        chosen = np.arange(300), held_out.actions
        ratios = probs[chosen] / held_out.propensities
        values.append((probs * predicted).sum(axis=1) + ratios * (held_out.rewards - predicted[chosen]))
    assert choice.candidates[0].value == pytest.approx(np.concatenate(values).mean(), abs=1e-12)


def test_policies_are_learned_without_the_block_they_are_evaluated_on():
    """If rewards are pure noise, no candidate has a positive held-out value."""
    generator = np.random.default_rng(0)
    n = 3000
    contexts, actions = generator.normal(size=(n, 5)), generator.integers(5, size=n)
    log = sc.BanditLog.from_arrays(actions, generator.normal(size=n), np.full(n, 0.2), contexts=contexts)
    _, choice = choose_objective(log, np.ones((n, 1)))
    # The standard error of a value is about √5 / √n = 0.04; the best of seven is biased up a little.
    assert choice.candidates[0].value < 0.15


def test_each_state_is_evaluated_with_its_own_policy(make_log):
    log = make_log("none", n=1200)
    states = (6 * np.arange(1200) // 1200) % 2
    membership = (states[:, None] == np.arange(2)).astype(float)
    learner, choice = choose_objective(log, membership)
    pooled = choose_objective(log, np.ones((1200, 1)))[1]
    assert choice.candidates[0].value > pooled.candidates[0].value + 0.1
    assert "policy_" not in vars(learner)


def test_the_level_of_rewards_does_not_change_the_choice():
    log = Clicks(horizon=500, click_rate=0.3).log(0)
    low, high = (sc.AutoLearner().fit(log.with_rewards(log.rewards + level)).choice_ for level in (-0.5, 3.0))
    assert low.chosen == high.chosen
    assert [each.name for each in low.candidates] == [each.name for each in high.candidates]
    for one, other in zip(low.candidates, high.candidates, strict=True):
        assert one.value + 3.5 == pytest.approx(other.value, abs=1e-6)


@pytest.mark.filterwarnings("ignore:clip=20 is below")
def test_rare_actions_bring_clips_in():
    generator = np.random.default_rng(0)
    actions = generator.choice(3, size=2000, p=[0.98, 0.01, 0.01])
    log = sc.BanditLog.from_arrays(actions, generator.random(2000), np.array([0.98, 0.01, 0.01])[actions])
    names = [candidate.name for candidate in sc.AutoLearner().fit(log).choice_.candidates]
    assert {"ips (clip 100)", "ips (clip 20)", "dr (clip 100)", "dr (clip 20)"} <= set(names)


def test_learn_chooses_by_default_and_the_model_file_remembers(make_log, tmp_path):
    log = make_log("shared", n=1200)
    model = sc.learn(log, oracle="none")
    assert model.choice is not None
    assert type(model.learner).__name__ in ("DMLearner", "CrossEntropyLearner", "IPSLearner", "DRLearner")
    model.save(tmp_path / "model.seachange")
    assert sc.load(tmp_path / "model.seachange").choice == model.choice
    assert sc.learn(log, oracle="none", objective="ips").choice is None


def test_one_block_cannot_be_held_out(make_log):
    with pytest.raises(ValueError, match="n_folds must be at least 2"):
        sc.AutoLearner(n_folds=1).fit(make_log("none"))


def test_a_simpler_candidate_within_one_standard_error_beats_the_best():
    log = Clicks(horizon=900, click_rate=0.3, n_actions=3, n_features=2).log(0)
    near = {"plain": sc.DMLearner(ridge=100.0), "best": sc.DMLearner(ridge=1.0)}
    choice = choose_objective(log, np.ones((900, 1)), candidates=near)[1]
    assert choice.candidates[0].name == "best"
    plain = choice.candidates[1]
    assert 0 < plain.gap < plain.gap_error
    assert choice.chosen == "plain"
    assert "simplest within one standard error of the best, best" in choice.reason


def test_a_tiny_propensity_does_not_decide():
    log = Clicks(horizon=3000, click_rate=0.3, n_actions=3, n_features=2).log(0)
    propensities = log.propensities.copy()
    propensities[7] = 1e-6
    columns = log.actions, log.rewards, propensities
    choice = sc.AutoLearner().fit(sc.BanditLog.from_arrays(*columns, contexts=log.contexts)).choice_
    assert all(0 < candidate.value < 1 for candidate in choice.candidates)
    assert all(candidate.gap_error < 0.1 for candidate in choice.candidates)


def test_candidates_are_learned_as_they_are_deployed_with_states_shrunk_toward_the_whole(make_log):
    log = make_log("shared", n=900)
    membership = np.zeros((900, 2))
    membership[:860, 0], membership[860:, 1] = 1.0, 1.0
    _, choice = choose_objective(log, membership, candidates={"ips": sc.IPSLearner(l2=0.1)})
    blocks, values = [slice(0, 300), slice(300, 600), slice(600, 900)], np.zeros(900)
    for block in blocks:
        outside = membership.copy()
        outside[block] = 0.0
        pooled = sc.IPSLearner(l2=0.1).fit(log, outside.sum(axis=1))
        for z in range(2):
            own = sc.IPSLearner(l2=0.1).fit(log, outside[:, z], pooled) if outside[:, z].sum() > 0 else pooled
            model = fit_rewards(log, outside[:, z : z + 1], "auto", reward_kind(log, "auto"))[0]
            held_out, chosen = log[block], (np.arange(300), log.actions[block])
            probs, predicted = own.policy_.predict_proba(held_out.contexts), model.predict(held_out)
            ratios = probs[chosen] / held_out.propensities
            y = (probs * predicted).sum(axis=1) + ratios * (held_out.rewards - predicted[chosen])
            values[block] += membership[block, z] * y
    assert choice.candidates[0].value == pytest.approx(values.mean(), abs=1e-9)


def test_more_coefficients_than_rewarded_rounds_leave_only_simple_candidates():
    generator = np.random.default_rng(0)
    actions = generator.integers(400, size=1500)
    rewards = (generator.random(1500) < 0.05).astype(float)
    log = sc.BanditLog.from_arrays(actions, rewards, np.full(1500, 1 / 400), n_actions=400)
    choice = sc.AutoLearner().fit(log).choice_
    assert not any(candidate.name.startswith(("ips", "dr")) for candidate in choice.candidates)


@pytest.mark.parametrize("informed", [True, False])
def test_policies_that_earn_less_than_the_log_raise_a_warning(informed):
    rng = np.random.default_rng(0)
    n = 4_000
    hidden, followed = rng.integers(2, size=n), rng.random(n) < (0.95 if informed else 0.5)
    actions = np.where(followed, hidden, 1 - hidden)
    propensities = np.where(followed, 0.95, 0.05) if informed else np.full(n, 0.5)
    rewards, contexts = (actions == hidden).astype(float), rng.normal(size=(n, 2))
    log = sc.BanditLog.from_arrays(actions, rewards, propensities, contexts=contexts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose_objective(log, np.ones((n, 1)))
    messages = [str(each.message) for each in caught if "earns less than the logging policy did" in str(each.message)]
    assert len(messages) == informed
    # Without the hidden variable, any policy is right half of the time.
    assert not messages or float(re.search(r"did: ([\d.]+) vs\.", messages[0])[1]) == pytest.approx(0.5, abs=0.1)
