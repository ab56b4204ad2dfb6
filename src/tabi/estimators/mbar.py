"""MBAR: the multistate Bennett acceptance ratio over all rungs at once.

With phi_k the rungs' densities, c_k = exp(theta_k) their constants (theta_0 = 0), w_n the draws'
weights (summing to N_j in rung j) and

    D_n = sum_j N_j phi_j(x_n) / c_j,    W_nk = phi_k(x_n) / (c_k D_n),

the constants solve F_k = sum_n w_n W_nk - 1 = 0 (Shirts & Chodera 2008, eq. 11). They minimise
the convex sum_n w_n log D_n + sum_k N_k theta_k, so Newton's method with a line search on it
(and self-consistent steps where Newton's are wild) finds them. The influence functions follow
from the implicit function theorem with

    dF_k/dtheta_l = -(delta_kl - N_l O_kl),    O = W^T diag(w) W,
    dF_k/dw_n     = W_nk - mean of W_k over the rung of n

(the mean because weights are normalised within a rung).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tabi.draws import LegDraws
from tabi.estimators.bar import edge_root
from tabi.estimators.base import (
    AbstractEstimator,
    Estimate,
    EstimationError,
    centred,
    edge_log_ratios,
    rung_weights,
    thinned,
    thinning,
)

_CHUNK = 2**12  # draws; a chunk of the weight matrix stays in the cache
_START_DRAWS = 4000  # per rung: errors of a few hundredths, from which Newton takes few steps
_STEP_TOLERANCE = 1e-7  # in theta; the last step is taken, and leaves an error of its square
_LONGEST_STEP = 3.0  # beyond it the objective is not the parabola that Newton sees
_MAX_STEPS = 200
_MAX_HALVINGS = 30


class MBAR(AbstractEstimator):
    """All constants from all draws: the most precise of the ratio estimators on these draws.

    Log densities of -inf are zero weights; a support edge (f = 0 states at a full posterior
    rung) is thereby absorbed, with its error.
    """

    def estimate(self, draws: LegDraws, weights: np.ndarray | None = None) -> Estimate:
        """The last rung's constant over the first's; see `AbstractEstimator.estimate`."""
        solution = solve(draws, weights)
        last = np.zeros(draws.shape[0])
        last[-1] = 1.0
        influence = solution.influence(last)
        return Estimate(float(solution.log_constants[-1]), influence)

    def log_expectations(
        self,
        draws: LegDraws,
        log_targets: Sequence[np.ndarray],
        weights: np.ndarray | None = None,
    ) -> list[Estimate]:
        """Constants of densities that have no draws of their own, relative to the first rung.

        c_t = sum_n w_n q_t(x_n) / D_n; with f+ pi and f- pi on the ladder of |f| this is signed
        f without a second leg.

        Parameters
        ----------
        draws
            Draws of every rung of one leg.
        log_targets
            log q_t at every draw, each [rung, ladder, draw].
        weights
            Weight of every draw, as in `estimate`.

        Returns
        -------
        list of Estimate
            log c_t / c_0 for every target; -inf with zero influence for one that vanishes at
            every draw (an upper bound is then all there is to say).
        """
        solution = solve(draws, weights)
        return [solution.log_expectation(target) for target in log_targets]


@dataclass(frozen=True)
class Solution:
    """The solved equations.

    Attributes
    ----------
    log_constants
        theta, [rung].
    balance
        W, [rung, draw] with the draws of all rungs flattened.
    log_mixture
        log D_n, [draw].
    sample_weights
        w, [rung, ladder, draw], of mean one in each rung.
    moments
        O = W^T diag(w) W, [rung, rung].
    """

    log_constants: np.ndarray
    balance: np.ndarray
    log_mixture: np.ndarray
    sample_weights: np.ndarray
    moments: np.ndarray

    @property
    def draws_per_rung(self) -> int:
        """N_j, the same for every rung."""
        return self.sample_weights[0].size

    @property
    def overlap(self) -> np.ndarray:
        """O_ij N_j, rows summing to one: how much of rung i's weight sits on draws like j's."""
        return self.moments * self.draws_per_rung

    def log_expectation(self, log_target: np.ndarray) -> Estimate:
        """Give log sum_n w_n q(x_n) / D_n with its influence."""
        if log_target.shape != self.sample_weights.shape:
            raise ValueError(
                f"a log target has shape {log_target.shape}, the draws have shape "
                f"{self.sample_weights.shape}: give its log density at every draw"
            )
        share = (log_target.ravel() - self.log_mixture).reshape(log_target.shape)
        # A draw of weight zero must not set the scale (nor survive as 0 * inf).
        share[self.sample_weights == 0] = -np.inf
        peak = share.max()
        if peak == -np.inf:
            return Estimate(-np.inf, np.zeros(share.shape))
        np.exp(share - peak, out=share)
        total = np.sum(self.sample_weights * share)
        share /= total
        along = np.einsum("kn,n->k", self.balance, (self.sample_weights * share).ravel())
        # d log c_t / d theta_l = N_l O_tl moves the target along with the rungs' constants.
        influence = self.influence(along * self.draws_per_rung)
        influence += centred(share, self.sample_weights) * self.draws_per_rung
        return Estimate(float(peak + np.log(total)), influence)

    def influence(self, gradient: np.ndarray) -> np.ndarray:
        """Influence of a function of theta with this gradient, [rung, ladder, draw]."""
        system = np.eye(len(gradient)) - self.overlap
        adjoint = np.linalg.solve(system[1:, 1:].T, gradient[1:])
        raw = np.einsum("k,kn->n", adjoint, self.balance[1:]).reshape(self.sample_weights.shape)
        return centred(raw, self.sample_weights) * self.draws_per_rung


def solve(draws: LegDraws, weights: np.ndarray | None = None) -> Solution:
    """Solve the MBAR equations of one leg.

    Parameters
    ----------
    draws
        Draws of every rung of one leg.
    weights
        Weight of every draw, normalised within each rung.

    Returns
    -------
    Solution
        Constants, weight matrix and second moments.

    Raises
    ------
    EstimationError
        If the rungs do not overlap, or Newton's method does not converge.
    """
    normalised = rung_weights(draws, weights)
    theta = _start(draws, normalised)
    balance, log_scale = _scaled_densities(draws, theta, normalised.ravel() > 0)
    count = normalised[0].size
    shift, moments = _minimise(balance, np.ascontiguousarray(normalised).ravel(), count)
    # From here on `balance` becomes W itself, in place: it is the one large array.
    balance *= np.exp(-shift)[:, None]
    mixture = count * balance.sum(axis=0)
    balance /= mixture
    return Solution(theta + shift, balance, log_scale + np.log(mixture), normalised, moments)


def _start(draws: LegDraws, weights: np.ndarray) -> np.ndarray:
    """Take theta from BAR on the edges, on few draws where those know every edge."""
    every = thinning(draws, _START_DRAWS)
    try:
        return _chained_edges(thinned(draws, _START_DRAWS), weights[..., every])
    except EstimationError:
        return _chained_edges(draws, weights)


def _chained_edges(draws: LegDraws, weights: np.ndarray) -> np.ndarray:
    steps = [
        edge_root(*edge_log_ratios(draws, edge, weights), weights[edge], weights[edge + 1])
        for edge in range(draws.shape[0] - 1)
    ]
    return np.concatenate([[0.0], np.cumsum(steps)])


def _scaled_densities(
    draws: LegDraws, theta: np.ndarray, counted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """phi_k(x_n) exp(-theta_k - m_n), [rung, draw], and m_n, which makes the largest of them one.

    With theta near its solution these neither overflow nor lose what matters to underflow, so
    Newton's iterations need no further exponential.
    """
    matrix = np.empty((len(theta), draws.scalars.log_pi.size))
    for row, beta, constant in zip(matrix, draws.betas, theta, strict=True):
        row[:] = draws.log_density(beta).ravel()
        row -= constant
        row[~counted] = 0.0  # draws of weight zero may lie outside every rung's support
    log_scale = matrix.max(axis=0)
    if not np.isfinite(log_scale).all():
        raise ValueError("a draw has density zero, infinite or NaN at every rung")
    matrix -= log_scale
    return np.exp(matrix, out=matrix), log_scale


def _minimise(matrix: np.ndarray, weights: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Safeguarded Newton iterations; returns the shift of theta and O there."""
    shift = np.zeros(len(matrix))
    objective, sums, moments = _pass(matrix, weights, count, shift)
    for _ in range(_MAX_STEPS):
        step = _newton_step(sums, moments, count)
        if np.abs(step).max() < _STEP_TOLERANCE:
            return shift + step, moments
        if not np.abs(step).max() < _LONGEST_STEP:
            step = _self_consistent_step(sums)
        for _ in range(_MAX_HALVINGS):
            trial = _pass(matrix, weights, count, shift + step)
            # Rounding of the objective, a mean of logs, must not stop the last steps.
            if trial[0] <= objective + 1e-12 * (1 + abs(objective)):
                break
            step = step / 2
        shift = shift + step
        objective, sums, moments = trial
    raise EstimationError(
        f"MBAR did not converge in {_MAX_STEPS} steps (largest residual "
        f"{np.abs(sums - 1).max():.1e}): neighbouring rungs hardly overlap. Use more rungs, or "
        "closer ones where the exchange acceptance is lowest"
    )


def _newton_step(sums: np.ndarray, moments: np.ndarray, count: int) -> np.ndarray:
    """Newton's step on theta, zero at the first rung; infinite where the system is singular."""
    hessian = np.diag(sums) - count * moments
    try:
        step = np.linalg.solve(hessian[1:, 1:], (sums - 1)[1:])
    except np.linalg.LinAlgError:
        step = np.full(len(sums) - 1, np.inf)
    return np.concatenate([[0.0], step])


def _self_consistent_step(sums: np.ndarray) -> np.ndarray:
    """theta_k + log sum_n w_n W_nk: never uphill, slow, and safe where Newton's step is not."""
    step = np.log(np.maximum(sums, 1e-300))
    if np.abs(step).max() < _STEP_TOLERANCE:
        raise EstimationError(
            "MBAR: the equations hold but do not determine the constants: some rungs share no "
            "draws with the others. Use more rungs, or closer ones where the exchange acceptance "
            "is zero"
        )
    return step - step[0]


def _pass(
    matrix: np.ndarray, weights: np.ndarray, count: int, shift: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Objective per draw, sum_n w_n W_nk and O at a shifted theta, in one pass over the draws."""
    rungs, total = matrix.shape
    objective, sums, moments = 0.0, np.zeros(rungs), np.zeros((rungs, rungs))
    scale = np.exp(-shift)[:, None]
    for begin in range(0, total, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        w, balance = weights[part], matrix[:, part] * scale
        mixture = balance.sum(axis=0)
        objective += float(np.sum(w * np.log(mixture)))
        balance /= count * mixture
        weighted = balance * w
        sums += weighted.sum(axis=1)
        # Not BLAS: at this size its threads cost more than they give, and change the bits.
        moments += np.einsum("kn,ln->kl", weighted, balance)
    return objective / total + float(shift.mean()), sums, moments
