"""One adaptive run: warm a ladder up, measure in fresh rounds until done, check, report."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
    Tally,
    Unit,
    Warm,
    WarmUp,
    choose_effort,
    start_states,
)
from tabi.kernels import AbstractKernel
from tabi.methods.answers import Answer, Answers, pool
from tabi.methods.base import Question
from tabi.methods.checks import Findings, check
from tabi.methods.outcome import Outcome, unfinished
from tabi.methods.stopping import Tolerance
from tabi.paths import Base, GeometricPath, LevelPath
from tabi.references import AbstractReference
from tabi.result import Result
from tabi.runtime.workers import Workers
from tabi.schedules import AbstractSchedule
from tabi.state import ChainState

# Draws of a scalar f, over lanes and ladders, that are held and estimated from at once.
MOST_DRAWS = 2_000_000

# The lane of a leg that only wants draws of the full posterior.
POSTERIOR = GeometricPath()


@dataclass(frozen=True)
class Plan:
    """What a method asks of a run.

    Attributes
    ----------
    legs
        Families of densities that get a ladder each.
    alone
        Legs of one lane at beta = 0 besides: posterior draws.
    schedule, kernel, exchange, effort
        As in `tabi.GTI`.
    answer
        Turns the draws of a round into the answers.
    inspect
        Adds to the findings what the last round's draws say against the answers.
    bases
        References that legs start at, which then begin with draws of them.
    """

    legs: tuple[LegSpec, ...]
    alone: tuple[LegSpec, ...]
    schedule: AbstractSchedule
    kernel: AbstractKernel
    exchange: bool
    effort: Effort | None
    answer: Answer
    inspect: Callable[[Draws, Findings, Warm], None] | None = None
    bases: tuple[AbstractReference, ...] = ()

    def specification(self, question: Question) -> Specification:
        """What is static of the plan, for the compiled loop."""
        paths = dict.fromkeys([*(leg.path for leg in self.legs), POSTERIOR])
        return Specification(question.target, self.kernel, tuple(paths))


def run_ladder(plan: Plan, question: Question, method: str, tally: Tally | None = None) -> Result:
    """Carry out a plan; `tally` holds what the method has spent before."""
    specification = plan.specification(question)
    with Workers(Unit(specification), question.executor) as workers:
        run = _Run(plan, question, specification, workers, tally)
        return run.outcome().result(question, run.engine, method)


@dataclass
class _Run:
    plan: Plan
    question: Question
    specification: Specification
    workers: Workers
    tally: Tally | None = None

    def __post_init__(self) -> None:
        q = self.question
        self.engine = Engine(
            self.specification,
            q.ladders,
            q.key,
            self.workers,
            lambda phase, done: q.notify(phase, done, self._expected, ""),
            q.fatal_invalid,
            self.plan.bases,
            self.tally,
        )
        self.tolerance = Tolerance(q.rel_tol, q.abs_tol)
        self._expected: int | None = None
        self._measured = 0
        self._invalid = 0

    def outcome(self) -> Outcome:
        try:
            warm = self._warm_up()
        except OutOfBudget:
            return unfinished(self.question)
        if warm.ladder is None:
            return self._nothing(warm)
        return self._measure(warm) or unfinished(self.question)

    def _warm_up(self) -> Warm:
        question, plan = self.question, self.plan
        effort = plan.effort or choose_effort(
            question.max_evaluations,
            self.engine.ladders * max(1, len(plan.legs)),
            plan.kernel.patience(question.target.size),
        )
        budget = question.max_evaluations
        warm_up = WarmUp(
            self.engine, plan.legs, plan.schedule, plan.exchange, plan.alone, budget, effort
        )
        legs = plan.legs or plan.alone[:1]
        return warm_up.run(root_starts(self.engine, question, legs, plan.bases))

    def _measure(self, warm: Warm) -> Outcome | None:
        """Fresh rounds until every component is done and trusted, or the budget is spent.

        Each is sized by what is known before it. A round that falls short of the tolerance, or
        that a check speaks against, is followed by a longer one that stands alone. Only when the
        budget cannot pay for such a round is the rest of it spent and pooled with what was
        measured before.
        """
        assert warm.ladder is not None
        cost = self.engine.cost(warm.ladder, warm.params)
        found, sweeps, states = self._answers(warm.pilot), warm.pilot.sweeps, warm.states
        wanted = self.tolerance.sweeps(found, sweeps, self.engine.ladders)
        measured: list[tuple[int, Answers]] = []
        outcome = None
        while True:
            left = (self.question.max_evaluations - self.engine.tally.evaluations) // cost
            last = wanted > left
            if last and left < 2:
                return outcome
            sweeps = _even(left if last else math.ceil(wanted))
            self._expected = self.engine.tally.evaluations + sweeps * cost
            found, round_ = self._round(warm, states, sweeps)
            measured = [*(measured if last else []), (sweeps, found)]
            outcome = self._judge(warm, measured, round_.draws)
            done = self.tolerance.met(found) & outcome.findings.trusted
            if last or np.all(done):
                return outcome
            states = round_.states
            # What a check speaks against needs more draws, whatever its standard error says.
            longer = 0 if np.all(outcome.findings.trusted) else 2 * sweeps
            wanted = max(longer, self.tolerance.sweeps(found, sweeps, self.engine.ladders))

    def _answers(self, draws: Draws) -> Answers:
        return self.plan.answer(draws, self.question.target.components)

    def _round(self, warm: Warm, states: ChainState, sweeps: int) -> tuple[Answers, Round]:
        """One measuring round, in blocks of bounded memory that are pooled by their lengths."""
        assert warm.ladder is not None
        chains = warm.ladder.size * self.engine.ladders
        size = chains * (1 + self.question.target.components)
        blocks = math.ceil(sweeps * size / (2 * MOST_DRAWS))
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
            found.append((length, self._answers(round_.draws)))
        assert round_ is not None
        return pool(found), round_

    def _judge(self, warm: Warm, rounds: list[tuple[int, Answers]], draws: Draws) -> Outcome:
        found = pool(rounds)
        legs = tuple(leg_diagnostics(draws, i) for i in range(len(warm.reached)))
        share = self._invalid / self._measured
        findings = check(found, legs, self.plan.exchange, share)
        if self.plan.inspect is not None:
            self.plan.inspect(draws, findings, warm)
        if warm.borrowed:
            findings.distrust(
                slice(None),
                f"ladders {', '.join(map(str, warm.borrowed))} found no state with f != 0 by "
                "themselves and started from another ladder's, so their agreement proves nothing; "
                "give more evaluations, or a start where f is not 0"
                + (", or f as a level" if self.question.target.level is None else ""),
            )
        barriers = tuple(barrier.total for barrier in warm.barriers)
        return Outcome(found, findings, legs, barriers)

    def _nothing(self, warm: Warm) -> Outcome:
        """No draw of the posterior saw f different from 0."""
        findings = Findings(np.zeros(self.question.target.components, bool))
        levelled = any(isinstance(leg.path, LevelPath) for leg in self.plan.legs)
        findings.warnings.append(
            "the climb found no state where the level is positive and f different from 0: the "
            "answer is not known to be 0; check that the level grows towards the event and is "
            "positive only where f is not 0, or give a start closer to it"
            if levelled
            else f"f was 0 at all {warm.explored:,} posterior draws: E f is not known to be 0; a "
            "ladder in f cannot find a rare support, give it as a level or start where f is not 0"
        )
        return Outcome(None, findings)


def _even(sweeps: int) -> int:
    """Even, for exchange alternates between two sets of edges."""
    return max(2, sweeps - sweeps % 2)


def root_starts(
    engine: Engine,
    question: Question,
    legs: Sequence[LegSpec],
    bases: Sequence[AbstractReference],
) -> list[ChainState]:
    """A state per ladder for every leg: the user's start, or a draw of the base it begins at."""
    roots = [getattr(leg.path, "start", None) for leg in legs]
    budget, found = question.max_evaluations, {}
    for root in roots:
        if root in found:
            continue
        if isinstance(root, Base):
            draw = partial(bases[root.index].sample, question.target, engine.next_random())

            def redraw(ladder: int, attempt: int, draw: Any = draw) -> np.ndarray:
                return draw(1)[0]

            found[root] = start_states(engine, draw(question.ladders), redraw, budget=budget)
        else:
            states = start_states(engine, question.starts, question.redraw, budget=budget)
            found |= {r: states for r in roots if not isinstance(r, Base)}
    return [found[root] for root in roots]


def component_legs(question: Question, paths: tuple[Any, ...]) -> tuple[LegSpec, ...]:
    """A leg for every component of f and every path."""
    components = range(question.target.components)
    return tuple(LegSpec(path, c) for c in components for path in paths)
