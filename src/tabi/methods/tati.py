"""Target-aware thermodynamic integration (TATI): Z, c+ and c- each from a reference of its own.

    I = (c+ - c-) / Z,    log c = int_0^1 E_{phi(.|beta)}[log target - log q] dbeta,

with phi(x|beta) = q(x)^(1-beta) target(x)^beta between a normalised reference q and f+ pi, f- pi or
pi. The nearer the references, the shorter the three ladders: fitted ones need two rungs or three.
Where a reference covers more than its target, the published form restricts it to where the target
is positive and multiplies by its mass there; MBAR and BAR carry that factor in their weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tabi.draws import Draws, LegSpec
from tabi.engine import (
    Effort,
    Engine,
    OutOfBudget,
    Specification,
    Tally,
    Unit,
    Warm,
    WarmUp,
    choose_effort,
)
from tabi.estimators import (
    MBAR,
    AbstractEstimator,
    Estimate,
    EstimationError,
    Trapezoid,
    inverse,
    product,
)
from tabi.kernels import HMC, AbstractKernel, RandomWalk
from tabi.methods.answers import Answers, nothing_seen
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.checks import Findings
from tabi.methods.fixed_run import FixedPlan, run_fixed
from tabi.methods.ladder_run import POSTERIOR, Plan, component_legs, root_starts, run_ladder
from tabi.methods.outcome import Outcome, unfinished
from tabi.paths import Base, FullPosterior, GeometricPath, RestrictedBase, TimesF
from tabi.references import AbstractFit, AbstractReference, FitMixture
from tabi.result import Result
from tabi.runtime.keys import stream
from tabi.runtime.workers import Workers
from tabi.schedules import AbstractSchedule, Adaptive, PoweredFraction

# Draws of a lane kept for the fit, and the most of the budget that finding them may take.
KEPT = 512
EXPLORING = 0.25


@dataclass(frozen=True)
class References:
    """A user's references for the three targets; those of signs that f has not may be None."""

    posterior: AbstractReference
    plus: AbstractReference | None = None
    minus: AbstractReference | None = None

    def __post_init__(self) -> None:
        for name in ("posterior", "plus", "minus"):
            given = getattr(self, name)
            if given is None and name != "posterior":
                continue
            if not isinstance(given, AbstractReference):
                raise TypeError(
                    f"{name} must be a reference such as tabi.references.Density(log_density, "
                    f"sample), got {given!r}"
                )
        if self.plus is None and self.minus is None:
            raise ValueError("give plus=, minus= or both: references for f+ and f- times pi")

    def targets(self) -> dict[tuple[int, int], AbstractReference]:
        """The references by component of f and sign; sign 0 is the posterior."""
        given = {(0, 0): self.posterior, (0, 1): self.plus, (0, -1): self.minus}
        return {target: one for target, one in given.items() if one is not None}


class TATI(AbstractMethod):
    """Ladders from a normalised reference to each of f+ pi, f- pi and pi.

    Parameters
    ----------
    references
        A `tabi.References(posterior, plus, minus)` for a scalar f; None fits them to the draws of a
        short ladder from the posterior to |f| pi.
    fit
        How they are fitted.
    schedule, kernel, estimator, exchange, effort
        As in `tabi.GTI`.
    """

    references: References | None = None
    fit: AbstractFit = FitMixture()
    schedule: AbstractSchedule = Adaptive()
    kernel: AbstractKernel = HMC()
    estimator: AbstractEstimator = MBAR()
    exchange: bool = True
    effort: Effort | None = None

    @classmethod
    def as_published(
        cls,
        references: References,
        covariance: Any,
        *,
        rungs: int = 200,
        exponent: float = 5.0,
        restricted: bool = False,
        reference_draws: int | None = None,
    ) -> "PublishedTATI":
        """Powered fractions, a fixed random walk, the trapezoid, one chain a rung.

        Parameters
        ----------
        references
            For pi and the parts of f that are not zero.
        covariance
            Of the random-walk proposal: a number, a vector of variances or a matrix.
        rungs, exponent
            The schedule of each of the two or three ladders.
        restricted
            Whether references cover more than their targets: each is then restricted, and its mass
            is the share of K exact draws inside.
        reference_draws
            K; None takes as many as each rung has.
        """
        schedule = PoweredFraction(rungs, exponent)
        return PublishedTATI(references, schedule, covariance, restricted, reference_draws)

    def run(self, question: Question) -> Result:
        _refuse_evidence(question)
        if self.references is not None:
            _refuse_vector(question)
            return self._measure(question, self.references.targets(), None)
        pilot = _Pilot(self, question)
        try:
            targets = pilot.fit()
        except OutOfBudget:
            targets = {}
        if not targets:
            return pilot.unfinished()
        # Other random numbers than the pilot's, whose draws the references know.
        fresh = replace(question, key=stream(question.key, 1))
        return self._measure(fresh, targets, pilot.engine.tally)

    def _measure(
        self,
        question: Question,
        targets: Mapping[tuple[int, int], AbstractReference],
        tally: Tally | None,
    ) -> Result:
        plan = Plan(
            legs=reference_legs(targets),
            alone=(),
            schedule=self.schedule,
            kernel=self.kernel,
            exchange=self.exchange,
            effort=self.effort,
            answer=partial(reference_answers, estimator=self.estimator),
            inspect=inspect_signs,
            bases=tuple(targets.values()),
        )
        return run_ladder(plan, question, self.describe(), tally)

    def describe(self) -> str:
        source = "given references" if self.references else type(self.fit).__name__
        parts = (self.schedule, self.kernel, self.estimator)
        return f"TATI({source}, {', '.join(type(part).__name__ for part in parts)})"


class PublishedTATI(AbstractMethod):
    """TATI with the paper's settings; made by `TATI.as_published`."""

    references: References
    schedule: AbstractSchedule
    covariance: Any
    restricted: bool
    reference_draws: int | None

    def run(self, question: Question) -> Result:
        _refuse_evidence(question)
        _refuse_vector(question)
        targets = self.references.targets()
        plan = FixedPlan(
            legs=reference_legs(targets, self.restricted),
            alone=(),
            schedule=self.schedule,
            kernel=RandomWalk(covariance=self.covariance, moves=1),
            posterior_draws=self.reference_draws,
            answer=partial(reference_answers, estimator=Trapezoid()),
            inspect=inspect_signs,
            bases=tuple(targets.values()),
        )
        return run_fixed(plan, question, self.describe())

    def describe(self) -> str:
        return f"TATI as published ({type(self.schedule).__name__}, RandomWalk, Trapezoid)"


def reference_legs(
    targets: Mapping[tuple[int, int], AbstractReference], restricted: bool = False
) -> tuple[LegSpec, ...]:
    """A leg from every reference to its target."""
    legs = []
    for index, (component, sign) in enumerate(targets):
        end = TimesF(sign) if sign else FullPosterior()
        start = RestrictedBase(index, end) if restricted else Base(index)
        legs.append(LegSpec(GeometricPath(start, end), component))
    return tuple(legs)


def reference_answers(
    draws: Draws,
    components: int,
    estimator: AbstractEstimator,
    posterior: Mapping[LegSpec, Estimate] | None = None,
) -> Answers:
    """(c+ - c-) / Z for every component, from a leg for each constant.

    Parameters
    ----------
    draws
        A round with the legs.
    components
        Components of f.
    estimator
        Draws of a leg to its log ratio.
    posterior
        Masses of restricted references, by leg, from draws apart.
    """
    constants: dict[tuple[int, int], list[Estimate]] = {}
    for index, leg in enumerate(draws.legs):
        sign = getattr(getattr(leg.path, "end", None), "sign", 0)
        try:
            factors = [estimator.estimate(draws.leg(index))]
        except EstimationError as refusal:
            return nothing_seen(components, str(refusal))
        factors += [posterior[leg]] if posterior else []
        constants[leg.component, sign] = factors
    z = [inverse(factor) for factor in constants.pop((0, 0))]
    terms: list[list] = [[] for _ in range(components)]
    for (component, sign), factors in constants.items():
        terms[component].append(product(sign, *factors, *z))
    return Answers.stack([Answers.of_terms(own) for own in terms])


def inspect_signs(draws: Draws, findings: Findings, warm: Warm | None = None) -> None:
    """Distrust a component whose f has a sign at some draws that no reference is for."""
    inside = np.isfinite(draws.scalars.log_pi)
    ends = ((leg.component, getattr(leg.path, "end", None)) for leg in draws.legs)
    given = {(component, getattr(end, "sign", 0)) for component, end in ends}
    for component in range(findings.trusted.size):
        for sign, word, name in ((1, "positive", "plus"), (-1, "negative", "minus")):
            missed = inside & (draws.scalars.sign_f[..., component] == sign)
            if (component, sign) not in given and missed.any():
                findings.distrust(
                    component,
                    f"f is {word} at some draws, and the answer lacks that part; give "
                    f"tabi.References(..., {name}=...), or TATI() more evaluations to find it",
                )


class _Pilot:
    """A short ladder from the posterior to |f| pi whose draws the references are fitted to."""

    def __init__(self, method: TATI, question: Question) -> None:
        self.method, self.question = method, question
        self.legs = component_legs(question, (POSTERIOR,))
        self.specification = Specification(
            question.target, method.kernel, (POSTERIOR,), length=KEPT, slots=KEPT
        )
        self.engine: Engine
        self.warm: Warm | None = None

    def fit(self) -> dict[tuple[int, int], AbstractReference]:
        """A reference for pi and for every sign that f was seen to have, by component."""
        question = self.question
        with Workers(Unit(self.specification), question.executor) as workers:
            self.engine = Engine(
                self.specification,
                question.ladders,
                question.key,
                workers,
                lambda phase, done: question.notify(phase, done, None, ""),
                question.fatal_invalid,
            )
            positions, signs = self._explore()
        if positions is None:
            return {}
        random = self.engine.next_random()
        targets: dict[tuple[int, int], AbstractReference] = {}
        for target, (lane, sign) in self._lanes().items():
            draws = positions[lane]
            if sign:
                own = signs[lane][:, target[0]] == sign
                if not own.any():
                    continue
                # A sign that was hardly seen is covered by the reference of both.
                draws = draws[own] if own.sum() > 2 * question.target.size else draws
            targets[target] = self.method.fit.fit(draws, random)
        return targets

    def _explore(self) -> Any:
        """Positions and signs of f at the draws of every lane, [draw, ...]."""
        engine, question = self.engine, self.question
        budget, kernel = question.max_evaluations, self.method.kernel
        effort = self.method.effort or choose_effort(
            budget, engine.ladders * len(self.legs), kernel.patience(question.target.size)
        )
        starts = root_starts(engine, question, self.legs, ())
        warm_up = WarmUp(engine, self.legs, Adaptive(), True, (), budget, effort)
        self.warm = warm = warm_up.run(starts)
        if warm.ladder is None:
            return None, None
        cost = engine.cost(warm.ladder, warm.params)
        sweeps = int(np.clip(EXPLORING * budget / cost, 8, KEPT))
        if engine.tally.evaluations + sweeps * cost > budget:
            raise OutOfBudget
        found = engine.run("explore", warm.ladder, warm.params, warm.states, sweeps).snapshots
        lanes = range(warm.ladder.size)
        positions = [_rows(found.position[:, lane]) for lane in lanes]
        return positions, [_rows(found.scalars.sign_f[:, lane]) for lane in lanes]

    def _lanes(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Which lane draws each target, and which sign of f its draws must have."""
        assert self.warm is not None and self.warm.ladder is not None
        ladder = self.warm.ladder
        lanes = {(0, 0): (int(ladder.lanes[0][0]), 0)}
        for leg, own in zip(ladder.legs, ladder.lanes, strict=True):
            for sign in (1, -1):
                lanes[leg.component, sign] = (int(own[-1]), sign)
        return lanes

    def unfinished(self) -> Result:
        """No estimate: the budget ended, or f was 0 at all draws."""
        if self.warm is None or self.warm.ladder is not None:
            outcome = unfinished(self.question)
        else:
            findings = Findings(np.zeros(self.question.target.components, bool))
            findings.warnings.append(
                f"f was 0 at all {self.warm.explored:,} posterior draws: E f is not known to be 0; "
                "give references for f+ pi and f- pi, or f as a level"
            )
            outcome = Outcome(None, findings)
        return outcome.result(self.question, self.engine, self.method.describe())


def _rows(snapshots: np.ndarray) -> np.ndarray:
    """[ladder, slot, coordinate] -> [draw, coordinate]."""
    return snapshots.reshape(-1, snapshots.shape[-1]).astype(np.float64)


def _refuse_vector(question: Question) -> None:
    if question.target.components != 1:
        raise ValueError(
            f"given references belong to one f, got f of shape {question.target.f_shape}; ask for "
            "one component at a time, or let TATI() fit them"
        )


def _refuse_evidence(question: Question) -> None:
    if question.evidence:
        raise ValueError(
            "TATI answers expect(f, posterior), where Z is one of its three constants; for the "
            "evidence use tabi.PowerPosterior()"
        )
