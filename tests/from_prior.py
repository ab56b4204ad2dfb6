"""A posterior with a prior to begin at, and functions of every kind with exact answers.

The prior is N(0, I) in two dimensions and the posterior N(-a, I / 2), a = y / (2 sqrt(2)).
"""

import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import tabi
from tabi.paper.problems import gaussian

PROBLEM = gaussian(2.0, 2)
PARTS = tabi.Posterior.from_parts(PROBLEM.log_prior, PROBLEM.log_likelihood, PROBLEM.sample_prior)
UNSAMPLED = tabi.Posterior.from_parts(PROBLEM.log_prior, PROBLEM.log_likelihood, init=np.zeros(2))
MEAN, SCALE = -1 / np.sqrt(2), np.sqrt(0.5)


def signed(x):
    """Negative on 11% of the posterior and 6% of the prior."""
    return x[0] + MEAN + 2.3


def hinged(x):
    """0 on half of the prior."""
    return jnp.maximum(x[0], 0.0)


def minus(x):
    return -PROBLEM.f(x)


def four(x):
    """f > 0, f < 0, f of both signs, and one with zeros."""
    return jnp.stack([PROBLEM.f(x), minus(x), signed(x), hinged(x)])


def three(x):
    """f < 0, f of both signs, and one with zeros."""
    return four(x)[1:]


SIGNED = float(2 * MEAN + 2.3)
HINGED = float(MEAN * norm.cdf(MEAN / SCALE) + SCALE * norm.pdf(MEAN / SCALE))
FOUR = np.array([PROBLEM.truth, -PROBLEM.truth, SIGNED, HINGED])
CASES = {
    "f > 0": (PROBLEM.f, PROBLEM.truth, False),
    "log f": (PROBLEM.log_f, PROBLEM.truth, True),
    "f < 0": (minus, -PROBLEM.truth, False),
    "signed": (signed, SIGNED, False),
    "zeros": (hinged, HINGED, False),
}


def cut(x):
    """The likelihood, 0 on half of the prior."""
    return jnp.where(x[0] > 0.0, PROBLEM.log_likelihood(x), -jnp.inf)


CUT = tabi.Posterior.from_parts(PROBLEM.log_prior, cut, PROBLEM.sample_prior)
CUT_LOG_Z = PROBLEM.log_evidence + float(norm.logcdf(MEAN / SCALE))


def sometimes_nan(x):
    """The likelihood, NaN where next to nothing is."""
    return jnp.where(x[1] > 2.2, jnp.nan, PROBLEM.log_likelihood(x))


BROKEN = tabi.Posterior.from_parts(PROBLEM.log_prior, sometimes_nan, PROBLEM.sample_prior)


def ask(f, method, posterior=PARTS, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 40_000, "key": 1, "ladders": 2} | options
    return tabi.expect(f, posterior, method=method, progress=False, **options)


def evidence(method, posterior=PARTS, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 40_000, "key": 1, "ladders": 2} | options
    return tabi.log_evidence(posterior, method=method, progress=False, **options)


def z_scores(result, truth):
    return (result.value - truth) / result.stderr


def log_z(result, log_truth) -> float:
    return float((result.log_value - log_truth) / result.log_stderr)


def bits(result) -> tuple:
    return (result.log_value.tobytes(), result.log_stderr.tobytes(), result.evaluations)
