"""From a start position to a tuned ladder whose every rung holds a fair state.

1. *Settle*: all lanes explore their leg's root, the posterior or a base density of the leg's own,
   while the kernel learns its scales. Where f was 0 at all draws of a ladder it goes on looking:
   the support may be rare, and another ladder's particles would be no separate evidence.
2. *Climb*: the particles of each ladder are carried from the root to the leg's end in steps of
   bounded weight variance: reweight and resample within the ladder, move, tune. No ladder
   takes particles of another, so separate starts stay separate evidence.
3. *Place*: the rejections seen on the way give the barrier, the barrier the rungs.
4. *Refine*: rounds with exchange, re-placing rungs and tuning kernels; the last one is the
   pilot that the measurement is sized by.

Nothing adapts after that. Each step is a sequence of frozen rounds (BlackJAX's window
adaptation adapts inside its chains and one chain at a time; here a round of many short lanes
knows its acceptance well enough to jump to the right step).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tabi.draws import Draws, LegSpec
from tabi.engine.climb import Climber, leg_support, root_of
from tabi.engine.effort import Effort
from tabi.engine.ladder import Ladder
from tabi.engine.sampler import Engine, Round
from tabi.schedules import AbstractSchedule, Barrier, barrier_of
from tabi.state import ChainState

# Shares of what is left of the warm-up that one step of the climb and one refinement may cost.
# A kernel whose moves would cost more makes shorter ones: better than a ladder that never stands.
MOST_CLIMB, MOST_REFINE = 1 / 16, 1 / 4

# Share of the budget after which ladders that have not found a leg's support borrow particles.
MOST_SEARCH = 0.2


class OutOfBudget(Exception):
    """The evaluations ended before the ladder stood."""


@dataclass(frozen=True)
class Warm:
    """A frozen ladder with states on it.

    Attributes
    ----------
    ladder, params, states
        Ready for a measuring round; None where no leg's support was ever seen.
    pilot
        Draws of the last warm-up round.
    barriers
        One for each leg of the ladder.
    reached
        Which of the wanted legs it has.
    borrowed
        Ladders that found no state in a leg's support by themselves.
    explored
        Posterior draws that were looked at for a leg's support.
    settled
        Draws of the posterior from before the climb.
    """

    ladder: Ladder | None
    params: Any
    states: ChainState
    pilot: Draws
    barriers: tuple[Barrier, ...]
    reached: tuple[int, ...]
    borrowed: tuple[int, ...]
    explored: int
    settled: Draws


class WarmUp:
    """Carries out the four steps for all legs at once.

    Parameters
    ----------
    engine
        Runs the rounds.
    legs
        What to build ladders for.
    schedule, exchange
        Where the rungs go and whether they exchange.
    alone
        Legs of one lane at beta = 0 that the ladder has besides (posterior draws for R).
    budget
        Evaluations of the whole run; the warm-up gives up after 70% of them.
    effort
        Lengths of its parts.
    """

    def __init__(
        self,
        engine: Engine,
        legs: Sequence[LegSpec],
        schedule: AbstractSchedule,
        exchange: bool,
        alone: Sequence[LegSpec],
        budget: int,
        effort: Effort,
    ) -> None:
        self._engine = engine
        self._kernel = engine.specification.kernel
        self._legs = tuple(legs)
        self._schedule = schedule
        self._exchange = exchange
        self._alone = tuple(alone)
        self._budget = budget
        self._limit = int(0.7 * budget)
        self._effort = effort
        self._explored = 0
        self._particles = max(2, min(effort.particles, 64 // max(1, len(self._legs))))
        # Resampling is the host's work.
        self._random = engine.next_random()

    def run(self, starts: Sequence[ChainState]) -> Warm:
        """Warm up from a state per ladder for every leg (for the posterior where there is none)."""
        settled, params = self._settle(starts)
        self._engine.check_precision(settled)
        particles = self._find_support(settled, params)
        climbers = self._climb(particles, params)
        reached = tuple(i for i, climber in enumerate(climbers) if not climber.stuck)
        borrowed = tuple(sorted(set().union(*(climber.borrowed for climber in climbers))))
        if self._legs and not reached:
            return Warm(
                *(None, params, settled.states, settled.draws, (), (), borrowed),
                *(self._explored, settled.draws),
            )
        ladder, params, states = self._place([climbers[i] for i in reached], settled, params)
        ladder, params, pilot, barriers = self._refine(ladder, params, states)
        return Warm(
            *(ladder, params, pilot.states, pilot.draws, barriers, reached, borrowed),
            *(self._explored, settled.draws),
        )

    def _settle(self, starts: Sequence[ChainState]) -> tuple[Round, Any]:
        ladder, copies = self._root_lanes(), self._particles
        states = jax.tree.map(
            lambda *parts: np.concatenate([np.repeat(a[:, None], copies, 1) for a in parts], 1),
            *starts,
        )
        params = self._kernel.init(states.position.shape[-1], ladder.size)
        params, states = self._search(ladder, params, states)
        groups = _same_density(ladder)
        lengths = list(self._effort.settle)
        while True:
            sweeps = lengths.pop(0)
            settled = self._run("settle", ladder, params, states, sweeps)
            states = settled.states
            params = self._tune(params, settled, groups)
            if not lengths:
                cost = self._engine.cost(ladder, params) * 2 * sweeps
                if (
                    all(_settled(settled.draws, lanes) for lanes in groups)
                    or cost > 0.3 * self._left()
                ):
                    return settled, params
                lengths.append(2 * sweeps)

    def _search(self, ladder: Ladder, params: Any, states: ChainState) -> tuple[Any, ChainState]:
        """Find the order of magnitude of each root's scales around the start."""
        groups = _same_density(ladder)
        shrunk, found = np.zeros(len(groups), bool), np.zeros(len(groups), bool)
        for _ in range(16):
            round_ = self._run("search", ladder, params, states, self._effort.search)
            states = round_.states
            accept = np.asarray([round_.draws.accept[lanes].mean() for lanes in groups])
            # Above 0.98 the scale may be far too small; but not once a larger one has failed.
            found |= (0.5 < accept) & ((accept < 0.98) | shrunk)
            if np.all(found):
                break
            shrunk |= accept <= 0.5
            searched = self._kernel.search(params, _spread(accept, groups))
            kept = _spread(found, groups) > 0
            params = jax.tree.map(
                lambda new, old, kept=kept: _put(new, kept, old[kept], 0), searched, params
            )
        return params, states

    @property
    def _own_lanes(self) -> list[np.ndarray]:
        """The lanes of each leg while its particles are still one density's."""
        copies = self._particles
        return [np.arange(i * copies, (i + 1) * copies) for i in range(len(self._legs))]

    def _find_support(self, settled: Round, params: Any) -> list[ChainState]:
        """Root states of each leg, [ladder, particle, ...], from further rounds where needed.

        A ladder keeps the states of the round in which most of them were in the leg's support.
        """
        particles = [_flatten(settled.snapshots, lanes) for lanes in self._own_lanes]
        self._explored = settled.draws.scalars.log_pi.size
        while self._legs:
            seen = [
                leg_support(leg, states) for leg, states in zip(self._legs, particles, strict=True)
            ]
            found = np.asarray([inside.sum(1) for inside in seen]).reshape(len(self._legs), -1)
            if np.all(found > 0):
                return particles
            # Without any state with f != 0 there is nothing else to spend the budget on.
            share = MOST_SEARCH if np.any(found) else 1.0
            left = int(share * self._budget) - self._engine.tally.evaluations
            ladder = self._root_lanes()
            most = left // self._engine.cost(ladder, params)
            if most < 2:
                return particles
            sweeps = min(2 * self._engine.specification.slots, most)
            settled = self._engine.run("explore", ladder, params, settled.states, sweeps)
            self._explored += settled.draws.scalars.log_pi.size
            for i, lanes in enumerate(self._own_lanes):
                new = _flatten(settled.snapshots, lanes)
                better = leg_support(self._legs[i], new).sum(1) > found[i]
                particles[i] = _exchange_ladders(particles[i], new, better)
        return particles

    def _root_lanes(self) -> Ladder:
        roots = [root_of(leg) for leg in self._legs or self._alone[:1]]
        return Ladder.parallel(roots, [0.0] * len(roots), self._particles)

    def _climb(self, particles: Sequence[ChainState], params: Any) -> list[Climber]:
        copies, lanes = self._particles, self._own_lanes
        climbers = []
        for leg, places, states in zip(self._legs, lanes, particles, strict=True):
            climber = Climber(leg, self._random, states)
            climber.stuck = not leg_support(leg, states).any()
            climber.note(_take(params, places[:1]))
            climbers.append(climber)
        while not all(climber.done for climber in climbers):
            states = [climber.advance(copies) for climber in climbers]
            ladder = Ladder.parallel(
                [climber.spec() for climber in climbers], [c.beta for c in climbers], copies
            )
            joined = jax.tree.map(lambda *parts: np.concatenate(parts, 1), *states)
            params = self._afford(ladder, params, self._effort.climb, MOST_CLIMB)
            moved = self._run("climb", ladder, params, joined, self._effort.climb)
            params = self._tune(params, moved, lanes)
            for climber, places in zip(climbers, lanes, strict=True):
                climber.states = _flatten(moved.snapshots, places)
                climber.note(_take(params, places[:1]))
        return climbers

    def _place(
        self, climbers: Sequence[Climber], settled: Round, params: Any
    ) -> tuple[Ladder, Any, ChainState]:
        barriers = [climber.barrier() for climber in climbers]
        betas = [self._schedule.betas(b, self._schedule.rungs(b)) for b in barriers]
        legs = [*(climber.leg for climber in climbers), *self._alone]
        rungs = [*betas, *([np.zeros(1)] * len(self._alone))]
        ladder = Ladder.build(legs, rungs, exchange=self._exchange)
        # Lanes of single posterior rungs take the settled states; the legs overwrite theirs.
        states = jax.tree.map(lambda a: np.repeat(a[:, :1], ladder.size, 1), settled.states)
        params = jax.tree.map(lambda a: np.repeat(a[:1], ladder.size, 0), params)
        for climber, barrier, places, b in zip(
            climbers, barriers, ladder.lanes, betas, strict=False
        ):
            found, tuned = climber.populate(barrier, b)
            states = jax.tree.map(lambda a, new, p=places: _put(a, p, new, 1), states, found)
            params = jax.tree.map(lambda a, new, p=places: _put(a, p, new, 0), params, tuned)
        return ladder, params, states

    def _refine(
        self, ladder: Ladder, params: Any, states: ChainState
    ) -> tuple[Ladder, Any, Round, tuple[Barrier, ...]]:
        count = len(ladder.legs) - len(self._alone)
        lanes = [np.asarray([lane]) for lane in range(ladder.size)]
        pilot, barriers = None, ()
        for sweeps in self._effort.refine:
            if pilot is not None:
                ladder = self._replace(ladder, barriers)
            params = self._afford(ladder, params, sweeps, MOST_REFINE)
            pilot = self._run("refine", ladder, params, states, sweeps)
            states = pilot.states
            barriers = tuple(barrier_of(pilot.draws.leg(i)) for i in range(count))
            params = self._tune(params, pilot, lanes, _neighbours(ladder))
        assert pilot is not None
        return ladder, params, pilot, barriers

    def _replace(self, ladder: Ladder, barriers: tuple[Barrier, ...]) -> Ladder:
        """The same lanes with rungs at equal steps of the newest barriers."""
        betas = [
            self._schedule.betas(barrier, len(old))
            for barrier, old in zip(barriers, ladder.betas, strict=False)
        ]
        return Ladder(
            ladder.legs,
            (*betas, *ladder.betas[len(betas) :]),
            ladder.lanes,
            ladder.exchange,
        )

    def _run(
        self, phase: str, ladder: Ladder, params: Any, states: ChainState, sweeps: int
    ) -> Round:
        if self._engine.cost(ladder, params) * sweeps > self._left():
            raise OutOfBudget
        return self._engine.run(phase, ladder, params, states, sweeps)

    def _afford(self, ladder: Ladder, params: Any, sweeps: int, share: float) -> Any:
        """Parameters with which so many sweeps cost about this share of what is left, or less."""
        moves = self._engine.ladders * ladder.size * sweeps
        return self._kernel.limit(params, int(share * self._left() / moves))

    def _left(self) -> int:
        return self._limit - self._engine.tally.evaluations

    def _tune(
        self,
        params: Any,
        round_: Round,
        groups: Sequence[np.ndarray],
        neighbours: Sequence[Sequence[int]] | None = None,
    ) -> Any:
        """Tune lanes that share a density together; a rung borrows its neighbours' draws.

        Neighbouring rungs overlap, so their draws, each centred at its own rung's mean, have
        nearly the same scales; three times the draws make a better metric.
        """
        size = round_.draws.accept.shape[0]
        accept, outside = round_.draws.accept.mean(1), round_.draws.outside.mean(1)
        centred = [_centred(round_.snapshots.position, lane) for lane in range(size)]
        positions: list[np.ndarray] = [np.zeros(0)] * size
        for group in groups:
            pooled = np.concatenate([round_.snapshots.position[:, lane] for lane in group], 1)
            pooled = pooled.reshape(-1, pooled.shape[-1])
            pooled = pooled - pooled.mean(0)
            accept[group], outside[group] = accept[group].mean(), outside[group].mean()
            for lane in group:
                positions[lane] = pooled
        if neighbours is not None:
            positions = [np.concatenate([centred[j] for j in near]) for near in neighbours]
        return self._kernel.tune(params, accept, outside, positions)


def _same_density(ladder: Ladder) -> list[np.ndarray]:
    """The lanes of each density at the roots; that of the posterior is one for all legs."""
    groups: dict[Any, list[np.ndarray]] = {}
    for leg, lanes in zip(ladder.legs, ladder.lanes, strict=True):
        groups.setdefault(getattr(leg.path, "start", leg.path), []).append(lanes)
    return [np.concatenate(lanes) for lanes in groups.values()]


def _spread(values: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray:
    """A value for each group -> a value for each of its lanes."""
    spread = np.zeros(sum(map(len, groups)))
    for value, lanes in zip(values, groups, strict=True):
        spread[lanes] = value
    return spread


def _settled(draws: Draws, lanes: np.ndarray) -> bool:
    """Whether ladders and halves of the round agree on a root's log density: split R-hat < 1.1.

    The lanes of a ladder are pooled, for they left the same start.
    """
    leg = next(leg for leg, own in zip(draws.legs, draws.lanes, strict=True) if own[0] in lanes)
    one = draws.scalars.component(leg.component)
    log_density = leg.path.log_density(jax.tree.map(lambda a: a[lanes], one), 0.0)
    half = log_density.shape[2] // 2
    parts = np.stack([log_density[:, :, :half], log_density[:, :, half : 2 * half]])
    within = parts.var(axis=(1, 3)).mean()
    between = parts.mean(axis=(1, 3)).var()
    return bool(between <= 0.2 * within)


def _neighbours(ladder: Ladder) -> list[list[int]]:
    near: list[set[int]] = [{lane} for lane in range(ladder.size)]
    for lanes in ladder.lanes:
        for lower, upper in zip(lanes[:-1], lanes[1:], strict=True):
            near[lower].add(int(upper))
            near[upper].add(int(lower))
    return [sorted(lanes) for lanes in near]


def _centred(positions: np.ndarray, lane: int) -> np.ndarray:
    flat = positions[:, lane].reshape(-1, positions.shape[-1])
    return flat - flat.mean(0)


def _flatten(snapshots: ChainState, lanes: np.ndarray) -> ChainState:
    """[ladder, lane, slot, ...] of some lanes -> [ladder, particle, ...]."""
    return jax.tree.map(
        lambda a: a[:, lanes].reshape(a.shape[0], len(lanes) * a.shape[2], *a.shape[3:]), snapshots
    )


def _exchange_ladders(old: ChainState, new: ChainState, chosen: np.ndarray) -> ChainState:
    """The states of some ladders from `new`, of the others from `old`.

    Rounds may differ in length; the states of the shorter one are repeated to fill the room.
    """
    sizes = old.position.shape[1], new.position.shape[1]
    olds, news = (np.arange(max(sizes)) % size for size in sizes)

    def pick(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        mask = chosen.reshape(-1, *[1] * (a.ndim - 1))
        return np.where(mask, b[:, news], a[:, olds])

    return jax.tree.map(pick, old, new) if chosen.any() else old


def _take(params: Any, lanes: np.ndarray) -> Any:
    return jax.tree.map(lambda a: a[lanes], params)


def _put(array: np.ndarray, places: np.ndarray, new: np.ndarray, axis: int) -> np.ndarray:
    array = array.copy()
    array[(slice(None),) * axis + (places,)] = new
    return array
