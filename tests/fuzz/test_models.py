"""Mutated model files and snapshots are refused, or work: never a crash, a hang, or an error that is not ours.

Compiled kernels have no bounds checks. To see whether a mutant reaches beyond an array, run this file once with
``NUMBA_BOUNDSCHECK=1`` and a ``NUMBA_CACHE_DIR`` of its own.
"""

import warnings

import pytest

import seachange as sc
from fuzz.model_mutants import content_of, models, mutated_file, mutated_snapshot, require_probabilities, use

SHORT, LONG, BLOCKS = 20, 650, 2


@pytest.fixture(scope="module")
def made():
    return models()


NAMES = ("hmm", "clicks", "change-point", "reward", "reward, auto", "known", "table", "raw columns")


def fuzz_files(made, name, seeds, tmp_path):
    model, log = made[name]
    path = tmp_path / "good.seachange"
    model.save(path)
    assert use(path, log) == 12, "the model that is mutated must itself work"
    whole, content = path.read_bytes(), content_of(path)
    mutant = tmp_path / "mutant.seachange"
    used = 0
    for seed in seeds:
        mutant.write_bytes(mutated_file(whole, content, seed))
        try:
            used += use(mutant, log) > 0
        except Exception as error:
            raise AssertionError(f"seed {seed} of {name!r}: {error!r}") from error
    return used


@pytest.mark.parametrize("name", NAMES)
def test_a_mutated_model_file_is_refused_or_works(made, name, tmp_path):
    fuzz_files(made, name, range(SHORT), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_mutated_model_files(made, name, block, tmp_path):
    start = 10**6 * (block + 1)
    assert fuzz_files(made, name, range(start, start + LONG), tmp_path) > 0, "some mutants must get past loading"


def fuzz_snapshots(made, name, seeds):
    model, log = made[name]
    deployer = model.deployer(memory=5)
    state, decisions = deployer.init(), []
    for t in range(8):
        context = None if log.contexts.shape[1:] == (0,) else log.contexts[t]
        decisions.append(deployer.act(state, context, 0.1 * t))
        state = deployer.update(state, decisions[-1], None if t in (4, 6) else 1.0)
    next_one = deployer.act(state, context, 0.5)
    loaded = 0
    for seed in seeds:
        for kind, whole in (
            (sc.DeploymentState, state.to_bytes()), (sc.Decision, next_one.to_bytes()),
            (sc.Decision, decisions[4].to_bytes()),
        ):  # fmt: skip
            try:
                record = kind.from_bytes(mutated_snapshot(whole, seed))
                loaded += 1
                given = record if kind is sc.DeploymentState else state
                decision = deployer.act(given, context, 0.3)
                require_probabilities(decision.probs, decision.propensity)
                for chosen in (record,) if kind is sc.Decision else (decision, decisions[4], decisions[6]):
                    for step, reward in ((deployer.update, 1.0), (deployer.update, None), (deployer.amend, 0.0)):
                        try:
                            require_probabilities(deployer.state_probs(step(given, chosen, reward)))
                        except sc.SeachangeError:
                            continue
            except sc.SeachangeError:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed} of {name!r}: {error!r}") from error
    return loaded


@pytest.mark.parametrize("name", ["hmm", "clicks", "change-point", "raw columns"])
def test_a_mutated_snapshot_is_refused_or_works(made, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fuzz_snapshots(made, name, range(12)) > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["hmm", "clicks", "change-point", "raw columns"])
def test_ten_thousand_mutated_snapshots(made, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert fuzz_snapshots(made, name, range(10**6, 10**6 + 840)) > 0
