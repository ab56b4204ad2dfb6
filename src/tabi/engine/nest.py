"""Nested sampling's loop (Skilling 2006): the worst live point is replaced, again and again.

Each iteration takes the live point of the lowest likelihood L away and puts in its place a move
from another one, constrained to the prior where the likelihood exceeds L. The likelihood of a leg
is the ratio of its two ends: l for Z, |f| l for c+ and c-.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from tabi.engine.program import Specification
from tabi.runtime.keys import chain_keys
from tabi.state import ChainState, Scalars
from tabi.target import AbstractBase


class Nest(NamedTuple):
    """A task: `iterations` iterations of some runs, from number `first` on.

    Arrays are [run, ...], live points [run, point, ...]; `room` [place] is as long as the longest
    task, so that one program serves them all.
    """

    keys: Any
    live: ChainState
    params: Any
    first: Any
    iterations: Any
    room: Any
    path: Any
    component: Any
    evaluations: Any
    bases: tuple[AbstractBase, ...] = ()

    @property
    def cost(self) -> int:
        """Model evaluations: one move for every run and iteration."""
        return len(self.keys) * int(self.iterations) * int(self.evaluations)

    def program(self, specification: Specification) -> Callable[["Nest"], "Nested"]:
        """What a worker compiles and calls with this task."""
        return partial(nest, specification)

    def used(self, nested: "Nested") -> "Nested":
        """Without the room that was not filled."""
        count = int(self.iterations)
        return nested._replace(
            dead=nested.dead[:count], ranks=nested.ranks[:count], parents=nested.parents[:count]
        )


class Nested(NamedTuple):
    """What a task leaves behind.

    Attributes
    ----------
    live
        The live points, [run, point, ...].
    log_likelihood
        Theirs, [run, point].
    dead
        log likelihoods of the points taken away, in order, [iteration, run].
    ranks
        How many of the others each new point had below it, [iteration, run]. All ranks are
        equally likely where the moves forget where they began (Fowlie et al. 2020).
    parents
        The same of the points that the moves began at, [iteration, run].
    accept
        Mean acceptance probability, [run].
    invalid, where
        NaN proposals, [run], and the first of them, [run, coordinate].
    """

    live: ChainState
    log_likelihood: Any
    dead: Any
    ranks: Any
    parents: Any
    accept: Any
    invalid: Any
    where: Any


def nest(specification: Specification, task: Nest) -> Nested:
    """Carry out the iterations of a task, its runs side by side."""
    target = specification.target.bind(task.bases)
    runs, points = task.live.position.shape[:2]
    every = jnp.arange(runs)

    def prior(scalars: Scalars) -> jax.Array:
        return specification.log_density(scalars, 0.0, task.path, task.component)

    def likelihood(scalars: Scalars) -> jax.Array:
        end = specification.log_density(scalars, 1.0, task.path, task.component)
        return jnp.where(jnp.isneginf(end), -jnp.inf, end - prior(scalars))

    def iteration(i: jax.Array, carry: Nested) -> Nested:
        number = task.first + i
        worst = jnp.argmin(carry.log_likelihood, axis=1)
        least = carry.log_likelihood[every, worst]
        # Any other live point; a single one is its own.
        step = jax.vmap(lambda key: jax.random.randint(key, (), 0, max(points - 1, 1)))
        chosen = step(chain_keys(task.keys, 1, number, purpose=1))
        chosen = (chosen + (chosen >= worst)) % points

        def move(key: jax.Array, state: ChainState, params: Any, least: jax.Array) -> Any:
            def constrained(scalars: Scalars) -> jax.Array:
                return jnp.where(likelihood(scalars) > least, prior(scalars), -jnp.inf)

            return specification.kernel.step(
                key, state, target, constrained, params, task.evaluations
            )

        begin = jax.tree.map(lambda a: a[every, chosen], carry.live)
        keys = chain_keys(task.keys, 1, number)
        state, info = jax.vmap(move)(keys, begin, task.params, least)
        new = jax.vmap(likelihood)(state.scalars)

        def rank(log_likelihood: jax.Array) -> jax.Array:
            below = carry.log_likelihood < log_likelihood[:, None]
            return (jnp.sum(below, axis=1) - (least < log_likelihood)).astype(jnp.int32)

        first_time = (info.invalid > 0) & (carry.invalid == 0)
        return Nested(
            jax.tree.map(lambda a, b: a.at[every, worst].set(b), carry.live, state),
            carry.log_likelihood.at[every, worst].set(new),
            carry.dead.at[i].set(least),
            carry.ranks.at[i].set(rank(new)),
            carry.parents.at[i].set(rank(carry.log_likelihood[every, chosen])),
            # Among equal likelihoods a move has nothing to compare.
            carry.accept + jnp.nan_to_num(info.accept),
            carry.invalid + info.invalid,
            jnp.where(first_time[:, None], info.where, carry.where),
        )

    dtype = specification.target.dtype
    begin = Nested(
        task.live,
        jax.vmap(jax.vmap(likelihood))(task.live.scalars).astype(dtype),
        jnp.zeros((task.room.shape[0], runs), dtype),
        jnp.zeros((task.room.shape[0], runs), jnp.int32),
        jnp.zeros((task.room.shape[0], runs), jnp.int32),
        jnp.zeros(runs, dtype),
        jnp.zeros(runs, jnp.int32),
        jnp.zeros(task.live.position.shape[::2], dtype),
    )
    result = jax.lax.fori_loop(0, task.iterations, iteration, begin)
    return result._replace(accept=result.accept / task.iterations)
