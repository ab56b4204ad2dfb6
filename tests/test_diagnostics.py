"""Diagnostics against numbers known in closed form."""

import time

import numpy as np
import pytest
from gaussian_leg import GaussianLeg
from scipy.stats import norm

from tabi.diagnostics import LegDiagnostics, agreement, count_round_trips, leg_diagnostics
from tabi.draws import Draws, LegSpec
from tabi.paths import GeometricPath
from tabi.state import Scalars

BETAS = np.array([0.0, 0.15, 0.5, 1.0])


def as_round(leg: GaussianLeg, ladders: int = 4, length: int = 2500, betas=BETAS) -> Draws:
    """A round whose only leg sits on lanes in reverse order, as component 1 of two."""
    one, rungs = leg.draws(0, betas, ladders, length).scalars, len(betas)
    lanes = np.arange(rungs)[::-1]
    log_abs_f, sign = (np.stack([np.zeros(one.log_pi.shape), a[lanes]], -1) for a in one[1:3])
    replica = np.broadcast_to(np.arange(rungs)[:, None, None], one.log_pi.shape)
    accept = np.arange(rungs * ladders, dtype=float).reshape(rungs, ladders)
    return Draws(
        scalars=Scalars(one.log_pi[lanes], log_abs_f, sign.astype(int)),
        legs=(LegSpec(GeometricPath(), 1),),
        lanes=(lanes,),
        betas=(betas,),
        replica=replica,
        accept=accept,
        outside=np.zeros_like(accept),
        evaluations=0,
    )


@pytest.fixture(scope="module")
def smooth() -> LegDiagnostics:
    return leg_diagnostics(as_round(GaussianLeg()), 0)


@pytest.fixture(scope="module")
def with_zeros() -> LegDiagnostics:
    return leg_diagnostics(as_round(GaussianLeg(zeros=True)), 0)


def test_lanes_and_component_are_the_legs(smooth):
    assert smooth.component == 1
    np.testing.assert_array_equal(smooth.betas, BETAS)
    np.testing.assert_allclose(smooth.acceptance, np.arange(16).reshape(4, 4).mean(1)[::-1])
    assert smooth.round_trips == 0


def test_independent_draws_mix(smooth):
    assert np.all(smooth.rhat < 1.01)
    assert np.all(smooth.ess > 3000)


def test_stuck_ladders_are_seen():
    draws = as_round(GaussianLeg())
    shifted = draws.scalars._replace(log_pi=draws.scalars.log_pi + np.arange(4.0)[:, None])
    stuck = leg_diagnostics(Draws(**{**vars(draws), "scalars": shifted}), 0)
    assert np.all(stuck.rhat > 1.3)
    assert np.all(stuck.ess < 100)


def test_the_integrand_and_its_bounds(smooth):
    leg = GaussianLeg()
    p, m = leg.precision(BETAS), leg.mean(BETAS)
    expected = -((m - leg.y) ** 2 + 1 / p) / (2 * leg.s**2)
    np.testing.assert_allclose(smooth.integrand, expected, atol=0.1)
    left, right = smooth.bounds
    assert left < leg.log_ratio() < right
    np.testing.assert_allclose(left, np.diff(BETAS) @ smooth.integrand[:-1])


def test_exchange_is_the_swap_acceptance():
    """Two Gaussians of equal width: acceptance 2 Phi(-d / sqrt 2) at distance d."""
    leg = GaussianLeg(y=1e4, s=100.0)  # U is linear but for 1e-4: precision 1, mean beta
    rates = leg_diagnostics(as_round(leg, 4, 5000), 0).exchange
    expected = 2 * norm.cdf(-np.diff(leg.mean(BETAS)) / np.sqrt(2))
    np.testing.assert_allclose(rates, expected, atol=4 * 0.5 / np.sqrt(20_000))


def test_a_support_edge_limits_exchange_and_is_named(with_zeros):
    inside = 1 - norm.cdf(GaussianLeg().edge)
    assert with_zeros.exchange[0] < inside + 4 * 0.5 / np.sqrt(10_000)
    assert with_zeros.exchange[0] > 0.5 * inside
    assert np.isnan(with_zeros.integrand[0])
    assert np.isfinite(with_zeros.integrand[1:]).all()
    assert np.isnan(with_zeros.bounds).all()
    assert set(with_zeros.refusals) == {"corrected trapezoid"}
    assert np.isfinite(with_zeros.rhat).all()


def test_estimates_hold_the_truth_and_agree(smooth, with_zeros):
    for result, leg in ((smooth, GaussianLeg()), (with_zeros, GaussianLeg(zeros=True))):
        for value, error in result.estimates.values():
            assert abs(value - leg.log_ratio()) < 4 * error
        assert agreement(result.estimates) < 3
    assert set(smooth.estimates) == {
        "MBAR",
        "BAR",
        "corrected trapezoid",
        "forward stepping stones",
    }


def test_disagreement_is_the_largest_score():
    assert agreement({"a": (0.0, 3.0), "b": (1.0, 4.0), "c": (10.0, 4.0)}) == pytest.approx(2.0)
    assert agreement({"a": (0.0, 1.0)}) == 0.0
    assert agreement({"a": (1.0, 0.0), "b": (1.0, 0.0)}) == 0.0


def test_overlap_of_two_identical_rungs_is_one_half():
    flat = GaussianLeg(s=1e6)
    overlap = leg_diagnostics(as_round(flat, betas=np.array([0.0, 1.0])), 0).overlap
    np.testing.assert_allclose(overlap, 0.5, atol=1e-6)


def test_overlap_falls_with_distance():
    near, far = (
        leg_diagnostics(as_round(GaussianLeg(), 4, 500, np.array([0.0, b])), 0).overlap
        for b in (0.2, 1.0)
    )
    assert near.shape == far.shape == (1,)
    assert 0.01 < far[0] < near[0] < 0.5


def test_rungs_without_overlap_are_diagnosed_not_fatal():
    apart = GaussianLeg(y=1e3, s=0.01)
    result = leg_diagnostics(as_round(apart, 2, 50, betas=np.array([0.0, 1.0])), 0)
    assert np.isnan(result.overlap).all()
    assert {"MBAR", "BAR"} <= set(result.refusals)
    np.testing.assert_array_equal(result.exchange, 0)


@pytest.mark.parametrize(
    ("first", "last", "trips"),
    [
        ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1], 1 + 1 + 1),  # 0: F L F L F twice, 1: L F L F L once
        ([0, 2, 2, 0], [1, 1, 0, 1], 1),  # 0 goes down, up and home; 2 and 1 stay
        ([0, 0, 0], [1, 1, 1], 0),
        ([1, 0], [0, 1], 0),  # half trips only
    ],
)
def test_round_trips_are_counted(first, last, trips):
    assert count_round_trips(np.array([first]), np.array([last])) == trips
    # Ladders have replicas of their own, whatever their numbers.
    assert count_round_trips(np.array([first, first]), np.array([last, last])) == 2 * trips


def test_large_runs_are_thinned():
    draws = as_round(GaussianLeg(), 8, 5000, betas=np.linspace(0, 1, 10))
    leg_diagnostics(draws, 0)
    begin = time.perf_counter()
    leg_diagnostics(draws, 0)
    # Measured 0.5 s on one busy core; ten times that says that nothing is thinned any more.
    assert time.perf_counter() - begin < 5
