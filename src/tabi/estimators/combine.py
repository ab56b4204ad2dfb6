"""From log ratios of legs to the answer: products of factors, signed sums of products.

Everything stays on the log scale, so answers that under- or overflow as numbers survive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tabi.estimators.base import Estimate, centred, log_mean_exp


@dataclass(frozen=True)
class Term:
    """One signed term of an answer, sign * exp(log_value).

    Attributes
    ----------
    sign
        -1, 0 or 1.
    log_value
        log of its absolute value.
    influences
        For each independent stream of draws d log_value / d w, summed over rungs, [ladder, draw].
    bias
        Size of its discretisation error, of log_value.
    """

    sign: int
    log_value: float
    influences: Mapping[str, np.ndarray]
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
    influences
        For each independent stream of draws d log_abs / d w, [ladder, draw]; NaN where the terms
        cancel exactly.
    bias
        Size of its discretisation error relative to its absolute value.
    condition
        Sum of the terms' absolute values over the absolute value of their sum.
    """

    sign: int
    log_abs: float
    influences: Mapping[str, np.ndarray]
    bias: float
    condition: float


def product(sign: int, *factors: Estimate) -> Term:
    """The term sign * prod exp(log_ratio).

    Influences of one stream are summed over rungs and factors here, before any variance is taken:
    exchange couples rungs, and legs may share draws.
    """
    if sign not in (-1, 0, 1):
        raise ValueError(f"sign is {sign}, expected -1, 0 or 1")
    if not factors:
        raise ValueError("a product needs at least one factor")
    log_value = float(sum(factor.log_ratio for factor in factors))
    influences = _sums([({f.stream: f.influence.sum(axis=0)}, 1.0) for f in factors])
    return Term(sign, log_value, influences, float(sum(abs(factor.bias) for factor in factors)))


def _sums(parts: Sequence[tuple[Mapping[str, np.ndarray], float]]) -> dict[str, np.ndarray]:
    """Weighted sums of influences, stream by stream."""
    totals: dict[str, np.ndarray] = {}
    for influences, weight in parts:
        for stream, influence in influences.items():
            totals[stream] = totals.get(stream, 0.0) + weight * influence
    return totals


def inverse(estimate: Estimate) -> Estimate:
    """1 / ratio: a factor that divides."""
    return Estimate(-estimate.log_ratio, -estimate.influence, estimate.bias, estimate.stream)


def average(log_values: np.ndarray, stream: str = "ladders") -> Estimate:
    """The log of the mean of positive numbers given by their logarithms.

    Parameters
    ----------
    log_values
        One for each draw, [ladder, draw]; -inf counts as 0.
    stream
        Name of the draws.

    Returns
    -------
    Estimate
        The log mean with influence [1, ladder, draw]; -inf with zero influence where all are 0.
    """
    log_values = np.asarray(log_values, np.float64)[None]
    ones = np.ones_like(log_values)
    log_mean = log_mean_exp(log_values, ones)
    if log_mean == -np.inf:
        return Estimate(-np.inf, np.zeros_like(log_values), stream=stream)
    return Estimate(log_mean, centred(np.exp(log_values - log_mean), ones), stream=stream)


def fraction(inside: np.ndarray, stream: str = "ladders") -> Estimate:
    """The correction factor log R of a leg: the log of the fraction of draws inside a set.

    Parameters
    ----------
    inside
        Whether each draw lies in the set, [ladder, draw].
    stream
        Name of the draws.

    Returns
    -------
    Estimate
        log R with influence [1, ladder, draw]; -inf with zero influence where no draw does.
    """
    return average(np.where(inside, 0.0, -np.inf), stream)


def combine(terms: Sequence[Term]) -> Answer:
    """The signed sum of the terms."""
    if not terms:
        raise ValueError("combine needs at least one term")
    quiet = _sums([(term.influences, 0.0) for term in terms])
    present = [term for term in terms if term.sign != 0 and term.log_value > -np.inf]
    if not present:
        return Answer(0, -np.inf, quiet, 0.0, 1.0)
    scale = max(term.log_value for term in present)
    sizes = [float(np.exp(term.log_value - scale)) for term in present]
    value = sum(term.sign * size for term, size in zip(present, sizes, strict=True))
    if value == 0:
        unknown = {stream: np.full_like(zeros, np.nan) for stream, zeros in quiet.items()}
        return Answer(0, -np.inf, unknown, np.inf, np.inf)
    shares = [t.sign * size / value for t, size in zip(present, sizes, strict=True)]
    influences = _sums([(t.influences, share) for t, share in zip(present, shares, strict=True)])
    bias = sum(abs(share) * t.bias for t, share in zip(present, shares, strict=True))
    log_abs = float(scale + np.log(abs(value)))
    return Answer(int(np.sign(value)), log_abs, influences, bias, sum(sizes) / abs(value))
