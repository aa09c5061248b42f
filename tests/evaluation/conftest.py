"""What the tests of evaluation share."""

import pytest

import seachange as sc
from evaluation.deployments import KINDS


@pytest.fixture(scope="session")
def deployers():
    """{(name, kind of context): deployer}, learned from small logs."""
    from conftest import build_log

    made = {}
    for kind in KINDS:
        model = sc.learn(build_log(kind, 400), oracle=sc.HMMOracle(n_states=2), objective="ips")
        made["exp4s", kind] = sc.Exp4S(model.policies, expected_stay=50, learning_rate=0.3, exploration=0.1)
        made["posterior", kind] = sc.PosteriorSampling(model.policies, hmm=model.oracle.model_, exploration=0.05)
        made["single", kind] = sc.SinglePolicy(model.policies[0], exploration=0.2)
    return made
