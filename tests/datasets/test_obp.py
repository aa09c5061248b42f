"""Open Bandit Pipeline's feedback as logs: invented dictionaries, and those of the package itself."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import seachange as sc
from seachange.datasets.obp import log_from_obp
from seachange.errors import LogError

ROOT = Path(__file__).resolve().parents[2]


def invented(n=40, K=3, places=1, seed=0):
    rng = np.random.default_rng(seed)
    pi_b = rng.dirichlet(np.ones(K), size=(n, places)).transpose(0, 2, 1)
    position = rng.integers(places, size=n) if places > 1 else None
    at = np.zeros(n, dtype=int) if position is None else position
    action = np.array([rng.choice(K, p=pi_b[t, :, at[t]]) for t in range(n)])
    return {
        "n_rounds": n,
        "n_actions": K,
        "context": rng.normal(size=(n, 2)),
        "action_context": rng.normal(size=(K, 2)),
        "action": action,
        "position": position,
        "reward": rng.integers(2, size=n),
        "expected_reward": rng.random((n, K)),
        "pi_b": pi_b,
        "pscore": pi_b[np.arange(n), action, at],
    }


@pytest.mark.parametrize("places", [1, 3])
def test_a_log_has_the_whole_distribution(places):
    feedback = invented(places=places)
    log = log_from_obp(feedback)
    np.testing.assert_array_equal(log.actions, feedback["action"])
    np.testing.assert_array_equal(log.propensities, feedback["pscore"])
    np.testing.assert_array_equal(log.logging_probs[np.arange(40), log.actions], feedback["pscore"])
    np.testing.assert_array_equal(log.contexts[:, :2], feedback["context"])
    if places > 1:
        assert log.context_names[2:] == ("position=1", "position=2")
        np.testing.assert_array_equal(log.contexts[:, 2] + 2 * log.contexts[:, 3], feedback["position"])


def test_items_take_part_through_their_features():
    feedback = invented()
    log = log_from_obp(feedback, item_features=True)
    x, z = feedback["context"], feedback["action_context"]
    for t in range(3):
        for a in range(3):
            np.testing.assert_allclose(log.contexts[t, a], [*z[a], *np.outer(x[t], z[a]).ravel()])
    assert log.context_names == (
        "item.0", "item.1", "context.0 × item.0", "context.0 × item.1", "context.1 × item.0", "context.1 × item.1",
    )  # fmt: skip


def test_feedback_without_pscore_or_contexts_is_a_log_without_them():
    log = log_from_obp({"action": [0, 1, 1], "reward": [1.0, 0.0, 0.5], "n_actions": 4})
    assert (log.n_actions, log.propensities_known, log.contexts.shape) == (4, False, (3, 0))


def changed(**arrays):
    return invented() | arrays


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        ([1, 2], "must be a dictionary; got list"),
        ({"action": [0]}, "must have 'reward'; it has action"),
        (changed(action=["a"] * 40), "action must be numbers"),
        (changed(reward=np.zeros((40, 2))), r"reward must have 1 axis; it has shape \(40, 2\)"),
        (changed(pi_b=np.full((40, 3), 1 / 3)), r"pi_b must have 3 axes"),
        (changed(reward=[[1], [1, 2]]), "reward must be an array of numbers"),
        (changed(position=np.zeros(39)), "action has 40, position has 39"),
        (changed(pscore=np.full(39, 0.5)), "action has 40, pscore has 39"),
        (changed(n_actions=5), "n_actions has 5, action_context has 3, pi_b has 3"),
        (changed(position=np.full(40, 2)), "position must be a whole number from 0 to 0; found 2"),
    ],
)
def test_feedback_that_does_not_fit_together_is_refused(feedback, message):
    with pytest.raises(LogError, match=message):
        log_from_obp(feedback)


def test_item_features_need_items():
    with pytest.raises(LogError, match="needs action_context"):
        log_from_obp(changed(action_context=None), item_features=True)


GENERATE = """
import sys
import numpy as np
from pipeline import import_pipeline
import_pipeline()
from obp.dataset import OpenBanditDataset, SyntheticBanditDataset, logistic_reward_function
if sys.argv[2]:
    from pathlib import Path
    given = OpenBanditDataset("random", "all", Path(sys.argv[2])).obtain_batch_bandit_feedback()
else:
    world = SyntheticBanditDataset(5, 3, reward_function=logistic_reward_function, beta=1.0, random_state=1)
    given = world.obtain_batch_bandit_feedback(200)
np.savez(sys.argv[1], **{name: value for name, value in given.items() if value is not None})
"""


@pytest.fixture(scope="session")
def pipeline(tmp_path_factory):
    """What Open Bandit Pipeline itself gives, by the folder of its data."""
    places = [os.environ.get("SEACHANGE_PEERS"), ROOT / ".bench-venv" / "bin" / "python", sys.executable]
    for python in filter(None, map(str, filter(None, places))):
        if Path(python).exists() and has_pipeline(python):
            break
    else:
        pytest.skip("needs Open Bandit Pipeline; `make bench` installs it, or SEACHANGE_PEERS is a python that has it")

    def generate(folder=""):
        path = tmp_path_factory.mktemp("obp") / "feedback.npz"
        environment = os.environ | {"PYTHONPATH": str(ROOT / "benchmarks")}
        command = [python, "-W", "ignore", "-c", GENERATE, str(path), str(folder)]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)

    return generate


def has_pipeline(python):
    look = [python, "-c", "import importlib.util as u; assert u.find_spec('obp')"]
    return subprocess.run(look, capture_output=True, check=False).returncode == 0


def test_feedback_of_the_package_is_read(pipeline):
    feedback = pipeline()
    log = log_from_obp(feedback)
    assert (len(log), log.n_actions, log.contexts.shape) == (200, 5, (200, 3))
    np.testing.assert_array_equal(log.rewards, feedback["reward"])
    np.testing.assert_array_equal(log.propensities, feedback["pscore"])
    np.testing.assert_array_equal(log.logging_probs, feedback["pi_b"][:, :, 0])
    assert log_from_obp(feedback, item_features=True).contexts.shape == (200, 5, 5 + 3 * 5)
    (estimate,) = sc.evaluate(log, feedback["pi_b"][:, :, 0], ("ips",))
    assert estimate.value == pytest.approx(feedback["reward"].mean())


def test_feedback_of_the_package_from_its_sample_is_read(pipeline, data_file):
    feedback = pipeline(data_file("open_bandit"))
    log = log_from_obp(feedback)
    assert (len(log), log.n_actions, log.context_names[-2:]) == (10_000, 80, ("position=1", "position=2"))
