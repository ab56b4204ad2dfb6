"""The prior as a reference: what power posteriors, annealing and nested sampling start from."""

import jax
import numpy as np

from tabi.references.base import AbstractReference, exact_positions
from tabi.target import Target


class Prior(AbstractReference):
    """The prior of `Posterior.from_parts`, which must integrate to one."""

    def log_density(self, target: Target, z: jax.Array) -> jax.Array:
        assert target.posterior.log_prior is not None
        x, log_det = target.transform.forward(z)
        return target.posterior.log_prior(target.unravel(x)) + log_det

    def sample(self, target: Target, random: np.random.Generator, count: int) -> np.ndarray:
        assert target.posterior.sample_prior is not None
        return exact_positions(target, target.posterior.sample_prior, random, count)
