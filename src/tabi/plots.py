"""Pictures of a run. Needs the extra `tabi[plot]`; imported only when a picture is asked for."""

import itertools
import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from tabi.diagnostics import LegDiagnostics
from tabi.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LEGS = 4
INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
BLUE, ORANGE, GREEN, RED = "#2563a8", "#d9730d", "#2f8f5b", "#b8323a"
LEG_COLOURS = (BLUE, ORANGE, GREEN, RED)
PHASE_COLOURS = ("#9aa5b1", "#7a5ea8", GREEN, ORANGE, BLUE, RED)
STYLE: dict[str, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def plot_result(result: Result) -> "Figure":
    """Draw a run: integrand, rates along the ladder, agreement of the estimators, cost.

    Parameters
    ----------
    result
        A result with diagnostics; of many legs the first few are drawn.

    Returns
    -------
    matplotlib.figure.Figure
        Four panels.

    Raises
    ------
    ValueError
        If the result has no diagnostics.
    """
    if result.diagnostics is None:
        raise ValueError("this result has no diagnostics to plot: expected one made by a run.")
    matplotlib, new_figure = load_matplotlib()
    with matplotlib.rc_context(STYLE):
        figure = new_figure((11, 7.8))
        axes = figure.subplots(2, 2)
        legs = result.diagnostics.legs
        _draw_integrand(axes[0, 0], legs[:MAX_LEGS])
        _draw_rates(axes[0, 1], legs[:MAX_LEGS])
        _draw_estimates(axes[1, 0], legs[:MAX_LEGS])
        _draw_rounds(axes[1, 1], result)
        figure.suptitle(_headline(result, len(legs)), x=0.01, ha="left", fontsize=12, color=INK)
    return figure


def plot_comparison(
    result: Result,
    evaluations: np.ndarray,
    running: np.ndarray,
    log_truth: float,
    title: str,
) -> "Figure":
    """Draw an answer beside running posterior averages and the exact answer.

    Parameters
    ----------
    result
        The answer, of a scalar f.
    evaluations
        How many draws the running averages have seen, [point].
    running
        log of several independent running averages relative to the truth, [average, point].
    log_truth
        log of the exact answer.
    title
        Name of the problem.

    Returns
    -------
    matplotlib.figure.Figure
        The averages on the left, the ladder's integrand on the right.
    """
    matplotlib, new_figure = load_matplotlib()
    with matplotlib.rc_context(STYLE):
        figure = new_figure((11, 4.6))
        legs = () if result.diagnostics is None else result.diagnostics.legs
        left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
        _draw_running(left, evaluations, running / np.log(10))
        _draw_answer(left, result, log_truth)
        _draw_integrand(right, legs[:1])
        right.set_xlabel("β  (0: posterior, 1: |f| × posterior)")
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    return figure


def load_matplotlib() -> tuple[Any, Any]:
    """The module, and a maker of figures that leaves pyplot's global state alone."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError('plots need matplotlib: pip install "tabi[plot]"') from error

    def new_figure(size: tuple[float, float]) -> "Figure":
        return Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))

    return matplotlib, new_figure


def _whole_ticks(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def _headline(result: Result, n_legs: int) -> str:
    more = f"   (first {MAX_LEGS} of {n_legs} legs)" if n_legs > MAX_LEGS else ""
    if result.value.shape != ():
        return f"{result.method}   f of shape {result.value.shape}{more}"
    state = "" if result.converged else "   not converged"
    return f"{result.method}   {result.value:.4g} ± {result.stderr:.2g}{state}{more}"


def _draw_integrand(ax: "Axes", legs: tuple[LegDiagnostics, ...]) -> None:
    for colour, (label, leg) in zip(LEG_COLOURS, _labelled(legs), strict=False):
        betas, integrand = np.asarray(leg.betas), np.asarray(leg.integrand)
        shown = np.isfinite(integrand)
        ax.plot(betas[shown], integrand[shown], "-", color=colour, lw=1.6, alpha=0.6)
        ax.plot(betas[shown], integrand[shown], "o", color=colour, ms=5, label=label, zorder=3)
        if np.sum(shown) > 1:
            _draw_bounds(ax, betas[shown], integrand[shown], colour)
    ax.set_title("Integrand of the log ratio")
    ax.set_xlabel("β  (0: start of the path, 1: its end)")
    ax.set_ylabel("E[U] at the rung")
    ax.set_xlim(-0.03, 1.03)
    _legend(ax, legs)


def _draw_bounds(ax: "Axes", betas: np.ndarray, integrand: np.ndarray, colour: str) -> None:
    """Shade from the left to the right sum: on the geometric path the integrand only rises."""
    ax.fill_between(betas, integrand, _next(integrand), step="post", color=colour, alpha=0.13, lw=0)


def _next(values: np.ndarray) -> np.ndarray:
    return np.append(values[1:], values[-1])


def _draw_rates(ax: "Axes", legs: tuple[LegDiagnostics, ...]) -> None:
    many = len(legs) > 1
    for i, leg in enumerate(legs):
        edges = np.arange(len(leg.betas) - 1) + 0.5
        rungs = np.arange(len(leg.betas))
        named = i == 0
        for x, y, marker, colour, name in (
            (rungs, leg.acceptance, "o-", BLUE, "acceptance (rung)"),
            (edges, leg.exchange, "s-", ORANGE, "exchange (edge)"),
            (edges, leg.overlap, "^-", GREEN, "overlap (edge)"),
        ):
            ax.plot(
                x, y, marker, color=colour, ms=5, lw=1.2, alpha=0.45 if many else 0.9,
                label=name if named else None,
            )  # fmt: skip
    ax.set_title("Rates along the ladder")
    ax.set_xlabel("rung")
    ax.set_ylim(-0.03, 1.03)
    _whole_ticks(ax.xaxis)
    if legs:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)


def _draw_estimates(ax: "Axes", legs: tuple[LegDiagnostics, ...]) -> None:
    names = list(dict.fromkeys(name for leg in legs for name in leg.estimates))
    height = 0.8 / max(len(legs), 1)
    for i, (colour, (label, leg)) in enumerate(zip(LEG_COLOURS, _labelled(legs), strict=False)):
        rows = np.array([names.index(name) for name in leg.estimates])
        values, errors = np.array(list(leg.estimates.values()), float).reshape(-1, 2).T
        finite = np.isfinite(values) & np.isfinite(errors)
        if not finite.any():
            continue
        centre = np.median(values[finite])
        about = f"{label}: median {centre:.4f}" if label else f"median {centre:.4f}"
        y = rows[finite] + (i - (len(legs) - 1) / 2) * height
        ax.errorbar(
            values[finite] - centre, y, xerr=1.96 * errors[finite], fmt="o", color=colour,
            ms=5, capsize=3, lw=1.4, label=about,
        )  # fmt: skip
    ax.axvline(0, color=MUTED, lw=1, ls=":")
    ax.set_yticks(range(len(names)), [textwrap.fill(name, 16) for name in names])
    ax.set_ylim(max(len(names), 1) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.set_title("Do the estimators agree?")
    ax.set_xlabel("log ratio − median, 95% intervals")
    if names:
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)


def _draw_rounds(ax: "Axes", result: Result) -> None:
    assert result.diagnostics is not None
    rounds = result.diagnostics.rounds
    phases = list(dict.fromkeys(r.phase for r in rounds))
    for colour, phase in zip(itertools.cycle(PHASE_COLOURS), phases, strict=False):
        mine = [(i + 1, r.evaluations) for i, r in enumerate(rounds) if r.phase == phase]
        x, y = zip(*mine, strict=True)
        ax.bar(x, y, width=0.75, color=colour, alpha=0.85, label=phase)
    if rounds:
        ax.set_yscale("log")
        ax.legend()
    ax.set_title(f"Evaluations by round, {result.evaluations:,} in all")
    ax.set_xlabel("round")
    ax.grid(axis="x", visible=False)
    _whole_ticks(ax.xaxis)


def _draw_running(ax: "Axes", evaluations: np.ndarray, running: np.ndarray) -> None:
    for i, row in enumerate(running):
        ax.plot(
            evaluations, row, color=MUTED, lw=1.1, alpha=0.75,
            label="posterior averages, independent runs" if i == 0 else None,
        )  # fmt: skip
    seen = running[np.isfinite(running)]
    if seen.size:
        # The first averages of few draws can lie absurdly low: the 5% lowest may leave the picture.
        low, high = min(np.quantile(seen, 0.05), -1.0), max(seen.max(), 0.5)
        ax.set_ylim(1.1 * low, high + 0.1 * (high - low))
    ax.set_xscale("log")
    ax.set_xlabel("model evaluations")
    ax.set_ylabel("estimate / exact answer")
    ax.set_title("Averaging f over posterior draws, and tabi")


def _draw_answer(ax: "Axes", result: Result, log_truth: float) -> None:
    ax.axhline(0, color=INK, lw=1.2, ls="--", label="exact answer", zorder=1)
    distance = (float(result.log_value) - log_truth) / np.log(10)
    error = 1.96 * float(result.log_stderr) / np.log(10)
    ax.errorbar(
        [result.evaluations], [distance], yerr=[error], fmt="o", color=ORANGE, ms=8, capsize=4,
        lw=2, label=f"tabi, 95% interval ± {196 * float(result.log_stderr):.1f}%", zorder=4,
    )  # fmt: skip
    ax.yaxis.set_major_formatter(_power_of_ten)
    _whole_ticks(ax.yaxis)
    ax.legend(loc="lower right")


def _power_of_ten(value: float, _position: float = 0) -> str:
    return "1" if value == 0 else f"$10^{{{value:g}}}$"


def _labelled(legs: tuple[LegDiagnostics, ...]) -> list[tuple[str, LegDiagnostics]]:
    if len(legs) < 2:
        return [("", leg) for leg in legs]
    return [(f"leg {i + 1}, f[{leg.component}]", leg) for i, leg in enumerate(legs)]


def _legend(ax: "Axes", legs: tuple[LegDiagnostics, ...]) -> None:
    if len(legs) > 1:
        ax.legend()
