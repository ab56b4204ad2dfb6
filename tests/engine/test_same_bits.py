"""The same key gives the same bits, for every number and kind of workers."""

import dataclasses
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import jax
import models
import numpy as np
import pytest

import tabi
from tabi.schedules import Uniform

METHOD = tabi.GTI(schedule=Uniform(3))
MODELS = {
    "matrix product": (models.odds, tabi.Posterior(models.logistic, np.zeros(4))),
    "Cholesky factor": (models.length_scale, tabi.Posterior(models.process, np.zeros(1))),
}


def run(name, executor=None, key=3, **options):
    f, posterior = MODELS[name]
    options = {"rel_tol": None, "max_evaluations": 20_000, "ladders": 8} | options
    return tabi.expect(
        f, posterior, method=METHOD, key=key, executor=executor, progress=False, **options
    )


def bits(result: tabi.Result) -> tuple:
    """Every number of the result that is no time."""
    d = result.diagnostics
    legs = [
        np.concatenate([np.ravel(getattr(leg, name)) for name in ("acceptance", "rhat", "ess")])
        for leg in d.legs
    ]
    rounds = [dataclasses.replace(record, seconds=0.0) for record in d.rounds]
    arrays = (result.value, result.stderr, result.log_value, d.ladder_ratio, *legs)
    return (*(a.tobytes() for a in arrays), result.evaluations, repr(rounds), result.warnings)


@pytest.fixture(scope="module")
def reference():
    return {name: bits(run(name)) for name in MODELS}


@pytest.fixture(scope="module")
def pool():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        yield executor


@pytest.mark.parametrize("name", MODELS)
def test_a_second_run_gives_the_same_bits_and_another_key_others(name, reference):
    assert bits(run(name)) == reference[name]
    assert bits(run(name, key=4))[0] != reference[name][0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_any_number_of_threads_gives_the_same_bits(name, threads, reference):
    with ThreadPoolExecutor(threads) as executor:
        assert bits(run(name, executor)) == reference[name]


@pytest.mark.parametrize("name", MODELS)
def test_spawned_processes_give_the_same_bits(name, reference, pool):
    assert bits(run(name, pool)) == reference[name]


def test_keys_of_every_kind_give_the_same_bits(reference):
    name = "matrix product"
    for key in (np.int64(3), jax.random.key(3), jax.random.PRNGKey(3)):
        assert bits(run(name, key=key)) == reference[name]


@pytest.mark.parametrize("flag", [False, True])
def test_the_global_precision_flag_is_neither_touched_nor_read(flag, reference):
    before = jax.config.jax_enable_x64
    try:
        jax.config.update("jax_enable_x64", flag)
        result = run("matrix product")
        assert jax.config.jax_enable_x64 is flag
    finally:
        jax.config.update("jax_enable_x64", before)
    assert bits(result) == reference["matrix product"]
    assert result.value.dtype == result.stderr.dtype == np.float64


def test_the_answer_is_that_of_the_model():
    """The process has one coordinate, whose posterior quadrature integrates."""
    grid = np.linspace(-6, 6, 2001)
    with jax.enable_x64(True):
        log_pi = np.asarray(jax.vmap(models.process)(grid[:, None]))
    weights = np.exp(log_pi - log_pi.max())
    truth = np.log(np.sum(weights * np.exp(grid)) / weights.sum())
    result = run("Cholesky factor")
    assert abs(result.log_value - truth) < 4.5 * result.log_stderr < 0.5


def test_a_forked_pool_is_refused():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as executor:
        with pytest.raises(ValueError, match="spawn"):
            run("matrix product", executor)
