"""Sound logs of every kind: nothing is invented, and what is said of real logs is true of them."""

import numpy as np
import polars as pl
import pytest

import seachange as sc
from check.tables import TableLog, deployed_table, sound_table
from seachange.check import check_log
from seachange.errors import LogError

SEEDS = range(8)
WORLDS = {
    "table": lambda seed: TableLog(sound_table(seed)),
    "synthetic": lambda seed: sc.simulate.Synthetic(horizon=20_000, seed=seed).log(seed),
    "clicks": lambda seed: sc.simulate.Clicks(horizon=20_000, seed=seed).log(seed),
    "shop": lambda seed: sc.simulate.Shop(seed=seed).log(seed),
    "weekly": lambda seed: sc.simulate.Weekly(seed=seed).log(seed),
}
OPEN_BANDIT = {"action": "item_id", "reward": "click", "propensity": "propensity_score", "time": "timestamp"}
INSECTS = {"action": "action", "reward": "reward", "propensity": "propensity", "time": "timestamp"}


@pytest.mark.parametrize("world", WORLDS)
def test_nothing_is_found_in_worlds_that_are_sound(world):
    found = {seed: check_log(WORLDS[world](seed)) for seed in SEEDS}
    assert {seed: check.rules() for seed, check in found.items() if check.findings} == {}
    changes = {check.drift.changes for check in found.values()}
    assert changes == {world != "clicks"}  # the one world that does not change


def sparse_table(seed, n=20_000):
    """Sixty actions, most of them rare, propensities down to a hundred-thousandth, money for rewards."""
    rng = np.random.default_rng(seed)
    scores = np.linspace(0, 8, 60) + rng.normal(0, 1.5, (n, 60))
    probs = np.exp(scores - scores.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    actions = (probs.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    bought = rng.random(n) < 0.05
    return pl.DataFrame(
        {
            "action": actions,
            "reward": np.where(bought, rng.lognormal(2, 1.5, n), 0.0),
            "propensity": probs[np.arange(n), actions],
            "day": np.arange(n) * 30 // n,  # coarse: many rounds have the same
            "country": rng.integers(0, 5, n),
        }
    )


def test_rare_actions_small_propensities_and_money_are_not_defects():
    found = [check_log(TableLog(sparse_table(seed))).rules("warning", "error") for seed in SEEDS]
    # A few rounds with tiny propensities do outweigh the rest, where they were logged.
    assert set().union(*found) <= {"weak-support"}


@pytest.mark.parametrize("exploration", [0.05, 0.1])
def test_a_deployment_that_explores_leaves_a_sound_log(exploration):
    found = {seed: check_log(TableLog(deployed_table(seed, exploration))).rules() for seed in SEEDS}
    assert {seed: rules for seed, rules in found.items() if rules} == {}


def test_visitors_who_are_alike_are_not_duplicates():
    rng = np.random.default_rng(0)
    for seed in SEEDS:
        table = sound_table(seed).select("action", "reward", "propensity", pl.Series("hour", rng.integers(0, 3, 5_000)))
        assert check_log(TableLog(table.drop("propensity"))).rules() == {"no-propensities"}
        by_time = table.with_columns(time=pl.Series(np.arange(5_000) // 50), propensity=pl.lit(1.0))
        assert check_log(TableLog(by_time)).rules() == {"propensity-one"}


def test_nights_are_not_gaps():
    times = np.concatenate(
        [86_400 * day + np.sort(np.random.default_rng(day).uniform(0, 54_000, 500)) for day in range(10)]
    )
    table = sound_table().with_columns(time=pl.Series(1_700_000_000 + times))
    assert check_log(TableLog(table)).findings == ()


@pytest.mark.parametrize("policy", ["random", "bts"])
@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_the_open_bandit_sample_has_too_few_clicks_and_columns_that_never_change(data_file, policy, campaign):
    path = data_file(f"open_bandit/{policy}/{campaign}/{campaign}.csv")
    table = pl.read_csv(path, try_parse_dates=True)
    found = check_log(TableLog(table, OPEN_BANDIT))
    constant = {name for name in table.columns if "affinity" in name and table[name].n_unique() == 1}
    expected = {"few-rewards"} | ({"column-constant"} if constant else set())
    if (policy, campaign) == ("bts", "women"):  # one action was taken with a propensity of a millionth
        expected |= {"weak-support"}
        assert table["propensity_score"].min() == 1e-6
    assert found.rules() == expected
    assert found.worst == "warning"
    assert {name for each in found.findings if each.rule == "column-constant" for name in each.names} == constant
    assert found.rewards.n_rewarded == table["click"].sum()
    assert not found.drift.changes
    if policy == "random":
        assert found.propensities.inverse_sum == pytest.approx(table["item_id"].n_unique())


@pytest.mark.parametrize(("name", "states"), [("insects_recur", 12), ("usenet1", 3)])
def test_the_streams_of_two_regimes_are_sound_and_change(data_file, name, states):
    found = check_log(TableLog(pl.read_parquet(data_file(f"{name}.parquet")), INSECTS))
    assert found.findings == ()
    assert found.drift.changes
    assert found.learnability.most_states == states


def test_a_log_with_masks_and_features_of_actions_is_sound():
    rng = np.random.default_rng(0)
    mask = rng.random((3_000, 6)) < 0.7
    mask[:, 0] = True
    probs = mask / mask.sum(axis=1, keepdims=True)
    actions = (probs.cumsum(axis=1) > rng.random((3_000, 1))).argmax(axis=1)
    features = rng.normal(size=(3_000, 6, 3))
    rewards = (rng.random(3_000) < 0.3).astype(float)
    log = sc.BanditLog.from_arrays(
        actions,
        rewards,
        probs[np.arange(3_000), actions],
        action_features=features,
        action_mask=mask,
        logging_probs=probs,
    )
    found = check_log(log)
    assert found.findings == ()
    assert found.pool == (mask.sum(axis=1).min(), mask.sum(axis=1).max())
    assert found.actions[0].mean_weight == pytest.approx(1, abs=0.1)


def test_check_log_is_public_and_says_what_a_path_must_be():
    assert sc.check_log is check_log
    with pytest.raises(LogError):
        check_log("no such file.csv")
