"""HMC: steps where the support is narrow or the budget small, scales of strong correlation."""

import numpy as np
import pytest

from tabi.kernels import HMC
from tabi.kernels.metric import DenseMetric


def tuned(accept, outside, kernel=None):
    kernel = HMC() if kernel is None else kernel
    draws = np.random.default_rng(0).normal(size=(100, 2))
    return kernel.tune(kernel.init(2, 1), np.array([accept]), np.array([outside]), [draws])


def test_leaving_the_support_shortens_trajectories_and_not_their_steps():
    kernel = HMC()
    inside, leaving = tuned(0.96, 0.0), tuned(0.096, 0.9)
    assert leaving.stable == inside.stable, "nine of ten were outside, the rest as before"
    assert leaving.step_size < 0.7 * inside.step_size
    assert kernel.evaluations(leaving) == kernel.evaluations(inside)
    rejected = tuned(0.096, 0.0)
    assert kernel.evaluations(rejected) > kernel.evaluations(inside)


def test_a_limit_is_kept_with_steps_of_the_same_size():
    kernel = HMC()
    dear = tuned(0.01, 0.0)
    assert kernel.evaluations(dear) > 4
    cheap = kernel.limit(dear, 4)
    assert kernel.evaluations(cheap) == 4
    assert cheap.step_size == dear.step_size
    assert kernel.limit(dear, 10**6) is dear
    assert kernel.evaluations(kernel.limit(dear, 0)) == kernel.integrator.stages


@pytest.mark.parametrize("correlation", [0.9, 0.999, 0.999999])
@pytest.mark.parametrize("count", [3, 8, 128])
def test_scales_exist_however_strong_the_correlation(correlation, count):
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        draws = rng.multivariate_normal(np.zeros(2), covariance, count)
        factor = DenseMetric().estimate(draws)
        assert np.all(np.isfinite(factor)) and np.all(np.diagonal(factor) > 0)
        np.testing.assert_allclose((factor**2).sum(1), draws.var(0), rtol=1e-9)
