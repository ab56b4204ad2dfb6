"""Estimators: the draws of a leg -> a log ratio; combine: legs, signs, R -> the answer."""

from tabi.estimators.bar import BAR
from tabi.estimators.base import AbstractEstimator, Estimate, EstimationError
from tabi.estimators.combine import (
    Answer,
    Term,
    average,
    combine,
    fraction,
    inverse,
    product,
)
from tabi.estimators.mbar import MBAR
from tabi.estimators.quadrature import (
    AbstractVariable,
    CorrectedTrapezoid,
    Identity,
    LeftRiemann,
    Power,
    RightRiemann,
    Simpson,
    Trapezoid,
)
from tabi.estimators.stepping_stones import BackwardSteppingStones, ForwardSteppingStones

__all__ = [
    "AbstractEstimator",
    "AbstractVariable",
    "Answer",
    "BAR",
    "BackwardSteppingStones",
    "CorrectedTrapezoid",
    "EstimationError",
    "Estimate",
    "ForwardSteppingStones",
    "Identity",
    "LeftRiemann",
    "MBAR",
    "Power",
    "RightRiemann",
    "Simpson",
    "Term",
    "Trapezoid",
    "average",
    "combine",
    "fraction",
    "inverse",
    "product",
]
