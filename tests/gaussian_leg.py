"""Exact draws of a Gaussian geometric path, and its constants in closed form.

pi = N(0, 1) up to a factor exp(log_pi_shift) and log|f| = log_f_shift - (x - y)^2 / (2 s^2), so
|f|^beta pi is Gaussian with precision P = 1 + beta / s^2 and mean m = beta y / (s^2 P).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import norm

from tabi.draws import LegDraws
from tabi.paths import AbstractEnd, FullPosterior, GeometricPath
from tabi.state import Scalars


@dataclass(frozen=True)
class GaussianLeg:
    """With `zeros`, f vanishes on x < edge; with `signed`, f is negative there."""

    y: float = 1.0
    s: float = 0.7
    edge: float = 0.3
    zeros: bool = False
    signed: bool = False
    log_f_shift: float = 0.0
    log_pi_shift: float = 0.0
    start: AbstractEnd = FullPosterior()

    def precision(self, betas: np.ndarray) -> np.ndarray:
        return 1 + betas / self.s**2

    def mean(self, betas: np.ndarray) -> np.ndarray:
        return betas * self.y / self.s**2 / self.precision(betas)

    def mass_below(self, betas: np.ndarray) -> np.ndarray:
        """Probability of x < edge under |f|^beta pi without zeros."""
        return norm.cdf((self.edge - self.mean(betas)) * np.sqrt(self.precision(betas)))

    def full_ratio(self) -> float:
        """log of int exp(log|f|) pi / int pi, zeros of f ignored."""
        one = np.array(1.0)
        p, m = self.precision(one), self.mean(one)
        exponent = p * m**2 / 2 - self.y**2 / (2 * self.s**2)
        return float(self.log_f_shift + exponent - np.log(p) / 2)

    def log_parts(self) -> tuple[float, float]:
        """log c(f above the edge) / Z and log c(f below the edge) / Z."""
        below = self.mass_below(np.array(1.0))
        return self.full_ratio() + np.log1p(-below), self.full_ratio() + np.log(below)

    def log_ratio(self) -> float:
        return self.log_parts()[0] if self.zeros else self.full_ratio()

    def scalars(self, x: np.ndarray) -> Scalars:
        below = x < self.edge
        log_abs_f = self.log_f_shift - (x - self.y) ** 2 / (2 * self.s**2)
        if self.zeros:
            return Scalars(
                self.log_pi_shift - x**2 / 2,
                np.where(below, -np.inf, log_abs_f),
                np.where(below, 0, 1),
            )
        sign = np.where(below, -1, 1) if self.signed else np.ones(x.shape, int)
        return Scalars(self.log_pi_shift - x**2 / 2, log_abs_f, sign)

    def draws(
        self,
        seed: int,
        betas: np.ndarray,
        ladders: int,
        length: int,
        noise: np.ndarray | None = None,
    ) -> LegDraws:
        """Independent draws, or draws that share the given standard normal noise [ladder, draw]."""
        shape = (len(betas), ladders, length)
        if noise is None:
            uniform = np.random.default_rng(seed).uniform(size=shape)
        else:
            uniform = np.broadcast_to(norm.cdf(noise), shape)
        restricted = self.zeros & ((betas > 0) | (not isinstance(self.start, FullPosterior)))
        below = np.where(restricted, self.mass_below(betas), 0.0)[:, None, None]
        column = betas[:, None, None]
        z = ndtri(below + (1 - below) * uniform)
        x = self.mean(column) + z / np.sqrt(self.precision(column))
        # Rounding must not put a draw of the restricted rungs outside its support.
        x = np.where(restricted[:, None, None], np.maximum(x, self.edge), x)
        return LegDraws(GeometricPath(start=self.start), betas, self.scalars(x))
