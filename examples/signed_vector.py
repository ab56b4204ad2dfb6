"""Several expectations at once, one of them with cancellation, from the same posterior draws.

Posterior N(0, 1). E[x^3 + x^2] = 1 though x^3 cancels, and E[exp(3x)] = exp(9/2) lives three
standard deviations out.
"""

import jax.numpy as jnp

import tabi

TRUTH = (1.0, float(jnp.exp(4.5)))


def log_density(x):
    return -0.5 * x**2


def f(x):
    return jnp.stack([x**3 + x**2, jnp.exp(3 * x)])


def main():
    posterior = tabi.Posterior(log_density, init=jnp.asarray(0.0))
    result = tabi.expect(f, posterior, rel_tol=0.05, key=0)
    print(result)
    print("exact answers", *(f"{t:.4f}" for t in TRUTH))
    return result


if __name__ == "__main__":
    main()
