"""The sampling loop itself, compiled: a fixed number of sweeps of a few ladders."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tabi.kernels.base import AbstractKernel, evaluate
from tabi.paths import AbstractPath
from tabi.runtime.keys import IMPLEMENTATION
from tabi.state import ChainState, Scalars
from tabi.target import Target


class Lanes(NamedTuple):
    """What distinguishes the lanes, as traced arrays: no change of rungs recompiles anything."""

    beta: Any
    path: Any
    component: Any
    partners: Any
    params: Any


class Segment(NamedTuple):
    """A unit's task: `sweeps` sweeps from `first` on, of ladders with these keys.

    Every `thin`-th sweep is recorded and every `spacing`-th state kept whole.
    """

    keys: Any
    state: ChainState
    replica: Any
    lanes: Lanes
    evaluations: Any
    first: Any
    sweeps: Any
    thin: Any
    spacing: Any


class Record(NamedTuple):
    """What a unit brings back.

    Arrays are [ladder, lane, ...], records [draw, ladder, lane, ...].
    """

    state: ChainState
    replica: Any
    scalars: Scalars
    replicas: Any
    snapshots: ChainState
    accept: Any
    invalid: Any
    where: Any


@dataclass(frozen=True, eq=False)
class Specification:
    """All that is static: it is sent to a worker once and its programs are compiled once.

    Attributes
    ----------
    target, kernel, paths
        What moves, how, and between which densities.
    length
        Most sweeps a segment records.
    slots
        States kept whole per segment, for tuning and for starts of later rounds.
    """

    target: Target
    kernel: AbstractKernel
    paths: tuple[AbstractPath, ...]
    length: int = 512
    slots: int = 64

    def start(self, positions: jax.Array) -> ChainState:
        """Evaluate the model at positions [start, coordinate]."""
        gradient = self.kernel.gradient_based
        return jax.vmap(lambda z: evaluate(self.target, z, gradient))(positions)

    def run(self, task: Segment) -> Record:
        """Sweep: move every lane, exchange, record."""

        def sweep(i: jax.Array, carry: Record) -> Record:
            keys = jax.random.wrap_key_data(task.keys, impl=IMPLEMENTATION)
            number = task.first + i
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys, number)
            move = jax.vmap(self._sweep_ladder, (0, 0, 0, None, None, None))
            state, replica, info = move(
                keys, carry.state, carry.replica, task.lanes, task.evaluations, number
            )
            slot, kept = i // task.thin, i // task.spacing
            first_time = (info.invalid > 0) & (carry.invalid == 0)
            return Record(
                state,
                replica,
                _write(carry.scalars, state.scalars, slot),
                carry.replicas.at[slot].set(replica),
                _write(carry.snapshots, state, kept),
                carry.accept + info.accept,
                carry.invalid + info.invalid,
                jnp.where(first_time[..., None], info.where, carry.where),
            )

        shape = task.replica.shape
        carry = Record(
            task.state,
            task.replica,
            _room(task.state.scalars, self.length),
            jnp.zeros((self.length, *shape), task.replica.dtype),
            _room(task.state, self.slots),
            jnp.zeros(shape, self.target.dtype),
            jnp.zeros(shape, jnp.int32),
            jnp.zeros_like(task.state.position),
        )
        record = jax.lax.fori_loop(0, task.sweeps, sweep, carry)
        return record._replace(accept=record.accept / task.sweeps)

    def _sweep_ladder(
        self,
        key: jax.Array,
        state: ChainState,
        replica: Any,
        lanes: Lanes,
        evaluations: Any,
        t: Any,
    ) -> Any:
        """All lanes of one ladder move once, then neighbours exchange."""
        count = lanes.beta.shape[0]
        keys = jax.random.split(key, count + 1)
        keys, swap_key = keys[:-1], keys[-1]

        def move(key: Any, state: Any, beta: Any, path: Any, component: Any, params: Any) -> Any:
            def log_density(scalars: Scalars) -> jax.Array:
                return self._log_density(scalars, beta, path, component)

            return self.kernel.step(key, state, self.target, log_density, params, evaluations)

        moved = jax.vmap(move)(keys, state, lanes.beta, lanes.path, lanes.component, lanes.params)
        state, info = moved
        partner = lanes.partners[t % lanes.partners.shape[0]]
        density = jax.vmap(self._log_density)
        own = density(state.scalars, lanes.beta, lanes.path, lanes.component)
        theirs = jax.tree.map(lambda a: a[partner], state.scalars)
        cross = density(theirs, lanes.beta, lanes.path, lanes.component)
        gain = cross - own
        log_ratio = gain + gain[partner]
        # Both of a pair must read the same number.
        uniform = jax.random.uniform(swap_key, (count,), own.dtype)
        uniform = uniform[jnp.minimum(partner, jnp.arange(count))]
        # A ratio that is NaN (both densities -inf) compares false.
        source = jnp.where(jnp.log(uniform) < log_ratio, partner, jnp.arange(count))
        state, replica = jax.tree.map(lambda a: a[source], (state, replica))
        return state, replica, info

    def _log_density(self, scalars: Scalars, beta: Any, path: Any, component: Any) -> jax.Array:
        one = scalars.component(component)
        if len(self.paths) == 1:
            return self.paths[0].log_density(one, beta)
        return jnp.stack([p.log_density(one, beta) for p in self.paths])[path]


def _room(tree: Any, slots: int) -> Any:
    return jax.tree.map(lambda a: jnp.zeros((slots, *a.shape), a.dtype), tree)


def _write(room: Any, tree: Any, slot: Any) -> Any:
    return jax.tree.map(lambda a, b: a.at[slot].set(b), room, tree)


def to_host(tree: Any) -> Any:
    """NumPy copies of all arrays."""
    return jax.tree.map(np.asarray, tree)
