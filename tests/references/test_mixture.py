"""Densities integrate to one, and their draws are theirs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import tabi
from tabi.references import Density, Prior, StudentMixture
from tabi.target import build_target

FACTOR = np.array([[1.2, 0.0], [-0.7, 0.5]])
CENTRE = np.array([0.3, -1.0])
COVARIANCE = FACTOR @ FACTOR.T
POINTS = np.random.default_rng(0).normal(size=(50, 2)) * 3
TWO = StudentMixture([0.3, 0.7], [[-1.0, 0.5], [2.0, 0.0]], np.stack([FACTOR, np.eye(2)]), [6, 9])
COUNT = 20_000


def target_of(posterior):
    with jax.enable_x64(True):
        return build_target(posterior, lambda x: jnp.ones(()), posterior.init, log=False)


def flat(x):
    return jnp.zeros(())


PLANE = target_of(tabi.Posterior(flat, np.zeros(2)))
LINE = target_of(tabi.Posterior(flat, np.zeros(1)))


def log_density(reference, points, target=PLANE):
    with jax.enable_x64(True):
        each = jax.vmap(lambda z: reference.log_density(target, z))
        return np.asarray(jax.jit(each)(jnp.asarray(points, float)))


def test_the_gaussian_limit_is_scipys():
    found = log_density(StudentMixture([1.0], CENTRE[None], FACTOR[None]), POINTS)
    exact = stats.multivariate_normal(CENTRE, COVARIANCE).logpdf(POINTS)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.parametrize("dof", [1.0, 4.0, 30.0])
def test_a_student_t_is_scipys(dof):
    found = log_density(StudentMixture([1.0], CENTRE[None], FACTOR[None], dof), POINTS)
    exact = stats.multivariate_t(CENTRE, COVARIANCE, dof).logpdf(POINTS)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


def test_a_mixture_adds_its_components_one_of_them_gaussian_and_one_of_no_weight():
    parts = ([0.3, 0.7, 0.0], np.array([CENTRE, -CENTRE, CENTRE]), np.stack([FACTOR] * 3))
    found = log_density(StudentMixture(*parts, np.array([5.0, np.inf, 2.0])), POINTS)
    exact = 0.3 * stats.multivariate_t(CENTRE, COVARIANCE, 5).pdf(POINTS)
    exact += 0.7 * stats.multivariate_normal(-CENTRE, COVARIANCE).pdf(POINTS)
    np.testing.assert_allclose(found, np.log(exact), rtol=1e-10)


def test_the_host_agrees_with_the_compiled_loop():
    host = np.logaddexp.reduce(TWO.log_terms(POINTS), axis=1)
    np.testing.assert_allclose(host, log_density(TWO, POINTS), rtol=1e-10)


@pytest.mark.parametrize("dof", [3.0, np.inf])
def test_it_integrates_to_one_on_a_line(dof):
    parts = ([0.4, 0.6], [[-2.0], [1.0]], [[[0.5]], [[1.5]]])
    mixture = StudentMixture(*map(np.asarray, parts), dof)
    # x = tan(u) brings the tails in.
    u = np.linspace(-np.pi / 2, np.pi / 2, 20_001)[1:-1]
    values = np.exp(log_density(mixture, np.tan(u)[:, None], LINE)) / np.cos(u) ** 2
    assert integrate.simpson(values, x=u) == pytest.approx(1.0, abs=1e-6)


def test_it_integrates_to_one_on_a_grid():
    axis = np.linspace(-60, 60, 1201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    total = np.exp(log_density(TWO, grid)).sum() * 0.1**2
    assert total == pytest.approx(1.0, abs=1e-4)


def test_draws_are_those_of_the_density():
    """Coordinate by coordinate by their distribution, together by an expectation."""
    draws = TWO.sample(PLANE, np.random.default_rng(5), COUNT)
    assert draws.shape == (COUNT, 2)
    scales = np.sqrt(np.diagonal(TWO.factors @ TWO.factors.transpose(0, 2, 1), axis1=1, axis2=2))
    for axis in range(2):

        def below(x, axis=axis):
            parts = zip([0.3, 0.7], TWO.means[:, axis], scales[:, axis], TWO.dof, strict=True)
            return sum(w * stats.t(dof, m, s).cdf(x) for w, m, s, dof in parts)

        assert stats.kstest(draws[:, axis], below).pvalue > 1e-4
    # E [p / q] = 1 over draws of q, for a normalised p with lighter tails.
    p = stats.multivariate_normal([0.5, 0.0], [[1.0, -0.3], [-0.3, 0.5]])
    ratio = np.exp(p.logpdf(draws) - log_density(TWO, draws))
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(COUNT)
    assert ratio.std() < 3


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (([0.5, 0.4], np.zeros((2, 2)), np.stack([np.eye(2)] * 2)), "sum to 1"),
        (([1.5, -0.5], np.zeros((2, 2)), np.stack([np.eye(2)] * 2)), "weights must be positive"),
        (([1.0], np.zeros((2, 2)), np.eye(2)[None]), "got shapes"),
        (([1.0], np.zeros((1, 2)), np.eye(2)), "got shapes"),
        (([1.0], np.zeros((1, 2)), np.eye(2)[None], 0.0), "dof must be positive"),
    ],
)
def test_impossible_parts_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        StudentMixture(*parts)


# A prior and a user's density live in the user's space: bounds bring a Jacobian.


def exponential(x):
    return jnp.where(x["rate"] > 0, -2.0 * x["rate"] + jnp.log(2.0), -jnp.inf)


def draw(key):
    return {"rate": 0.5 * jax.random.exponential(key)}


def no_data(x):
    return jnp.zeros(())


PARTS = tabi.Posterior.from_parts(
    exponential, no_data, draw, init={"rate": 1.0}, bounds=({"rate": 0.0}, {"rate": np.inf})
)
HALF_LINE = target_of(PARTS)


@pytest.mark.parametrize("reference", [Prior(), Density(exponential, draw)], ids=["prior", "own"])
def test_in_bounds_the_density_has_its_jacobian_and_draws_are_transformed(reference):
    z = np.linspace(-30, 30, 20_001)
    values = np.exp(log_density(reference, z[:, None], HALF_LINE))
    assert integrate.simpson(values, x=z) == pytest.approx(1.0, abs=1e-6)
    draws = reference.sample(HALF_LINE, np.random.default_rng(2), COUNT)
    assert draws.shape == (COUNT, 1)
    cumulative = integrate.cumulative_simpson(values, x=z, initial=0)
    assert stats.kstest(draws[:, 0], lambda x: np.interp(x, z, cumulative)).pvalue > 1e-4
    with jax.enable_x64(True):
        rates = jax.vmap(lambda z: HALF_LINE.position(z)["rate"])(jnp.asarray(draws))
    assert stats.kstest(np.asarray(rates), stats.expon(scale=0.5).cdf).pvalue > 1e-4
