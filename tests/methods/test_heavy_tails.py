"""Averages without a variance are not trusted: Pareto k-hat of the numbers behind them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import kinds, mild, normal
from scipy import stats

import tabi
from tabi.methods.weights import tail_index
from tabi.paper.problems import gaussian
from tabi.references import Density

POSTERIOR = tabi.Posterior(normal, np.array([0.7, 0.0]))


def ask(f, method, posterior=POSTERIOR, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 50_000, "key": 1} | options
    return tabi.expect(f, posterior, method=method, progress=False, **options)


def says(result, *pieces):
    text = " ".join(result.warnings)
    return all(piece in text for piece in pieces)


INFINITE = ("variance looks infinite", "Pareto k-hat")


@pytest.mark.parametrize("k", [0.1, 0.3, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("shift", [0.0, -3000.0, 3000.0])
def test_the_index_of_a_pareto_tail_is_found_at_any_scale(k, shift):
    """k E is the logarithm of a Pareto variable of tail index k, with E exponential."""
    found = [
        tail_index(shift + k * np.random.default_rng(key).exponential(size=20_000))
        for key in range(10)
    ]
    # The fit has 424 draws: a standard deviation of (1 + k) / sqrt(424).
    assert abs(np.mean(found) - k) < 4 * (1 + k) / np.sqrt(424 * 10)


def test_numbers_whose_largest_are_equal_have_no_tail():
    log_values = np.where(np.arange(1000) < 500, 0.0, 1.0)
    assert tail_index(log_values) < 0.5
    assert tail_index(np.append(log_values, -np.inf)) < 0.5


def jump(x):
    """Two values, E = 3 P(x > 1/2) - 1."""
    return jnp.where(x[0] > 0.5, 2.0, -1.0)


METHODS = [tabi.MonteCarlo.as_published(3.0), tabi.SNIS()]


@pytest.mark.parametrize("method", METHODS, ids=["MonteCarlo", "SNIS"])
def test_an_f_of_two_values_is_served(method):
    result = ask(jump, method)
    assert result.converged, result.warnings
    truth = 3 * stats.norm.sf(0.5) - 1
    assert abs(result.value - truth) < 4 * result.stderr < 4 * abs(truth)


# The paper's Gaussian problem: SNIS2 "has infinite variance" in all of its nine panels.
PANELS = [(y, dimension) for dimension in (10, 25, 50) for y in (2.0, 3.5, 5.0)]


@pytest.mark.parametrize(("y", "dimension"), PANELS)
def test_snis_is_never_trusted_on_the_papers_gaussians(y, dimension):
    problem = gaussian(y, dimension)
    posterior = tabi.Posterior(problem.log_density, problem.init)
    covariance = 2.4**2 / dimension / 4
    result = ask(problem.f, tabi.SNIS.as_published(covariance), posterior, max_evaluations=20_000)
    assert not result.converged and says(result, *INFINITE), result.warnings
    if (y, dimension) in ((2.0, 10), (5.0, 50)):
        result = ask(problem.f, tabi.SNIS(), posterior)
        assert not result.converged and says(result, *INFINITE), result.warnings
        assert says(result, "over the posterior the weights 1/|f| have Pareto k-hat")


def test_snis_is_not_trusted_where_f_crosses_zero():
    """1 / |x + 1/2| has no mean under the posterior: k = 1."""
    result = ask(kinds, tabi.SNIS())
    assert list(result.converged) == [True, True, False, False]
    assert says(result, "over the posterior the weights 1/|f| have Pareto k-hat")


HARD = gaussian(5.0, 50)


def test_averages_of_draws_are_not_trusted_where_a_few_rule_them():
    posterior = tabi.Posterior(HARD.log_density, HARD.init)
    result = ask(HARD.f, tabi.MonteCarlo.as_published(0.05), posterior)
    assert not result.converged and says(result, "the values of |f|", *INFINITE)


def growing(x):
    return jnp.exp(0.45 * x[0] ** 2)


def scaled(variance):
    def log_density(x):
        return jnp.sum(jax.scipy.stats.norm.logpdf(x, 0.0, np.sqrt(variance)))

    def draw(key):
        return np.sqrt(variance) * jax.random.normal(key, (2,))

    return tabi.SNIS(Density(log_density, draw))


@pytest.mark.parametrize(
    ("f", "variance", "what"),
    [(mild, 0.3, "the weights of the posterior"), (growing, 2.2, "the weights of |f| times it")],
    ids=["of the posterior", "of f"],
)
def test_a_proposal_with_too_light_tails_is_not_trusted(f, variance, what):
    """k = 1 - s/t for normals of variances s and t; the target's are up to 2.2 and 13."""
    for key in range(2):
        result = ask(f, scaled(variance), max_evaluations=20_480, key=key)
        assert not result.converged
        assert says(result, what, *INFINITE, "a proposal with heavier tails"), result.warnings


def prior(x):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x))


def likelihood(x):
    return jnp.sum(jax.scipy.stats.norm.logpdf(x, 2.0, 0.5))


def test_the_harmonic_mean_of_the_likelihood_is_not_trusted():
    posterior = tabi.Posterior.from_parts(prior, likelihood, init=np.ones(2))
    result = tabi.log_evidence(
        posterior,
        method=tabi.SNIS.as_published(0.5),
        max_evaluations=20_000,
        rel_tol=None,
        progress=False,
    )
    assert not result.converged and says(result, *INFINITE)
