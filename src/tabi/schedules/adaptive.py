"""Rungs at equal rejection, as many as the barrier asks for."""

import numpy as np

from tabi.schedules.base import AbstractSchedule, Barrier

# A few sizes only, so that programs compiled for one run serve the next.
SIZES = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128, 192, 256)


class Adaptive(AbstractSchedule):
    """Equal steps of the rejection barrier B, about `density` B + 1 rungs.

    With 2 B + 1 rungs an exchange is accepted about half the time, about where
    non-reversible exchange carries states up and down the ladder fastest (Syed et al. 2022); a
    quarter more lowered the error x cost on the banana by 7%.

    Parameters
    ----------
    count
        A fixed number of rungs; None takes it from the barrier.
    density
        Rungs per unit of the barrier.
    """

    count: int | None = None
    density: float = 2.5

    def __check_init__(self) -> None:
        if self.count is not None and self.count < 2:
            raise ValueError(f"a schedule needs at least 2 rungs, got {self.count}")

    def rungs(self, barrier: Barrier) -> int:
        if self.count is not None:
            return self.count
        wanted = int(np.ceil(self.density * barrier.total - 0.25)) + 1
        return next((size for size in SIZES if size >= wanted), SIZES[-1])

    def betas(self, barrier: Barrier, rungs: int) -> np.ndarray:
        return barrier.place(rungs)
