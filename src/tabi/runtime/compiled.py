"""Compiled programs, each made once per process however many threads ask for it."""

import gc
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import numpy as np


class ProgramCache:
    """Least recently used programs by key; concurrent first calls compile once.

    `jax.jit` alone would let two threads that call a new function at the same moment compile it
    twice, and would not say how long compilation took.
    """

    def __init__(self, most: int = 64) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()

    def call(self, key: Hashable, function: Callable[..., Any], argument: Any) -> tuple[Any, float]:
        """`function(argument)` compiled for the argument's shapes, and seconds spent compiling."""
        leaves, structure = jax.tree.flatten(argument)
        shapes = tuple((np.shape(leaf), str(np.asarray(leaf).dtype)) for leaf in leaves)
        with self._lock:
            entry = self._entries.setdefault((key, structure, shapes), _Entry())
            self._entries.move_to_end((key, structure, shapes))
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
        return entry.call(function, argument)


class _Entry:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._program: Any = None

    def call(self, function: Callable[..., Any], argument: Any) -> tuple[Any, float]:
        seconds = 0.0
        with self._lock:
            if self._program is None:
                begin = time.perf_counter()
                self._program = _compile(lower(function, argument))
                seconds = time.perf_counter() - begin
        return jax.block_until_ready(self._program(argument)), seconds


# XLA's older CPU emitters compile these loops in half the time and run them no slower.
CPU_OPTIONS: dict[str, str | bool] = {"xla_cpu_use_fusion_emitters": False}


def lower(function: Callable[..., Any], argument: Any) -> jax.stages.Lowered:
    """`function` traced for the shapes of `argument`, before compilation."""
    try:
        return jax.jit(function).lower(argument)
    except ValueError as error:
        if "verifier errors" not in str(error):
            raise
    # JAX remembers in which precision it last traced a NumPy array that a function closes over,
    # and forgets that enable_x64 has changed since: a density that the user has jitted in float32
    # cannot be traced in float64 until the caches, and all that still holds such an array (the
    # exception above did), are gone.
    jax.clear_caches()
    gc.collect()
    return jax.jit(function).lower(argument)


def _compile(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    if jax.default_backend() == "cpu":
        try:
            return lowered.compile(CPU_OPTIONS)
        except jax.errors.JaxRuntimeError:
            # An XLA without this option; any other trouble comes up again below.
            return lowered.compile()
    return lowered.compile()


def static_key(value: Any) -> Hashable:
    """A key under which equal static objects share programs: content for ours, else identity."""
    if isinstance(value, eqx.Module):
        fields = tuple(static_key(getattr(value, name)) for name in value.__dataclass_fields__)
        return (type(value), fields)
    if isinstance(value, tuple | list):
        return (type(value), tuple(static_key(item) for item in value))
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        return (array.shape, str(array.dtype), array.tobytes())
    try:
        hash(value)
    except TypeError:
        return Identity(value)
    return value


class Identity:
    """Stands for an unhashable object in a key, and keeps it alive while the key is."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __hash__(self) -> int:
        return id(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other._value is self._value
