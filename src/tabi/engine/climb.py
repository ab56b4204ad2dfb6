"""One leg's particles on their way from its root to its end."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from tabi.draws import LegDraws, LegSpec
from tabi.paths import AbstractPath, Base, FullPosterior, GeometricPath
from tabi.schedules import Barrier, barrier_of, effective_share
from tabi.schedules.base import FIRST_STEP
from tabi.state import ChainState, Scalars

POSTERIOR = GeometricPath()

# log of the factor on the posterior's density, at the best of all particles, below which they stand
# still while the path falls away from them: the level is flat there.
PLATEAU = -1e5

# Relative effective size of the weights that one step of the climb must keep.
KEEP = 0.4


def root_of(leg: LegSpec) -> LegSpec:
    """What a leg's particles sample first, at beta = 0: its own base density or the posterior."""
    based = isinstance(getattr(leg.path, "start", None), Base)
    return leg if based else LegSpec(POSTERIOR, leg.component)


@dataclass(frozen=True)
class Stage:
    """A leg's particles at one beta: states [ladder, particle, ...] and kernel parameters."""

    beta: float
    states: ChainState
    params: Any


@dataclass
class Climber:
    """Reweights and resamples a leg's particles, ladder by ladder.

    Attributes
    ----------
    leg
        Where the particles are going.
    random
        The host's stream for resampling.
    path, beta
        The density they sample now; at first the leg's root.
    states
        Its draws, [ladder, particle, ...].
    stages
        What was passed on the way.
    stuck
        Whether no particle of any ladder was in the support of the leg, or can go on to it.
    borrowed
        Ladders that had to start from another ladder's particles.
    """

    leg: LegSpec
    random: np.random.Generator
    states: ChainState
    path: AbstractPath = field(init=False)
    beta: float = 0.0
    stages: list[Stage] = field(default_factory=list)
    stuck: bool = False
    borrowed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.path = root_of(self.leg).path

    @property
    def begun(self) -> bool:
        """Whether the particles follow the leg's own path yet."""
        starts_at_posterior = getattr(self.leg.path, "start", None) == FullPosterior()
        return self.path == self.leg.path or (starts_at_posterior and self.path == POSTERIOR)

    @property
    def done(self) -> bool:
        """Whether there is nothing left to climb."""
        return self.stuck or (self.begun and self.beta >= 1)

    def note(self, params: Any) -> None:
        """Remember the present states as a stage of the leg."""
        if self.begun and not (self.stages and self.stages[-1].beta == self.beta):
            self.stages.append(Stage(self.beta, self.states, params))

    def advance(self, copies: int) -> ChainState:
        """Step to the next beta; `copies` states a ladder to go on from."""
        old = self._log_density(self.path, self.beta)
        if not self.done:
            beta = self._next_beta(old)
            if beta is None:
                self.stuck = True
            else:
                self.path, self.beta = self.leg.path, beta
        return self._resample(self._log_density(self.path, self.beta) - old, copies)

    def spec(self) -> LegSpec:
        """What the particles sample now."""
        return LegSpec(self.path, self.leg.component)

    def barrier(self) -> Barrier:
        """The barrier seen between the stages."""
        scalars = [_one(stage.states.scalars, self.leg.component) for stage in self.stages]
        # The stages may differ in length; the common one has draws enough for rejection rates.
        count = min(one.log_pi.shape[1] for one in scalars)
        stacked = jax.tree.map(lambda *parts: np.stack([a[:, :count] for a in parts]), *scalars)
        betas = np.asarray([stage.beta for stage in self.stages])
        return barrier_of(LegDraws(self.leg.path, betas, stacked))

    def populate(self, barrier: Barrier, betas: np.ndarray) -> tuple[ChainState, Any]:
        """States [ladder, rung, ...] and kernel parameters [rung, ...] for these rungs."""
        levels = np.interp(betas, barrier.betas, barrier.cumulative)
        stages = np.asarray([stage.beta for stage in self.stages])
        passed = np.interp(stages, barrier.betas, barrier.cumulative)
        parts, params = [], []
        for beta, level in zip(betas, levels, strict=True):
            # A state of a lower rung may lie outside the support of this one; never above.
            distance = np.abs(passed - level)
            distance[(stages == 0) & (beta > 0)] += 1e-9
            for nearest in np.argsort(distance, kind="stable"):
                stage = self.stages[nearest]
                self.states = stage.states
                weights = self._log_density(self.leg.path, beta) - self._log_density(
                    self.leg.path, stage.beta
                )
                if np.any(np.isfinite(weights), axis=1).all():
                    break
            parts.append(self._resample(weights, 1))
            params.append(stage.params)
        states = jax.tree.map(lambda *a: np.concatenate(a, 1), *parts)
        return states, jax.tree.map(lambda *a: np.concatenate(a), *params)

    def _log_density(self, path: AbstractPath, beta: float) -> np.ndarray:
        return path.log_density(_one(self.states.scalars, self.leg.component), beta)

    def _next_beta(self, old: np.ndarray) -> float | None:
        """The farthest beta whose weights keep an effective share KEEP of the particles.

        Particles outside the leg's support do not count: every beta > 0 loses them alike.
        """
        inside = leg_support(self.leg, self.states)
        if not inside.any():
            return None
        if not self.begun:
            return 0.0

        def share(beta: float) -> float:
            return effective_share((self._log_density(self.leg.path, beta) - old)[inside])

        turn = self.leg.path.turn
        goal = turn if self.beta < turn else 1.0
        if share(goal) >= KEEP:
            return goal
        low, high = np.log(max(self.beta, 1e-12)), np.log(goal)
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if share(np.exp(middle)) >= KEEP else (low, middle)
        # However steep the leg is, a step must get somewhere.
        beta = float(min(1.0, max(np.exp(low), self.beta * 1.001, FIRST_STEP)))
        return beta if share(beta) > 0 and not self._on_plateau(beta) else None

    def _on_plateau(self, beta: float) -> bool:
        """Whether all particles stay where the way to the turn does not begin."""
        if beta >= self.leg.path.turn:
            return False
        gain = self._log_density(self.leg.path, beta) - self._log_density(self.leg.path, 0.0)
        return bool(np.max(gain[np.isfinite(gain)], initial=-np.inf) < PLATEAU)

    def _resample(self, log_weights: np.ndarray, copies: int) -> ChainState:
        chosen = []
        usable = np.any(np.isfinite(log_weights), axis=1)
        for ladder, row in enumerate(log_weights):
            source = ladder
            if not usable[ladder]:
                source = int(self.random.choice(np.flatnonzero(usable)))
                self.borrowed.add(ladder)
                row = log_weights[source]
            w = np.exp(row - row.max())
            # Systematic resampling: a particle of weight above 1/copies is never lost.
            points = (self.random.random() + np.arange(copies)) / copies
            index = np.searchsorted(np.cumsum(w) / w.sum(), points).clip(0, row.size - 1)
            chosen.append((source, index))
        return jax.tree.map(lambda a: np.stack([a[s, i] for s, i in chosen]), self.states)


def leg_support(leg: LegSpec, states: ChainState) -> np.ndarray:
    """Whether each state, [ladder, particle], has positive density right behind a leg's root."""
    return np.isfinite(leg.path.log_density(_one(states.scalars, leg.component), FIRST_STEP))


def _one(scalars: Scalars, component: int) -> Scalars:
    return scalars.component(component)
