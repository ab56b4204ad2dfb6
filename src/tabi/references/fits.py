"""References fitted to draws: one Gaussian, a mixture, or a kernel density estimate.

Written here and not taken from scikit-learn, whose mixtures are Gaussian: a reference needs tails
at least as heavy as its target's, so the components are Student's t, whose degrees of freedom the
held-out likelihood chooses.
"""

from abc import abstractmethod

import equinox as eqx
import numpy as np

from tabi.references.mixture import StudentMixture

# Degrees of freedom that are tried, the lightest tails last.
DOFS = (4.0, 10.0, 30.0, np.inf)
# Numbers of components that are tried.
COUNTS = (1, 2, 4, 8, 16, 32)
# Draws that a component must have for each coordinate.
LEAST_DRAWS = 4
ITERATIONS = 60


class AbstractFit(eqx.Module):
    """How a reference is fitted to draws of its target."""

    @abstractmethod
    def fit(self, draws: np.ndarray, random: np.random.Generator) -> StudentMixture:
        """A normalised density from draws in the sampling space, [draw, coordinate]."""


class FitGaussian(AbstractFit):
    """One component with the draws' mean and (shrunk) covariance.

    Parameters
    ----------
    dof
        inf for a Gaussian; None lets held-out draws choose among heavier tails.
    """

    dof: float | None = None

    def fit(self, draws: np.ndarray, random: np.random.Generator) -> StudentMixture:
        return FitMixture(1, self.dof).fit(draws, random)


class FitMixture(AbstractFit):
    """Components of Student's t by expectation maximisation (Peel and McLachlan 2000).

    Parameters
    ----------
    components
        How many; None takes as many as held-out draws support.
    dof
        As in `FitGaussian`.
    """

    components: int | None = None
    dof: float | None = None

    def fit(self, draws: np.ndarray, random: np.random.Generator) -> StudentMixture:
        if len(draws) < 4:
            raise ValueError(f"a fit needs at least 4 draws, got {len(draws)}")
        draws = draws[random.permutation(len(draws))]
        held = max(1, len(draws) // 4)
        train, test = draws[held:], draws[:held]
        dofs = DOFS if self.dof is None else (self.dof,)
        best, best_score = None, -np.inf
        for count in COUNTS if self.components is None else (self.components,):
            if count > 1 and len(train) < LEAST_DRAWS * count * draws.shape[1]:
                break
            found = [(_score(_fit(train, count, dof, random), test), dof) for dof in dofs]
            score, dof = max(found)
            if score <= best_score + 1e-3:
                break
            best, best_score = (count, dof), score
        assert best is not None
        return _fit(draws, *best, random)


class FitKDE(AbstractFit):
    """A kernel at each of some draws, with the draws' covariance times Scott's bandwidth.

    Parameters
    ----------
    points
        Most kernels; more cost more at every evaluation.
    dof
        Of the kernels; heavier tails than Gaussian reach beyond the outermost draw.
    """

    points: int = 256
    dof: float = 10.0

    def fit(self, draws: np.ndarray, random: np.random.Generator) -> StudentMixture:
        size = draws.shape[1]
        count = min(self.points, len(draws))
        means = draws[random.choice(len(draws), count, replace=False)]
        bandwidth = count ** (-1 / (size + 4))
        factor = bandwidth * np.linalg.cholesky(_pooled_covariance(draws))
        factors = np.repeat(factor[None], count, 0)
        return StudentMixture(np.full(count, 1 / count), means, factors, self.dof)


def _score(mixture: StudentMixture, draws: np.ndarray) -> float:
    """Mean log density at held-out draws."""
    return float(np.logaddexp.reduce(mixture.log_terms(draws), axis=1).mean())


def _fit(draws: np.ndarray, count: int, dof: float, random: np.random.Generator) -> StudentMixture:
    """Expectation maximisation with these settings."""
    size = draws.shape[1]
    pooled = _pooled_covariance(draws)
    # Components fill about a 1/count-th of the volume that all draws do.
    expected = pooled * count ** (-2 / size)
    means = _spread_means(draws, count, pooled, random)
    weights = np.full(count, 1 / count)
    mixture = StudentMixture(
        weights, means, np.repeat(np.linalg.cholesky(expected)[None], count, 0), dof
    )
    last = -np.inf
    for _ in range(ITERATIONS):
        log_terms = mixture.log_terms(draws)
        log_total = np.logaddexp.reduce(log_terms, axis=1)
        if log_total.mean() < last + 1e-5:
            break
        last = log_total.mean()
        share = np.exp(log_terms - log_total[:, None])
        near = 1.0 if np.isinf(dof) else (dof + size) / (dof + mixture.distances(draws))
        mass = share.sum(0)
        pull = share * near
        means = (pull.T @ draws) / pull.sum(0)[:, None]
        factors = [
            np.linalg.cholesky(_component_covariance(draws - mean, own, total, expected))
            for mean, own, total in zip(means, pull.T, mass, strict=True)
        ]
        mixture = StudentMixture(mass / mass.sum(), means, np.stack(factors), dof)
    return mixture


def _pooled_covariance(draws: np.ndarray) -> np.ndarray:
    """Covariance of all draws, with one draw's weight of their variances alone."""
    centred = draws - draws.mean(0)
    variances = centred.var(0)
    floor = 1e-12 * max(1.0, float(variances.max()))
    scatter = centred.T @ centred + np.diag(np.maximum(variances, floor))
    return scatter / (len(draws) + 1)


def _component_covariance(
    centred: np.ndarray, weights: np.ndarray, mass: float, expected: np.ndarray
) -> np.ndarray:
    """Weighted covariance, with D + 2 draws' weight of the expected one (its MAP estimate)."""
    prior = centred.shape[1] + 2.0
    return ((weights[:, None] * centred).T @ centred + prior * expected) / (mass + prior)


def _spread_means(
    draws: np.ndarray, count: int, pooled: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """First means far apart (k-means++; Arthur and Vassilvitskii 2007), in the draws' scales."""
    if count == 1:
        return draws.mean(0)[None]
    scaled = np.linalg.solve(np.linalg.cholesky(pooled), draws.T).T
    chosen = [int(random.integers(len(draws)))]
    distance = np.full(len(draws), np.inf)
    while len(chosen) < count:
        distance = np.minimum(distance, ((scaled - scaled[chosen[-1]]) ** 2).sum(1))
        chosen.append(int(random.choice(len(draws), p=distance / distance.sum())))
    return draws[chosen]
