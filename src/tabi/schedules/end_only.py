"""One rung alone, for methods that sample only one end of a path."""

import numpy as np

from tabi.schedules.base import AbstractSchedule, Barrier


class EndOnly(AbstractSchedule):
    """The one rung at `beta`: 1 is the end of the path, 0 its start."""

    beta: float = 1.0

    def rungs(self, barrier: Barrier) -> int:
        return 1

    def betas(self, barrier: Barrier, rungs: int) -> np.ndarray:
        return np.asarray([self.beta])
