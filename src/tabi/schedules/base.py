"""Where the rungs of a leg stand, as a function of how hard it is to pass from one to the next."""

from abc import abstractmethod
from dataclasses import dataclass

import equinox as eqx
import numpy as np
import scipy  # its subpackages load on first use

from tabi.draws import LegDraws

# Right behind a rung: the least step of beta.
FIRST_STEP = 1e-9


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
    lower rung outside the support of any rung above it are left out: no placing of rungs lowers
    what they reject (the support edge, apart from the barrier).
    """
    result = []
    for i in range(len(draws.betas) - 1):
        up, down = (_climb(draws, rung, i).ravel() for rung in (i, i + 1))
        behind = draws.path.log_density(draws.rung(i), draws.betas[i] + FIRST_STEP).ravel()
        up, down = up[np.isfinite(behind)], down[np.isfinite(down)]
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
    """The barrier seen by the draws of a leg, also inside the edge that holds the path's turn."""
    betas = np.asarray(draws.betas, float)
    cumulative = np.concatenate([[0.0], np.cumsum(rejection(draws))])
    edge = int(np.searchsorted(betas, draws.path.turn)) - 1
    if not 0 <= edge < len(betas) - 1:
        return Barrier(betas, cumulative)
    inside, shares = _before_turn(draws, edge)
    rise = cumulative[edge] + shares * np.diff(cumulative)[edge]
    return Barrier(np.insert(betas, edge + 1, inside), np.insert(cumulative, edge + 1, rise))


def _before_turn(draws: LegDraws, edge: int) -> tuple[np.ndarray, np.ndarray]:
    """Places inside the edge before the turn, and the shares of its rejection up to them.

    What an exchange rejects there grows with the weight that the draws of the lower rung lose:
    -log of the effective share of their weights, of which the places are quarters.
    """
    low, turn = draws.betas[edge], draws.path.turn
    one = draws.rung(edge)
    now = draws.path.log_density(one, low)

    def loss(beta: float) -> float:
        return -np.log(max(effective_share(draws.path.log_density(one, beta) - now), 1e-300))

    total = loss(turn)
    if not 0 < total < 600:
        return np.zeros(0), np.zeros(0)
    shares = np.asarray([0.25, 0.5, 0.75, 0.98])
    roots = [
        scipy.optimize.brentq(lambda b, s=share: loss(b) - s * total, low, turn, xtol=1e-9)
        for share in shares
    ]
    places, first = np.unique(roots, return_index=True)
    between = (places > low) & (places < turn)
    return places[between], shares[first][between]


def effective_share(log_weights: np.ndarray) -> float:
    """Effective size of weights over their number, (sum w)^2 / (n sum w^2); 0 where all are 0."""
    top = np.max(log_weights)
    if np.isneginf(top):
        return 0.0
    w = np.exp(log_weights - top)
    return float(w.sum() ** 2 / np.sum(w * w) / w.size)


class AbstractSchedule(eqx.Module):
    """Chooses the rungs of a leg."""

    @abstractmethod
    def rungs(self, barrier: Barrier) -> int:
        """How many rungs a leg with this barrier gets."""

    @abstractmethod
    def betas(self, barrier: Barrier, rungs: int) -> np.ndarray:
        """Their places, from 0 to 1."""
