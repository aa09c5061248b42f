"""The model file: one zip of manifest.json and .npy arrays. Nothing in it is ever executed."""

from __future__ import annotations

import io
import platform
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from seachange.errors import ModelFileError, ParameterError
from seachange.log.joint import JointFeatures
from seachange.model import Provenance, SwitchingModel
from seachange.outputs import written_whole
from seachange.params import Params
from seachange.policies.learners import DRLearner, IPSLearner, POEMLearner
from seachange.policies.per_state import PolicySet
from seachange.policies.softmax import SoftmaxPolicy
from seachange.protocols import StateOracle
from seachange.states.change_point import ChangePointOracle, Segmentation
from seachange.states.hmm import HMMOracle, HMMReport
from seachange.states.labels import KnownStates, SingleState, StateLabels
from seachange.states.switching import SwitchingRegression

SCHEMA = 1
MANIFEST = "manifest.json"
ORACLES: dict[str, type[Params]] = {
    oracle.__name__: oracle for oracle in (HMMOracle, ChangePointOracle, KnownStates, SingleState)
}
LEARNERS: dict[str, type[Params]] = {learner.__name__: learner for learner in (IPSLearner, DRLearner, POEMLearner)}
Arrays = dict[str, npt.NDArray[Any]]


class _Part(msgspec.Struct):
    kind: str
    params: dict[str, Any]
    learned: dict[str, Any] = {}


class _Manifest(msgspec.Struct):
    schema: int
    versions: dict[str, str]
    provenance: Provenance
    oracle: _Part
    learner: _Part
    expected_stay: float | None
    n_states: int
    n_chains: int


def save_model(model: SwitchingModel, path: str | Path) -> None:
    """Write ``model`` to ``path``, whole or not at all."""
    oracle, arrays = _oracle_part(model.oracle)
    if type(model.learner).__name__ not in LEARNERS:
        raise ParameterError(f"a model file knows the learners {', '.join(LEARNERS)}, not {type(model.learner).__name__}.")
    if not all(isinstance(policy, SoftmaxPolicy) for policy in model.policies):
        raise ParameterError("a model file holds softmax policies; this model has others.")
    states = model.labels.states
    starts = np.flatnonzero(np.diff(states, prepend=-1))
    manifest = _Manifest(
        schema=SCHEMA,
        versions={"python": platform.python_version()} | {name: version(name) for name in ("seachange", "numpy", "numba")},
        provenance=model.provenance,
        oracle=oracle,
        learner=_Part(type(model.learner).__name__, model.learner.get_params()),  # type: ignore[attr-defined]
        expected_stay=model.policies.expected_stay,
        n_states=model.n_states,
        n_chains=model.labels.n_chains,
    )
    arrays |= {
        "policies": np.stack([policy.coefs for policy in model.policies]),  # type: ignore[attr-defined]
        "segment_starts": starts,
        "segment_states": states[starts],
        "change_points": model.labels.change_points,
    }
    with written_whole(path) as beside, zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", _npy(array))


def load(path: str | Path) -> SwitchingModel:
    """Read a model that ``SwitchingModel.save`` wrote; a file from a stranger is safe to load."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
    except FileNotFoundError as error:
        raise ModelFileError(f"there is no model file {str(path)!r}.") from error
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
        raise ModelFileError(f"{str(path)!r} is not a whole model file: {error}.") from error
    try:
        return _restored(content)
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be used: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ModelFileError(f"{str(path)!r} does not hold what a model needs: {error}.") from error


def _restored(content: Mapping[str, bytes]) -> SwitchingModel:
    if MANIFEST not in content:
        raise ModelFileError(f"it has no {MANIFEST}.")
    schema = msgspec.json.decode(content[MANIFEST], type=dict[str, Any]).get("schema")
    if not isinstance(schema, int):
        raise ModelFileError(f"its {MANIFEST} has no schema version.")
    if schema > SCHEMA:
        raise ModelFileError(f"its schema is {schema} and this Seachange knows {SCHEMA}; upgrade Seachange.")
    manifest = msgspec.json.decode(content[MANIFEST], type=_Manifest)
    arrays = {name.removesuffix(".npy"): _array(name, data) for name, data in content.items() if name != MANIFEST}
    provenance = manifest.provenance
    joint, n_states = provenance.joint, manifest.n_states
    _require_shape("policies", arrays["policies"], (n_states, *joint.shape))
    lengths = np.diff(arrays["segment_starts"], append=provenance.n_rounds)
    states = np.repeat(arrays["segment_states"], lengths)
    _require_shape("segments", states, (provenance.n_rounds,))
    return SwitchingModel(
        policies=PolicySet(tuple(SoftmaxPolicy(coefs, joint) for coefs in arrays["policies"]), manifest.expected_stay),
        oracle=_restored_oracle(manifest.oracle, arrays, joint, states),
        labels=StateLabels(states, n_states, arrays["change_points"], manifest.n_chains),
        learner=LEARNERS[manifest.learner.kind](**manifest.learner.params),  # type: ignore[arg-type]
        provenance=provenance,
    )


def _oracle_part(oracle: StateOracle) -> tuple[_Part, Arrays]:
    """What the manifest says of an oracle, and the arrays it learned."""
    if isinstance(oracle, HMMOracle):
        hmm = oracle.model_
        learned = {"noise_variance": hmm.noise_variance, "report": msgspec.to_builtins(oracle.report_)}
        arrays = {
            "hmm_initial_probs": hmm.initial_probs,
            "hmm_transition_matrix": hmm.transition_matrix,
            "hmm_reward_coefs": hmm.reward_coefs,
            "hmm_reward_precisions": hmm.reward_precisions,
        }
        return _Part("HMMOracle", oracle.get_params(), learned), arrays
    if isinstance(oracle, ChangePointOracle):
        cut = oracle.segmentation_
        learned = {"window": cut.window, "threshold": cut.threshold}
        arrays = {
            "cut_change_points": cut.change_points,
            "cut_segment_values": cut.segment_values,
            "cut_segment_states": cut.segment_states,
            "cut_state_values": cut.state_values,
        }
        return _Part("ChangePointOracle", oracle.get_params(), learned), arrays
    if isinstance(oracle, KnownStates | SingleState):
        return _Part(type(oracle).__name__, {}), {}
    raise ParameterError(f"a model file knows the oracles {', '.join(ORACLES)}, not {type(oracle).__name__}.")


def _restored_oracle(part: _Part, arrays: Arrays, joint: JointFeatures, states: npt.NDArray[np.int64]) -> StateOracle:
    if part.kind == "HMMOracle":
        hmm = HMMOracle(**part.params)
        model = SwitchingRegression(
            initial_probs=arrays["hmm_initial_probs"],
            transition_matrix=arrays["hmm_transition_matrix"],
            reward_coefs=arrays["hmm_reward_coefs"],
            reward_precisions=arrays["hmm_reward_precisions"],
            noise_variance=float(part.learned["noise_variance"]),
            joint=joint,
        )
        _require_shape("hmm_transition_matrix", model.transition_matrix, (model.n_states, model.n_states))
        _require_shape("hmm_reward_coefs", model.reward_coefs, (model.n_states, *joint.shape))
        hmm.model_, hmm.report_ = model, msgspec.convert(part.learned["report"], HMMReport)
        return hmm
    if part.kind == "ChangePointOracle":
        change_point = ChangePointOracle(**part.params)
        change_point.segmentation_ = Segmentation(
            change_points=arrays["cut_change_points"],
            segment_values=arrays["cut_segment_values"],
            segment_states=arrays["cut_segment_states"],
            state_values=arrays["cut_state_values"],
            window=int(part.learned["window"]),
            threshold=float(part.learned["threshold"]),
        )
        return change_point
    if part.kind == "KnownStates":
        return KnownStates(states)
    if part.kind == "SingleState":
        return SingleState()
    raise ModelFileError(f"it has an oracle of an unknown kind, {part.kind!r}.")


def _npy(array: npt.NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def _array(name: str, data: bytes) -> npt.NDArray[Any]:
    if not name.endswith(".npy"):
        raise ModelFileError(f"it holds {name!r}, and a model holds only {MANIFEST} and .npy arrays.")
    try:
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except ValueError as error:
        raise ModelFileError(f"{name} is no plain array ({error}).") from error


def _require_shape(name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ModelFileError(f"{name} has shape {array.shape}; it should be {shape}.")
