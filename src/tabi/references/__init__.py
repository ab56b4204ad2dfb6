"""References: normalised densities that legs start at and weights are taken against."""

from tabi.references.base import AbstractReference, Density
from tabi.references.fits import AbstractFit, FitGaussian, FitKDE, FitMixture
from tabi.references.mixture import StudentMixture
from tabi.references.prior import Prior

__all__ = [
    "AbstractFit",
    "AbstractReference",
    "Density",
    "FitGaussian",
    "FitKDE",
    "FitMixture",
    "Prior",
    "StudentMixture",
]
