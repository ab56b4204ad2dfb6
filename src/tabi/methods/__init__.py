"""Methods: one file an algorithm."""

from tabi.methods.base import AbstractMethod, Question
from tabi.methods.bridge_sampling import BridgeSampling
from tabi.methods.gti import GTI
from tabi.methods.monte_carlo import MonteCarlo
from tabi.methods.power_posterior import PowerPosterior
from tabi.methods.snis import SNIS

__all__ = [
    "GTI",
    "SNIS",
    "AbstractMethod",
    "BridgeSampling",
    "MonteCarlo",
    "PowerPosterior",
    "Question",
]
