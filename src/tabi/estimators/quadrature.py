"""Thermodynamic integration: quadrature of E_i, the mean of U at rung i.

    log c(1)/c(0) = int_0^1 E(beta) dbeta = int_0^1 G(t) dt,   G(t) = E(s(t)) s'(t),  beta = s(t)

Every rule is linear in the nodes' G, and each carries a discretisation error of its own, which
`Estimate.bias` reports.
"""

from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import numpy as np
import scipy  # its subpackages load on first use

from tabi.draws import LegDraws
from tabi.estimators.base import (
    AbstractEstimator,
    Estimate,
    EstimationError,
    centred,
    rung_weights,
)
from tabi.paths.geometric import GeometricPath


class AbstractVariable(eqx.Module):
    """The variable t of the quadrature, beta = s(t)."""

    @abstractmethod
    def nodes(self, betas: np.ndarray) -> np.ndarray:
        """Return t of the rungs."""

    @abstractmethod
    def slope(self, t: np.ndarray) -> np.ndarray:
        """s'(t)."""

    @abstractmethod
    def curvature(self, t: np.ndarray) -> np.ndarray:
        """s''(t)."""


class Identity(AbstractVariable):
    """beta = t."""

    def nodes(self, betas: np.ndarray) -> np.ndarray:
        return np.asarray(betas, dtype=np.float64)

    def slope(self, t: np.ndarray) -> np.ndarray:
        return np.ones_like(t)

    def curvature(self, t: np.ndarray) -> np.ndarray:
        return np.zeros_like(t)


class Power(AbstractVariable):
    """beta = t**exponent, the variable in which a powered-fraction ladder is uniform."""

    exponent: float = 5.0

    def __check_init__(self) -> None:
        if not self.exponent >= 1:
            raise ValueError(f"exponent is {self.exponent}, expected at least 1")

    def nodes(self, betas: np.ndarray) -> np.ndarray:
        return np.asarray(betas, dtype=np.float64) ** (1 / self.exponent)

    def slope(self, t: np.ndarray) -> np.ndarray:
        return self.exponent * t ** (self.exponent - 1)

    def curvature(self, t: np.ndarray) -> np.ndarray:
        k = self.exponent
        # At k = 1 the factor is zero, and t**(k-2) would be infinite at t = 0.
        return k * (k - 1) * t ** (k - 2) if k > 1 else np.zeros_like(t)


def trapezoid_rule(t: np.ndarray) -> np.ndarray:
    """Weights of the trapezoid rule at nodes t."""
    return (left_rule(t) + right_rule(t)) / 2


def left_rule(t: np.ndarray) -> np.ndarray:
    """Weights of the left Riemann sum at nodes t."""
    return np.append(np.diff(t), 0.0)


def right_rule(t: np.ndarray) -> np.ndarray:
    """Weights of the right Riemann sum at nodes t."""
    return np.append(0.0, np.diff(t))


def simpson_rule(t: np.ndarray) -> np.ndarray:
    """Weights of Simpson's rule at unequal nodes t, read off SciPy's at the unit vectors."""
    return np.asarray(scipy.integrate.simpson(np.eye(len(t)), x=t))


def correction_rule(t: np.ndarray) -> np.ndarray:
    """Weights of G' in -sum_i Delta_i^2 (G'_{i+1} - G'_i) / 12."""
    steps = np.diff(t) ** 2 / 12
    return np.append(steps, 0.0) - np.append(0.0, steps)


class AbstractQuadrature(AbstractEstimator):
    """A rule sum_i q_i G_i, with or without the end-point correction of every panel."""

    absorbs_zeros: ClassVar[bool] = False

    variable: eqx.AbstractVar[AbstractVariable]

    @abstractmethod
    def rule(self, t: np.ndarray) -> np.ndarray:
        """The weights q_i at nodes t."""

    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        """The rule applied to the rungs' means of U; see `AbstractEstimator.estimate`."""
        integrand = _Integrand(draws, weights, self.variable)
        first, second = self.coefficients(integrand.t)
        value = integrand.integrate(first, second)
        return Estimate(value, integrand.influence(first, second), self.error(value, integrand))

    def coefficients(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights of G and of G' at nodes t."""
        return self.rule(t), np.zeros_like(t)

    def error(self, value: float, integrand: "_Integrand") -> float:
        """Discretisation error: the distance from the corrected trapezoid."""
        t = integrand.t
        return abs(value - integrand.integrate(trapezoid_rule(t), correction_rule(t)))


class Trapezoid(AbstractQuadrature):
    """sum_i Delta_i (G_i + G_{i+1}) / 2."""

    variable: AbstractVariable = Identity()

    def rule(self, t: np.ndarray) -> np.ndarray:
        return trapezoid_rule(t)


class Simpson(AbstractQuadrature):
    """Simpson's rule for unequal nodes."""

    variable: AbstractVariable = Identity()

    def rule(self, t: np.ndarray) -> np.ndarray:
        return simpson_rule(t)


class CorrectedTrapezoid(AbstractQuadrature):
    """The trapezoid rule - sum_i Delta_i^2 (G'_{i+1} - G'_i) / 12, with G' from the draws.

    dE/dbeta = Var U on a geometric path, so G' = V s'^2 + E s''. What is left is of fourth
    order in Delta; the reported error, the size of the correction, is an upper bound of it on
    any ladder fine enough for the correction to make sense.
    """

    variable: AbstractVariable = Identity()

    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        if not isinstance(draws.path, GeometricPath):
            raise EstimationError(
                "the corrected trapezoid knows the slope of its integrand on a geometric path "
                f"alone, got {type(draws.path).__name__}; use tabi.estimators.MBAR()"
            )
        return super().estimate(draws, weights)

    def rule(self, t: np.ndarray) -> np.ndarray:
        return trapezoid_rule(t)

    def coefficients(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return trapezoid_rule(t), correction_rule(t)

    def error(self, value: float, integrand: "_Integrand") -> float:
        return abs(value - integrand.integrate(trapezoid_rule(integrand.t)))


class _AbstractRiemann(AbstractQuadrature):
    def error(self, value: float, integrand: "_Integrand") -> float:
        """Root mean square distance of an end of the bracket from a uniform point of it."""
        t = integrand.t
        bracket = integrand.integrate(right_rule(t)) - integrand.integrate(left_rule(t))
        return abs(bracket) / np.sqrt(3)


class LeftRiemann(_AbstractRiemann):
    """sum_i Delta_i G_i: a lower bound for a geometric path in beta (up to Monte Carlo error)."""

    variable: AbstractVariable = Identity()

    def rule(self, t: np.ndarray) -> np.ndarray:
        return left_rule(t)


class RightRiemann(_AbstractRiemann):
    """sum_i Delta_i G_{i+1}: an upper bound for a geometric path in beta."""

    variable: AbstractVariable = Identity()

    def rule(self, t: np.ndarray) -> np.ndarray:
        return right_rule(t)


class _Integrand:
    """Mean and variance of U at the rungs, and what any linear rule makes of them."""

    def __init__(
        self, draws: LegDraws, weights: np.ndarray | None, variable: AbstractVariable
    ) -> None:
        self.weights = rung_weights(draws, weights)
        self.u = np.where(self.weights > 0, draws.dbeta, 0.0)
        _refuse_infinite(self.u, draws.betas)
        self.mean = (self.weights * self.u).mean(axis=(-2, -1))
        self.variance = (self.weights * self.squares()).mean(axis=(-2, -1))
        self.t = variable.nodes(draws.betas)
        self.slope, self.curvature = variable.slope(self.t), variable.curvature(self.t)

    def squares(self) -> np.ndarray:
        return (self.u - self.mean[:, None, None]) ** 2

    def integrate(self, first: np.ndarray, second: np.ndarray | float = 0.0) -> float:
        """sum_i first_i G_i + second_i G'_i."""
        g = self.mean * self.slope
        if not np.any(second):
            return float(first @ g)
        dg = self.variance * self.slope**2 + self.mean * self.curvature
        return float(first @ g + second @ dg)

    def influence(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        of_mean = first * self.slope
        of_variance = np.zeros_like(first)
        if np.any(second):
            of_mean, of_variance = of_mean + second * self.curvature, second * self.slope**2
        total = of_mean[:, None, None] * self.u
        if np.any(of_variance):
            # d mean / d w does not enter: the variance is stationary in its centre.
            total = total + of_variance[:, None, None] * self.squares()
        return centred(total, self.weights)


def _refuse_infinite(u: np.ndarray, betas: np.ndarray) -> None:
    infinite = ~np.isfinite(u).all(axis=(-2, -1))
    if not infinite.any():
        return
    rung = int(np.argmax(infinite))
    raise EstimationError(
        f"the integrand of thermodynamic integration is infinite: {(~np.isfinite(u[rung])).sum()} "
        f"of {u[rung].size} draws of rung {rung} (beta = {betas[rung]:g}) have a non-finite "
        "d log phi / d beta, because one end of the path vanishes there (f = 0). Use MBAR, BAR "
        "or ForwardSteppingStones, which give such draws zero weight, or start the path at the "
        "Restricted end and multiply by the correction factor R"
    )
