"""A run with a proposal of the user's: its budget, and its programs."""

import jax
import numpy as np
import pytest
from models import mild, normal

import tabi
from tabi.references import Density

POSTERIOR = tabi.Posterior(normal, np.zeros(2))
COMPILED: list[float] = []


@pytest.fixture(autouse=True, scope="module")
def count_compilations():
    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event.endswith("backend_compile_duration"):
            COMPILED.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield


def wide(x):
    return jax.scipy.stats.norm.logpdf(x, 0.0, 2.0).sum()


def draw(key):
    return 2.0 * jax.random.normal(key, (2,))


def ask(budget, key=0):
    return tabi.expect(
        mild,
        POSTERIOR,
        method=tabi.SNIS(Density(wide, draw)),
        max_evaluations=budget,
        rel_tol=None,
        progress=False,
        key=key,
    )


@pytest.mark.parametrize("budget", [1, 2, 3, 5, 100])
def test_no_budget_is_exceeded_however_small(budget):
    assert ask(budget).evaluations <= budget


def test_a_second_run_compiles_nothing():
    ask(5120)
    before = len(COMPILED)
    ask(5120, key=1)
    assert len(COMPILED) == before
