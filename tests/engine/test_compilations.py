"""Few programs a run, and none on a second call with the same functions and shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tabi
from tabi.schedules import Uniform

COMPILED: list[float] = []


@pytest.fixture(autouse=True, scope="module")
def count_compilations():
    def listen(event: str, seconds: float, **_: object) -> None:
        if event.endswith("backend_compile_duration"):
            COMPILED.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield


TRACES = {"density": 0, "f": 0}


def density(x):
    TRACES["density"] += 1
    return -0.5 * jnp.sum(x**2)


def f(x):
    TRACES["f"] += 1
    return jnp.stack([jnp.exp(x[0]), x[1] ** 2])


def run(key, **options):
    posterior = tabi.Posterior(density, np.zeros(3))
    options = {"rel_tol": None, "max_evaluations": 40_000} | options
    return tabi.expect(f, posterior, key=key, progress=False, **options)


def test_few_programs_a_run_and_none_on_a_second_call():
    first = run(0, method=tabi.GTI(schedule=Uniform(4)))
    assert 1 <= first.diagnostics.compilations <= 6
    assert first.diagnostics.compile_seconds > 0
    # Each program is traced a few times at most (its loop body is traced again for its types).
    assert 0 < TRACES["density"] <= 12 and 0 < TRACES["f"] <= 12
    before, compiled = dict(TRACES), len(COMPILED)
    assert compiled >= first.diagnostics.compilations
    second = run(1, method=tabi.GTI(schedule=Uniform(4)), max_evaluations=60_000)
    assert second.diagnostics.compilations == 0 and second.diagnostics.compile_seconds == 0
    assert before == TRACES, "the second call traced the model again"
    assert len(COMPILED) == compiled, "the second call compiled something"
    assert second.value.tobytes() != first.value.tobytes()


def test_a_default_run_with_adapted_rungs_compiles_at_most_six_programs():
    result = run(2, rel_tol=0.1, max_evaluations=10**6)
    assert result.diagnostics.compilations <= 6
    compiled = len(COMPILED)
    again = run(2, rel_tol=0.1, max_evaluations=10**6)
    assert len(COMPILED) == compiled and again.value.tobytes() == result.value.tobytes()
