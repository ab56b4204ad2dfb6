"""Generalized thermodynamic integration: a ladder of densities from pi to |f| pi."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tabi.diagnostics import leg_diagnostics
from tabi.draws import Draws, LegSpec
from tabi.engine import (
    Effort,
    Engine,
    OutOfBudget,
    Round,
    Specification,
    Unit,
    Warm,
    WarmUp,
    choose_effort,
    start_states,
)
from tabi.estimators import MBAR, AbstractEstimator
from tabi.kernels import HMC, AbstractKernel
from tabi.methods.answers import Answers, answers, nothing_seen, pool
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.checks import Findings, check
from tabi.methods.stopping import Tolerance
from tabi.paths import AbstractPath, GeometricPath, Restricted
from tabi.result import Result, RoundRecord, RunDiagnostics
from tabi.runtime.workers import Workers
from tabi.schedules import AbstractSchedule, Adaptive, Barrier
from tabi.state import ChainState

POSTERIOR = GeometricPath()

# Draws, over lanes and ladders, that are held and estimated from at once.
MOST_DRAWS = 2_000_000

ONE_START = "all ladders began at one start: other modes of the posterior were not searched"


class GTI(AbstractMethod):
    """E f = exp(int_0^1 E_{phi(.|beta)}[U] dbeta), by a ladder from the posterior to |f| pi.

    The ladder is warmed up once (see `tabi.engine.warmup`), then measured in fresh rounds in
    which nothing adapts; value and standard error come from the last of them.

    Parameters
    ----------
    path
        The densities between, one path or several legs: by default one geometric path whose
        first rung is the full posterior, with both signs of f on it. The paper's form for
        generic f is `(GeometricPath(Restricted(1), TimesF(1)), GeometricPath(Restricted(-1),
        TimesF(-1)))`; its correction factors come from a lane of posterior draws.
    schedule
        Where the rungs stand.
    kernel
        How a state moves.
    estimator
        Draws to log ratio.
    exchange
        Whether neighbouring rungs exchange states.
    effort
        Lengths of the warm-up; None scales them with the budget.
    """

    path: AbstractPath | tuple[AbstractPath, ...] = GeometricPath()
    schedule: AbstractSchedule = Adaptive()
    kernel: AbstractKernel = HMC()
    estimator: AbstractEstimator = MBAR()
    exchange: bool = True
    effort: Effort | None = None

    def run(self, question: Question) -> Result:
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        components = question.target.components
        legs = [LegSpec(path, c) for c in range(components) for path in paths]
        # R needs draws of the full posterior where no leg starts there.
        restricted = any(isinstance(getattr(path, "start", None), Restricted) for path in paths)
        alone = [LegSpec(POSTERIOR)] if restricted else []
        known = tuple(dict.fromkeys((*paths, POSTERIOR)))
        specification = Specification(question.target, self.kernel, known)
        with Workers(Unit(specification), question.executor) as workers:
            run = _Run(self, question, specification, workers)
            return run.result(legs, alone)

    def describe(self) -> str:
        """One line for the reader of a result."""
        parts = (self.schedule, self.kernel, self.estimator)
        names = ", ".join(type(part).__name__ for part in parts)
        return f"GTI({names}{'' if self.exchange else ', no exchange'})"


@dataclass
class _Run:
    """One run: warm up, measure until done, check, report."""

    method: GTI
    question: Question
    specification: Specification
    workers: Workers

    def __post_init__(self) -> None:
        q = self.question
        self.engine = Engine(
            self.specification,
            q.ladders,
            q.key,
            self.workers,
            lambda phase, done: q.notify(phase, done, self._expected, ""),
            q.fatal_invalid,
        )
        self.tolerance = Tolerance(q.rel_tol, q.abs_tol)
        self._expected: int | None = None
        self._measured = 0
        self._invalid = 0

    def result(self, legs: list[LegSpec], alone: list[LegSpec]) -> Result:
        question, engine = self.question, self.engine
        starts = start_states(engine, question.starts, question.redraw)
        effort = self.method.effort or choose_effort(
            question.max_evaluations,
            engine.ladders * len(legs),
            self.method.kernel.patience(question.target.size),
        )
        limit = int(0.7 * question.max_evaluations)
        warm_up = WarmUp(
            engine, legs, self.method.schedule, self.method.exchange, alone, limit, effort
        )
        try:
            warm = warm_up.run(starts)
        except OutOfBudget:
            return self._unfinished()
        if warm.ladder is None:
            return self._nothing(warm)
        rounds, draws = self._measure(warm)
        return self._report(warm, rounds, draws)

    def _measure(self, warm: Warm) -> tuple[list[tuple[int, Answers]], Draws]:
        """Fresh rounds until the tolerance is met, each sized by what is known before it.

        A round that falls short is followed by a new one that stands alone. Only when the
        budget cannot pay for such a round is the rest of it spent and pooled with what was
        measured before.
        """
        assert warm.ladder is not None
        components = self.question.target.components
        cost = self.engine.cost(warm.ladder, warm.params)
        found = answers(warm.pilot, self.method.estimator, components)
        sweeps, states = warm.pilot.sweeps, warm.states
        measured: list[tuple[int, Answers]] = []
        draws = warm.pilot
        while True:
            left = (self.question.max_evaluations - self.engine.tally.evaluations) // cost
            wanted = self.tolerance.sweeps(found, sweeps)
            last = wanted > left
            if last and left < 2:
                break
            sweeps = _even(left if last else math.ceil(wanted))
            self._expected = self.engine.tally.evaluations + sweeps * cost
            found, round_ = self._round(warm, states, sweeps)
            draws, states = round_.draws, round_.states
            if last:
                measured.append((sweeps, found))
                break
            measured = [(sweeps, found)]
            if np.all(self.tolerance.met(found)):
                break
        return measured, draws

    def _round(self, warm: Warm, states: ChainState, sweeps: int) -> tuple[Answers, Round]:
        """One measuring round, in blocks of bounded memory that are pooled by their lengths."""
        assert warm.ladder is not None
        chains = warm.ladder.size * self.engine.ladders
        blocks = math.ceil(sweeps * chains / MOST_DRAWS)
        edges = [_even(round(sweeps * i / blocks)) for i in range(1, blocks)]
        found = []
        round_ = None
        for length in np.diff([0, *edges, sweeps]):
            length = int(length)
            round_ = self.engine.run(
                "measure", warm.ladder, warm.params, states, length, keep=False
            )
            states = round_.states
            self._measured += round_.draws.evaluations
            self._invalid += round_.draws.invalid
            components = self.question.target.components
            found.append((length, answers(round_.draws, self.method.estimator, components)))
        assert round_ is not None
        return pool(found), round_

    def _report(self, warm: Warm, rounds: list[tuple[int, Answers]], draws: Draws) -> Result:
        if not rounds:
            return self._unfinished()
        found = pool(rounds)
        legs = tuple(leg_diagnostics(draws, i) for i in range(len(warm.reached)))
        share = self._invalid / self._measured
        findings = check(found, legs, self.method.exchange, share)
        if warm.borrowed:
            findings.warnings.append(
                f"ladders {', '.join(map(str, warm.borrowed))} saw no state with f != 0 by "
                "themselves and started from another ladder's"
            )
        met = self.tolerance.met(found)
        if not np.all(met):
            findings.warnings.append(self._short_of(found, met))
        return self._make(found, met & findings.trusted, findings, legs, warm.barriers)

    def _short_of(self, found: Answers, met: np.ndarray) -> str:
        if np.any(found.sign[~met] == 0):
            return (
                "no draw saw f different from 0 in some component: its value is not known to be "
                "0; if f has a rare support, give it as a level"
            )
        worst = float(np.max(found.log_error - self.tolerance.log_allowed(found)))
        factor = float(np.exp(min(2 * worst, 60)))
        return (
            f"max_evaluations={self.question.max_evaluations:,} ended the run before the "
            f"tolerance was met; it needs about {factor:.1f} times as many"
        )

    def _nothing(self, warm: Warm) -> Result:
        """No draw of the posterior saw f different from 0."""
        draws = warm.pilot
        seen = draws.scalars.log_pi.size
        findings = Findings(np.zeros(self.question.target.components, bool))
        findings.warnings.append(
            f"f was 0 at all {seen:,} posterior draws: E f is not known to be 0; a ladder in f "
            "cannot find a rare support, give it as a level or start where f is not 0"
        )
        none = nothing_seen(self.question.target.components)
        return self._make(none, findings.trusted, findings, (), ())

    def _unfinished(self) -> Result:
        components = self.question.target.components
        findings = Findings(np.zeros(components, bool))
        findings.warnings.append(
            f"max_evaluations={self.question.max_evaluations:,} ended before the ladder stood, so "
            "there is no estimate; give at least ten times as many, or fewer ladders"
        )
        return self._make(nothing_seen(components), findings.trusted, findings, (), ())

    def _make(
        self,
        found: Answers,
        converged: np.ndarray,
        findings: Findings,
        legs: tuple[Any, ...],
        barriers: tuple[Barrier, ...],
    ) -> Result:
        shape, tally = self.question.target.f_shape, self.engine.tally
        first = tally.first_invalid
        notes = () if self.question.redraw else (ONE_START,)
        diagnostics = RunDiagnostics(
            legs=legs,
            condition=found.condition.reshape(shape),
            autocorrelation_time=found.autocorrelation_time.reshape(shape),
            ladder_ratio=found.ladder_ratio.reshape(shape),
            rounds=tuple(RoundRecord(*record) for record in tally.records),
            barrier=tuple(barrier.total for barrier in barriers),
            invalid_proposals=tally.invalid,
            first_invalid=None if first is None else self.engine.describe(first),
            compilations=tally.compilations,
            compile_seconds=tally.compile_seconds,
            seconds=sum(record[3] for record in tally.records),
            notes=notes,
        )
        return Result.from_log(
            found.sign.reshape(shape),
            found.log_abs.reshape(shape),
            found.log_stderr.reshape(shape),
            dof=found.dof.reshape(shape),
            one_signed=found.one_signed.reshape(shape),
            evaluations=tally.evaluations,
            gradients=tally.gradients,
            converged=converged.reshape(shape),
            warnings=tuple(findings.warnings),
            method=self.method.describe(),
            diagnostics=diagnostics,
        )


def _even(sweeps: int) -> int:
    """Even, for exchange alternates between two sets of edges."""
    return max(2, sweeps - sweeps % 2)
