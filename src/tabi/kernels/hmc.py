"""Hamiltonian Monte Carlo in the scales of each rung."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
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
    rung_gradient,
)
from tabi.kernels.metric import AbstractMetric, default_metric
from tabi.kernels.tuning import FIRST_SCALE, rescale, stretch
from tabi.state import ChainState
from tabi.target import Target


class Integrator(eqx.Module):
    """A palindromic splitting scheme that starts and ends with a kick.

    Attributes
    ----------
    kicks
        Shares of the step of the kicks inside one step, the first and the last being equal.
    drifts
        Shares of the step of the drifts between them; each is one gradient.
    """

    kicks: tuple[float, ...]
    drifts: tuple[float, ...]

    @property
    def stages(self) -> int:
        """Gradients a step costs."""
        return len(self.drifts)


LEAPFROG = Integrator((0.5, 0.5), (1.0,))

# Blanes, Casas and Sanz-Serna (2014), the two-stage scheme tuned for the steps that HMC takes.
# On Gaussians in 2 to 50 dimensions one such step of length 1.7 (two gradients) is accepted
# with probability 0.95 and gives nearly independent draws; leapfrog needs 2 to 3 times the
# gradients for the same effective size.
_B = 0.21178
TWO_STAGE = Integrator((_B, 1 - 2 * _B, _B), (0.5, 0.5))


# Acceptance to keep where proposals leave the support: like a random walk's, shorter moves are
# accepted more often and get less far.
AT_EDGE = 0.5


class HMCParams(NamedTuple):
    """Longest steps [lane] and scales [lane, ...] of each rung.

    `stable` is the longest step that the energy error allows, `step_size` the longest that also
    keeps enough proposals inside the support.
    """

    step_size: Any
    stable: Any
    factor: Any


class HMC(AbstractKernel):
    """Hamiltonian trajectories of jittered length, a fixed number of gradients each.

    With y = L u (L the rung's scales), u has unit scales, momenta are N(0, I), and a trajectory
    of length about pi/2 forgets where it began. BlackJAX's HMC caches one log density per
    state, so every exchange and every change of rung would cost it a model call; this one
    carries `Scalars` and a gradient row for each, and takes all rungs' trajectories together.

    Parameters
    ----------
    trajectory
        Length of a trajectory in the rung's own scales.
    jitter
        Relative half-width of its random length.
    timid
        Share of the trajectories with steps of a tenth to a half of the usual. A step that suits
        the bulk of a density can be unstable in a tail of high curvature; a chain that gets there
        would stay for a thousand moves (seen on the banana, once in 100 runs).
    acceptance
        Below this mean acceptance probability a trajectory is cut into smaller steps.
    integrator
        `TWO_STAGE` or `LEAPFROG`.
    metric
        `DenseMetric()` or `DiagonalMetric()`; None chooses by dimension.
    most_steps
        Upper limit on the steps of one trajectory.
    """

    gradient_based: ClassVar[bool] = True

    trajectory: float = 1.7
    jitter: float = 0.15
    timid: float = 0.08
    acceptance: float = 0.8
    integrator: Integrator = TWO_STAGE
    metric: AbstractMetric | None = None
    most_steps: int = 64

    def __check_init__(self) -> None:
        if not self.trajectory > 0:
            raise ValueError(f"trajectory must be positive, got {self.trajectory}")
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must be in [0, 1), got {self.jitter}")
        if not 0 <= self.timid < 1:
            raise ValueError(f"timid must be in [0, 1), got {self.timid}")

    def init(self, dimension: int, lanes: int) -> HMCParams:
        factor = (self.metric or default_metric(dimension)).init(dimension)
        return HMCParams(
            np.full(lanes, self.trajectory),
            np.full(lanes, self.trajectory),
            np.repeat(FIRST_SCALE * factor[None], lanes, 0),
        )

    def _steps(self, params: HMCParams) -> int:
        # Lanes advance together: the number of steps serves the typical rung, and rungs that
        # need smaller steps make shorter trajectories. So do those whose support is narrow: a
        # long trajectory out of it is rejected, however many steps it has.
        wanted = np.median(self.trajectory / np.asarray(params.stable))
        return int(np.clip(np.ceil(wanted - 0.1), 1, self.most_steps))

    def evaluations(self, params: HMCParams) -> int:
        return self.integrator.stages * self._steps(params)

    def patience(self, dimension: int) -> float:
        return 1.0

    def step(
        self,
        key: jax.Array,
        state: ChainState,
        target: Target,
        log_density: LogDensity,
        params: HMCParams,
        evaluations: jax.Array,
    ) -> tuple[ChainState, Info]:
        metric = self.metric or default_metric(target.size)
        dtype = state.position.dtype
        # One call for all random numbers of the move: each call costs more than its numbers.
        numbers = jax.random.normal(key, (state.position.size + 2,), dtype)
        momentum, (jitter, height) = numbers[2:], jax.scipy.special.ndtr(numbers[:2])
        stages = self.integrator.stages
        whole = jnp.minimum(params.step_size, self.trajectory * stages / evaluations)
        size = (whole * self._length(jitter)).astype(dtype)
        drifts = jnp.asarray(self.integrator.drifts, dtype)
        first = self.integrator.kicks[0]
        # Between two steps the last kick and the next first one are taken together.
        kicks = jnp.asarray((*self.integrator.kicks[1:-1], 2 * first), dtype)

        def kick(state: ChainState, momentum: jax.Array, share: Any) -> jax.Array:
            force = metric.apply_transposed(params.factor, rung_gradient(state, log_density))
            return momentum + share * size * force

        def stage(i: jax.Array, carry: Any) -> Any:
            state, momentum, invalid, where = carry
            share = drifts[i % stages] * size
            position = state.position + share * metric.apply(params.factor, momentum)
            new = evaluate(target, position, with_gradient=True)
            bad = is_invalid(new)
            where = jnp.where(bad & (invalid == 0), position, where)
            last = i == evaluations - 1
            momentum = kick(new, momentum, jnp.where(last, first, kicks[i % stages]))
            return new, momentum, invalid + bad, where

        carry = (state, kick(state, momentum, first), jnp.zeros((), jnp.int32), state.position)
        new, end, invalid, where = jax.lax.fori_loop(0, evaluations, stage, carry)
        log_end = density_or_zero(new, log_density)
        outside = jnp.isneginf(log_end) & ~is_invalid(new) & jnp.all(jnp.isfinite(new.position))
        log_ratio = log_end - log_density(state.scalars)
        log_ratio += 0.5 * (momentum @ momentum - end @ end)
        log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        accept = jnp.minimum(1.0, jnp.exp(log_ratio))
        info = Info(accept, invalid, where, outside.astype(dtype))
        return choose(height < accept, new, state), info

    def _length(self, uniform: jax.Array) -> jax.Array:
        """Random factor of the step, from one uniform number."""
        usual = (uniform - self.timid) / (1 - self.timid)
        usual = 1 + self.jitter * (2 * usual - 1)
        if self.timid == 0:
            return usual
        return jnp.where(uniform < self.timid, 0.1 + 0.4 * uniform / self.timid, usual)

    def limit(self, params: HMCParams, evaluations: int) -> HMCParams:
        """Fewer steps of the same size: trajectories become shorter, not less accurate."""
        most = max(1, evaluations // self.integrator.stages)
        if self._steps(params) <= most:
            return params
        return params._replace(stable=np.maximum(params.stable, self.trajectory / most))

    def search(self, params: HMCParams, accept: np.ndarray) -> HMCParams:
        return stretch(params, rescale(accept, self.acceptance, order=2))

    def tune(
        self,
        params: HMCParams,
        accept: np.ndarray,
        outside: np.ndarray,
        positions: list[np.ndarray],
    ) -> HMCParams:
        metric = self.metric or default_metric(positions[0].shape[-1])
        factor = np.stack([metric.estimate(draws) for draws in positions])
        # The acceptance was seen at the step that `step` took, not at the longest stable one.
        used = np.minimum(params.step_size, self.trajectory / self._steps(params))
        inside = accept / np.maximum(1 - outside, 1e-3)
        stable = used * rescale(inside, self.acceptance, order=2)
        step = np.minimum(stable, used * rescale(accept, AT_EDGE, order=1))
        return HMCParams(
            np.minimum(step, self.trajectory), np.minimum(stable, self.trajectory), factor
        )
