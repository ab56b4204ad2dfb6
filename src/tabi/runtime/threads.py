"""XLA's thread pool and LAPACK: how programs that factorise matrices are kept from deadlock.

XLA on a CPU runs the independent operations of a program on a pool of as many threads as there are
cores; a batched LAPACK call (Cholesky, solve, slogdet, ...) runs on one of them, hands parts of its
batch to the same pool and waits. Where every thread waits, nobody works: two programs at once, or
one with several factorisations, stop forever on two cores (jaxlib 0.10.2, without tabi too).

So the pool is made large before JAX starts (it reads NPROC; idle threads cost nothing, and results
no longer depend on the number of cores), and programs with LAPACK calls run one at a time.
"""

import os
import threading
from contextlib import AbstractContextManager, nullcontext

import jax

# More than the factorisations of one program that can wait at the same time.
POOL = 64

os.environ.setdefault("NPROC", str(max(POOL, os.cpu_count() or 1)))

_ONE_AT_A_TIME = threading.Lock()


def turn_to_run(lowered: jax.stages.Lowered) -> AbstractContextManager:
    """What a program must hold while it runs: the same lock for all that call LAPACK."""
    if jax.default_backend() == "cpu" and "lapack_" in lowered.as_text():
        return _ONE_AT_A_TIME
    return nullcontext()
