"""Stepping stones: a product of importance sampling ratios between neighbouring rungs."""

from typing import ClassVar

import numpy as np

from tabi.draws import LegDraws
from tabi.estimators.base import (
    AbstractEstimator,
    Estimate,
    EstimationError,
    centred,
    edge_log_ratios,
    log_mean_exp,
    rung_weights,
)


class ForwardSteppingStones(AbstractEstimator):
    """sum_i log mean_{x ~ rung i} phi(x|beta_{i+1}) / phi(x|beta_i).

    Right whenever the support of each rung contains that of the next, so also where the first
    rung is the full posterior and f vanishes on part of it.
    """

    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        """Sum of the forward steps; see `AbstractEstimator.estimate`."""
        weights = rung_weights(draws, weights)
        total, influence = 0.0, np.zeros(draws.shape)
        for edge in range(draws.shape[0] - 1):
            lower, upper = edge_log_ratios(draws, edge, weights)
            if np.isposinf(upper).any():
                raise EstimationError(
                    f"forward stepping stones: draws of rung {edge + 1} lie outside the support "
                    f"of rung {edge}, which forward steps never see. Use MBAR or BAR"
                )
            total += _step(lower, weights[edge], influence[edge])
        return Estimate(total, influence)


class BackwardSteppingStones(AbstractEstimator):
    """-sum_i log mean_{x ~ rung i+1} phi(x|beta_i) / phi(x|beta_{i+1}).

    Off by -log R where a rung has draws outside the support of the next, hence refused there.
    """

    absorbs_zeros: ClassVar[bool] = False

    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        """Sum of the backward steps; see `AbstractEstimator.estimate`."""
        weights = rung_weights(draws, weights)
        total, influence = 0.0, np.zeros(draws.shape)
        for edge in range(draws.shape[0] - 1):
            lower, upper = edge_log_ratios(draws, edge, weights)
            if np.isneginf(lower).any():
                raise EstimationError(
                    f"backward stepping stones: {np.isneginf(lower).mean():.2g} of the draws of "
                    f"rung {edge} have zero density at rung {edge + 1} (f = 0), so the estimate "
                    "would be off by -log R. Use MBAR, BAR or ForwardSteppingStones, or start "
                    "the path at the Restricted end and multiply by the correction factor R"
                )
            total -= _step(-upper, weights[edge + 1], influence[edge + 1])
        return Estimate(total, -influence)


def _step(log_ratios: np.ndarray, weights: np.ndarray, influence: np.ndarray) -> float:
    """One step, a log mean exp; writes d step / d w into `influence`."""
    step = log_mean_exp(log_ratios, weights)
    if step == -np.inf:
        raise EstimationError(
            "stepping stones: every draw of a rung has zero density at the next one. Take more "
            "draws, or rungs that are closer together"
        )
    counted = np.where(weights > 0, log_ratios - step, -np.inf)
    influence[:] = centred(np.exp(counted), weights)
    return step
