"""What a second worker gives where XLA runs the model on one core.

The model is a pendulum with damping, observed with noise at each of 300 steps of an integrator:
a `lax.scan`, in which nothing can run in parallel. The same run (key 0, a fixed budget) on
`ThreadPoolExecutor(1)` and `ThreadPoolExecutor(2)`, alternately, 7 times each; the ratio of the
median wall times must be at least 1.7, and all answers must be the same bits.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import arguments, finish, markdown

import tabi

STEPS, STEP, NOISE = 300, 0.05, 0.3
TRUTH = np.log([2.0, 0.2])  # log of stiffness and damping
LIMIT = 1.7


def trajectory(parameters: Any) -> Any:
    """Angles of the pendulum at all steps."""
    stiffness, damping = jnp.exp(parameters)

    def step(state: Any, _: None) -> Any:
        angle, speed = state
        speed = speed - STEP * (stiffness * jnp.sin(angle) + damping * speed)
        angle = angle + STEP * speed
        return (angle, speed), angle

    return jax.lax.scan(step, (jnp.ones_like(stiffness), jnp.zeros_like(stiffness)), None, STEPS)[1]


def model() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Log density, and log f: a window around a damping far from what the data say."""
    with jax.enable_x64(True):
        clean = np.asarray(trajectory(jnp.asarray(TRUTH)))
    data = clean + NOISE * np.random.default_rng(7).normal(size=STEPS)

    def log_density(parameters: Any) -> Any:
        residuals = (trajectory(parameters) - data) / NOISE
        return -0.5 * jnp.sum(residuals**2) - 0.5 * jnp.sum(parameters**2)

    def log_f(parameters: Any) -> Any:
        return -0.5 * ((parameters[1] - TRUTH[1] - 0.5) / 0.1) ** 2

    return log_density, log_f


@dataclass(frozen=True)
class Run:
    """One timed run."""

    workers: int
    seconds: float
    evaluations: int
    log_value: float


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="runs with each number of workers")
    parser.add_argument("--evaluations", type=int, default=10**6, help="budget of a run")
    args = parser.parse_args()
    repeats, budget = (2, 10**5) if args.quick else (args.repeats, args.evaluations)
    log_density, log_f = model()
    posterior = tabi.Posterior(log_density, TRUTH)

    def run(workers: int) -> tuple[Run, Any]:
        with ThreadPoolExecutor(workers) as pool:
            begin = time.perf_counter()
            result = tabi.expect(
                log_f,
                posterior,
                log=True,
                rel_tol=None,
                max_evaluations=budget,
                executor=pool,
                progress=False,
            )
            seconds = time.perf_counter() - begin
        return Run(workers, seconds, result.evaluations, float(result.log_value)), result

    first = run(1)[1].diagnostics  # compiles
    runs = [run(workers)[0] for _ in range(repeats) for workers in (1, 2)]
    same = len({one.log_value for one in runs}) == 1
    times = {n: [one.seconds for one in runs if one.workers == n] for n in (1, 2)}
    medians = {n: statistics.median(seconds) for n, seconds in times.items()}
    speedup = medians[1] / medians[2]
    passed = same and speedup >= LIMIT
    pairs = [one / two for one, two in zip(times[1], times[2], strict=True)]
    header = (
        *("model", "speedup", "limit", "within", "same bits", "speedup of the pairs"),
        *("evaluations", "1 worker, s", "2 workers, s"),
    )
    line = (
        *(f"pendulum, {STEPS} steps", speedup, LIMIT, passed, "yes" if same else "NO"),
        *(f"{min(pairs):.2f} to {max(pairs):.2f}", runs[0].evaluations, medians[1], medians[2]),
    )
    note = f"Compilation, apart: {first.compile_seconds:.1f} s."
    tables = f"{markdown(header, [line])}\n\n{note}"
    finish("workers", f"Two workers against one, {repeats} runs each", tables, passed, runs,
           args.quick)  # fmt: skip


if __name__ == "__main__":
    main()
