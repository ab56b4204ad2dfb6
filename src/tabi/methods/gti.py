"""Generalized thermodynamic integration: a ladder of densities from pi to |f| pi.

The paper's tables, by the path between the rungs (M draws on each of N rungs, K posterior draws):

| f                     | path                                                       | E       |
|-----------------------|------------------------------------------------------------|---------|
| f > 0 or f < 0        | `GeometricPath()`                                          | NM      |
| f >= 0 with zeros     | `NONZERO`, one leg from pi 1(f != 0), times R              | NM + K  |
| generic               | `SIGNS`, two legs from pi 1(f+- > 0), times R+-            | 2NM + K |
| generic, accelerated  | `NONZERO`, its draws separated by the sign of f            | NM + K  |
| the same, posterior draws with f = 0 rejected at beta = 0 | `GeometricPath()`      | NM      |

Beyond the paper, where a level says where f is not 0: `LevelPath()`.
"""

from functools import partial
from typing import Any

from tabi.draws import LegSpec
from tabi.engine import Effort
from tabi.estimators import MBAR, AbstractEstimator, Trapezoid
from tabi.kernels import HMC, AbstractKernel, RandomWalk
from tabi.methods.answers import ladder_answers
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.fixed_run import FixedPlan, run_fixed
from tabi.methods.ladder_run import POSTERIOR, Plan, component_legs, run_ladder
from tabi.paths import AbstractPath, Base, GeometricPath, LevelPath, Restricted, TimesF
from tabi.result import Result
from tabi.schedules import AbstractSchedule, Adaptive, PoweredFraction
from tabi.target import One

FULL = GeometricPath()
# The paper's restricted legs: both signs apart, and |f| as one.
SIGNS = (GeometricPath(Restricted(1), TimesF(1)), GeometricPath(Restricted(-1), TimesF(-1)))
NONZERO = GeometricPath(Restricted(0), TimesF(0))


class GTI(AbstractMethod):
    """E f = exp(int_0^1 E_{phi(.|beta)}[U] dbeta), by a ladder from the posterior to |f| pi.

    The ladder is warmed up once (see `tabi.engine.warmup`), then measured in fresh rounds in
    which nothing adapts; value and standard error come from the last of them.

    Parameters
    ----------
    path
        The densities between, one path or several legs. None takes one geometric path whose first
        rung is the full posterior, with both signs of f on it, and with a level the level path.
        The paper's other forms are in this module's table.
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

    path: AbstractPath | tuple[AbstractPath, ...] | None = None
    schedule: AbstractSchedule = Adaptive()
    kernel: AbstractKernel = HMC()
    estimator: AbstractEstimator = MBAR()
    exchange: bool = True
    effort: Effort | None = None

    def __check_init__(self) -> None:
        _refuse_bases(self.path)

    @classmethod
    def as_published(
        cls,
        covariance: Any,
        *,
        rungs: int = 200,
        exponent: float = 5.0,
        path: AbstractPath | tuple[AbstractPath, ...] = FULL,
        posterior_draws: int | None = None,
    ) -> "PublishedGTI":
        """The paper's algorithm, setting by setting.

        Parameters
        ----------
        covariance
            Of the Gaussian random-walk proposal: a number, a vector of variances or a matrix.
        rungs
            N, at the powered fractions ((i - 1) / (N - 1))^exponent.
        exponent
            5 in the paper.
        path
            Which of the paper's forms, see this module's table.
        posterior_draws
            K, for R; None takes K = M, as for the paper's banana.

        Returns
        -------
        PublishedGTI
            One chain a rung, nothing adapted, no draw left out, no exchange, the trapezoid.
        """
        return PublishedGTI(path, PoweredFraction(rungs, exponent), covariance, posterior_draws)

    def run(self, question: Question) -> Result:
        path = default_path(question) if self.path is None else self.path
        paths = path if isinstance(path, tuple) else (path,)
        if question.target.level is None and any(isinstance(p, LevelPath) for p in paths):
            raise ValueError("a LevelPath needs a level: tabi.expect(f, posterior, level=...)")
        plan = Plan(
            component_legs(question, paths),
            posterior_lane(paths),
            self.schedule,
            self.kernel,
            self.exchange,
            self.effort,
            partial(ladder_answers, estimator=self.estimator),
        )
        return run_ladder(plan, question, self.describe())

    def describe(self) -> str:
        parts = (self.schedule, self.kernel, self.estimator)
        names = ", ".join(type(part).__name__ for part in parts)
        return f"GTI({names}{'' if self.exchange else ', no exchange'})"


class PublishedGTI(AbstractMethod):
    """GTI with the paper's settings; made by `GTI.as_published`."""

    path: AbstractPath | tuple[AbstractPath, ...]
    schedule: AbstractSchedule
    covariance: Any
    posterior_draws: int | None

    def __check_init__(self) -> None:
        _refuse_bases(self.path)

    def run(self, question: Question) -> Result:
        if question.target.level is not None:
            raise ValueError("the paper's GTI has no path for a level; use method=tabi.GTI()")
        paths = self.path if isinstance(self.path, tuple) else (self.path,)
        plan = FixedPlan(
            component_legs(question, paths),
            posterior_lane(paths),
            self.schedule,
            RandomWalk(covariance=self.covariance, moves=1),
            self.posterior_draws,
            partial(ladder_answers, estimator=Trapezoid()),
        )
        return run_fixed(plan, question, self.describe())

    def describe(self) -> str:
        return f"GTI as published ({type(self.schedule).__name__}, RandomWalk, Trapezoid)"


def default_path(question: Question) -> AbstractPath:
    """The geometric path; with a level the level path, sharp only at its end where |f| is 1."""
    if question.target.level is None:
        return FULL
    return LevelPath(sharp_at=1.0) if isinstance(question.target.f, One) else LevelPath()


def posterior_lane(paths: tuple[AbstractPath, ...]) -> tuple[LegSpec, ...]:
    """A lane of posterior draws for R, where no leg starts at the full posterior."""
    restricted = any(isinstance(getattr(path, "start", None), Restricted) for path in paths)
    return (LegSpec(POSTERIOR),) if restricted else ()


def _refuse_bases(path: AbstractPath | tuple[AbstractPath, ...] | None) -> None:
    for one in path if isinstance(path, tuple) else (path,):
        if isinstance(getattr(one, "start", None), Base):
            raise ValueError(
                "a path from a prior or a reference gives a constant, not E f, which GTI needs; "
                "start it at the posterior, FullPosterior() or Restricted(sign)"
            )
