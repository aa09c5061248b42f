"""Fingerprints: equal for equal logs, and for those alone."""

import numpy as np
import pytest

from log.logged import KINDS, K, N, log_of, logged_arrays
from seachange import BanditLog


@pytest.mark.parametrize("kind", KINDS)
def test_equal_logs_have_equal_fingerprints(kind):
    assert log_of(kind).fingerprint() == log_of(kind).fingerprint()
    assert log_of(kind)[:N].fingerprint() == log_of(kind).fingerprint()


@pytest.mark.parametrize("kind", ["none", "shared", "per action", "masked"])
def test_a_slice_has_the_fingerprint_of_its_rounds_by_themselves(kind):
    rounds = {name: value if np.ndim(value) == 0 else value[5:30] for name, value in logged_arrays(kind).items()}
    assert log_of(kind)[5:30].fingerprint() == BanditLog.from_arrays(**rounds).fingerprint()


def test_a_slice_whose_mask_forbids_nothing_has_the_fingerprint_of_its_rounds_by_themselves():
    given = {"actions": [0, 1, 0, 1], "rewards": [0, 1, 1, 1], "propensities": [0.5, 0.5, 0.5, 1], "n_actions": 2}
    log = BanditLog.from_arrays(**given, action_mask=[[1, 1], [1, 1], [1, 1], [0, 1]])
    alone = BanditLog.from_arrays([0, 1, 0], [0, 1, 1], [0.5, 0.5, 0.5], n_actions=2)
    assert log[:3].fingerprint() == alone.fingerprint()


def _other_action(given):
    given["actions"][-2] = (given["actions"][-2] + 1) % K


def _other_reward(given):
    given["rewards"][-2] += 1e-12


def _other_propensity(given):
    given["propensities"][-2] *= 1 - 1e-8


def _other_context(given):
    given["contexts"][-2, 1] += 1e-12


def _other_mask(given):
    taken = given["actions"][0]
    given["action_mask"][0, (taken + 1) % K] ^= True


def _other_chain(given):
    given["sequences"][:] = 0


def _other_order(given):
    for column in given.values():
        if isinstance(column, np.ndarray) and column is not given["times"] and column is not given["sequences"]:
            column[[-1, -2]] = column[[-2, -1]]


@pytest.mark.parametrize(
    "change",
    [_other_action, _other_reward, _other_propensity, _other_context, _other_mask, _other_chain, _other_order],
)
def test_fingerprint_changes_with_everything_that_is_learned_from(change):
    given = logged_arrays("masked")
    given["logging_probs"][:] = given["propensities"][:] = 1 / K
    given["action_mask"][1:] = True
    before = BanditLog.from_arrays(**given).fingerprint()
    change(given)
    assert BanditLog.from_arrays(**given).fingerprint() != before


def test_fingerprint_changes_with_the_number_of_actions():
    given = logged_arrays("none")
    del given["logging_probs"]
    before = BanditLog.from_arrays(**given).fingerprint()
    assert BanditLog.from_arrays(**(given | {"n_actions": K + 1})).fingerprint() != before
