"""Seachange learns, from logs of past decisions, policies that know how to change their mind.

    log = sc.read_log("clicks.parquet")                          context, action, reward, propensity, in time order
    labels = sc.HMMOracle(n_states=5).fit(log).predict(log)      latent states of the world
    policies = sc.learn_per_state(log, labels, sc.DRLearner())   one policy per state
    deployer = sc.Exp4S(policies)                                switched online by the last rewards

``sc.learn(log)`` does all of it. Names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# ruff: noqa: F403 - _HOMES lists the names; type checkers see everything that these modules export.
if TYPE_CHECKING:
    from seachange import simulate as simulate
    from seachange.check import *
    from seachange.deploy import *
    from seachange.errors import RefusedError as RefusedError
    from seachange.errors import SeachangeError as SeachangeError
    from seachange.errors import SeachangeWarning as SeachangeWarning
    from seachange.evaluation import *
    from seachange.learning import learn as learn
    from seachange.model import SwitchingModel as SwitchingModel
    from seachange.model import load as load
    from seachange.policies import *
    from seachange.propensities import *
    from seachange.reading import *
    from seachange.states import *

_HOMES = {
    "check": ("Finding", "LogCheck", "check_log"),
    "deploy": (
        "AdaptiveSampling", "Alert", "Decision", "DeploymentState", "Exp4S", "PosteriorSampling", "SinglePolicy",
    ),
    "errors": ("RefusedError", "SeachangeError", "SeachangeWarning"),
    "evaluation": (
        "Bound", "DeploymentEstimate", "Diagnostics", "Forecast", "FutureEstimate", "ModelBounds", "OnlineEstimate",
        "ValueEstimate", "ValuesOverTime", "diagnose", "evaluate", "evaluate_by_period", "evaluate_deployment",
        "evaluate_future", "evaluate_online", "evaluate_over_time", "evaluate_states", "forecast", "model_bounds",
        "watch",
    ),
    "learning": ("learn",),
    "model": ("SwitchingModel", "load"),
    "policies": (
        "AutoLearner", "CrossEntropyLearner", "DMLearner", "DRLearner", "IPSLearner", "MRDRLearner", "POEMLearner",
        "PolicySet", "SNIPSLearner", "SoftmaxPolicy", "TabularLearner", "TabularPolicy", "learn_per_state",
    ),
    "propensities": ("PropensityReport", "estimate_logging_probs", "estimate_propensities", "propensity_report"),
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
