"""BAR against pymbar, and at its edges."""

import numpy as np
import pytest
from gaussian_leg import GaussianLeg

from tabi.estimators import BAR, MBAR
from tabi.estimators.bar import edge_root
from tabi.estimators.base import edge_log_ratios


@pytest.mark.parametrize("zeros", [False, True])
def test_an_edge_agrees_with_pymbar(zeros):
    other_estimators = pytest.importorskip("pymbar.other_estimators")
    draws = GaussianLeg(zeros=zeros).draws(0, np.array([0.0, 1.0]), ladders=2, length=5000)
    estimate = BAR().estimate(draws)
    lower, upper = edge_log_ratios(draws, 0, np.ones(draws.shape))
    # Reduced work is minus our log ratio; pymbar knows no infinite work, 600 stands for it.
    forward = np.minimum(-lower.ravel(), 600)
    oracle = other_estimators.bar(forward, upper.ravel(), relative_tolerance=1e-12)
    assert estimate.log_ratio == pytest.approx(-oracle["Delta_f"], abs=1e-8)
    # Two estimates of one variance: equal but for a sampling error of order 1 / sqrt(draws).
    error = np.sqrt((estimate.influence**2).sum())
    assert error == pytest.approx(oracle["dDelta_f"], rel=0.02)


def test_one_edge_is_mbar_with_two_rungs():
    draws = GaussianLeg(zeros=True).draws(0, np.array([0.0, 1.0]), ladders=2, length=300)
    weights = np.random.default_rng(0).uniform(0.5, 2, draws.shape)
    bar, mbar = BAR().estimate(draws, weights), MBAR().estimate(draws, weights)
    assert bar.log_ratio == pytest.approx(mbar.log_ratio, abs=1e-9)
    np.testing.assert_allclose(bar.influence, mbar.influence, atol=1e-10)


@pytest.mark.parametrize("shift", [-1e4, 0.0, 1e4])
def test_the_root_is_found_wherever_it_lies(shift):
    """One draw each: p(a - C) = p(C - b) at C = (a + b) / 2."""
    one = np.ones((1, 1))
    root = edge_root(one * (shift - 30), one * (shift + 40), one, one)
    assert root == pytest.approx(shift + 5, abs=1e-6)


def test_no_draws_in_common_is_an_error():
    lower, upper = np.full((1, 5), -np.inf), np.zeros((1, 5))
    with pytest.raises(ValueError, match="no draw of one rung"):
        edge_root(lower, upper, np.ones((1, 5)), np.ones((1, 5)))
