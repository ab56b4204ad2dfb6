"""What an estimator is: weighted draws of one leg in, a log ratio and its influence out.

Estimation runs on the host in NumPy and float64: draws arrive in many shapes, and one JAX
compilation per shape would cost more than the arithmetic. The influence functions are therefore
analytic; a test compares each of them with finite differences in the per-draw weights.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import numpy as np
from scipy.special import logsumexp

from tabi.draws import LegDraws
from tabi.state import Scalars


class EstimationError(ValueError):
    """An estimator refuses these draws: the message says why and what to use instead."""


@dataclass(frozen=True)
class Estimate:
    """A log ratio of normalising constants, log c(1)/c(0), with what its error is made of.

    Attributes
    ----------
    log_ratio
        The estimate.
    influence
        d log_ratio / d w_n at unit weights, [rung, ladder, draw] (where weights were given:
        d log_ratio / d log w_n). It sums to zero over each rung, because only the empirical
        measure of a rung enters, not how heavy it is.
    bias
        Size of the discretisation error, to be added in quadrature to the standard error.
    stream
        Name of the draws it is made of. Estimates of one stream share sweeps, so their influences
        are added before any variance is taken; different streams are independent.
    """

    log_ratio: float
    influence: np.ndarray
    bias: float = 0.0
    stream: str = "ladders"


class AbstractEstimator(eqx.Module):
    """An estimator of log c(1)/c(0) from the draws of one leg.

    Attributes
    ----------
    absorbs_zeros
        Whether draws of a rung at which the next one vanishes (f = 0 at the full posterior) are
        part of the ratio. Where they are not, it is taken between restricted densities and
        multiplied by R, the share of draws in the support.
    """

    absorbs_zeros: ClassVar[bool] = True

    @abstractmethod
    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        """Estimate the log ratio.

        Parameters
        ----------
        draws
            Draws of every rung of one leg.
        weights
            Weight of every draw, [rung, ladder, draw], ones by default. They are normalised
            within each rung. Draws of weight zero may lie outside their rung's support.

        Returns
        -------
        Estimate
            The log ratio, its influence function and its discretisation error.

        Raises
        ------
        EstimationError
            If the draws are ones this estimator would answer wrongly on.
        """


def rung_weights(draws: LegDraws, weights: np.ndarray | None) -> np.ndarray:
    """The weights scaled to mean one within each rung, [rung, ladder, draw]."""
    if weights is None:
        return np.broadcast_to(1.0, draws.shape)
    if np.shape(weights) != draws.shape:
        raise ValueError(
            f"weights have shape {np.shape(weights)}, the draws have shape {draws.shape} "
            "([rung, ladder, draw]): give one weight per draw"
        )
    weights = np.asarray(weights, dtype=np.float64)
    totals = weights.mean(axis=(-2, -1), keepdims=True)
    if not (np.all(weights >= 0) and np.all(totals > 0) and np.all(np.isfinite(totals))):
        raise ValueError("weights must be finite, at least 0, and not all 0 in any rung")
    return weights / totals


def centred(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Influence of the weighted mean of `values`, w_n (g_n - mean g) / n, over the last two axes.

    `weights` have mean one over those axes, so the mean is sum(w g) / n.
    """
    product = weights * values
    mean = product.mean(axis=(-2, -1), keepdims=True)
    return (product - weights * mean) / (values.shape[-2] * values.shape[-1])


def log_mean_exp(log_values: np.ndarray, weights: np.ndarray) -> float:
    """Logarithm of the weighted mean of exp(log_values); -inf where every value is zero."""
    return float(logsumexp(log_values, b=weights) - np.log(log_values.size))


def log_density_at(draws: LegDraws, rung: int, beta_rung: int) -> np.ndarray:
    """The log density at betas[beta_rung] of the draws of one rung, [ladder, draw]."""
    return draws.path.log_density(draws.rung(rung), draws.betas[beta_rung])


def edge_log_ratios(
    draws: LegDraws, edge: int, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The log ratio of an edge's upper to its lower density, at the draws of lower and upper rung.

    -inf at lower draws outside the support of the upper rung, +inf at upper draws outside that
    of the lower one; 0 at draws of weight zero, which may lie anywhere.
    """
    with np.errstate(invalid="ignore"):
        lower, upper = (
            np.where(
                weights[rung] > 0,
                log_density_at(draws, rung, edge + 1) - log_density_at(draws, rung, edge),
                0.0,
            )
            for rung in (edge, edge + 1)
        )
    # A draw of positive density at its own rung gives neither a NaN nor the wrong infinity.
    if not (np.all(lower < np.inf) and np.all(upper > -np.inf)):
        raise ValueError(
            f"a draw of rung {edge} or {edge + 1} has density zero (or NaN) at its own rung: "
            "these are not draws from this path"
        )
    return lower, upper


def thinning(draws: LegDraws, at_most: int) -> slice:
    """Every k-th draw, so that a rung keeps at most (about) `at_most` of them over its ladders."""
    _, ladders, length = draws.shape
    return slice(None, None, max(1, -(-ladders * length // at_most)))


def thinned(draws: LegDraws, at_most: int) -> LegDraws:
    """The draws that `thinning` keeps."""
    every = thinning(draws, at_most)
    kept = Scalars(*(None if a is None else a[:, :, every] for a in draws.scalars))
    return LegDraws(draws.path, draws.betas, kept)
