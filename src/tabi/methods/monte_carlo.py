"""Plain posterior averages (the paper's MCMC baseline, SNIS1): E f = mean of f over draws of pi."""

from typing import Any

import numpy as np

from tabi.draws import Draws, LegSpec
from tabi.engine import Effort
from tabi.estimators import Term, average, product
from tabi.kernels import HMC, AbstractKernel, RandomWalk
from tabi.methods.answers import Answers
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.checks import Findings
from tabi.methods.fixed_run import FixedPlan, run_fixed
from tabi.methods.ladder_run import POSTERIOR, Plan, run_ladder
from tabi.methods.weights import distrust_heavy
from tabi.result import Result
from tabi.schedules import Adaptive, EndOnly

REMEDY = "f has its weight where the posterior rarely goes: use tabi.GTI()"


class MonteCarlo(AbstractMethod):
    """The average of f over posterior draws, with a true error bar or the reason why there is none.

    Right for f that varies little over the posterior (moments). Where a few draws make up the
    average, or its variance looks infinite, it says so and is not converged.

    Parameters
    ----------
    kernel
        How a state moves.
    chains
        Chains of each ladder; they share its warm-up.
    effort
        Lengths of the warm-up; None scales them with the budget.
    """

    kernel: AbstractKernel = HMC()
    chains: int = 4
    effort: Effort | None = None

    @classmethod
    def as_published(cls, covariance: Any) -> "PublishedMonteCarlo":
        """One random-walk chain of E draws from the user's start, none left out.

        Parameters
        ----------
        covariance
            Of the proposal: a number, a vector of variances or a matrix.
        """
        return PublishedMonteCarlo(covariance)

    def run(self, question: Question) -> Result:
        lanes = (LegSpec(POSTERIOR),) * self.chains
        plan = Plan(
            legs=(),
            alone=lanes,
            schedule=Adaptive(),
            kernel=self.kernel,
            exchange=False,
            effort=self.effort,
            answer=average_answers,
            inspect=lambda draws, findings, _: inspect_average(draws, findings),
        )
        return run_ladder(plan, question, self.describe())

    def describe(self) -> str:
        return f"MonteCarlo({type(self.kernel).__name__})"


class PublishedMonteCarlo(AbstractMethod):
    """The paper's MCMC baseline; made by `MonteCarlo.as_published`."""

    covariance: Any

    def run(self, question: Question) -> Result:
        kernel = RandomWalk(covariance=self.covariance, moves=1)
        plan = FixedPlan(
            legs=(LegSpec(POSTERIOR),),
            alone=(),
            schedule=EndOnly(0.0),
            kernel=kernel,
            posterior_draws=None,
            answer=lambda draws, components, posterior=None: average_answers(draws, components),
            inspect=inspect_average,
        )
        return run_fixed(plan, question, self.describe())

    def describe(self) -> str:
        return "MonteCarlo as published (RandomWalk)"


def average_answers(draws: Draws, components: int) -> Answers:
    """The average of every component of f over all chains, which are independent."""
    parts = []
    for component in range(components):
        log_abs, sign = _values(draws, component)
        terms: list[Term] = []
        for s in (1, -1):
            mine = np.where(sign == s, log_abs, -np.inf)
            terms += [product(s, average(mine))] if np.any(np.isfinite(mine)) else []
        parts.append(Answers.of_terms(terms))
    return Answers.stack(parts)


def inspect_average(draws: Draws, findings: Findings) -> None:
    """Look at the tail of |f| over the draws."""
    for component in range(findings.trusted.size):
        log_abs, sign = _values(draws, component)
        distrust_heavy(findings, component, log_abs[sign != 0], "the values of |f|", REMEDY)


def _values(draws: Draws, component: int) -> tuple[np.ndarray, np.ndarray]:
    """log|f| and its sign, [chain, draw]."""
    length = draws.scalars.log_pi.shape[-1]
    one = draws.scalars.component(component)
    return one.log_abs_f.reshape(-1, length), one.sign_f.reshape(-1, length)
