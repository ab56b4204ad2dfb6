"""Keys: every kind a user may hold, and streams that depend on nothing else."""

import jax
import numpy as np
import pytest

from tabi.runtime.keys import as_key, stream, streams, to_jax


def bits(key) -> tuple[int, ...]:
    return stream(as_key(key))


@pytest.mark.parametrize("seed", [0, 1, 7, 2**31 - 1])
def test_an_integer_a_typed_key_and_a_legacy_one_are_the_same_key(seed):
    assert bits(seed) == bits(np.int64(seed)) == bits(jax.random.key(seed))
    assert bits(seed) == bits(jax.random.PRNGKey(seed))
    assert bits(seed) == bits(np.asarray(jax.random.PRNGKey(seed)))


@pytest.mark.parametrize("seed", [0, 5, -1, 2**31, 2**32, 2**33 + 1, 2**62 + 9])
def test_an_integer_gives_the_same_bits_whatever_the_users_flags(seed):
    with jax.enable_x64(True):
        wide = bits(seed)
    with jax.enable_x64(False):
        assert bits(seed) == wide


def test_different_integers_are_different_keys():
    seeds = [0, 1, 2, -1, 2**31, 2**32, 2**32 + 1, 2**33 + 1, 2**62]
    assert len({bits(seed) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize("implementation", ["rbg", "unsafe_rbg"])
def test_keys_of_other_generators_stay_different(implementation):
    seeds = [*range(20), 2**31 - 1, -1]
    assert len({bits(jax.random.key(seed, impl=implementation)) for seed in seeds}) == len(seeds)


@pytest.mark.parametrize(
    "wrong",
    ["0", 1.5, None, True, np.zeros(2), np.zeros((2, 2), np.uint32), np.zeros(1, np.uint32)],
)
def test_anything_else_is_refused_with_what_is_expected(wrong):
    with pytest.raises(TypeError, match=r"key must be an int.*PRNGKey"):
        as_key(wrong)


def test_several_keys_are_refused():
    with pytest.raises(ValueError, match=r"one key.*\(3,\)"):
        as_key(jax.random.split(jax.random.key(0), 3))


def test_streams_are_those_of_stream_and_all_differ():
    key = as_key(3)
    rows = streams(key, 50)
    assert rows.shape == (50, 2) and rows.dtype == np.uint32
    assert len({tuple(row) for row in rows}) == 50
    assert tuple(rows[7]) == stream(key, 7)
    found = {stream(key), stream(key, 0), stream(key, 0, 0), stream(key, 1, 2), stream(key, 2, 1)}
    assert len(found) == 5


def test_a_users_function_gets_a_key_of_jax():
    one, two = (to_jax(as_key(seed)) for seed in (0, 1))
    assert float(jax.random.normal(one)) != float(jax.random.normal(two))
