"""The paper's problems: their truths by quadrature, their draws by moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal

from tabi.paper import banana, gaussian

Y = (2.0, 3.5, 5.0)
D = (10, 25, 50)


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def _box_rule(n1=400, n2=600):
    """Gauss-Legendre nodes and weights on the banana's box, split at f's kink x2 = -10."""
    x1, w1 = np.polynomial.legendre.leggauss(n1)
    x2, w2 = np.polynomial.legendre.leggauss(n2)
    x1, w1 = 25 * x1, 25 * w1
    x2, w2 = np.concatenate([-25 + 15 * x2, 5 + 15 * x2]), 15 * np.concatenate([w2, w2])
    grid = np.stack(np.meshgrid(x1, x2, indexing="ij"), axis=-1).reshape(-1, 2)
    return grid, np.outer(w1, w2).ravel()


def _mean_z(draws, exact):
    return (np.mean(draws) - exact) / (np.std(draws) / np.sqrt(np.size(draws)))


def test_banana_truths_by_quadrature():
    problem = banana()
    grid, weights = _box_rule()
    density = weights * np.exp(jax.vmap(problem.log_density)(grid))
    f = jax.vmap(problem.f)(grid)
    z = density.sum()
    assert np.log(z) == pytest.approx(problem.log_evidence, abs=1e-9)
    assert (density * f).sum() / z == pytest.approx(problem.truth, rel=1e-9)
    # The fraction of the posterior where f > 0, as stated in the docstring.
    assert 1 - density[f > 0].sum() / z == pytest.approx(0.0055, abs=1e-4)


@pytest.mark.parametrize("y", Y)
@pytest.mark.parametrize("dimension", D)
def test_gaussian_truth_by_quadrature_along_its_axis(y, dimension):
    problem = gaussian(y, dimension)
    # Rotated to the diagonal, prior, likelihood and f are products of one-dimensional factors:
    # one along the diagonal, D - 1 equal ones across it.
    across = np.zeros(dimension)
    across[:2] = np.array([1, -1]) / np.sqrt(2)
    along = np.ones(dimension) / np.sqrt(dimension)

    def log_integral(log_g):
        total = 0.0
        for direction, power in ((along, 1), (across, dimension - 1)):
            at_zero = float(log_g(np.zeros(dimension)))
            log_line = [float(v) for v in jax.vmap(log_g)(np.outer(line, direction))]
            ratio = np.trapezoid(np.exp(np.array(log_line) - at_zero), line)
            total += power * np.log(ratio)
        return total + at_zero

    line = np.linspace(-15, 15, 3001)
    log_z = log_integral(problem.log_density)
    log_c = log_integral(lambda x: problem.log_density(x) + problem.log_f(x))
    assert log_z == pytest.approx(problem.log_evidence, abs=1e-8)
    assert log_c - log_z == pytest.approx(problem.log_truth, abs=1e-8)


def test_gaussian_factors_are_normalised_as_in_the_paper():
    problem, rng = gaussian(3.5, 10), np.random.default_rng(0)
    m = np.full(10, 3.5 / np.sqrt(10))
    for x in rng.normal(size=(5, 10)):
        assert problem.log_prior(x) == pytest.approx(multivariate_normal.logpdf(x, 0 * m))
        assert problem.log_likelihood(x) == pytest.approx(multivariate_normal.logpdf(-m, x))
        assert problem.log_f(x) == pytest.approx(multivariate_normal.logpdf(x, m, 0.5 * np.eye(10)))


@pytest.mark.parametrize("problem", [gaussian(2.0, 10), banana()], ids=lambda p: p.name)
def test_f_and_log_f_agree_and_gradients_are_finite(problem):
    x = problem.sample_posterior(jax.random.key(0), 1000)
    f, log_f = jax.vmap(problem.f)(x), jax.vmap(problem.log_f)(x)
    np.testing.assert_allclose(f, np.exp(log_f), rtol=1e-12, atol=1e-300)
    assert np.isfinite(problem.log_density(problem.init))
    assert np.all(np.isfinite(jax.vmap(jax.grad(problem.log_f))(x)))


def test_banana_f_is_zero_below_its_kink_and_the_density_outside_the_box():
    problem = banana(log=True)
    assert problem.log and problem.target is problem.log_f and banana().target is not problem.log_f
    below = jnp.array([5.0, -10.0])
    assert problem.f(below) == 0 and problem.log_f(below) == -jnp.inf
    for x in ([25.1, 0.0], [0.0, 20.1], [-25.1, 0.0], [0.0, -40.1]):
        assert problem.log_density(jnp.array(x)) == -jnp.inf


def test_posterior_draws_of_the_gaussian_are_exact():
    problem = gaussian(5.0, 10)
    x = problem.sample_posterior(jax.random.key(3), 40_000)
    m = 5.0 / np.sqrt(10)
    assert abs(_mean_z(x[:, 0], -m / 2)) < 4
    assert abs(_mean_z((x[:, 1] + m / 2) ** 2, 0.5)) < 4
    assert abs(_mean_z(x.sum(axis=1), -10 * m / 2)) < 4


def test_posterior_draws_of_the_banana_are_exact():
    problem = banana()
    x = np.asarray(problem.sample_posterior(jax.random.key(4), 200_000))
    assert np.all(np.isfinite(jax.vmap(problem.log_density)(x)))
    grid, weights = _box_rule()
    density = weights * np.exp(jax.vmap(problem.log_density)(grid))
    density /= density.sum()
    for g in (lambda x: x[:, 0] ** 2, lambda x: x[:, 1], lambda x: x[:, 1] * x[:, 0] ** 2):
        assert abs(_mean_z(g(x), np.sum(density * g(grid)))) < 4


def test_posterior_draws_of_the_banana_redraw_what_leaves_the_box():
    # Without its box the banana has 1.5e-5 of its mass outside: only a large sample meets it.
    x = np.asarray(banana().sample_posterior(jax.random.key(5), 1_000_000))
    assert np.max(np.abs(x[:, 0])) < 25 and np.min(x[:, 1]) > -40


@pytest.mark.parametrize("problem", [gaussian(2.0, 10), banana()], ids=lambda p: p.name)
def test_prior_draws_match_the_prior(problem):
    keys = jax.random.split(jax.random.key(6), 20_000)
    x = np.asarray(jax.vmap(problem.sample_prior)(keys))
    assert np.all(np.isfinite(jax.vmap(problem.log_prior)(x)))

    def mass(t):
        return np.exp(float(problem.log_prior(jnp.full(problem.dimension, 0.0).at[0].set(t))))

    second = quad(lambda t: t**2 * mass(t), -25, 25)[0] / quad(mass, -25, 25)[0]
    assert abs(_mean_z(x[:, 0], 0.0)) < 4
    assert abs(_mean_z(x[:, 0] ** 2, second)) < 4
