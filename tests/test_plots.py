"""The pictures and the page: they show the run's own numbers, whatever its shape."""

import base64
import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest
from test_result import make_leg, make_result

from tabi.plots import MAX_LEGS, plot_comparison


def _lines(ax):
    return [(line.get_xdata(), line.get_ydata()) for line in ax.get_lines()]


def _has(lines, x, y):
    return any(np.array_equal(a, x) and np.array_equal(b, y) for a, b in lines)


def test_the_integrand_panel_shows_the_finite_rungs():
    leg = make_leg()
    ax = make_result().plot().axes[0]
    # The integrand at the first rung is -inf there.
    assert _has(_lines(ax), leg.betas[1:], leg.integrand[1:])


def test_the_shading_runs_from_the_left_to_the_right_sum():
    leg = make_leg()
    (shade,) = make_result().plot().axes[0].collections
    area = 0.0
    for path in shade.get_paths():
        x, y = path.vertices.T
        area += abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2
    steps = np.diff(leg.betas[1:])
    assert area == pytest.approx(np.sum(steps * np.diff(leg.integrand[1:])))


def test_rates_stand_on_rungs_and_between_them():
    leg = make_leg()
    lines = _lines(make_result().plot().axes[1])
    assert _has(lines, np.arange(5), leg.acceptance)
    assert _has(lines, np.arange(4) + 0.5, leg.exchange)
    assert _has(lines, np.arange(4) + 0.5, leg.overlap)


def test_estimators_are_named_and_those_without_a_number_left_out():
    ax = make_result().plot().axes[2]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["MBAR", "BAR", "Simpson"]
    (bars,) = ax.containers
    points = bars.lines[0].get_xdata()
    np.testing.assert_allclose(points, [0.005, -0.005], atol=1e-12)
    (segments,) = bars.lines[2]
    widths = [np.ptp(s[:, 0]) for s in segments.get_segments()]
    np.testing.assert_allclose(widths, [2 * 1.96 * 0.01, 2 * 1.96 * 0.012])


def test_rounds_show_their_evaluations_in_order():
    ax = make_result().plot().axes[3]
    heights = {p.get_x() + p.get_width() / 2: p.get_height() for p in ax.patches}
    assert heights == {1.0: 4000, 2.0: 9999}
    assert {t.get_text() for t in ax.get_legend().get_texts()} == {"warm-up", "measure"}


def test_every_phase_of_many_is_drawn():
    result = make_result()
    record = result.diagnostics.rounds[0]
    rounds = tuple(dataclasses.replace(record, phase=f"phase {i}") for i in range(7))
    changed = dataclasses.replace(result.diagnostics, rounds=rounds)
    figure = dataclasses.replace(result, diagnostics=changed).plot()
    assert len(figure.axes[3].patches) == 7


@pytest.mark.parametrize(("shape", "legs"), [((), 0), ((), 3), ((9,), 9)])
def test_any_number_of_legs_can_be_drawn(tmp_path, shape, legs):
    figure = make_result(shape, legs).plot()
    figure.savefig(tmp_path / "p.png")
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert len(labels) == (min(legs, MAX_LEGS) if legs > 1 else 0)
    assert ("first" in figure.get_suptitle()) == (legs > MAX_LEGS)


def test_a_result_without_diagnostics_says_why_it_cannot_be_drawn():
    with pytest.raises(ValueError, match="no diagnostics"):
        make_result(diagnostics=None).plot()


def test_the_comparison_puts_answer_and_averages_on_one_scale():
    result = make_result(log_abs=-3.0 + np.log(10), log_stderr=0.1)
    running = np.log([[1e-3, 1e-2], [1e-4, 1.0]])
    ax = plot_comparison(result, np.array([100, 1000]), running, -3.0, "title").axes[0]
    lines = _lines(ax)
    assert any(np.allclose(y, [-3, -2]) for _, y in lines if len(y) == 2)
    # The answer is ten times the truth here: one decade above the line of the exact answer.
    assert any(len(y) == 1 and np.isclose(y[0], 1.0) and x[0] == 303_000 for x, y in lines)


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    make_result().plot()
    assert dict(matplotlib.rcParams) == before


def test_a_report_is_one_page_with_everything_in_it(tmp_path):
    make_result((3,), 2).report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    assert not re.search(r'(src|href)="(?!data:)', page), "no other file is needed"
    for piece in (
        "303,000",
        "MBAR",
        "Leg 2",
        "warm-up",
        "all ladders started",
        "-37.20000",
        "&lt;reaches&gt;",
    ):
        assert piece in page
    assert "&lt;second&gt;" in page and "<second>" not in page and "<odd>" not in page


def test_a_report_without_diagnostics_is_the_table(tmp_path):
    make_result(diagnostics=None).report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "0.04979" in page and "<img" not in page


def test_printing_and_saving_need_no_matplotlib():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from tabi.result import Result\n"
        "r = Result.from_log(1, 0, 1, evaluations=1, converged=True); print(r)\n"
        "from tabi.plots import plot_comparison\n"
        "import numpy as np\n"
        "try: plot_comparison(r, np.ones(1), np.ones((1, 1)), 0.0, '')\n"
        "except ImportError as e: assert 'tabi[plot]' in str(e); print('hint')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("hint\n"), done.stderr
