"""Logs with every optional column and any kind of context."""

import numpy as np

from seachange import BanditLog

N, K, D = 40, 3, 2
KINDS = ("none", "shared", "per action", "ragged", "masked")


def logged_arrays(kind, n=N, seed=0):
    """The arguments of from_arrays for a log with every optional column and the given kind of context."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, K, n)
    probs = rng.dirichlet(np.ones(K), n)
    given = {
        "actions": actions,
        "rewards": rng.random(n),
        "propensities": probs[np.arange(n), actions],
        "logging_probs": probs,
        "times": np.arange(n).astype("datetime64[s]"),
        "sequences": np.repeat(np.arange(4), n // 4),
        "n_actions": K,
    }
    if kind in ("shared", "masked"):
        given["contexts"] = rng.normal(size=(n, D))
    if kind == "per action":
        given["action_features"] = rng.normal(size=(n, K, D))
    if kind == "ragged":
        lengths = np.maximum(rng.integers(1, K + 1, n), actions + 1)
        lengths[0] = K
        given["action_features"] = (rng.normal(size=(lengths.sum(), D)), np.concatenate(([0], np.cumsum(lengths))))
    if kind == "masked":
        mask = rng.random((n, K)) < 0.5
        mask[np.arange(n), actions] = True
        mask[0] = [actions[0] == a for a in range(K)]
        given["action_mask"] = mask
    return given


def log_of(kind, **changes):
    return BanditLog.from_arrays(**(logged_arrays(kind) | changes))


def assert_equal_logs(found, expected):
    assert found.fingerprint() == expected.fingerprint()
    for name in ("actions", "rewards", "propensities", "contexts", "logging_probs", "times", "sequences"):
        one, other = getattr(found, name), getattr(expected, name)
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_array_equal(one, other, err_msg=name)
