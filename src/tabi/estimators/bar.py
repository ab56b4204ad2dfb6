"""Bennett's acceptance ratio (bridge sampling with the optimal bridge) on every edge.

With N draws below an edge and N' above, C = log c_{i+1}/c_i solves

    sum_{x ~ i} p(l(x) - C') = sum_{x ~ i+1} p(C' - l(x)),   l = log phi_{i+1} - log phi_i,

with C' = C + log N/N' and p(z) = 1 / (1 + exp(-z)) (Bennett 1976; Meng & Wong 1996); the
iterations of bridge sampling converge to this root. Draws outside the support of
the other rung have l = -inf or +inf and weight zero: a support edge is absorbed.
"""

from collections.abc import Callable
from typing import cast

import numpy as np
import scipy  # its subpackages load on first use
from scipy.special import expit

from tabi.draws import LegDraws
from tabi.estimators.base import (
    AbstractEstimator,
    Estimate,
    EstimationError,
    centred,
    edge_log_ratios,
    rung_weights,
)


class BAR(AbstractEstimator):
    """Sum over edges of Bennett's acceptance ratio."""

    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        """Sum of the edges' log ratios; see `AbstractEstimator.estimate`."""
        weights = rung_weights(draws, weights)
        total, influence = 0.0, np.zeros(draws.shape)
        for edge in range(draws.shape[0] - 1):
            ratios = edge_log_ratios(draws, edge, weights)
            pair = slice(edge, edge + 2)
            root = edge_root(*ratios, weights[edge], weights[edge + 1])
            both = edge_influence(*ratios, weights[edge], weights[edge + 1], root)
            influence[pair] += np.stack(both)
            total += root
        return Estimate(total, influence)


def edge_root(
    lower: np.ndarray, upper: np.ndarray, lower_weights: np.ndarray, upper_weights: np.ndarray
) -> float:
    """C of one edge from l at the draws of its lower and of its upper rung."""
    if np.isneginf(lower[lower_weights > 0]).all() or np.isposinf(upper[upper_weights > 0]).all():
        raise EstimationError(
            "BAR: no draw of one rung has positive density at its neighbour, so the edge's ratio "
            "is unknown. Take more draws, rungs that are closer together, or (f of rare "
            "support) a level path"
        )

    def imbalance(c: float) -> float:
        inflow = np.sum(lower_weights * expit(lower - c))
        return float(inflow - np.sum(upper_weights * expit(c - upper)))

    return _decreasing_root(imbalance, _typical(lower, upper)) - np.log(lower.size / upper.size)


def _typical(lower: np.ndarray, upper: np.ndarray) -> float:
    both = np.concatenate([lower.ravel()[:1000], upper.ravel()[:1000]])
    finite = both[np.isfinite(both)]
    return float(np.median(finite)) if finite.size else 0.0


def _decreasing_root(function: Callable[[float], float], start: float) -> float:
    """The root of a decreasing function that crosses zero somewhere."""
    low = high = start
    step = 1.0
    while function(low) < 0:
        low, high, step = low - step, low, 2 * step
    step = 1.0
    while function(high) > 0:
        low, high, step = high, high + step, 2 * step
    return (
        low if low == high else cast(float, scipy.optimize.brentq(function, low, high, xtol=1e-12))
    )


def edge_influence(
    lower: np.ndarray,
    upper: np.ndarray,
    lower_weights: np.ndarray,
    upper_weights: np.ndarray,
    root: float,
) -> tuple[np.ndarray, np.ndarray]:
    """dC/dw by the implicit function theorem, at the draws below and above, [ladder, draw]."""
    root = root + np.log(lower.size / upper.size)
    up, down = expit(lower - root), expit(root - upper)
    slope = np.sum(lower_weights * up * (1 - up)) + np.sum(upper_weights * down * (1 - down))
    if slope <= 0:
        raise EstimationError(
            "BAR: two neighbouring rungs do not overlap at all. Take rungs that are closer together"
        )
    below = centred(up, lower_weights) * (lower.size / slope)
    return below, -centred(down, upper_weights) * (upper.size / slope)
