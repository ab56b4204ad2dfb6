"""All that sampling hands to estimation. Axes are always [rung, ladder, draw]."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tabi.paths.base import AbstractPath
from tabi.state import Scalars


@dataclass(frozen=True)
class LegDraws:
    """The draws of one leg: rung k was sampled from phi(x|betas[k]) of `path`.

    Attributes
    ----------
    path
        The family of densities of this leg.
    betas
        Positions of the rungs, increasing, shape [rung].
    scalars
        One-component scalars of the draws, each [rung, ladder, draw], float64.
    """

    path: AbstractPath
    betas: np.ndarray
    scalars: Scalars

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rungs, ladders, draws)."""
        return self.scalars.log_pi.shape

    def log_density(self, beta: float) -> np.ndarray:
        """log phi(x|beta) of every draw, [rung, ladder, draw]."""
        return self.path.log_density(self.scalars, beta)

    def rung(self, index: int) -> Scalars:
        """The scalars of one rung's draws, each [ladder, draw]."""
        return Scalars(*(None if a is None else a[index] for a in self.scalars))

    @cached_property
    def dbeta(self) -> np.ndarray:
        """U = d log phi / d beta of every draw at its own rung, [rung, ladder, draw]."""
        return self.path.dbeta(self.scalars, self.betas[:, None, None])


@dataclass(frozen=True)
class LegSpec:
    """Which family of densities a leg follows, and on which component of f."""

    path: AbstractPath
    component: int = 0


@dataclass(frozen=True)
class Draws:
    """The draws of one round: every lane (a rung of one or more legs), every ladder.

    Attributes
    ----------
    scalars
        Scalars with f's components trailing, [lane, ladder, draw] and [lane, ladder, draw, c].
    legs
        The legs, each with its path and component.
    lanes
        For each leg the lanes of its rungs; legs that start at the same density share a lane.
    betas
        For each leg the positions of its rungs.
    replica
        Which of a ladder's replicas sat in the lane, [lane, ladder, draw].
    accept
        Mean acceptance probability of the kernel, [lane, ladder].
    outside
        Share of proposals outside the lane's support, [lane, ladder].
    evaluations
        Model calls this round cost.
    sweeps
        Sweeps of this round; every one is a draw.
    invalid
        Proposals with a NaN density or f.
    """

    scalars: Scalars
    legs: tuple[LegSpec, ...]
    lanes: tuple[np.ndarray, ...]
    betas: tuple[np.ndarray, ...]
    replica: np.ndarray
    accept: np.ndarray
    outside: np.ndarray
    evaluations: int
    sweeps: int = 0
    invalid: int = 0

    def leg(self, index: int) -> LegDraws:
        """The draws of one leg."""
        spec, lanes = self.legs[index], self.lanes[index]
        one = self.scalars.component(spec.component)
        taken = Scalars(*(None if a is None else a[lanes] for a in one))
        return LegDraws(spec.path, self.betas[index], taken)
