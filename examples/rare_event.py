"""The probability of an event that no posterior draw has seen: eight schools, P(tau > 60).

Its exact value, 6.4889e-7, comes from quadrature over mu and tau.
"""

import jax.numpy as jnp
import numpy as np

import tabi

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
TRUTH = 6.4889e-7


def log_density(p):
    """mu ~ N(0, 5), tau ~ half-Cauchy(5), theta = mu + tau eta with eta ~ N(0, 1)."""
    tau = jnp.exp(p["log_tau"])
    theta = p["mu"] + tau * p["eta"]
    log_prior = -0.5 * (p["mu"] / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + p["log_tau"]
    log_prior += -0.5 * jnp.sum(p["eta"] ** 2)
    return log_prior - 0.5 * jnp.sum(((EFFECTS - theta) / ERRORS) ** 2)


def level(p):
    """Positive where tau > 60, and the larger the further beyond it."""
    return p["log_tau"] - jnp.log(60.0)


def main():
    init = {"mu": np.zeros(()), "log_tau": np.zeros(()), "eta": np.zeros(8)}
    posterior = tabi.Posterior(log_density, init)
    result = tabi.probability(level, posterior, rel_tol=0.05, key=0)
    print(result)
    print(f"exact answer  {TRUTH:.5g}")
    return result


if __name__ == "__main__":
    main()
