"""The level path: smooth until its turn, sharp from there; f is read behind it only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tabi.paths import LevelPath
from tabi.paths.level import DECADES
from tabi.state import Scalars

LEVELS = np.array([-40.0, -2.0, -0.1, 0.1, 2.0, 40.0])
BOTH = pytest.mark.parametrize("path", [LevelPath(), LevelPath(sharp_at=1.0)], ids=str)


def states(levels=LEVELS) -> Scalars:
    """One state of positive level has f = 0."""
    log_pi = np.linspace(-3, 2, len(levels))
    log_abs_f = np.where(levels > 0, np.log(np.abs(levels)), -np.inf)
    log_abs_f[-1] = -np.inf
    return Scalars(log_pi, log_abs_f, np.where(np.isneginf(log_abs_f), 0, 1), level=levels)


def beta_of(path, tau):
    """Where 1 / tau is what the class says: even in log 1/tau."""
    return path.sharp_at * (0.5 - np.log10(tau) / (2 * DECADES))


@BOTH
def test_the_ends_are_the_posterior_and_f_times_it_where_the_level_is_positive(path):
    s = states()
    np.testing.assert_array_equal(path.log_density(s, 0.0), s.log_pi)
    end = np.where(s.level > 0, s.log_pi + s.log_abs_f, -np.inf)
    np.testing.assert_array_equal(path.log_density(s, 1.0), end)


@BOTH
@pytest.mark.parametrize("tau", [0.01, 1.0, 30.0])
def test_before_the_turn_the_level_acts_through_a_sigmoid_of_width_tau(path, tau):
    s = states()
    found = path.log_density(s, beta_of(path, tau)) - s.log_pi
    exact = np.minimum(s.level / tau, 0.0) - np.log1p(np.exp(-np.abs(s.level) / tau))
    np.testing.assert_allclose(found - found[-1], exact - exact[-1], atol=1e-9)


@BOTH
def test_just_before_the_turn_only_positive_levels_are_left(path):
    s = states()
    left = path.log_density(s, path.turn * (1 - 1e-6)) - s.log_pi
    np.testing.assert_allclose(left[s.level > 0], 0.0, atol=1e-4)
    assert np.all(left[s.level < 0] < -1e20)


def test_at_the_turn_f_is_not_read_yet_and_from_there_its_exponent_grows_to_one():
    path, s = LevelPath(sharp_at=0.4), states()
    inside = s.level > 0
    expected = np.where(inside, s.log_pi, -np.inf)
    np.testing.assert_array_equal(path.log_density(s, 0.4), expected)
    for beta in (0.55, 0.7, 1.0):
        expected = np.where(inside, s.log_pi + (beta - 0.4) / 0.6 * s.log_abs_f, -np.inf)
        np.testing.assert_allclose(path.log_density(s, beta), expected)


@BOTH
def test_f_is_not_read_before_the_turn(path):
    s = states()._replace(log_abs_f=np.full(6, np.nan))
    for beta in (0.0, 0.2 * path.turn, 0.9 * path.turn):
        assert np.all(np.isfinite(path.log_density(s, beta)))


@BOTH
@pytest.mark.parametrize("factor", [1e-9, 7.0, 1e9])
def test_a_multiple_of_the_level_is_the_same_path_at_shifted_betas(path, factor):
    shift = path.sharp_at * np.log10(factor) / (2 * DECADES)
    for tau in (0.1, 1.0, 10.0):
        beta = beta_of(path, tau)
        plain = path.log_density(states(), beta)
        other = path.log_density(states(LEVELS * factor), beta - shift)
        np.testing.assert_allclose(np.diff(other), np.diff(plain), rtol=1e-6, atol=1e-9)


@BOTH
def test_dbeta_is_the_derivative(path):
    s = states(np.array([-2.0, -0.1, 0.1, 2.0, 3.0, 4.0]))
    step = 1e-7
    for tau in (0.3, 1.0, 20.0):
        beta = beta_of(path, tau)
        up, down = (path.log_density(s, beta + d) for d in (step, -step))
        np.testing.assert_allclose((up - down) / (2 * step), path.dbeta(s, beta), rtol=1e-4)
    if path.turn < 1:
        inside = np.isfinite(s.log_abs_f)
        up, down = (path.log_density(s, 0.8 + d)[inside] for d in (step, -step))
        np.testing.assert_allclose((up - down) / (2 * step), path.dbeta(s, 0.8)[inside], rtol=1e-6)


@BOTH
def test_numpy_and_jax_agree_and_gradients_are_finite(path):
    with jax.enable_x64(True):
        traced = jax.tree.map(jnp.asarray, states())

        def total(level, beta):
            value = path.log_density(traced._replace(level=level), beta)
            return jnp.sum(jnp.where(jnp.isfinite(value), value, 0.0))

        for beta in (0.0, 1e-9, beta_of(path, 1.0), beta_of(path, 1e-20), path.turn, 1.0):
            ours = path.log_density(states(), beta)
            assert isinstance(ours, np.ndarray) and not np.isnan(ours).any()
            np.testing.assert_allclose(path.log_density(traced, beta), ours, rtol=1e-12)
            assert np.isfinite(jax.grad(total)(traced.level, beta)).all()


@pytest.mark.parametrize("wrong", [0.0, -0.5, 1.5])
def test_a_turn_outside_the_path_is_refused(wrong):
    with pytest.raises(ValueError, match=f"at most 1, got {wrong}"):
        LevelPath(sharp_at=wrong)
