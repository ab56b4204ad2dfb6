"""How long the parts of a warm-up take."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Effort:
    """Lengths of the parts of a warm-up, in sweeps, and particles a ladder climbs with."""

    search: int = 4
    settle: tuple[int, ...] = (8, 16, 32)
    climb: int = 16
    refine: tuple[int, ...] = (32, 64, 128)
    particles: int = 8

    def __post_init__(self) -> None:
        lengths = (self.search, self.climb, self.particles, *self.settle, *self.refine)
        if min(lengths) < 2 or not self.settle or not self.refine:
            raise ValueError(f"every part of a warm-up needs at least 2 sweeps, got {self}")


def choose_effort(budget: int, lanes: int, patience: float) -> Effort:
    """A warm-up that suits the budget.

    Parameters
    ----------
    budget
        Evaluations the run may take.
    lanes
        Ladders times legs: what a sweep of one rung costs at least.
    patience
        Moves the kernel needs to forget a state.

    Returns
    -------
    Effort
        The full lengths where the refinement costs at most about a tenth of the budget,
        shorter ones down to a quarter where it would cost more.
    """
    slow = float(np.clip(patience, 1, 16))
    # A leg has about ten rungs and a move of a good kernel about two evaluations.
    full = 224 * 20 * lanes * slow
    share = float(np.clip(0.1 * budget / full, 0.25, 1.0)) * slow

    def scaled(sweeps: int) -> int:
        return 2 * max(2, round(sweeps * share / 2))

    settle = tuple(scaled(sweeps) for sweeps in (8, 16, 32))
    refine = tuple(scaled(sweeps) for sweeps in (32, 64, 128))
    return Effort(settle=settle, climb=max(8, scaled(16)), refine=refine)
