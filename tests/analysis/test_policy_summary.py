"""What policies do, told by what can happen."""

import numpy as np
import polars as pl

import seachange as sc
from seachange.analysis.policy_summary import summarize_policies
from seachange.policies.per_state import PolicySet
from seachange.policies.softmax import SoftmaxPolicy


def test_effects_of_a_value_are_those_of_changing_to_it_from_another():
    generator, n = np.random.default_rng(0), 900
    cities = generator.choice(["A", "B", "C"], n)
    frame = pl.DataFrame({"action": ["x", "y"] * (n // 2), "reward": 1.0, "propensity": 0.5, "city": cities})
    log = sc.BanditLog.from_frame(frame)
    likes = {"city=A": 50.0, "city=B": -50.0, "city=C": 50.0}  # x with certainty in A and C, y in B
    coefs = np.zeros(log.joint.shape)
    coefs[0] = [likes.get(name, 0.0) for name in (*log.context_names, "intercept")]
    summary = summarize_policies(log, PolicySet((SoftmaxPolicy(coefs, log.joint),)), np.array([n]))
    found = {effect.feature: effect.effect for effect in summary.effects if effect.action == "x"}
    among_b_and_c, among_a_and_c = cities[cities != "A"] == "B", cities[cities != "B"] == "B"
    assert found["city=B"] == -1 + among_a_and_c.mean()
    assert found["city=A"] > 0.4
    np.testing.assert_allclose(found["city=A"], among_b_and_c.mean(), atol=0.03)  # some of the rounds are asked
