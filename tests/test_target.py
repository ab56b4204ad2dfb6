"""Target: positions and values of every kind become the right scalars and gradient rows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tabi
from tabi.references import Prior, StudentMixture
from tabi.target import SignedLog, build_target


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def log_density(x):
    return -0.5 * jnp.sum(x**2)


def target(f, log=False, density=log_density, init=(0.5, -1.0), **options):
    posterior = tabi.Posterior(density, np.asarray(init), **options)
    return build_target(posterior, f, posterior.init, log=log)


Z = np.array([0.5, -1.0])


def signed(x):
    return jnp.stack([x[0], x[1], 0.0 * x[0], x[0] * x[1]])


def test_scalars_are_the_logs_of_the_density_and_f():
    s = target(signed).scalars(jnp.asarray(Z))
    assert s.log_pi == -0.625 and s.log_base is None
    np.testing.assert_allclose(s.log_abs_f, [np.log(0.5), 0.0, -np.inf, np.log(0.5)])
    np.testing.assert_array_equal(s.sign_f, [1, -1, 0, -1])


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2)])
def test_components_of_any_shape_are_a_trailing_axis(shape):
    t = target(lambda x: jnp.full(shape, 2.0) * x[0])
    assert t.f_shape == shape and t.components == int(np.prod(shape))
    s, g = t.scalars_and_grads(jnp.asarray(Z))
    assert s.log_abs_f.shape == s.sign_f.shape == (t.components,)
    assert g.log_abs_f.shape == (t.components, 2) and g.log_pi.shape == (2,)


@pytest.mark.parametrize("has_aux", [False, True])
def test_gradient_rows_are_the_gradients_of_the_scalars(has_aux):
    def with_aux(x):
        return log_density(x), signed(x)

    if has_aux:
        t = target(lambda x, aux: aux, density=with_aux, has_aux=True, bounds=(-2.0, np.inf))
    else:
        t = target(signed, bounds=(-2.0, np.inf))
    z = jnp.asarray([0.3, -0.4])
    s, g = t.scalars_and_grads(z)
    for a, b in zip(t.scalars(z), s, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(g.log_pi, jax.grad(lambda z: t.scalars(z).log_pi)(z), rtol=1e-12)
    rows = jax.jacfwd(lambda z: t.scalars(z).log_abs_f)(z)
    for c in (0, 1, 3):
        np.testing.assert_allclose(g.log_abs_f[c], rows[c], rtol=1e-12)
    np.testing.assert_array_equal(g.log_abs_f[2], 0)


@pytest.mark.parametrize("log", [False, True])
def test_gradients_are_finite_where_f_is_zero(log):
    def f(x):
        value = jnp.maximum(x[0] - 1.0, 0.0)
        return jnp.log(value) if log else value

    s, g = target(f, log=log).scalars_and_grads(jnp.asarray(Z))
    assert np.isneginf(s.log_abs_f[0]) and s.sign_f[0] == 0
    np.testing.assert_array_equal(g.log_pi, -Z)
    np.testing.assert_array_equal(g.log_abs_f, [[0, 0]])


def test_gradients_are_zero_outside_the_support():
    def half(x):
        return jnp.where(x[0] > 0, -jnp.sum(x**2) / jnp.maximum(x[0], 0.0), -jnp.inf)

    s, g = target(lambda x: x[0], density=half).scalars_and_grads(jnp.asarray([-1.0, 0.0]))
    assert np.isneginf(s.log_pi) and np.isfinite(g.log_pi).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_an_infinite_f_is_as_invalid_as_nan(value):
    s = target(lambda x: value + 0 * x[0]).scalars(jnp.asarray(Z))
    assert np.isnan(s.log_abs_f[0])


def test_logs_are_taken_as_they_are_far_below_the_range_of_numbers():
    s = target(lambda x: -2000.0 + x[0], log=True).scalars(jnp.asarray(Z))
    assert s.log_abs_f[0] == -1999.5 and s.sign_f[0] == 1


def test_signed_logs_carry_signs_and_zeros():
    def f(x):
        return SignedLog(jnp.array([-3.0, 1.0, 0.0, -1.0]), jnp.array([-900.0, -jnp.inf, 5.0, 1.0]))

    s = target(f, log=True).scalars(jnp.asarray(Z))
    np.testing.assert_array_equal(s.sign_f, [-1, 0, 0, -1])
    np.testing.assert_array_equal(s.log_abs_f, [-900, -np.inf, -np.inf, 1])


def test_positions_are_pytrees_in_the_users_space():
    seen = []

    def density(p):
        seen.append(jax.tree.structure(p))
        return -p["rate"] - 0.5 * jnp.sum(p["location"] ** 2)

    init = {"rate": 1.0, "location": np.zeros((2, 2))}
    posterior = tabi.Posterior(density, init, bounds=({"rate": 0.0, "location": -np.inf}, np.inf))
    t = build_target(posterior, lambda p: p["rate"], init, log=False)
    z = jnp.arange(5.0)
    position = t.position(z)
    assert seen[0] == jax.tree.structure(init) and t.size == 5
    assert position["location"].shape == (2, 2)
    # Leaves in the order of the tree: location, then rate = exp(z), whose Jacobian is exp(z).
    np.testing.assert_array_equal(position["location"].ravel(), [0, 1, 2, 3])
    assert position["rate"] == pytest.approx(np.exp(4.0))
    s = t.scalars(z)
    assert s.log_pi == pytest.approx(-np.exp(4.0) - 7.0 + 4.0)
    assert s.log_abs_f[0] == pytest.approx(4.0)


def test_integers_become_floats():
    t = target(lambda x: x[0], init=(1, 2))
    assert t.dtype == np.float64 and t.position(jnp.asarray(Z)).dtype == np.float64


def test_the_prior_is_the_base_density_where_a_leg_needs_one():
    posterior = tabi.Posterior.from_parts(
        log_density, lambda x: 3.0 * x[0], init=np.zeros(2), bounds=(-2.0, np.inf)
    )
    plain = build_target(posterior, lambda x: x[0], posterior.init, log=False)
    t = plain.bind((Prior(),))
    z = jnp.asarray([0.3, 0.2])
    s, g = t.scalars_and_grads(z)
    x, log_det = t.transform.forward(z)
    np.testing.assert_allclose(s.log_base, [log_density(x) + log_det])
    assert s.log_pi == pytest.approx(float(s.log_base[0] + 3 * x[0]))
    np.testing.assert_allclose(g.log_base, jax.jacobian(lambda z: t.scalars(z).log_base)(z))
    assert plain.scalars(z).log_base is None


MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])


def of_position(x):
    return MATRIX + jnp.outer(x, x)


FACTORISING = {
    "cholesky": lambda x: -jnp.sum(jnp.linalg.cholesky(of_position(x)) ** 2),
    "solve": lambda x: -x @ jnp.linalg.solve(of_position(x), x),
    "slogdet": lambda x: -jnp.linalg.slogdet(jnp.kron(of_position(x), jnp.eye(2)))[1],
    "eigenvalues": lambda x: -jnp.sum(jnp.linalg.eigvalsh(of_position(x)) ** 2),
    "two factors": lambda x: (
        -jnp.sum(jnp.linalg.cholesky(of_position(x)) ** 2)
        - jnp.sum(jnp.linalg.cholesky(of_position(2 * x)) ** 2)
    ),
}
FACTOR = np.linalg.cholesky(MATRIX)
ONCE_FOR_ALL = {
    "no matrix": log_density,
    "constant covariance": lambda x: jax.scipy.stats.multivariate_normal.logpdf(
        x, np.zeros(2), MATRIX
    ),
    "constant factor": lambda x: (
        -jnp.sum(jax.scipy.linalg.solve_triangular(jnp.asarray(FACTOR), x, lower=True) ** 2)
    ),
}


@pytest.mark.parametrize("name", FACTORISING)
def test_lanes_that_factorise_run_one_by_one_to_the_same_numbers(name):
    t = target(signed, density=FACTORISING[name])
    assert t.lane_by_lane
    bases = (StudentMixture(np.ones(1), np.zeros((1, 2)), FACTOR[None], 5.0),)
    places = np.random.default_rng(0).normal(size=(5, 2))

    @jax.jit
    def batch(bases, places):
        return jax.vmap(t.bind(bases).scalars_and_grads)(places)

    # A LAPACK call on [lane, row, column] is what waits for ever.
    text = batch.lower(bases, places).as_text()
    calls = [line for line in text.splitlines() if "@lapack_" in line]
    assert calls and not any("(tensor<5x" in line for line in calls)
    lanes = batch(bases, places)
    apart = dataclasses.replace(t, lane_by_lane=False).bind(bases)
    for i, place in enumerate(places):
        one = apart.scalars_and_grads(jnp.asarray(place))
        lane = jax.tree.map(lambda a, i=i: a[i], lanes)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), lane, one)


def test_f_that_factorises_counts_too():
    assert target(FACTORISING["cholesky"], log=True).lane_by_lane


@pytest.mark.parametrize("name", ONCE_FOR_ALL)
def test_other_lanes_stay_a_batch(name):
    assert not target(signed, density=ONCE_FOR_ALL[name]).lane_by_lane
