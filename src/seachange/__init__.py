"""Seachange learns, from logs of past decisions, policies that know how to change their mind.

    log = sc.read_log("clicks.parquet")                          context, action, reward, propensity, in time order
    labels = sc.HMMOracle(n_states=5).fit(log).predict(log)      latent states of the world
    policies = sc.learn_per_state(log, labels, sc.DRLearner())   one policy per state
    deployer = sc.Exp4S(policies)                                switched online by the last rewards

``sc.learn(log)`` does all of it. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seachange import simulate as simulate
    from seachange.check import Finding as Finding
    from seachange.check import LogCheck as LogCheck
    from seachange.check import check_log as check_log
    from seachange.deploy import Decision as Decision
    from seachange.deploy import DeploymentState as DeploymentState
    from seachange.deploy import Exp4S as Exp4S
    from seachange.deploy import PosteriorSampling as PosteriorSampling
    from seachange.deploy import SinglePolicy as SinglePolicy
    from seachange.errors import RefusedError as RefusedError
    from seachange.errors import SeachangeError as SeachangeError
    from seachange.errors import SeachangeWarning as SeachangeWarning
    from seachange.evaluation import Bound as Bound
    from seachange.evaluation import Diagnostics as Diagnostics
    from seachange.evaluation import Forecast as Forecast
    from seachange.evaluation import FutureEstimate as FutureEstimate
    from seachange.evaluation import ModelBounds as ModelBounds
    from seachange.evaluation import OnlineEstimate as OnlineEstimate
    from seachange.evaluation import ValueEstimate as ValueEstimate
    from seachange.evaluation import ValuesOverTime as ValuesOverTime
    from seachange.evaluation import diagnose as diagnose
    from seachange.evaluation import evaluate as evaluate
    from seachange.evaluation import evaluate_by_period as evaluate_by_period
    from seachange.evaluation import evaluate_future as evaluate_future
    from seachange.evaluation import evaluate_online as evaluate_online
    from seachange.evaluation import evaluate_over_time as evaluate_over_time
    from seachange.evaluation import evaluate_states as evaluate_states
    from seachange.evaluation import forecast as forecast
    from seachange.evaluation import model_bounds as model_bounds
    from seachange.evaluation import watch as watch
    from seachange.learning import learn as learn
    from seachange.model import SwitchingModel as SwitchingModel
    from seachange.model import load as load
    from seachange.policies import AutoLearner as AutoLearner
    from seachange.policies import CrossEntropyLearner as CrossEntropyLearner
    from seachange.policies import DMLearner as DMLearner
    from seachange.policies import DRLearner as DRLearner
    from seachange.policies import IPSLearner as IPSLearner
    from seachange.policies import MRDRLearner as MRDRLearner
    from seachange.policies import POEMLearner as POEMLearner
    from seachange.policies import PolicySet as PolicySet
    from seachange.policies import SNIPSLearner as SNIPSLearner
    from seachange.policies import SoftmaxPolicy as SoftmaxPolicy
    from seachange.policies import TabularLearner as TabularLearner
    from seachange.policies import TabularPolicy as TabularPolicy
    from seachange.policies import learn_per_state as learn_per_state
    from seachange.propensities import PropensityReport as PropensityReport
    from seachange.propensities import estimate_logging_probs as estimate_logging_probs
    from seachange.propensities import estimate_propensities as estimate_propensities
    from seachange.propensities import propensity_report as propensity_report
    from seachange.reading import BanditLog as BanditLog
    from seachange.reading import DecisionLog as DecisionLog
    from seachange.reading import log_from_obp as log_from_obp
    from seachange.reading import read_log as read_log
    from seachange.reading import write_log as write_log
    from seachange.states import ChangePointOracle as ChangePointOracle
    from seachange.states import HMMOracle as HMMOracle
    from seachange.states import KnownStates as KnownStates
    from seachange.states import LiveFilter as LiveFilter
    from seachange.states import SingleState as SingleState
    from seachange.states import StateLabels as StateLabels
    from seachange.states import SwitchingRegression as SwitchingRegression

_HOMES = {
    "check": ("Finding", "LogCheck", "check_log"),
    "deploy": ("Decision", "DeploymentState", "Exp4S", "PosteriorSampling", "SinglePolicy"),
    "errors": ("RefusedError", "SeachangeError", "SeachangeWarning"),
    "evaluation": (
        "Bound", "Diagnostics", "Forecast", "FutureEstimate", "ModelBounds", "OnlineEstimate", "ValueEstimate",
        "ValuesOverTime", "diagnose", "evaluate", "evaluate_by_period", "evaluate_future", "evaluate_online",
        "evaluate_over_time", "evaluate_states", "forecast", "model_bounds", "watch",
    ),
    "learning": ("learn",),
    "model": ("SwitchingModel", "load"),
    "policies": (
        "AutoLearner", "CrossEntropyLearner", "DMLearner", "DRLearner", "IPSLearner", "MRDRLearner", "POEMLearner",
        "PolicySet", "SNIPSLearner", "SoftmaxPolicy", "TabularLearner", "TabularPolicy", "learn_per_state",
    ),
    "propensities": (
        "PropensityReport", "estimate_logging_probs", "estimate_propensities", "propensity_report",
    ),
    "reading": ("BanditLog", "DecisionLog", "log_from_obp", "read_log", "write_log"),
    "states": (
        "ChangePointOracle", "HMMOracle", "KnownStates", "LiveFilter", "SingleState", "StateLabels",
        "SwitchingRegression",
    ),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["simulate", *sorted(_HOME_OF)]


def __getattr__(name: str) -> Any:
    """Import a public name from its home on first use."""
    if name == "simulate":
        return import_module("seachange.simulate")
    if name == "__version__":
        from importlib.metadata import version

        return version("seachange")
    if name in _HOME_OF:
        value = getattr(import_module(f"seachange.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'seachange' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
