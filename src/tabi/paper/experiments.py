"""The paper's figure and table: which cells they are made of, and running those not yet there.

A cell is one algorithm for all panels and repetitions (one budget of nested sampling, one call of
tabi). Each is kept in a file of its own under its settings, so an interrupted run goes on.
"""

import hashlib
import json
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tabi.expect import expect
from tabi.paper import repetitions
from tabi.paper.families import Family, banana_family, gaussian_family
from tabi.paper.problems import Problem, banana, gaussian
from tabi.posterior import Posterior
from tabi.runtime.precision import precision
from tabi.runtime.workers import one_thread

PANELS = tuple((dimension, y) for y in (2.0, 3.5, 5.0) for dimension in (10, 25, 50))
RUNGS = 200
# Raise when what a cell holds changes: the published settings', and tabi's default.
VERSION, CALL_VERSION = 2, 1
# The default of `expect` is one call after the other: fewer of them, and of smaller budgets.
MOST_CALLS, MOST_BUDGET = {10**5: 30, 10**6: 30, 10**7: 20}, 10**7
# Least budgets: two annealed particles, two live points, a ladder that stands.
LEAST = {"TAAnIS": 2_388, "TANS": 10_002, "tabi": 10**5}
DECADES = tuple(10**power for power in range(4, 9))


def decade(budget: int) -> int:
    """The power of ten that a budget stands for, 0 for none."""
    power = round(math.log10(budget))
    return power if abs(budget / 10**power - 1) < 0.01 else 0


@dataclass(frozen=True)
class Settings:
    """What a reproduction is asked for.

    Attributes
    ----------
    runs
        Repetitions.
    most
        The largest budget E.
    panels
        (D, y) of the figure's panels.
    methods
        Which lines, by name; empty for all.
    """

    runs: int
    most: int
    panels: tuple[tuple[int, float], ...] = PANELS
    methods: tuple[str, ...] = ()

    def calls(self, budget: int) -> int:
        """Repetitions of tabi's default with this budget."""
        return min(self.runs, MOST_CALLS.get(budget, min(MOST_CALLS.values())))

    def budgets(self, method: str) -> list[int]:
        """Budgets E of a line: decades."""
        least = LEAST.get(method, 0)
        most = min(self.most, MOST_BUDGET) if method == "tabi" else self.most
        chosen = {max(budget, least) for budget in DECADES if budget <= most}
        # A method that needs a little more than a decade gets it.
        return sorted(budget for budget in chosen if decade(budget) and budget <= 1.01 * most)


@dataclass(frozen=True)
class Cell:
    """One piece of work.

    Attributes
    ----------
    name, identity
        What it is, for people and for its file.
    work
        Roughly how much, for the time left.
    run
        `run(report) -> {method: log E f [budget, panel, run]}`.
    budgets
        E of each method.
    panels
        Names of its panels.
    """

    name: str
    identity: dict[str, Any]
    work: float
    run: Callable[[Callable[[float], None]], dict[str, np.ndarray]] = field(repr=False)
    budgets: dict[str, list[int]] = field(default_factory=dict)
    panels: tuple[str, ...] = ()

    def path(self, folder: Path) -> Path:
        """Its file."""
        text = json.dumps(self.identity, sort_keys=True)
        return folder / f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.npz"


@dataclass(frozen=True)
class Point:
    """Relative squared errors of one method, on one panel, at one budget."""

    panel: str
    method: str
    budget: int
    errors: np.ndarray

    @property
    def median(self) -> float:
        """Over the repetitions."""
        return float(np.median(self.errors))

    @property
    def mean(self) -> float:
        """Over the repetitions."""
        return float(np.mean(self.errors))

    @property
    def quartiles(self) -> tuple[float, float]:
        """25% and 75%, over the repetitions."""
        low, high = np.quantile(self.errors, [0.25, 0.75], method="nearest")
        return float(low), float(high)


def gaussian_cells(settings: Settings) -> list[Cell]:
    """The figure's: SNIS1 and SNIS2 together, BS, GTI, TAAnIS, TANS by budget, tabi by call."""
    family = gaussian_family(settings.panels)
    identity = {
        "version": VERSION,
        "panels": settings.panels,
        "runs": settings.runs,
        "most": settings.most,
    }
    make = partial(_cell, family, identity, settings)
    cells = [
        make("chains", ("SNIS1", "SNIS2"), repetitions.chains_at_ends, 2.0),
        make("BS", ("BS",), repetitions.bridge, 1.0),
        make("GTI", ("GTI",), partial(repetitions.thermodynamic, rungs=RUNGS), 1.0),
        make("TAAnIS", ("TAAnIS",), partial(repetitions.annealed, rungs=RUNGS), 1.0),
        make("TANS", ("TANS",), repetitions.nested, 1.0),
    ]
    cells = [cell for cell in cells if cell is not None]
    for dimension, y in settings.panels:
        cells += _calls(gaussian(y, dimension), settings, settings.budgets("tabi"))
    return _wanted(cells, settings)


def banana_cells(settings: Settings) -> list[Cell]:
    """The table's, at its one budget."""
    family = banana_family()
    identity = {"version": VERSION, "runs": settings.runs, "most": settings.most}

    def make(name: str, function: Any, work: float) -> Cell:
        def run(report: Callable[[float], None]) -> dict[str, np.ndarray]:
            found = function(family, [settings.most], settings.runs, 0, report)
            return {name: found["SNIS1"] if isinstance(found, dict) else found}

        total = work * settings.runs * settings.most
        names = tuple(problem.name for problem in family.problems)
        return Cell(
            _file_name(name), {"name": name, **identity}, total, run, {name: [settings.most]}, names
        )

    cells = [make("MCMC", repetitions.chains_at_ends, 2.0)]
    for rungs in (10, 50, 100):
        gti = partial(repetitions.thermodynamic, rungs=rungs)
        cells.append(make(f"GTI {rungs}", gti, 1.0))
        taanis = partial(repetitions.annealed, rungs=rungs)
        cells.append(make(f"TAAnIS {rungs}", taanis, 1.0))
    cells.append(make("TANS", repetitions.nested, 1.0))
    cells = [cell for cell in cells if settings.most >= LEAST.get(cell.name, 0)]
    budgets = [settings.most] if settings.most >= LEAST["tabi"] else []
    return _wanted([*cells, *_calls(banana(log=True), settings, budgets)], settings)


def _wanted(cells: Sequence[Cell], settings: Settings) -> list[Cell]:
    names = {name for cell in cells for name in cell.budgets}
    unknown = set(settings.methods) - names
    if unknown:
        raise ValueError(f"no method is called {sorted(unknown)}; there are {sorted(names)}")
    chosen = set(settings.methods) or names
    return [cell for cell in cells if chosen & set(cell.budgets)]


def _cell(
    family: Family,
    identity: dict[str, Any],
    settings: Settings,
    name: str,
    methods: tuple[str, ...],
    function: Any,
    work: float,
) -> Cell | None:
    budgets = {method: settings.budgets(method) for method in methods}
    if not budgets[methods[0]]:
        return None

    def run(report: Callable[[float], None]) -> dict[str, np.ndarray]:
        found = function(family, budgets[methods[0]], settings.runs, 0, report)
        return found if isinstance(found, dict) else {methods[0]: found}

    total = work * settings.runs * settings.most * len(settings.panels)
    names = tuple(problem.name for problem in family.problems)
    return Cell(_file_name(name), {"name": name, **identity}, total, run, budgets, names)


def _calls(problem: Problem, settings: Settings, budgets: Sequence[int]) -> list[Cell]:
    """`expect` with its defaults, a cell for each budget and repetition."""
    cells = []
    for budget in budgets:
        for key in range(settings.calls(budget)):
            identity = {
                "tabi": CALL_VERSION,
                "problem": problem.name,
                "log": problem.log,
                "E": budget,
                "key": key,
            }
            name = f"tabi-{_file_name(problem.name)}-{budget}-{key}"
            run = partial(_call, problem.name, problem.log, budget, key)
            # Compilation is most of a short call.
            work = 3.0 * (budget + 10**6)
            cells.append(Cell(name, identity, work, run, {"tabi": [budget]}, (problem.name,)))
    return cells


def _call(
    name: str, log: bool, budget: int, key: int, report: Callable[[float], None]
) -> dict[str, np.ndarray]:
    problem = banana(log) if name == "banana" else _gaussian_named(name)
    with ThreadPoolExecutor(1) as executor:
        result = expect(
            problem.target,
            Posterior(problem.log_density, problem.init, dtype="float64"),
            log=problem.log,
            rel_tol=None,
            max_evaluations=budget,
            key=key,
            executor=executor,
            progress=False,
        )
    report(1.0)
    # A run that ended without a number is as wrong as an answer of 0.
    return {"tabi": np.reshape(result.log_value, (1, 1, 1)).astype(float)}


def _gaussian_named(name: str) -> Problem:
    dimension, y = (part.split("=")[1] for part in name.split()[1:])
    return gaussian(float(y), int(dimension))


def _file_name(name: str) -> str:
    return name.replace(" ", "-").replace("=", "")


def run_cells(
    cells: Sequence[Cell], folder: Path, tell: Callable[[str], None]
) -> Iterator[tuple[Cell, dict[str, np.ndarray]]]:
    """Results of all cells, from their files where these exist.

    Parameters
    ----------
    cells
        What is wanted.
    folder
        Where files are kept.
    tell
        Receives lines of progress with the time left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [cell for cell in cells if not cell.path(folder).exists()]
    if len(missing) < len(cells):
        tell(f"{len(cells) - len(missing)} of {len(cells)} cells are there already")
    clock = _Clock(sum(cell.work for cell in missing), tell)
    calls = [cell for cell in missing if "tabi" in cell.budgets]
    with precision(np.dtype(np.float64)):
        for cell in missing:
            if cell not in calls:
                _keep(cell, cell.run(clock.reporter(cell)), folder)
                clock.finish(cell)
    _run_calls(calls, folder, clock)
    for cell in cells:
        with np.load(cell.path(folder)) as kept:
            yield cell, {name.replace("_", " "): kept[name] for name in kept.files}


def _run_calls(calls: Sequence[Cell], folder: Path, clock: "_Clock") -> None:
    """Separate calls of `expect` are spread over processes, one thread each."""
    if not calls:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    context = multiprocessing.get_context("spawn")
    count = min(cores or 1, len(calls))
    with ProcessPoolExecutor(count, mp_context=context, initializer=one_thread) as pool:
        futures = {pool.submit(cell.run, _ignore): cell for cell in calls}
        for future in as_completed(futures):
            _keep(futures[future], future.result(), folder)
            clock.finish(futures[future])


def _ignore(share: float) -> None:
    """Processes report when they end."""


def _keep(cell: Cell, found: dict[str, np.ndarray], folder: Path) -> None:
    """Write a cell's file whole or not at all."""
    path = cell.path(folder)
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        arrays: Any = {name.replace(" ", "_"): values for name, values in found.items()}
        np.savez(file, **arrays)
    os.replace(temporary, path)


class _Clock:
    """Says how far the work is and how long the rest will take."""

    def __init__(self, total: float, tell: Callable[[str], None]) -> None:
        self._total, self._tell = total, tell
        self._done = 0.0
        self._begin = self._told = time.perf_counter()

    def reporter(self, cell: Cell) -> Callable[[float], None]:
        """For the share of a cell that is done."""

        def report(share: float) -> None:
            if time.perf_counter() - self._told > 5:
                self._say(cell, self._done + share * cell.work)

        return report

    def finish(self, cell: Cell) -> None:
        """A cell is done."""
        self._done += cell.work
        if time.perf_counter() - self._told > 1 or self._done >= self._total:
            self._say(cell, self._done)

    def _say(self, cell: Cell, done: float) -> None:
        self._told = time.perf_counter()
        spent = self._told - self._begin
        left = spent * (self._total - done) / max(done, 1e-9)
        self._tell(f"{done / self._total:4.0%}  {_duration(left)} left  {cell.name}")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(math.ceil(seconds)), 60)
    return f"{minutes} min {seconds:02d} s" if minutes else f"{seconds} s"


def points(
    results: Iterator[tuple[Cell, dict[str, np.ndarray]]], truths: dict[str, float]
) -> list[Point]:
    """Errors by panel, method and budget; the calls of tabi joined over repetitions."""
    gathered: dict[tuple[str, str, int], list[np.ndarray]] = {}
    for cell, found in results:
        for method, log_values in found.items():
            for budget, by_panel in zip(cell.budgets[method], log_values, strict=True):
                for panel, values in zip(cell.panels, by_panel, strict=True):
                    error = np.expm1(np.minimum(values - truths[panel], 300.0)) ** 2
                    gathered.setdefault((panel, method, budget), []).append(error)
    return [Point(*place, np.concatenate(parts)) for place, parts in gathered.items()]
