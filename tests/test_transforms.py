"""Bounds: there and back, the Jacobian, and gradients far out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tabi.transforms import BoxTransform, box

INF = np.inf
KINDS = {
    "none": (-INF, INF),
    "lower": (2.0, INF),
    "upper": (-INF, -1.0),
    "both": (-3.0, 5.0),
}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def transform(*kinds: str) -> BoxTransform:
    lower, upper = zip(*(KINDS[kind] for kind in kinds), strict=True)
    return BoxTransform(np.asarray(lower), np.asarray(upper))


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind):
    t = transform(kind, "none")
    z = np.linspace(-6, 6, 25)
    for value in z:
        x, _ = t.forward(jnp.asarray([value, 0.0]))
        assert not t.outside(np.asarray(x)).any()
        np.testing.assert_allclose(t.inverse(np.asarray(x)), [value, 0.0], atol=1e-9)


def test_log_det_is_that_of_the_jacobian():
    t = transform(*KINDS)
    z = jnp.asarray([0.3, -1.2, 0.7, 2.1])
    jacobian = jax.jacfwd(lambda z: t.forward(z)[0])(z)
    np.testing.assert_allclose(t.forward(z)[1], np.linalg.slogdet(jacobian)[1], rtol=1e-12)


def test_gradients_stay_finite_far_out():
    t = transform(*KINDS)
    for far in (-400.0, 400.0, 800.0):
        # A coordinate whose own exponential overflows may be infinite, its neighbours not.
        z = jnp.asarray([far, 0.1, 0.2, far])
        slope = jax.grad(lambda z: t.forward(z)[1] + t.forward(z)[0] @ jnp.array([1.0, 1, 1, 1]))(z)
        assert np.isfinite(slope).all()


def test_without_bounds_nothing_changes():
    t = box(None, np.zeros(3), 3)
    z = jnp.asarray([1.0, 2.0, 3.0])
    assert t.is_identity
    np.testing.assert_array_equal(t.forward(z)[0], z)
    assert t.forward(z)[1] == 0


def test_bounds_are_numbers_arrays_or_pytrees_like_a_position():
    template = {"a": jnp.zeros(2), "b": jnp.asarray(0.0)}
    t = box((0.0, INF), template, 3)
    np.testing.assert_array_equal(t.lower, [0, 0, 0])
    t = box(({"a": np.array([0.0, -1.0]), "b": -INF}, {"a": 4.0, "b": INF}), template, 3)
    np.testing.assert_array_equal(t.lower, [0, -1, -INF])
    np.testing.assert_array_equal(t.upper, [4, 4, INF])


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (3.0, r"pair \(lower, upper\), got 3.0"),
        ((0.0, 1.0, 2.0), r"pair \(lower, upper\)"),
        ((1.0, 1.0), r"lower bound must be below.*lower=\[1. 1. 1.\]"),
        ((np.nan, 1.0), "lower bound must be below"),
        ((np.zeros(2), 1.0), "lower bounds do not fit the shapes"),
        (({"a": 0.0}, 1.0), "lower bounds have structure.*a position has"),
    ],
)
def test_impossible_bounds_are_refused(bounds, message):
    with pytest.raises(ValueError, match=message):
        box(bounds, jnp.zeros(3), 3)
