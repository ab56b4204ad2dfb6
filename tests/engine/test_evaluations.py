"""Evaluations: the result's count is that of real model calls, and no budget is exceeded."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import COVARIANCE, Counter, normal

import tabi
from tabi.engine import Effort
from tabi.kernels import HMC, RandomWalk, Slice
from tabi.schedules import Uniform

calls, f_calls = Counter(), Counter()
counted, f_counted = calls.tick(), f_calls.tick()


def density(x):
    return counted(normal(x))


def scalar(x):
    return f_counted(jnp.exp(2 * x[0]))


def vector(x):
    return jnp.stack([scalar(x), -jnp.exp(-x[0]), x[1]])


def simulator(x):
    """A density whose other output f reads."""
    return counted(normal(x)), {"tilt": jnp.exp(2 * x[0])}


def of_simulator(x, aux):
    return f_counted(aux["tilt"] + 0 * x[0])


POSTERIOR = tabi.Posterior(density, np.zeros(2))
SIMULATED = tabi.Posterior(simulator, np.zeros(2), has_aux=True)


SHORT = Effort(search=2, settle=(8, 8), climb=8, refine=(16, 32), particles=4)


def run(f, posterior=POSTERIOR, kernel=None, budget=16_000, **options):
    kernel = HMC() if kernel is None else kernel
    calls.calls = f_calls.calls = 0
    method = tabi.GTI(kernel=kernel, schedule=Uniform(4), effort=SHORT)
    options = {"rel_tol": None, "ladders": 4} | options
    result = tabi.expect(
        f, posterior, method=method, max_evaluations=budget, progress=False, **options
    )
    jax.effects_barrier()
    return result


@pytest.mark.parametrize("kernel", [HMC(), RandomWalk(), Slice()], ids=lambda k: type(k).__name__)
@pytest.mark.parametrize("f", [scalar, vector])
def test_every_call_of_the_model_is_counted_and_the_budget_is_spent(f, kernel):
    budget = 16_000 if f is scalar else 30_000
    result = run(f, kernel=kernel, budget=budget)
    assert result.evaluations == calls.calls == f_calls.calls
    assert 0.95 * budget <= result.evaluations <= budget
    assert result.gradients == (result.evaluations if isinstance(kernel, HMC) else 0)
    # The rounds and the evaluations of the start are all there is.
    rounds = sum(record.evaluations for record in result.diagnostics.rounds)
    assert 1 <= result.evaluations - rounds <= 4
    truth = np.exp(2.0) if f is scalar else np.array([np.exp(2.0), -np.exp(0.5), 0.0])
    assert np.all(np.abs(result.value - truth) < 5 * result.stderr)


@pytest.mark.parametrize("kernel", [HMC(), Slice()], ids=lambda k: type(k).__name__)
def test_a_simulator_runs_once_per_proposal_though_f_reads_its_output(kernel):
    result = run(of_simulator, SIMULATED, kernel=kernel, budget=16_000)
    assert result.evaluations == calls.calls == f_calls.calls
    assert abs(result.log_value - 2) < 4.5 * result.log_stderr


@pytest.mark.parametrize("budget", [1, 5, 100, 1_000, 3_000])
def test_a_budget_that_is_too_small_is_kept_too_and_says_so(budget):
    result = run(scalar, budget=budget)
    assert result.evaluations == calls.calls <= budget
    if not np.isfinite(result.log_stderr):
        assert not result.converged and result.sign == 0
        assert f"max_evaluations={budget:,}" in " ".join(result.warnings)


def test_a_tolerance_that_is_met_leaves_evaluations_and_one_that_is_not_spends_them():
    easy = run(scalar, budget=200_000, rel_tol=0.5)
    assert easy.converged and easy.log_stderr <= 0.5 and easy.evaluations < 30_000
    hard = run(scalar, budget=16_000, rel_tol=1e-4)
    assert not hard.converged and 0.95 * 16_000 <= hard.evaluations <= 16_000
    assert hard.evaluations == calls.calls
    assert "before the tolerance was met" in " ".join(hard.warnings)


def test_the_counting_model_is_the_one_without_a_counter():
    x = jnp.asarray([0.3, -0.4])
    expected = -0.5 * x @ np.linalg.inv(COVARIANCE) @ x
    assert density(x) == pytest.approx(float(expected), rel=1e-5)
