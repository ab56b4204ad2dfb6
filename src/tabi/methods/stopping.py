"""When a component is done, and how long the round that shows it must be."""

from dataclasses import dataclass

import numpy as np

from tabi.methods.answers import Answers

# A round is made this much longer than the pilot asks for: the pilot's variance is itself an
# estimate, and a round that ends just short of the tolerance has to be run again from scratch.
MARGIN = 1.35

# No measuring round has fewer draws a rung, over all ladders.
LEAST_DRAWS = 1000


@dataclass(frozen=True)
class Tolerance:
    """stderr <= max(relative |value|, absolute); without either the budget is spent."""

    relative: float | None
    absolute: float

    @property
    def spends_budget(self) -> bool:
        """Whether there is nothing to reach."""
        return self.relative is None and self.absolute == 0

    def log_allowed(self, found: Answers) -> np.ndarray:
        """log of the standard error each component may have."""
        with np.errstate(divide="ignore"):
            relative = -np.inf if self.relative is None else found.log_abs + np.log(self.relative)
            return np.maximum(relative, np.log(self.absolute))

    def met(self, found: Answers) -> np.ndarray:
        """Which components are done, [component]."""
        if self.spends_budget:
            return found.sign != 0
        return found.log_error <= self.log_allowed(found)

    def sweeps(self, found: Answers, sweeps: int, ladders: int) -> float:
        """Sweeps a fresh round of so many ladders needs, given what one of `sweeps` found."""
        if self.spends_budget:
            return np.inf
        excess = found.log_error - self.log_allowed(found)
        factor = float(np.exp(np.minimum(2 * np.max(excess), 600)))
        return max(LEAST_DRAWS / ladders, MARGIN * factor * sweeps)
