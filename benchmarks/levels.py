"""Rare supports and events: error x cost and calibration of the level path, 100 keys each.

Every problem is run with `expect(..., level=...)` or `probability(...)` as they are,
`rel_tol=None` and the budget of its row (warm-up included). Asked of each: 90 of 100 keys within
10% of the truth (the far tail: a log value within 0.1), the limit of the mean relative squared
error x evaluations (a row fails when its mean / 1.24 exceeds it), and the calibration of
`calibration.py`. Every run counts, converged or not.
"""

import functools
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from common import (
    ALLOWANCE,
    Case,
    Row,
    arguments,
    by_case,
    finish,
    markdown,
    run_all,
    run_case,
    standard_normal,
    summarize,
)
from scipy.stats import norm

HEADER = (
    *("problem", "evaluations", "within 10%", "mean relMSE × E", "95% interval", "limit", "median"),
    *("rms z", "abs mean z", "95% covers", "converged", "false alarms of 4 se", "within"),
    "seconds",
)


def payoff(dimension: int, chance: float) -> Case:
    """max(0, a.x - K) of a correlated Gaussian, positive with a small chance."""
    random = np.random.default_rng(dimension)
    factor = random.normal(size=(dimension, dimension)) / math.sqrt(dimension)
    covariance = factor @ factor.T + 0.5 * np.eye(dimension)
    a = random.normal(size=dimension)
    scale, k = math.sqrt(a @ covariance @ a), norm.isf(chance)
    precision = np.linalg.inv(covariance)

    def gain(x: Any) -> Any:
        return jnp.asarray(a) @ x - k * scale

    return Case(
        f"payoff, D={dimension}, P(f>0)={chance:.0e}",
        lambda x: -0.5 * x @ jnp.asarray(precision) @ x,
        np.zeros(dimension),
        lambda x: jnp.maximum(0.0, gain(x)),
        scale * (norm.pdf(k) - k * norm.sf(k)),
        level=gain,
    )


def linear(dimension: int) -> Case:
    """The half space beyond 3.5 standard deviations."""
    return Case(
        f"linear limit state, D={dimension}",
        standard_normal,
        np.zeros(dimension),
        None,
        float(norm.sf(3.5)),
        level=lambda x: jnp.sum(x) / math.sqrt(dimension) - 3.5,
    )


def four_branches() -> Case:
    """Four failure regions around a safe middle."""

    def level(x: Any) -> Any:
        u, v = (x[0] + x[1]) / math.sqrt(2), (x[0] - x[1]) / math.sqrt(2)
        return jnp.maximum(jnp.abs(u) - 3 - 0.2 * v**2, jnp.abs(v) - 3.5)

    truth = 2.222795066e-3
    return Case("four branches", standard_normal, np.zeros(2), None, truth, level=level)


SCHOOLS = (
    np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
)


def schools(p: Any) -> Any:
    """Eight schools, not centred, with log tau."""
    y, sigma = SCHOOLS
    tau = jnp.exp(p["log_tau"])
    theta = p["mu"] + tau * p["eta"]
    prior = -0.5 * (p["mu"] / 5) ** 2 - jnp.log1p((tau / 5) ** 2) + p["log_tau"]
    return prior - 0.5 * jnp.sum(p["eta"] ** 2) - 0.5 * jnp.sum(((y - theta) / sigma) ** 2)


def schools_start() -> dict[str, np.ndarray]:
    """A start for eight schools."""
    return {"mu": np.zeros(()), "log_tau": np.zeros(()), "eta": np.zeros(8)}


def wide_tau() -> Case:
    """P(tau > 60)."""
    return Case("eight schools, tau > 60", schools, schools_start(), None, 6.4889e-7,
                level=lambda p: p["log_tau"] - math.log(60))  # fmt: skip


def first_school() -> Case:
    """P(theta_1 > 30)."""
    return Case("eight schools, theta_1 > 30", schools, schools_start(), None, 3.23896e-3,
                level=lambda p: p["mu"] + jnp.exp(p["log_tau"]) * p["eta"][0] - 30)  # fmt: skip


def far_tail() -> Case:
    """P(x > 30) = exp(-454)."""
    truth = math.exp(norm.logsf(30))
    return Case("x > 30", standard_normal, np.zeros(1), None, truth, level=lambda x: x[0] - 30)


@functools.cache
def cases() -> dict[str, tuple[Case, int, float]]:
    """Problem, budget and limit by name; from a cache, so that a process compiles each once."""
    table = (
        (payoff(10, 1e-6), 2 * 10**5, 600),
        (payoff(100, 1e-9), 10**6, 3000),
        (linear(2), 10**5, 400),
        (linear(50), 2 * 10**5, 600),
        (linear(500), 10**6, 3000),
        (four_branches(), 10**5, 300),
        (wide_tau(), 5 * 10**5, 2000),
        (first_school(), 10**5, 300),
        (far_tail(), 2 * 10**6, 7500),
    )
    return {case.name: (case, budget, limit) for case, budget, limit in table}


def run(name: str, key: int) -> list[Row]:
    """One run of one problem."""
    case, budget, _ = cases()[name]
    return run_case(name, case, key, rel_tol=None, max_evaluations=budget)


def main() -> None:
    parser = arguments(__doc__, keys=100)
    parser.add_argument("--only", default="", help="problems whose name contains this text")
    args = parser.parse_args()
    keys = 2 if args.quick else args.keys
    names = [name for name in cases() if args.only in name]
    rows = run_all(run, [(name, key) for name in names for key in range(keys)])
    lines, passed = [], True
    for name, found in by_case(rows).items():
        s, limit = summarize(found), cases()[name][2]
        near = np.mean([abs(row.relative_error) < 0.1 for row in found])
        false = sum(row.converged and abs(row.z) > 4 for row in found)
        calibrated = 0.75 <= s.rms_z <= 1.35 and s.mean_z <= 0.4 and s.coverage >= 0.88
        within = s.missing == 0 and near >= 0.9 and s.mean / ALLOWANCE <= limit and calibrated
        passed &= within
        lines.append(
            (
                *(name, s.evaluations, f"{near:.0%}", s.mean, f"{s.low:.3g} to {s.high:.3g}"),
                *(limit, s.median, s.rms_z, s.mean_z, f"{s.coverage:.0%}", f"{s.converged:.0%}"),
                *(false, within, s.seconds),
            )
        )
    title = f"Levels, {keys} keys"
    note = (
        f"A row passes with 90% of the keys within 10% of the truth, mean / {ALLOWANCE} ≤ limit, "
        "rms z in 0.75 to 1.35, |mean z| ≤ 0.4 and 88% of the intervals right. False alarms: "
        "converged, yet beyond 4 standard errors. Seconds: median of a run on one core."
    )
    finish("levels", title, f"{markdown(HEADER, lines)}\n\n{note}", passed, rows, args.quick)


if __name__ == "__main__":
    main()
