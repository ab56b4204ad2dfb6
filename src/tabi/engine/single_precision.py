"""float32 is a choice with a check: f and the density again in float64 on early draws."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from tabi.runtime.compiled import ProgramCache
from tabi.runtime.precision import precision
from tabi.state import ChainState, Scalars
from tabi.target import Target, build_target

DOUBLE = np.dtype("float64")

# Rounding noise in log densities that exchange and weights can bear.
MOST_NOISE = 0.1
# Draws that are compared.
MOST_COMPARED = 256
PROGRAMS = ProgramCache()
REMEDY = 'use Posterior(..., dtype="float64")'


class PrecisionError(ValueError):
    """float32 gives other zeros, infinities or log densities than float64."""


def check_single_precision(target: Target, draws: ChainState, most: int = MOST_COMPARED) -> int:
    """Compare float32 scalars of posterior draws with float64 ones.

    Parameters
    ----------
    target
        The float32 target.
    draws
        Posterior states, [draw, ...].
    most
        Draws to compare.

    Returns
    -------
    int
        Model evaluations spent.

    Raises
    ------
    PrecisionError
        If f has other zeros or infinities in float64, or the log density is too noisy.
    """
    step = max(1, len(draws.position) // most)
    chosen = jax.tree.map(lambda a: a[::step], draws)
    exact = _in_double(target, chosen.position)
    single = chosen.scalars
    zeros = single.sign_f != exact.sign_f
    broken = np.isfinite(single.log_abs_f) != np.isfinite(exact.log_abs_f)
    if np.any(zeros | broken):
        share = np.mean(np.any(zeros | broken, axis=-1))
        log = "" if target.log else " or return log f with log=True"
        raise PrecisionError(
            f"in float32 f is zero or infinite where in float64 it is not (or the reverse) at "
            f"{share:.0%} of {len(zeros)} posterior draws; {REMEDY}{log}"
        )
    noise = float(np.std(np.asarray(single.log_pi, DOUBLE) - exact.log_pi))
    if noise > MOST_NOISE:
        raise PrecisionError(
            f"log_density is too large for float32: about {np.mean(exact.log_pi):.3g}, with "
            f"rounding noise of {noise:.2g}; {REMEDY}, or subtract its value at one point"
        )
    return len(chosen.position)


def _in_double(target: Target, positions: np.ndarray) -> Scalars:
    with precision(DOUBLE):
        double = _double(target)
        scalars, _ = PROGRAMS.call(
            ("double", double), jax.vmap(double.scalars), np.asarray(positions, DOUBLE)
        )
        return jax.tree.map(np.asarray, scalars)


@functools.lru_cache(32)
def _double(target: Target) -> Target:
    """The same target in float64, one object for each, so that it is compiled once."""
    zeros = jnp.zeros(target.size, target.dtype)
    example = jax.tree.map(lambda a: jnp.asarray(a, DOUBLE), target.position(zeros))
    posterior = dataclasses.replace(target.posterior, dtype="float64")
    return build_target(posterior, target.f, example, log=target.log, level=target.level)
