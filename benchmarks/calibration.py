"""Are the error bars true: z-scores and intervals on problems with exact answers, 100 keys each.

z = (log value - log truth) / log_stderr where f has one sign, (value - truth) / stderr where it
has both. Every run counts, converged or not. On each row the root mean square of z must lie in
0.75 to 1.35, |mean z| stay below 0.4 and at least 88% of the 95% intervals hold the truth; over
all rows together the root mean square must lie in 0.85 to 1.2 and 92% of the intervals hold.

Every problem is run with exchange between rungs and without it; random-walk and slice kernels,
other estimators and the paper's two-legged path are run on one problem each, TATI, BridgeSampling
and PowerPosterior on some.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import (
    Case,
    Row,
    arguments,
    by_case,
    finish,
    markdown,
    paper_case,
    run_all,
    run_case,
    standard_normal,
    summarize,
)
from scipy.special import betaln
from scipy.stats import norm

HEADER = ("problem", "rms z", "abs mean z", "95% covers", "converged", "rel. RMSE", "calibrated")


def negative() -> Case:
    """The paper's Gaussian problem with the sign of f turned."""
    from tabi.paper import gaussian

    p = gaussian(3.5, 10)
    return Case("negative f", p.log_density, p.init, lambda x: -p.f(x), -p.truth)


def signed() -> Case:
    """(x - 3/2) exp(2 x): its parts are 1.4 and 0.4 times the answer."""
    return Case(
        "signed f, D=3",
        standard_normal,
        np.zeros(3),
        lambda x: (x[0] - 1.5) * jnp.exp(2 * x[0]),
        0.5 * math.exp(2),
        signed=True,
    )


def signed_moment() -> Case:
    """x^3 + 1: its parts nearly cancel without any tail to climb to."""
    mean = np.zeros(2)
    return Case("signed moment, D=2", standard_normal, mean, lambda x: x[0] ** 3 + 1, 1.0,
                signed=True)  # fmt: skip


def payoff() -> Case:
    """max(0, a.x - K) with R = P(f > 0) = 0.3."""
    k, dimension = norm.isf(0.3), 5
    scale = math.sqrt(dimension)
    return Case(
        "zero region R=0.3, D=5",
        standard_normal,
        np.zeros(dimension),
        lambda x: jnp.maximum(0.0, jnp.sum(x) - k * scale),
        scale * (norm.pdf(k) - k * norm.sf(k)),
    )


def vector() -> Case:
    """Three components that lie in three directions."""

    def f(x: Any) -> Any:
        return jnp.stack([jnp.exp(2 * x[0]), -jnp.exp(1.5 * x[1]), x[2] ** 2])

    truth = np.asarray([math.exp(2), -math.exp(1.125), 1.0])
    return Case("vector f", standard_normal, np.zeros(4), f, truth)


def bounded() -> Case:
    """p^8 for a proportion with a Beta(4, 9) posterior, on (0, 1)."""
    return Case(
        "Beta posterior, f = p⁸",
        lambda p: 3 * jnp.log(p) + 8 * jnp.log1p(-p),
        np.asarray(0.5),
        lambda p: p**8,
        math.exp(betaln(12, 9) - betaln(4, 9)),
        bounds=(0.0, 1.0),
    )


def skewed() -> Case:
    """An exponential tilt of a gamma posterior with shape 3, in two coordinates."""
    return Case(
        "gamma posterior, f = exp(x₀)",
        lambda x: jnp.sum(2 * jnp.log(x) - 2 * x),
        np.ones(2),
        lambda x: jnp.exp(x[0]),
        8.0,
        bounds=(0.0, np.inf),
    )


def correlated() -> Case:
    """exp(a.x) under an autoregressive Gaussian with correlation 0.9 and scales from 1 to 100."""
    dimension = 10
    i = np.arange(dimension)
    scales = np.geomspace(1, 100, dimension)
    covariance = 0.9 ** np.abs(i[:, None] - i) * np.outer(scales, scales)
    precision = np.linalg.inv(covariance)
    a = 1 / scales
    a *= 3 / math.sqrt(a @ covariance @ a)
    return Case(
        "correlated Gaussian D=10",
        lambda x: -0.5 * x @ jnp.asarray(precision) @ x,
        np.zeros(dimension),
        lambda x: jnp.asarray(a) @ x,
        math.exp(4.5),
        log=True,
    )


def moment() -> Case:
    """A second moment: f is zero at one point only."""
    return Case("moment x²", standard_normal, np.zeros(3), lambda x: x[0] ** 2, 1.0)


def evidence() -> Case:
    """Z of the paper's Gaussian model."""
    from tabi.paper import gaussian

    p = gaussian(3.5, 10)
    parts = (p.log_prior, p.log_likelihood, p.sample_prior)
    return Case("evidence, D=10", p.log_density, p.init, p.f, math.exp(p.log_evidence), parts=parts)


def evidence_with_zeros() -> Case:
    """Z of a likelihood that is zero on half of a standard normal prior: 2^(-1/2) / 2."""

    def log_prior(x: Any) -> Any:
        return -0.5 * x[0] ** 2 - 0.5 * math.log(2 * math.pi)

    def log_likelihood(x: Any) -> Any:
        return jnp.where(x[0] > 0, -0.5 * x[0] ** 2, -jnp.inf)

    parts = (log_prior, log_likelihood, lambda key: jax.random.normal(key, (1,)))
    truth = 0.5 / math.sqrt(2)
    return Case("evidence with zeros", log_prior, np.ones(1), log_prior, truth, parts=parts)


@functools.cache
def cases() -> dict[str, Case]:
    """All problems by name; from a cache, so that a process compiles each once."""
    from tabi.paper import banana, gaussian

    paper = [gaussian(2.0, 10), gaussian(5.0, 25), banana()]
    own = (negative, signed, signed_moment, payoff, vector, bounded, skewed, correlated, moment)
    found = [*map(paper_case, paper), *(make() for make in own)]
    return {case.name: case for case in found}


@functools.cache
def evidences() -> dict[str, Case]:
    """The problems of PowerPosterior."""
    return {case.name: case for case in (evidence(), evidence_with_zeros())}


@functools.cache
def methods() -> dict[str, tuple[tuple[str, ...], Any]]:
    """Other algorithms and the problems each is run on."""
    import tabi

    some = ("signed f, D=3", "zero region R=0.3, D=5", "vector f", "gamma posterior, f = exp(x₀)")
    return {
        "TATI": (("Gaussian D=10 y=2", "Gaussian D=25 y=5", *some), tabi.TATI()),
        "BridgeSampling": (("Gaussian D=10 y=2", "negative f", *some), tabi.BridgeSampling()),
        "PowerPosterior": (tuple(evidences()), tabi.PowerPosterior()),
    }


@functools.cache
def variants() -> dict[str, tuple[str, Any]]:
    """Other methods and the problem each is run on."""
    import tabi
    from tabi.estimators import BAR, CorrectedTrapezoid
    from tabi.kernels import RandomWalk, Slice
    from tabi.paths import GeometricPath, Restricted, TimesF
    from tabi.schedules import Adaptive

    legs = tuple(GeometricPath(Restricted(sign), TimesF(sign)) for sign in (1, -1))
    return {
        "RandomWalk": ("moment x²", tabi.GTI(kernel=RandomWalk())),
        "Slice": ("signed f, D=3", tabi.GTI(kernel=Slice())),
        "BAR": ("zero region R=0.3, D=5", tabi.GTI(estimator=BAR())),
        # Its bound on the discretisation error is part of stderr; with rungs this close it is
        # a small part, so that z can be judged.
        "CorrectedTrapezoid": (
            "negative f",
            tabi.GTI(estimator=CorrectedTrapezoid(), schedule=Adaptive(density=4)),
        ),
        "the paper's legs": ("signed f, D=3", tabi.GTI(path=legs)),
    }


EXCHANGE, ALONE = "exchange", "no exchange"


def run(kind: str, name: str, key: int, evaluations: int) -> list[Row]:
    """One run of one problem by the default, the default without exchange or a variant."""
    import tabi

    make: dict[str, Callable[[], Any]] = {
        EXCHANGE: tabi.GTI,
        ALONE: lambda: tabi.GTI(exchange=False),
    }
    method = make[kind]() if kind in make else (variants() | methods())[kind][1]
    options = {"method": method, "rel_tol": None, "max_evaluations": evaluations}
    return run_case(f"{name}: {kind}", (cases() | evidences())[name], key, **options)


def main() -> None:
    parser = arguments(__doc__, keys=100)
    parser.add_argument("--evaluations", type=int, default=2 * 10**5, help="budget of a run")
    parser.add_argument("--only", default="", help="rows whose name contains this text")
    args = parser.parse_args()
    keys = 4 if args.quick else args.keys
    pairs = [(kind, name) for kind in (EXCHANGE, ALONE) for name in cases()]
    pairs += [(kind, name) for kind, (name, _) in variants().items()]
    pairs += [(kind, name) for kind, (names, _) in methods().items() for name in names]
    pairs = [(kind, name) for kind, name in pairs if args.only in f"{name}: {kind}"]
    tasks = [(kind, name, key, args.evaluations) for kind, name in pairs for key in range(keys)]
    rows = run_all(run, tasks)
    groups = by_case(rows)
    pools = {f"pooled, {kind}": [r for r in rows if r.case.endswith(f": {kind}")]
             for kind in (EXCHANGE, ALONE)}  # fmt: skip
    pools |= {f"pooled, {kind}": [r for r in rows if r.case.endswith(f": {kind}")]
              for kind in methods()}  # fmt: skip
    pools["pooled, all"] = rows
    lines, passed = [], True
    for name, found in {**groups, **{n: p for n, p in pools.items() if p}}.items():
        s = summarize(found)
        low, high, covers = (0.85, 1.2, 0.92) if name in pools else (0.75, 1.35, 0.88)
        good = s.missing == 0 and low <= s.rms_z <= high and s.coverage >= covers
        good &= name in pools or s.mean_z <= 0.4
        passed &= good
        error = math.sqrt(np.mean([row.relative_error**2 for row in found]))
        error = "" if name in pools else f"{error:.1%}"
        shares = (f"{s.coverage:.1%}", f"{s.converged:.0%}")
        lines.append((name, f"{s.rms_z:.2f}", f"{s.mean_z:.2f}", *shares, error, good))
    title = f"Calibration, {args.evaluations:,} evaluations, {keys} keys"
    note = (
        "Limits: rms z 0.75 to 1.35 (pooled 0.85 to 1.2), |mean z| at most 0.4, 95% intervals "
        "hold in 88% of the runs (pooled 92%). `converged` here says that no check failed."
    )
    finish("calibration", title, f"{markdown(HEADER, lines)}\n\n{note}", passed, rows, args.quick)


if __name__ == "__main__":
    main()
