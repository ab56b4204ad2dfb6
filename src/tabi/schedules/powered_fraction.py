"""The paper's schedule: powers of equal steps, dense near the posterior."""

import numpy as np

from tabi.schedules.base import AbstractSchedule, Barrier


class PoweredFraction(AbstractSchedule):
    """beta_i = ((i - 1) / (N - 1))^exponent (Friel and Pettitt 2008; the paper uses 5)."""

    count: int
    exponent: float = 5.0

    def __check_init__(self) -> None:
        if self.count < 2:
            raise ValueError(f"a schedule needs at least 2 rungs, got {self.count}")
        if not self.exponent > 0:
            raise ValueError(f"exponent must be positive, got {self.exponent}")

    def rungs(self, barrier: Barrier) -> int:
        return self.count

    def betas(self, barrier: Barrier, rungs: int) -> np.ndarray:
        return np.linspace(0.0, 1.0, rungs) ** self.exponent
