"""TATI: three constants from references, given or fitted, and the paper's counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from from_prior import (
    FOUR,
    HINGED,
    MEAN,
    PROBLEM,
    SIGNED,
    ask,
    four,
    hinged,
    log_z,
    signed,
    three,
    z_scores,
)
from models import normal

import tabi
from tabi.kernels import RandomWalk
from tabi.methods.base import BudgetTooSmall
from tabi.references import Density, FitGaussian, FitKDE, StudentMixture
from tabi.schedules import Adaptive

Z_LIMIT = 4.0
FITTED = tabi.TATI()
# Always the same shapes, and so the same programs.
SHORT = tabi.TATI(fit=FitGaussian(), schedule=Adaptive(count=3))
POSTERIOR = tabi.Posterior(PROBLEM.log_density, np.array([0.2, 0.0]))


def wide(centre=0.0, scale=1.0):
    return StudentMixture([1.0], np.full((1, 2), centre), scale * np.eye(2)[None], 8.0)


def left_log_density(x):
    """Normal in the second coordinate; in the first a half normal below the zero of `signed`."""
    away = -(x[0] + MEAN + 2.3) / 0.6
    inside = jax.scipy.stats.norm.logpdf(away) + jnp.log(2 / 0.6)
    return jnp.where(away > 0, inside, -jnp.inf) + jax.scipy.stats.norm.logpdf(x[1], MEAN, 0.8)


def left_draw(key):
    numbers = jax.random.normal(key, (2,))
    return jnp.stack([-0.6 * jnp.abs(numbers[0]) - MEAN - 2.3, MEAN + 0.8 * numbers[1]])


TO_POSTERIOR, TO_F = wide(MEAN, 0.75), wide(0.35, 0.55)
GIVEN = tabi.References(TO_POSTERIOR, TO_F)
SIGNS = (TO_POSTERIOR, wide(-0.5, 0.8), wide(-1.0, 0.9))


def given(*references):
    return tabi.TATI(
        tabi.References(*references), schedule=Adaptive(count=3), kernel=RandomWalk(moves=5)
    )


@pytest.fixture(scope="module")
def fitted():
    return ask(three, FITTED, POSTERIOR, max_evaluations=200_000)


def test_fitted_references_serve_a_vector_of_every_kind_of_f(fitted):
    assert np.all(np.abs(z_scores(fitted, FOUR[1:])) < Z_LIMIT) and np.all(fitted.log_stderr < 0.1)
    assert fitted.converged.all(), fitted.warnings
    assert 0.95 * 200_000 <= fitted.evaluations <= 200_000
    assert fitted.diagnostics is not None and fitted.diagnostics.condition[1] > 1.0


def test_error_bars_with_fitted_references_are_calibrated():
    results = [ask(PROBLEM.log_f, SHORT, POSTERIOR, log=True, key=key) for key in range(10)]
    z = np.array([log_z(r, PROBLEM.log_truth) for r in results])
    assert 0.6 < np.sqrt(np.mean(z**2)) < 1.5, z
    assert all(r.log_stderr < 0.05 and r.evaluations <= 40_000 for r in results)


@pytest.mark.parametrize("fit", [FitKDE(points=64)], ids=["KDE"])
def test_other_fits(fit):
    result = ask(PROBLEM.log_f, tabi.TATI(fit=fit), POSTERIOR, log=True)
    assert abs(log_z(result, PROBLEM.log_truth)) < Z_LIMIT and result.log_stderr < 0.05
    assert type(fit).__name__ in result.method


def test_given_references_measure_f_and_its_zeros():
    method = given(TO_POSTERIOR, wide(0.3, 0.7))
    result = ask(hinged, method, POSTERIOR, ladders=6, max_evaluations=200_000)
    assert abs(log_z(result, np.log(HINGED))) < Z_LIMIT and result.log_stderr < 0.05
    assert result.converged, result.warnings


def test_both_signs_from_given_references():
    result = ask(signed, given(*SIGNS), POSTERIOR, max_evaluations=200_000)
    assert abs(z_scores(result, SIGNED)) < Z_LIMIT and result.log_stderr < 0.1
    assert len(result.diagnostics.legs) == 3


def test_a_sign_without_a_reference_is_not_converged():
    result = ask(signed, given(*SIGNS[:2]), POSTERIOR, max_evaluations=200_000)
    assert not result.converged
    assert "f is negative at some draws" in " ".join(result.warnings)


@pytest.mark.parametrize("budget", [5, 300, 3000, 8000])
def test_budgets_too_small_end_not_converged(budget):
    result = ask(four, FITTED, POSTERIOR, max_evaluations=budget)
    assert result.evaluations <= budget and not result.converged.any() and result.warnings


def test_an_f_that_no_draw_saw_is_not_known_to_be_zero():
    result = ask(nowhere, FITTED, POSTERIOR)
    assert not result.converged and result.sign == 0
    assert "f was 0 at all" in " ".join(result.warnings)


def nowhere(x):
    return jnp.maximum(x[0] - 50.0, 0.0)


# As published.

RUNGS, DRAWS = 20, 500


def published(references, **options):
    return tabi.TATI.as_published(references, 0.3, rungs=RUNGS, exponent=1.0, **options)


def test_as_published_two_ladders_cost_two_n_m():
    result = ask(PROBLEM.f, published(GIVEN), POSTERIOR, max_evaluations=2 * RUNGS * DRAWS + 39)
    assert result.evaluations == 2 * RUNGS * DRAWS and result.gradients == 0
    assert abs(log_z(result, PROBLEM.log_truth)) < Z_LIMIT and result.log_stderr < 0.1


LEFT = tabi.References(TO_POSTERIOR, wide(-0.5, 0.8), Density(left_log_density, left_draw))


@pytest.mark.parametrize(("draws", "count"), [(None, DRAWS), (2000, 2000)])
def test_as_published_restricted_three_ladders_cost_three_n_m_and_three_k(draws, count):
    budget = 3 * RUNGS * DRAWS + 3 * count
    method = published(LEFT, restricted=True, reference_draws=draws)
    result = ask(signed, method, POSTERIOR, max_evaluations=budget)
    assert result.evaluations == budget
    assert abs(z_scores(result, SIGNED)) < Z_LIMIT and result.log_stderr < 0.2


def test_as_published_the_paper_has_two_hundred_rungs():
    method = tabi.TATI.as_published(GIVEN, 0.3)
    with pytest.raises(BudgetTooSmall, match="need at least 3,600$"):
        ask(PROBLEM.f, method, POSTERIOR, max_evaluations=3599)


def test_as_published_references_that_cover_more_are_refused_with_the_remedy():
    method = published(tabi.References(TO_POSTERIOR, TO_F))
    with pytest.raises(ValueError, match=r"of 20 draws .* f\+ pi .*restricted=True"):
        ask(hinged, method, POSTERIOR)


# Refusals.


@pytest.mark.parametrize("method", [tabi.TATI(GIVEN), published(GIVEN)])
def test_given_references_are_for_one_f(method):
    with pytest.raises(ValueError, match=r"got f of shape \(4,\).*one component at a time"):
        ask(four, method, POSTERIOR)


@pytest.mark.parametrize("method", [FITTED, published(GIVEN)], ids=["adaptive", "as published"])
def test_the_evidence_is_another_question(method):
    parts = tabi.Posterior.from_parts(normal, normal, init=np.zeros(2))
    with pytest.raises(ValueError, match=r"use tabi\.PowerPosterior\(\)"):
        tabi.log_evidence(parts, method=method, progress=False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((normal, TO_F), TypeError, "posterior must be a reference"),
        ((TO_POSTERIOR, "wide"), TypeError, "plus must be a reference"),
        ((TO_POSTERIOR, None, 3.0), TypeError, "minus must be a reference"),
        ((None, TO_F), TypeError, "posterior must be a reference"),
        ((TO_POSTERIOR,), ValueError, "give plus=, minus= or both"),
    ],
)
def test_references_of_the_wrong_kind_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        tabi.References(*arguments)
