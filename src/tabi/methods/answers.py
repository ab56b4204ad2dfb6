"""From the draws of a round to the answer for every component of f, with its error bar."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from tabi.draws import Draws, LegDraws
from tabi.estimators import MBAR, AbstractEstimator, Term, combine, fraction, product
from tabi.paths import FullPosterior, Restricted, TimesF
from tabi.uncertainty import standard_error


@dataclass(frozen=True)
class Answers:
    """One number per component of f in every field, [component]."""

    sign: np.ndarray
    log_abs: np.ndarray
    log_stderr: np.ndarray
    dof: np.ndarray
    condition: np.ndarray
    autocorrelation_time: np.ndarray
    ladder_ratio: np.ndarray
    reliable: np.ndarray
    one_signed: np.ndarray

    @classmethod
    def stack(cls, parts: Sequence["Answers"]) -> "Answers":
        """All components from one-component answers."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))

    @property
    def log_error(self) -> np.ndarray:
        """log of the absolute standard error."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.sign == 0, np.inf, self.log_abs + np.log(self.log_stderr))


def answers(draws: Draws, estimator: AbstractEstimator, components: int) -> Answers:
    """Estimate every component.

    Legs of one component are combined with their signs; a leg that starts at the restricted
    posterior is multiplied by R, the share of posterior draws in its support.
    """
    return Answers.stack([_component(draws, estimator, c) for c in range(components)])


def _component(draws: Draws, estimator: AbstractEstimator, component: int) -> Answers:
    terms: list[Term] = []
    for index, (spec, lanes) in enumerate(zip(draws.legs, draws.lanes, strict=True)):
        if spec.component == component and len(lanes) > 1:
            terms += _leg_terms(draws, draws.leg(index), component, estimator)
    if not any(np.isfinite(term.log_value) for term in terms):
        return nothing_seen(1)
    answer = combine(terms)
    error = standard_error(answer.influence)
    log_stderr = np.hypot(error.stderr, answer.bias)
    one_signed = len({term.sign for term in terms}) == 1
    values = (answer.sign, answer.log_abs, log_stderr, error.dof, answer.condition)
    rest = (error.autocorrelation_time, error.ladder_ratio, error.reliable, one_signed)
    return Answers(*(np.asarray([value]) for value in (*values, *rest)))


def nothing_seen(components: int) -> Answers:
    """The answer where no draw ever saw f different from 0."""

    def full(value: float | bool) -> np.ndarray:
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
    )


def _leg_terms(
    draws: Draws, leg: LegDraws, component: int, estimator: AbstractEstimator
) -> list[Term]:
    start = getattr(leg.path, "start", None)
    seen = [sign for sign in (1, -1) if np.any(leg.scalars.sign_f[-1] == sign)]
    if isinstance(estimator, MBAR) and start == FullPosterior():
        # One sum over all draws: signs, zeros of f and the support edge are in the weights.
        targets = [TimesF(sign).log(leg.scalars) for sign in seen]
        estimates = estimator.log_expectations(leg, targets)
        return [product(sign, e) for sign, e in zip(seen, estimates, strict=True)]
    factors = [estimator.estimate(leg)]
    if isinstance(start, Restricted):
        factors.append(fraction(_inside(posterior_signs(draws, component), start.sign)))
    if len(seen) == 1:
        return [product(seen[0], *factors)]
    # |f| pi of a signed f: its two parts by their shares of the draws at the end.
    end = leg.scalars.sign_f[-1]
    return [product(sign, *factors, fraction(end == sign)) for sign in seen]


def _inside(signs: np.ndarray, sign: int) -> np.ndarray:
    return signs != 0 if sign == 0 else signs == sign


def posterior_signs(draws: Draws, component: int) -> np.ndarray:
    """Sign of f at the draws of the full posterior, [ladder, draw]."""
    for spec, lanes, betas in zip(draws.legs, draws.lanes, draws.betas, strict=True):
        if getattr(spec.path, "start", None) == FullPosterior() and betas[0] == 0:
            return draws.scalars.sign_f[lanes[0], :, :, component]
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
        )
