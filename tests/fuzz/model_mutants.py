"""Model files and snapshots as accidents and attackers leave them, and everything a user does with them."""

from __future__ import annotations

import copy
import io
import json
import random
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

import seachange as sc
from fuzz.mutations import mutations
from seachange.analysis.states_summary import as_document, summarize_states
from seachange.cli.tables import model_document
from seachange.cli.value_tables import trial_text
from seachange.model_file import Trial, read_model

N, K = 240, 3
STATES = np.repeat([0, 1], N // 2)
NUMBERS = (
    0, 1, -1, 2, 3, 7, 255, -100000, 10**8, 2**31, 2**48 + 1, 2**62, -(2**62), 2**63 - 1, 10**30, 0.5, -0.5, 1.5,
    1e-320, 1e-300, 1e99, 1e250, 1e300, -1e300, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
VALUES: tuple[Any, ...] = (None, True, "", "x", "auto", "inf", "nan", [], {}, [[]], [None], "\u0000", [1, 2, 3])


def tiny_log(kind: str = "none", clicks: bool = False, seed: int = 0) -> sc.BanditLog:
    """Two worlds, one after the other."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, K, N)
    rewards = np.array([[0.1, 0.2, 0.3], [0.9, 0.7, 0.5]])[STATES, actions] + rng.normal(0, 0.1, N)
    more: dict[str, Any] = {}
    if kind == "shared":
        more["contexts"] = rng.normal(size=(N, 2))
    if kind == "per action":
        more["action_features"] = np.concatenate([np.tile(np.eye(K), (N, 1, 1)), rng.normal(size=(N, K, 1))], axis=2)
    if clicks:
        rewards = (rewards > 0.5).astype(float)
    return sc.BanditLog.from_arrays(
        actions, rewards, np.full(N, 1 / K), times=np.arange(N), action_names=["boots", "coats", "lamps"], **more
    )


def frame_log() -> sc.BanditLog:
    """A log of raw columns."""
    log, rng = tiny_log(), np.random.default_rng(1)
    frame = pl.DataFrame(
        {
            "item": np.array(log.action_names)[log.actions],
            "click": log.rewards,
            "p": log.propensities,
            "age": np.where(rng.random(N) < 0.1, np.nan, rng.normal(40, 9, N)),
            "city": rng.choice(["Oslo", "Bergen"], N),
            "tags": [["new", "big"][: i % 3] for i in range(N)],
        }
    )
    return sc.BanditLog.from_frame(frame, {"action": "item", "reward": "click", "propensity": "p"})


def models() -> dict[str, tuple[sc.SwitchingModel, sc.BanditLog]]:
    """Small models of every kind, and the logs they came from; one of them was tried out."""
    hmm = {"n_states": 2, "restarts": 1, "max_iterations": 10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "hmm": (tiny_log("shared"), sc.HMMOracle(**hmm), "dr"),
            "clicks": (tiny_log("per action", clicks=True), sc.HMMOracle(**hmm), "ips"),
            "change-point": (tiny_log("shared"), sc.ChangePointOracle(n_states=2), "dm"),
            "reward": (
                tiny_log(),
                sc.ChangePointOracle(statistic="reward", n_states=2, window=20, threshold=0.3),
                "ips",
            ),
            "reward, auto": (tiny_log(), sc.ChangePointOracle(statistic="reward", window=20, threshold=0.3), "ips"),
            "known": (tiny_log("shared"), sc.KnownStates(STATES), "auto"),
            "table": (tiny_log(clicks=True), sc.KnownStates(STATES), sc.TabularLearner()),
            "raw columns": (frame_log(), sc.SingleState(), "dm"),
        }
        found = {name: (sc.learn(log, oracle, objective=by), log) for name, (log, oracle, by) in made.items()}
    model, log = found["known"]
    trial = Trial(2, 140, N - 140, 0.95, (0.8, 0.7, 0.9), (0.5, 0.4, 0.6), (0.4, 0.3, 0.5), (0.3, 0.2, 0.4), 0.2)
    return found | {"known": (replace(model, trial=trial), log)}


def content_of(path: Path) -> dict[str, bytes]:
    """The entries of a model file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(content: dict[str, bytes]) -> bytes:
    """A zip of these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def mutated_file(whole: bytes, content: dict[str, bytes], seed: int) -> bytes:
    """A model file with accidents in its bytes, or with other content in a sound zip."""
    chance = random.Random(seed)
    if chance.random() < 0.25:
        return mutations(whole, seed)
    content = dict(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        name = chance.choice(list(content))
        how = chance.random()
        if how < 0.04:
            content.pop(name)
        elif how < 0.08:
            content[name] = content[chance.choice(list(content))]
        elif how < 0.12:
            content[name] = mutations(content[name], chance.randrange(10**9))
        elif name == "manifest.json" or chance.random() < 0.4:
            content["manifest.json"] = mutated_manifest(content.get("manifest.json", b"{}"), chance)
        elif name.endswith(".npy"):
            content[name] = mutated_array(content[name], chance)
    return zipped(content)


def mutated_manifest(encoded: bytes, chance: random.Random) -> bytes:
    """One entry changed, left out, repeated or swapped with another."""
    try:
        manifest = json.loads(encoded)
    except (ValueError, RecursionError):
        return encoded
    places = [(holder, key) for holder in _holders(manifest) for key in _keys(holder)]
    if not places:
        return encoded
    holder, key = chance.choice(places)
    how = chance.random()
    if how < 0.1:
        del holder[key]
    elif how < 0.2:
        other, at = chance.choice(places)
        holder[key] = copy.deepcopy(other[at])
    elif how < 0.3 and isinstance(holder[key], list) and holder[key]:
        holder[key] = holder[key] * 2 if chance.random() < 0.5 else holder[key][1:]
    elif how < 0.32:
        return json.dumps(manifest).encode().replace(b'"oracle"', b'"deep": ' + b"[" * 10**5 + b'0, "oracle"', 1)
    else:
        holder[key] = chance.choice(NUMBERS if chance.random() < 0.7 else VALUES)
    return json.dumps(manifest).encode()


def _holders(value: Any) -> Any:
    if isinstance(value, dict | list):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _holders(each)


def _keys(holder: Any) -> Any:
    return list(holder) if isinstance(holder, dict) else range(len(holder))


def mutated_array(encoded: bytes, chance: random.Random) -> bytes:
    """Other numbers, shapes, types or headers."""
    try:
        array = np.lib.format.read_array(io.BytesIO(encoded), allow_pickle=False).copy()
    except Exception:
        return encoded
    how = chance.random()
    if how < 0.55 and array.size:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(chance.choice((1, 1, 3, array.size))):
                number = chance.choice(NUMBERS)
                if chance.random() < 0.4:  # one that may pass for sound
                    factor = chance.choice((-1, 0, 0.1, 10, 1e100, 1e-100, 1e200))
                    number = float(array.flat[0]) * factor if array.dtype.kind == "f" else chance.randrange(N)
                if array.dtype.kind == "i":
                    limits = np.iinfo(array.dtype)
                    number = int(min(max(number, limits.min), limits.max)) if number == number else -1
                array.flat[chance.randrange(array.size)] = number
            if array.dtype.kind == "i" and chance.random() < 0.5:
                array = np.sort(array)
    elif how < 0.8:
        array = chance.choice(
            (
                lambda: np.concatenate([array, array[-1:]]),
                lambda: array[:-1],
                lambda: array[:0],
                lambda: array[None],
                lambda: array.ravel(),
                lambda: np.asfortranarray(np.ascontiguousarray(array).T),
                lambda: np.broadcast_to(array.ravel()[:1], (2,) * array.ndim) if array.size else array,
                lambda: np.zeros((10**5,)),
            )
        )()
    elif how < 0.93:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = array.astype(chance.choice(("<f4", "<i4", ">f8", ">i8", "|b1", "|u1", "<c16", "<U8", "<f8", "<i8")))
    else:
        return encoded[:10] + mutations(encoded[10:128], chance.randrange(10**9)) + encoded[128:]
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def mutated_snapshot(whole: bytes, seed: int) -> bytes:
    """A snapshot with accidents in its bytes, or with other values."""
    chance = random.Random(seed)
    if chance.random() < 0.3:
        return mutations(whole, seed)
    fields = msgspec.msgpack.decode(whole)
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(list(fields))
        if isinstance(fields[name], dict) and "data" in fields[name] and chance.random() < 0.8:
            part = fields[name]
            if chance.random() < 0.6 and part["data"] and part["dtype"] == "<f8":
                numbers = np.frombuffer(part["data"], part["dtype"]).copy()
                numbers[chance.randrange(len(numbers))] = float(chance.choice(NUMBERS))
                part["data"] = numbers.tobytes()
            elif chance.random() < 0.5:
                part["data"] += part["data"][-8:] if chance.random() < 0.5 else part["data"]
                part["shape"] = [len(part["data"]) // (8 if part["dtype"] == "<f8" else 1)]
            else:
                part[chance.choice(list(part))] = chance.choice(
                    ("<f8", "|b1", "<i8", "|O", [-1], [2**40, 2**40], [], [0, 2], [2, 1], b"", b"\x01" * 16)
                )
        else:
            value = chance.choice(NUMBERS if chance.random() < 0.7 else VALUES)
            fields[name] = value if not isinstance(value, int) or abs(value) < 2**63 else 2**63
    return bytes(msgspec.msgpack.encode(fields))


def use(path: Path, log: sc.BanditLog) -> int:
    """Load a model and do with it what users do; how much of that worked. Only errors of ours may come."""
    steps = [
        lambda model: model.policies.advice(log.contexts),
        lambda model: model.oracle.predict(log),
        lambda model: model.label_ahead(log),
        lambda model: sc.evaluate(log, model.policies, labels=model.label_ahead(log)),
        lambda model: sc.evaluate_online(log, model.deployer()),
        lambda model: sc.evaluate_deployment(log, model, draws=2, force=True),
        lambda model: as_document(summarize_states(log, model.oracle, model.oracle.predict(log), fitted_here=False)),
        lambda model: msgspec.json.encode(model_document(model, read_model(path)[1])),
        lambda model: (model.provenance.overlap(log), model.provenance.knows(log), repr(model)),
        lambda model: model.trial and trial_text(model.trial),
        lambda model: deploy(model, log),
        lambda model: model.save(path.with_suffix(".again")),
    ]
    worked = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = sc.load(path)
        except sc.SeachangeError:
            return 0
        for step in steps:
            try:
                step(model)
            except sc.SeachangeError:
                continue
            worked += 1
    return worked


def deploy(model: sc.SwitchingModel, log: sc.BanditLog) -> None:
    """A few rounds of every deployer, with a late reward; probabilities stay probabilities."""
    record = {"age": 40.0, "city": "Oslo", "tags": ["new"], "x0": 0.5, "x1": -1.0}
    for kind in ("auto", "exp4s", "posterior", "single"):
        try:
            deployer = model.deployer(kind, exploration=0.1)
            state = deployer.init()
            for t in range(4):
                decision = deployer.act(state, None if log.contexts.shape[1:] == (0,) else log.contexts[t], 0.2 * t)
                require_probabilities(decision.probs, decision.propensity)
                state = deployer.update(state, decision, 1.0 if t % 2 else None)
                require_probabilities(deployer.state_probs(state))
            model.decide(deployer, state, record, 0.5)
        except sc.SeachangeError:
            continue


def require_probabilities(probs: np.ndarray, propensity: float = 1.0) -> None:
    """Raise unless these are probabilities."""
    assert (probs >= 0).all()
    assert abs(probs.sum() - 1) < 1e-6
    assert 0 < propensity <= 1
