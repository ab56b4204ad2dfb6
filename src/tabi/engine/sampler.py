"""Rounds: a frozen ladder and kernel in, draws and states out."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tabi.draws import Draws
from tabi.engine.ladder import Ladder
from tabi.engine.program import Lanes, Record, Segment, Specification, Start, to_host
from tabi.engine.single_precision import check_single_precision
from tabi.runtime.compiled import ProgramCache, static_key
from tabi.runtime.keys import Key, stream, streams
from tabi.runtime.precision import precision
from tabi.runtime.workers import Workers
from tabi.state import ChainState, Scalars
from tabi.target import AbstractBase

PROGRAMS = ProgramCache()

# Chains of a unit beyond which sharing a loop gains nothing.
MOST_CHAINS = 64


class InvalidModel(ValueError):
    """The model returned NaN where it must not."""


@dataclass(frozen=True, eq=False)
class Unit:
    """What a worker calls with each task: the compiled loop of one specification."""

    specification: Specification

    def __call__(self, task: Any) -> tuple[Any, float]:
        spec = self.specification
        key = (
            spec.target,
            static_key(spec.kernel),
            spec.paths,
            spec.turns,
            spec.length,
            spec.slots,
        )
        with precision(spec.target.dtype):
            result, seconds = PROGRAMS.call((type(task), key), task.program(spec), task)
            result = to_host(result)
        return task.used(result), seconds


@dataclass(frozen=True)
class Round:
    """What a round leaves behind.

    Attributes
    ----------
    draws
        For estimation.
    states
        Where every chain stands, [ladder, lane, ...].
    snapshots
        Whole states spread over the second half of the round, [ladder, lane, slot, ...].
    """

    draws: Draws
    states: ChainState
    snapshots: ChainState


@dataclass
class Tally:
    """What sampling has cost so far."""

    evaluations: int = 0
    gradients: int = 0
    invalid: int = 0
    first_invalid: Any = None
    judged: int = 0
    judged_invalid: int = 0
    compilations: int = 0
    compile_seconds: float = 0.0
    records: list[tuple[str, int, int, float]] = field(default_factory=list)


class Engine:
    """Runs rounds of one specification and counts what they cost.

    Parameters
    ----------
    specification
        Target, kernel and paths.
    ladders
        Independent ladders; each has its own random stream.
    key
        The run's key; round r of ladder l draws from stream (r, l) whatever the workers are.
    workers
        Where units run.
    notify
        Called with the phase and the evaluations done as units finish.
    fatal_invalid
        Share of proposals with a NaN model above which the run stops.
    bases
        Base densities that legs start at.
    tally
        What the run has cost before.
    """

    def __init__(
        self,
        specification: Specification,
        ladders: int,
        key: Key,
        workers: Workers,
        notify: Callable[[str, int], None],
        fatal_invalid: float,
        bases: tuple[AbstractBase, ...] = (),
        tally: Tally | None = None,
    ) -> None:
        self.specification = specification
        self.bases = bases
        self.ladders = ladders
        self.tally = Tally() if tally is None else tally
        self._key = key
        self._workers = workers
        self._notify = notify
        self._fatal_invalid = fatal_invalid
        self._rounds = 0

    def cost(self, ladder: Ladder, params: Any) -> int:
        """Model evaluations of one sweep of all ladders."""
        return self.ladders * ladder.size * self.specification.kernel.evaluations(params)

    def start(self, positions: np.ndarray) -> ChainState:
        """States at sampling-space positions [ladder, coordinate], one evaluation each."""
        dtype = self.specification.target.dtype
        result = self._call(Start(np.asarray(positions, dtype), self.bases))
        self._count(len(positions))
        return result

    def evaluate(self, phase: str, positions: np.ndarray, batch: int) -> Scalars:
        """Scalars at any number of sampling-space positions, one evaluation each."""
        scalars = self.states(phase, positions, batch).scalars
        return jax.tree.map(lambda a: a.astype(np.float64), scalars)

    def states(self, phase: str, positions: np.ndarray, batch: int) -> ChainState:
        """States at any number of sampling-space positions, in parallel, one evaluation each.

        Batches have a few sizes only, so that few programs are compiled.
        """
        done, tasks = 0, []
        dtype = self.specification.target.dtype
        while done < len(positions):
            size = next(s for s in (batch, 256, 16, 1) if done + s <= len(positions))
            tasks.append(Start(np.asarray(positions[done : done + size], dtype), self.bases))
            done += size
        parts = self.each(phase, tasks)
        states = jax.tree.map(lambda *a: np.concatenate(a), *parts)
        return self._without_invalid(states)

    def each(self, phase: str, tasks: Sequence[Any]) -> list[Any]:
        """What tasks that know their cost bring back, in their order."""
        begin, before = time.perf_counter(), self.tally.evaluations
        futures = [self._workers.submit(task) for task in tasks]
        results = []
        try:
            for future, task in zip(futures, tasks, strict=True):
                results.append(self._receive(future, task))
                self._count(task.cost)
                self._notify(phase, self.tally.evaluations)
        finally:
            for future in futures:
                future.cancel()
        spent, seconds = self.tally.evaluations - before, time.perf_counter() - begin
        self.tally.records.append((phase, 1, spent, seconds))
        return results

    def judge_moves(self, invalid: np.ndarray, where: np.ndarray, proposals: int) -> None:
        """Count NaN proposals, [chain] and the first of each [chain, coordinate]."""
        first = where[invalid > 0][0] if invalid.any() else None
        self._judge_invalid(int(invalid.sum()), proposals, first)

    def _without_invalid(self, states: ChainState) -> ChainState:
        """NaN of the model is a density of zero, counted."""
        scalars = states.scalars
        bad = np.isnan(scalars.log_pi) | np.isposinf(scalars.log_pi)
        read = scalars.log_abs_f, *(() if scalars.level is None else (scalars.level,))
        for values in read:
            bad |= ~np.isneginf(scalars.log_pi) & np.isnan(values).any(-1)
        if not bad.any():
            return states
        self._judge_invalid(int(bad.sum()), len(bad), states.position[np.argmax(bad)])
        log_pi = np.where(bad, -np.inf, scalars.log_pi)
        return states._replace(scalars=scalars._replace(log_pi=log_pi))

    def run(
        self,
        phase: str,
        ladder: Ladder,
        params: Any,
        states: ChainState,
        sweeps: int,
        *,
        keep: bool = True,
    ) -> Round:
        """One round: `sweeps` sweeps of every ladder under a frozen ladder and kernel.

        With `keep=False` there is only one snapshot: less to bring back from the workers.
        """
        begin = time.perf_counter()
        job = _Job.plan(self, ladder, params, states, sweeps, keep)
        before = self.tally.evaluations
        self._drive(phase, job)
        self._check_invalid(phase, job)
        spent = self.tally.evaluations - before
        self.tally.records.append((phase, sweeps, spent, time.perf_counter() - begin))
        self._rounds += 1
        return job.collect(spent)

    def round_keys(self) -> np.ndarray:
        """Raw keys of this round's ladders, [ladder, 2]."""
        return streams(stream(self._key, self._rounds), self.ladders)

    def next_random(self) -> np.random.Generator:
        """A fresh stream for random decisions of the host, which no round draws from."""
        seed = np.random.SeedSequence(stream(self._key, self._rounds, self.ladders))
        self._rounds += 1
        return np.random.Generator(np.random.Philox(seed))

    def groups(self, lanes: int) -> list[slice]:
        """The ladders of each unit, for ladders of so many lanes.

        Up to four ladders share a loop, for a cheap model costs less than the loop around it; but
        never more than `MOST_CHAINS` chains, and always at least two units. Neither the executor
        nor the machine has a say, or results would depend on them.
        """
        fits = (n for n in (4, 2) if self.ladders % n == 0 and self.ladders > n)
        together = next((n for n in fits if n * lanes <= MOST_CHAINS), 1)
        return [slice(i, i + together) for i in range(0, self.ladders, together)]

    def _call(self, task: Any) -> Any:
        return self._receive(self._workers.submit(task), task)

    def _receive(self, future: Future, task: Any) -> Any:
        result, seconds = self._workers.result(future, task)
        self.tally.compilations += seconds > 0
        self.tally.compile_seconds += seconds
        return result

    def _count(self, evaluations: int) -> None:
        self.tally.evaluations += evaluations
        if self.specification.kernel.gradient_based:
            self.tally.gradients += evaluations

    def _drive(self, phase: str, job: "_Job") -> None:
        """Keep one segment of every unit under way until all have finished."""
        waiting = {}
        for unit in range(len(job.groups)):
            task = job.next(unit)
            waiting[self._workers.submit(task)] = (unit, task)
        try:
            while waiting:
                finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in finished:
                    unit, task = waiting.pop(future)
                    record = self._receive(future, task)
                    job.store(unit, task, record)
                    chains = record.accept.size
                    self._count(chains * int(task.sweeps) * int(task.evaluations))
                    self._notify(phase, self.tally.evaluations)
                    if job.pending(unit):
                        task = job.next(unit)
                        waiting[self._workers.submit(task)] = (unit, task)
        finally:
            for future in waiting:
                future.cancel()

    def _check_invalid(self, phase: str, job: "_Job") -> None:
        """Count a round's NaN proposals and stop a run that has too many.

        Judged when a round is over, by all its units: what arrived first is the machine's doing.
        A search for scales may propose anything, unless every NaN is fatal.
        """
        judged = job.proposals if phase != "search" or self._fatal_invalid == 0 else 0
        self._judge_invalid(job.invalid, judged, job.first_invalid)

    def _judge_invalid(self, invalid: int, judged: int, where: Any) -> None:
        tally = self.tally
        tally.invalid += invalid
        if where is not None and tally.first_invalid is None:
            tally.first_invalid = where
        tally.judged += judged
        tally.judged_invalid += invalid if judged else 0
        few = tally.judged < 1000 and self._fatal_invalid > 0
        if judged and not few and tally.judged_invalid > self._fatal_invalid * tally.judged:
            raise InvalidModel(
                f"the log density or f was NaN (or f infinite) at {tally.judged_invalid} of "
                f"{tally.judged} proposals, first at {self.describe(tally.first_invalid)}; "
                "return -inf where the density is zero and a finite f where it is positive"
            )

    def check_precision(self, settled: Round) -> None:
        """In float32, compare early draws with float64 (see `check_single_precision`)."""
        target = self.specification.target
        if target.dtype == np.float32:
            flat = jax.tree.map(lambda a: a.reshape(-1, *a.shape[3:]), settled.snapshots)
            self.tally.evaluations += check_single_precision(target, flat)

    def describe(self, z: np.ndarray) -> str:
        """A sampling-space position in the user's own space, for messages."""
        target = self.specification.target
        with precision(target.dtype):
            position = target.position(jnp.asarray(z, target.dtype))
        return str(jax.tree.map(lambda a: np.asarray(a).tolist(), position))


@dataclass
class _Job:
    """The bookkeeping of one round: which segments are done and where their draws go."""

    specification: Specification
    ladder: Ladder
    lanes: Lanes
    keys: np.ndarray
    groups: list[slice]
    evaluations: int
    sweeps: int
    states: list[ChainState]
    replicas: list[np.ndarray]
    done: list[int]
    scalars: Scalars
    replica_draws: np.ndarray
    accept: np.ndarray
    outside: np.ndarray
    snapshots: list[Any]
    slots: int
    bases: tuple[AbstractBase, ...]
    invalid: int = 0
    proposals: int = 0
    wheres: dict[int, Any] = field(default_factory=dict)

    @property
    def first_invalid(self) -> Any:
        """Where the model was NaN first, in the order of units."""
        return self.wheres[min(self.wheres)] if self.wheres else None

    @classmethod
    def plan(
        cls,
        engine: Engine,
        ladder: Ladder,
        params: Any,
        states: ChainState,
        sweeps: int,
        keep: bool,
    ) -> "_Job":
        spec, ladders = engine.specification, engine.ladders
        dtype, size = spec.target.dtype, ladder.size
        lanes = Lanes(
            ladder.beta.astype(dtype),
            ladder.path_index(spec.paths),
            ladder.component,
            jax.tree.map(lambda a: np.asarray(a, dtype), params),
            ladder.partners.astype(np.int32),
        )
        shape = (size, ladders, sweeps)
        parts = (*shape, spec.target.components)
        bases = len(engine.bases)
        base = np.empty((*shape, bases)) if bases else None
        levels = spec.target.levels
        level = np.empty((*shape, levels)) if levels else None
        groups = engine.groups(size)
        return cls(
            spec,
            ladder,
            lanes,
            engine.round_keys(),
            groups,
            spec.kernel.evaluations(params),
            sweeps,
            [jax.tree.map(lambda a, g=g: a[g], states) for g in groups],
            [np.tile(np.arange(size, dtype=np.int32), (g.stop - g.start, 1)) for g in groups],
            [0] * len(groups),
            Scalars(np.empty(shape), np.empty(parts), np.empty(parts, np.int8), base, level),
            np.empty(shape, np.int16 if size < 2**15 else np.int32),
            np.zeros((size, ladders)),
            np.zeros((size, ladders)),
            [None] * len(groups),
            spec.slots if keep else 1,
            engine.bases,
        )

    def pending(self, unit: int) -> bool:
        return self.done[unit] < self.sweeps

    def next(self, unit: int) -> Segment:
        """The task that continues a unit where it stands."""
        count = min(self.specification.length, self.sweeps - self.done[unit])
        return Segment(
            self.keys[self.groups[unit]],
            self.states[unit],
            self.replicas[unit],
            self.lanes,
            np.int32(self.evaluations),
            np.int32(self.done[unit]),
            np.int32(count),
            np.int32(math.ceil(count / self.slots)),
            self.bases,
        )

    def store(self, unit: int, task: Segment, record: Record) -> None:
        """Put a segment's draws where they belong: by unit and sweep, not by time of arrival."""
        group, sweeps = self.groups[unit], int(task.sweeps)
        place = slice(self.done[unit], self.done[unit] + sweeps)

        def put(into: Any, out: Any) -> None:
            if into is not None and out is not None:
                # [draw, ladder, lane, ...] -> [lane, ladder, draw, ...]
                into[:, group, place] = np.moveaxis(out, (2, 1, 0), (0, 1, 2))

        for into, out in zip(self.scalars, record.scalars, strict=True):
            put(into, out)
        put(self.replica_draws, record.replicas)
        self.accept[:, group] += record.accept.T * sweeps / self.sweeps
        self.outside[:, group] += record.outside.T * sweeps / self.sweeps
        self.states[unit], self.replicas[unit] = record.state, record.replica
        used = record.snapshots.position.shape[0]
        # Only the latest segment is kept: the end of a round is where it has settled.
        late = jax.tree.map(lambda a: np.moveaxis(a[used // 2 : used], 0, 2), record.snapshots)
        self.snapshots[unit] = late
        self.done[unit] += sweeps
        if record.invalid.any():
            self.invalid += int(record.invalid.sum())
            self.wheres.setdefault(unit, record.where[record.invalid > 0][0])
        self.proposals += sweeps * record.accept.size * self.evaluations

    def collect(self, evaluations: int) -> Round:
        ladder = self.ladder
        draws = Draws(
            self.scalars,
            ladder.legs,
            ladder.lanes,
            ladder.betas,
            self.replica_draws,
            self.accept,
            self.outside,
            evaluations,
            self.sweeps,
            self.invalid,
        )

        def join(*parts: Any) -> Any:
            return np.concatenate(parts)

        states = jax.tree.map(join, *self.states)
        snapshots = jax.tree.map(join, *self.snapshots)
        return Round(draws, states, snapshots)
