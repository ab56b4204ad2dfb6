"""The two numerical examples of the paper (its section 5), with exact answers and exact draws.

Every function takes one unbatched position, an array of shape (dimension,).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Problem:
    """A posterior, a function f, and the answer E[f(x)].

    Attributes
    ----------
    name
        What to call it in a table.
    dimension
        Length of a position.
    log_prior, log_likelihood
        The two factors of the unnormalised posterior.
    init
        A position inside the support.
    f, log_f
        The function and its logarithm (-inf where f = 0).
    log
        Whether `target` is `log_f`, to be passed to `expect` as its `log=`.
    log_truth
        log E[f(x)], exact.
    log_evidence
        log of the integral of prior times likelihood, exact.
    sample_prior
        `sample_prior(key)` is one position.
    sample_posterior
        `sample_posterior(key, n)` is an array of n independent posterior draws.
    """

    name: str
    dimension: int
    log_prior: Function
    log_likelihood: Function
    init: np.ndarray
    f: Function
    log_f: Function
    log_truth: float
    log_evidence: float
    sample_prior: Callable[[Any], jax.Array]
    sample_posterior: Callable[[Any, int], jax.Array]
    log: bool = False

    @property
    def truth(self) -> float:
        """E[f(x)], exact."""
        return math.exp(self.log_truth)

    @property
    def target(self) -> Function:
        """What to hand to `expect` together with `log=self.log`."""
        return self.log_f if self.log else self.f

    def log_density(self, x: Any) -> Any:
        """Log of the unnormalised posterior."""
        return self.log_prior(x) + self.log_likelihood(x)


def gaussian(y: float = 5.0, dimension: int = 10, log: bool = False) -> Problem:
    """Predictive density at the point opposite to the observation, in a Gaussian model.

    Prior N(0, I), likelihood N(-m | x, I), f(x) = N(x | m, I/2) with m = (y/sqrt(D)) 1. The
    larger y, the further apart are the posterior N(-m/2, I/2) and f times the posterior.

    Parameters
    ----------
    y
        Distance of the observation from the origin; 2, 3.5 and 5 in the paper.
    dimension
        D; 10, 25 and 50 in the paper.
    log
        Hand log f instead of f to `expect`.
    """
    m = y / math.sqrt(dimension)

    def log_f(x):
        return _log_normal(x, m, 0.5)

    def sample_prior(key):
        return jax.random.normal(key, (dimension,))

    def sample_posterior(key, n):
        return -m / 2 + math.sqrt(0.5) * jax.random.normal(key, (n, dimension))

    return Problem(
        name=f"Gaussian D={dimension} y={y:g}",
        dimension=dimension,
        log_prior=lambda x: _log_normal(x, 0.0, 1.0),
        log_likelihood=lambda x: _log_normal(x, -m, 1.0),
        init=np.zeros(dimension),
        f=lambda x: jnp.exp(log_f(x)),
        log_f=log_f,
        log=log,
        # I = N(m | -m/2, I): the posterior convolved with f, at a distance 1.5 y.
        log_truth=-dimension / 2 * math.log(2 * math.pi) - (1.5 * y) ** 2 / 2,
        # Z = N(-m | 0, 2 I).
        log_evidence=-dimension / 2 * math.log(4 * math.pi) - y**2 / 4,
        sample_prior=sample_prior,
        sample_posterior=sample_posterior,
    )


def banana(log: bool = False) -> Problem:
    """A banana in a box, with an f that is zero on part of it.

    The prior is the paper's indicator of the box, not normalised: its integral is 3000. f is
    zero on 0.5% of the posterior and underflows in float32 on most of the rest.

    Parameters
    ----------
    log
        Hand log f instead of f to `expect`.
    """
    lower, upper = np.array([-25.0, -40.0]), np.array([25.0, 20.0])

    def log_prior(x):
        return jnp.where(jnp.all((x > lower) & (x < upper)), 0.0, -jnp.inf)

    def log_likelihood(x):
        return -0.5 * (0.03 * x[0] ** 2 + (x[1] / 2 + 0.03 * (x[0] ** 2 - 100)) ** 2)

    def f(x):
        return jnp.maximum(x[1] + 10, 0.0) * jnp.exp(-0.25 * (x[0] + x[1] + 25) ** 2)

    def log_f(x):
        positive = x[1] > -10
        # The inner guard keeps the gradient finite where f = 0.
        height = jnp.log(jnp.where(positive, x[1] + 10, 1.0))
        return jnp.where(positive, height - 0.25 * (x[0] + x[1] + 25) ** 2, -jnp.inf)

    def sample_prior(key):
        return jnp.asarray(lower) + (upper - lower) * jax.random.uniform(key, (2,))

    return Problem(
        name="banana",
        dimension=2,
        log_prior=log_prior,
        log_likelihood=log_likelihood,
        init=np.zeros(2),
        f=f,
        log_f=log_f,
        log=log,
        log_truth=math.log(2.1142786942e-3),  # by quadrature
        log_evidence=math.log(72.550893374),  # by quadrature
        sample_prior=sample_prior,
        sample_posterior=lambda key, n: _sample_banana(key, n, lower, upper),
    )


def _log_normal(x: Any, mean: Any, variance: float) -> Any:
    constant = x.shape[-1] / 2 * math.log(2 * math.pi * variance)
    return -jnp.sum((x - mean) ** 2, axis=-1) / (2 * variance) - constant


def _sample_banana(key: Any, n: int, lower: np.ndarray, upper: np.ndarray) -> jax.Array:
    """Exact draws: without its box the banana is Gaussian, so draw again what falls outside."""

    def draw(key):
        normal = jax.random.normal(key, (n, 2))
        x1 = normal[:, 0] / math.sqrt(0.03)
        return jnp.stack([x1, -0.06 * (x1**2 - 100) + 2 * normal[:, 1]], axis=-1)

    def outside(x):
        return jnp.any((x <= lower) | (x >= upper), axis=-1)

    def again(state):
        key, x = state
        key, subkey = jax.random.split(key)
        return key, jnp.where(outside(x)[:, None], draw(subkey), x)

    key, subkey = jax.random.split(key)
    return jax.lax.while_loop(lambda s: jnp.any(outside(s[1])), again, (key, draw(subkey)))[1]
