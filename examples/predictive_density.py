"""Posterior expectation of an f that is large only far in the posterior's tail.

The exact answer is known here: in each dimension, the integral of N(x|0, 1) exp(-2 (x - 2)^2) is
exp(-8/5) / sqrt(5).
"""

import math

import jax.numpy as jnp

import tabi

DIMENSION = 10


def log_density(x):
    return -0.5 * jnp.sum(x**2)


def f(x):
    return jnp.exp(-2.0 * jnp.sum((x - 2.0) ** 2))


def main():
    posterior = tabi.Posterior(log_density, init=jnp.zeros(DIMENSION))
    result = tabi.expect(f, posterior, rel_tol=0.05, key=0)
    print(result)
    log_truth = DIMENSION * (-8 / 5 - 0.5 * math.log(5))
    print(f"exact answer  {math.exp(log_truth):.4g}")
    return result, log_truth


if __name__ == "__main__":
    main()
