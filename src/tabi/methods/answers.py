"""From the draws of a round to the answer for every component of f, with its error bar."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from tabi.draws import Draws, LegDraws
from tabi.estimators import (
    MBAR,
    AbstractEstimator,
    EstimationError,
    Term,
    combine,
    fraction,
    product,
)
from tabi.paths import FullPosterior, GeometricPath, Restricted, TimesF
from tabi.uncertainty import joint_error


@dataclass(frozen=True)
class Answers:
    """One number per component of f in every field, [component].

    `ess` is the effective number of draws behind it; `refusal` says why there is no number.
    """

    sign: np.ndarray
    log_abs: np.ndarray
    log_stderr: np.ndarray
    dof: np.ndarray
    condition: np.ndarray
    autocorrelation_time: np.ndarray
    ladder_ratio: np.ndarray
    reliable: np.ndarray
    one_signed: np.ndarray
    ess: np.ndarray
    refusal: np.ndarray

    @classmethod
    def stack(cls, parts: Sequence["Answers"]) -> "Answers":
        """All components from one-component answers."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    @classmethod
    def of_terms(cls, terms: Sequence[Term], least: float = 0.0) -> "Answers":
        """One component: the signed sum of terms, with its error, relatively at least `least`."""
        if not any(np.isfinite(term.log_value) for term in terms):
            return nothing_seen(1)
        answer = combine(terms)
        error = joint_error(answer.influences)
        log_stderr = np.hypot(max(error.stderr, least), answer.bias)
        one_signed = len({term.sign for term in terms if np.isfinite(term.log_value)}) == 1
        values = (answer.sign, answer.log_abs, log_stderr, error.dof, answer.condition)
        ladder_ratio, ess, reliable = error.ladder_ratio, error.ess, error.reliable
        if error.stderr < max(least, ROUNDING):
            # All weights are equal: their spread is rounding.
            ess = float(sum(influence.size for influence in answer.influences.values()))
            ladder_ratio, reliable = 0.0, True
        rest = (error.autocorrelation_time, ladder_ratio, reliable, one_signed, ess, "")
        return cls(*(np.asarray([value]) for value in (*values, *rest)))

    @property
    def log_error(self) -> np.ndarray:
        """log of the absolute standard error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.sign == 0, np.inf, self.log_abs + np.log(self.log_stderr))


# Relative errors below this are those of arithmetic.
ROUNDING = 1e-9

# How a method turns a round into answers for so many components.
Answer = Callable[[Draws, int], Answers]


def nothing_seen(components: int, refusal: str = "") -> Answers:
    """The answer where no draw ever saw f different from 0, or an estimator refused the draws."""

    def full(value: float | bool | str) -> np.ndarray:
        return np.full(components, value)

    return Answers(
        sign=full(0),
        log_abs=full(-np.inf),
        log_stderr=full(np.inf),
        dof=full(np.inf),
        condition=full(1.0),
        autocorrelation_time=full(np.nan),
        ladder_ratio=full(np.nan),
        reliable=full(False),
        one_signed=full(True),
        ess=full(0.0),
        refusal=full(refusal),
    )


def ladder_answers(
    draws: Draws, components: int, estimator: AbstractEstimator, posterior: Draws | None = None
) -> Answers:
    """Estimate every component from its legs.

    Legs of one component are combined with their signs; a leg that starts at the restricted
    posterior is multiplied by R, the share of posterior draws in its support.

    Parameters
    ----------
    draws
        A round with the legs.
    components
        Components of f.
    estimator
        Draws of a leg to its log ratio.
    posterior
        Another, independent round with the posterior draws for R; by default those of `draws`.
    """
    # An event that holds at all draws may fail between them: as often as once, say.
    least = 0.0 if draws.scalars.level is None else 1 / draws.scalars.log_pi.size
    parts = []
    for component in range(components):
        try:
            terms = _component_terms(draws, component, estimator, posterior)
            parts.append(Answers.of_terms(terms, least))
        except EstimationError as refusal:
            parts.append(nothing_seen(1, str(refusal)))
    return Answers.stack(parts)


def _component_terms(
    draws: Draws, component: int, estimator: AbstractEstimator, posterior: Draws | None
) -> list[Term]:
    terms = []
    for index, (spec, lanes) in enumerate(zip(draws.legs, draws.lanes, strict=True)):
        if spec.component == component and len(lanes) > 1:
            leg = draws.leg(index)
            signs, stream = _posterior_signs(draws, posterior, component, leg)
            terms += _leg_terms(leg, estimator, signs, stream)
    return terms


def _leg_terms(
    leg: LegDraws, estimator: AbstractEstimator, posterior_signs: np.ndarray, stream: str
) -> list[Term]:
    start = getattr(leg.path, "start", None)
    if isinstance(estimator, MBAR) and start == FullPosterior():
        # One sum over all draws: signs, zeros of f and the support edge are in the weights.
        seen = [sign for sign in (1, -1) if np.any(leg.scalars.sign_f == sign)]
        targets = [TimesF(sign).log(leg.scalars) for sign in seen]
        estimates = estimator.log_expectations(leg, targets)
        return [product(sign, e) for sign, e in zip(seen, estimates, strict=True)]
    seen = [sign for sign in (1, -1) if np.any(leg.scalars.sign_f[-1] == sign)]
    if _must_split(leg, estimator):
        return [_split(leg, sign, estimator, posterior_signs, stream) for sign in seen]
    factors = [estimator.estimate(leg)]
    if isinstance(start, Restricted):
        factors.append(fraction(_inside(posterior_signs, start.sign), stream))
    if len(seen) == 1:
        return [product(seen[0], *factors)]
    # |f| pi of a signed f: its two parts by their shares of the draws at the end.
    end = leg.scalars.sign_f[-1]
    return [product(sign, *factors, fraction(end == sign)) for sign in seen]


def _must_split(leg: LegDraws, estimator: AbstractEstimator) -> bool:
    """Whether a leg of |f| has two signs, or zeros at its start, that its estimator cannot see."""
    of_abs_f = isinstance(leg.path, GeometricPath) and leg.path.end == TimesF()
    return of_abs_f and not estimator.absorbs_zeros and np.ptp(leg.scalars.sign_f) > 0


def _split(
    leg: LegDraws, sign: int, estimator: AbstractEstimator, posterior_signs: np.ndarray, stream: str
) -> Term:
    """The part of one sign of a leg of |f|: "separating the sample into two" at every rung.

    Draws of the other sign, and those of a full posterior rung where f = 0, are rejected by a
    weight of zero; what is left samples the restricted densities, and R carries the rest.
    """
    mine = leg.scalars.sign_f == sign
    if not mine.any(axis=(1, 2)).all():
        # R is 0 as far as these draws know.
        return Term(sign, -np.inf, {"ladders": np.zeros(leg.shape[1:])})
    part = dataclasses.replace(leg, path=GeometricPath(Restricted(sign), TimesF(sign)))
    ratio = estimator.estimate(part, mine.astype(float))
    return product(sign, ratio, fraction(posterior_signs == sign, stream))


def _inside(signs: np.ndarray, sign: int) -> np.ndarray:
    return signs != 0 if sign == 0 else signs == sign


def _posterior_signs(
    draws: Draws, posterior: Draws | None, component: int, leg: LegDraws
) -> tuple[np.ndarray, str]:
    """Sign of f at draws of the full posterior, [ladder, draw], and the stream they belong to."""
    if not isinstance(getattr(leg.path, "start", None), Restricted):
        return leg.scalars.sign_f[0], "ladders"
    stream, source = ("ladders", draws) if posterior is None else ("posterior", posterior)
    for spec, lanes, betas in zip(source.legs, source.lanes, source.betas, strict=True):
        if getattr(spec.path, "start", None) == FullPosterior() and betas[0] == 0:
            return source.scalars.sign_f[lanes[0], :, :, component], stream
    raise ValueError("no lane of this round sampled the full posterior")


def pool(rounds: Sequence[tuple[int, Answers]]) -> Answers:
    """The mean of rounds weighted by their lengths, which were fixed before their draws.

    Checks are those of a typical round: the largest of many would fail by chance.
    """
    if len(rounds) == 1:
        return rounds[0][1]
    weights = np.asarray([sweeps for sweeps, _ in rounds], float)[:, None]
    weights = weights / weights.sum()
    parts = [a for _, a in rounds]
    sign, log_abs, log_error, dof = (
        np.stack([getattr(p, name) for p in parts])
        for name in ("sign", "log_abs", "log_error", "dof")
    )
    scale = log_abs.max(0)
    scale = np.where(np.isfinite(scale), scale, 0.0)
    value = (weights * sign * np.exp(log_abs - scale)).sum(0)
    variances = (weights * np.exp(np.minimum(log_error - scale, 300))) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        log_stderr = np.sqrt(variances.sum(0)) / np.abs(value)
        # Welch-Satterthwaite.
        dof = variances.sum(0) ** 2 / (variances**2 / dof).sum(0)
        last = parts[-1]
        return Answers(
            np.sign(value),
            scale + np.log(np.abs(value)),
            log_stderr,
            np.where(np.isfinite(dof), dof, last.dof),
            last.condition,
            last.autocorrelation_time,
            np.sqrt(np.mean([p.ladder_ratio**2 for p in parts], axis=0)),
            np.mean([p.reliable for p in parts], axis=0) > 0.5,
            np.all([p.one_signed for p in parts], axis=0),
            np.sum([p.ess for p in parts], axis=0),
            np.max(np.asarray([p.refusal for p in parts], object), axis=0).astype(str),
        )
