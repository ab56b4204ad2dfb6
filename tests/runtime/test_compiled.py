"""Programs are compiled once, however many threads ask, and equal objects share them."""

from concurrent.futures import ThreadPoolExecutor

import jax.numpy as jnp
import numpy as np

from tabi.kernels import HMC, RandomWalk
from tabi.runtime.compiled import ProgramCache, static_key


class Traced:
    def __init__(self):
        self.traces = 0

    def __call__(self, x):
        self.traces += 1
        return 2 * jnp.sum(x)


def test_threads_that_ask_together_compile_once():
    cache, function = ProgramCache(), Traced()
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.call("a", function, np.ones(3)), range(16)))
    assert function.traces == 1
    assert [float(value) for value, _ in found] == [6.0] * 16
    assert sum(seconds > 0 for _, seconds in found) == 1


def compiles(cache, key, argument):
    return cache.call(key, jnp.sum, argument)[1] > 0


def test_a_program_serves_one_key_and_one_shape():
    cache = ProgramCache()
    arguments = (np.ones(3), np.zeros(3), np.ones(4), np.ones(3, np.int32))
    assert [compiles(cache, "a", x) for x in arguments] == [True, False, True, True]
    assert compiles(cache, "b", np.ones(3))


def test_the_least_recently_used_program_goes_first():
    cache = ProgramCache(most=2)
    assert [compiles(cache, key, np.ones(3)) for key in "abaca"] == [True, True, False, True, False]
    assert compiles(cache, "b", np.ones(3))


def test_static_keys_are_equal_by_content_for_our_objects_and_by_identity_else():
    assert static_key(HMC()) == static_key(HMC()) != static_key(HMC(trajectory=1.0))
    one, same, other = (RandomWalk(covariance=np.diag([1.0, v])) for v in (2.0, 2.0, 3.0))
    assert static_key(one) == static_key(same) != static_key(other)
    assert hash(static_key(one)) == hash(static_key(same))
    unhashable = [{}, {}]
    assert static_key(unhashable[0]) == static_key(unhashable[0]) != static_key(unhashable[1])
    f, g = (lambda x: x), (lambda x: x)
    assert static_key(f) == static_key(f) != static_key(g)
