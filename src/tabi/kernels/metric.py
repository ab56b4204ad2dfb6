"""Scales of a rung, learned from its draws: y = L u has roughly the rung's covariance."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import numpy as np


class AbstractMetric(eqx.Module):
    """A linear map L with L L^T close to the covariance of a rung."""

    @abstractmethod
    def init(self, dimension: int) -> np.ndarray:
        """The identity."""

    @abstractmethod
    def estimate(self, draws: np.ndarray) -> np.ndarray:
        """L from draws [draw, coordinate]."""

    @abstractmethod
    def apply(self, factor: jax.Array, vector: jax.Array) -> jax.Array:
        """L v."""

    @abstractmethod
    def apply_transposed(self, factor: jax.Array, vector: jax.Array) -> jax.Array:
        """L^T v."""


class DiagonalMetric(AbstractMetric):
    """One scale per coordinate."""

    def init(self, dimension: int) -> np.ndarray:
        return np.ones(dimension)

    def estimate(self, draws: np.ndarray) -> np.ndarray:
        return _scales(draws)

    def apply(self, factor: jax.Array, vector: jax.Array) -> jax.Array:
        return factor * vector

    def apply_transposed(self, factor: jax.Array, vector: jax.Array) -> jax.Array:
        return factor * vector


class DenseMetric(AbstractMetric):
    """Scales and correlations, the correlations shrunk towards zero as far as noise asks.

    The intensity is Schaefer and Strimmer's (2005) for correlations towards the identity,
    lambda = sum_{i<j} Var(r_ij) / sum_{i<j} r_ij^2, with Var(r) = (1 - r^2)^2 / n: with few
    draws of uncorrelated coordinates the metric is diagonal, with many or strong correlations
    it is the sample covariance. (scikit-learn has shrinkage towards a multiple of the identity
    only, which ruins badly scaled coordinates.)
    """

    def init(self, dimension: int) -> np.ndarray:
        return np.eye(dimension)

    def estimate(self, draws: np.ndarray) -> np.ndarray:
        scales = _scales(draws)
        n, size = draws.shape
        if size == 1 or n < 3:
            return np.diag(scales)
        # Without its constant coordinates, whose correlations are 0 / 0.
        centred = (draws - draws.mean(0)) / scales
        # By n, as in the scales: a correlation above 1 is no correlation.
        correlation = centred.T @ centred / n
        np.fill_diagonal(correlation, 1.0)
        r = correlation[~np.eye(size, dtype=bool)]
        noise = np.sum((1 - np.minimum(r**2, 1)) ** 2) / n
        intensity = float(np.clip(noise / max(np.sum(r**2), 1e-300), 1e-3, 1.0))
        shrunk = (1 - intensity) * correlation + intensity * np.eye(size)
        return scales[:, None] * np.linalg.cholesky(shrunk)

    def apply(self, factor: jax.Array, vector: jax.Array) -> jax.Array:
        return factor @ vector

    def apply_transposed(self, factor: jax.Array, vector: jax.Array) -> jax.Array:
        return factor.T @ vector


# Above this size a dense metric needs more draws than a warm-up has and its products cost more
# than most models.
DENSE_UP_TO = 100


def default_metric(dimension: int) -> AbstractMetric:
    """Dense in moderate dimension, diagonal beyond."""
    return DenseMetric() if dimension <= DENSE_UP_TO else DiagonalMetric()


def factor_of(covariance: Any, dimension: int) -> np.ndarray:
    """Cholesky factor of a user's covariance: a number, a vector of variances or a matrix."""
    array = np.asarray(covariance, np.float64)
    if array.ndim <= 1:
        array = np.diag(np.broadcast_to(array, (dimension,)))
    if array.shape != (dimension, dimension):
        raise ValueError(
            f"covariance has shape {array.shape}, expected a number, ({dimension},) or "
            f"({dimension}, {dimension})"
        )
    try:
        return np.linalg.cholesky(array)
    except np.linalg.LinAlgError:
        raise ValueError("covariance must be positive definite") from None


def _scales(draws: np.ndarray) -> np.ndarray:
    """Standard deviations, with a floor for coordinates that have not moved."""
    scales = draws.std(0)
    positive = scales[scales > 0]
    floor = 1e-6 * (np.median(positive) if positive.size else 1.0)
    return np.maximum(scales, floor)
