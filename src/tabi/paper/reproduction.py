"""The paper's figure and table from the errors of all methods: pictures, tables, numbers."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tabi.paper.experiments import (
    Point,
    Settings,
    banana_cells,
    decade,
    gaussian_cells,
    points,
    run_cells,
)
from tabi.paper.problems import banana, gaussian

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper's table: median relative squared errors over 100 runs at E = 10^6.
PUBLISHED = {
    "MCMC": 0.0040054,
    "GTI 10": 0.01516,
    "GTI 50": 0.0012224,
    "GTI 100": 0.00060778,
    "TAAnIS 10": 0.0037181,
    "TAAnIS 50": 0.0036433,
    "TAAnIS 100": 0.0033898,
    "TANS": 0.07276,
}
METHODS = ("SNIS1", "SNIS2", "BS", "TAAnIS", "TANS", "GTI", "tabi")
COLOURS = ("#9aa5b1", "#c2a25a", "#7a5ea8", "#2f8f5b", "#b8323a", "#2563a8", "#d9730d")


def reproduce_gaussian(settings: Settings, folder: Path, tell: Callable[[str], None]) -> list[Path]:
    """The paper's figure: its files, beside the cells that they are made of."""
    problems = [gaussian(y, dimension) for dimension, y in settings.panels]
    truths = {problem.name: problem.log_truth for problem in problems}
    found = points(run_cells(gaussian_cells(settings), folder / "cells", tell), truths)
    files = [_write_numbers(found, folder / "gaussian.csv")]
    table = folder / "gaussian.md"
    table.write_text(_gaussian_table(found, settings), encoding="utf-8")
    return [*files, table, *_save(lambda: plot_gaussian(found, settings), folder / "gaussian.png")]


def reproduce_banana(settings: Settings, folder: Path, tell: Callable[[str], None]) -> list[Path]:
    """The paper's table and its three densities."""
    truths = {"banana": banana().log_truth}
    found = points(run_cells(banana_cells(settings), folder / "cells", tell), truths)
    files = [_write_numbers(found, folder / "banana.csv")]
    table = folder / "banana.md"
    table.write_text(_banana_table(found, settings), encoding="utf-8")
    return [*files, table, *_save(plot_densities, folder / "banana.png")]


def _write_numbers(found: Sequence[Point], path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["panel", "method", "E", "runs", "mean", "q25", "median", "q75"])
        for p in found:
            numbers = (p.mean, p.quartiles[0], p.median, p.quartiles[1])
            row = [p.panel, p.method, p.budget, p.errors.size, *(f"{x:.6g}" for x in numbers)]
            writer.writerow(row)
    return path


def _gaussian_table(found: Sequence[Point], settings: Settings) -> str:
    """Median (mean) by method and budget, a table for each panel."""
    parts = [
        f"# Relative squared errors, {settings.runs} runs\n\n"
        f"{_runs_of_tabi(settings)}Median (mean) over the runs; E counts model evaluations. "
        "TANS needs 10,002 of them, TAAnIS 2,388; tabi's ladder does not stand on 10^4."
    ]
    for name in dict.fromkeys(point.panel for point in found):
        mine = {(p.method, decade(p.budget)): p for p in found if p.panel == name}
        decades = sorted({power for _, power in mine})
        header = ["method", *(f"E = 10^{power}" for power in decades)]
        rows = []
        for method in METHODS:
            if any(method == other for other, _ in mine):
                cells = [_both(mine.get((method, power))) for power in decades]
                rows.append([method, *cells])
        parts.append(f"## {name}\n\n{_markdown(header, rows)}")
    return "\n\n".join(parts) + "\n"


def _banana_table(found: Sequence[Point], settings: Settings) -> str:
    rows = []
    for p in found:
        if p.budget == settings.most:
            published = PUBLISHED.get(p.method)
            shown = f"{published:.2g}" if published else "-"
            runs = str(p.errors.size)
            rows.append([p.method, shown, f"{p.median:.2g}", f"{p.mean:.2g}", runs])
    header = ["method", "paper, median", "median", "mean", "runs"]
    title = f"# The banana: relative squared errors at E = {settings.most:,}"
    note = "The paper's column is for 100 runs at E = 1,000,000."
    return f"{title}\n\n{_markdown(header, rows)}\n\n{note}\n"


def _runs_of_tabi(settings: Settings) -> str:
    """The runs of tabi's default, where these are fewer."""
    fewer = [
        f"{settings.calls(budget)} at 10^{decade(budget)}"
        for budget in settings.budgets("tabi")
        if settings.calls(budget) < settings.runs
    ]
    return f"Runs of tabi: {', '.join(fewer)}. " if fewer else ""


def _both(point: Point | None) -> str:
    return "-" if point is None else f"{point.median:.2g} ({point.mean:.2g})"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _save(plot: Callable[[], "Figure"], path: Path) -> list[Path]:
    """The picture, where there is matplotlib."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        return []
    plot().savefig(path, dpi=130)
    return [path]


def plot_gaussian(found: Sequence[Point], settings: Settings) -> "Figure":
    """Relative squared error against E: medians with quartiles, a panel for each (D, y)."""
    from tabi.plots import STYLE, load_matplotlib

    matplotlib, new_figure = load_matplotlib()
    ys = sorted({y for _, y in settings.panels})
    dimensions = sorted({dimension for dimension, _ in settings.panels})
    with matplotlib.rc_context(STYLE):
        figure = new_figure((4 * len(dimensions), 3.2 * len(ys)))
        axes = figure.subplots(len(ys), len(dimensions), squeeze=False, sharex=True)
        for row, y in enumerate(ys):
            for column, dimension in enumerate(dimensions):
                one = axes[row][column]
                if (dimension, y) not in settings.panels:
                    one.set_visible(False)
                    continue
                _panel(one, [p for p in found if p.panel == gaussian(y, dimension).name])
                one.set_title(f"y = {y:g}, D = {dimension}")
        for one in axes[-1]:
            one.set_xlabel("model evaluations E")
        for line in axes:
            line[0].set_ylabel("relative squared error")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(METHODS))
    return figure


def _panel(axes: Any, found: Sequence[Point]) -> None:
    for method, colour in zip(METHODS, COLOURS, strict=True):
        mine = sorted((p for p in found if p.method == method), key=lambda p: p.budget)
        if not mine:
            continue
        budgets = [p.budget for p in mine]
        low, high = zip(*(p.quartiles for p in mine), strict=True)
        width = 2.2 if method in ("GTI", "tabi") else 1.3
        axes.plot(budgets, [p.median for p in mine], "o-", ms=3, lw=width, c=colour, label=method)
        axes.fill_between(budgets, low, high, color=colour, alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log", ylim=(1e-8, 1e2))


def plot_densities() -> "Figure":
    """pi, f pi and f^0.0173 pi of the banana."""
    import jax

    from tabi.plots import STYLE, load_matplotlib

    matplotlib, new_figure = load_matplotlib()
    problem = banana()
    x, y = np.linspace(-25, 25, 401), np.linspace(-40, 20, 401)
    grid = np.stack(np.meshgrid(x, y), -1).reshape(-1, 2)
    with jax.enable_x64(True):
        log_pi = np.asarray(jax.jit(jax.vmap(problem.log_density))(grid))
        log_f = np.asarray(jax.jit(jax.vmap(problem.log_f))(grid))
    titles = {0.0: "π", 1.0: "f π", 0.0173: "f^0.0173 π"}
    with matplotlib.rc_context(STYLE):
        figure = new_figure((12, 4))
        for axes, (beta, title) in zip(figure.subplots(1, 3), titles.items(), strict=True):
            tempered = log_pi + (beta * log_f if beta else 0.0)
            density = np.exp(tempered - tempered.max()).reshape(len(y), len(x))
            axes.contourf(x, y, density, levels=12, cmap="Blues")
            axes.set(title=title, xlabel="$x_1$", ylabel="$x_2$")
            axes.grid(False)
    return figure
