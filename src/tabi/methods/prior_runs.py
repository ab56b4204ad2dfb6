"""Three constants from the prior: where annealing and nested sampling begin.

    I = (c+ - c-) / Z,    c = (prior mass where the target is positive)
                              x (its ratio to the prior restricted there)

A restricted prior is sampled by drawing again, and its mass is the share of the draws inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np

from tabi.draws import LegSpec
from tabi.engine import Engine
from tabi.engine.climb import leg_support
from tabi.estimators import Estimate, fraction
from tabi.methods.base import Question
from tabi.methods.independent import BATCH
from tabi.paths import Base, FullPosterior, GeometricPath, TimesF
from tabi.references import Prior
from tabi.state import ChainState

TO_POSTERIOR = GeometricPath(Base(0), FullPosterior())
TO_F = {sign: GeometricPath(Base(0), TimesF(sign)) for sign in (1, -1)}
PATHS = (TO_POSTERIOR, *TO_F.values())

# Prior draws in search of a target's support, for each start that is wanted.
MOST_TRIES = 100


@dataclass(frozen=True)
class Constant:
    """Z (sign 0), or c+ or c- of a component of f, with a population to find it by.

    Attributes
    ----------
    leg
        From the prior to the target.
    sign
        Of its term in the answer; 0 for Z.
    starts
        Independent draws of the prior where the target is positive, [start, ...].
    mass
        The prior's mass there.
    """

    leg: LegSpec
    sign: int
    starts: ChainState
    mass: Estimate

    @property
    def name(self) -> str:
        """For messages."""
        return {0: "Z", 1: "c+", -1: "c-"}[self.sign]

    @property
    def stream(self) -> str:
        """A name for draws that belong to this constant alone."""
        return f"{self.name} of component {self.leg.component}"


def require_prior(question: Question, method: str) -> None:
    """Refuse a posterior whose prior cannot be sampled."""
    posterior = question.target.posterior
    if posterior.log_prior is None or posterior.sample_prior is None:
        raise ValueError(
            f"{method} starts from prior draws, and this posterior has no prior that can be "
            "sampled; make it with tabi.Posterior.from_parts(log_prior, log_likelihood, "
            "sample_prior), or use tabi.GTI(), which starts from the posterior"
        )


def open_constants(
    engine: Engine, question: Question, for_z: int, for_f: int, most: int
) -> list[Constant]:
    """Populations for Z and, one after the other, for the parts of every component of f.

    The parts of a component share its draws: those with f > 0 serve c+, those with f < 0 c-.

    Parameters
    ----------
    engine, question
        The run.
    for_z, for_f
        Starts for Z (0 for the evidence, whose Z is the prior's own) and for all of f.
    most
        Evaluations at which prior draws end, those of the run so far included; a population
        that has not found its starts by then stays smaller.
    """
    components = question.target.components
    constants = []
    if for_z and not question.evidence:
        left = most - engine.tally.evaluations - for_f
        constants += _populate(engine, [LegSpec(TO_POSTERIOR)], [0], for_z, left)
    share = for_f // components
    for component in range(components):
        legs = [LegSpec(TO_F[sign], component) for sign in (1, -1)]
        spent = engine.tally.evaluations
        left = most - spent - share * (components - 1 - component)
        constants += _populate(engine, legs, [1, -1], share, max(share, left))
    return constants


def _populate(
    engine: Engine, legs: Sequence[LegSpec], signs: Sequence[int], count: int, most: int
) -> list[Constant]:
    """Draw the prior until every leg that was seen has its part of `count` starts."""
    target, prior = engine.specification.target, Prior()
    states, inside = None, np.zeros((len(legs), 0), bool)
    limit = min(most, MOST_TRIES * count)
    while True:
        positions = prior.sample(target, engine.next_random(), count)
        more = engine.states("prior", positions, BATCH)
        states = more if states is None else jax.tree.map(_join, states, more)
        new = [leg_support(leg, jax.tree.map(lambda a: a[None], more))[0] for leg in legs]
        inside = np.concatenate([inside, np.asarray(new)], 1)
        seen = inside.any(1)
        part = max(1, count // max(1, int(seen.sum())))
        if inside.shape[1] + count > limit or (seen.any() and np.all(inside[seen].sum(1) >= part)):
            break
    constants = []
    for leg, sign, own in zip(legs, signs, inside, strict=True):
        if own.any():
            chosen = np.flatnonzero(own)[:part]
            starts = jax.tree.map(lambda a, c=chosen: a[c], states)
            name = f"prior draws for {f'f, component {leg.component}' if sign else 'Z'}"
            constants.append(Constant(leg, sign, starts, fraction(own[None], name)))
    return constants


def _join(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a, b])
