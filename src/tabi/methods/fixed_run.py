"""One run with every setting given: no warm-up, nothing adapted, no draw left out.

Each chain begins at the user's start, which is its first evaluation, or, where a posterior chain
is run for the correction factor, at a state of it inside the chain's support. So a run of N rungs
with M draws each and K posterior draws costs exactly NM + K evaluations.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tabi.diagnostics import leg_diagnostics
from tabi.draws import Draws, LegSpec
from tabi.engine import Engine, Ladder, Round, Specification, Unit, start_states
from tabi.engine.climb import leg_support
from tabi.engine.single_precision import MOST_COMPARED
from tabi.estimators import Estimate, fraction
from tabi.kernels import AbstractKernel
from tabi.methods.answers import Answers, pool
from tabi.methods.base import BudgetTooSmall, Question
from tabi.methods.checks import Inspect, check
from tabi.methods.independent import BATCH
from tabi.methods.ladder_run import POSTERIOR
from tabi.methods.outcome import Outcome
from tabi.paths import Base, RestrictedBase
from tabi.references import AbstractReference
from tabi.result import Result
from tabi.runtime.workers import Workers
from tabi.schedules import AbstractSchedule, Barrier
from tabi.state import ChainState

# Draws held at once; longer runs are measured in blocks and pooled.
MOST_DRAWS = 20_000_000
# Draws a chain needs before batch means can say anything.
LEAST_DRAWS = 8
# Kept states of the posterior chain, where the chains of restricted densities may begin.
KEPT = 512

NOWHERE = Barrier(np.asarray([0.0, 1.0]), np.asarray([0.0, 1.0]))


@dataclass(frozen=True)
class FixedPlan:
    """What a method asks of a run with fixed settings.

    Attributes
    ----------
    legs
        Families of densities that get a chain a rung.
    alone
        A lane of posterior draws for R; run first and apart.
    schedule, kernel
        Where the rungs stand and how a state moves.
    posterior_draws
        K; None takes as many as each rung has.
    answer
        `(draws, components, posterior=...)` to answers.
    inspect
        Adds to the findings what the draws say against the answers.
    bases
        References that the legs start at; their chains begin at draws of them, and K is then the
        number of exact draws for the mass of each restricted one.
    """

    legs: tuple[LegSpec, ...]
    alone: tuple[LegSpec, ...]
    schedule: AbstractSchedule
    kernel: AbstractKernel
    posterior_draws: int | None
    answer: Any
    inspect: Inspect | None = None
    bases: tuple[AbstractReference, ...] = ()

    def ladder(self, legs: tuple[LegSpec, ...]) -> Ladder:
        """A chain for every rung of these legs, none coupled to another."""
        betas = self.schedule.betas(NOWHERE, self.schedule.rungs(NOWHERE))
        return Ladder.build(legs, [betas] * len(legs), exchange=False)


def run_fixed(plan: FixedPlan, question: Question, method: str) -> Result:
    """Carry out a plan with one chain a rung."""
    paths = dict.fromkeys([*(leg.path for leg in plan.legs), POSTERIOR])
    specification = Specification(question.target, plan.kernel, tuple(paths), slots=KEPT)
    with Workers(Unit(specification), question.executor) as workers:
        engine = Engine(
            specification,
            1,
            question.key,
            workers,
            lambda phase, done: question.notify(phase, done, question.max_evaluations, ""),
            question.fatal_invalid,
            plan.bases,
        )
        return _FixedRun(plan, question, engine).outcome().result(question, engine, method)


@dataclass
class _FixedRun:
    plan: FixedPlan
    question: Question
    engine: Engine

    def outcome(self) -> Outcome:
        posterior, ladder, states = self._begin()
        cost = self.engine.cost(ladder, self._params(ladder))
        left = self._budget() - self.engine.tally.evaluations
        found, draws = self._rounds(ladder, states, left // cost, posterior)
        legs = tuple(leg_diagnostics(draws, i) for i in range(len(ladder.legs)))
        share = self.engine.tally.invalid / self.engine.tally.evaluations
        findings = check(found, legs, False, share)
        if self.plan.inspect is not None:
            self.plan.inspect(draws, findings)
        return Outcome(found, findings, legs)

    def _begin(self) -> tuple[Any, Ladder, ChainState]:
        """What was drawn apart for R (or for masses), the chains, and where they begin."""
        ladder = self.plan.ladder(self.plan.legs)
        if self.plan.bases:
            return self._begin_at_references(ladder)
        if not self.plan.alone:
            self._refuse_less(LEAST_DRAWS * ladder.size)
            states = self._starts(ladder.size)
            self._check_support(ladder, states)
            return None, ladder, states
        self._refuse_less(LEAST_DRAWS * (ladder.size + 1))
        posterior = self._posterior_round(ladder)
        legs, starts = [], []
        for leg in self.plan.legs:
            begin = self._inside(leg, posterior)
            if begin is not None:
                legs.append(leg)
                starts.append(begin)
        if not legs:
            raise BudgetTooSmall(
                f"f was 0 at the last of {posterior.draws.sweeps:,} posterior draws, so "
                "the restricted chains have nowhere to begin; f of rare support needs a level"
            )
        ladder = self.plan.ladder(tuple(legs))
        owners = ladder.leg_of_lane
        states = jax.tree.map(lambda *a: np.stack([a[i] for i in owners])[None], *starts)
        return posterior.draws, ladder, states

    def _begin_at_references(
        self, ladder: Ladder
    ) -> tuple[dict[LegSpec, Estimate], Ladder, ChainState]:
        """A draw of its own for every chain, and the masses of the restricted references."""
        legs, budget = self.plan.legs, self._budget()
        rungs, masses, begin = ladder.size // len(legs), {}, []
        for leg in legs:
            start = getattr(leg.path, "start", None)
            assert isinstance(start, Base | RestrictedBase)
            restricted = isinstance(start, RestrictedBase)
            count = rungs
            if restricted:
                count = self.plan.posterior_draws or budget // (ladder.size + len(legs))
            self._refuse_less(count * len(legs) + LEAST_DRAWS * ladder.size)
            reference, target = self.plan.bases[start.index], self.question.target
            positions = reference.sample(target, self.engine.next_random(), count)
            states = self.engine.states("reference", positions, BATCH)
            inside = leg_support(leg, jax.tree.map(lambda a: a[None], states))[0]
            if not inside.any() or not (restricted or inside.all()):
                raise ValueError(
                    f"{inside.sum()} of {count} draws of the reference for {_named(leg)} lie where "
                    "that is positive; restrict it with as_published(..., restricted=True), or "
                    "give one that is nearer"
                )
            if restricted:
                masses[leg] = fraction(inside[None], f"reference for {_named(leg)}")
            chosen = np.resize(np.flatnonzero(inside), rungs)
            begin.append(jax.tree.map(lambda a, c=chosen: a[c], states))
        states = jax.tree.map(lambda *a: np.concatenate(a)[None], *begin)
        return masses, ladder, states

    def _posterior_round(self, ladder: Ladder) -> Round:
        budget = self._budget()
        count = self.plan.posterior_draws or budget // (ladder.size + 1)
        self._refuse_less(count + LEAST_DRAWS * ladder.size)
        lane = Ladder.build(self.plan.alone, [np.zeros(1)], exchange=False)
        params = self._params(lane)
        sweeps = (count - 1) // self.plan.kernel.evaluations(params)
        return self.engine.run("posterior", lane, params, self._starts(1), sweeps)

    def _inside(self, leg: LegSpec, posterior: Round) -> ChainState | None:
        """The latest kept posterior state at which the leg's densities are positive."""
        kept = jax.tree.map(lambda a: a[0, 0], posterior.snapshots)
        log_density = leg.path.log_density(kept.scalars.component(leg.component), 0.5)
        places = np.flatnonzero(np.isfinite(log_density))
        return jax.tree.map(lambda a: a[places[-1]], kept) if places.size else None

    def _rounds(
        self, ladder: Ladder, states: ChainState, sweeps: int, posterior: Any
    ) -> tuple[Answers, Draws]:
        params, found = self._params(ladder), []
        blocks = math.ceil(sweeps * ladder.size / MOST_DRAWS)
        edges = [round(sweeps * i / blocks) for i in range(blocks + 1)]
        round_ = None
        for length in np.diff(edges):
            round_ = self.engine.run("measure", ladder, params, states, int(length))
            states = round_.states
            answers = self.plan.answer(
                round_.draws, self.question.target.components, posterior=posterior
            )
            found.append((int(length), answers))
            if len(found) == 1:
                self.engine.check_precision(round_)
        assert round_ is not None
        return pool(found), round_.draws

    def _params(self, ladder: Ladder) -> Any:
        return self.plan.kernel.init(self.question.target.size, ladder.size)

    def _starts(self, chains: int) -> ChainState:
        """The user's start, evaluated once for every chain, [1, chain, ...]."""
        question = self.question
        redraw = question.redraw
        states = start_states(
            self.engine,
            np.repeat(question.starts[:1], chains, 0),
            None if redraw is None else lambda chain, attempt: redraw(0, attempt),
            each=True,
        )
        return jax.tree.map(lambda a: a[None], states)

    def _check_support(self, ladder: Ladder, states: ChainState) -> None:
        for leg, lanes, betas in zip(ladder.legs, ladder.lanes, ladder.betas, strict=True):
            one = states.scalars.component(leg.component)
            at = leg.path.log_density(jax.tree.map(lambda a, p=lanes: a[0, p], one), betas)
            if np.any(np.isneginf(at)):
                position = self.engine.describe(states.position[0, 0])
                raise ValueError(
                    f"f is 0 at the start {position}, where the chains of |f| times the posterior "
                    "begin; give an init where f is not 0"
                )

    def _budget(self) -> int:
        """Evaluations for draws: all but those that compare float32 with float64."""
        single = self.question.target.dtype == np.float32
        return self.question.max_evaluations - (MOST_COMPARED if single else 0)

    def _refuse_less(self, least: int) -> None:
        if self._budget() < least:
            raise BudgetTooSmall(
                f"max_evaluations={self.question.max_evaluations:,} is too small for these "
                f"settings, which need at least {least:,}"
            )


def _named(leg: LegSpec) -> str:
    """What a leg from a reference ends at, for messages."""
    sign = getattr(getattr(leg.path, "end", None), "sign", None)
    return "pi" if sign is None else f"f{'+' if sign > 0 else '-'} pi"
