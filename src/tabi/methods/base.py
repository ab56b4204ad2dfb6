"""What a method is asked and what every method shares."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import numpy as np

from tabi.result import Result
from tabi.runtime.keys import Key
from tabi.target import Target


@dataclass(frozen=True)
class Question:
    """One call of `tabi.expect`, checked and in the sampling space.

    Attributes
    ----------
    target
        Posterior and f.
    starts
        A position for each ladder, [ladder, coordinate].
    redraw
        Another start for a ladder, `redraw(ladder, attempt)`; None where all ladders were given
        one and the same.
    rel_tol, abs_tol
        A component is done when stderr <= max(rel_tol |value|, abs_tol); None for both spends
        the budget.
    max_evaluations
        Model calls that are never exceeded.
    key
        The run's key (see `tabi.runtime.keys`).
    executor
        Where units of work run.
    notify
        Called with a phase, evaluations done, their expected total or None, and a note.
    fatal_invalid
        Share of NaN proposals that stops the run.
    evidence
        Whether this is `tabi.log_evidence`: the target's posterior is then the prior, and log f
        the log likelihood.
    """

    target: Target
    starts: np.ndarray
    redraw: Callable[[int, int], np.ndarray] | None
    rel_tol: float | None
    abs_tol: float
    max_evaluations: int
    key: Key
    executor: Any
    notify: Callable[[str, int, int | None, str], None]
    fatal_invalid: float
    evidence: bool = False

    @property
    def ladders(self) -> int:
        """Number of independent ladders."""
        return len(self.starts)

    @property
    def spends_budget(self) -> bool:
        """Whether there is no tolerance to stop at."""
        return self.rel_tol is None and self.abs_tol == 0


class BudgetTooSmall(ValueError):
    """The budget cannot pay for the method's settings; the message says what they need."""


class AbstractMethod(eqx.Module):
    """An algorithm that answers questions."""

    @abstractmethod
    def run(self, question: Question) -> Result:
        """Answer one question."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the reader of a result."""
