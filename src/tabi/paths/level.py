"""The level path: from the posterior to where a level is positive, then to |f| times it there."""

from typing import Any

import numpy as np

from tabi.paths.base import AbstractPath
from tabi.paths.ends import AbstractEnd, FullPosterior
from tabi.state import Scalars, array_namespace

# Decades of 1/tau to either side of 1 that the smooth part runs through.
DECADES = 30
_RATE = 2 * DECADES * np.log(10.0)


class LevelPath(AbstractPath):
    """pi(x) sigma(level(x) / tau) with tau falling from infinity to 0, then pi 1(level > 0) |f|^g.

    It does not read f before the level is positive, so it finds supports that no posterior draw
    has seen, and it bridges to an indicator, for which f^beta = f counts draws and nothing more.

    1 / tau runs evenly through sixty decades as beta goes from 0 to `sharp_at`. The rungs stand at
    equal steps of the rejection barrier, in the few decades where tau is between the spread of the
    level under the posterior and its spread under the event; which ones these are is seen on the
    climb, so a level multiplied by a constant is the same level. At beta = 0 the density is
    exactly pi, at 1 exactly |f| pi 1(level > 0).

    Parameters
    ----------
    sharp_at
        The beta at which tau is 0; from there to 1 the exponent g of |f| goes from 0 to 1. With 1
        there is nothing left to do for f: the path of a probability.
    """

    sharp_at: float = 0.5
    start: AbstractEnd = FullPosterior()

    def __check_init__(self) -> None:
        if not 0 < self.sharp_at <= 1:
            raise ValueError(f"sharp_at must be above 0 and at most 1, got {self.sharp_at}")

    @property
    def turn(self) -> float:
        return self.sharp_at

    def log_density(self, scalars: Scalars, beta: Any) -> Any:
        log_pi = self.start.log(scalars)
        xp = array_namespace(log_pi)
        smooth = log_pi + self._log_smooth(scalars.level, beta)
        # An exponent of 0 takes f for 1 where it is 0, too; the inner one keeps 0 * (-inf) out.
        exponent = self._exponent(beta)
        power = xp.where(exponent > 0, exponent, 1.0) * scalars.log_abs_f
        power = xp.where(exponent > 0, power, 0.0)
        sharp = xp.where(scalars.level > 0, log_pi + power, -xp.inf)
        return xp.where(beta <= 0, log_pi, xp.where(self._is_smooth(beta), smooth, sharp))

    def dbeta(self, scalars: Scalars, beta: Any) -> Any:
        xp = array_namespace(scalars.level)
        finite = xp.where(xp.isfinite(scalars.level), scalars.level, 0.0)
        reach = finite * self._slope(beta, xp)
        smooth = (reach * xp.exp(-xp.logaddexp(0.0, reach)) * _RATE - np.log(2.0)) / self.sharp_at
        rest = 1 - self.sharp_at
        sharp = scalars.log_abs_f / rest if rest > 0 else xp.zeros_like(scalars.log_abs_f)
        return xp.where(self._is_smooth(beta), smooth, sharp)

    def _is_smooth(self, beta: Any) -> Any:
        return (beta < self.sharp_at) & (beta < 1)

    def _exponent(self, beta: Any) -> Any:
        """g: 0 while tau falls, 1 at the end."""
        if self.sharp_at == 1:
            return beta * 1.0
        return (beta - self.sharp_at) / (1 - self.sharp_at)

    def _log_smooth(self, level: Any, beta: Any) -> Any:
        """log sigma(level / tau), and log 2 at first: sigma is 1/2 where tau is infinite."""
        xp = array_namespace(level)
        share = xp.clip(beta / self.sharp_at, 0.0, 1.0)
        return (1 - share) * np.log(2.0) - xp.logaddexp(0.0, -level * self._slope(beta, xp))

    def _slope(self, beta: Any, xp: Any) -> Any:
        """1 / tau."""
        share = xp.clip(beta / self.sharp_at, 0.0, 1.0)
        return xp.exp(_RATE * (share - 0.5))
