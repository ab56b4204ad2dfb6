"""What a reference is: a normalised density that can be sampled exactly."""

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from tabi.runtime.compiled import ProgramCache, static_key
from tabi.runtime.precision import precision
from tabi.target import AbstractBase, Target

# Draws are made in so many at once, so that few programs are compiled.
SIZES = (16, 256, 4096)

PROGRAMS = ProgramCache()


class AbstractReference(AbstractBase):
    """A normalised density in the sampling space with exact draws."""

    @abstractmethod
    def sample(self, target: Target, random: np.random.Generator, count: int) -> np.ndarray:
        """Independent draws in the sampling space, [draw, coordinate]."""


class Density(AbstractReference):
    """A user's own normalised density, in the user's space.

    Parameters
    ----------
    log_density
        JAX function of one position: the log of a density that integrates to one.
    sample
        `sample(key) -> position`, an exact draw from it.

    Examples
    --------
    >>> import jax
    >>> import tabi
    >>> wide = tabi.references.Density(
    ...     lambda x: jax.scipy.stats.norm.logpdf(x, scale=3.0),
    ...     lambda key: 3.0 * jax.random.normal(key),
    ... )
    """

    log_position: Callable[..., Any] = eqx.field(static=True)
    draw: Callable[..., Any] = eqx.field(static=True)

    def __init__(self, log_density: Callable[..., Any], sample: Callable[..., Any]) -> None:
        for name, function in (("log_density", log_density), ("sample", sample)):
            if not callable(function):
                raise TypeError(f"{name} must be a function, got {type(function).__name__}")
        self.log_position, self.draw = log_density, sample

    def log_density(self, target: Target, z: jax.Array) -> jax.Array:
        x, log_det = target.transform.forward(z)
        return self.log_position(target.unravel(x)) + log_det

    def sample(self, target: Target, random: np.random.Generator, count: int) -> np.ndarray:
        return exact_positions(target, self.draw, random, count)


def exact_positions(
    target: Target, draw: Callable[..., Any], random: np.random.Generator, count: int
) -> np.ndarray:
    """Draws of the user's `draw(key) -> position` in the sampling space, [draw, coordinate]."""
    padded = next((size for size in SIZES if size >= count), -(-count // SIZES[-1]) * SIZES[-1])
    words = random.integers(0, 2**32, (padded, 2), dtype=np.uint32)
    key = ("exact draws", static_key(draw), str(target.dtype))
    function = partial(_draw_all, draw, target.dtype)
    with precision(target.dtype):
        flat = np.asarray(PROGRAMS.call(key, function, words)[0], np.float64)[:count]
    if flat.shape != (count, target.size):
        raise ValueError(
            f"sample gave positions of {flat.shape[-1]} numbers, a position has {target.size}"
        )
    return target.transform.inverse(flat)


def _draw_all(draw: Callable[..., Any], dtype: np.dtype, words: jax.Array) -> jax.Array:
    def one(words: jax.Array) -> jax.Array:
        position = draw(jax.random.wrap_key_data(words, impl="threefry2x32"))
        return ravel_pytree(position)[0].astype(dtype)

    return jax.vmap(one)(words)
