"""The value of a deployment that learns, estimated by replaying it on a log (replay, DR-ns)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.stats import t as student

from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.engine import stage
from seachange.errors import ParameterError
from seachange.evaluation.diagnostics import (
    LEAST_EFFECTIVE,
    Diagnostics,
    NoEstimateError,
    Reason,
    diagnostics_of,
    require_sound,
)
from seachange.evaluation.terms import FOLDS, CrossFit, Support, SupportSums, effective_samples, fit_across
from seachange.evaluation.value_estimate import FEWEST, ValueEstimate, require_evaluable
from seachange.kernels.replay_steps import Acceptance, Followed, LoggedRounds, accept_choice, largest_ratios
from seachange.log.bandit_log import BanditLog
from seachange.log.clusters import Clusters
from seachange.params import Auto, require, require_count
from seachange.protocols import Deployer, Floats

LEAST_ACCEPTED = int(LEAST_EFFECTIVE)  # the smallest number of accepted rounds, as for the effective sample size
QUANTILES = (0.001, 0.01, 0.05, 0.1)  # quantiles to suggest if too few rounds are accepted
MARGIN = 1.5  # a suggested setting must be expected to accept this many times the minimum, because replays vary
MOST_LISTED = 5  # actions listed in a message, at most
COMMON = 0.999  # the bound on ratios to suggest if the strict one accepts few rounds: this share of ratios is below it
WORTH_BOUNDING = 3.0  # how many times larger the strict bound must be for the other to be suggested
ROUNDING = 1e-9  # ratios that exceed their bound by less than this count as equal
NOTABLE_LOSS = 0.01  # share of a policy that may be missing from its history without a note
CHUNK_ROUNDS = 1 << 14
# Of the mean of five replays, per variance between them: what gave 95% coverage in simulations with clicks.
BELIEF_VARIANCE = 1.5

Method = Literal["replay", "dr-ns"]
Setting = tuple[str, float]  # a setting that would accept more rounds, in words, and the c it leads to


@dataclass(frozen=True, kw_only=True, repr=False)
class OnlineEstimate(ValueEstimate):
    """Mean reward per round of a deployment that learns from its rewards."""

    acceptance_rate: float  # share of the log's rounds whose reward the deployment saw
    n_accepted: int  # how many those are
    notes: tuple[str, ...] = ()  # caveats


def evaluate_online(
    log: BanditLog,
    deployer: Deployer,
    method: Method = "replay",
    *,
    bound: float | Auto = "auto",
    quantile: float = 0.001,
    highest_rate: float | Auto = "auto",
    repeats: int = 5,
    confidence: float = 0.95,
    force: bool = False,
    seed: int = 0,
) -> OnlineEstimate:
    """Estimate what ``deployer`` would have earned per round, had it made the decisions in ``log``.

    Round t is accepted with probability min{1, c π_t(a_t | x_t) / p_t}, where π_t is the deployer's distribution after
    the rounds so far. The deployer sees the rewards of accepted rounds; the others pass without a reward, so its belief
    ages but time does not stand still. It sees fewer rewards than a real deployment, and so switches later.

    replay  c = 1 / M; the mean reward of accepted rounds. ``bound`` is M: "auto" is the largest π / p under any belief,
            so that accepted rounds are distributed exactly as in a deployment. A lower bound accepts more: rounds above
            it count π / (M p) times, and the beliefs they lead to are approximate.
    dr-ns   Σ_t c_t R_t / Σ_t c_t with R_t = Σ_a π_t(a | x_t) r̂(x_t, a) + π_t(a_t | x_t) / p_t (r_t - r̂(x_t, a_t)), over
            all rounds (Dudík, Erhan, Langford, Li 2012). c_t is the smaller of ``highest_rate`` (c_max) and the
            ``quantile`` (q) of p / π in earlier rounds: a higher q gives longer but less exact histories. "auto" is the
            final c of a first replay with c_max = 1; without it, the first rounds, before any ratios are known, are
            accepted too often. r̂ is fitted on other blocks of time.

    The log is replayed ``repeats`` times with different random numbers, and the values are averaged. The standard error
    combines the noise of the rewards, given the beliefs, with the spread between replays that rewards do not explain.
    The interval is for the expected value over logs of the same regimes: new contexts, actions, and rewards, but the
    same states in the same rounds. If the log has sequences, each is a separate deployment and a cluster of rounds.

    Raises ``RefusedError`` if fewer than 30 rounds are accepted or the log cannot support the deployment's decisions;
    ``force`` returns an estimate anyway, with a warning, if at least 2 rounds are accepted.
    """
    require(method in ("replay", "dr-ns"), f'method must be "replay" or "dr-ns"; got {method!r}.')
    require(bound == "auto" or 1 <= bound < np.inf, f'bound must be "auto" or a number of at least 1; got {bound}.')
    require(0 <= quantile < 1, f"quantile must be in [0, 1); got {quantile}.")
    valid = highest_rate == "auto" or 0 < highest_rate < np.inf
    require(valid, f'highest_rate must be "auto" or positive; got {highest_rate}.')
    require_count("repeats", repeats)
    require_evaluable(log, confidence, "evaluating a deployment")
    rule = f"evaluate_online needs a deployer with init, act and update; got a {type(deployer).__name__}. "
    valid = isinstance(deployer, Deployer)
    require(valid, f"{rule}Wrap a policy in SinglePolicy(policy), or call model.deployer().")
    log, seeds = in_sequence(log), np.random.SeedSequence(seed).generate_state(repeats + 1).tolist()
    if method == "replay":
        return _replay(log, deployer, seeds[1:], bound, confidence, force)
    return _dr_ns(log, deployer, seeds, quantile, highest_rate, confidence, force)


def _replay(
    log: BanditLog, deployer: Deployer, seeds: list[int], bound: float | Auto, confidence: float, force: bool
) -> OnlineEstimate:
    ratios = ratio_bounds(log, deployer)
    # An observed ratio, not an interpolation, which might mix in an extreme one.
    common = max(float(np.quantile(ratios, COMMON, method="lower")), 1.0)
    largest = max(float(ratios.max()), 1.0)
    used = largest if bound == "auto" else bound
    replays, _ = follow(log, deployer, [acceptance_of(1 / used) for _ in seeds], seeds)
    text = f"pass bound={common:.3g} ({COMMON:.1%} of π / p are below it)"
    weights = replays.chosen / log.propensities
    require_sound(_diagnostics(log, replays, weights, [(text, 1 / common)] if common < used else []), force)
    counts, notes = np.where(replays.accepted, np.maximum(weights / used, 1.0), 0.0), _notes(replays, deployer)
    if bound == "auto" and used > WORTH_BOUNDING * common:
        few = f"A few π / p are up to {largest:.3g}, but {COMMON:.1%} are below {common:.3g}"
        notes.append(f"{few}: bound={common:.3g} accepts more rounds, but makes beliefs approximate.")
    exceeded = float((counts > 1 + ROUNDING).sum() / replays.accepted.sum())
    if exceeded > 0:
        above = f"{exceeded:.2%} of the accepted rounds have π / p above bound={used:.3g}"
        notes.append(f"{above}; they count more than once, and the beliefs after them are approximate.")
    return _estimate("replay", log, log.rewards, counts, counts, replays, notes, confidence)


def _dr_ns(
    log: BanditLog, deployer: Deployer, seeds: list[int], quantile: float, highest_rate: float | Auto,
    confidence: float, force: bool,
) -> OnlineEstimate:  # fmt: skip
    limit = np.inf if highest_rate == "auto" else highest_rate
    if highest_rate == "auto":
        first = acceptance_of(1.0, quantile, len(log))
        follow(log, deployer, [first], seeds[:1])
        highest_rate = float(first.rate[0])
    acceptances = [acceptance_of(highest_rate, quantile, len(log)) for _ in seeds[1:]]
    models = fit_across(log, np.ones((len(log), 1)), Clusters(log).folds(FOLDS))
    replays, predicted = follow(log, deployer, acceptances, seeds[1:], models)
    weights, rates = replays.chosen / log.propensities, replays.rates
    require_sound(_diagnostics(log, replays, weights, _looser_settings(weights, quantile, limit)), force)
    terms, notes = replays.direct + weights * (log.rewards - predicted), _notes(replays, deployer)
    lost = np.mean(np.maximum(rates * weights - 1, 0).sum(axis=1) / rates.sum(axis=1))
    if lost > NOTABLE_LOSS:
        missing = f"{lost:.1%} of its decisions are missing from its history, because the log rarely took those actions"
        notes.append(
            f"{missing}, so its beliefs are approximate. quantile=0 keeps them exact but accepts fewer rounds."
        )
    return _estimate("dr-ns", log, terms, rates, weights, replays, notes, confidence)


def _diagnostics(log: BanditLog, replays: Followed, weights: Floats, settings: list[Setting]) -> Diagnostics:
    """How well the log supports the deployment that was replayed on it.

    Its weights are c_t w_t over the mean of c, which average 1 if the log took all of the deployment's actions. If too
    few rounds are accepted, the refusal suggests the first of ``settings`` that helps, unless a few rounds have all of
    the weight. Raises if too few rounds are accepted even for ``force``.
    """
    counted = (replays.rates * weights).mean(axis=0) / replays.rates.mean()
    beyond, fewest = float(replays.beyond.mean()), int(replays.accepted.sum(axis=1).min())
    support = Support(counted, float(counted.max()), beyond, None if log.logging_probs is None else beyond)
    diagnostics = diagnostics_of(log, support, np.inf, clips=False)
    if fewest >= LEAST_ACCEPTED:
        return diagnostics
    few = Reason(
        "accepted rounds",
        f"Only {fewest} of {len(log):,} rounds are accepted for the deployment; at least {LEAST_ACCEPTED} are needed.",
        _fixes(log, replays, weights, settings if diagnostics.effective_samples >= LEAST_EFFECTIVE else []),
        {"accepted": fewest, "needed": LEAST_ACCEPTED},
    )
    reasons = (few, *diagnostics.refusals)
    if fewest < FEWEST:
        raise NoEstimateError(reasons, can_force=False)
    return replace(diagnostics, refusals=reasons)


def _looser_settings(weights: Floats, quantile: float, highest_rate: float) -> list[Setting]:
    ratios, settings = 1 / np.maximum(weights, 1e-300), []
    for higher in (quantile, *(each for each in QUANTILES if each > quantile)):
        rate = min(float(np.quantile(ratios, higher, method="inverted_cdf")), 1.0)
        changes = ['highest_rate="auto"'] if rate > highest_rate else []
        changes += [f"quantile={higher:g} (beliefs become less exact)"] if higher > quantile else []
        settings += [(f"pass {' and '.join(changes)}", rate)] if changes else []
    return settings


def _fixes(log: BanditLog, replays: Followed, weights: Floats, settings: list[Setting]) -> tuple[str, ...]:
    enough, accepted = MARGIN * LEAST_ACCEPTED, float(replays.accepted.sum(axis=1).mean())
    fixes = [text for text, rate in settings if np.minimum(rate * weights, 1).sum(axis=1).mean() >= enough][:1]
    if accepted > 0:
        fixes.append(f"use a log of about {enough / accepted * len(log):,.0f} rounds like these")
    never = np.flatnonzero(np.bincount(log.arrays.actions, minlength=log.n_actions) == 0)
    more = f" and {len(never) - MOST_LISTED} more" if len(never) > MOST_LISTED else ""
    listed = f" (it never took {', '.join(log.action_names[i] for i in never[:MOST_LISTED])}{more})"
    return tuple(fixes) or (f"use a deployment whose actions the log took{listed if len(never) else ''}",)


def _estimate(
    name: str, log: BanditLog, terms: Floats, counts: Floats, weights: Floats, replays: Followed, notes: list[str],
    confidence: float,
) -> OnlineEstimate:  # fmt: skip
    """The mean over replays of Σ_t count_t term_t / Σ_t count_t.

    Round t contributes e_ti = count_ti (term_ti - V_i) / Σ_t count_ti to the error of replay i, and ē_t to the error of
    the mean, so the standard error from rewards is √Σ ē_t². If replays differed only by their rewards, their variance
    would be Σ_ti (e_ti - ē_t)² / (replays - 1); any excess comes from their beliefs. The mean of the replays varies
    less than one of them, but replays of the same log also err alike, which the excess does not show: together, by
    ``BELIEF_VARIANCE`` times the excess.
    """
    totals, of_beliefs = counts.sum(axis=1, keepdims=True), 0.0
    values = (counts * terms).sum(axis=1) / totals[:, 0]
    errors = counts * (terms - values[:, None]) / totals
    mean_errors = errors.mean(axis=0)
    if len(values) > 1:
        explained = float(np.square(errors - mean_errors).sum()) / (len(values) - 1)
        of_beliefs = max(float(values.var(ddof=1)) - explained, 0.0)
    clusters, accepted = Clusters(log), float(replays.accepted.sum(axis=1).mean())
    # A single sequence has nothing to be compared with: its rounds are treated as independent.
    sums = clusters.sums(mean_errors) if len(clusters.sizes) > 1 else mean_errors
    degrees = min(len(sums), accepted) - 1
    of_rewards = float(sums @ sums) * (degrees + 1) / degrees
    value, effective = float(values.mean()), effective_samples(weights.mean(axis=0))
    error = float(np.sqrt(of_rewards + BELIEF_VARIANCE * of_beliefs)) if effective >= FEWEST else np.inf
    reach = float(student.ppf(0.5 + confidence / 2, degrees)) * error
    numbers = (value, error, value - reach, value + reach, effective, float(weights.max()))
    rate, n_accepted = accepted / len(log), round(accepted)
    return OnlineEstimate(
        name, *numbers, confidence=confidence, acceptance_rate=rate, n_accepted=n_accepted, notes=tuple(notes)
    )


def _notes(replays: Followed, deployer: Deployer) -> list[str]:
    """Caveats that apply to both methods."""
    notes, share = [], float(replays.accepted.mean())
    if not isinstance(deployer, BeliefDeployer):
        name = type(deployer).__name__
        notes.append(f"{name} ran round by round in Python; only deployers that hold a belief are compiled.")
    if not (isinstance(deployer, BeliefDeployer) and len(deployer.initial_belief) == 1):
        notes.append(
            f"The replayed deployment saw the rewards of only {share:.1%} of the rounds. A real one sees all of its "
            "rewards, so it notices changes earlier."
        )
    if len(replays.accepted) == 1:
        notes.append("With one replay, the interval ignores how values vary with beliefs; use repeats=2 or more.")
    return notes


def in_sequence(log: BanditLog) -> BanditLog:
    """The log sorted by sequence, in order of first appearance, each in time order."""
    places = Clusters(log).places
    if places is None or bool((np.diff(places) >= 0).all()):
        return log
    return log.take(np.argsort(places, kind="stable"))


def acceptance_of(highest: float, quantile: float = 0.0, n: int = 0) -> Acceptance:
    """c = ``highest`` in every round; with ``n`` rounds, at most the ``quantile`` of p / π in the rounds so far."""
    return Acceptance(np.array([highest]), highest, quantile, np.empty(n), np.empty(n), np.zeros(2, np.int64))


def follow(
    log: BanditLog,
    deployer: Deployer,
    acceptances: Sequence[Acceptance],
    seeds: Sequence[int],
    rewards: CrossFit | None = None,
) -> tuple[Followed, Floats]:
    """What ``deployer`` would have done in each round of ``log``, updated with the rounds accepted so far.

    The log must be ``in_sequence``; the deployer is reset at every sequence. There is one replay per acceptance, each
    with its own seed and a row in the arrays. Also returns r̂(x_t, a_t), (n,), which is 0 without ``rewards``.
    """
    n, shape, sums = len(log), (len(acceptances), len(log)), SupportSums(log)
    starts = np.zeros(n, dtype=bool) if log.sequences is None else log.sequences != np.roll(log.sequences, 1)
    starts[0] = True
    replays = Followed(np.empty(shape), np.zeros(shape), np.zeros(shape), np.empty(shape), np.empty(shape, dtype=bool))
    generators = [np.random.default_rng([seed, 5]) for seed in seeds]
    states: list[Any] = [None] * len(acceptances)
    chosen_rewards = np.zeros(n)
    fast = deployer if isinstance(deployer, BeliefDeployer) and deployer.kernels is not None else None
    with stage("Replaying the deployment on the log", n * len(acceptances)) as progress:
        for rounds in log.chunk_slices(CHUNK_ROUNDS):
            chunk, advice, predicted = log[rounds], np.empty((0, 0, 0)), np.zeros((1, log.n_actions))
            _, mask, actions, own_rewards, propensities = chunk.arrays
            logging = chunk.logging_probs
            beyond = sums.never_taken[None] if logging is None else (logging <= 0).astype(np.float64)
            if rewards is not None:
                predicted = rewards.predict(rounds)
                chosen_rewards[rounds] = predicted[np.arange(len(chunk)), actions]
            if fast is not None:
                advice = _advice(fast, rounds, sums)
            for i, acceptance in enumerate(acceptances):
                uniforms = generators[i].random(len(chunk))
                past = LoggedRounds(
                    starts[rounds], advice, mask, actions, own_rewards, propensities, uniforms, predicted, beyond
                )
                part = Followed(*(array[i, rounds] for array in replays))  # type: ignore[arg-type]
                if fast is not None:
                    states[i] = fast.live(fast.init()) if states[i] is None else states[i]
                    fast.follow(states[i], chunk.contexts, past, acceptance, part)
                else:
                    states[i], probs = _follow_by_hand(deployer, states[i], chunk, past, acceptance, part)
                    sums.add(rounds, probs)
                progress.advance(len(chunk))
    return replays, chosen_rewards


def ratio_bounds(log: BanditLog, deployer: Deployer) -> Floats:
    """(n,) the largest π_t(a_t | x_t) / p_t under any belief of ``deployer``; 1 / p_t if it has none or learns."""
    if not isinstance(deployer, BeliefDeployer) or deployer.learns:
        return np.asarray(1 / log.arrays.propensities)
    ratios, sums = np.zeros(len(log)), SupportSums(log)
    for rounds in log.chunk_slices(CHUNK_ROUNDS):
        _, mask, actions, _, propensities = log[rounds].arrays
        advice = _advice(deployer, rounds, sums)
        largest_ratios(advice, mask, deployer.exploration, actions, propensities, ratios[rounds])
    return ratios


def _advice(deployer: BeliefDeployer, rounds: slice, sums: SupportSums) -> Floats:
    """(m, L, K) the experts' advice in ``rounds``, each expert validated by ``sums``."""
    advice = deployer.logged_advice(sums.log[rounds])
    for state in range(advice.shape[1]):
        sums.add(rounds, np.ascontiguousarray(advice[:, state]))
    return advice


def _follow_by_hand(
    deployer: Any, state: Any, chunk: BanditLog, past: LoggedRounds, acceptance: Acceptance, replay: Followed
) -> tuple[Any, Floats]:
    """The same round by round for anything with ``init``, ``act`` and ``update``; also returns its probabilities."""
    contexts, masks, all_probs = chunk.contexts, chunk.action_mask, np.empty((len(chunk), chunk.n_actions))
    for t, action in enumerate(past.actions):
        if past.starts[t]:
            state = deployer.init()
        context = None if chunk.joint.kind == "none" else contexts[t]
        mask = None if masks is None else masks[t]
        decision = deployer.act(state, context, 0.5, mask)
        given, probs, reward = decision.probs, all_probs[t], None
        rule = f"decisions must have probs of shape {probs.shape}; got {np.shape(given)}."
        require(np.shape(given) == probs.shape, rule)
        probs[:] = given
        if accept_choice(t, probs, past, acceptance, replay):
            # A uniform in the middle of the action's share reproduces the logged action.
            decision = deployer.act(state, context, float(probs[:action].sum() + probs[action] / 2), mask)
            if decision.action != action:
                raise ParameterError(
                    f"{type(deployer).__name__} cannot be replayed: act() must choose the first action whose "
                    f"cumulative probability exceeds the uniform; it chose {decision.action} instead of {action}."
                )
            reward = float(past.rewards[t])
        state = deployer.update(state, decision, reward)
    return state, all_probs
