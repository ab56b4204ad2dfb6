"""Gaussian random-walk Metropolis."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tabi.kernels.base import (
    AbstractKernel,
    Info,
    LogDensity,
    choose,
    density_or_zero,
    evaluate,
    is_invalid,
)
from tabi.kernels.metric import AbstractMetric, DenseMetric, default_metric, factor_of
from tabi.kernels.tuning import FIRST_SCALE, rescale, stretch
from tabi.state import ChainState
from tabi.target import Target


class RandomWalkParams(NamedTuple):
    """Step size [lane] times the rung's scales [lane, ...]."""

    step_size: Any
    factor: Any


class RandomWalk(AbstractKernel):
    """x' = x + step L xi, xi ~ N(0, I), accepted with min(1, phi(x')/phi(x)).

    Parameters
    ----------
    scale
        A fixed standard deviation for every coordinate.
    covariance
        A fixed proposal covariance: a number, a vector of variances or a matrix.
    moves
        Proposals in one move, between two exchanges.
    acceptance
        What an adapted step size aims for; by default 0.44 in one dimension falling to 0.25.
    metric
        Which scales to learn when neither `scale` nor `covariance` is given.
    """

    gradient_based: ClassVar[bool] = False

    scale: float | None = None
    covariance: Any = None
    moves: int = 4
    acceptance: float | None = None
    metric: AbstractMetric | None = None

    def __check_init__(self) -> None:
        if self.scale is not None and self.covariance is not None:
            raise ValueError("give scale (a standard deviation) or covariance, not both")
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")
        if self.moves < 1:
            raise ValueError(f"moves must be at least 1, got {self.moves}")

    @property
    def fixed(self) -> bool:
        """Whether the proposal is the user's and never tuned."""
        return self.scale is not None or self.covariance is not None

    def _metric(self, dimension: int) -> AbstractMetric:
        return DenseMetric() if self.fixed else self.metric or default_metric(dimension)

    def init(self, dimension: int, lanes: int) -> RandomWalkParams:
        if self.fixed:
            covariance = self.covariance if self.scale is None else self.scale**2
            step, factor = 1.0, factor_of(covariance, dimension)
        else:
            # Roberts, Gelman and Gilks (1997): 2.38 / sqrt(D) times the target's scales.
            step = 2.38 / np.sqrt(dimension)
            factor = FIRST_SCALE * self._metric(dimension).init(dimension)
        return RandomWalkParams(np.full(lanes, step), np.repeat(factor[None], lanes, 0))

    def evaluations(self, params: RandomWalkParams) -> int:
        return self.moves

    def patience(self, dimension: int) -> float:
        return 5.0 * dimension / self.moves

    def step(
        self,
        key: jax.Array,
        state: ChainState,
        target: Target,
        log_density: LogDensity,
        params: RandomWalkParams,
        evaluations: jax.Array,
    ) -> tuple[ChainState, Info]:
        metric = self._metric(target.size)

        # One call for all random numbers: each call costs more than its numbers.
        shape = (self.moves, state.position.size + 1)
        numbers = jax.random.normal(key, shape, state.position.dtype)

        def move(i: jax.Array, carry: Any) -> Any:
            state, info = carry
            noise, height = numbers[i, 1:], jax.scipy.special.ndtr(numbers[i, 0])
            proposal = state.position + params.step_size * metric.apply(params.factor, noise)
            new = evaluate(target, proposal, with_gradient=False)
            log_ratio = density_or_zero(new, log_density) - log_density(state.scalars)
            accept = jnp.minimum(1.0, jnp.exp(log_ratio))
            invalid = is_invalid(new)
            where = jnp.where(invalid & (info.invalid == 0), proposal, info.where)
            info = Info(info.accept + accept, info.invalid + invalid, where)
            return choose(height < accept, new, state), info

        zero = jnp.zeros((), state.position.dtype)
        start = Info(zero, jnp.zeros((), jnp.int32), jnp.zeros_like(state.position))
        state, info = jax.lax.fori_loop(0, evaluations, move, (state, start))
        return state, info._replace(accept=info.accept / evaluations)

    def search(self, params: RandomWalkParams, accept: np.ndarray) -> RandomWalkParams:
        if self.fixed:
            return params
        return stretch(params, rescale(accept, self._wanted(params), order=1))

    def tune(
        self,
        params: RandomWalkParams,
        accept: np.ndarray,
        outside: np.ndarray,
        positions: list[np.ndarray],
    ) -> RandomWalkParams:
        if self.fixed:
            return params
        metric = self._metric(positions[0].shape[-1])
        factor = np.stack([metric.estimate(draws) for draws in positions])
        step = params.step_size * rescale(accept, self._wanted(params), order=1)
        return RandomWalkParams(step, factor)

    def _wanted(self, params: RandomWalkParams) -> float:
        size = params.factor.shape[1]
        return self.acceptance or (0.44 if size == 1 else 0.25 + 0.1 / size)
