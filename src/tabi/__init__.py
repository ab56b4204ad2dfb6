"""Target-aware Bayesian inference: E[f(x)] under a posterior, to the accuracy asked for."""

from tabi.expect import expect, log_evidence, probability
from tabi.methods import (
    GTI,
    SNIS,
    TATI,
    AnnealedIS,
    BridgeSampling,
    MonteCarlo,
    NestedSampling,
    PowerPosterior,
    References,
)
from tabi.posterior import Posterior
from tabi.result import Result, load
from tabi.target import SignedLog

__version__ = "0.1.0"

__all__ = [
    "GTI",
    "SNIS",
    "TATI",
    "AnnealedIS",
    "BridgeSampling",
    "MonteCarlo",
    "NestedSampling",
    "Posterior",
    "PowerPosterior",
    "References",
    "Result",
    "SignedLog",
    "expect",
    "load",
    "log_evidence",
    "probability",
]
