"""What the draws say about the sampler: pure functions from `Draws` to numbers.

R-hat and effective sample sizes are those of arviz-stats' array core
(`arviz_stats.base.array`: rank-normalised split R-hat and bulk ESS, Vehtari et al. 2021).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tabi.draws import Draws, LegDraws
from tabi.estimators.bar import BAR
from tabi.estimators.base import (
    AbstractEstimator,
    Estimate,
    EstimationError,
    edge_log_ratios,
    thinned,
)
from tabi.estimators.mbar import MBAR, solve
from tabi.estimators.quadrature import CorrectedTrapezoid, LeftRiemann, RightRiemann
from tabi.estimators.stepping_stones import ForwardSteppingStones
from tabi.paths import GeometricPath
from tabi.uncertainty import standard_error

# Of log ratios: estimates that differ by less are equal, whatever errors they claim.
ROUNDING = 1e-9

_DRAWS_PER_RUNG = 20_000  # diagnostics need two digits, not all draws
_DRAWS_PER_RUNG_RANKED = 5_000  # ranks are sorted: the dear part

_ESTIMATORS: dict[str, AbstractEstimator] = {
    "MBAR": MBAR(),
    "BAR": BAR(),
    "corrected trapezoid": CorrectedTrapezoid(),
    "forward stepping stones": ForwardSteppingStones(),
}


@dataclass(frozen=True)
class LegDiagnostics:
    """How well one leg was sampled.

    Attributes
    ----------
    component
        Component of f the leg belongs to.
    betas
        Positions of the rungs, [rung].
    acceptance
        Mean acceptance probability of the kernel, [rung].
    exchange
        Mean acceptance probability of a swap of independent draws of neighbours, [edge].
    overlap
        Neighbour entry of MBAR's overlap matrix, [edge]: 0.5 for two identical rungs alone;
        NaN where MBAR refuses.
    rhat
        Larger R-hat of U and of log pi, [rung].
    ess
        Smaller bulk effective sample size of U and of log pi, [rung]. Computed on at most some
        5,000 draws a rung, so larger values read as at most that.
    integrand
        Mean of U, [rung]; NaN where U is infinite at a draw.
    bounds
        Left and right Riemann sums in beta, which bracket the log ratio on a geometric path up
        to Monte Carlo error; NaN on other paths and where U is infinite.
    estimates
        Log ratio and standard error (discretisation error included) by estimator, on thinned
        draws: for comparison with each other.
    refusals
        Estimators that refused these draws, with the reason.
    round_trips
        How often a replica went from the first rung to the last and back; a lower bound where
        draws are thinned.
    """

    component: int
    betas: np.ndarray
    acceptance: np.ndarray
    exchange: np.ndarray
    overlap: np.ndarray
    rhat: np.ndarray
    ess: np.ndarray
    integrand: np.ndarray
    bounds: tuple[float, float]
    estimates: dict[str, tuple[float, float]]
    refusals: dict[str, str] = field(default_factory=dict)
    round_trips: int = 0


def leg_diagnostics(draws: Draws, leg: int) -> LegDiagnostics:
    """Diagnose one leg of a round.

    Parameters
    ----------
    draws
        The draws of a round.
    leg
        Index of the leg.

    Returns
    -------
    LegDiagnostics
        Its numbers, from at most some 20,000 draws a rung.
    """
    lanes = draws.lanes[leg]
    sample = thinned(draws.leg(leg), _DRAWS_PER_RUNG)
    rhat, ess = mixing(sample)
    estimates, refusals = compare_estimators(sample)
    return LegDiagnostics(
        component=draws.legs[leg].component,
        betas=np.asarray(draws.betas[leg]),
        acceptance=draws.accept[lanes].mean(axis=-1),
        exchange=exchange_rates(sample),
        overlap=neighbour_overlap(sample),
        rhat=rhat,
        ess=ess,
        integrand=mean_integrand(sample),
        bounds=riemann_bounds(sample),
        estimates=estimates,
        refusals=refusals,
        round_trips=count_round_trips(draws.replica[lanes[0]], draws.replica[lanes[-1]]),
    )


def agreement(estimates: Mapping[str, tuple[float, float]]) -> float:
    """Largest |z| between any two estimates (log ratio, standard error) of the same draws.

    Errors of estimators on the same draws are positively correlated, so the root of the sum of
    squares overstates the error of a difference: what this flags is flagged rightly.
    """
    values = list(estimates.values())
    scores = [
        abs(a - b) / np.hypot(error_a, error_b) if abs(a - b) > ROUNDING else 0.0
        for index, (a, error_a) in enumerate(values)
        for b, error_b in values[:index]
    ]
    return float(max(scores, default=0.0))


def compare_estimators(draws: LegDraws) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Every estimator's log ratio and error, and the refusals of those that cannot tell."""
    estimates, refusals = {}, {}
    for name, estimator in _ESTIMATORS.items():
        try:
            estimate = estimator.estimate(draws)
        except EstimationError as refusal:
            refusals[name] = str(refusal)
        else:
            estimates[name] = (estimate.log_ratio, _error(estimate))
    return estimates, refusals


def _error(estimate: Estimate) -> float:
    stderr = standard_error(estimate.influence.sum(axis=0)).stderr
    return float(np.hypot(stderr, estimate.bias))


def mean_integrand(draws: LegDraws) -> np.ndarray:
    """Mean of U, [rung]; NaN where it is infinite at a draw."""
    means = [u.mean() if np.isfinite(u).all() else np.nan for u in draws.dbeta]
    return np.array(means)


def exchange_rates(draws: LegDraws) -> np.ndarray:
    """Mean of min(1, exp(l(x) - l(y))) over x of a rung and y of the next, [edge].

    l is the log ratio of the upper to the lower density. The y are shifted by half a run within
    their ladder, so that pairs are (nearly) independent though exchange couples rungs.
    """
    rates, ones = [], np.ones(draws.shape)
    for edge in range(draws.shape[0] - 1):
        lower, upper = edge_log_ratios(draws, edge, ones)
        paired = np.roll(upper, draws.shape[2] // 2, axis=-1)
        rates.append(np.exp(np.minimum(lower - paired, 0.0)).mean())
    return np.array(rates)


def neighbour_overlap(draws: LegDraws) -> np.ndarray:
    """Entries (i, i+1) of MBAR's overlap matrix, [edge]; NaN where MBAR refuses."""
    try:
        return np.diagonal(solve(draws).overlap, offset=1).copy()
    except EstimationError:
        return np.full(draws.shape[0] - 1, np.nan)


def mixing(draws: LegDraws) -> tuple[np.ndarray, np.ndarray]:
    """Worst R-hat and smallest bulk ESS of U and log pi, each [rung]; NaN for constant ones."""
    # Imported here: it brings in half of SciPy, which `import tabi` should not wait for.
    from arviz_stats.base.array import array_stats

    sample = thinned(draws, _DRAWS_PER_RUNG_RANKED)
    rungs = sample.shape[0]
    if sample.shape[2] < 4:  # what a split chain needs at least
        return np.full(rungs, np.nan), np.full(rungs, np.nan)
    rhat, ess = np.full((2, rungs), np.nan), np.full((2, rungs), np.nan)
    for row, quantity in enumerate((sample.dbeta, sample.scalars.log_pi)):
        for rung, values in enumerate(map(_finite, quantity)):
            if np.ptp(values) > 0:
                rhat[row, rung] = array_stats.rhat(values)
                ess[row, rung] = array_stats.ess(values)
    return np.fmax(*rhat), np.fmin(*ess)


def _finite(values: np.ndarray) -> np.ndarray:
    """Infinities moved just beyond the finite values: all that ranks can see of them."""
    finite = values[np.isfinite(values)]
    if finite.size == values.size or finite.size == 0:
        return values if finite.size else np.zeros_like(values)
    return np.clip(values, finite.min() - 1, finite.max() + 1)


def riemann_bounds(draws: LegDraws) -> tuple[float, float]:
    """Left and right Riemann sums in beta: dE/dbeta = Var U >= 0 holds for geometric paths."""
    if not isinstance(draws.path, GeometricPath):
        return np.nan, np.nan
    try:
        left, right = LeftRiemann().estimate(draws), RightRiemann().estimate(draws)
    except EstimationError:
        return np.nan, np.nan
    return left.log_ratio, right.log_ratio


def count_round_trips(first: np.ndarray, last: np.ndarray) -> int:
    """Trips first rung -> last rung -> first rung over all replicas.

    Parameters
    ----------
    first, last
        Which replica of the ladder sat in the first and in the last rung, [ladder, draw].

    Returns
    -------
    int
        Number of completed round trips.
    """
    shape = (2, *first.shape)
    end, ladder, time = (axis.ravel() for axis in np.indices(shape))
    replica = np.stack([first, last]).ravel()
    # Every replica's visits to the two ends in order of time, one replica after the other.
    order = np.lexsort((time, replica, ladder))
    end, owner = end[order], np.stack([ladder, replica])[:, order]
    same = (owner[:, 1:] == owner[:, :-1]).all(axis=0)
    returns = np.append(False, same & (end[:-1] == 1) & (end[1:] == 0))
    starts = np.append(True, ~same)
    group = np.cumsum(starts) - 1
    trips = np.bincount(group, weights=returns)
    # A replica first seen at the last rung had not come from the first: its first return
    # completes no round trip.
    trips -= (end[starts] == 1) & (trips > 0)
    return int(trips.sum())
