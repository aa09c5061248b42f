"""HMMOracle: fit a switching regression by EM, with an automatic number of states and alignment to an earlier fit."""

from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np

from seachange.engine import one_thread
from seachange.errors import NoChangeWarning, ParameterError, UnmatchedStatesWarning, warn
from seachange.log.bandit_log import BanditLog, require_log, require_rounds
from seachange.log.column_statistics import moments_of, skewness_of
from seachange.log.joint_features import JointFeatures
from seachange.params import Auto, Params, require, require_count
from seachange.protocols import Floats, Ints
from seachange.registry import ORACLES, Arrays, SavedPart
from seachange.states.hmm_fitting import SHORTEST_STAY, Fit, Fitter, Initial, squared_gaps
from seachange.states.labels import StateLabels, by_first_appearance, labels_from_states
from seachange.states.state_count import StateCount, choose_n_states
from seachange.states.switching_regression import Rewards, SwitchingRegression, bought, regression_of, state_rewards

# Restarts agree if their objectives differ by less than this per round.
SAME_OBJECTIVE = 1e-6
# One noise variance per state may increase the squared prediction error by at most this factor.
SAME_ERROR = 1.002
# Rewards with a larger skewness may be mistaken for several Gaussian states.
SKEWED = 1.0
# Smaller differences of BIC are not meaningful.
BIC_MARGIN = 2.0
BINARY_REWARDS = "Rewards coded as 0 or 1 (bought or not) often reveal states that skewed rewards hide"


@dataclass(frozen=True)
class Restart:
    """The result of EM from one initialization."""

    objective: float  # log-likelihood + log prior
    iterations: int
    converged: bool
    abandoned: bool  # stopped because it was too far behind the others


@dataclass(frozen=True, eq=False)
class HMMReport:
    """How the fit went."""

    log_likelihood: float
    bic: float  # lower is better
    single_state_bic: float  # the same for one state
    iterations: int  # total iterations of the best restart
    converged: bool
    objectives: tuple[float, ...]  # log-likelihood + log prior of the best restart, by iteration, with the final ridge
    restarts: tuple[Restart, ...]  # best first
    agreed: int  # restarts that reached the same objective as the best
    ridge: float  # ridge used, in rounds
    state_counts: tuple[StateCount, ...]  # evidence for each number of states tried


@dataclass(frozen=True, eq=False)
class _Learned:
    """What a model file holds of a fit, apart from arrays."""

    rewards: Rewards
    report: HMMReport | None  # None if the model has absorbed what a deployment learned


@ORACLES.register("hmm")
@dataclass(kw_only=True, eq=False, repr=False)
class HMMOracle(Params):
    """Fit a switching regression by EM and label each round by its smoothed posterior.

    r_t ~ N(β_z · f(x_t, a_t), σ²) with z_t a Markov chain, ẑ_t = argmax_z p(z_t = z | all rewards)

    States are numbered by first appearance in the log. With ``align_to``, states similar to those of an earlier fit
    keep their numbers, and new states get the remaining ones.
    """

    n_states: int | Auto = "auto"  # L; auto: the number that best predicts held-out rewards
    restarts: int = 4  # initializations of EM; more are slower but less likely to miss the best fit
    expected_stay: float | Auto = "auto"  # prior guess of rounds per segment; auto: 100, or less in a short log
    prior_segments: float = 1.0  # weight of that guess, in segments; 0 also allows states of less than 10 rounds
    rewards: Rewards | Auto = "auto"  # reward distribution; auto: by the rewards of the log
    initial: Initial = "free"  # P_0: a free parameter, or the stationary distribution of Φ
    ridge: float | Auto = "auto"  # shrinkage of states toward one common fit, in rounds; auto: by marginal likelihood
    tolerance: float = 1e-8  # EM stops when an iteration gains less log-likelihood per round
    max_iterations: int = 200  # of EM
    align_to: Any = None  # an earlier model or oracle; similar states keep its numbers
    seed: int = 0  # for the initializations
    workers: int = 1  # threads; results do not depend on it

    @one_thread()
    def fit(self, log: BanditLog) -> Self:
        """Learn ``model_`` and ``report_``; warn if one state explains the log as well."""
        self._check(log)
        rewards, seen = state_rewards(log, self.rewards), log
        if rewards == "hurdle":
            rewards, seen = "bernoulli", bought(log)
        fitter = Fitter.of(seen, rewards, self)
        counts: tuple[StateCount, ...] = ()
        if self.n_states == "auto":
            fit, counts = choose_n_states(seen, fitter)
            single_state_bic = counts[0].bic
        else:
            fit = fitter.fit(self.n_states)
            single_state_bic = fitter.fit(1).bic
        if self.rewards == "auto" and fit.model.rewards == "gaussian" and fit.model.n_states > 1:
            fit = self._noise_chosen(log, fitter, fit)
        run, model = fit.run, fit.model
        states = model.likeliest_states(seen)
        if self.align_to is None:
            order = by_first_appearance(states, model.n_states)
        else:
            order = aligned_order(
                regression_of(self.align_to, "align_to must be"), model, states, run.statistics.grams.sum(axis=0)
            )
        model = model.reordered(order)
        self.model_: SwitchingRegression = model if seen is log else SwitchingRegression.of_purchases(model, log)
        best, rounds = fit.runs[0].objective, moments_of(log.arrays.rewards).n_seen
        self.report_ = HMMReport(
            log_likelihood=run.log_likelihood,
            bic=fit.bic,
            single_state_bic=single_state_bic,
            iterations=fit.iterations,
            converged=run.converged,
            objectives=run.objectives,
            restarts=tuple(Restart(r.objective, r.iterations, r.converged, r.abandoned) for r in fit.runs),
            agreed=sum(best - r.objective <= SAME_OBJECTIVE * rounds for r in fit.runs),
            ridge=fit.ridge,
            state_counts=counts,
        )
        self._warn(log)
        return self

    def _noise_chosen(self, log: BanditLog, fitter: Fitter, fit: Fit) -> Fit:
        """One noise variance per state if BIC prefers it and it predicts rewards as well, else a common one."""
        other = fitter.with_noise_per_state(fit)
        errors = [moments_of(each.model.predict_rewards(log) - log.arrays.rewards) for each in (fit, other)]
        one, each = (error.variance + error.mean**2 for error in errors)
        return other if other.bic < fit.bic and each <= SAME_ERROR * one else fit

    def _warn(self, log: BanditLog) -> None:
        """Warn if there is no evidence of change, or if a state is implausibly short."""
        report, model, shortest = self.report_, self.model_, float(self.model_.expected_stays.min())
        one = model.n_states == 1 if self.n_states == "auto" else report.bic >= report.single_state_bic
        if self.n_states != 1 and one:
            warn(self._no_evidence(log), stacklevel=4, category=NoChangeWarning)
        elif self.n_states != "auto" and round(shortest, 1) <= SHORTEST_STAY:
            skewed = f"The rewards are skewed, which can cause this. {BINARY_REWARDS}."
            warn(
                f"a state lasts only {shortest:.1f} rounds on average: it probably fits the noise of single rewards "
                f"rather than a change. {skewed if self._skewed(log) else 'Use fewer states.'}",
                stacklevel=4,
            )

    def _skewed(self, log: BanditLog) -> bool:
        return not self.model_.clicks and abs(skewness_of(log.arrays.rewards)) > SKEWED

    def predict(self, log: BanditLog) -> StateLabels:
        """Label every round of ``log`` by the smoothed posterior of the fitted model."""
        require_log(log, "an oracle")
        posteriors = self.model_.smooth(log)
        states = np.argmax(posteriors, axis=1)
        return labels_from_states(states, self.model_.n_states, log, posteriors, from_rewards=True)

    def saved_params(self) -> dict[str, Any]:
        """All but the earlier model that states were aligned to, and the threads of this machine."""
        return self.get_params() | {"align_to": None, "workers": 1}

    def learned(self) -> tuple[_Learned, Arrays]:
        """The fitted model and the report."""
        return _Learned(self.model_.rewards, getattr(self, "report_", None)), self.model_.saved_arrays()

    @classmethod
    def restore(cls, part: SavedPart, joint: JointFeatures, labels: StateLabels) -> Self:
        """The fitted oracle that a model file holds."""
        oracle, learned = part.restored(cls), part.learned(_Learned)
        oracle.model_ = SwitchingRegression.restore(part, joint, labels.n_states, learned.rewards)
        if learned.report is not None:
            oracle.report_ = learned.report
        return oracle

    def absorbing(self, model: SwitchingRegression) -> Self:
        """An oracle of ``model``, in which this one's states have gone on learning; it has no ``report_``."""
        oracle = self.clone()
        if oracle.n_states != "auto":
            oracle.n_states = model.n_states
        oracle.model_ = model
        return oracle

    def _no_evidence(self, log: BanditLog) -> str:
        report, tried = self.report_, self.report_.state_counts[1:]
        if self.n_states != "auto":
            better = report.bic > report.single_state_bic + BIC_MARGIN
            return (
                f"no evidence of change: one state explains the log {'better than' if better else 'as well as'} "
                f"{self.model_.n_states} (BIC {report.single_state_bic:,.1f} and {report.bic:,.1f}; lower is better)."
            )
        if not tried:
            return "no evidence of change: the log is too short or too uniform for more than one state."
        gains = ", ".join(
            f"{count.n_states}: {round(count.gain, 1) + 0.0:+} ± {count.gain_error:.1f}" for count in tried
        )
        text = f"no evidence of change: more states hardly predict held-out rewards better (log-likelihood {gains})."
        lowest = min(tried, key=lambda count: count.bic)
        if lowest.bic < report.single_state_bic - BIC_MARGIN and self._skewed(log):
            text += (
                f" BIC is lower nevertheless ({lowest.bic:,.1f} with {lowest.n_states} states, "
                f"{report.single_state_bic:,.1f} with one) because the rewards are skewed: states would fit the noise "
                f"of single rewards. {BINARY_REWARDS}."
            )
        return text

    def _check(self, log: BanditLog) -> None:
        require_rounds(log, "an oracle")
        for name in ("prior_segments", "ridge", "tolerance"):
            given = getattr(self, name)
            require((name == "ridge" and given == "auto") or given >= 0, f"{name} must be at least 0; got {given}.")
        for name, choices in (("rewards", ("auto", *get_args(Rewards))), ("initial", get_args(Initial))):
            given = getattr(self, name)
            require(given in choices, f"{name} must be one of {', '.join(choices)}; got {given!r}.")
        require_count("n_states", self.n_states, auto=True)
        for name in ("restarts", "max_iterations", "workers"):
            require_count(name, getattr(self, name))
        require(
            self.expected_stay == "auto" or self.expected_stay > 1,
            f"expected_stay must be more than 1 round; got {self.expected_stay}.",
        )
        n_seen = moments_of(log.arrays.rewards).n_seen
        require(n_seen > 0, "no round of the log has a reward. Check the reward column.")
        if self.n_states != "auto":
            rounds = f"{n_seen} round{'' if n_seen == 1 else 's'} with a reward"
            few = f"n_states={self.n_states} is too many for this log, which has {rounds}. Use fewer states."
            require(self.n_states <= n_seen, few)


def aligned_order(old: SwitchingRegression, new: SwitchingRegression, states: Ints, gram: Floats) -> Ints:
    """An order of the new states: first those that match an old state, in the old order, then the rest by appearance.

    The matching minimizes the total mean squared difference of predictions over the log with Gram matrices Σ f f' =
    ``gram`` (B, D, D); each old state has at most one match. ``states`` (n,) are those of the new fit. Numbers have no
    gaps: if an old state has no match, another state gets its number, with a warning.
    """
    from scipy.optimize import linear_sum_assignment

    if old.joint != new.joint:
        raise ParameterError(f"align_to was fitted with {old.joint}; the log has {new.joint}.")
    distances = squared_gaps(old.reward_coefs, new.reward_coefs, gram)
    rows, matched = linear_sum_assignment(distances)
    apart = squared_gaps(old.reward_coefs, old.reward_coefs, gram)
    np.fill_diagonal(apart, np.inf)
    # A match must be closer than any other old state.
    same = rows[distances[rows, matched] <= apart[rows].min(axis=1)]
    gone = np.setdiff1d(np.arange(old.n_states), same)
    if len(gone):
        warn(
            f"these states of the earlier model have no match in this log: {', '.join(map(str, gone))}. Their numbers "
            "may now refer to different states. To keep them, learn from the earlier log, too.",
            stacklevel=4,
            category=UnmatchedStatesWarning,
        )
    rest = [state for state in by_first_appearance(states, new.n_states) if state not in matched]
    return np.array([*matched, *rest], dtype=np.int64)
