"""One self-contained HTML page about a result."""

import base64
import html
import io
import os
from collections.abc import Sequence

import numpy as np

from tabi.diagnostics import LegDiagnostics
from tabi.plots import plot_result
from tabi.result import Result, RunDiagnostics, atomic_file, component_rows

MAX_COMPONENTS = 100
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e4e7eb; }
th { color: #52606d; font-weight: 600; }
.warning { background: #fff4e5; border-left: 4px solid #d9730d; padding: .4rem .8rem; }
img { max-width: 100%; } .scroll { overflow-x: auto; }
"""


def write_report(result: Result, path: str | os.PathLike[str]) -> None:
    """Write the page.

    Parameters
    ----------
    result
        What to report.
    path
        The HTML file; it refers to no other file.
    """
    page = _page(result).encode()
    with atomic_file(path) as file:
        file.write(page)


def _page(result: Result) -> str:
    parts = [
        "<h1>tabi result</h1>",
        _table(component_rows(result, MAX_COMPONENTS)),
        f"<p>{_cost(result)}</p>",
        *(f'<p class="warning">{html.escape(w)}</p>' for w in result.warnings),
    ]
    if result.diagnostics is not None:
        parts += [_picture(result), *_diagnostics(result.diagnostics)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>tabi result</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _cost(result: Result) -> str:
    text = f"{result.method}, {result.evaluations:,} evaluations"
    if result.gradients:
        text += f", {result.gradients:,} of them with gradient"
    return html.escape(text)


def _picture(result: Result) -> str:
    buffer = io.BytesIO()
    plot_result(result).savefig(buffer, format="png", dpi=130)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<p><img alt="the run" src="data:image/png;base64,{data}"></p>'


def _diagnostics(run: RunDiagnostics) -> list[str]:
    parts = ["<h2>Run</h2>", _table(_run_rows(run))]
    for number, leg in enumerate(run.legs, start=1):
        parts.append(f"<h2>Leg {number}, component {leg.component} of f</h2>")
        parts.append(_table(_estimate_rows(leg)))
        parts += [f"<p>{html.escape(f'{k}: {why}')}</p>" for k, why in leg.refusals.items()]
        parts.append(_table(_rung_rows(leg)))
        parts.append(f"<p>Round trips: {leg.round_trips}</p>")
    parts.append("<h2>Rounds</h2>")
    rows = [
        [r.phase, f"{r.sweeps:,}", f"{r.evaluations:,}", f"{r.seconds:.2f}"] for r in run.rounds
    ]
    parts.append(_table([["phase", "sweeps", "evaluations", "seconds"], *rows]))
    return parts


def _run_rows(run: RunDiagnostics) -> list[list[str]]:
    invalid = str(run.invalid_proposals)
    if run.first_invalid is not None:
        invalid += f", first at {run.first_invalid}"
    return [
        ["quantity", "value"],
        ["condition number", _numbers(run.condition)],
        ["autocorrelation time", _numbers(run.autocorrelation_time)],
        ["spread of ladders / stderr", _numbers(run.ladder_ratio)],
        ["rejection barrier of the legs", _numbers(np.array(run.barrier))],
        ["NaN proposals", invalid],
        ["compilations", f"{run.compilations} ({run.compile_seconds:.1f} s)"],
        ["wall time", f"{run.seconds:.1f} s"],
    ]


def _estimate_rows(leg: LegDiagnostics) -> list[list[str]]:
    rows = [["estimator", "log ratio", "stderr"]]
    rows += [[name, f"{v:.5f}", f"{se:.2g}"] for name, (v, se) in leg.estimates.items()]
    left, right = leg.bounds
    return [*rows, ["integrand's left and right sum", f"{left:.5f} to {right:.5f}", ""]]


def _rung_rows(leg: LegDiagnostics) -> list[list[str]]:
    """One row per rung; an edge stands on the row of its lower rung."""
    columns = (
        leg.betas, leg.integrand, leg.acceptance, leg.exchange, leg.overlap, leg.rhat, leg.ess,
    )  # fmt: skip
    head = ["β", "E[U]", "acceptance", "exchange up", "overlap up", "R̂", "ESS"]
    rows = [
        [f"{column[k]:.4g}" if k < len(column) else "" for column in columns]
        for k in range(len(leg.betas))
    ]
    return [head, *rows]


def _numbers(array: np.ndarray, most: int = 8) -> str:
    flat = np.ravel(array)
    text = ", ".join(f"{x:.3g}" for x in flat[:most])
    return text + (", …" if flat.size > most else "")


def _table(rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    body = "\n".join([line(rows[0], "th"), *(line(row, "td") for row in rows[1:])])
    return f'<div class="scroll"><table>\n{body}\n</table></div>'
