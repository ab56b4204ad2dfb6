"""Independent draws from a reference, evaluated in batches on the run's workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax

from tabi.engine import Engine, Specification, Unit
from tabi.kernels import AbstractKernel, RandomWalk
from tabi.methods.base import Question
from tabi.methods.ladder_run import POSTERIOR
from tabi.paths import AbstractPath
from tabi.references import AbstractReference
from tabi.runtime.workers import Workers
from tabi.state import Scalars
from tabi.target import AbstractBase

# Positions evaluated by one task.
BATCH = 4096

EVALUATES_ONLY = RandomWalk()


@contextmanager
def open_engine(
    question: Question,
    bases: tuple[AbstractBase, ...],
    kernel: AbstractKernel = EVALUATES_ONLY,
    paths: tuple[AbstractPath, ...] = (POSTERIOR,),
) -> Iterator[Engine]:
    """An engine for particles; without a kernel it only evaluates the model."""
    specification = Specification(question.target, kernel, paths)
    with Workers(Unit(specification), question.executor) as workers:
        yield Engine(
            specification,
            question.ladders,
            question.key,
            workers,
            lambda phase, done: question.notify(phase, done, None, ""),
            question.fatal_invalid,
            bases,
        )


@dataclass(frozen=True)
class IndependentDraws:
    """Draws of one reference and the model's scalars there."""

    engine: Engine
    reference: AbstractReference

    def draw(self, phase: str, count: int) -> Scalars:
        """Scalars of `count` fresh draws, [1, draw]: one stream, no order in time."""
        target = self.engine.specification.target
        positions = self.reference.sample(target, self.engine.next_random(), count)
        scalars = self.engine.evaluate(phase, positions, BATCH)
        return jax.tree.map(lambda a: a[None], scalars)
