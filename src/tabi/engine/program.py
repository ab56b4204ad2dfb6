"""The sampling loop itself, compiled: a fixed number of sweeps of a few ladders."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tabi.kernels.base import AbstractKernel, Info, evaluate
from tabi.paths import AbstractPath
from tabi.runtime.keys import chain_keys
from tabi.state import ChainState, Scalars
from tabi.target import AbstractBase, Target


class Lanes(NamedTuple):
    """What distinguishes the lanes, as traced arrays: no change of rungs recompiles anything."""

    beta: Any
    path: Any
    component: Any
    params: Any
    partners: Any


class Segment(NamedTuple):
    """A unit's task: `sweeps` sweeps from `first` on, of ladders with these keys.

    Every sweep is recorded, and every `spacing`-th state kept whole.
    """

    keys: Any
    state: ChainState
    replica: Any
    lanes: Lanes
    evaluations: Any
    first: Any
    sweeps: Any
    spacing: Any
    bases: tuple[AbstractBase, ...] = ()

    def program(self, specification: "Specification") -> Callable[["Segment"], "Record"]:
        """What a worker compiles and calls with this task."""
        return specification.run

    def used(self, record: "Record") -> "Record":
        """Without the room that the task did not fill: only this much travels."""
        kept = -(-int(self.sweeps) // int(self.spacing))
        return record._replace(
            scalars=jax.tree.map(lambda a: a[: int(self.sweeps)], record.scalars),
            replicas=record.replicas[: int(self.sweeps)],
            snapshots=jax.tree.map(lambda a: a[:kept], record.snapshots),
        )


class Start(NamedTuple):
    """A task that evaluates the model at positions [start, coordinate]."""

    positions: Any
    bases: tuple[AbstractBase, ...] = ()

    @property
    def cost(self) -> int:
        """Model evaluations."""
        return len(self.positions)

    def program(self, specification: "Specification") -> Callable[["Start"], ChainState]:
        """What a worker compiles and calls with this task."""
        return specification.start

    def used(self, states: ChainState) -> ChainState:
        """All of it."""
        return states


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
    outside: Any


@dataclass(frozen=True, eq=False)
class Specification:
    """All that is static: it is sent to a worker once and its programs are compiled once.

    Attributes
    ----------
    target, kernel, paths
        What moves, how, and between which densities.
    turns
        Turns of exchange after each move. They cost no model call, and between two moves states
        travel as far; an odd number, so that consecutive sweeps begin with other pairs.
    length
        Most sweeps a segment records; by default fewer where f has many components, each of which
        has lanes of its own and a number in every record.
    slots
        States kept whole per segment, for tuning and for starts of later rounds.
    """

    target: Target
    kernel: AbstractKernel
    paths: tuple[AbstractPath, ...]
    turns: int = 3
    length: int = 0
    slots: int = 0

    def __post_init__(self) -> None:
        components = self.target.components
        length = self.length or int(np.clip(2**15 // components**2, 32, 512))
        slots = self.slots or int(np.clip(512 // components, 8, 64))
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "slots", slots)

    def start(self, task: Start) -> ChainState:
        """Evaluate the model, one state per position."""
        target, gradient = self.target.bind(task.bases), self.kernel.gradient_based
        return jax.vmap(lambda z: evaluate(target, z, gradient))(task.positions)

    def run(self, task: Segment) -> Record:
        """Sweep: move every lane, exchange, record."""
        ladders, count = task.replica.shape
        target = self.target.bind(task.bases)
        # One batch axis for all chains: nested ones make XLA transpose around every product.
        by_lane = task.lanes._replace(partners=None)
        lanes = jax.tree.map(lambda a: jnp.tile(a, (ladders,) + (1,) * (a.ndim - 1)), by_lane)
        lanes = lanes._replace(partners=task.lanes.partners)
        first_lane = jnp.repeat(jnp.arange(ladders) * count, count)
        state, replica = _merge((task.state, task.replica))

        def sweep(i: jax.Array, carry: Record) -> Record:
            number = task.first + i
            keys = chain_keys(task.keys, count, number)
            state, info = self._move(target, keys, carry.state, lanes, task.evaluations)
            swap_keys = chain_keys(task.keys, count, number, purpose=1)
            shape = (self.turns,)
            uniform = jax.vmap(lambda key: jax.random.uniform(key, shape, self.target.dtype))
            source = self._exchange(uniform(swap_keys).T, state.scalars, lanes, number, first_lane)
            state, replica = jax.tree.map(lambda a: a[source], (state, carry.replica))
            first_time = (info.invalid > 0) & (carry.invalid == 0)
            return Record(
                state,
                replica,
                _write(carry.scalars, state.scalars, i),
                carry.replicas.at[i].set(replica),
                _write(carry.snapshots, state, i // task.spacing),
                carry.accept + info.accept,
                carry.invalid + info.invalid,
                jnp.where(first_time[:, None], info.where, carry.where),
                carry.outside + info.outside,
            )

        carry = Record(
            state,
            replica,
            _room(state.scalars, self.length),
            _room(replica, self.length),
            _room(state, self.slots),
            jnp.zeros(ladders * count, self.target.dtype),
            jnp.zeros(ladders * count, jnp.int32),
            jnp.zeros_like(state.position),
            jnp.zeros(ladders * count, self.target.dtype),
        )
        record = jax.lax.fori_loop(0, task.sweeps, sweep, carry)
        accept, outside = record.accept / task.sweeps, record.outside / task.sweeps
        record = record._replace(accept=accept, outside=outside)
        return _split(record, ladders, count)

    def _move(
        self, target: Target, keys: jax.Array, state: ChainState, lanes: Lanes, evaluations: Any
    ) -> tuple[ChainState, Info]:
        """Every chain moves once at its rung."""

        def move(key: Any, state: Any, beta: Any, path: Any, component: Any, params: Any) -> Any:
            def log_density(scalars: Scalars) -> jax.Array:
                return self.log_density(scalars, beta, path, component)

            return self.kernel.step(key, state, target, log_density, params, evaluations)

        return jax.vmap(move)(keys, state, lanes.beta, lanes.path, lanes.component, lanes.params)

    def _exchange(
        self,
        uniforms: jax.Array,
        scalars: Scalars,
        lanes: Lanes,
        number: jax.Array,
        first_lane: jax.Array,
    ) -> jax.Array:
        """Whose state every chain holds after all turns of a sweep; no model call."""
        ladders = first_lane.size // lanes.partners.shape[1]

        def turn(i: jax.Array, source: jax.Array) -> jax.Array:
            pairs = lanes.partners[(number * self.turns + i) % lanes.partners.shape[0]]
            partner = first_lane + jnp.tile(pairs, ladders)
            held = jax.tree.map(lambda a: a[source], scalars)
            return source[self._swap(uniforms[i], held, lanes, partner)]

        return jax.lax.fori_loop(0, self.turns, turn, jnp.arange(first_lane.size))

    def _swap(
        self, uniform: jax.Array, scalars: Scalars, lanes: Lanes, partner: jax.Array
    ) -> jax.Array:
        """Whose state every chain holds after partners have exchanged."""
        density = jax.vmap(self.log_density)
        own = density(scalars, lanes.beta, lanes.path, lanes.component)
        theirs = jax.tree.map(lambda a: a[partner], scalars)
        gain = density(theirs, lanes.beta, lanes.path, lanes.component) - own
        log_ratio = gain + gain[partner]
        chains = jnp.arange(partner.size)
        # Both of a pair must read the same number.
        uniform = uniform[jnp.minimum(partner, chains)]
        # A ratio that is NaN (both densities -inf) compares false.
        return jnp.where(jnp.log(uniform) < log_ratio, partner, chains)

    def log_density(self, scalars: Scalars, beta: Any, path: Any, component: Any) -> jax.Array:
        """log phi(x|beta) of a path, by its number, for a component of f."""
        one = scalars.component(component)
        if len(self.paths) == 1:
            return self.paths[0].log_density(one, beta)
        return jnp.stack([p.log_density(one, beta) for p in self.paths])[path]


def _merge(tree: Any) -> Any:
    """[ladder, lane, ...] -> [chain, ...]."""
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), tree)


def _split(record: Record, ladders: int, lanes: int) -> Record:
    """[chain, ...] -> [ladder, lane, ...], in records behind their draw axis."""

    def split(axis: int, tree: Any) -> Any:
        return jax.tree.map(
            lambda a: a.reshape(*a.shape[:axis], ladders, lanes, *a.shape[axis + 1 :]), tree
        )

    behind = {"scalars", "replicas", "snapshots"}
    parts = {name: split(int(name in behind), part) for name, part in record._asdict().items()}
    return Record(**parts)


def _room(tree: Any, slots: int) -> Any:
    return jax.tree.map(lambda a: jnp.zeros((slots, *a.shape), a.dtype), tree)


def _write(room: Any, tree: Any, slot: Any) -> Any:
    return jax.tree.map(lambda a, b: a.at[slot].set(b), room, tree)


def to_host(tree: Any) -> Any:
    """NumPy copies of all arrays."""
    return jax.tree.map(np.asarray, tree)
