"""JAX's settings inside tabi's calls, and nothing outside them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tabi.runtime.precision import precision


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("outside", [False, True])
def test_the_precision_holds_inside_and_the_flag_is_back_outside(dtype, outside):
    with jax.enable_x64(outside):
        with precision(np.dtype(dtype)):
            assert jnp.asarray(0.1).dtype == dtype
        assert jax.config.jax_enable_x64 is outside


def test_random_bits_depend_on_no_flag_of_the_users():
    drawn = []
    for flag in (False, True):
        with jax.threefry_partitionable(flag), precision(np.dtype("float64")):
            key = jax.random.key(1, impl="threefry2x32")
            drawn.append(np.asarray(jax.random.normal(key, (5,))))
    np.testing.assert_array_equal(*drawn)
