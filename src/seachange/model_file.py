"""Model files: one zip of a manifest and plain arrays, safe to load from a stranger."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from seachange.archive import Arrays, read_archive, write_archive
from seachange.errors import ModelFileError, ParameterError
from seachange.log.features import FeatureSpec, Hashed, Number
from seachange.log.joint import JointFeatures
from seachange.log.validation import LARGEST
from seachange.migrations import SCHEMA, migrated
from seachange.params import Params
from seachange.policies.choice import AutoLearner, Choice
from seachange.policies.learners import LEARNERS
from seachange.policies.per_state import PolicySet
from seachange.policies.softmax import SoftmaxPolicy
from seachange.policies.tabular import TabularPolicy
from seachange.policies.tabular_learner import TabularLearner
from seachange.protocols import Ints, Policy, PolicyLearner, StateOracle
from seachange.provenance import Provenance
from seachange.states.change_point import ChangePointOracle, Segmentation, Statistic
from seachange.states.hmm import HMMOracle, HMMReport
from seachange.states.labels import KnownStates, SingleState, StateLabels
from seachange.states.switching import Rewards, SwitchingRegression

# The arrays of a change-point oracle's Segmentation, by field; states that no segment was left for are NaN.
CUT_ARRAYS = (
    "windows", "change_points", "p_values", "low", "high", "segment_starts", "segment_values", "segment_states",
    "state_values", "state_coefs", "state_precisions", "state_rounds", "noise_variances",
)  # fmt: skip
MAY_BE_NAN = ("cut_state_values", "cut_state_coefs", "cut_p_values")
LEARNER_KINDS: dict[str, Any] = {
    learner.__name__: learner for learner in (AutoLearner, *LEARNERS.values(), TabularLearner)
}
# The arrays of a table, by field.
TABLE_ARRAYS = ("contexts", "masks", "probs", "fallback")


@dataclass(frozen=True, eq=False, repr=False)
class ModelParts:
    """What a model file holds."""

    policies: PolicySet
    oracle: StateOracle
    labels: StateLabels
    learner: PolicyLearner
    provenance: Provenance
    choice: Choice | None = None  # where the objective was chosen: by what
    features: FeatureSpec | None = None  # how raw columns become features; None where the log came of arrays

    @property
    def n_states(self) -> int:
        """L."""
        return len(self.policies)


def write_parts(model: ModelParts, path: str | Path) -> None:
    """Write ``model`` to one file."""
    oracle, arrays = _oracle_part(model.oracle)
    if type(model.learner) not in LEARNER_KINDS.values() or not isinstance(model.learner, Params):
        raise ParameterError(
            f"a model file knows the learners {', '.join(LEARNER_KINDS)}, not {type(model.learner).__name__}."
        )
    policies = _policy_arrays(model.policies)
    states = model.labels.states
    starts = np.flatnonzero(np.diff(states, prepend=-1))
    packages = {name: version(name) for name in ("seachange", "numpy", "numba")}
    manifest = _Manifest(
        schema=SCHEMA,
        versions={"python": platform.python_version(), **packages},
        provenance=model.provenance,
        oracle=oracle,
        learner=_Part.of(model.learner),
        expected_stay=model.policies.expected_stay,
        n_states=model.n_states,
        n_chains=model.labels.n_chains,
        choice=model.choice,
        features=model.features,
    )
    arrays |= policies | {
        "segment_starts": starts,
        "segment_states": states[starts],
        "change_points": model.labels.change_points,
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
    choice: Choice | None = None
    features: FeatureSpec | None = None


def read_parts(path: str | Path) -> ModelParts:
    """What ``write_parts`` wrote; a file from a stranger is safe to read."""
    try:
        return _restored(*read_archive(path, _require_schema))
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be loaded: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, MemoryError) as error:
        raise ModelFileError(f"{str(path)!r} does not hold what a model needs: {error}.") from error


class Written(msgspec.Struct, frozen=True):
    """By what a model file was written."""

    schema: int
    versions: dict[str, str]


def read_written(path: str | Path) -> Written:
    """By what the model file at ``path``, which can be read, was written."""
    return msgspec.json.decode(read_archive(path, _require_schema)[0], type=Written)


def _require_schema(encoded: bytes) -> None:
    schema = msgspec.json.decode(encoded, type=dict[str, Any]).get("schema")
    if not isinstance(schema, int):
        raise ModelFileError("its manifest has no schema version.")
    if schema > SCHEMA:
        raise ModelFileError(f"its schema is {schema} and this Seachange knows {SCHEMA}; upgrade Seachange.")


def _restored(encoded: bytes, arrays: Arrays) -> ModelParts:
    manifest = msgspec.convert(migrated(msgspec.json.decode(encoded), arrays), _Manifest)
    for name, array in arrays.items():
        if array.dtype.kind not in "if" or (name not in MAY_BE_NAN and not np.isfinite(array).all()):
            raise ModelFileError(f"{name} must hold finite numbers.")
    provenance = manifest.provenance
    joint, n_states = provenance.joint, manifest.n_states
    policies = _restored_policies(arrays, joint, n_states)
    _require_range("segment_states", arrays["segment_states"], 0, n_states)
    _require_range("change_points", arrays["change_points"], 1, provenance.n_rounds)
    if len(provenance.action_names) != joint.n_actions or len(provenance.context_names) != joint.n_features:
        raise ModelFileError("action_names and context_names must name every action and feature.")
    _require_features(manifest.features, provenance)
    lengths = np.diff(arrays["segment_starts"], append=provenance.n_rounds)
    states = np.repeat(arrays["segment_states"], lengths)
    _require_shape("segments", states, (provenance.n_rounds,))
    return ModelParts(
        policies=PolicySet(policies, manifest.expected_stay),
        oracle=_restored_oracle(manifest.oracle, arrays, joint, states, n_states),
        labels=StateLabels(
            states,
            n_states,
            arrays["change_points"],
            manifest.n_chains,
            from_rewards=manifest.oracle.kind in ("HMMOracle", "ChangePointOracle"),
        ),
        learner=LEARNER_KINDS[manifest.learner.kind](**manifest.learner.hyperparameters()),
        provenance=provenance,
        choice=manifest.choice,
        features=manifest.features,
    )


def _policy_arrays(policies: PolicySet) -> Arrays:
    """Softmax policies as one array of coefficients, or tables as four arrays each."""
    coefs = [policy.coefs for policy in policies if isinstance(policy, SoftmaxPolicy)]
    if len(coefs) == len(policies):
        return {"policies": np.stack(coefs)}
    arrays: Arrays = {}
    for state, policy in enumerate(policies):
        if not isinstance(policy, TabularPolicy):
            raise ParameterError("a model file holds softmax policies, or tables; this model has others.")
        arrays |= {f"table_{state}_{name}": getattr(policy, name) for name in TABLE_ARRAYS}
        arrays[f"table_{state}_masks"] = policy.masks.astype(np.int8)
    return arrays


def _restored_policies(arrays: Arrays, joint: JointFeatures, n_states: int) -> tuple[Policy, ...]:
    if "table_0_probs" not in arrays:
        _require_shape("policies", arrays["policies"], (n_states, *joint.shape))
        return tuple(SoftmaxPolicy(coefs, joint) for coefs in arrays["policies"])
    tables = []
    width = joint.n_features * (joint.n_actions if joint.kind == "per action" else 1)
    for state in range(n_states):
        part = {name: arrays[f"table_{state}_{name}"] for name in TABLE_ARRAYS}
        n_rows = len(part["probs"])
        shapes = {"contexts": (n_rows, width), "masks": (n_rows, joint.n_actions), "probs": (n_rows, joint.n_actions)}
        for name, shape in {**shapes, "fallback": (joint.n_actions,)}.items():
            _require_shape(f"table_{state}_{name}", part[name], shape)
        for name in ("probs", "fallback"):
            if (part[name] < 0).any() or (np.abs(part[name].sum(axis=-1) - 1) > 1e-6).any():
                raise ModelFileError(f"table_{state}_{name} must hold probabilities that sum to 1.")
        tables.append(TabularPolicy(**(part | {"masks": part["masks"] != 0}), joint=joint))
    return tuple(tables)


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
    cut = Segmentation(
        statistic=msgspec.convert(part.learned["statistic"], Statistic),
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


def _require_features(features: FeatureSpec | None, provenance: Provenance) -> None:
    if features is None:
        return
    for feature in (*features.shared, *features.pool):
        if isinstance(feature, Number) and not (
            abs(feature.mean) <= LARGEST and 1 / LARGEST <= feature.scale <= LARGEST
        ):
            raise ModelFileError(f"features must have means and scales of at most {LARGEST:g} in size.")
    # Counted before any name is made: a small file may ask for very many.
    buckets = sum(feature.buckets for feature in (*features.shared, *features.pool) if isinstance(feature, Hashed))
    if buckets > provenance.joint.n_features:
        raise ModelFileError("features must make the contexts that the model was learned with.")
    ours = (features.n_features, features.action_names)  # counted first, for names may be many
    if ours != (provenance.joint.n_features, provenance.action_names) or (
        features.context_names != provenance.context_names
    ):
        raise ModelFileError("features must make the contexts and know the actions that the model was learned with.")


def _require_range(name: str, array: npt.NDArray[Any], low: int, end: int) -> None:
    if array.ndim != 1 or array.dtype.kind != "i" or (array < low).any() or (array >= end).any():
        raise ModelFileError(f"{name} must be a list of whole numbers from {low} to {end - 1}.")


def _require_shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ModelFileError(f"{name} has shape {array.shape}; it should be {shape}.")
