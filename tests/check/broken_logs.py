"""Sound logs with one defect each: the rule that names it, and how it is planted."""

import numpy as np
import polars as pl

from check.tables import ITEMS, START, N, TableLog, deployed_table, logging_probs, sound_table, unreadable

ROWS = np.arange(100, 140)  # where single rounds are spoilt
BROKEN = {}


def planted(rule):
    def keep(plant):
        BROKEN[plant.__name__.replace("_", " ")] = (rule, plant)
        return plant

    return keep


def with_values(table, column, rows, values, dtype=None):
    """The table with other values at ``rows``."""
    old = table[column].cast(dtype) if dtype else table[column]
    given = values if isinstance(values, list) else [values] * len(rows)
    return table.with_columns(old.scatter(rows, given).alias(column))


def numbers(table, column):
    return table[column].to_numpy().copy()


@planted("unreadable-lines")
def lines_cut_short(table):
    return TableLog(table, rejected=unreadable(7, 19))


@planted("reward-missing")
def rewards_missing_here_and_there(table):
    return with_values(table, "reward", np.arange(50, N, 97), None)


@planted("reward-text")
def rewards_in_words(table):
    return with_values(table, "reward", ROWS, "bought", pl.String)


@planted("reward-infinite")
def infinite_rewards(table):
    return with_values(table, "reward", ROWS, float("inf"), pl.Float64)


@planted("reward-outliers")
def rewards_with_a_code_for_no_answer(table):
    return with_values(table, "reward", ROWS, 999)


@planted("reward-outliers")
def rewards_of_minus_one(table):
    return with_values(table, "reward", ROWS, -1)


@planted("reward-constant")
def only_rewarded_rounds(table):
    return table.with_columns(reward=pl.lit(1))


@planted("rewards-late")
def no_rewards_at_the_end_yet(table):
    late = np.arange(N) >= 0.9 * N
    return table.with_columns(reward=pl.Series(np.where(late, 0, numbers(table, "reward"))))


@planted("rewards-late")
def rewards_missing_at_the_end(table):
    return with_values(table, "reward", np.arange(int(0.9 * N), N), None)


@planted("action-missing")
def actions_missing(table):
    return with_values(table, "action", ROWS, None)


@planted("action-spelling")
def an_action_in_two_spellings(table):
    rows = np.flatnonzero(table["action"].to_numpy() == "boots")[::2]
    return with_values(table, "action", rows, "Boots ")


@planted("single-action")
def one_action(table):
    return table.with_columns(action=pl.lit("boots"), propensity=pl.lit(1.0))


@planted("many-actions")
def actions_that_are_measures(table):
    return table.with_columns(action=table["age"] * 7.3)


@planted("action-comes-and-goes")
def an_action_withdrawn(table):
    """The shop sells no more mugs after a third: their share goes to the others."""
    late = np.arange(len(table)) > len(table) // 3
    gone = late & (table["action"].to_numpy() == "mugs")
    kept = table.filter(pl.Series(~gone))
    late = late[~gone]
    probs = numbers(kept, "propensity")
    # What is left was chosen with the probability given that it is not a mug, by the logging policy of the table.
    whole, _ = logging_probs(np.random.default_rng(0), len(table))
    others = 1 - whole[~gone, ITEMS.index("mugs")]
    return kept.with_columns(propensity=pl.Series(np.where(late, probs / others, probs)))


@planted("propensity-missing")
def propensities_missing(table):
    return with_values(table, "propensity", ROWS, None)


@planted("propensity-zero")
def propensities_of_zero(table):
    return with_values(table, "propensity", ROWS, 0.0)


@planted("propensity-negative")
def propensities_below_zero(table):
    return with_values(table, "propensity", ROWS, -0.2)


@planted("propensity-above-one")
def propensities_above_one(table):
    return with_values(table, "propensity", ROWS, 1.7)


@planted("propensity-percent")
def propensities_in_percent(table):
    return table.with_columns(pl.col("propensity") * 100)


@planted("propensity-one")
def propensities_filled_in(table):
    return table.with_columns(propensity=pl.lit(1.0))


@planted("propensity-one")
def propensities_filled_in_after_a_release(table):
    late = np.arange(N) >= 0.7 * N
    return table.with_columns(propensity=pl.Series(np.where(late, 1.0, numbers(table, "propensity"))))


@planted("propensity-constant")
def propensities_taken_as_even(table):
    table = sound_table()
    favourite = np.random.default_rng(3).random(N) < 0.3
    return with_values(table, "action", np.flatnonzero(favourite), "boots").with_columns(propensity=pl.lit(0.2))


@planted("propensity-frequency")
def propensities_worked_out_afterwards(table):
    return table.with_columns(propensity=pl.len().over("action") / len(table))


@planted("propensity-calibration")
def propensities_of_another_action(table):
    """Those of the best action are logged, whatever was taken."""
    whole, _ = logging_probs(np.random.default_rng(0), len(table))
    return table.with_columns(propensity=pl.Series(whole.max(axis=1)))


@planted("weak-support")
def a_deployment_that_never_explores(table):
    return deployed_table(seed=0, exploration=0)


@planted("weak-support")
def a_deployment_that_took_nothing_but_its_favourites(table):
    return deployed_table(seed=0, exploration=0, certainty=1 - 1e-9)


@planted("no-propensities")
def no_propensities(table):
    return table.drop("propensity")


@planted("time-missing")
def times_missing(table):
    return with_values(table, "time", ROWS, None)


@planted("time-backwards")
def two_days_swapped(table):
    return pl.concat(
        [table[: N // 2 - 500], table[N // 2 : N // 2 + 500], table[N // 2 - 500 : N // 2], table[N // 2 + 500 :]]
    )


@planted("time-mixed-units")
def some_times_in_milliseconds(table):
    times = numbers(table, "time")
    times[3000:3400] *= 1000
    return table.with_columns(time=pl.Series(times))


@planted("time-future")
def a_clock_that_is_ahead(table):
    times = numbers(table, "time")
    times[ROWS] += 20 * 365 * 86_400
    return table.with_columns(time=pl.Series(times))


@planted("time-impossible")
def times_of_zero(table):
    return with_values(table, "time", ROWS, 0.0)


@planted("time-gap")
def a_week_without_rounds(table):
    times = numbers(table, "time")
    times[N // 2 :] += 7 * 86_400
    return table.with_columns(time=pl.Series(times))


@planted("duplicate-rounds")
def rounds_written_twice(table):
    order = np.sort(np.concatenate([np.arange(N), np.arange(0, N, 100)]))
    return table[order]


@planted("duplicate-rounds")
def a_block_written_twice_without_times(table):
    return pl.concat([table, table[1000:1400]]).drop("time")


@planted("repeated-event-ids")
def an_event_with_two_decisions(table):
    ids = np.arange(START, START + N)
    ids[200:3000:200] = ids[199:2999:200]
    return table.with_columns(event_id=pl.Series(ids))


@planted("column-constant")
def a_column_that_never_changes(table):
    return table.with_columns(country=pl.lit("GB"))


@planted("column-empty")
def an_empty_column(table):
    return table.with_columns(referrer=pl.lit(None, dtype=pl.String))


@planted("column-mostly-missing")
def a_column_that_is_mostly_missing(table):
    rng = np.random.default_rng(5)
    values = pl.Series(np.where(rng.random(N) < 0.1, rng.normal(size=N), np.nan)).fill_nan(None)
    return table.with_columns(score=values)


@planted("reward-leak")
def the_reward_in_another_column(table):
    rng = np.random.default_rng(6)
    return table.with_columns(purchase=table["reward"] * 10.0 + rng.normal(0, 0.01, N))


@planted("reward-leak")
def a_time_that_only_clicks_have(table):
    rng = np.random.default_rng(6)
    return table.with_columns(
        dwell=pl.when(pl.col("reward") == 1).then(pl.Series(rng.exponential(40, N))).otherwise(None)
    )


@planted("action-leak")
def the_price_of_what_was_shown(table):
    prices = {name: float(place) for place, name in enumerate(table["action"].unique().sort())}
    return table.with_columns(price=table["action"].replace_strict(prices, return_dtype=pl.Float64))


@planted("identifier")
def a_visitor_number(table):
    rng = np.random.default_rng(7)
    return table.with_columns(visitor=pl.Series([f"{number:08x}" for number in rng.integers(0, 1 << 32, N)]))


@planted("context-infinite")
def infinite_contexts(table):
    return with_values(table, "age", ROWS, float("inf"))


@planted("few-rewards")
def next_to_no_rewards(table):
    rewards = numbers(table, "reward")
    rewards[np.flatnonzero(rewards)[np.arange(rewards.sum()) % 60 > 0]] = 0
    return table.with_columns(reward=pl.Series(rewards))


@planted("few-rounds")
def a_handful_of_rounds(table):
    return table[:30]


@planted("no-rounds")
def nothing(table):
    return table[:0]


def broken_log(name):
    """The rule that names the defect, and the log that has it."""
    rule, plant = BROKEN[name]
    made = plant(sound_table())
    return rule, made if isinstance(made, TableLog) else TableLog(made)
