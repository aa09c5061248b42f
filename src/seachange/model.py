"""SwitchingModel: what ``learn`` returns; save and load."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from seachange.archive import Arrays, read_archive, write_archive
from seachange.deploy.belief import BeliefDeployer
from seachange.deploy.exp4s import Exp4S
from seachange.deploy.posterior import PosteriorSampling
from seachange.deploy.single import SinglePolicy
from seachange.errors import ModelFileError, ParameterError
from seachange.log.bandit_log import BanditLog
from seachange.log.joint import JointFeatures
from seachange.log.readers import read_log
from seachange.log.validation import OnBadRows
from seachange.params import Params
from seachange.policies.learners import LEARNERS
from seachange.policies.per_state import PolicySet
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import Ints, PolicyLearner, StateOracle
from seachange.states.change_point import ChangePointOracle, Segmentation
from seachange.states.hmm import HMMOracle, HMMReport
from seachange.states.labels import KnownStates, SingleState, StateLabels, labels_from_states
from seachange.states.switching import Rewards, SwitchingRegression

DeployerKind = Literal["auto", "posterior", "exp4s"]
SCHEMA = 1
# The arrays of a change-point oracle's Segmentation, by field; states that no segment was left for are NaN.
CUT_ARRAYS = (
    "windows", "change_points", "p_values", "low", "high", "segment_starts", "segment_values", "segment_states",
    "state_values", "state_coefs", "state_precisions", "state_rounds", "noise_variances",
)  # fmt: skip
MAY_BE_NAN = ("cut_state_values", "cut_state_coefs")
LEARNER_KINDS = {learner.__name__: learner for learner in LEARNERS.values()}


@dataclass(frozen=True)
class Provenance:
    """The log a model was learned from."""

    fingerprint: str
    n_rounds: int
    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    mean_reward: float
    reward_range: tuple[float, float]  # (0, 1), or least to largest where rewards leave it
    time_range: tuple[str, str] | None

    @classmethod
    def of(cls, log: BanditLog) -> Provenance:
        """Provenance from ``log``."""
        rewards = log.arrays.rewards
        low, high = float(np.nanmin(rewards)), float(np.nanmax(rewards))
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        return cls(
            fingerprint=log.fingerprint(),
            n_rounds=len(log),
            joint=log.joint,
            action_names=log.action_names,
            context_names=log.context_names,
            mean_reward=float(np.nanmean(rewards)),
            reward_range=(low, high if high > low else low + 1.0),
            time_range=None if log.times is None else (str(log.times.min()), str(log.times.max())),
        )


@dataclass(frozen=True, eq=False, repr=False)
class SwitchingModel:
    """One policy per state, and the oracle that tells the states apart."""

    policies: PolicySet
    oracle: StateOracle
    labels: StateLabels
    learner: PolicyLearner
    provenance: Provenance

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.policies)

    def read_log(
        self,
        path: str | Path,
        columns: Mapping[str, str | Sequence[str]] | None = None,
        *,
        missing_rewards: bool = False,
        on_bad_rows: OnBadRows = "raise",
    ) -> BanditLog:
        """Read a log as the model's own was read: the same actions in the same order, the same columns as contexts."""
        return read_log(
            path,
            {"contexts": self.provenance.context_names, **(columns or {})},
            action_names=self.provenance.action_names,
            missing_rewards=missing_rewards,
            on_bad_rows=on_bad_rows,
        )

    def deployer(self, kind: DeployerKind = "auto") -> BeliefDeployer:
        """A deployer of the policies: posterior sampling where there is an HMM, else Exp4.S, unless ``kind`` says."""
        if kind == "auto":
            kind = "posterior" if isinstance(self.oracle, HMMOracle) else "exp4s"
            if kind == "exp4s" and self.n_states == 1:
                return SinglePolicy(self.policies[0])
        if kind == "posterior":
            if not isinstance(self.oracle, HMMOracle):
                raise ParameterError('kind="posterior" needs a model whose states an HMM found; use "exp4s".')
            return PosteriorSampling(self.policies, self.oracle.model_)
        if kind == "exp4s":
            return Exp4S(self.policies, reward_range=self.provenance.reward_range)
        raise ParameterError(f'kind must be "auto", "posterior" or "exp4s"; got {kind!r}.')

    def label_ahead(self, log: BanditLog) -> StateLabels:
        """Label ``log`` by what was known before each reward where an HMM can say that; else as the oracle predicts.

        A value claim must not weigh rewards by states that were found with their help.
        """
        for what in ("action_names", "context_names"):
            ours, theirs = getattr(self.provenance, what), getattr(log, what)
            if ours != theirs:
                raise ParameterError(
                    f"{what} of the log are {', '.join(theirs)}; the model's are {', '.join(ours)}. "
                    "model.read_log reads a file as the model needs it."
                )
        if not isinstance(self.oracle, HMMOracle):
            return self.oracle.predict(log)
        probs = self.oracle.model_.forecast(log)
        return labels_from_states(np.argmax(probs, axis=1), self.n_states, log, probs)

    def __repr__(self) -> str:
        """Sizes at a glance."""
        oracle, log = type(self.oracle).__name__, self.provenance
        sizes = f"{len(log.action_names)} actions, {log.n_rounds:,} rounds"
        return f"SwitchingModel({self.n_states} states by {oracle}, {sizes})"

    def save(self, path: str | Path) -> None:
        """Write the model to one file; ``seachange.load`` reads it."""
        oracle, arrays = _oracle_part(self.oracle)
        if type(self.learner) not in LEARNER_KINDS.values() or not isinstance(self.learner, Params):
            raise ParameterError(
                f"a model file knows the learners {', '.join(LEARNER_KINDS)}, not {type(self.learner).__name__}."
            )
        coefs = [policy.coefs for policy in self.policies if isinstance(policy, SoftmaxPolicy)]
        if len(coefs) < self.n_states:
            raise ParameterError("a model file holds softmax policies; this model has others.")
        states = self.labels.states
        starts = np.flatnonzero(np.diff(states, prepend=-1))
        packages = {name: version(name) for name in ("seachange", "numpy", "numba")}
        manifest = _Manifest(
            schema=SCHEMA,
            versions={"python": platform.python_version(), **packages},
            provenance=self.provenance,
            oracle=oracle,
            learner=_Part.of(self.learner),
            expected_stay=self.policies.expected_stay,
            n_states=self.n_states,
            n_chains=self.labels.n_chains,
        )
        arrays |= {
            "policies": np.stack(coefs),
            "segment_starts": starts,
            "segment_states": states[starts],
            "change_points": self.labels.change_points,
        }
        write_archive(path, msgspec.json.format(msgspec.json.encode(manifest), indent=2), arrays)


class _Part(msgspec.Struct):
    kind: str
    params: dict[str, Any]
    learned: dict[str, Any] = {}

    @classmethod
    def of(cls, fitted: Params, learned: dict[str, Any] | None = None) -> _Part:
        """The part of the manifest that describes ``fitted``; JSON knows no infinity, so that is spelt out."""
        plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in fitted.get_params().items()}
        params = {name: "inf" if value == float("inf") else value for name, value in plain.items()}
        return cls(type(fitted).__name__, params, learned or {})

    def hyperparameters(self) -> dict[str, Any]:
        """What ``of`` was given."""
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in self.params.items()}
        return {name: float("inf") if value == "inf" else value for name, value in given.items()}


class _Manifest(msgspec.Struct):
    schema: int
    versions: dict[str, str]
    provenance: Provenance
    oracle: _Part
    learner: _Part
    expected_stay: float | None
    n_states: int
    n_chains: int


def load(path: str | Path) -> SwitchingModel:
    """Read a model that ``SwitchingModel.save`` wrote; a file from a stranger is safe to load."""
    try:
        return _restored(*read_archive(path, _require_schema))
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be loaded: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, MemoryError) as error:
        raise ModelFileError(f"{str(path)!r} does not hold what a model needs: {error}.") from error


def _require_schema(encoded: bytes) -> None:
    schema = msgspec.json.decode(encoded, type=dict[str, Any]).get("schema")
    if not isinstance(schema, int):
        raise ModelFileError("its manifest has no schema version.")
    if schema > SCHEMA:
        raise ModelFileError(f"its schema is {schema} and this Seachange knows {SCHEMA}; upgrade Seachange.")


def _restored(encoded: bytes, arrays: Arrays) -> SwitchingModel:
    manifest = msgspec.json.decode(encoded, type=_Manifest)
    for name, array in arrays.items():
        if array.dtype.kind not in "if" or (name not in MAY_BE_NAN and not np.isfinite(array).all()):
            raise ModelFileError(f"{name} must hold finite numbers.")
    provenance = manifest.provenance
    joint, n_states = provenance.joint, manifest.n_states
    _require_shape("policies", arrays["policies"], (n_states, *joint.shape))
    _require_range("segment_states", arrays["segment_states"], 0, n_states)
    _require_range("change_points", arrays["change_points"], 1, provenance.n_rounds)
    if len(provenance.action_names) != joint.n_actions or len(provenance.context_names) != joint.n_features:
        raise ModelFileError("action_names and context_names must name every action and feature.")
    lengths = np.diff(arrays["segment_starts"], append=provenance.n_rounds)
    states = np.repeat(arrays["segment_states"], lengths)
    _require_shape("segments", states, (provenance.n_rounds,))
    return SwitchingModel(
        policies=PolicySet(tuple(SoftmaxPolicy(coefs, joint) for coefs in arrays["policies"]), manifest.expected_stay),
        oracle=_restored_oracle(manifest.oracle, arrays, joint, states, n_states),
        labels=StateLabels(states, n_states, arrays["change_points"], manifest.n_chains),
        learner=LEARNER_KINDS[manifest.learner.kind](**manifest.learner.hyperparameters()),
        provenance=provenance,
    )


def _oracle_part(oracle: StateOracle) -> tuple[_Part, Arrays]:
    """What the manifest says of an oracle, and the arrays it learned."""
    if type(oracle) is HMMOracle:
        hmm = oracle.model_
        learned = {"rewards": hmm.rewards, "report": msgspec.to_builtins(oracle.report_)}
        arrays = {
            "hmm_initial_probs": hmm.initial_probs,
            "hmm_transition_matrix": hmm.transition_matrix,
            "hmm_reward_coefs": hmm.reward_coefs,
            "hmm_reward_precisions": hmm.reward_precisions,
            "hmm_noise_variances": hmm.noise_variances,
        }
        return _Part.of(oracle.clone().set_params(align_to=None), learned), arrays
    if type(oracle) is ChangePointOracle:
        cut = oracle.segmentation_
        learned = {"statistic": cut.statistic, "threshold": cut.threshold}
        return _Part.of(oracle, learned), {f"cut_{name}": getattr(cut, name) for name in CUT_ARRAYS}
    if type(oracle) in (KnownStates, SingleState):
        return _Part(type(oracle).__name__, {}), {}
    raise ParameterError(f"a model file knows this library's own oracles, not {type(oracle).__name__}.")


def _restored_oracle(part: _Part, arrays: Arrays, joint: JointFeatures, states: Ints, n_states: int) -> StateOracle:
    if part.kind == "HMMOracle":
        hmm = HMMOracle(**part.hyperparameters())
        model = SwitchingRegression(
            initial_probs=arrays["hmm_initial_probs"],
            transition_matrix=arrays["hmm_transition_matrix"],
            reward_coefs=arrays["hmm_reward_coefs"],
            reward_precisions=arrays["hmm_reward_precisions"],
            noise_variances=arrays["hmm_noise_variances"],
            joint=joint,
            rewards=msgspec.convert(part.learned["rewards"], Rewards),
        )
        _require_shape("hmm_initial_probs", model.initial_probs, (n_states,))
        _require_shape("hmm_transition_matrix", model.transition_matrix, (n_states, n_states))
        _require_shape("hmm_reward_coefs", model.reward_coefs, (n_states, *joint.shape))
        _require_shape("hmm_reward_precisions", model.reward_precisions, (n_states, *joint.shape, joint.shape[1]))
        _require_shape("hmm_noise_variances", model.noise_variances, (0 if model.rewards == "bernoulli" else n_states,))
        hmm.model_, hmm.report_ = model, msgspec.convert(part.learned["report"], HMMReport)
        return hmm
    if part.kind == "ChangePointOracle":
        change_point = ChangePointOracle(**part.hyperparameters())
        change_point.segmentation_ = _restored_segmentation(part, arrays, joint, n_states)
        return change_point
    if part.kind == "KnownStates":
        return KnownStates(states)
    if part.kind == "SingleState":
        return SingleState()
    raise ModelFileError(f"it has an oracle of an unknown kind, {part.kind!r}.")


def _restored_segmentation(part: _Part, arrays: Arrays, joint: JointFeatures, n_states: int) -> Segmentation:
    if "window" in part.learned:
        arrays = arrays | _first_segmentation(int(part.learned["window"]), arrays)
    cut = Segmentation(
        statistic=part.learned.get("statistic", "reward"),
        threshold=float(part.learned["threshold"]),
        **{name: arrays[f"cut_{name}"] for name in CUT_ARRAYS},
    )
    blocks = (1, 1) if cut.statistic == "reward" else joint.shape
    shapes = {
        "state_values": (n_states,),
        "state_coefs": (n_states, *blocks),
        "state_precisions": (n_states, *blocks, blocks[1]),
        "state_rounds": (n_states, blocks[0]),
        "noise_variances": blocks[:1],
        "segment_states": cut.segment_starts.shape,
        "segment_values": cut.segment_starts.shape,
        **dict.fromkeys(("p_values", "low", "high"), cut.change_points.shape),
    }
    for name, shape in shapes.items():
        _require_shape(f"cut_{name}", getattr(cut, name), shape)
    _require_range("cut_segment_states", cut.segment_states, 0, n_states)
    return cut


def _first_segmentation(window: int, arrays: Arrays) -> Arrays:
    """What files from before there were p-values and fits do not hold."""
    found, values = arrays["cut_change_points"], arrays["cut_state_values"]
    return {
        "cut_windows": np.array([window]),
        "cut_p_values": np.full(len(found), np.nan),
        "cut_low": found,
        "cut_high": found,
        "cut_segment_starts": np.append(0, found),
        "cut_state_coefs": values[:, None, None],
        "cut_state_precisions": np.zeros((len(values), 1, 1, 1)),
        "cut_state_rounds": np.zeros((len(values), 1)),
        "cut_noise_variances": np.ones(1),
    }


def _require_range(name: str, array: npt.NDArray[Any], low: int, end: int) -> None:
    if array.ndim != 1 or array.dtype.kind != "i" or (array < low).any() or (array >= end).any():
        raise ModelFileError(f"{name} must be a list of whole numbers from {low} to {end - 1}.")


def _require_shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ModelFileError(f"{name} has shape {array.shape}; it should be {shape}.")
