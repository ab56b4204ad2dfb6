"""What a kernel is: one Markov move at a rung, and how its parameters are tuned."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tabi.state import ChainState, Scalars
from tabi.target import Target

LogDensity = Callable[[Scalars], jax.Array]


class Info(NamedTuple):
    """What a move reports of itself.

    Attributes
    ----------
    accept
        Acceptance probability, averaged over the proposals of the move.
    invalid
        How many proposals had a NaN density or f at a finite position.
    where
        The first such position (zeros when there was none).
    outside
        Share of proposals that fell outside the rung's support, where a kernel tells them apart:
        their rejection says nothing of its step.
    """

    accept: jax.Array
    invalid: jax.Array
    where: jax.Array
    outside: Any = 0.0


class AbstractKernel(eqx.Module):
    """One lane's Markov move, vectorised over lanes and ladders by the engine.

    Every call of the model is one evaluation, and lanes advance together; so the number of
    evaluations of a move is fixed beforehand by `evaluations` and the same in every lane.
    """

    gradient_based: ClassVar[bool]

    @abstractmethod
    def init(self, dimension: int, lanes: int) -> Any:
        """First parameters: a pytree of NumPy arrays with a leading lane axis."""

    @abstractmethod
    def evaluations(self, params: Any) -> int:
        """Model evaluations a lane spends on one move with these parameters."""

    @abstractmethod
    def patience(self, dimension: int) -> float:
        """Roughly how many moves a tuned kernel takes to forget a state, for warm-up lengths."""

    @abstractmethod
    def step(
        self,
        key: jax.Array,
        state: ChainState,
        target: Target,
        log_density: LogDensity,
        params: Any,
        evaluations: jax.Array,
    ) -> tuple[ChainState, Info]:
        """Move one lane, leaving exp(log_density) invariant, with `evaluations` model calls."""

    def limit(self, params: Any, evaluations: int) -> Any:
        """Parameters with which a move costs at most so much, where a kernel can do with less."""
        return params

    @abstractmethod
    def search(self, params: Any, accept: np.ndarray) -> Any:
        """Parameters after a first look around a start whose scales are unknown.

        Changes the overall scale from the acceptance [lane], leaving the cost of a move alone.
        """

    @abstractmethod
    def tune(
        self, params: Any, accept: np.ndarray, outside: np.ndarray, positions: list[np.ndarray]
    ) -> Any:
        """New parameters from a warm-up round.

        Parameters
        ----------
        params
            The parameters the round ran with.
        accept
            Mean acceptance probability, [lane].
        outside
            Share of proposals outside the rung's support, [lane].
        positions
            For each lane centred draws of its rung, [draw, coordinate].
        """


def evaluate(target: Target, position: jax.Array, with_gradient: bool) -> ChainState:
    """The one model call of a proposal."""
    if with_gradient:
        scalars, grads = target.scalars_and_grads(position)
        return ChainState(position, scalars, grads)
    return ChainState(position, target.scalars(position), None)


def is_invalid(state: ChainState) -> jax.Array:
    """NaN in the density or f at a finite position: the model's doing, not the integrator's."""
    s = state.scalars
    bad = jnp.isnan(s.log_pi) | jnp.isposinf(s.log_pi)
    # f is read only where the density is positive.
    bad |= ~jnp.isneginf(s.log_pi) & jnp.any(jnp.isnan(s.log_abs_f) | jnp.isnan(s.sign_f))
    if s.level is not None:
        bad |= ~jnp.isneginf(s.log_pi) & jnp.any(jnp.isnan(s.level))
    if s.log_base is not None:
        bad |= jnp.any(jnp.isnan(s.log_base))
    return bad & jnp.all(jnp.isfinite(state.position))


def density_or_zero(state: ChainState, log_density: LogDensity) -> jax.Array:
    """log density at the rung; -inf where it is invalid or the position overflowed."""
    value = log_density(state.scalars)
    usable = ~is_invalid(state) & jnp.all(jnp.isfinite(state.position)) & ~jnp.isnan(value)
    return jnp.where(usable, value, -jnp.inf)


def rung_gradient(state: ChainState, log_density: LogDensity) -> jax.Array:
    """Gradient of the rung's log density from the cached rows: sum_k d log phi/d s_k grad s_k."""
    assert state.grads is not None

    def finite(value: Any) -> Any:
        return jnp.where(jnp.isfinite(value), value, 0)

    s, g = state.scalars, state.grads
    s = jax.tree.map(finite, s)._replace(sign_f=s.sign_f)
    weights = jax.grad(log_density)(s)
    total = weights.log_pi * g.log_pi + weights.log_abs_f @ g.log_abs_f
    for weight, rows in ((weights.log_base, g.log_base), (weights.level, g.level)):
        total = total if rows is None else total + weight @ rows
    return total


def choose(accepted: jax.Array, new: ChainState, old: ChainState) -> ChainState:
    """The new state where accepted, else the old one."""
    return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)
