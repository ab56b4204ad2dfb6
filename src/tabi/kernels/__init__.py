"""Kernels: how a state moves at a rung."""

from tabi.kernels.base import AbstractKernel, Info
from tabi.kernels.hmc import HMC, LEAPFROG, TWO_STAGE, Integrator
from tabi.kernels.metric import AbstractMetric, DenseMetric, DiagonalMetric
from tabi.kernels.random_walk import RandomWalk
from tabi.kernels.slice import Slice

__all__ = [
    "HMC",
    "LEAPFROG",
    "TWO_STAGE",
    "AbstractKernel",
    "AbstractMetric",
    "DenseMetric",
    "DiagonalMetric",
    "Info",
    "Integrator",
    "RandomWalk",
    "Slice",
]
