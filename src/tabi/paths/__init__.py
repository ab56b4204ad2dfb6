"""Paths: densities between two ends, as functions of `Scalars` and beta."""

from tabi.paths.base import AbstractPath
from tabi.paths.ends import (
    AbstractEnd,
    Base,
    FullPosterior,
    Restricted,
    RestrictedBase,
    TimesF,
)
from tabi.paths.geometric import GeometricPath
from tabi.paths.level import LevelPath

__all__ = [
    "AbstractEnd",
    "AbstractPath",
    "Base",
    "GeometricPath",
    "FullPosterior",
    "LevelPath",
    "Restricted",
    "RestrictedBase",
    "TimesF",
]
