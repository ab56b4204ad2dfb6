"""Where the rungs of a leg stand, as a function of how hard it is to pass from one to the next."""

from abc import abstractmethod
from dataclasses import dataclass

import equinox as eqx
import numpy as np
import scipy  # its subpackages load on first use

from tabi.draws import LegDraws


@dataclass(frozen=True)
class Barrier:
    """The cumulative rejection of exchanges along a leg.

    `cumulative[i]` is the sum of the rejection rates of the edges up to `betas[i]`; as rungs
    get denser it converges to B(beta), whose total is about 0.56 thermodynamic lengths.
    """

    betas: np.ndarray
    cumulative: np.ndarray

    @property
    def total(self) -> float:
        """B, the rejection of the whole leg."""
        return float(self.cumulative[-1])

    def place(self, rungs: int) -> np.ndarray:
        """Rungs at equal steps of the barrier, by monotone (Fritsch-Carlson) interpolation."""
        # Edges that reject nothing still need room, or beta(B) would not be a function.
        steps = np.maximum(np.diff(self.cumulative), 1e-6 + 1e-3 * np.diff(self.betas))
        levels = np.concatenate([[0.0], np.cumsum(steps)])
        betas = scipy.interpolate.PchipInterpolator(levels, self.betas)(
            np.linspace(0, levels[-1], rungs)
        )
        betas[0], betas[-1] = self.betas[0], self.betas[-1]
        return betas


def rejection(draws: LegDraws) -> np.ndarray:
    """Mean rejection of an exchange between neighbouring rungs, [edge].

    1 - E min(1, phi_i(y) phi_{i+1}(x) / (phi_i(x) phi_{i+1}(y))), x ~ phi_i, y ~ phi_{i+1},
    over pairs of different sweeps, so that the exchanges made do not couple them. States of the
    lower rung outside the support of the upper one are left out: no placing of rungs lowers
    what they reject (the support edge, apart from the barrier).
    """
    result = []
    for i in range(len(draws.betas) - 1):
        up, down = (_climb(draws, rung, i).ravel() for rung in (i, i + 1))
        up, down = up[np.isfinite(up)], down[np.isfinite(down)]
        count = min(up.size, down.size)
        if count == 0:
            result.append(1.0)
            continue
        shifts = [np.roll(down[:count], s) for s in (count // 4 + 1, count // 2, 3 * count // 4)]
        ratios = np.concatenate([np.minimum(up[:count] - other, 0) for other in shifts])
        result.append(1.0 - float(np.mean(np.exp(ratios))))
    return np.asarray(result)


def _climb(draws: LegDraws, rung: int, edge: int) -> np.ndarray:
    """log phi_{edge+1} - log phi_edge at the draws of one rung; -inf off the upper support."""
    one = draws.rung(rung)
    upper, lower = (draws.path.log_density(one, draws.betas[edge + i]) for i in (1, 0))
    outside = np.isneginf(upper)
    return np.where(outside, -np.inf, np.where(outside, 0.0, upper) - lower)


def barrier_of(draws: LegDraws) -> Barrier:
    """The barrier seen by the draws of a leg."""
    return Barrier(draws.betas, np.concatenate([[0.0], np.cumsum(rejection(draws))]))


class AbstractSchedule(eqx.Module):
    """Chooses the rungs of a leg."""

    @abstractmethod
    def rungs(self, barrier: Barrier) -> int:
        """How many rungs a leg with this barrier gets."""

    @abstractmethod
    def betas(self, barrier: Barrier, rungs: int) -> np.ndarray:
        """Their places, from 0 to 1."""
