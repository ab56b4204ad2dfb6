"""Methods: one file an algorithm."""

from tabi.methods.annealed_is import AnnealedIS
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.bridge_sampling import BridgeSampling
from tabi.methods.gti import GTI
from tabi.methods.monte_carlo import MonteCarlo
from tabi.methods.nested_sampling import NestedSampling
from tabi.methods.power_posterior import PowerPosterior
from tabi.methods.snis import SNIS
from tabi.methods.tati import TATI, References

__all__ = [
    "GTI",
    "SNIS",
    "TATI",
    "AbstractMethod",
    "AnnealedIS",
    "BridgeSampling",
    "MonteCarlo",
    "NestedSampling",
    "PowerPosterior",
    "Question",
    "References",
]
