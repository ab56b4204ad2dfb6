"""From log ratios of legs to the answer: products of factors, signed sums of products.

Everything stays on the log scale, so answers that under- or overflow as numbers survive.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tabi.estimators.base import Estimate, centred


@dataclass(frozen=True)
class Term:
    """One signed term of an answer, sign * exp(log_value).

    Attributes
    ----------
    sign
        -1, 0 or 1.
    log_value
        log of its absolute value.
    influence
        d log_value / d w, summed over rungs, [ladder, draw].
    bias
        Size of its discretisation error, of log_value.
    """

    sign: int
    log_value: float
    influence: np.ndarray
    bias: float = 0.0


@dataclass(frozen=True)
class Answer:
    """A sum of terms.

    Attributes
    ----------
    sign
        -1, 0 or 1.
    log_abs
        log of its absolute value.
    influence
        d log_abs / d w, [ladder, draw]; NaN where the terms cancel exactly.
    bias
        Size of its discretisation error relative to its absolute value.
    condition
        Sum of the terms' absolute values over the absolute value of their sum.
    """

    sign: int
    log_abs: float
    influence: np.ndarray
    bias: float
    condition: float


def product(sign: int, *factors: Estimate) -> Term:
    """The term sign * prod exp(log_ratio), from factors over the same ladders and draws.

    Influences are summed over rungs here, before any variance is taken: exchange couples rungs,
    and legs may share draws.
    """
    if sign not in (-1, 0, 1):
        raise ValueError(f"sign is {sign}, expected -1, 0 or 1")
    if not factors:
        raise ValueError("a product needs at least one factor")
    log_value = float(sum(factor.log_ratio for factor in factors))
    influence = np.sum([factor.influence.sum(axis=0) for factor in factors], axis=0)
    return Term(sign, log_value, influence, float(sum(abs(factor.bias) for factor in factors)))


def fraction(inside: np.ndarray) -> Estimate:
    """The correction factor log R of a leg: the log of the fraction of draws inside a set.

    Parameters
    ----------
    inside
        Whether each draw lies in the set, [ladder, draw].

    Returns
    -------
    Estimate
        log R with influence [1, ladder, draw]; -inf with zero influence where no draw does.
    """
    indicator = np.asarray(inside, dtype=np.float64)[None]
    share = indicator.mean()
    if share == 0:
        return Estimate(-np.inf, np.zeros_like(indicator))
    return Estimate(float(np.log(share)), centred(indicator / share, np.ones_like(indicator)))


def combine(terms: Sequence[Term]) -> Answer:
    """The signed sum of the terms."""
    if not terms:
        raise ValueError("combine needs at least one term")
    quiet = np.zeros_like(terms[0].influence)
    present = [term for term in terms if term.sign != 0 and term.log_value > -np.inf]
    if not present:
        return Answer(0, -np.inf, quiet, 0.0, 1.0)
    scale = max(term.log_value for term in present)
    sizes = [float(np.exp(term.log_value - scale)) for term in present]
    value = sum(term.sign * size for term, size in zip(present, sizes, strict=True))
    if value == 0:
        return Answer(0, -np.inf, np.full_like(quiet, np.nan), np.inf, np.inf)
    influence = quiet
    for term, size in zip(present, sizes, strict=True):
        influence = influence + term.sign * size / value * term.influence
    bias = sum(size * term.bias for term, size in zip(present, sizes, strict=True)) / abs(value)
    log_abs = float(scale + np.log(abs(value)))
    return Answer(int(np.sign(value)), log_abs, influence, bias, sum(sizes) / abs(value))
