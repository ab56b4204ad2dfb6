"""Fitted references find what the draws show, and tails at least as heavy."""

import numpy as np
import pytest
from scipy import stats

from tabi.references import FitGaussian, FitKDE, FitMixture

RNG = np.random.default_rng(3)
COVARIANCE = np.array([[2.0, 1.2, 0.0], [1.2, 1.0, -0.1], [0.0, -0.1, 0.5]])
CENTRE = np.array([1.0, -2.0, 30.0])
COUNT = 4000
GAUSSIAN = RNG.multivariate_normal(CENTRE, COVARIANCE, COUNT)
HEAVY = stats.multivariate_t(CENTRE, COVARIANCE, 3, seed=4).rvs(COUNT)
SIDE = RNG.uniform(size=COUNT) < 0.3
MODES = RNG.normal(size=(COUNT, 2)) * 0.5 + np.where(SIDE[:, None], [-6.0, 0.0], [6.0, 2.0])
FITS = {"one": FitGaussian(), "mixture": FitMixture(), "KDE": FitKDE(points=16)}


def fit(how, draws):
    return how.fit(draws, np.random.default_rng(7))


def log_density(mixture, draws):
    return np.logaddexp.reduce(mixture.log_terms(draws), axis=1)


def covariances(mixture):
    return mixture.factors @ mixture.factors.transpose(0, 2, 1)


@pytest.mark.parametrize("how", [FitGaussian(np.inf), FitMixture(1, np.inf)])
def test_a_gaussian_is_recovered(how):
    found = fit(how, GAUSSIAN)
    errors = np.sqrt(np.diag(COVARIANCE) / COUNT)
    assert np.all(np.abs(found.means[0] - GAUSSIAN.mean(0)) < 1e-9 + 0.05 * errors)
    # The standard error of a covariance is sqrt((s_ii s_jj + s_ij^2) / n).
    spread = np.sqrt((np.outer(*[np.diag(COVARIANCE)] * 2) + COVARIANCE**2) / COUNT)
    assert np.all(np.abs(covariances(found)[0] - COVARIANCE) < 4 * spread)


def test_of_gaussian_draws_one_component_is_made():
    """Its cross entropy is the entropy, within what 5 parameters' noise costs."""
    found = fit(FitMixture(), GAUSSIAN)
    fresh = np.random.default_rng(8).multivariate_normal(CENTRE, COVARIANCE, COUNT)
    loss = stats.multivariate_normal(CENTRE, COVARIANCE).logpdf(fresh) - log_density(found, fresh)
    assert len(found.means) == 1 and abs(loss.mean()) < 0.01
    assert np.all(found.dof >= 30)


@pytest.mark.parametrize("how", [FitGaussian(), FitMixture()])
def test_heavy_tails_get_few_degrees_of_freedom(how):
    found = fit(how, HEAVY)
    assert np.all(found.dof == 4.0)
    np.testing.assert_allclose(found.means[0], CENTRE, atol=0.15)


def test_modes_apart_are_found():
    found = fit(FitMixture(), MODES)
    share = SIDE.mean()
    left = found.means[:, 0] < 0
    assert np.any(left) and np.any(~left)
    assert abs(found.log_weights[left].max()) < 10
    assert np.exp(found.log_weights[left]).sum() == pytest.approx(share, abs=0.01)
    assert np.all(np.abs(np.abs(found.means[:, 0]) - 6) < 1)
    exactly = fit(FitMixture(2, np.inf), MODES)
    order = np.argsort(exactly.means[:, 0])
    np.testing.assert_allclose(exactly.means[order], [[-6, 0], [6, 2]], atol=0.08)
    np.testing.assert_allclose(covariances(exactly), [0.25 * np.eye(2)] * 2, atol=0.08)


def test_a_kernel_density_estimate_has_a_kernel_at_draws_and_scotts_bandwidth():
    found = fit(FitKDE(points=50), GAUSSIAN)
    assert found.means.shape == (50, 3) and np.all(found.dof == 10.0)
    assert np.isin(found.means, GAUSSIAN).all() and len(np.unique(found.means, axis=0)) == 50
    np.testing.assert_allclose(
        covariances(found)[0], 50 ** (-2 / 7) * np.cov(GAUSSIAN.T), rtol=0.01, atol=0.01
    )


@pytest.mark.parametrize("how", FITS.values(), ids=FITS.keys())
def test_fits_integrate_to_one(how):
    found = fit(how, MODES)
    axis = np.linspace(-30, 30, 301)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    assert np.exp(log_density(found, grid)).sum() * 0.2**2 == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize("how", FITS.values(), ids=FITS.keys())
@pytest.mark.parametrize("count", [8, 30])
def test_few_draws_in_many_dimensions_still_give_a_density(how, count):
    draws = np.random.default_rng(9).normal(size=(count, 10))
    assert np.all(np.isfinite(log_density(fit(how, draws), draws)))


@pytest.mark.parametrize("how", FITS.values(), ids=FITS.keys())
def test_the_same_stream_gives_the_same_fit(how):
    np.testing.assert_array_equal(fit(how, MODES).means, fit(how, MODES).means)


def test_too_few_draws_are_refused():
    with pytest.raises(ValueError, match="at least 4 draws, got 3"):
        FitMixture().fit(np.zeros((3, 2)), np.random.default_rng(0))
