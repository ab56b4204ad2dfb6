"""Standard thermodynamic integration (power posteriors): log Z by a ladder from the prior.

"Note that the GTI scheme contains TI as a special case if we set f(x) = l(y|x) and let the prior
g(x) play the role of pi(x)" (the paper, section 3). So this file holds no algorithm; zeros
of the likelihood are handled as zeros of f are, by the prior mass where it is positive.
"""

from typing import Any

from tabi.methods.base import AbstractMethod, Question
from tabi.methods.gti import FULL, GTI, NONZERO, PublishedGTI
from tabi.paths import AbstractPath
from tabi.result import Result


class PowerPosterior(AbstractMethod):
    """log Z = int_0^1 E_{g l^beta}[log l] dbeta, for `tabi.log_evidence`.

    Parameters
    ----------
    ladder
        The ladder from the prior to the posterior: a `tabi.GTI`, with all its options.
    """

    ladder: GTI | PublishedGTI = GTI()

    @classmethod
    def as_published(
        cls,
        covariance: Any,
        *,
        rungs: int = 200,
        exponent: float = 5.0,
        zeros: bool = False,
        prior_draws: int | None = None,
    ) -> "PowerPosterior":
        """Powered fractions, a fixed random walk, the trapezoid, one chain a rung.

        Parameters
        ----------
        covariance
            Of the random-walk proposal: a number, a vector of variances or a matrix.
        rungs, exponent
            The schedule.
        zeros
            Whether the likelihood vanishes on part of the prior, which then is restricted and its
            mass estimated from K prior draws.
        prior_draws
            K; None takes as many as each rung has.
        """
        path: AbstractPath = NONZERO if zeros else FULL
        return cls(
            GTI.as_published(
                covariance,
                rungs=rungs,
                exponent=exponent,
                path=path,
                posterior_draws=prior_draws,
            )
        )

    def run(self, question: Question) -> Result:
        if not question.evidence:
            raise ValueError(
                "PowerPosterior answers tabi.log_evidence(posterior), not expect(); for E f use "
                "tabi.GTI()"
            )
        return self.ladder.run(question)

    def describe(self) -> str:
        return f"PowerPosterior: {self.ladder.describe()}"
