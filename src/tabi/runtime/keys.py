"""Random keys: from what a user gives to the streams of rounds and ladders.

Outside the compiled loop a key is a tuple of 32-bit words, and streams below it come from NumPy's
`SeedSequence`: hashing one with JAX would compile a program for every shape of it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

IMPLEMENTATION = "threefry2x32"

Key = tuple[int, ...]


def as_key(key: Any) -> Key:
    """The words of an integer, a typed key or a legacy one; those of `jax.random.key(int)`."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        # As JAX does where 64 bits are enabled; without them it drops the upper 32.
        number = int(key) % 2**64
        return (number >> 32, number % 2**32)
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != ():
            raise ValueError(f"key must be one key, got an array of shape {key.shape}")
        return _words(jax.random.key_data(key))
    if isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32:
        if key.ndim == 1 and key.size >= 2:  # a legacy one
            return _words(key)
    raise TypeError(
        f"key must be an int, jax.random.key(...) or jax.random.PRNGKey(...), got {key!r}"
    )


def _words(data: Any) -> Key:
    return tuple(int(word) for word in np.asarray(data, np.uint32).ravel())


def stream(key: Key, *indices: int) -> Key:
    """The key of a numbered stream below `key`, two words."""
    return _words(np.random.SeedSequence(key, spawn_key=indices).generate_state(2))


def streams(key: Key, count: int) -> np.ndarray:
    """Keys of `count` numbered streams, [count, 2]: plain arrays travel to any worker."""
    return np.asarray([stream(key, i) for i in range(count)], np.uint32)


def to_jax(key: Key) -> jax.Array:
    """A typed JAX key, for functions of the user's."""
    return jax.random.wrap_key_data(
        jnp.asarray(np.asarray(stream(key), np.uint32)), impl=IMPLEMENTATION
    )


def chain_keys(words: jax.Array, lanes: int, sweep: jax.Array, purpose: int = 0) -> jax.Array:
    """Typed keys of all chains at one sweep, [ladder * lane], inside a compiled program.

    The words of a ladder's key, plus (lane, sweep): threefry gives independent streams for any
    distinct keys (Salmon et al. 2011), so that no key needs to be hashed from another. Every
    use of threefry in a program costs more compilation than the rest of a move.

    Parameters
    ----------
    words
        Raw keys of the ladders, [ladder, 2].
    lanes
        Lanes of each ladder.
    sweep
        Number of the sweep within its round.
    purpose
        0 or 1: two streams a chain.
    """
    lane = jnp.arange(lanes, dtype=jnp.uint32) + jnp.uint32(purpose << 31)
    first = words[:, None, 0] + lane[None, :]
    second = jnp.broadcast_to(words[:, None, 1] + sweep.astype(jnp.uint32), first.shape)
    stacked = jnp.stack([first, second], -1).reshape(-1, 2)
    return jax.random.wrap_key_data(stacked, impl=IMPLEMENTATION)
