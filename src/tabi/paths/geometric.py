"""The geometric path: log phi(x|beta) = (1 - beta) log a(x) + beta log b(x)."""

from typing import Any

import numpy as np

from tabi.paths.base import AbstractPath
from tabi.paths.ends import AbstractEnd, FullPosterior, TimesF
from tabi.state import Scalars, array_namespace


class GeometricPath(AbstractPath):
    """a(x)^(1-beta) b(x)^beta between any two ends; by default from pi to |f| pi.

    At beta = 0 the density is exactly a, also where b vanishes: with a = pi and b = |f| pi the
    first rung is the *full* posterior, zeros of f included.
    """

    start: AbstractEnd = FullPosterior()
    end: AbstractEnd = TimesF()

    def log_density(self, scalars: Scalars, beta: Any) -> Any:
        a, b = self.start.log(scalars), self.end.log(scalars)
        xp = array_namespace(a)
        # The inner beta keeps 0 * (-inf) out of the branches that are not taken.
        inner = xp.clip(beta, 1e-300 if a.dtype == np.float64 else 1e-30, 1 - 1e-7)
        inner = xp.where((beta <= 0) | (beta >= 1), 0.5, inner)
        between = (1 - inner) * a + inner * b
        return xp.where(beta <= 0, a, xp.where(beta >= 1, b, between))

    def dbeta(self, scalars: Scalars, beta: Any) -> Any:
        a, b = self.start.log(scalars), self.end.log(scalars)
        xp = array_namespace(a)
        finite_a = xp.where(xp.isneginf(a), 0.0, a)
        difference = b - finite_a
        return xp.where(xp.isneginf(a) & ~xp.isneginf(b), xp.inf, difference)
