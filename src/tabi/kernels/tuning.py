"""Step sizes from acceptance rates."""

from typing import Any

import numpy as np
from scipy.special import ndtri

# The scale tried first, before anything is known of a posterior's own.
FIRST_SCALE = 0.3


def stretch(params: Any, ratio: np.ndarray) -> Any:
    """Parameters with the scales [lane, ...] of every lane multiplied by one common ratio."""
    return params._replace(factor=params.factor * np.exp(np.mean(np.log(ratio))))


def rescale(accept: np.ndarray, target: float, order: float, most: float = 3.0) -> np.ndarray:
    """Factor by which to change a step size of acceptance `accept` to reach `target`.

    In the Gaussian limit a proposal with energy error of standard deviation s is accepted with
    probability a = 2 Phi(-s/2), and s grows like step^order (1 for a random walk, 2 for
    leapfrog-type integrators). So step *= (s_target / s)^(1/order), bounded where the relation
    no longer holds. Dual averaging would ask for the same answer in many small steps; warm-up
    rounds are frozen and their mean acceptance is known well.
    """
    clipped = np.clip(accept, 1e-3, 1 - 1e-4)
    error, wanted = -2 * ndtri(clipped / 2), -2 * ndtri(target / 2)
    return np.clip((wanted / error) ** (1 / order), 1 / (2 * most), most)
