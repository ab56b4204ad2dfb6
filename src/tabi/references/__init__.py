"""References: normalised densities that legs start at and weights are taken against."""

from tabi.references.base import AbstractReference, Density

__all__ = ["AbstractReference", "Density"]
