"""Random keys: from what a user gives to the streams of rounds and ladders."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

IMPLEMENTATION = "threefry2x32"


def as_key(key: Any) -> jax.Array:
    """A typed threefry key from an integer, a typed key or a legacy one."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        # As `jax.random.key` does where 64 bits are enabled; without them it drops the upper 32.
        number = int(key) % 2**64
        return _from_words(np.asarray([number >> 32, number % 2**32], np.uint32))
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape != ():
            raise ValueError(f"key must be one key, got an array of shape {key.shape}")
        # The stream is threefry's whatever implementation the user's key belongs to.
        return _from_words(np.asarray(jax.random.key_data(key), np.uint32).ravel())
    legacy = isinstance(key, jax.Array | np.ndarray) and key.dtype == np.uint32
    if legacy and key.ndim == 1 and key.size >= 2:
        return _from_words(np.asarray(key))
    raise TypeError(
        f"key must be an int, jax.random.key(...) or jax.random.PRNGKey(...), got {key!r}"
    )


def _from_words(words: np.ndarray) -> jax.Array:
    """The key of two words; generators of longer keys have their further words hashed in."""
    key = jax.random.wrap_key_data(jnp.asarray(words[:2]), impl=IMPLEMENTATION)
    return stream(key, *words[2:])


def stream(key: jax.Array, *indices: int | np.uint32) -> jax.Array:
    """The key of a numbered stream below `key`."""
    for index in indices:
        key = jax.random.fold_in(key, index)
    return key


def streams(key: jax.Array, count: int) -> np.ndarray:
    """Raw keys of `count` numbered streams, [count, 2]: plain arrays travel to any worker."""
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(np.arange(count, dtype=np.uint32))
    return np.asarray(jax.random.key_data(keys))


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
