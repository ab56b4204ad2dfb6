"""Hit-and-run slice sampling: no gradients, no step size to get wrong."""

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
from tabi.kernels.metric import AbstractMetric, default_metric
from tabi.kernels.tuning import FIRST_SCALE, rescale, stretch
from tabi.state import ChainState
from tabi.target import Target


class SliceParams(NamedTuple):
    """Width of the first interval [lane] in the rung's scales [lane, ...]."""

    step_size: Any
    factor: Any


class Slice(AbstractKernel):
    """A slice update along a random direction, by shrinkage (Neal 2003).

    An interval of fixed width is laid at random around the state and shrunk towards it at
    every point outside the slice, `proposals` times at most; if none was inside, the state
    stays. Cutting the shrinkage short keeps detailed balance, for every sequence of shrinks is
    as likely from either end; and a fixed number of proposals lets all lanes advance together
    (BlackJAX's slice kernels step out and shrink as long as it takes, so a vectorised lane waits
    for the slowest while it goes on calling the model).

    Parameters
    ----------
    proposals
        Model evaluations of one update.
    acceptance
        The share of updates that should move; the width is adapted to it.
    metric
        Which scales to learn.
    """

    gradient_based: ClassVar[bool] = False

    proposals: int = 5
    acceptance: float = 0.9
    metric: AbstractMetric | None = None

    def __check_init__(self) -> None:
        if self.proposals < 1:
            raise ValueError(f"proposals must be at least 1, got {self.proposals}")

    def init(self, dimension: int, lanes: int) -> SliceParams:
        factor = (self.metric or default_metric(dimension)).init(dimension)
        # Along a random direction a Gaussian's slice is about 2 sqrt(2) scales long.
        return SliceParams(np.full(lanes, 4.0), np.repeat(FIRST_SCALE * factor[None], lanes, 0))

    def evaluations(self, params: SliceParams) -> int:
        return self.proposals

    def patience(self, dimension: int) -> float:
        return float(dimension)

    def step(
        self,
        key: jax.Array,
        state: ChainState,
        target: Target,
        log_density: LogDensity,
        params: SliceParams,
        evaluations: jax.Array,
    ) -> tuple[ChainState, Info]:
        metric = self.metric or default_metric(target.size)
        dtype = state.position.dtype
        # One call for all random numbers: each call costs more than its numbers.
        numbers = jax.random.normal(key, (state.position.size + 2 + self.proposals,), dtype)
        direction = numbers[2 + self.proposals :]
        place, shares = numbers[1], jax.scipy.special.ndtr(numbers[2 : 2 + self.proposals])
        direction = metric.apply(params.factor, direction / jnp.linalg.norm(direction))
        height = log_density(state.scalars) + jax.scipy.special.log_ndtr(numbers[0])
        lower = -params.step_size * jax.scipy.special.ndtr(place)
        upper = lower + params.step_size

        def shrink(i: jax.Array, carry: Any) -> Any:
            best, moved, lower, upper, invalid, where = carry
            offset = lower + shares[i] * (upper - lower)
            position = state.position + offset * direction
            new = evaluate(target, position, with_gradient=False)
            bad = is_invalid(new)
            where = jnp.where(bad & (invalid == 0), position, where)
            inside = density_or_zero(new, log_density) > height
            best = choose(inside & ~moved, new, best)
            lower = jnp.where(offset < 0, offset, lower)
            upper = jnp.where(offset < 0, upper, offset)
            return best, moved | inside, lower, upper, invalid + bad, where

        counts = (jnp.zeros((), jnp.int32), jnp.zeros_like(state.position))
        carry = (state, jnp.zeros((), bool), lower, upper, *counts)
        best, moved, _, _, invalid, where = jax.lax.fori_loop(0, evaluations, shrink, carry)
        return best, Info(moved.astype(dtype), invalid, where)

    def search(self, params: SliceParams, accept: np.ndarray) -> SliceParams:
        return stretch(params, rescale(accept, self.acceptance, order=1))

    def tune(
        self,
        params: SliceParams,
        accept: np.ndarray,
        outside: np.ndarray,
        positions: list[np.ndarray],
    ) -> SliceParams:
        metric = self.metric or default_metric(positions[0].shape[-1])
        factor = np.stack([metric.estimate(draws) for draws in positions])
        step = params.step_size * rescale(accept, self.acceptance, order=1)
        return SliceParams(step, factor)
