"""Gradient evaluations per second where the model costs something, against the bare model.

Logistic regression with 1,000 rows and 20 columns of synthetic data and normal priors; f is a
Gaussian window in one patient's log odds, 4.6 posterior standard deviations out. One run of
`expect` (key 0, `rel_tol=None`, default executor) with a budget that a pilot run sized to last
60 s: its gradient evaluations divided by its whole wall time less compilation, so warm-up,
exchange, recording and estimation all count against it.

The bare model is `jit(vmap(value_and_grad(log density)))` in the same process and dtype, called
in a loop on fixed positions, by one thread and by one per core (tabi's default), XLA's own threads
being the same for both. It is measured before and after the run of tabi, and the faster counts.
The limit is 0.8 of the best that it does with as many positions at a time as the run has chains,
over all threads. What it does with any number of positions (8 to 512 a thread), which no run of so
many chains can ask for, stands beside it. The second row is the work that tabi really does at each
evaluation: log density and log f with a gradient of each. The ratio per second of processor time
tells what is left when other programs share the machine.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import PROCESSES, arguments, finish, markdown

import tabi
from tabi.result import RunDiagnostics

ROWS, COLUMNS = 1000, 20
LIMIT = 0.8
LADDERS = 8  # tabi's default
LANES = (8, 16, 32, 64, 128, 256, 512)


def model() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Log density and log f of the regression."""
    random = np.random.default_rng(2024)
    x = random.normal(size=(ROWS, COLUMNS)) / np.sqrt(COLUMNS)
    y = (random.random(ROWS) < 1 / (1 + np.exp(-x @ random.normal(size=COLUMNS)))).astype(float)
    mode = np.zeros(COLUMNS)
    for _ in range(20):  # Newton's method, to know where 4.6 standard deviations are
        p = 1 / (1 + np.exp(-x @ mode))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + np.eye(COLUMNS)
        mode += np.linalg.solve(hessian, x.T @ (y - p) - mode)
    patient = x[0]
    spread = np.sqrt(patient @ np.linalg.solve(hessian, patient))
    centre, width = patient @ mode + 4.6 * spread, 0.5 * spread

    def log_density(b: Any) -> Any:
        odds = jnp.asarray(x) @ b
        return jnp.sum(y * odds - jax.nn.softplus(odds)) - 0.5 * b @ b

    def log_f(b: Any) -> Any:
        return -0.5 * ((jnp.asarray(patient) @ b - centre) / width) ** 2

    return log_density, log_f


@dataclass(frozen=True)
class Rate:
    """Evaluations per second of a bare function."""

    what: str
    lanes: int
    threads: int
    per_second: float
    per_cpu_second: float


def bare(what: str, function: Callable[[Any], Any], seconds: float) -> list[Rate]:
    """Rates of a vectorised function over lane counts and calling threads."""
    program = jax.jit(jax.vmap(function))
    rates = []
    for lanes in LANES:
        positions = jnp.asarray(0.1 * np.random.default_rng(lanes).normal(size=(lanes, COLUMNS)))
        jax.block_until_ready(program(positions))
        for threads in dict.fromkeys((1, PROCESSES)):
            wall, cpu = _calls_per_second(program, positions, threads, seconds)
            rates.append(Rate(what, lanes, threads, lanes * wall, lanes * cpu))
    return rates


def _calls_per_second(
    program: Any, positions: Any, threads: int, seconds: float
) -> tuple[float, float]:
    """Calls per second of wall time and of processor time."""
    begin, begin_cpu = time.perf_counter(), time.process_time()

    def work() -> int:
        calls = 0
        with jax.enable_x64(True):
            while time.perf_counter() - begin < seconds:
                jax.block_until_ready(program(positions))
                calls += 1
        return calls

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work) for _ in range(threads)]
        calls = sum(future.result() for future in futures)
    return calls / (time.perf_counter() - begin), calls / (time.process_time() - begin_cpu)


def run(posterior: Any, log_f: Any, budget: int) -> tuple[Any, RunDiagnostics, float, float]:
    """One run of tabi, its diagnostics, and its wall and processor time less compilation."""
    begin, begin_cpu = time.perf_counter(), time.process_time()
    result = tabi.expect(
        log_f, posterior, log=True, rel_tol=None, max_evaluations=budget, progress=False
    )
    wall, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    assert result.diagnostics is not None
    compiling = result.diagnostics.compile_seconds
    return result, result.diagnostics, wall - compiling, cpu - compiling


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of the measured run")
    args = parser.parse_args()
    seconds = 5.0 if args.quick else args.seconds
    log_density, log_f = model()
    posterior = tabi.Posterior(log_density, np.zeros(COLUMNS))

    def both(b: Any) -> Any:
        return jax.value_and_grad(log_density)(b), jax.value_and_grad(log_f)(b)

    functions = {"log density": jax.value_and_grad(log_density), "log density and log f": both}
    each = 0.1 if args.quick else 1.0

    def measure_bare() -> list[Rate]:
        with jax.enable_x64(True):
            return [rate for what, f in functions.items() for rate in bare(what, f, each)]

    pilot, first, spent, _ = run(posterior, log_f, 2 * 10**5)
    longer, _, spent, _ = run(
        posterior, log_f, int(pilot.evaluations * max(1, 0.1 * seconds / spent))
    )
    rates = measure_bare()
    # A tenth more than the pilots say, so that the run is not shorter than asked for.
    result, d, spent, cpu = run(posterior, log_f, int(1.1 * longer.evaluations * seconds / spent))
    rates += measure_bare()
    tabi_rate = result.gradients / spent
    rungs = max(len(leg.betas) for leg in d.legs)
    chains = rungs * LADDERS
    lines, passed = [], True
    for what in functions:
        mine = [r for r in rates if r.what == what]
        best = max(mine, key=lambda r: r.per_second)
        alike = [r for r in mine if r.lanes * r.threads <= chains]
        like = max(alike, key=lambda r: r.per_second)
        within = tabi_rate / like.per_second >= LIMIT
        passed &= within
        lines.append(
            (
                *(f"{what}, with gradient", tabi_rate / like.per_second, LIMIT, within),
                result.gradients / cpu / max(r.per_cpu_second for r in alike),
                *(tabi_rate, like.per_second, f"{like.threads} × {like.lanes}"),
                *(tabi_rate / best.per_second, f"{best.threads} × {best.lanes}"),
            )
        )
    header = (
        *("bare model", "tabi / bare", "limit", "within", "per CPU second", "tabi, gradients/s"),
        *("bare, gradients/s", "threads × lanes", "tabi / best of all", "its threads × lanes"),
    )
    sampling = sum(r.seconds for r in d.rounds) - d.compile_seconds
    note = (
        f"The run of tabi: {spent:.1f} s without compilation, {result.gradients:,} gradients, "
        f"{rungs} rungs on {LADDERS} ladders, log value {result.log_value:.4f} "
        f"± {result.log_stderr:.4f}. Outside sampling (estimation, checks): "
        f"{max(0.0, spent - sampling):.2f} s. Compilation: {first.compile_seconds:.1f} s in the "
        f"first run, {d.compile_seconds:.1f} s in this one."
    )
    grid = [
        (what, *(max(r.per_second for r in rates if r.what == what and r.lanes == n)
                 for n in LANES))
        for what in functions
    ]  # fmt: skip
    by_lanes = markdown(("bare gradients/s by lanes", *map(str, LANES)), grid)
    tables = f"{markdown(header, lines)}\n\n{note}\n\n{by_lanes}"
    title = f"Throughput, logistic regression {ROWS:,} × {COLUMNS}"
    finish("throughput", title, tables, passed, rates, args.quick)


if __name__ == "__main__":
    main()
