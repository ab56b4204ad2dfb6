"""Annealing (Neal 2001): particles that walk up a path once and carry a weight.

    log w = sum_i log phi(x_i | beta_{i+1}) - log phi(x_i | beta_i),

where x_1 is an exact draw at beta = 0 and x_{i+1} a move from x_i at beta_{i+1}. The mean of w is
c(1)/c(0) without bias, however badly the moves mix.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tabi.engine.program import Specification
from tabi.kernels.base import Info
from tabi.runtime.keys import chain_keys
from tabi.state import ChainState
from tabi.target import AbstractBase


class Anneal(NamedTuple):
    """A task: particles at beta = 0 to be carried to beta = 1 over `rungs` rungs.

    `betas` and `params` [room, ...] may have more room than there are rungs.
    """

    keys: Any
    state: ChainState
    betas: Any
    params: Any
    rungs: Any
    path: Any
    component: Any
    evaluations: Any
    bases: tuple[AbstractBase, ...] = ()

    @property
    def cost(self) -> int:
        """Model evaluations: particles move at all rungs but the first and the last."""
        return len(self.keys) * (int(self.rungs) - 2) * int(self.evaluations)

    def program(self, specification: Specification) -> Callable[["Anneal"], "Annealed"]:
        """What a worker compiles and calls with this task."""
        return partial(anneal, specification)

    def used(self, annealed: "Annealed") -> "Annealed":
        """All of it."""
        return annealed


class Annealed(NamedTuple):
    """What the particles bring back: arrays [particle, ...], `accept` [rung]."""

    log_weight: Any
    accept: Any
    invalid: Any
    where: Any


def anneal(specification: Specification, task: Anneal) -> Annealed:
    """Carry all particles of a task up the path, side by side."""
    target = specification.target.bind(task.bases)

    def density(state: ChainState, beta: jax.Array) -> jax.Array:
        one = jax.vmap(lambda s: specification.log_density(s, beta, task.path, task.component))
        return one(state.scalars)

    def gain(state: ChainState, rung: jax.Array) -> jax.Array:
        return density(state, task.betas[rung + 1]) - density(state, task.betas[rung])

    def climb(rung: jax.Array, carry: Any) -> Any:
        state, result = carry
        log_weight = result.log_weight + gain(state, rung)
        beta = task.betas[rung + 1]
        params = jax.tree.map(lambda a: a[rung + 1], task.params)

        def move(key: jax.Array, state: ChainState) -> tuple[ChainState, Info]:
            def log_density(scalars: Any) -> jax.Array:
                return specification.log_density(scalars, beta, task.path, task.component)

            return specification.kernel.step(
                key, state, target, log_density, params, task.evaluations
            )

        state, info = jax.vmap(move)(chain_keys(task.keys, 1, rung), state)
        first_time = (info.invalid > 0) & (result.invalid == 0)
        return state, Annealed(
            log_weight,
            result.accept.at[rung + 1].set(info.accept.mean()),
            result.invalid + info.invalid,
            jnp.where(first_time[:, None], info.where, result.where),
        )

    zeros = jnp.zeros(len(task.keys), specification.target.dtype)
    begin = Annealed(
        zeros,
        jnp.zeros(task.betas.shape, zeros.dtype),
        jnp.zeros(zeros.shape, jnp.int32),
        jnp.zeros_like(task.state.position),
    )
    state, result = jax.lax.fori_loop(0, task.rungs - 2, climb, (task.state, begin))
    return result._replace(log_weight=result.log_weight + gain(state, task.rungs - 2))
