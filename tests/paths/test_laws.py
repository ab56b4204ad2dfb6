"""Laws every path obeys: a new one adds a row to PATHS."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import PATHS, rows

from tabi.state import Scalars

BETAS = (0.0, 1e-12, 0.2, 0.5, 0.9, 1.0)


def states(with_zeros: bool = True) -> Scalars:
    """States with f of both signs, with f = 0, and outside the posterior's support."""
    rng = np.random.default_rng(1)
    log_pi, log_abs_f, *log_base = rng.normal(scale=5, size=(4, 12))
    sign = np.array([1, -1, 0] * 4) if with_zeros else np.array([1, -1] * 6)
    log_pi[9:] = -np.inf if with_zeros else log_pi[9:]
    return Scalars(log_pi, np.where(sign == 0, -np.inf, log_abs_f), sign, np.stack(log_base, -1))


@rows("case", PATHS)
def test_a_path_meets_its_two_ends(case):
    path, start, end = case
    np.testing.assert_array_equal(path.log_density(states(), 0.0), start.log(states()))
    np.testing.assert_array_equal(path.log_density(states(), 1.0), end.log(states()))


@rows("case", PATHS)
def test_dbeta_is_the_derivative(case):
    path, start, end = case
    scalars, step = states(), 1e-6
    inside = np.isfinite(start.log(scalars)) & np.isfinite(end.log(scalars))
    assert inside.any()
    for beta in (0.05, 0.5, 0.95):
        up, down = (path.log_density(scalars, beta + s)[inside] for s in (step, -step))
        exact = path.dbeta(scalars, beta)[inside]
        np.testing.assert_allclose((up - down) / (2 * step), exact, rtol=1e-6)


@rows("case", PATHS)
def test_between_its_ends_a_density_lives_where_both_do(case):
    path, start, end = case
    inside = np.isfinite(start.log(states())) & np.isfinite(end.log(states()))
    for beta in (1e-300, 1e-12, 0.5, 1 - 1e-9):
        np.testing.assert_array_equal(np.isfinite(path.log_density(states(), beta)), inside)


@rows("case", PATHS)
def test_nothing_is_nan_where_f_or_a_density_is_zero(case):
    path, *_ = case
    for beta in BETAS:
        value, slope = path.log_density(states(), beta), path.dbeta(states(), beta)
        assert not np.isnan(value).any() and not np.isposinf(value).any()
        assert not np.isnan(slope).any()


@rows("case", PATHS)
def test_dbeta_says_which_end_is_missing(case):
    path, start, end = case
    a, b = (np.isneginf(e.log(states())) for e in (start, end))
    slope = path.dbeta(states(), 0.5)
    assert np.all(np.isneginf(slope[b])), "a state that the end lacks"
    assert np.all(np.isposinf(slope[a & ~b])), "a state that only the end has"
    assert np.all(np.isfinite(slope[~a & ~b]))


@rows("case", PATHS)
def test_numpy_and_jax_agree(case):
    path, *_ = case
    with jax.enable_x64(True):
        traced = jax.tree.map(jnp.asarray, states())
        for method in (path.log_density, path.dbeta):
            compiled = jax.jit(method)
            for beta in BETAS:
                ours, theirs = method(states(), beta), np.asarray(compiled(traced, beta))
                assert isinstance(ours, np.ndarray) and theirs.dtype == np.float64
                np.testing.assert_allclose(theirs, ours, rtol=1e-12)


@rows("case", PATHS)
def test_many_betas_broadcast_over_many_states(case):
    path, *_ = case
    betas = np.asarray(BETAS)[:, None]
    together = path.log_density(states(), betas)
    assert together.shape == (len(BETAS), 12)
    for row, beta in zip(together, BETAS, strict=True):
        np.testing.assert_array_equal(row, path.log_density(states(), beta))


@rows("case", PATHS)
@pytest.mark.parametrize("beta", BETAS)
def test_gradients_in_the_scalars_are_finite_everywhere(case, beta):
    path, *_ = case
    with jax.enable_x64(True):
        s = jax.tree.map(jnp.asarray, states())

        def total(log_pi, log_abs_f, log_base):
            value = path.log_density(Scalars(log_pi, log_abs_f, s.sign_f, log_base), beta)
            return jnp.sum(jnp.where(jnp.isfinite(value), value, 0.0))

        rows_ = jax.grad(total, (0, 1, 2))(s.log_pi, s.log_abs_f, s.log_base)
        for row in rows_:
            assert np.isfinite(row).all()


def test_the_full_posterior_keeps_states_with_f_zero_at_beta_0_and_restricted_ends_do_not():
    full, signs = PATHS["posterior to |f|"][0], states().sign_f
    supported = np.isfinite(states().log_pi)
    np.testing.assert_array_equal(np.isfinite(full.log_density(states(), 0.0)), supported)
    for name, kept in (("f > 0 to f+", 1), ("f < 0 to f-", -1)):
        inside = np.isfinite(PATHS[name][0].log_density(states(), 0.0))
        np.testing.assert_array_equal(inside, supported & (signs == kept))
    inside = np.isfinite(PATHS["f != 0 to |f|"][0].log_density(states(), 0.0))
    np.testing.assert_array_equal(inside, supported & (signs != 0))


def test_equal_paths_are_equal_and_hashable():
    """Programs are shared by equal paths."""
    distinct = {path for path, *_ in PATHS.values()}
    assert len(distinct) == len(PATHS)
    for path, start, end in PATHS.values():
        assert type(path)(start, end) == path and hash(type(path)(start, end)) == hash(path)
