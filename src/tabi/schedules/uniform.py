"""Rungs at equal steps of beta."""

import numpy as np

from tabi.schedules.base import AbstractSchedule, Barrier


class Uniform(AbstractSchedule):
    """beta_i = (i - 1) / (N - 1)."""

    count: int

    def __check_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"a schedule needs at least 2 rungs, got {self.count}")

    def rungs(self, barrier: Barrier) -> int:
        return self.count

    def betas(self, barrier: Barrier, rungs: int) -> np.ndarray:
        return np.linspace(0.0, 1.0, rungs)
