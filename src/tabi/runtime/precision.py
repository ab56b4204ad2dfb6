"""JAX's settings inside tabi's own calls; the global flags are never touched."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np


@contextmanager
def precision(dtype: np.dtype) -> Iterator[None]:
    """64-bit types for float64, and random bits that no flag of the user's can change.

    JAX keeps these settings per thread, so every worker enters them for itself.
    """
    with jax.enable_x64(dtype == np.float64), jax.threefry_partitionable(True):
        yield
