"""Model files: a zip of a JSON manifest and plain arrays. A file from a stranger is safe to load.

Sizes are checked before anything is unpacked, every array is checked against the shape and range that the model needs,
and nothing in a file is evaluated or executed. Whatever is wrong with a file is a ``ModelFileError``.
"""

import platform
import stat
import zipfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from seachange.errors import ModelFileError, require
from seachange.log.bandit_log import BanditLog, PropensitySource
from seachange.log.features import FeatureSpec, Number
from seachange.log.fingerprint import REMEMBERED, LogIdentity, share_known
from seachange.log.joint_features import JointFeatures
from seachange.log.units import Units
from seachange.log.validation import LARGEST
from seachange.outputs import written_whole
from seachange.policies.objective_choice import Choice
from seachange.policies.per_state import PolicySet
from seachange.registry import (
    LARGEST_SAVED,
    LEARNERS,
    ORACLES,
    POLICIES,
    Arrays,
    Description,
    SavedPart,
    describe,
    npy,
)
from seachange.states.labels import Segments, StateLabels
from seachange.states.reward_evidence import RewardEvidence
from seachange.states.switching_regression import Rewards, SwitchingRegression, hmm_of

if TYPE_CHECKING:
    from seachange.model import SwitchingModel

SCHEMA = 3
MANIFEST = "manifest.json"
# Most bytes of a manifest.
MOST_MANIFEST = 1 << 24
# Arrays may unpack to this many bytes, or to the size of the file if that is more. Larger models are not compressed.
MOST_UNPACKED = 1 << 28
MOST_STATES = 10_000
# A share of known rounds up to this can be a coincidence.
BY_CHANCE = 0.1
# Most rounds of a log that a model file may name.
MOST_ROUNDS = 1 << 48
# Zip entries carry this time, so that equal models make equal files.
EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Provenance(LogIdentity):
    """The log a model was learned from."""

    joint: JointFeatures
    action_names: tuple[str, ...]
    context_names: tuple[str, ...]
    mean_reward: float
    reward_range: tuple[float, float]  # (0, 1), or least to largest if rewards leave it
    propensity_source: PropensitySource
    parts: tuple[LogIdentity, ...] = ()  # the logs it was joined from

    @classmethod
    def of(cls, log: BanditLog) -> Self:
        """The provenance of a model learned from ``log``."""
        rewards = log.arrays.rewards
        low, high = float(np.nanmin(rewards)), float(np.nanmax(rewards))
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        return cls(
            **vars(LogIdentity.of(log)),
            joint=log.joint,
            action_names=log.action_names,
            context_names=log.context_names,
            mean_reward=float(np.nanmean(rewards)),
            reward_range=(low, high if high > low else low + 1.0),
            propensity_source=log.propensity_source,
            parts=log.parts,
        )

    def holds(self, log: BanditLog) -> bool:
        """Whether ``log`` is the log, or one of the logs it was joined from."""
        return log.fingerprint() in [each.fingerprint for each in (self, *self.parts)]

    def rounds_seen(self, log: BanditLog) -> int:
        """How many rounds of ``log``, counted from the first, the model may have been learned from."""
        for known in (self, *self.parts):
            n = known.n_rounds
            if len(log) > n and log[:n].fingerprint() == known.fingerprint:
                return n if known is self else n + self.rounds_seen(log[n:])
        if self.overlap(log) is None:
            return 0
        if self.holds(log):
            return len(log)
        seen = np.flatnonzero(np.any([each.period_holds(log, end=True) for each in self.periods], axis=0))
        return int(seen[-1]) + 1 if len(seen) else len(log)

    def overlap(self, log: BanditLog) -> str | None:
        """Which part of ``log`` the model may have learned from; None if there is no sign of any."""
        if self.holds(log):
            return "the model was learned from this log"
        share = max(share_known(log, each.remembered) or 0.0 for each in (self, *self.parts))
        if share > BY_CHANCE:
            return f"about {share:.0%} of these rounds are among those that the model was learned from"
        # The last moment does not count: logs are often split between rounds of the same time.
        inside = {each.time_range: rows for each in self.periods if (rows := each.period_holds(log, end=False)).any()}
        if not inside:
            return None
        share = float(np.mean(np.any([*inside.values()], axis=0)))
        times = (" to ".join(time.replace("T", " ").removesuffix(".000000") for time in each or ()) for each in inside)
        part = "all" if share == 1 else f"{share:.1%}"
        logs = "period of the log" if len(inside) == 1 else "periods of the logs"
        return f"{part} of these rounds fall in the {logs} that the model was learned from ({' and '.join(times)})"

    @property
    def periods(self) -> tuple[LogIdentity, ...]:
        """The logs whose periods the rounds fall in: there may be time between logs that were joined."""
        return self.parts or (self,)

    def knows(self, log: BanditLog) -> bool:
        """Whether ``overlap`` can detect that the model was learned from rounds of ``log``."""
        return share_known(log, self.remembered) is not None or not (log.times is None or self.time_range is None)


Interval = tuple[float, float, float]  # value, low, high


@dataclass(frozen=True)
class Trial:
    """Switching and the best single policy, both learned from the first rounds of a log and evaluated on the rest."""

    n_states: int  # that were switched among
    n_learned: int  # rounds
    n_evaluated: int
    confidence: float
    switching: Interval  # of the mean reward per round
    single: Interval
    logging: Interval
    gain: Interval  # of switching over the single policy
    expected_gain: float  # the same, combined with the gain of simulated deployments
    # If the deployment learns: what it would earn, and the single policy if it learned in the same way.
    learning: Interval | None = None
    learning_single: Interval | None = None


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Everything in a model file except arrays."""

    schema: int
    versions: dict[str, str]  # of the software that wrote it
    provenance: Provenance
    oracle: Description
    learner: Description
    policies: list[Description]  # one per state
    single: Description | None  # None with one state: its policy is the single one
    expected_stay: float | None
    n_chains: int
    from_rewards: bool
    world: Rewards | None = None  # its rewards, if it has its own arrays; that of an HMM is the oracle's
    base_score: float = 0.0  # of the evidence on rewards
    relative_variance: float = 1.0
    complete: bool = True
    choice: Choice | None = None
    trial: Trial | None = None
    features: FeatureSpec | None = None


def write_model(model: "SwitchingModel", path: str | Path) -> None:
    """Write ``model`` to one file, whole or not at all; equal models make equal files."""
    labels = model.labels
    oracle, oracle_arrays = describe(ORACLES, model.oracle)
    policies = [describe(POLICIES, policy) for policy in model.policies]
    single, single_arrays = describe(POLICIES, model.single) if len(policies) > 1 else (None, {})
    world, evidence = None if model.world is hmm_of(model.oracle) else model.world, model.evidence
    manifest = Manifest(
        schema=SCHEMA,
        versions={"python": platform.python_version()}
        | {name: version(name) for name in ("seachange", "numpy", "numba")},
        provenance=model.provenance,
        oracle=oracle,
        learner=describe(LEARNERS, model.learner)[0],
        policies=[description for description, _ in policies],
        single=single,
        expected_stay=model.policies.expected_stay,
        n_chains=labels.n_chains,
        from_rewards=labels.from_rewards,
        world=None if world is None else world.rewards,
        base_score=0.0 if evidence is None else evidence.base_score,
        relative_variance=1.0 if evidence is None else evidence.relative_variance,
        complete=evidence is None or evidence.complete,
        choice=model.choice,
        trial=model.trial,
        features=model.features,
    )
    segments = {"starts": labels.segments.starts, "states": labels.segments.states}
    parts: dict[str, Arrays] = {"labels": segments | {"change_points": labels.change_points}, "oracle": oracle_arrays}
    parts |= {f"policy{state}": learned for state, (_, learned) in enumerate(policies)}
    parts |= {"single": single_arrays, "world": {} if world is None else world.saved_arrays()}
    parts["evidence"] = {} if evidence is None else {"grams": evidence.grams, **evidence.units._asdict()}
    arrays = {f"{part}.{name}": array for part, learned in parts.items() for name, array in learned.items()}
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    rule = f"the names of actions and features take {len(text):,} bytes; the limit is {MOST_MANIFEST:,}."
    require(len(text) <= MOST_MANIFEST, rule)
    small = sum(array.nbytes for array in arrays.values()) < MOST_UNPACKED // 2
    entries = {MANIFEST: text} | {f"{name}.npy": npy(arrays[name]) for name in sorted(arrays)}
    with written_whole(path) as beside, beside.open("wb") as file:
        archive = zipfile.ZipFile(file, "w")
        try:
            for name, content in entries.items():
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.create_system, entry.external_attr = 3, 0o644 << 16  # the same file on every platform
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED if small else zipfile.ZIP_STORED)
            archive.close()
        except BaseException:
            archive.fp = None  # an interrupted archive cannot be closed, and its file is discarded
            raise


def read_model(path: str | Path) -> tuple[dict[str, Any], Manifest]:
    """The fields of the model in a file, and its manifest."""
    try:
        with _Archive(path) as archive:
            return _restored(archive)
    except ModelFileError as error:
        raise ModelFileError(f"{str(path)!r} cannot be loaded: {error}") from error
    except Exception as error:  # a damaged zip or manifest can make the libraries that read it raise anything
        detail = f"it is damaged or not a model file ({str(error) or type(error).__name__})"
        raise ModelFileError(f"{str(path)!r} cannot be loaded: {detail}.") from error


class _Archive(zipfile.ZipFile):
    """The zip of a model file, whose entries are read up to a limit and only once."""

    def __init__(self, path: str | Path) -> None:
        try:
            found = Path(path).stat()
        except FileNotFoundError as error:
            raise ModelFileError("there is no such file. Check the path.") from error
        _require(stat.S_ISREG(found.st_mode), "it is not a regular file.")
        try:
            super().__init__(path)
        except Exception as error:
            raise ModelFileError(f"it is not a complete model file ({error}).") from error
        self.entries = {entry.filename: entry for entry in self.infolist()}
        _require(len(self.entries) == len(self.infolist()), "an entry of its zip occurs twice.")
        most, unpacked = max(MOST_UNPACKED, found.st_size), sum(entry.file_size for entry in self.infolist())
        _require(unpacked <= most, f"it would unpack to more than {most:,} bytes.")

    def take(self, name: str, most: int | None = None) -> bytearray:
        """The content of an entry of at most ``most`` bytes."""
        _require(name in self.entries, f"it has no {name}.")
        entry = self.entries.pop(name)
        if most is not None and entry.file_size > most:
            raise ModelFileError(f"its {name} has {entry.file_size:,} bytes, more than the {most:,} expected.")
        known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        _require(known, f"its {name} is compressed by an unsupported method.")
        try:
            with self.open(entry) as file:
                content = bytearray(file.read(entry.file_size))
                # The end of the entry must be reached: its checksum is compared there.
                complete = len(content) == entry.file_size and not file.read(1)
        except Exception as error:
            raise ModelFileError(f"it is not a complete model file: {name} is damaged ({error}).") from error
        _require(complete, f"it is not a complete model file: {name} is cut short.")
        return content


def _restored(archive: _Archive) -> tuple[dict[str, Any], Manifest]:
    encoded = bytes(archive.take(MANIFEST, MOST_MANIFEST))
    schema = bytes(msgspec.json.decode(encoded, type=dict[str, msgspec.Raw]).get("schema", b"null"))
    _require(schema.strip().isdigit(), "its manifest has no schema version.")
    fix = "upgrade Seachange" if int(schema) > SCHEMA else "learn the model again"
    _require(int(schema) == SCHEMA, f"its schema is {int(schema)} and this Seachange reads {SCHEMA}; {fix}.")
    for name in archive.entries:
        _require(name.endswith(".npy"), f"it holds {name!r}; a model file holds only {MANIFEST} and .npy arrays.")
    manifest = msgspec.json.decode(encoded, type=Manifest)
    _require_consistent(manifest)

    def part(description: Description, name: str) -> SavedPart:
        return SavedPart(description, f"{name}.", archive.take)

    joint, labels = manifest.provenance.joint, _labels(manifest, part(manifest.oracle, "labels"))

    def restore(registry: Any, description: Description, name: str) -> Any:
        return registry.by_kind(description.kind).restore(part(description, name), joint, labels)

    policies = tuple(restore(POLICIES, each, f"policy{state}") for state, each in enumerate(manifest.policies))
    oracle = restore(ORACLES, manifest.oracle, "oracle")
    learner = restore(LEARNERS, manifest.learner, "learner")
    world = hmm_of(oracle)
    _require((world is None) == (manifest.world is not None), "a model has its own world if it has no HMM.")
    if manifest.world is not None:
        saved = part(manifest.oracle, "world")
        world = SwitchingRegression.restore(saved, joint, len(policies), manifest.world)
    evidence = _evidence(manifest, part(manifest.oracle, "evidence"))
    parts = {"policies": PolicySet(policies, manifest.expected_stay), "oracle": oracle, "learner": learner}
    single = policies[0] if manifest.single is None else restore(POLICIES, manifest.single, "single")
    parts |= {"single": single, "world": world, "evidence": evidence, "labels": labels}
    parts |= {name: getattr(manifest, name) for name in ("provenance", "choice", "trial", "features")}
    for name in archive.entries:
        raise ModelFileError(f"it holds {name!r}, which its manifest does not mention.")
    return parts, manifest


def _evidence(manifest: Manifest, part: SavedPart) -> RewardEvidence:
    n_states, (n_blocks, n_features) = len(manifest.policies), manifest.provenance.joint.shape
    grams = part.precisions("grams", (n_states, n_blocks, n_features, n_features))
    scales = part.floats("scales", (n_features,), low=1 / LARGEST_SAVED)
    units, others = Units(part.floats("means", (n_features,)), scales), ("base_score", "relative_variance", "complete")
    return RewardEvidence(grams, units, **{name: getattr(manifest, name) for name in others})


def _labels(manifest: Manifest, part: SavedPart) -> StateLabels:
    n_states, n_rounds = len(manifest.policies), manifest.provenance.n_rounds
    starts = part.indices("starts", None, 0, n_rounds, rising=True)
    _require(len(starts) > 0 and starts[0] == 0, "labels.starts must start at round 0.")
    return StateLabels.from_segments(
        Segments(starts, part.indices("states", len(starts), 0, n_states), n_rounds),
        n_states,
        part.indices("change_points", None, 1, n_rounds, rising=True),
        n_chains=manifest.n_chains,
        from_rewards=manifest.from_rewards,
    )


def _require_consistent(manifest: Manifest) -> None:
    """Check what the types of the manifest leave open."""
    log, choice, stay, features = manifest.provenance, manifest.choice, manifest.expected_stay, manifest.features
    trial = manifest.trial
    tried = [] if trial is None else [trial.switching, trial.single, trial.logging, trial.gain]
    tried += [] if trial is None else [each for each in (trial.learning, trial.learning_single) if each is not None]
    joint, (low, high) = log.joint, log.reward_range
    logs = (log, *log.parts)
    try:
        dated = all(bool(np.isfinite(each.seconds).all()) for each in logs if each.seconds is not None)
    except (ValueError, OverflowError):
        dated = False
    for rule, holds in {
        f"n_rounds must be from 1 to {MOST_ROUNDS}": 1 <= log.n_rounds <= MOST_ROUNDS,
        "the logs that were joined must have all rounds": not log.parts
        or (min(each.n_rounds for each in log.parts) >= 1 and sum(each.n_rounds for each in log.parts) == log.n_rounds),
        "action_names must name every action": len(log.action_names) == joint.n_actions >= 1,
        "context_names must name every feature": len(log.context_names) == joint.n_features
        and (joint.n_features == 0) == (joint.kind == "none"),
        "reward_range must rise and contain mean_reward": -LARGEST <= low <= log.mean_reward <= high <= LARGEST
        and low < high,
        "time_range must hold two moments": dated,
        "remembered must hold hashes of 64 bits": all(
            len(each.remembered) <= REMEMBERED and all(0 <= hash < 1 << 64 for hash in each.remembered) for each in logs
        ),
        f"a model must have 1 to {MOST_STATES:,} states": 1 <= len(manifest.policies) <= MOST_STATES,
        "n_chains must be from 1 to the number of rounds": 1 <= manifest.n_chains <= log.n_rounds,
        "expected_stay must be from 1 to the number of rounds": stay is None or 1 <= stay <= log.n_rounds,
        "the trial must be of the rounds of the log": trial is None
        or 0 < trial.n_learned < trial.n_learned + trial.n_evaluated == log.n_rounds,
        "the trial must be of several states, and the model have as many or one": trial is None
        or (trial.n_states > 1 and len(manifest.policies) in (1, trial.n_states)),
        "the trial must have intervals that contain their values": trial is None
        or (0 < trial.confidence < 1 and all(-LARGEST <= a <= each <= b <= LARGEST for each, a, b in tried)),
        "the trial must have an expected gain": trial is None or abs(trial.expected_gain) <= LARGEST,
        "base_score and relative_variance must be finite, and the latter at least 1": abs(manifest.base_score)
        <= LARGEST
        and 1 <= manifest.relative_variance <= LARGEST,
        "a model must have a single policy if it has several states, and only then": (manifest.single is None)
        == (len(manifest.policies) == 1),
        "the chosen objective must be one of the candidates": choice is None
        or choice.chosen in [each.name for each in choice.candidates],
    }.items():
        _require(holds, f"{rule}.")
    if features is None:
        return
    made = (*features.shared, *features.pool)
    numbers = [each for each in made if isinstance(each, Number)]
    sized = all(abs(each.mean) <= LARGEST and 1 / LARGEST <= each.scale <= LARGEST for each in numbers)
    _require(sized, f"features must have means and scales of at most {LARGEST:g} in size.")
    _require(
        (joint.kind == "per action") == bool(features.pool)
        and (features.n_features, features.action_names) == (joint.n_features, log.action_names)
        # A small file can ask for very long names, so their length is known before any is made.
        and features.least_name_length <= sum(map(len, log.context_names))
        and features.context_names == log.context_names,
        "features must make the contexts and actions that the model was learned with.",
    )


def _require(holds: bool, rule: str) -> None:
    require(holds, rule, ModelFileError)
