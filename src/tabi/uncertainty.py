"""From influence to standard error: one routine for every estimator.

An estimate's error is, to first order, the sum of its influence over all draws. Exchange couples
the rungs, so the influence is summed over rungs first; what remains is the variance of the sum
of L correlated series (the ladders), by batch means.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy  # its subpackages load on first use
from scipy.special import stdtrit

_MIN_BATCHES = 20
_MIN_TIMES = 10  # autocorrelation times a batch
_MAX_BATCHES = 128  # more would buy no precision that matters and cost bias


@dataclass(frozen=True)
class Uncertainty:
    """The error of an estimate.

    Attributes
    ----------
    stderr
        Standard error; NaN where the influence is not finite, inf where one draw is all.
    dof
        Degrees of freedom of `stderr`.
    batch_length
        Sweeps in a batch.
    batches
        Number of batches, over all ladders.
    autocorrelation_time
        Integrated autocorrelation time of the influence in sweeps; below 1 for antithetic draws.
    ladder_ratio
        Standard error that the spread between ladders implies, over `stderr`; about 1 where
        ladders are alike. Ladders that never mix also lengthen the batches (towards whole
        ladders, where this is 1 again): then `reliable` is false.
    reliable
        Whether at least 20 batches of at least 10 autocorrelation times fit.
    ess
        Draws over autocorrelation time.
    """

    stderr: float
    dof: int
    batch_length: int
    batches: int
    autocorrelation_time: float
    ladder_ratio: float
    reliable: bool
    ess: float


def standard_error(influence: np.ndarray) -> Uncertainty:
    """Batch means standard error of an estimate.

    With B the batches' sums (about zero, the pooled mean), m batches of b sweeps and T sweeps,

        stderr^2 = m / (m - 1) * sum B^2 * (L T) / (m b).

    Parameters
    ----------
    influence
        Influence summed over rungs (and over legs that share draws), [ladder, draw].

    Returns
    -------
    Uncertainty
        The standard error and how it came about.
    """
    ladders, length = influence.shape
    if not np.isfinite(influence).all():
        return Uncertainty(np.nan, 0, length, ladders, np.nan, np.nan, False, 0.0)
    if not influence.any():
        # An estimate no draw can change (a constant f): exact, not unknown.
        draws = ladders * length
        return Uncertainty(0.0, draws - 1, 1, draws, 1.0, 1.0, True, float(draws))
    time, reach = autocorrelation(influence)
    batch, reliable = _batch_length(ladders, length, reach)
    stderr, count = _batch_means(influence, batch)
    spread, _ = _batch_means(influence, length)
    ratio = spread / stderr if ladders > 1 and stderr > 0 else np.nan
    ess = ladders * length / time
    return Uncertainty(stderr, count - 1, batch, count, time, float(ratio), reliable, ess)


def joint_error(influences: Mapping[str, np.ndarray]) -> Uncertainty:
    """Standard error of an estimate made of independent streams of draws.

    Variances add, degrees of freedom by Welch and Satterthwaite; the other numbers are those of
    the stream that has most of the variance.

    Parameters
    ----------
    influences
        For each stream the influence summed over rungs, [ladder, draw].

    Returns
    -------
    Uncertainty
        The standard error and how it came about.
    """
    errors = [standard_error(influence) for influence in influences.values()]
    if len(errors) == 1:
        return errors[0]
    variances = np.asarray([error.stderr for error in errors]) ** 2
    total = variances.sum()
    if not 0 < total < np.inf:
        return errors[int(np.argmax(~np.isfinite(variances)))]
    largest = errors[int(np.argmax(variances))]
    dof = total**2 / np.sum(variances**2 / np.maximum([e.dof for e in errors], 1))
    # A stream with a hundredth of the variance may be known badly.
    matters = variances > 0.01 * total
    reliable = all(e.reliable for e, counts in zip(errors, matters, strict=True) if counts)
    return dataclasses.replace(
        largest, stderr=float(np.sqrt(total)), dof=int(dof), reliable=reliable
    )


def interval_factor(dof: int, level: float = 0.95) -> float:
    """Student's t quantile: half the width of a two-sided interval in standard errors."""
    return float(stdtrit(dof, 0.5 + level / 2)) if dof > 0 else np.inf


def autocorrelation(series: np.ndarray) -> tuple[float, float]:
    """Integrated autocorrelation time of [ladder, draw] series about zero, and its reach.

    tau = 1 + 2 sum_k rho_k by Geyer's (1992) initial monotone sequence of the autocovariances
    averaged over ladders; reach = 1 + 2 sum_k |rho_k| over the same lags. The two agree for
    positively correlated draws; for antithetic ones tau falls below one, and it is the reach
    that says how long a batch must be to see the cancellation.
    """
    length = series.shape[1]
    size = scipy.fft.next_fast_len(2 * length, real=True)
    power = np.mean(np.abs(np.fft.rfft(series, size, axis=1)) ** 2, axis=0)
    # Divided by T, not by T - k: the far lags, which are noise, are damped.
    covariance = np.fft.irfft(power, size)[:length]
    rho = covariance / covariance[0]
    pairs = rho[: length // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    window = int(negative[0]) if negative.size else len(pairs)
    monotone = np.minimum.accumulate(pairs[:window])
    time = max(2 * float(monotone.sum()) - 1, 1 / length)
    reach = 2 * float(np.abs(rho[: 2 * window]).sum()) - 1
    return time, max(reach, time, 1.0)


def _batch_length(ladders: int, length: int, reach: float) -> tuple[int, bool]:
    """Even batch length, and whether enough batches of it fit."""
    needed = max(_MIN_TIMES * reach, ladders * length / _MAX_BATCHES)
    longest = _even(length // -(-_MIN_BATCHES // ladders))
    batch = 2 * int(np.ceil(needed / 2))
    if batch <= longest:
        return batch, True
    if longest >= 2:
        # With fewer than 20 batches of 10 times the shortfall of length is the lesser evil.
        return longest, longest >= _MIN_TIMES * reach
    return (length if ladders > 1 else max(1, _even(length // 2))), False


def _even(number: int) -> int:
    return number // 2 * 2


def _batch_means(influence: np.ndarray, batch: int) -> tuple[float, int]:
    """Standard error of the sum from batches of this length, and their number."""
    ladders, length = influence.shape
    per_ladder = length // batch
    # Sweeps that fill no batch are left out of the batches, not out of the run: the variance
    # is scaled to all T sweeps.
    used = influence[:, : per_ladder * batch].reshape(ladders * per_ladder, batch)
    count = len(used)
    if count < 2:
        return np.inf, count
    squares = np.sum(used.sum(axis=1) ** 2) * length / (per_ladder * batch)
    return float(np.sqrt(squares * count / (count - 1))), count
