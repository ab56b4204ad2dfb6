"""The command line, with a stand-in for the run itself where the run is not the subject."""

import math
import re

import jax
import numpy as np
import pytest
from test_result import make_result
from typer.testing import CliRunner

import tabi
from tabi import paper
from tabi.cli import _posterior_sums, app

RUNNER = CliRunner()


@pytest.fixture
def fake(monkeypatch):
    """`tabi.expect` replaced by the exact answer with a 1% error bar."""
    calls = []

    def expect(f, posterior, **options):
        calls.append((f, posterior, options))
        options["progress"].update("measure", 5_000, 10_000, "error 2%")
        options["progress"].close()
        problem = paper.banana() if "banana" in f.__qualname__ else paper.gaussian()
        return make_result(log_abs=problem.log_truth, log_stderr=0.01, evaluations=20_000)

    monkeypatch.setattr(tabi, "expect", expect)
    monkeypatch.setattr("tabi.cli.CHUNK", 5_000)
    return calls


def _row(text, label):
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line


def test_version_is_the_one_of_the_package():
    done = RUNNER.invoke(app, ["--version"])
    assert done.exit_code == 0 and done.output == f"tabi {tabi.__version__}\n"
    assert re.fullmatch(r"tabi \d+\.\d+\.\d+\S*\n", done.output)


@pytest.mark.parametrize("problem", ["gaussian", "banana"])
def test_demo_prints_answer_average_and_truth_and_saves_a_plot(fake, tmp_path, problem):
    out = tmp_path / "p.png"
    done = RUNNER.invoke(app, ["demo", "--problem", problem, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.read_bytes().startswith(b"\x89PNG")
    truth = {"gaussian": paper.gaussian(), "banana": paper.banana()}[problem].truth
    assert f"{truth:.4g}" in _row(done.stdout, "exact answer")
    assert f"{truth:.4g}" in _row(done.stdout, "tabi ") and "+0.0%" in _row(done.stdout, "tabi ")
    assert "20,000" in _row(done.stdout, "posterior average"), "the same number of evaluations"
    assert re.search(r"± \S+", _row(done.stdout, "posterior average"))
    assert "8 such averages lie between" in done.stdout


def test_demo_shows_progress_on_standard_error_even_without_a_terminal(fake, tmp_path):
    done = RUNNER.invoke(app, ["demo", "--out", str(tmp_path / "p.png")])
    assert "measure: 5,000 of 10,000  error 2%" in done.stderr
    assert "measure:" not in done.stdout


def test_demo_passes_its_budget_on(fake, tmp_path):
    RUNNER.invoke(app, ["demo", "--evaluations", "12345", "--out", str(tmp_path / "p.png")])
    ((_, posterior, options),) = fake
    assert options["max_evaluations"] == 12345 and options["rel_tol"] == 0.02
    assert isinstance(posterior, tabi.Posterior)


@pytest.mark.parametrize("arguments", [["--evaluations", "0"], ["--problem", "other"]])
def test_wrong_options_are_refused_before_any_work(fake, arguments):
    assert RUNNER.invoke(app, ["demo", *arguments]).exit_code == 2
    assert not fake


def test_demo_without_matplotlib_still_answers(fake, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    out = tmp_path / "p.png"
    done = RUNNER.invoke(app, ["demo", "--out", str(out)])
    assert done.exit_code == 0 and "tabi[plot]" in done.stdout and not out.exists()


@pytest.mark.parametrize("draws", [40, 50_000, 120_001])
def test_running_sums_are_sums_over_exact_draws(draws):
    problem = paper.banana()
    counts, sums, squares = _posterior_sums(problem, draws)
    assert counts[-1] == draws and np.all(np.diff(counts) > 0)
    assert np.all(np.diff(sums, axis=1) >= 0) and np.all(np.diff(squares, axis=1) >= 0)
    assert len(np.unique(sums[:, -1])) == len(sums), "the runs are independent"
    if draws > 10_000:
        # I.i.d. draws of the banana have relative variance 437.9 (known independently).
        z = (sums[:, -1] / draws - 1) / math.sqrt(437.9 / draws)
        assert np.all(np.abs(z) < 4)
        assert squares.sum() > 0


def test_the_last_point_matches_a_plain_mean_of_the_same_draws():
    problem = paper.gaussian(y=1.0, dimension=2)
    counts, sums, _ = _posterior_sums(problem, 70_000)
    with jax.enable_x64(True):
        key = jax.random.split(jax.random.key(1), 8)[0]
        x = np.concatenate(
            [problem.sample_posterior(jax.random.fold_in(key, i), 50_000) for i in range(2)]
        )
        f = np.asarray(jax.vmap(problem.f)(x[:70_000]))
    assert sums[0, -1] * problem.truth == pytest.approx(f.sum(), rel=1e-9)
    at = np.searchsorted(counts, 50_000)
    expected = f[: counts[at]].sum()
    assert sums[0, at] * problem.truth == pytest.approx(expected, rel=1e-9)
