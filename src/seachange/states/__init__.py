"""Latent states of a log: oracles that label each round, and the models behind them."""

from seachange.states.change_point import ChangePointOracle
from seachange.states.hmm import HMMOracle
from seachange.states.labels import KnownStates, SingleState, StateLabels
from seachange.states.switching_regression import LiveFilter, SwitchingRegression

__all__ = [
    "ChangePointOracle",
    "HMMOracle",
    "KnownStates",
    "LiveFilter",
    "SingleState",
    "StateLabels",
    "SwitchingRegression",
]
