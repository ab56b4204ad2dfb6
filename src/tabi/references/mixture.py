"""Mixtures of Gaussians or Student's t: what references fitted to draws are."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

from tabi.references.base import AbstractReference
from tabi.target import Target


class StudentMixture(AbstractReference):
    """sum_k w_k t(z | mean_k, L_k L_k^T, dof_k) in the sampling space.

    That is the user's space, flattened, where there are no bounds. With `dof=inf` the components
    are Gaussian.

    Parameters
    ----------
    weights
        One for each component, [component], that sum to one.
    means
        [component, coordinate].
    factors
        Lower Cholesky factors of the scales, [component, coordinate, coordinate].
    dof
        Degrees of freedom, a number or [component].

    Examples
    --------
    >>> import numpy as np
    >>> import tabi
    >>> wide = tabi.references.StudentMixture([1.0], np.zeros((1, 2)), 3 * np.eye(2)[None], dof=8)
    """

    log_weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray
    inverses: np.ndarray
    dof: np.ndarray
    log_heights: np.ndarray

    def __init__(
        self,
        weights: np.ndarray | list[float],
        means: np.ndarray,
        factors: np.ndarray,
        dof: float | np.ndarray = np.inf,
    ) -> None:
        weights, means, factors = (np.asarray(a, np.float64) for a in (weights, means, factors))
        count, size = (len(weights), means.shape[-1])
        if means.shape != (count, size) or factors.shape != (count, size, size):
            raise ValueError(
                f"{count} weights need means [{count}, D] and factors [{count}, D, D], got shapes "
                f"{means.shape} and {factors.shape}"
            )
        if np.any(weights < 0) or not np.isclose(weights.sum(), 1.0):
            raise ValueError(f"weights must be positive and sum to 1, got {weights}")
        dof = np.broadcast_to(np.asarray(dof, np.float64), (count,))
        if not np.all(dof > 0):
            raise ValueError(f"dof must be positive, got {dof}")
        with np.errstate(divide="ignore"):
            self.log_weights = np.log(weights)
        self.means, self.factors, self.dof = means, factors, dof
        # Products with the inverses: triangular solves inside the sampling loop are LAPACK calls.
        self.inverses = np.linalg.inv(factors)
        finite = np.where(np.isinf(dof), 1.0, dof)
        student = gammaln((finite + size) / 2) - gammaln(finite / 2)
        student -= size / 2 * np.log(finite * np.pi)
        height = np.where(np.isinf(dof), -size / 2 * np.log(2 * np.pi), student)
        log_det = np.log(np.abs(np.diagonal(factors, axis1=1, axis2=2))).sum(1)
        self.log_heights = height - log_det

    def log_density(self, target: Target, z: jax.Array) -> jax.Array:
        away = jnp.einsum("kij,kj->ki", self.inverses, z[None] - self.means)
        return jax.scipy.special.logsumexp(self._log_terms(jnp.sum(away**2, -1), z.size))

    def _log_terms(self, distance: Any, size: int) -> Any:
        """log of each weighted component at squared distances [..., component]."""
        xp = jnp if isinstance(distance, jax.Array) else np
        finite = xp.where(xp.isinf(self.dof), 1.0, self.dof)
        student = -(finite + size) / 2 * xp.log1p(distance / finite)
        shape = xp.where(xp.isinf(self.dof), -distance / 2, student)
        return self.log_weights + self.log_heights + shape

    def log_terms(self, draws: np.ndarray) -> np.ndarray:
        """log of each weighted component at draws [draw, coordinate], on the host."""
        return self._log_terms(self.distances(draws), draws.shape[1])

    def distances(self, draws: np.ndarray) -> np.ndarray:
        """Squared distances from every component in its scales, [draw, component]."""
        pairs = zip(self.inverses, self.means, strict=True)
        return np.stack([((draws - mean) @ inv.T) ** 2 for inv, mean in pairs], 1).sum(-1)

    def sample(self, target: Target, random: np.random.Generator, count: int) -> np.ndarray:
        return self.draw(random, count)

    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Independent draws, [draw, coordinate]."""
        weights = np.exp(self.log_weights)
        which = random.choice(len(weights), size=count, p=weights / weights.sum())
        normal = random.standard_normal((count, self.means.shape[1]))
        dof = self.dof[which]
        finite = np.where(np.isinf(dof), 1.0, dof)
        chi2 = np.where(np.isinf(dof), 1.0, random.chisquare(finite) / finite)
        scaled = normal / np.sqrt(chi2)[:, None]
        return self.means[which] + np.einsum("nij,nj->ni", self.factors[which], scaled)
