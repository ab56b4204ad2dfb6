"""The paper's algorithms with its settings, for all panels and repetitions side by side.

`X.as_published(...)` runs one repetition of one problem. Here the same moves, densities and
weights are batched over panels and repetitions, for a figure needs a hundred of each; and every
budget E is read off one run: prefixes of its chains and of its particles. A test compares both.

Every function returns estimates of log E f, [budget, panel, repetition].
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tabi.engine.anneal import Anneal, anneal
from tabi.engine.nest import Nest, nest
from tabi.kernels.base import evaluate
from tabi.kernels.random_walk import RandomWalkParams
from tabi.methods.fixed_run import NOWHERE
from tabi.methods.nested_sampling import contributions
from tabi.paper.families import Family
from tabi.paths import Base, FullPosterior, GeometricPath, Restricted, TimesF
from tabi.references import Prior
from tabi.runtime.keys import chain_keys
from tabi.schedules import PoweredFraction
from tabi.state import ChainState

TO_F = GeometricPath()
NONZERO = GeometricPath(Restricted(), TimesF())
FROM_PRIOR = (GeometricPath(Base(0), FullPosterior()), GeometricPath(Base(0), TimesF()))

# Chains on pi and on |f| pi.
ENDS = ((0, 0.0), (0, 1.0))

# Called with the share of the work that is done.
Report = Callable[[float], None]

# Steps of one compiled call: few sizes, so that few programs are compiled.
STEPS = (10_000, 1_000, 100, 10, 1)
# All chains begin at the problem's start, which the paper does not name, and one part in so many
# of each is left out as they find their way (but paid for). Where they are left in, it is the start
# that decides: log f is -150 at the banana's, and a few such draws outweigh ten thousand.
LEFT_OUT = 10
# Annealed particles of one call, over repetitions.
PARTICLES = 20_000
# Evaluations of a move, known to the compiler: a loop of unknown length is slow on a GPU.
ONCE: Any = 1
# Iterations of nested sampling of one call.
ITERATIONS = 25_000


def chains_at_ends(
    family: Family, budgets: Sequence[int], runs: int, seed: int, report: Report
) -> dict[str, np.ndarray]:
    """SNIS1 and SNIS2: all E draws of a chain on pi, and of one on |f| pi."""
    chains = _Chains(family, ENDS, runs, seed)
    windows = [(budget // LEFT_OUT, budget) for budget in budgets]
    stops = sorted({stop for window in windows for stop in window})
    between, drawn = {}, 0
    for stop in stops:
        # Sums from stop to stop: a difference of whole sums loses an end that the start outweighs.
        total = np.full((2, len(family.problems), runs), -np.inf)
        for steps in _pieces(stop - drawn):
            log_f = chains.trace(steps)
            both = jnp.stack([log_f[..., 0], -log_f[..., 1]])
            more = jax.scipy.special.logsumexp(both, axis=1)
            total, drawn = np.logaddexp(total, np.asarray(more)), drawn + steps
            report(drawn / stops[-1])
        between[stop] = total
    found: dict[str, list] = {"SNIS1": [], "SNIS2": []}
    for first, last in windows:
        inside = [log_sum for stop, log_sum in between.items() if first < stop <= last]
        log_means = np.logaddexp.reduce(inside) - math.log(last - first)
        found["SNIS1"].append(log_means[0])
        found["SNIS2"].append(-log_means[1])
    return {name: np.stack(values) for name, values in found.items()}


def bridge(
    family: Family, budgets: Sequence[int], runs: int, seed: int, report: Report
) -> np.ndarray:
    """BS: E/2 draws of a chain on pi and of one on |f| pi."""
    chains, kept, drawn, found = _Chains(family, ENDS, runs, seed), [], 0, []
    for budget in budgets:
        for steps in _pieces(budget // 2 - drawn):
            # Half the memory, and an error far below the draws' own.
            kept.append(chains.trace(steps).astype(jnp.float32))
            drawn += steps
            report(drawn / (max(budgets) // 2))
        kept = [jnp.concatenate(kept)]
        found.append(_bridge(kept[0][drawn // LEFT_OUT :]))
    return np.stack(found)


def _bridge(log_f: jax.Array) -> np.ndarray:
    """log of the optimal bridge's root for equally many draws at both ends, [panel, run].

    mean over pi of s(log f - c) = mean over |f| pi of s(c - log f), s the logistic function:
    the fixed point of the appendix's iteration, found by bisection.
    """
    low, high = (
        np.asarray(reduce(log_f, axis=(0, 3)), np.float64) for reduce in (jnp.min, jnp.max)
    )
    for _ in range(50):
        middle = (low + high) / 2
        above = np.asarray(_imbalance(log_f, jnp.asarray(middle))) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return (low + high) / 2


@jax.jit
def _imbalance(log_f: jax.Array, c: jax.Array) -> jax.Array:
    inflow = jnp.mean(jax.nn.sigmoid(log_f[..., 0] - c), axis=0, dtype=jnp.float64)
    return inflow - jnp.mean(jax.nn.sigmoid(c - log_f[..., 1]), axis=0, dtype=jnp.float64)


def thermodynamic(
    family: Family, budgets: Sequence[int], runs: int, seed: int, report: Report, rungs: int
) -> np.ndarray:
    """GTI: the trapezoid over `rungs` powered fractions, one chain a rung.

    Where f has zeros the rungs are restricted to f != 0 and a chain more, on pi, gives R.
    """
    betas = PoweredFraction(rungs).betas(NOWHERE, rungs)
    path = 1 if family.zeros else 0
    lanes = [(path, beta) for beta in betas] + ([(0, 0.0)] if family.zeros else [])
    chains = _Chains(family, tuple(lanes), runs, seed)

    def draws(budget: int) -> int:
        # The start is each chain's first evaluation.
        return max(0, budget // len(lanes) - 1)

    windows = [(draws(budget // LEFT_OUT), draws(budget)) for budget in budgets]
    stops = sorted({stop for window in windows for stop in window})
    total = np.zeros((2, len(family.problems), runs, len(lanes)))
    totals, drawn, found = {0: total}, 0, []
    for stop in stops:
        for steps in _pieces(stop - drawn):
            total, drawn = total + np.stack(chains.totals(steps)), drawn + steps
            report(drawn / stops[-1])
        totals[stop] = total
    for first, last in windows:
        sums, counts = totals[last] - totals[first]
        with np.errstate(divide="ignore", invalid="ignore"):
            integrand = (sums / counts)[..., :rungs]
            eta = np.sum(np.diff(betas) * (integrand[..., 1:] + integrand[..., :-1]) / 2, -1)
            share = counts[..., -1] / (last - first)
            found.append(eta + (np.log(share) if family.zeros else 0.0))
    return np.stack(found)


class _Chains:
    """Random-walk chains for every panel, repetition and lane (a path's number and a beta)."""

    def __init__(
        self, family: Family, lanes: tuple[tuple[int, float], ...], runs: int, seed: int
    ) -> None:
        self._family, self._lanes, self._runs = family, lanes, runs
        panels = len(family.problems)
        self._words = _words(seed, (panels, runs))
        self._first = 0
        # A cache of its own: one on the class would keep all chains alive.
        self._program = functools.cache(self._compiled)
        starts = np.zeros((panels, runs * len(lanes), family.size))
        self._states = jax.jit(jax.vmap(self._evaluate))(family.parameters, starts)

    def trace(self, steps: int) -> jax.Array:
        """log f along the next steps, [step, panel, run, lane]."""
        return self._advance(steps, True)

    def totals(self, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Sums of the finite log f over the next steps and their number, [panel, run, lane]."""
        return self._advance(steps, False)

    def _advance(self, steps: int, keep: bool) -> Any:
        program = self._program(steps, keep)
        first = np.uint32(self._first)
        self._states, out = program(
            self._family.parameters, self._family.walk, self._words, self._states, first
        )
        self._first += steps
        shape = (len(self._family.problems), self._runs, len(self._lanes))
        if keep:
            return jnp.moveaxis(out, 0, 1).reshape(steps, *shape)
        return tuple(np.asarray(a).reshape(shape) for a in out)

    def _compiled(self, steps: int, keep: bool) -> Any:
        def one(p: Any, walk: Any, words: Any, states: Any, first: Any) -> Any:
            return self._steps(p, walk, words, states, first, steps, keep)

        return jax.jit(jax.vmap(one, in_axes=(0, 0, 0, 0, None)))

    @property
    def _paths(self) -> tuple[GeometricPath, ...]:
        return (TO_F, NONZERO) if self._family.zeros else (TO_F,)

    def _evaluate(self, parameters: Any, positions: jax.Array) -> ChainState:
        target = self._family.specification(parameters, 1, self._paths).target
        return jax.vmap(lambda z: evaluate(target, z, False))(positions)

    def _steps(
        self, p: Any, walk: Any, words: Any, states: Any, first: Any, steps: int, keep: bool
    ) -> Any:
        specification = self._family.specification(p, 1, self._paths)
        params = RandomWalkParams(jnp.ones(()), walk)
        path, beta = (np.tile(a, self._runs) for a in zip(*self._lanes, strict=True))

        def move(key: Any, state: Any, beta: Any, path: Any) -> ChainState:
            def log_density(scalars: Any) -> jax.Array:
                return specification.log_density(scalars, beta, path, 0)

            target, once = specification.target, ONCE
            return specification.kernel.step(key, state, target, log_density, params, once)[0]

        def step(carry: Any, i: jax.Array) -> Any:
            states, sums, counts = carry
            keys = chain_keys(words, len(self._lanes), first + i)
            states = jax.vmap(move)(keys, states, jnp.asarray(beta), jnp.asarray(path))
            log_f = states.scalars.log_abs_f[:, 0]
            finite = jnp.isfinite(log_f)
            sums, counts = sums + jnp.where(finite, log_f, 0.0), counts + finite
            return (states, sums, counts), log_f if keep else None

        zeros = jnp.zeros(len(self._lanes) * self._runs)
        begin = (states, zeros, zeros)
        (states, *totals), log_f = jax.lax.scan(step, begin, jnp.arange(steps, dtype=jnp.uint32))
        return states, log_f if keep else tuple(totals)


def annealed(
    family: Family, budgets: Sequence[int], runs: int, seed: int, report: Report, rungs: int
) -> np.ndarray:
    """TAAnIS: half the particles for |f| pi, half for pi; 5 Metropolis steps at each rung."""
    moves = 5
    halves = [budget // ((rungs - 1) * moves + rungs - 1) // 2 for budget in budgets]
    total = runs * max(halves)
    size = min(PARTICLES, total)
    betas = PoweredFraction(rungs).betas(NOWHERE, rungs)
    program = jax.jit(
        jax.vmap(functools.partial(_anneal_panel, family, betas, moves), in_axes=(0, 0, 0))
    )
    parts = []
    for piece in range(-(-total // size)):
        words = _words(seed, (len(family.problems), 2, size), piece)
        log_weights = program(family.parameters, family.walk, words)
        parts.append(np.asarray(log_weights))
        report((piece + 1) * size / total)
    # [panel, side, particle] -> [panel, side, particle of a run, run]
    joined = np.concatenate(parts, 2)[..., :total]
    weights = joined.reshape(*joined.shape[:2], max(halves), runs)
    found = []
    for half in halves:
        log_means = np.logaddexp.reduce(weights[:, :, :half], axis=2) - math.log(half)
        found.append(log_means[:, 1] - log_means[:, 0] + math.log(family.prior_mass))
    return np.stack(found)


def _anneal_panel(
    family: Family, betas: np.ndarray, moves: int, parameters: Any, walk: Any, words: Any
) -> jax.Array:
    """log weights of one panel's particles, [side, particle]; side 0 is pi, side 1 |f| pi."""
    specification = family.specification(parameters, moves, FROM_PRIOR)

    def side(words: jax.Array, path: jax.Array) -> jax.Array:
        starts = _prior_states(family, specification, parameters, words, path)
        factor = jnp.broadcast_to(walk, (len(betas), family.size))
        params = RandomWalkParams(jnp.ones(len(betas)), factor)
        task = Anneal(
            words, starts, jnp.asarray(betas), params, len(betas), path, 0, moves, (Prior(),)
        )
        return anneal(specification, task).log_weight

    return jax.vmap(side)(words, jnp.arange(2))


def _prior_states(
    family: Family, specification: Any, parameters: Any, words: jax.Array, path: jax.Array
) -> ChainState:
    """Prior draws, for |f| pi restricted to f != 0 by drawing again, [particle, ...]."""
    target = specification.target

    def one(words: jax.Array) -> ChainState:
        key = jax.random.fold_in(jax.random.wrap_key_data(words, impl="threefry2x32"), 1)

        def draw(attempt: jax.Array) -> ChainState:
            x = family.sample_prior(jax.random.fold_in(key, attempt), parameters)
            return evaluate(target, x.astype(target.dtype), False)

        def outside(carry: Any) -> jax.Array:
            return (path == 1) & jnp.isneginf(carry[1].scalars.log_abs_f[0])

        def again(carry: Any) -> Any:
            return carry[0] + 1, draw(carry[0] + 1)

        if not family.zeros:
            return draw(jnp.uint32(0))
        return jax.lax.while_loop(outside, again, (jnp.uint32(0), draw(jnp.uint32(0))))[1]

    return jax.vmap(one)(words)


def nested(
    family: Family, budgets: Sequence[int], runs: int, seed: int, report: Report
) -> np.ndarray:
    """TANS: 250 iterations for each live point, 20 Metropolis steps each; a run for each side."""
    shrinkages, moves, found = 250, 20, []
    halves = [budget // (1 + shrinkages * moves) // 2 for budget in budgets]
    done = 0
    for number, points in enumerate(halves):
        begin, go_on = _nest_programs(family, points, moves)
        words = _words(seed, (len(family.problems), 2, runs), number)
        live = begin(family.parameters, words)
        dead, first = [], 0
        while first < shrinkages * points:
            count = min(ITERATIONS, shrinkages * points - first)
            live, log_likelihood, more = go_on(
                family.parameters, family.nest_walk, words, live, np.uint32(first), count
            )
            dead.append(np.asarray(more))
            first, done = first + count, done + count
            report(done / (shrinkages * sum(halves)))
        # [panel, side, iteration, run] and [panel, side, run, point]
        taken = np.moveaxis(np.concatenate(dead, 2), 2, 0)
        left = np.moveaxis(np.asarray(log_likelihood), 3, 0)
        log_c = np.logaddexp(*(np.logaddexp.reduce(t, axis=0) for t in contributions(taken, left)))
        found.append(log_c[:, 1] - log_c[:, 0] + math.log(family.prior_mass))
    return np.stack(found)


def _nest_programs(family: Family, points: int, moves: int) -> tuple[Any, Any]:
    """Draw live points [panel, side, run, point]; replace the worst so many times."""

    def begin(parameters: Any, words: jax.Array) -> ChainState:
        specification = family.specification(parameters, moves, FROM_PRIOR)

        def run(words: jax.Array, path: jax.Array) -> ChainState:
            number = jnp.arange(points, dtype=jnp.uint32)
            each = jnp.stack([words[0] + number, jnp.broadcast_to(words[1], (points,))], -1)
            return _prior_states(family, specification, parameters, each, path)

        sides = jax.vmap(jax.vmap(run, in_axes=(0, None)))
        return sides(words, jnp.arange(2))

    @functools.partial(jax.jit, static_argnums=5)
    def go_on(p: Any, walk: Any, words: Any, live: Any, first: Any, count: int) -> Any:
        def panel(p: Any, walk: Any, words: Any, live: Any) -> Any:
            specification = family.specification(p, moves, FROM_PRIOR)

            def side(words: Any, live: Any, path: Any) -> Any:
                runs = words.shape[0]
                factor = jnp.broadcast_to(walk, (runs, family.size))
                params = RandomWalkParams(jnp.ones(runs), factor)
                room = np.zeros(count, bool)
                task = Nest(words, live, params, first, count, room, path, 0, moves, (Prior(),))
                result = nest(specification, task)
                return result.live, result.log_likelihood, result.dead

            return jax.vmap(side)(words, live, jnp.arange(2))

        return jax.vmap(panel)(p, walk, words, live)

    return jax.jit(jax.vmap(begin)), go_on


def _words(seed: int, shape: tuple[int, ...], piece: int = 0) -> np.ndarray:
    """Raw keys, [*shape, 2]."""
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, piece))))
    return random.integers(0, 2**32, (*shape, 2), dtype=np.uint32)


def _pieces(steps: int) -> list[int]:
    """A number of steps as a sum of the compiled sizes."""
    pieces = []
    for size in STEPS:
        pieces += [size] * (steps // size)
        steps %= size
    return pieces
