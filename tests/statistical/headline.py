"""Estimates of what a deployment earns, next to what it truly earns in simulated worlds."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

import seachange as sc
from seachange.learning import try_out
from statistical import other_worlds, worlds
from statistical.worlds import standard_error

COVERAGE, BIAS, FALSE_CLAIMS, NUMBERS = 0.92, 0.5, 0.05, 0.5  # least, most standard errors, most, least share of worlds
MOST_LOST = 0.01  # by choosing whether to switch
Z_95 = 1.959964
Z_99 = 2.326348  # one-sided: an estimator at a threshold is rejected in 1% of runs
TINY = 1e-9  # rounding

Record = dict[str, Any]
GENERATORS = {"main": worlds, "other": other_worlds}  # "other" shares no code with the one used in development


def measured(
    name: str,
    seed: int,
    *,
    fast: bool = False,
    switching: bool = False,
    repetitions: int = 300,
    generator: str = "main",
) -> Record:
    """Learn on the first rounds of a world, evaluate the deployment on the later ones, and simulate the truth.

    ``fast`` learns with the true number of states and a quick objective. ``switching`` also deploys a model that always
    switches.
    """
    world = GENERATORS[generator].make_world(name, seed)
    always = {"n_states": max(world.n_states, 2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # refusals are counted, the rest is for users
        started = time.perf_counter()
        model = sc.learn(world.first, **world.settings, **({**always, "objective": "dm"} if fast else {}))
        learned = time.perf_counter()
        try:
            estimate, refusal = sc.evaluate_deployment(world.later, model), None
        except sc.RefusedError as error:
            estimate, refusal = None, str(error)
        evaluated = time.perf_counter()
        record = compared(world, model, model.single, estimate, repetitions, generator)
        if switching:
            other = sc.learn(world.first, **always, **world.settings)
            found = GENERATORS[generator].true_values(world, other.deployer(), model.single, repetitions)
            record["switching"] = {"same": found.same.value, "fresh": found.fresh.value, "error": found.same.error}
            trial = model.trial or try_out(world.first, other)
            record["tried_gain"] = None if trial is None else trial.gain
    times = {"learn_seconds": learned - started, "evaluate_seconds": evaluated - learned}
    return record | {"refusal": refusal, **times, "seconds": time.perf_counter() - started}


def compared(world: Any, model: Any, single: Any, estimate: Any, repetitions: int, generator: str = "main") -> Record:
    """An estimate (None if it was refused) of the deployment of ``model`` and the truth."""
    truth = GENERATORS[generator].true_values(world, model.deployer(), single, repetitions)
    sizes = {"rounds": world.n_rounds, "actions": world.n_actions, "true_states": world.n_states}
    names = {"generator": generator, "family": world.family, "seed": world.seed}
    record = {**names, **sizes, "states": model.n_states, "estimate": None}
    if estimate is not None:
        parts = {"value": estimate, "single": estimate.single, "gain": estimate.gain}
        record["estimate"] = {
            name: {"value": float(each.value), "low": float(each.low), "high": float(each.high)}
            for name, each in parts.items()
        }
    record["truth"] = {
        "same": truth.same.value, "same_error": truth.same.error,
        "fresh": truth.fresh.value, "fresh_error": truth.fresh.error,
        "single_same": truth.single_same, "single_fresh": truth.single_fresh,
        "oracle_same": truth.oracle_same, "oracle_fresh": truth.oracle_fresh.value,
    }  # fmt: skip
    return record


@dataclass(frozen=True)
class Summary:
    """How good the estimates of some worlds are."""

    worlds: int
    numbers: int  # worlds in which the estimate was not refused; everything below is about them
    covered: int  # intervals that contain the value on the same rounds
    covered_fresh: int  # intervals that contain the value on fresh paths of states
    single_covered: int
    gain_covered: int
    bias: float  # mean of estimate - value on the same rounds
    bias_error: float  # standard error of the bias over worlds
    std_error: float  # mean of what the intervals say: half their width / 1.96
    width: float
    claimed_gain: float
    true_gain: float
    false_claims: int  # intervals of the gain above 0 although the true gain is not
    truth_error: float  # simulation error of the value, as a share of std_error
    seconds: float  # per world

    def shortfalls(self) -> list[str]:
        """Thresholds that are missed by more than chance explains."""
        n, found = self.numbers, []
        if n < max(NUMBERS * self.worlds, 2):
            return [f"{self.worlds - n} of {self.worlds} estimates were refused"]
        if binom.cdf(self.covered, n, COVERAGE) < 0.01:
            found.append(f"{self.covered} of {n} intervals contain the value; the target is {COVERAGE:.0%}")
        if abs(self.bias) - Z_99 * self.bias_error > BIAS * self.std_error:
            errors = f"standard error {self.std_error:.4g}"
            found.append(f"the bias is {self.bias:.4g} ± {self.bias_error:.2g}, above half of the {errors}")
        if binom.sf(self.false_claims - 1, n, FALSE_CLAIMS) < 0.01:
            found.append(f"{self.false_claims} of {n} claims of a gain are false; the limit is {FALSE_CLAIMS:.0%}")
        return found


def summarized(records: list[Record]) -> Summary:
    """The summary of some worlds."""
    numbers = [each for each in records if each["estimate"] is not None]
    estimates, truths = [each["estimate"] for each in numbers], [each["truth"] for each in numbers]

    def column(part: str, field: str) -> np.ndarray:
        return np.array([each[part][field] for each in estimates])

    def true(name: str) -> np.ndarray:
        return np.array([each[name] for each in truths])

    def covered(part: str, value: np.ndarray) -> int:
        slack = TINY * (1 + np.abs(value))
        return int(np.sum((column(part, "low") <= value + slack) & (value - slack <= column(part, "high"))))

    errors, gain = column("value", "value") - true("same"), true("same") - true("single_same")
    width = column("value", "high") - column("value", "low")
    some, many = len(numbers) > 0, len(numbers) > 1
    std_error = float(width.mean() / (2 * Z_95)) if some else np.nan
    false = (column("gain", "low") > TINY) & (gain <= TINY)
    return Summary(
        worlds=len(records), numbers=len(numbers),
        covered=covered("value", true("same")), covered_fresh=covered("value", true("fresh")),
        single_covered=covered("single", true("single_same")), gain_covered=covered("gain", gain),
        bias=float(errors.mean()) if some else np.nan, bias_error=standard_error(errors) if many else np.nan,
        std_error=std_error, width=float(width.mean()) if some else np.nan,
        claimed_gain=float(column("gain", "value").mean()) if some else np.nan,
        true_gain=float(gain.mean()) if some else np.nan, false_claims=int(false.sum()),
        truth_error=float(true("same_error").mean() / std_error) if some and std_error > 0 else np.nan,
        seconds=float(np.mean([each.get("seconds", np.nan) for each in records])),
    )  # fmt: skip


@dataclass(frozen=True)
class ChoiceSummary:
    """What models earn that chose whether to switch, that always switch, and that never do, on the same rounds."""

    worlds: int
    switched: int  # worlds in which the default deploys more than one state
    default: float
    switching: float
    single: float
    oracle: float  # of someone who knows the state
    regret: float  # mean of the better of switching and single, less the default
    worse_than_single: int  # worlds in which the default earns less, by more than simulation error
    worse_than_switching: int
    lost: int  # worlds in which the default earns less than the better of both by more than ``MOST_LOST``
    lost_errors: float  # the most that is lost in one of them, in standard errors of the gain that decided


def choice_summarized(records: list[Record]) -> ChoiceSummary:
    """The summary of worlds measured with ``switching``."""
    default, single, oracle, error = (
        np.array([each["truth"][name] for each in records])
        for name in ("same", "single_same", "oracle_same", "same_error")
    )
    switching, its_error = (np.array([each["switching"][name] for each in records]) for name in ("same", "error"))
    lost = np.maximum(switching, single) - default
    tried = [each.get("tried_gain") or (0, -np.inf, np.inf) for each in records]
    gain_errors = np.array([(high - low) / (2 * Z_95) for _, low, high in tried])
    gain_errors[gain_errors < TINY] = np.inf  # the policies of the states were the same: nothing was tried
    return ChoiceSummary(
        worlds=len(records), switched=sum(each["states"] > 1 for each in records), default=float(default.mean()),
        switching=float(switching.mean()), single=float(single.mean()), oracle=float(oracle.mean()),
        regret=float(lost.mean()), lost=int(np.sum(lost > MOST_LOST)),
        lost_errors=float(np.max((lost / np.maximum(gain_errors, TINY))[lost > MOST_LOST], initial=0.0)),
        worse_than_single=int(np.sum(default < single - 3 * error - TINY)),
        worse_than_switching=int(np.sum(default < switching - 3 * np.hypot(error, its_error) - TINY)),
    )  # fmt: skip
