"""log Z: power posteriors and every other method that can, on priors with exact answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import normal
from scipy import stats

import tabi
from tabi.kernels import RandomWalk
from tabi.methods.base import BudgetTooSmall
from tabi.paper.problems import gaussian
from tabi.references import Density
from tabi.schedules import Adaptive

Z_LIMIT = 4.0
KEYS = 10
PROBLEM = gaussian(2.0, 2)
PARTS = tabi.Posterior.from_parts(PROBLEM.log_prior, PROBLEM.log_likelihood, PROBLEM.sample_prior)


def ask(posterior, method=None, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 40_000, "key": 1} | options
    return tabi.log_evidence(posterior, method=method, progress=False, **options)


def assert_right(result, log_z, precise=0.05):
    assert abs(result.log_value - log_z) < Z_LIMIT * result.log_stderr
    assert result.log_stderr < precise and result.sign == 1
    assert result.converged, result.warnings


def wide_log_density(x):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, -0.4, 1.2))


def wide_draw(key):
    return -0.4 + 1.2 * jax.random.normal(key, (2,))


METHODS = {
    "by default": (None, 40_000),
    "as published": (tabi.PowerPosterior.as_published(1.5, rungs=20), 150_000),
    "GTI": (tabi.GTI(), 40_000),
    "prior draws": (tabi.MonteCarlo(), 40_000),
    "prior draws, as published": (tabi.MonteCarlo.as_published(2.0), 40_000),
    "a bridge, as published": (tabi.BridgeSampling.as_published(1.5), 40_000),
    "importance sampling": (tabi.SNIS(Density(wide_log_density, wide_draw)), 20_480),
}


@pytest.mark.parametrize(("method", "budget"), METHODS.values(), ids=METHODS.keys())
def test_every_method_finds_the_evidence_of_a_gaussian(method, budget):
    assert_right(ask(PARTS, method, max_evaluations=budget), PROBLEM.log_evidence)


def test_error_bars_are_calibrated():
    results = [ask(PARTS, max_evaluations=16_000, key=10 + key) for key in range(KEYS)]
    z = np.array([(r.log_value - PROBLEM.log_evidence) / r.log_stderr for r in results])
    low, high = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], KEYS) / KEYS)
    assert low < np.sqrt(np.mean(z**2)) < high
    assert abs(np.mean(z)) < 4 / np.sqrt(KEYS)


def test_a_tolerance_is_that_of_z():
    result = ask(PARTS, rel_tol=0.03, max_evaluations=10**6)
    assert result.converged and result.log_stderr <= 0.03
    assert result.evaluations < 100_000


def test_every_ladder_begins_at_a_prior_draw():
    diagnostics = ask(PARTS).diagnostics
    assert diagnostics is not None and diagnostics.notes == ()


# Zeros of the likelihood, with bounds, names and a simulator's other output.


def exponential(x):
    return -x["rate"]


def decay(x):
    """exp(-2 rate - 1000) on rate < 1, and what a simulator has besides."""
    log_likelihood = jnp.where(x["rate"] < 1.0, -2.0 * x["rate"] - 1000.0, -jnp.inf)
    return log_likelihood, {"half life": jnp.log(2.0) / x["rate"]}


DECAY = tabi.Posterior.from_parts(
    exponential,
    decay,
    init={"rate": 0.5},
    bounds=({"rate": 0.0}, {"rate": np.inf}),
    has_aux=True,
)
DECAY_LOG_Z = -1000 + float(np.log(-np.expm1(-3.0) / 3))
LADDER = tabi.GTI(kernel=RandomWalk(), schedule=Adaptive(count=4))

ZEROS = {
    "power posteriors": tabi.PowerPosterior(LADDER),
    "as published, restricted": tabi.PowerPosterior.as_published(0.5, rungs=20, zeros=True),
    "as published, prior draws rejected": tabi.PowerPosterior.as_published(0.5, rungs=20),
}


@pytest.mark.parametrize("method", ZEROS.values(), ids=ZEROS.keys())
def test_zeros_of_the_likelihood(method):
    """R = 1 - 1/e of the prior is left."""
    result = ask(DECAY, method, max_evaluations=150_000)
    assert_right(result, DECAY_LOG_Z)
    assert result.value == 0.0, "Z underflows, its logarithm does not"


@pytest.mark.parametrize(("prior_draws", "count"), [(None, 400), (1000, 1000)])
def test_the_prior_mass_costs_k_draws_of_the_prior(prior_draws, count):
    method = tabi.PowerPosterior.as_published(0.5, rungs=20, zeros=True, prior_draws=prior_draws)
    result = ask(DECAY, method, max_evaluations=20 * 400 + count)
    assert result.evaluations == 20 * 400 + count
    assert result.diagnostics is not None
    rounds = {record.phase: record.sweeps for record in result.diagnostics.rounds}
    assert rounds == {"posterior": count - 1, "measure": 400}


def test_as_published_costs_a_chain_for_every_rung():
    method = tabi.PowerPosterior.as_published(1.5, rungs=20)
    assert ask(PARTS, method, max_evaluations=8019).evaluations == 8000
    with pytest.raises(BudgetTooSmall, match="max_evaluations=159 .* need at least 160$"):
        ask(PARTS, method, max_evaluations=159)


# Refusals.


def test_a_posterior_without_parts_is_refused():
    with pytest.raises(ValueError, match="prior from the likelihood.*Posterior.from_parts"):
        ask(tabi.Posterior(normal, np.zeros(2)))


def test_power_posteriors_answer_no_other_question():
    for method in (tabi.PowerPosterior(), tabi.PowerPosterior.as_published(1.0)):
        with pytest.raises(ValueError, match=r"tabi\.log_evidence.*use tabi\.GTI\(\)"):
            tabi.expect(PROBLEM.f, PARTS, method=method, progress=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"posterior": normal}, TypeError, "tabi.Posterior"),
        ({"rel_tol": 0}, ValueError, "rel_tol=0"),
        ({"max_evaluations": 0}, ValueError, "max_evaluations"),
        ({"method": "TI"}, TypeError, "tabi.GTI()"),
    ],
)
def test_impossible_arguments(options, error, message):
    with pytest.raises(error) as caught:
        ask(**({"posterior": PARTS} | options))
    assert message in str(caught.value)
