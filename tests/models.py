"""Models with exact answers, in a module that other processes can import.

Functions live at module level and are used by many tests: programs are compiled once for each.
"""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

COVARIANCE = np.array([[1.0, 0.5], [0.5, 2.0]])
PRECISION = np.linalg.inv(COVARIANCE)
# E (x - k)^2 on x > k, for edges that leave f different from 0 on 30% and 99% of N(0, 1).
EDGE_30, EDGE_99 = float(norm.isf(0.3)), float(norm.isf(0.99))


def hinge_truth(edge: float) -> float:
    return float((1 + edge**2) * norm.sf(edge) - edge * norm.pdf(edge))


def normal(x):
    """N(0, COVARIANCE), whose first coordinate is N(0, 1)."""
    return -0.5 * x @ jnp.asarray(PRECISION, x.dtype) @ x


def tilt(x):
    """E = exp(2)."""
    return jnp.exp(2 * x[0])


def hinge(x, edge):
    return jnp.maximum(x[0] - edge, 0.0) ** 2


def mild(x):
    """E = exp(1/8)."""
    return jnp.exp(0.5 * x[0])


def kinds(x):
    """f > 0, f < 0, f of both signs and an f that is 0 on 70%, all mild enough for averages."""
    return jnp.stack([mild(x), -mild(x), x[0] + 0.5, hinge(x, EDGE_30)])


KINDS = np.array([np.exp(0.125), -np.exp(0.125), 0.5, hinge_truth(EDGE_30)])


class Counter:
    """Counts what happens while compiled programs run, once per lane."""

    def __init__(self) -> None:
        self.calls = 0
        self._lock = threading.Lock()

    def _add(self, lanes: Any) -> np.ndarray:
        with self._lock:
            self.calls += np.size(lanes)
        return np.zeros(np.shape(lanes), np.int32)

    def tick(self) -> Callable[[jax.Array], jax.Array]:
        """A function that returns its argument and counts; its derivative counts nothing."""

        @jax.custom_jvp
        def counted(value: jax.Array) -> jax.Array:
            # Booleans in and integers out: a callback knows no 64-bit types.
            shape = jax.ShapeDtypeStruct(value.shape, "int32")
            zero = jax.pure_callback(
                self._add, shape, jnp.isnan(value), vmap_method="broadcast_all"
            )
            return value + zero.astype(value.dtype)

        @counted.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            return counted(primals[0]), tangents[0]

        return counted


# Logistic regression: a product of a matrix with the position.
_RANDOM = np.random.default_rng(3)
ROWS = _RANDOM.normal(size=(50, 4))
LABELS = _RANDOM.uniform(size=50) < 1 / (1 + np.exp(-ROWS @ np.array([1.0, -1.0, 0.5, 0.0])))


def logistic(x):
    logits = jnp.asarray(ROWS, x.dtype) @ x
    return jnp.sum(jnp.where(LABELS, logits, 0.0) - jnp.logaddexp(0.0, logits)) - 0.5 * x @ x


def odds(x):
    return jnp.exp(x[0])


# A Gaussian process with an unknown length scale: a Cholesky factor of a matrix of it.
PLACES = np.linspace(0, 1, 6)
HEIGHTS = np.sin(5 * PLACES)


def process(x):
    distance = (PLACES[:, None] - PLACES[None]) ** 2
    kernel = jnp.exp(-distance * jnp.exp(2 * x[0])) + 0.1 * jnp.eye(6, dtype=x.dtype)
    factor = jnp.linalg.cholesky(kernel)
    white = jax.scipy.linalg.solve_triangular(factor, jnp.asarray(HEIGHTS, x.dtype), lower=True)
    return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(factor))) - 0.5 * x @ x


def length_scale(x):
    return jnp.exp(x[0])
