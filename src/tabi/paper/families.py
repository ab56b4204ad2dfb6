"""The paper's problems as families of panels that differ in a few numbers.

One program then runs all of them side by side. A test compares each panel with its `Problem`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tabi.engine import Specification
from tabi.kernels import RandomWalk
from tabi.kernels.metric import DiagonalMetric
from tabi.paper.problems import Problem, banana, gaussian
from tabi.paths import AbstractPath
from tabi.posterior import Posterior
from tabi.references import Prior
from tabi.target import Target
from tabi.transforms import box

# Standard deviations of the paper's random walks, by dimension.
WALKS = {10: math.sqrt(0.1225), 25: math.sqrt(0.04), 50: math.sqrt(0.01)}
NEST_WALKS = {10: 1.0, 25: math.sqrt(0.09), 50: math.sqrt(0.01)}
BANANA_WALK = math.sqrt(3.0)


@dataclass(frozen=True, eq=False)
class Family:
    """Problems of one shape.

    Attributes
    ----------
    problems
        One for each panel.
    size
        Length of a position; panels of fewer dimensions leave coordinates at 0.
    parameters
        What the panels differ in, arrays [panel, ...].
    log_prior, log_likelihood, log_f
        Functions of a position and one panel's parameters.
    sample_prior
        `sample_prior(key, parameters) -> position`.
    walk, nest_walk
        Standard deviations of the proposals, [panel, coordinate].
    prior_mass
        The prior's mass where f is not 0.
    """

    problems: tuple[Problem, ...]
    size: int
    parameters: Any
    log_prior: Callable[[Any, Any], Any]
    log_likelihood: Callable[[Any, Any], Any]
    log_f: Callable[[Any, Any], Any]
    sample_prior: Callable[[Any, Any], Any]
    walk: np.ndarray
    nest_walk: np.ndarray
    prior_mass: float = 1.0

    @property
    def log_truth(self) -> np.ndarray:
        """log E f, [panel]."""
        return np.asarray([problem.log_truth for problem in self.problems])

    @property
    def zeros(self) -> bool:
        """Whether f is 0 on part of the posterior."""
        return self.prior_mass < 1

    def specification(
        self, parameters: Any, moves: int, paths: tuple[AbstractPath, ...]
    ) -> Specification:
        """One panel's, inside a compiled program."""
        posterior = Posterior.from_parts(
            lambda x: self.log_prior(x, parameters),
            lambda x: self.log_likelihood(x, parameters),
            lambda key: self.sample_prior(key, parameters),
        )
        target = Target(
            posterior,
            lambda x: self.log_f(x, parameters),
            True,
            (),
            self.size,
            lambda x: x,
            box(None, None, self.size),
            np.dtype(np.float64),
            bases=(Prior(),),
        )
        return Specification(target, RandomWalk(moves=moves, metric=DiagonalMetric()), paths)


def gaussian_family(panels: Sequence[tuple[int, float]]) -> Family:
    """Panels (D, y) of the paper's figure."""
    problems = tuple(gaussian(y, dimension) for dimension, y in panels)
    dimensions = np.asarray([dimension for dimension, _ in panels])
    size = int(dimensions.max())
    used = (np.arange(size) < dimensions[:, None]).astype(float)
    shift = np.asarray([y / math.sqrt(dimension) for dimension, y in panels])
    parameters = {"used": used, "shift": shift}

    def log_normal(x: Any, mean: Any, variance: float, p: Any) -> Any:
        constant = jnp.sum(p["used"]) / 2 * math.log(2 * math.pi * variance)
        return -jnp.sum(p["used"] * (x - mean) ** 2) / (2 * variance) - constant

    return Family(
        problems,
        size,
        parameters,
        log_prior=lambda x, p: log_normal(x, 0.0, 1.0, p),
        log_likelihood=lambda x, p: log_normal(x, -p["shift"], 1.0, p),
        log_f=lambda x, p: log_normal(x, p["shift"], 0.5, p),
        sample_prior=lambda key, p: p["used"] * jax.random.normal(key, (size,)),
        walk=used * np.asarray([WALKS[d] for d in dimensions])[:, None],
        nest_walk=used * np.asarray([NEST_WALKS[d] for d in dimensions])[:, None],
    )


def banana_family() -> Family:
    """The one panel of the paper's table."""
    problem = banana(log=True)
    walk = np.full((1, 2), BANANA_WALK)
    return Family(
        (problem,),
        2,
        np.zeros((1, 0)),
        log_prior=lambda x, _: problem.log_prior(x),
        log_likelihood=lambda x, _: problem.log_likelihood(x),
        log_f=lambda x, _: problem.log_f(x),
        sample_prior=lambda key, _: problem.sample_prior(key),
        walk=walk,
        nest_walk=walk,
        prior_mass=0.5,
    )
