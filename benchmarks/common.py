"""What the benchmarks share: cases with exact answers, keys on all cores, statistics, tables."""

import argparse
import csv
import functools
import math
import multiprocessing
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from tabi.runtime.workers import one_thread

RESULTS = Path(__file__).parent / "results"

# A mean over 100 keys is itself uncertain: a row fails when mean / ALLOWANCE exceeds its limit.
ALLOWANCE = 1.24

# Runs side by side, each on one thread of its own.
PROCESSES = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


@dataclass(frozen=True, eq=False)
class Case:
    """A posterior, an f and the exact answer.

    Attributes
    ----------
    name
        What the table calls it.
    log_density, init, bounds
        The posterior.
    f, log
        What is handed to `expect`; without f the question is the probability of the level.
    truth
        E[f(x)], of f's shape.
    signed
        Whether f takes both signs, so that z is taken on the scale of the value.
    parts
        log prior, log likelihood and prior draws; the question is then the evidence, and f and
        log_density are not read.
    level
        Where f counts, or the event.
    """

    name: str
    log_density: Callable[..., Any]
    init: Any
    f: Callable[..., Any] | None
    truth: Any
    bounds: Any = None
    log: bool = False
    signed: bool = False
    parts: tuple[Callable[..., Any], ...] | None = None
    level: Callable[..., Any] | None = None


def standard_normal(x: Any) -> Any:
    """Log density of N(0, I) up to a constant."""
    return -0.5 * jnp.sum(x**2)


def paper_case(problem: Any) -> Case:
    """A problem of `tabi.paper` as a case."""
    name = f"{problem.name}, log f" if problem.log else problem.name
    return Case(
        name, problem.log_density, problem.init, problem.target, problem.truth, log=problem.log
    )


# The thermodynamic length of the geometric path, by problem: (D, y) or banana.
LENGTHS = {
    (10, 2.0): 2.93,
    (10, 3.5): 4.62,
    (10, 5.0): 6.41,
    (25, 2.0): 3.49,
    (25, 3.5): 5.00,
    (25, 5.0): 6.68,
    (50, 2.0): 4.27,
    (50, 3.5): 5.57,
    (50, 5.0): 7.12,
}
BANANA_LENGTH = 5.79


@functools.cache
def paper_cases() -> dict[str, Case]:
    """The eleven problems of the error table, by name."""
    from tabi.paper import banana, gaussian

    problems = [gaussian(y, dimension) for dimension, y in LENGTHS]
    problems += [banana(), banana(log=True)]
    return {case.name: case for case in map(paper_case, problems)}


def paper_limits() -> dict[str, tuple[float, float]]:
    """Length of the path and limit of the mean relative squared error x evaluations, by name."""
    lengths = [*((length, 6) for length in LENGTHS.values()), *((BANANA_LENGTH, 9),) * 2]
    return {
        name: (length, factor * length**2)
        for name, (length, factor) in zip(paper_cases(), lengths, strict=True)
    }


@dataclass(frozen=True)
class Row:
    """One component of one run."""

    case: str
    key: int
    component: int
    value: float
    stderr: float
    relative_error: float
    log_stderr: float
    z: float
    inside: bool
    converged: bool
    evaluations: int
    gradients: int
    seconds: float
    compile_seconds: float
    warnings: str

    @property
    def answered(self) -> bool:
        """Whether the run gave a number with an error bar."""
        return math.isfinite(self.z)


def run_case(name: str, case: Case, key: int, **options: Any) -> list[Row]:
    """One run of `expect` on one thread: a row for every component, also where it failed."""
    import tabi

    begin = time.perf_counter()
    try:
        options |= {"key": key, "executor": _one_thread(), "progress": False}
        if case.parts is not None:
            result = tabi.log_evidence(_posterior(case), **options)
        elif case.f is None:
            result = tabi.probability(case.level, _posterior(case), **options)
        else:
            options |= {"log": case.log, "level": case.level}
            result = tabi.expect(case.f, _posterior(case), **options)
    except Exception as error:  # one run's failure is a row of the table, not its end
        nothing = (math.nan, math.nan, math.nan, math.nan, math.nan, False, False, 0, 0)
        seconds = time.perf_counter() - begin
        return [
            Row(name, key, i, *nothing, seconds, 0.0, f"{type(error).__name__}: {error}")
            for i in range(np.size(case.truth))
        ]
    seconds = time.perf_counter() - begin
    lower, upper = (np.ravel(bound) for bound in result.interval(0.95))
    rows = []
    for i, truth in enumerate(np.ravel(case.truth)):
        value, stderr = np.ravel(result.value)[i], np.ravel(result.stderr)[i]
        log_value, log_stderr = np.ravel(result.log_value)[i], np.ravel(result.log_stderr)[i]
        sign, z = np.ravel(result.sign)[i], math.nan
        if case.signed and sign != 0:
            z = (value - truth) / stderr
        elif sign == np.sign(truth):
            z = (log_value - math.log(abs(truth))) / log_stderr
        rows.append(
            Row(
                name,
                key,
                i,
                float(value),
                float(stderr),
                float(value / truth - 1),
                float(log_stderr),
                float(z),
                bool(lower[i] <= truth <= upper[i]),
                bool(np.ravel(result.converged)[i]),
                result.evaluations,
                result.gradients,
                seconds,
                result.diagnostics.compile_seconds if result.diagnostics else 0.0,
                "; ".join(result.warnings),
            )
        )
    return rows


@functools.cache
def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


@functools.cache
def _posterior(case: Case) -> Any:
    import tabi

    if case.parts is not None:
        return tabi.Posterior.from_parts(*case.parts)
    return tabi.Posterior(case.log_density, case.init, bounds=case.bounds)


def run_all(function: Callable[..., list[Row]], tasks: Iterable[tuple[Any, ...]]) -> list[Row]:
    """`function(*task)` for all tasks, in spawned processes, one per core; rows in task order.

    The answer of a key does not depend on how runs are spread; only the seconds do.
    """
    tasks = list(tasks)
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=one_thread) as pool:
        begin = time.perf_counter()
        for done, found in enumerate(pool.map(function, *zip(*tasks, strict=True)), 1):
            rows += found
            if done % max(1, len(tasks) // 50) == 0 or done == len(tasks):
                spent = time.perf_counter() - begin
                print(f"{done}/{len(tasks)} runs, {spent:.0f} s: {found[0].case}", file=sys.stderr)
    return rows


@dataclass(frozen=True)
class Summary:
    """Statistics of the runs of one case, over those that gave a number."""

    keys: int
    missing: int
    mean: float
    low: float
    high: float
    median: float
    rms_z: float
    mean_z: float
    coverage: float
    converged: float
    evaluations: float
    seconds: float


def summarize(rows: Sequence[Row]) -> Summary:
    """Means over keys; the interval of the mean is a bootstrap over keys."""
    answered = [row for row in rows if row.answered]
    z = np.asarray([row.z for row in answered])
    costs = np.asarray([row.relative_error**2 * row.evaluations for row in answered])
    if not answered:
        z = costs = np.asarray([math.nan])
    resampled = costs[np.random.default_rng(0).integers(0, len(costs), (4000, len(costs)))]
    low, high = np.quantile(resampled.mean(1), [0.025, 0.975])
    return Summary(
        keys=len(rows),
        missing=len(rows) - len(answered),
        mean=float(costs.mean()),
        low=float(low),
        high=float(high),
        median=float(np.median(costs)),
        rms_z=float(np.sqrt(np.mean(z**2))),
        mean_z=abs(float(z.mean())),
        coverage=float(np.mean([row.inside for row in rows])),
        converged=float(np.mean([row.converged for row in rows])),
        evaluations=float(np.median([row.evaluations for row in rows])),
        # The first runs of a process also compile.
        seconds=float(np.median([row.seconds - row.compile_seconds for row in rows])),
    )


def by_case(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows in order, grouped by case, one group for each component of a vector f."""
    groups: dict[str, list[Row]] = {}
    rows = list(rows)
    vectors = {row.case for row in rows if row.component > 0}
    for row in rows:
        name = f"{row.case} [{row.component}]" if row.case in vectors else row.case
        groups.setdefault(name, []).append(row)
    return groups


def complaints(rows: Iterable[Row]) -> str:
    """How often runs of each case failed, warned or gave no number, and in which words."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.component == 0 and row.warnings:
            # The numbers in a sentence differ from run to run.
            counts[row.case, re.sub(r"[\d.,]*\d", "#", row.warnings)] += 1
    return "\n".join(f"- {case}, {n} runs: {text}" for (case, text), n in counts.items())


def markdown(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A Markdown table with aligned columns; the first column is text, the others numbers."""
    cells = [list(header), *([_cell(value) for value in line] for line in lines)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]

    def join(line: Sequence[str]) -> str:
        first, *others = (cell.rjust(w) for cell, w in zip(line, widths, strict=True))
        return "| " + " | ".join([first.strip().ljust(widths[0]), *others]) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join([join(cells[0]), rule, *map(join, cells[1:])])


def _cell(value: Any) -> str:
    if isinstance(value, bool | np.bool_):
        return "pass" if value else "FAIL"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    if isinstance(value, float | np.floating):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def machine() -> str:
    """What the seconds in a table depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    model = next(iter(names), platform.processor() or platform.machine())
    versions = ", ".join(f"{name} {version(name)}" for name in ("jax", "jaxlib", "numpy"))
    return f"{model}, {PROCESSES} cores; Python {platform.python_version()}, {versions}"


def arguments(description: str | None, keys: int | None = None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if keys:
        parser.add_argument("--keys", type=int, default=keys, help="runs of each case")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: too little to judge, nothing is written"
    )
    return parser


def finish(
    name: str, title: str, tables: str, passed: bool, rows: Sequence[Any], quick: bool
) -> None:
    """Print the tables; unless quick, keep them with the raw numbers; exit 1 on a failure."""
    said = complaints(row for row in rows if isinstance(row, Row))
    said = f"Warnings of the runs:\n\n{said}\n\n" if said else ""
    text = f"# {title}\n\n{tables}\n\n{said}{machine()}\n"
    print(text)
    if quick:
        print("quick: too little to judge, nothing written")
        return
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    if rows:
        with (RESULTS / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(rows[0])])
            writer.writeheader()
            writer.writerows(asdict(row) for row in rows)
    sys.exit(0 if passed else 1)
