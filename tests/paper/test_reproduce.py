"""The paper's experiments: families equal their problems, repetitions equal the methods."""

import math

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import tabi
from tabi.cli import app
from tabi.paper import experiments, repetitions
from tabi.paper.experiments import (
    Cell,
    Settings,
    banana_cells,
    gaussian_cells,
    points,
    run_cells,
)
from tabi.paper.families import banana_family, gaussian_family
from tabi.runtime.precision import precision

FAMILIES = {"gaussian": gaussian_family([(10, 2.0), (25, 5.0)]), "banana": banana_family()}
RUNS = 24


def silent(share: float) -> None:
    """Nobody listens to the progress."""


@pytest.fixture(autouse=True)
def double():
    with precision(np.dtype(np.float64)):
        yield


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_panel_is_its_problem(family):
    for place, problem in enumerate(family.problems):
        p = jax.tree.map(lambda a, i=place: a[i], family.parameters)
        x = problem.sample_posterior(jax.random.key(place), 5)
        padded = np.pad(np.asarray(x), [(0, 0), (0, family.size - problem.dimension)])
        for name in ("log_prior", "log_likelihood", "log_f"):
            got = [getattr(family, name)(z, p) for z in padded]
            np.testing.assert_allclose(got, [getattr(problem, name)(z) for z in x], rtol=1e-12)
        draw = np.asarray(family.sample_prior(jax.random.key(1), p))
        assert not draw[problem.dimension :].any()


def z_of_mean(log_values: np.ndarray, log_truth: float) -> float:
    """How far the mean of estimates is from the truth, in its own standard errors."""
    error = log_values - log_truth
    return float(error.mean() / (error.std(ddof=1) / math.sqrt(error.size)))


ALGORITHMS = {
    "BS": (repetitions.bridge, 2 * 10**4, {}),
    "GTI": (repetitions.thermodynamic, 10**5 + 50, {"rungs": 50}),
    "TANS": (repetitions.nested, 10**5, {}),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_repetitions_find_the_answer(name):
    function, budget, options = ALGORITHMS[name]
    family = gaussian_family([(10, 2.0)])
    found = function(family, [budget], RUNS, 0, silent, **options)
    assert found.shape == (1, 1, RUNS)
    assert len(np.unique(found)) == RUNS
    assert abs(z_of_mean(found[0, 0], family.log_truth[0])) < 4


def test_plain_averages_and_annealing_are_unbiased_for_the_answer_itself():
    family = gaussian_family([(10, 2.0)])
    ends = repetitions.chains_at_ends(family, [2 * 10**4], RUNS, 0, silent)
    annealed = repetitions.annealed(family, [2 * 10**4], RUNS, 0, silent, rungs=50)
    for found in (ends["SNIS1"], annealed):
        ratio = np.exp(found[0, 0] - family.log_truth[0])
        assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(RUNS)


def test_the_bananas_zeros_are_corrected_for():
    """R for GTI, the prior mass 1/2 for annealing; without them both are off by log 2 or less."""
    family = banana_family()
    found = repetitions.annealed(family, [4 * 10**5], RUNS, 0, silent, rungs=50)[0, 0]
    ratio = np.exp(found - family.log_truth[0])
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / math.sqrt(RUNS) < 0.4


def test_a_repetition_is_the_published_method():
    """Means over repetitions of GTI agree, burn-in apart, with those of `GTI.as_published`."""
    family, budget, rungs = gaussian_family([(10, 2.0)]), 2 * 10**4 + 4, 4
    many = repetitions.thermodynamic(family, [budget], RUNS, 0, silent, rungs=rungs)[0, 0]
    problem = family.problems[0]
    method = tabi.GTI.as_published(0.1225, rungs=rungs)
    posterior = tabi.Posterior(problem.log_density, problem.init)
    options = {"method": method, "rel_tol": None, "max_evaluations": budget, "progress": False}
    one = [tabi.expect(problem.f, posterior, key=key, **options).log_value for key in range(8)]
    difference = many.mean() - np.mean(one)
    stderr = math.hypot(many.std(ddof=1) / math.sqrt(RUNS), np.std(one, ddof=1) / math.sqrt(8))
    # Four rungs are too few for the trapezoid: both must be off alike.
    assert abs(difference) < 4 * stderr
    assert abs(z_of_mean(many, problem.log_truth)) > 4


def test_smaller_budgets_are_prefixes():
    family = gaussian_family([(10, 2.0)])
    short = repetitions.bridge(family, [10**3], 3, 0, silent)
    both = repetitions.bridge(family, [10**3, 10**4], 3, 0, silent)
    np.testing.assert_allclose(both[0], short[0], rtol=1e-6)


SETTINGS = Settings(runs=2, most=10**4, panels=((10, 2.0),), methods=("BS",))


def test_finished_cells_are_kept(tmp_path, monkeypatch):
    lines: list[str] = []
    first = list(run_cells(gaussian_cells(SETTINGS), tmp_path, lines.append))
    assert lines and "left" in lines[-1]

    def refuse(*_, **__):
        raise AssertionError("a finished cell ran again")

    monkeypatch.setattr(repetitions, "bridge", refuse)
    again = list(run_cells(gaussian_cells(SETTINGS), tmp_path, lines.append))
    np.testing.assert_array_equal(again[0][1]["BS"], first[0][1]["BS"])
    other = Settings(runs=3, most=10**4, panels=((10, 2.0),), methods=("BS",))
    with pytest.raises(AssertionError, match="ran again"):
        list(run_cells(gaussian_cells(other), tmp_path, lines.append))


def test_an_interrupted_cell_leaves_nothing_behind(tmp_path):
    def stop(report):
        raise KeyboardInterrupt

    cell = Cell("x", {"name": "x"}, 1.0, stop, {"x": [1]}, ("p",))
    with pytest.raises(KeyboardInterrupt):
        list(run_cells([cell], tmp_path, lambda line: None))
    assert not list(tmp_path.iterdir())


def test_errors_are_relative_and_squared():
    cell = Cell("x", {}, 1.0, lambda report: {}, {"x": [10]}, ("p",))
    log_values = np.log([[[1.1, 0.8, 1.0]]]) + 5.0
    (point,) = points(iter([(cell, {"x": log_values})]), {"p": 5.0})
    np.testing.assert_allclose(point.errors, [0.01, 0.04, 0.0], atol=1e-12)
    assert point.median == pytest.approx(0.01) and point.mean == pytest.approx(0.05 / 3)


def test_budgets_are_decades_that_the_method_accepts():
    settings = Settings(runs=1, most=10**6)
    assert settings.budgets("GTI") == [10**4, 10**5, 10**6]
    assert settings.budgets("TANS") == [10_002, 10**5, 10**6]
    assert settings.budgets("tabi") == [10**5, 10**6]
    assert Settings(runs=1, most=10**8).budgets("tabi")[-1] == experiments.MOST_BUDGET


def test_the_table_is_for_one_budget_and_leaves_out_what_it_cannot_pay_for():
    names = {cell.name for cell in banana_cells(Settings(runs=2, most=10**4))}
    assert "GTI-100" in names and "TANS" not in names
    cells = banana_cells(Settings(runs=2, most=2 * 10**5))
    assert {budget for cell in cells for (budget,) in cell.budgets.values()} == {2 * 10**5}
    assert {name for cell in cells for name in cell.budgets} >= {"TANS", "tabi"}


def test_reproduce_on_the_command_line(tmp_path):
    arguments = ["--runs", "2", "--max-evaluations", "10000", "--out", str(tmp_path)]
    chosen = ["--panels", "10:2", "--methods", "BS"]
    result = CliRunner().invoke(app, ["reproduce", "gaussian", *arguments, *chosen])
    assert result.exit_code == 0, result.output
    assert "| BS |" in result.output
    for name in ("gaussian.csv", "gaussian.md", "gaussian.png"):
        assert (tmp_path / name).stat().st_size > 0


REFUSED = {
    "--panels 10-2": "10-2",
    "--panels 11:2": "the paper's panels",
    "--methods XYZ": "no method is called",
}


@pytest.mark.parametrize(("options", "message"), REFUSED.items(), ids=REFUSED.keys())
def test_reproduce_refuses_what_it_does_not_know(tmp_path, options, message):
    arguments = ["reproduce", "gaussian", "--out", str(tmp_path), *options.split()]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
