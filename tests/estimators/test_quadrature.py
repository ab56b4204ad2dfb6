"""Laws of the quadrature rules: orders, exactness, bounds and an honest discretisation error."""

import numpy as np
import pytest
from gaussian_leg import GaussianLeg

from tabi.draws import LegDraws
from tabi.estimators import (
    CorrectedTrapezoid,
    Identity,
    LeftRiemann,
    Power,
    RightRiemann,
    Simpson,
    Trapezoid,
)
from tabi.paths import GeometricPath
from tabi.state import Scalars

SMOOTH = [Trapezoid, Simpson, CorrectedTrapezoid]
RIEMANN = [LeftRiemann, RightRiemann]


def two_point_draws(mean: np.ndarray, variance: np.ndarray, betas: np.ndarray) -> LegDraws:
    """Draws whose U has exactly this mean and variance at every rung."""
    u = mean[:, None, None] + np.sqrt(variance)[:, None, None] * np.array([[1.0, -1.0]])
    zero = np.zeros_like(u)
    return LegDraws(GeometricPath(), betas, Scalars(zero, u, zero + 1))


def analytic_draws(rungs: int, exponent: float = 1.0) -> LegDraws:
    """E = exp(beta), E' = exp(beta) at every rung: all that is left is discretisation error."""
    betas = np.linspace(0, 1, rungs) ** exponent
    return two_point_draws(np.exp(betas), np.exp(betas), betas)


@pytest.mark.parametrize(
    ("rule", "order"),
    [(LeftRiemann, 1), (RightRiemann, 1), (Trapezoid, 2), (Simpson, 4), (CorrectedTrapezoid, 4)],
)
@pytest.mark.parametrize("variable", [Identity(), Power(exponent=2)], ids=["beta", "t"])
def test_the_error_falls_at_the_order_of_the_rule(rule, order, variable):
    exponent = getattr(variable, "exponent", 1.0)
    errors = [
        abs(rule(variable).estimate(analytic_draws(n, exponent)).log_ratio - (np.e - 1))
        for n in (17, 33)
    ]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_simpson_is_exact_for_parabolas_on_unequal_nodes():
    betas = np.array([0.0, 0.1, 0.35, 0.5, 0.55, 0.9, 1.0])
    draws = two_point_draws(1 + 2 * betas + 3 * betas**2, np.ones(7), betas)
    assert Simpson().estimate(draws).log_ratio == pytest.approx(3.0)


@pytest.mark.parametrize("rule", SMOOTH + RIEMANN)
@pytest.mark.parametrize("variable", [Identity(), Power()], ids=["beta", "t"])
@pytest.mark.parametrize("rungs", [4, 8, 20])
def test_the_reported_bias_covers_the_discretisation_error(rule, variable, rungs):
    exponent = getattr(variable, "exponent", 1.0)
    estimate = rule(variable).estimate(analytic_draws(rungs, exponent))
    # It stands for an error as a standard error does: sizes just above one are allowed.
    assert abs(estimate.log_ratio - (np.e - 1)) < 1.25 * estimate.bias


def test_riemann_sums_bracket_the_geometric_path():
    leg = GaussianLeg()
    draws = leg.draws(0, np.linspace(0, 1, 6), ladders=4, length=5000)
    left, right = (rule().estimate(draws).log_ratio for rule in RIEMANN)
    assert left < leg.log_ratio() < right


@pytest.mark.parametrize("variable", [Identity(), Power(), Power(exponent=2), Power(exponent=1)])
def test_the_variable_inverts_itself_and_has_the_derivatives_it_says(variable):
    t, h = np.linspace(0.1, 0.9, 5), 1e-5
    exponent = getattr(variable, "exponent", 1.0)
    np.testing.assert_allclose(variable.nodes(t**exponent), t)
    slope = ((t + h) ** exponent - (t - h) ** exponent) / (2 * h)
    np.testing.assert_allclose(variable.slope(t), slope, rtol=1e-6)
    curvature = (variable.slope(t + h) - variable.slope(t - h)) / (2 * h)
    np.testing.assert_allclose(variable.curvature(t), curvature, rtol=1e-6, atol=1e-8)
    assert np.isfinite(variable.curvature(np.zeros(1))).all()


def test_an_exponent_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Power(exponent=0.5)
