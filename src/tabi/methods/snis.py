"""Self-normalised importance sampling: E f = sum w f / sum w, w = pi / q.

With q = |f| pi, the paper's SNIS2, w = 1/|f|: the other extreme from plain posterior averages. Its
draws never see where f is 0, so it converges to I/R, with R the posterior mass of f != 0; and its
variance, E_pi[1/|f|], is infinite where |f| falls faster than the posterior rises, as in the
paper's Gaussian problem. With a user's own proposal, from which draws are independent, it is the
classical estimator.
"""

from functools import partial
from typing import Any

import numpy as np

from tabi.draws import Draws, LegSpec
from tabi.engine import Effort, Warm
from tabi.estimators import average, fraction, inverse, product
from tabi.kernels import HMC, AbstractKernel, RandomWalk
from tabi.methods.answers import Answers, nothing_seen
from tabi.methods.base import AbstractMethod, Question
from tabi.methods.checks import Findings, check
from tabi.methods.fixed_run import FixedPlan, run_fixed
from tabi.methods.fresh_rounds import fresh_rounds
from tabi.methods.independent import IndependentDraws, open_engine
from tabi.methods.ladder_run import Plan, component_legs, run_ladder
from tabi.methods.outcome import Outcome
from tabi.methods.weights import INFINITE_VARIANCE, distrust_heavy, tail_index
from tabi.paths import GeometricPath
from tabi.references import AbstractReference
from tabi.result import Result
from tabi.schedules import EndOnly

TO_F = GeometricPath()
WEIGHTS = "the weights 1/|f|"
REMEDY = "use tabi.BridgeSampling() or tabi.GTI()"


class SNIS(AbstractMethod):
    """Self-normalised importance sampling from |f| pi, or from a proposal of the user's.

    Parameters
    ----------
    proposal
        A reference (see `tabi.references`) that covers both the posterior and f times it; None
        samples |f| pi by MCMC.
    kernel, effort
        As in `tabi.GTI`, without a proposal.
    """

    proposal: AbstractReference | None = None
    kernel: AbstractKernel = HMC()
    effort: Effort | None = None

    @classmethod
    def as_published(cls, covariance: Any) -> "PublishedSNIS":
        """SNIS2: one random-walk chain of E draws from |f| pi.

        Parameters
        ----------
        covariance
            Of the proposal: a number, a vector of variances or a matrix.
        """
        return PublishedSNIS(covariance)

    def run(self, question: Question) -> Result:
        if self.proposal is not None:
            return _run_independent(self.proposal, question, self.describe())
        plan = Plan(
            legs=component_legs(question, (TO_F,)),
            alone=(),
            schedule=EndOnly(1.0),
            kernel=self.kernel,
            exchange=False,
            effort=self.effort,
            answer=end_answers,
            inspect=_inspect_with_posterior,
        )
        return run_ladder(plan, question, self.describe())

    def describe(self) -> str:
        if self.proposal is not None:
            return f"SNIS({type(self.proposal).__name__})"
        return f"SNIS(|f| x posterior, {type(self.kernel).__name__})"


class PublishedSNIS(AbstractMethod):
    """The paper's SNIS2; made by `SNIS.as_published`."""

    covariance: Any

    def run(self, question: Question) -> Result:
        plan = FixedPlan(
            legs=component_legs(question, (TO_F,)),
            alone=(),
            schedule=EndOnly(1.0),
            kernel=RandomWalk(covariance=self.covariance, moves=1),
            posterior_draws=None,
            answer=lambda draws, components, posterior=None: end_answers(draws, components),
            inspect=_inspect_published,
        )
        return run_fixed(plan, question, self.describe())

    def describe(self) -> str:
        return "SNIS as published (|f| x posterior, RandomWalk)"


def end_answers(draws: Draws, components: int) -> Answers:
    """sum sign(f) / sum 1/|f| over draws of |f| pi, for every component."""
    parts = [nothing_seen(1)] * components
    for index, leg in enumerate(draws.legs):
        scalars = draws.leg(index).rung(0)
        weight = inverse(average(-scalars.log_abs_f))
        seen = [s for s in (1, -1) if np.any(scalars.sign_f == s)]
        terms = [product(s, fraction(scalars.sign_f == s), weight) for s in seen]
        parts[leg.component] = Answers.of_terms(terms)
    return Answers.stack(parts)


def _inspect_weights(draws: Draws, findings: Findings) -> None:
    for index, leg in enumerate(draws.legs):
        log_weights = -draws.leg(index).rung(0).log_abs_f
        distrust_heavy(findings, leg.component, log_weights, WEIGHTS, REMEDY)


def _inspect_with_posterior(draws: Draws, findings: Findings, warm: Warm) -> None:
    """Look at the weights where the posterior itself is: there they are what was not sampled."""
    _inspect_weights(draws, findings)
    for leg in draws.legs:
        log_abs_f = warm.settled.scalars.component(leg.component).log_abs_f
        _distrust_zeros(findings, leg, float(np.mean(np.isneginf(log_abs_f))))
        k = tail_index(-log_abs_f)
        if k >= INFINITE_VARIANCE:
            # The weights' variance is E_pi[1/|f|] - ...: it must have a mean over the posterior.
            findings.distrust(
                leg.component,
                f"over the posterior {WEIGHTS} have Pareto k-hat {k:.2f}, so that their variance "
                f"over |f| times it cannot be trusted to be finite; {REMEDY}",
            )


def _distrust_zeros(findings: Findings, leg: LegSpec, share: float) -> None:
    if share > 0:
        findings.distrust(
            leg.component,
            f"f is 0 at {share:.1%} of the posterior draws, which draws of |f| times it never "
            f"see: this is an estimate of E f / {1 - share:.3g}; {REMEDY}",
        )


def _inspect_published(draws: Draws, findings: Findings) -> None:
    _inspect_weights(draws, findings)
    findings.distrust(
        slice(None),
        "draws of |f| times the posterior alone cannot show where f is 0 or whether their weights "
        f"1/|f| have a finite variance; {REMEDY}",
    )


def _run_independent(proposal: AbstractReference, question: Question, method: str) -> Result:
    """A pilot sizes a fresh round of independent draws, which gives the answer."""
    components = question.target.components
    with open_engine(question, (proposal,)) as engine:
        independent = IndependentDraws(engine, proposal)

        def measure(spend: int) -> Outcome:
            draws = independent.draw("measure", max(1, spend))
            found = _independent_answers(draws, components)
            findings = check(found, (), False, engine.tally.invalid / engine.tally.evaluations)
            _inspect_independent(draws, findings)
            return Outcome(found, findings)

        spend = max(1, question.max_evaluations // 10)
        pilot = _independent_answers(independent.draw("pilot", spend), components)
        outcome = fresh_rounds(engine, question, (spend, pilot), measure)
        return outcome.result(question, engine, method)


def _log_weights(draws: Any) -> np.ndarray:
    return draws.log_pi - draws.log_base[..., 0]


def _independent_answers(draws: Any, components: int) -> Answers:
    log_weights = _log_weights(draws)
    mean_weight = average(log_weights)
    if mean_weight.log_ratio == -np.inf:
        return nothing_seen(components)
    parts = []
    for component in range(components):
        one = draws.component(component)
        terms = []
        for s in (1, -1):
            mine = np.where(one.sign_f == s, log_weights + one.log_abs_f, -np.inf)
            terms += [product(s, average(mine), inverse(mean_weight))]
        parts.append(Answers.of_terms([t for t in terms if t.log_value > -np.inf]))
    return Answers.stack(parts)


def _inspect_independent(draws: Any, findings: Findings) -> None:
    log_weights = _log_weights(draws)
    remedy = "use a proposal with heavier tails or nearer the target, or tabi.GTI()"
    distrust = partial(distrust_heavy, findings, remedy=remedy)
    for component in range(findings.trusted.size):
        one = draws.component(component)
        distrust(component, log_weights, what="the weights of the posterior")
        distrust(component, log_weights + one.log_abs_f, what="the weights of |f| times it")
