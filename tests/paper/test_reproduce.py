"""The paper's experiments: families equal their problems, repetitions equal the methods."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from scipy.special import expit
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
from tabi.paper.reproduction import reproduce_banana, reproduce_gaussian
from tabi.runtime.precision import precision
from tabi.schedules import PoweredFraction

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


def draws_of(family, lanes, steps: int) -> np.ndarray:
    """log f along the chains that the estimates are made of, [step, panel, run, lane]."""
    return np.asarray(repetitions._Chains(family, tuple(lanes), 3, 0).trace(steps))


def log_mean(log_values: np.ndarray) -> np.ndarray:
    """log of the mean over the first axis."""
    return np.logaddexp.reduce(log_values, axis=0) - math.log(len(log_values))


def test_averages_are_over_the_draws_after_the_first_tenth():
    family, budgets = FAMILIES["gaussian"], [200, 1_110]
    found = repetitions.chains_at_ends(family, budgets, 3, 0, silent)
    log_f = draws_of(family, repetitions.ENDS, budgets[-1])
    for place, budget in enumerate(budgets):
        late = log_f[budget // 10 : budget]
        expected = {"SNIS1": log_mean(late[..., 0]), "SNIS2": -log_mean(-late[..., 1])}
        for name, log_means in expected.items():
            np.testing.assert_allclose(found[name][place], log_means, rtol=0, atol=1e-9)


def test_the_bridge_is_the_root_for_half_the_budget_at_each_end():
    family, budgets = FAMILIES["gaussian"], [200, 2_220]
    found = repetitions.bridge(family, budgets, 3, 0, silent)
    log_f = draws_of(family, repetitions.ENDS, budgets[-1] // 2)
    for place, budget in enumerate(budgets):
        late = log_f[budget // 20 : budget // 2]
        inflow = expit(late[..., 0] - found[place]).mean(0)
        # The draws are kept in single precision.
        np.testing.assert_allclose(inflow, expit(found[place] - late[..., 1]).mean(0), rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_ladder_is_the_trapezoid_over_the_draws_it_pays_for(name):
    """The start is a chain's first evaluation; the draws of the first tenth are left out."""
    family, rungs, zeros = FAMILIES[name], 5, name == "banana"
    betas = PoweredFraction(rungs).betas(repetitions.NOWHERE, rungs)
    lanes = [(int(zeros), beta) for beta in betas] + [(0, 0.0)] * zeros
    budgets = [100 * len(lanes), 10_020 * len(lanes)]
    found = repetitions.thermodynamic(family, budgets, 3, 0, silent, rungs=rungs)
    log_f = draws_of(family, lanes, 10_019)
    for place, (first, last) in enumerate([(9, 99), (1_001, 10_019)]):
        late = log_f[first:last]
        finite = np.isfinite(late)
        means = np.where(finite, late, 0.0).sum(0) / finite.sum(0)
        expected = np.trapezoid(means[..., :rungs], betas)
        if zeros:
            expected += np.log(finite[..., -1].mean(0))
        np.testing.assert_allclose(found[place], expected, rtol=1e-9)
    assert (finite.mean() < 1) == zeros


FROM_PRIOR = {"TAAnIS": (repetitions.annealed, {"rungs": 5}), "TANS": (repetitions.nested, {})}


@pytest.mark.parametrize("name", FROM_PRIOR)
def test_the_priors_mass_where_f_is_not_zero_is_a_factor(name):
    function, options = FROM_PRIOR[name]
    half, quarter = (
        function(replace(banana_family(), prior_mass=mass), [2 * 10**4], 2, 0, silent, **options)
        for mass in (0.5, 0.25)
    )
    np.testing.assert_allclose(half - quarter, math.log(2), rtol=1e-9)


@pytest.mark.parametrize("name", FROM_PRIOR)
def test_particles_and_points_cost_the_budget(name, monkeypatch):
    """A particle costs 6 evaluations a rung but the first, a live point 1 + 250 x 20."""
    made = []

    class Counted(Exception):
        pass

    def words(seed, shape, piece=0):
        made.append(shape[-1])
        raise Counted

    def programs(family, points, moves):
        made.append(points)
        raise Counted

    monkeypatch.setattr(repetitions, "_words", words)
    monkeypatch.setattr(repetitions, "_nest_programs", programs)
    function, options = FROM_PRIOR[name]
    each = {"TAAnIS": 4 * 6, "TANS": 1 + 250 * 20}[name]
    for budget, number in ((2 * 7 * each, 7), (2 * 7 * each - 1, 6)):
        with pytest.raises(Counted):
            function(FAMILIES["gaussian"], [budget], 1, 0, silent, **options)
        assert made[-1] == number


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


def test_a_cell_whose_file_could_not_be_written_is_not_there(tmp_path, monkeypatch):
    cell = Cell("x", {"name": "x"}, 1.0, lambda _: {"x": np.ones((1, 1, 1))}, {"x": [1]}, ("p",))

    def break_off(file, **arrays):
        file.write(b"half")
        raise OSError("no space left on device")

    with monkeypatch.context() as context:
        context.setattr(np, "savez", break_off)
        with pytest.raises(OSError, match="no space"):
            list(run_cells([cell], tmp_path, lambda line: None))
    assert not cell.path(tmp_path).exists()
    ((_, found),) = run_cells([cell], tmp_path, lambda line: None)
    assert found["x"] == 1


def files(cells, method: str) -> set[str]:
    return {str(cell.path(Path())) for cell in cells if method in cell.budgets}


@pytest.mark.parametrize("cells_of", [gaussian_cells, banana_cells])
def test_a_file_is_for_its_settings_and_calls_of_tabi_are_for_all(cells_of):
    base = Settings(runs=40, most=10**5)
    for other in (replace(base, runs=41), replace(base, most=10**6)):
        for method in ("TANS", "GTI", "GTI 50", "BS", "MCMC"):
            assert not files(cells_of(base), method) & files(cells_of(other), method)
    few = cells_of(replace(base, runs=2))
    assert files(few, "tabi") < files(cells_of(base), "tabi")


def test_a_call_of_tabi_is_the_default_with_a_key_of_its_own(monkeypatch):
    made = []

    def expect(f, posterior, **options):
        made.append(options)
        return SimpleNamespace(log_value=np.asarray(-2.0))

    monkeypatch.setattr(experiments, "expect", expect)
    cells = gaussian_cells(Settings(25, 10**7, ((10, 2.0),), ("tabi",)))
    for cell in cells:
        np.testing.assert_array_equal(cell.run(silent)["tabi"], [[[-2.0]]])
    keys = [(options["max_evaluations"], options["key"]) for options in made]
    calls = {10**5: 25, 10**6: 25, 10**7: 20}
    assert keys == [(budget, key) for budget, most in calls.items() for key in range(most)]
    for options in made:
        assert options["rel_tol"] is None and "method" not in options


def test_the_algorithms_have_the_papers_rungs(monkeypatch):
    def rungs_of(family, budgets, runs, seed, report, rungs):
        return np.full((1, 1, 1), rungs)

    for name in ("thermodynamic", "annealed"):
        monkeypatch.setattr(repetitions, name, rungs_of)
    ends = {"SNIS1": np.full((1, 1, 1), 1), "SNIS2": np.full((1, 1, 1), 2)}
    monkeypatch.setattr(repetitions, "chains_at_ends", lambda *_: ends)
    asked = gaussian_cells(Settings(1, 10**4, ((10, 2.0),), ("GTI", "TAAnIS")))
    asked += banana_cells(Settings(1, 10**4))
    found = {name: float(a[0, 0, 0]) for cell in asked for name, a in cell.run(silent).items()}
    ladders = {f"{name} {n}": n for name in ("GTI", "TAAnIS") for n in (10, 50, 100)}
    assert found == {"GTI": 200, "TAAnIS": 200, "MCMC": 1, **ladders}


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


def test_every_error_stands_in_its_place(tmp_path):
    """Known errors in the cells of two panels, two methods and two budgets."""
    settings = Settings(5, 10**5, ((10, 2.0), (25, 5.0)), ("BS", "GTI"))
    truths = gaussian_family(settings.panels).log_truth
    # Relative errors of BS, [budget, panel, run]; those of GTI are twice as large.
    errors = np.multiply.outer([[1.0, 0.2], [0.1, 0.02]], [0.1, -0.2, 0.3, -0.4, 0.5])
    (tmp_path / "cells").mkdir()
    for cell, factor in zip(gaussian_cells(settings), (1.0, 2.0), strict=True):
        log_values = truths[:, None] + np.log1p(factor * errors)
        np.savez(cell.path(tmp_path / "cells"), **{cell.name: log_values})
    reproduce_gaussian(settings, tmp_path, lambda line: None)
    table = (tmp_path / "gaussian.md").read_text(encoding="utf-8")
    first, second = table.split("## ")[1:]
    assert first.startswith("Gaussian D=10 y=2\n") and second.startswith("Gaussian D=25 y=5\n")
    assert "| method | E = 10^4 | E = 10^5 |" in first
    assert "| BS | 0.09 (0.11) | 0.0009 (0.0011) |" in first
    assert "| GTI | 0.36 (0.44) | 0.0036 (0.0044) |" in first
    assert "| BS | 0.0036 (0.0044) | 3.6e-05 (4.4e-05) |" in second
    with (tmp_path / "gaussian.csv").open(newline="", encoding="utf-8") as file:
        rows = {(row["panel"], row["method"], row["E"]): row for row in csv.DictReader(file)}
    assert len(rows) == 8
    row = rows["Gaussian D=10 y=2", "GTI", "10000"]
    numbers = [float(row[name]) for name in ("runs", "mean", "q25", "median", "q75")]
    np.testing.assert_allclose(numbers, [5, 0.44, 0.16, 0.36, 0.64], rtol=1e-5)


def test_the_bananas_table_gives_medians_and_means(tmp_path):
    settings = Settings(5, 10**4, methods=("GTI 50", "MCMC"))
    (tmp_path / "cells").mkdir()
    for cell, factor in zip(banana_cells(settings), (1.0, 2.0), strict=True):
        (name,) = cell.budgets
        log_values = np.log1p(factor * np.asarray([0.1, -0.2, 0.3, -0.4, 0.5]))
        log_values += banana_family().log_truth
        kept = {name.replace(" ", "_"): log_values[None, None]}
        np.savez(cell.path(tmp_path / "cells"), **kept)
    reproduce_banana(settings, tmp_path, lambda line: None)
    table = (tmp_path / "banana.md").read_text(encoding="utf-8")
    assert "| MCMC | 0.004 | 0.09 | 0.11 | 5 |" in table
    assert "| GTI 50 | 0.0012 | 0.36 | 0.44 | 5 |" in table


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
