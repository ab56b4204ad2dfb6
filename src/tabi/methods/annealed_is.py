"""Target-aware annealed importance sampling (TAAnIS): Z, c+ and c- by particles from the prior.

    I = (mean w+ - mean w-) / mean w0,

where the weights are those of independent particles annealed from the prior to f+ pi, f- pi and
pi (see `tabi.engine.anneal`), times the prior mass where f+ (f-) is positive. Each mean is
unbiased however few rungs there are; with few, or moves that mix badly, a few particles carry all
the weight, and then the error bar cannot be believed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tabi.draws import LegSpec
from tabi.engine import Effort, Engine, OutOfBudget, Warm, WarmUp, choose_effort
from tabi.engine.anneal import Anneal
from tabi.estimators import average, inverse, product
from tabi.kernels import HMC, AbstractKernel, RandomWalk
from tabi.methods.answers import Answers
from tabi.methods.base import AbstractMethod, BudgetTooSmall, Question
from tabi.methods.checks import Findings, check
from tabi.methods.fixed_run import NOWHERE
from tabi.methods.fresh_rounds import fresh_rounds
from tabi.methods.independent import open_engine
from tabi.methods.ladder_run import root_starts
from tabi.methods.outcome import Outcome, unfinished
from tabi.methods.prior_runs import PATHS, TO_POSTERIOR, Constant, open_constants, require_prior
from tabi.methods.weights import distrust_heavy
from tabi.paths import Base, GeometricPath, TimesF
from tabi.references import Prior
from tabi.result import Result
from tabi.schedules import Adaptive, Barrier, PoweredFraction

TO_ABS_F = GeometricPath(Base(0), TimesF())
# Particles of one task: a few sizes, so that few programs are compiled.
TOGETHER = (64, 8, 1)
# Rungs for each squared unit of the rejection barrier B: the variance of log w falls as
# Lambda^2 / N, and at N = 2 Lambda^2 = 6.4 B^2 or so more rungs cost more than they save.
RUNGS_PER_BARRIER = 8.0
LEAST_RUNGS = 16
REMEDY = "use more rungs or a kernel that mixes better, or tabi.GTI()"


class AnnealedIS(AbstractMethod):
    """Annealed importance sampling from the prior, apart for numerator and denominator.

    The rungs and the kernel's scales come from a short ladder with exchange; independent particles
    then climb them once.

    Parameters
    ----------
    kernel
        How a particle moves at each rung.
    rungs
        How many; None lets their number follow the square of the barrier.
    effort
        Lengths of the warm-up; None scales them with the budget.
    """

    kernel: AbstractKernel = HMC()
    rungs: int | None = None
    effort: Effort | None = None

    def __check_init__(self) -> None:
        if self.rungs is not None and self.rungs < 3:
            raise ValueError(f"rungs must be at least 3, got {self.rungs}")

    @classmethod
    def as_published(
        cls, covariance: Any, *, rungs: int = 200, moves: int = 5, exponent: float = 5.0
    ) -> "PublishedAnnealedIS":
        """TAAnIS: E / ((N - 1) moves + N - 1) particles, half of them for each side.

        Parameters
        ----------
        covariance
            Of the Gaussian random-walk proposal: a number, a vector of variances or a matrix.
        rungs
            N, at the powered fractions ((i - 1) / (N - 1))^exponent.
        moves
            Metropolis steps at each rung.
        exponent
            5 in the paper.
        """
        return PublishedAnnealedIS(PoweredFraction(rungs, exponent), covariance, moves)

    def run(self, question: Question) -> Result:
        require_prior(question, "AnnealedIS")
        budget = question.max_evaluations
        legs = [LegSpec(TO_ABS_F, c) for c in range(question.target.components)]
        legs += [] if question.evidence else [LegSpec(TO_POSTERIOR)]
        with open_engine(question, (Prior(),), self.kernel, (TO_ABS_F, *PATHS)) as engine:
            effort = self.effort or choose_effort(
                budget, question.ladders * len(legs), self.kernel.patience(question.target.size)
            )
            warm_up = WarmUp(engine, legs, Adaptive(), True, (), budget, effort)
            try:
                warm = warm_up.run(root_starts(engine, question, legs, (Prior(),)))
            except OutOfBudget:
                return unfinished(question).result(question, engine, self.describe())
            if len(warm.reached) < len(legs):
                return _lost(question, legs, warm).result(question, engine, self.describe())
            climbs = self._climbs(warm, legs)
            return _measure(engine, question, climbs).result(question, engine, self.describe())

    def _climbs(self, warm: Warm, legs: Sequence[LegSpec]) -> "Climbs":
        assert warm.ladder is not None
        wanted = [round(RUNGS_PER_BARRIER * barrier.total**2) for barrier in warm.barriers]
        rungs = [self.rungs or max(LEAST_RUNGS, count) for count in wanted]
        climbs = {}
        reached = zip(legs, rungs, warm.barriers, warm.ladder.lanes, strict=True)
        for leg, count, barrier, lanes in reached:
            # All have room for the longest, so that one program serves them all.
            betas = np.ones(max(rungs))
            betas[:count] = barrier.place(count)
            name = None if leg.path == TO_POSTERIOR else leg.component
            climbs[name] = Climb(count, betas, _nearest(warm.params, barrier, lanes, betas))
        return climbs

    def describe(self) -> str:
        return f"AnnealedIS({type(self.kernel).__name__})"


class PublishedAnnealedIS(AbstractMethod):
    """TAAnIS with the paper's settings; made by `AnnealedIS.as_published`."""

    schedule: PoweredFraction
    covariance: Any
    moves: int

    def run(self, question: Question) -> Result:
        require_prior(question, "AnnealedIS")
        rungs, budget = self.schedule.count, question.max_evaluations
        charge = (rungs - 1) * self.moves + rungs - 1
        particles, least = budget // charge, 2 * question.target.components
        if particles < least:
            raise BudgetTooSmall(
                f"max_evaluations={budget:,} pays for {particles} particles of {charge:,} "
                f"evaluations each; {rungs} rungs need at least {least * charge:,}"
            )
        kernel = RandomWalk(covariance=self.covariance, moves=self.moves)
        with open_engine(question, (Prior(),), kernel, PATHS) as engine:
            betas = self.schedule.betas(NOWHERE, rungs)
            climb = Climb(rungs, betas, kernel.init(question.target.size, rungs))
            climbs = dict.fromkeys([None, *range(question.target.components)], climb)
            half = particles // 2
            counts = (0, particles) if question.evidence else (half, half)
            found = _population(engine, question, climbs, *counts)
            return found.outcome(engine, question).result(question, engine, self.describe())

    def describe(self) -> str:
        return f"AnnealedIS as published ({self.schedule.count} rungs, RandomWalk)"


@dataclass(frozen=True)
class Climb:
    """The rungs that particles pass and how they move there, [room, ...]."""

    rungs: int
    betas: np.ndarray
    params: Any

    def cost(self, kernel: AbstractKernel) -> int:
        """Evaluations of one particle on its way."""
        return (self.rungs - 2) * kernel.evaluations(self.params)


# The way up to pi (None) and to |f| pi of each component.
Climbs = dict[int | None, Climb]


@dataclass(frozen=True)
class Population:
    """Constants with the log weights of their particles, [particle]."""

    components: int
    constants: list[Constant]
    log_weights: list[np.ndarray]

    def answers(self, question: Question) -> Answers:
        """The signed sum over the parts of each component, over Z."""
        terms: list[list] = [[] for _ in range(self.components)]
        below = None if not question.evidence else []
        for constant, log_weights in zip(self.constants, self.log_weights, strict=True):
            factors = [average(log_weights[None], constant.stream), constant.mass]
            if constant.sign == 0:
                below = [inverse(factor) for factor in factors]
            elif below is not None:
                term = product(constant.sign, *factors, *below)
                terms[constant.leg.component].append(term)
        return Answers.stack([Answers.of_terms(own) for own in terms])

    def tries(self) -> dict[int | None, float]:
        """Prior draws that each start took, by component; None for Z."""
        found: dict[int | None, list[float]] = {}
        for constant in self.constants:
            name = constant.leg.component if constant.sign else None
            found.setdefault(name, []).append(np.exp(-constant.mass.log_ratio))
        # The parts of a component share its draws.
        return {name: max(own) / len(own) for name, own in found.items()}

    def outcome(self, engine: Engine, question: Question) -> Outcome:
        """The answers with what the weights say against them."""
        answers = self.answers(question)
        share = engine.tally.invalid / engine.tally.evaluations
        findings = check(answers, (), False, share)
        for constant, log_weights in zip(self.constants, self.log_weights, strict=True):
            everywhere = range(self.components)
            what = f"the annealed weights for {constant.name}"
            for component in [constant.leg.component] if constant.sign else everywhere:
                distrust_heavy(findings, component, log_weights, what, REMEDY)
        return Outcome(answers, findings)


def _lost(question: Question, legs: Sequence[LegSpec], warm: Warm) -> Outcome:
    """The prior draws never saw the support of some leg."""
    findings = Findings(np.zeros(question.target.components, bool))
    for place, leg in enumerate(legs):
        if place not in warm.reached:
            what = "the posterior" if leg.path == TO_POSTERIOR else f"f (component {leg.component})"
            findings.warnings.append(
                f"{what} was 0 at all {warm.explored:,} prior draws, so there is no estimate; "
                "use tabi.GTI(), which starts from the posterior"
            )
    return Outcome(None, findings)


def _measure(engine: Engine, question: Question, climbs: Climbs) -> Outcome:
    """A pilot sizes a fresh population, which gives the answer."""
    spend = (question.max_evaluations - engine.tally.evaluations) // 10
    for_z, for_f = _counts(engine, question, climbs, spend, {})
    if for_f < question.target.components or not (for_z or question.evidence):
        return unfinished(question)
    pilot = _population(engine, question, climbs, for_z, for_f)
    tries = pilot.tries()

    def measure(spend: int) -> Outcome:
        counts = _counts(engine, question, climbs, spend, tries)
        return _population(engine, question, climbs, *counts).outcome(engine, question)

    return fresh_rounds(engine, question, (spend, pilot.answers(question)), measure)


def _counts(
    engine: Engine,
    question: Question,
    climbs: Climbs,
    spend: int,
    tries: Mapping[int | None, float],
) -> tuple[int, int]:
    """Particles for Z and for f: half of the evaluations each."""
    kernel = engine.specification.kernel
    costs = {name: tries.get(name, 1) + climb.cost(kernel) for name, climb in climbs.items()}
    for_f = spend if question.evidence else spend // 2
    of_f = np.mean([cost for name, cost in costs.items() if name is not None])
    for_z = 0 if question.evidence else (spend - for_f) // costs[None]
    return int(for_z), int(for_f // of_f)


def _population(
    engine: Engine, question: Question, climbs: Climbs, for_z: int, for_f: int
) -> Population:
    """Draw particles from the prior and anneal them."""
    kernel = engine.specification.kernel
    of_f = sum(climb.cost(kernel) for name, climb in climbs.items() if name is not None)
    climbing = for_f // question.target.components * of_f
    climbing += for_z * climbs[None].cost(kernel) if for_z else 0
    most = question.max_evaluations - climbing
    constants = open_constants(engine, question, for_z, for_f, most)
    log_weights = []
    for constant in constants:
        climb = climbs[constant.leg.component if constant.sign else None]
        log_weights.append(_anneal(engine, constant, climb))
    return Population(question.target.components, constants, log_weights)


def _anneal(engine: Engine, constant: Constant, climb: Climb) -> np.ndarray:
    """log weights of a constant's particles, [particle]."""
    specification = engine.specification
    count = len(constant.starts.position)
    keys = engine.next_random().integers(0, 2**32, (count, 2), dtype=np.uint32)
    pieces, done = [], 0
    while done < count:
        size = next(s for s in TOGETHER if done + s <= count)
        pieces.append(slice(done, done + size))
        done += size
    tasks = [
        Anneal(
            keys[piece],
            jax.tree.map(lambda a, p=piece: a[p], constant.starts),
            climb.betas.astype(specification.target.dtype),
            jax.tree.map(lambda a: np.asarray(a, specification.target.dtype), climb.params),
            np.int32(climb.rungs),
            np.int32(specification.paths.index(constant.leg.path)),
            np.int32(constant.leg.component),
            np.int32(specification.kernel.evaluations(climb.params)),
            engine.bases,
        )
        for piece in pieces
    ]
    parts = engine.each("anneal", tasks)
    for task, part in zip(tasks, parts, strict=True):
        engine.judge_moves(part.invalid, part.where, task.cost)
    return np.concatenate([part.log_weight for part in parts]).astype(np.float64)


def _nearest(params: Any, barrier: Barrier, lanes: np.ndarray, betas: np.ndarray) -> Any:
    """Kernel parameters of the ladder's rung that is nearest to each beta, by the barrier."""
    levels = np.interp(betas, barrier.betas, barrier.cumulative)
    nearest = np.abs(levels[:, None] - barrier.cumulative[None]).argmin(1)
    return jax.tree.map(lambda a: a[lanes[nearest]], params)
