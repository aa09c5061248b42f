"""Deployment: switching among policies online, round by round."""

from seachange.deploy.adaptive_sampling import AdaptiveSampling
from seachange.deploy.alerts import Alert
from seachange.deploy.belief_deployer import BeliefDeployer
from seachange.deploy.decision import Decision, DeploymentState
from seachange.deploy.exp4s import Exp4S
from seachange.deploy.posterior import PosteriorSampling
from seachange.deploy.single import SinglePolicy

__all__ = [
    "AdaptiveSampling",
    "Alert",
    "BeliefDeployer",
    "Decision",
    "DeploymentState",
    "Exp4S",
    "PosteriorSampling",
    "SinglePolicy",
]
