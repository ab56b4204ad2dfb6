"""The random walk's own options."""

import numpy as np
import pytest

from tabi.kernels import HMC, DenseMetric, DiagonalMetric, RandomWalk, Slice

MATRIX = np.array([[2.0, 0.5], [0.5, 1.0]])


@pytest.mark.parametrize(
    ("kernel", "covariance"),
    [
        (RandomWalk(scale=0.5), 0.25 * np.eye(2)),
        (RandomWalk(covariance=0.25), 0.25 * np.eye(2)),
        (RandomWalk(covariance=[4.0, 9.0]), np.diag([4.0, 9.0])),
        (RandomWalk(covariance=MATRIX), MATRIX),
    ],
    ids=["scale", "number", "vector", "matrix"],
)
def test_a_fixed_proposal_has_the_given_covariance_and_is_never_tuned(kernel, covariance):
    params = kernel.init(2, 3)
    full = params.step_size[:, None, None] * params.factor
    np.testing.assert_allclose(full @ full.transpose(0, 2, 1), np.stack([covariance] * 3))
    draws = [np.random.default_rng(s).normal(size=(50, 2)) for s in range(3)]
    for changed in (
        kernel.tune(params, np.full(3, 0.01), np.zeros(3), draws),
        kernel.search(params, np.full(3, 0.99)),
    ):
        for a, b in zip(changed, params, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 1.0, "covariance": 1.0}, "not both"),
        ({"scale": 0.0}, "positive, got 0"),
        ({"scale": -1.0}, "positive, got -1"),
        ({"moves": 0}, "at least 1, got 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RandomWalk(**options)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.ones(3), "fit|shape|broadcast"),
        (np.eye(3), r"shape \(3, 3\), expected a number, \(2,\) or \(2, 2\)"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (-1.0, "positive definite"),
    ],
)
def test_impossible_covariances_are_refused(covariance, message):
    with pytest.raises(ValueError, match=message):
        RandomWalk(covariance=covariance).init(2, 1)


def test_impossible_options_of_other_kernels_are_refused():
    with pytest.raises(ValueError, match="positive, got 0"):
        HMC(trajectory=0.0)
    with pytest.raises(ValueError, match=r"jitter must be in \[0, 1\), got 1"):
        HMC(jitter=1.0)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Slice(proposals=0)


@pytest.mark.parametrize("metric", [DenseMetric(), DiagonalMetric()])
@pytest.mark.parametrize("draws", [1, 2, 500])
def test_a_metric_finds_the_scales_whatever_they_are(metric, draws):
    rng = np.random.default_rng(0)
    scales = np.array([1e-6, 1.0, 1e4])
    factor = metric.estimate(rng.normal(size=(draws, 3)) * scales)
    covariance = factor @ factor.T if factor.ndim == 2 else np.diag(factor**2)
    assert np.all(np.isfinite(covariance)) and np.all(np.diag(covariance) > 0)
    if draws == 500:
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), scales, rtol=0.2)


def test_a_dense_metric_finds_correlations_and_a_constant_coordinate_harms_nothing():
    rng = np.random.default_rng(0)
    draws = rng.multivariate_normal(np.zeros(2), MATRIX, 5000)
    factor = DenseMetric().estimate(draws)
    np.testing.assert_allclose(factor @ factor.T, MATRIX, rtol=0.15)
    stuck = DenseMetric().estimate(np.concatenate([draws, np.zeros((5000, 1))], 1))
    assert np.all(np.isfinite(stuck)) and stuck[2, 2] > 0
