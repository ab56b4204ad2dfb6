"""Measuring with independent draws: fresh ones, sized beforehand, until done and trusted."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tabi.engine import Engine
from tabi.methods.answers import Answers, pool
from tabi.methods.base import Question
from tabi.methods.outcome import Outcome, unfinished
from tabi.methods.stopping import Tolerance

# The share of the budget that is not worth a round of its own.
LEAST_SHARE = 0.05


def fresh_rounds(
    engine: Engine,
    question: Question,
    pilot: tuple[int, Answers],
    measure: Callable[[int], Outcome],
) -> Outcome:
    """Measure until every component is done and trusted, or the budget is spent.

    As for a ladder (`tabi.methods.ladder_run`), a round that falls short is followed by a longer
    one that stands alone; only the last one, which the budget cuts short, is pooled with the one
    before.

    Parameters
    ----------
    engine, question
        The run.
    pilot
        Evaluations of a pilot and what it found; it sizes the first round.
    measure
        Spends about so many evaluations on draws and answers from them.

    Returns
    -------
    Outcome
        Of the last round.
    """
    tolerance = Tolerance(question.rel_tol, question.abs_tol)
    spend, found = pilot
    wanted = tolerance.sweeps(found, spend, 1)
    before: tuple[int, Outcome] | None = None
    while True:
        left = question.max_evaluations - engine.tally.evaluations
        if before is not None and left < LEAST_SHARE * question.max_evaluations:
            return before[1]
        if left < 1:
            return unfinished(question)
        last = wanted >= left
        spend = int(left if last else wanted)
        outcome = measure(spend)
        if last and before is not None and before[1].answers and outcome.answers:
            parts = [(before[0], before[1].answers), (spend, outcome.answers)]
            outcome = replace(outcome, answers=pool(parts))
        if last or outcome.answers is None:
            return outcome
        if np.all(tolerance.met(outcome.answers) & outcome.findings.trusted):
            return outcome
        # What a check speaks against needs more draws, whatever its standard error says.
        longer = 0 if np.all(outcome.findings.trusted) else 2 * spend
        wanted = max(longer, tolerance.sweeps(outcome.answers, spend, 1))
        before = spend, outcome
