"""From answers and checks to the `Result` that a user gets."""

from dataclasses import dataclass

import numpy as np

from tabi.diagnostics import LegDiagnostics
from tabi.engine import Engine
from tabi.methods.answers import Answers, nothing_seen
from tabi.methods.base import Question
from tabi.methods.checks import Findings
from tabi.methods.stopping import Tolerance
from tabi.result import Result, RoundRecord, RunDiagnostics

ONE_START = "all ladders began at one start: other modes of the posterior were not searched"


@dataclass(frozen=True)
class Outcome:
    """What a run found, with all that its reader must know.

    Attributes
    ----------
    answers
        The numbers; None where there are none.
    findings
        Warnings and trust.
    legs, barriers
        Diagnostics of each leg.
    """

    answers: Answers | None
    findings: Findings
    legs: tuple[LegDiagnostics, ...] = ()
    barriers: tuple[float, ...] = ()

    def result(self, question: Question, engine: Engine, method: str) -> Result:
        """The result, converged where the tolerance is met and nothing speaks against it."""
        components = question.target.components
        found = self.answers or nothing_seen(components)
        tolerance = Tolerance(question.rel_tol, question.abs_tol)
        met = tolerance.met(found)
        warnings = list(self.findings.warnings)
        if self.answers is not None and not np.all(met):
            warnings.append(_short_of(question, tolerance, found, met))
        shape, tally = question.target.f_shape, engine.tally
        first = tally.first_invalid
        diagnostics = RunDiagnostics(
            legs=self.legs,
            condition=found.condition.reshape(shape),
            autocorrelation_time=found.autocorrelation_time.reshape(shape),
            ladder_ratio=found.ladder_ratio.reshape(shape),
            rounds=tuple(RoundRecord(*record) for record in tally.records),
            barrier=self.barriers,
            invalid_proposals=tally.invalid,
            first_invalid=None if first is None else engine.describe(first),
            compilations=tally.compilations,
            compile_seconds=tally.compile_seconds,
            seconds=sum(record[3] for record in tally.records),
            notes=() if question.redraw else (ONE_START,),
        )
        return Result.from_log(
            found.sign.reshape(shape),
            found.log_abs.reshape(shape),
            found.log_stderr.reshape(shape),
            dof=found.dof.reshape(shape),
            one_signed=found.one_signed.reshape(shape),
            evaluations=tally.evaluations,
            gradients=tally.gradients,
            converged=(met & self.findings.trusted).reshape(shape),
            warnings=tuple(warnings),
            method=method,
            diagnostics=diagnostics,
        )


def _short_of(question: Question, tolerance: Tolerance, found: Answers, met: np.ndarray) -> str:
    levelless = question.target.level is None
    if np.any(found.sign[~met] == 0):
        return (
            "no draw saw f different from 0 in some component: its value is not known to be "
            "0" + ("; if f has a rare support, give it as a level" if levelless else "")
        )
    worst = float(np.max(found.log_error - tolerance.log_allowed(found)))
    factor = float(np.exp(min(2 * worst, 60)))
    return (
        f"max_evaluations={question.max_evaluations:,} ended the run before the "
        f"tolerance was met; it needs about {factor:.1f} times as many"
    )


def unfinished(question: Question) -> Outcome:
    """No estimate, for the budget ended during the warm-up."""
    findings = Findings(np.zeros(question.target.components, bool))
    findings.warnings.append(
        f"max_evaluations={question.max_evaluations:,} ended before the ladder stood, so "
        "there is no estimate; give at least ten times as many, or fewer ladders"
        + (
            ""
            if question.target.level is None
            else "; if it fails again, check that the event is possible and that the level grows "
            "towards it from wherever the posterior is: on a plateau there is no way to go"
        )
    )
    return Outcome(None, findings)
