"""Annealed importance sampling: unbiased weights, the paper's counts, and heavy weights seen."""

from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from from_prior import (
    BROKEN,
    CASES,
    CUT,
    CUT_LOG_Z,
    FOUR,
    PARTS,
    PROBLEM,
    UNSAMPLED,
    ask,
    bits,
    evidence,
    four,
    hinged,
    log_z,
    three,
    z_scores,
)
from models import normal
from scipy import stats

import tabi
from tabi.engine import Specification
from tabi.engine.anneal import Anneal, anneal
from tabi.engine.program import Start
from tabi.expect import ask as question_of
from tabi.expect import prepare
from tabi.kernels import RandomWalk
from tabi.methods.base import BudgetTooSmall
from tabi.methods.independent import open_engine
from tabi.methods.prior_runs import PATHS, open_constants
from tabi.paper.problems import banana, gaussian
from tabi.paths import Base, GeometricPath, TimesF
from tabi.references import Prior
from tabi.runtime.precision import precision
from tabi.runtime.progress import resolve_progress

ADAPTIVE = tabi.AnnealedIS()
PUBLISHED = tabi.AnnealedIS.as_published(1.0, rungs=20)
Z_LIMIT = 4.0
KEYS = 8
LOW, HIGH = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], KEYS) / KEYS)


# Its own rungs.


def test_a_vector_of_every_kind_of_f():
    """f < 0, both signs, zeros on half of the prior."""
    result = ask(three, ADAPTIVE, max_evaluations=200_000)
    assert np.all(np.abs(z_scores(result, FOUR[1:])) < Z_LIMIT) and np.all(result.log_stderr < 0.1)
    assert 180_000 <= result.evaluations <= 200_000
    assert result.diagnostics is not None and result.diagnostics.condition[1] > 1.0


def test_error_bars_are_calibrated():
    results = [ask(PROBLEM.log_f, ADAPTIVE, log=True, key=10 + key) for key in range(KEYS)]
    z = np.array([log_z(r, PROBLEM.log_truth) for r in results])
    assert LOW < np.sqrt(np.mean(z**2)) < HIGH and abs(np.mean(z)) < 4 / np.sqrt(KEYS)
    assert all(0.95 * 40_000 <= r.evaluations <= 40_000 for r in results)
    assert all(r.log_stderr < 0.1 for r in results)


def test_the_evidence_with_zeros_of_the_likelihood():
    result = evidence(ADAPTIVE, CUT)
    assert abs(log_z(result, CUT_LOG_Z)) < Z_LIMIT and result.log_stderr < 0.15
    assert 0.95 * 40_000 <= result.evaluations <= 40_000


FAR = gaussian(5.0, 10)
FAR_PARTS = tabi.Posterior.from_parts(FAR.log_prior, FAR.log_likelihood, FAR.sample_prior)


FEW = tabi.AnnealedIS(RandomWalk(moves=10), rungs=3)


def test_too_few_rungs_are_not_converged():
    """A few particles have all the weight."""
    result = ask(FAR.log_f, FEW, FAR_PARTS, log=True, max_evaluations=150_000)
    assert not result.converged and "annealed weights" in " ".join(result.warnings)


@pytest.mark.parametrize("f", [PROBLEM.log_f, three], ids=["one f", "three"])
@pytest.mark.parametrize("budget", [5, 300, 4000, 7000])
def test_budgets_too_small_end_not_converged(f, budget):
    result = ask(f, ADAPTIVE, log=f is PROBLEM.log_f, max_evaluations=budget)
    assert result.evaluations <= budget and not np.any(result.converged) and result.warnings


# As published.


@pytest.mark.parametrize(("f", "truth", "log"), CASES.values(), ids=CASES.keys())
def test_as_published_every_kind_of_f_is_served(f, truth, log):
    result = ask(f, PUBLISHED, log=log, max_evaluations=60_000)
    assert abs(z_scores(result, truth)) < Z_LIMIT and result.log_stderr < 0.12
    assert result.evaluations <= 60_000


def test_as_published_error_bars_are_calibrated():
    results = [ask(hinged, PUBLISHED, key=20 + key, max_evaluations=60_000) for key in range(KEYS)]
    z = np.array([log_z(r, np.log(FOUR[3])) for r in results])
    assert LOW < np.sqrt(np.mean(z**2)) < HIGH and abs(np.mean(z)) < 4 / np.sqrt(KEYS)


def test_as_published_the_evidence_with_zeros_of_the_likelihood():
    result = evidence(PUBLISHED, CUT)
    assert abs(log_z(result, CUT_LOG_Z)) < Z_LIMIT and result.log_stderr < 0.1


@pytest.mark.parametrize("budget", [2 * 1194, 40_000])
def test_the_papers_numbers_are_the_default(budget):
    """Particles are charged 199 (5 + 1) evaluations; there are moves at 198 rungs only."""
    half = budget // (199 * 5 + 199) // 2
    result = ask(PROBLEM.log_f, tabi.AnnealedIS.as_published(1.0), log=True, max_evaluations=budget)
    assert result.evaluations == 2 * half * (1 + 198 * 5) <= budget and result.gradients == 0


@pytest.mark.parametrize(("f", "least"), [(PROBLEM.f, 2388), (four, 9552)], ids=["one f", "four"])
def test_a_budget_below_two_particles_is_refused_with_what_is_needed(f, least):
    method = tabi.AnnealedIS.as_published(1.0)
    with pytest.raises(BudgetTooSmall, match=f"{least - 1:,} pays for .* at least {least:,}$"):
        ask(f, method, max_evaluations=least - 1)


BANANA = banana(log=True)
BOX = tabi.Posterior.from_parts(BANANA.log_prior, BANANA.log_likelihood, BANANA.sample_prior)


def test_zeros_of_f_on_half_of_the_box_cost_prior_draws():
    method = tabi.AnnealedIS.as_published(3.0, rungs=30)
    result = ask(BANANA.log_f, method, BOX, log=True, max_evaluations=200_000)
    assert abs(log_z(result, BANANA.log_truth)) < Z_LIMIT and result.log_stderr < 0.3
    # Two or three batches of prior draws find the particles of f, one those of Z.
    particles = 200_000 // (29 * 6) // 2
    batches = result.evaluations / particles - 2 * 28 * 5 - 1
    assert batches in (2, 3)


def test_the_mass_factor_of_the_banana_is_one_half():
    with precision(np.dtype("float64")):
        question = question_of(
            BANANA.log_f,
            BOX,
            log=True,
            max_evaluations=10**6,
            key=1,
            progress=resolve_progress(False),
        )
    with open_engine(question, (Prior(),), RandomWalk(), PATHS) as engine:
        z, plus = open_constants(engine, question, 100, 4000, 10**5)
    assert (z.sign, z.mass.log_ratio, plus.sign) == (0, 0.0, 1)
    assert len(z.starts.position) == 100 and len(plus.starts.position) == 4000
    assert np.all(plus.starts.position[:, 1] > -10) and np.any(z.starts.position[:, 1] < -10)
    z_score = (np.exp(plus.mass.log_ratio) - 0.5) / np.sqrt(0.25 / engine.tally.evaluations)
    assert abs(z_score) < Z_LIMIT


# The engine.


def half_gaussian(x):
    """log of exp(-2 x^2): the prior N(0, 1) times it has mass 1 / sqrt(5)."""
    return -2.0 * x[0] ** 2


def prior_density(x):
    return -0.5 * x[0] ** 2 - 0.5 * jnp.log(2 * jnp.pi)


def prior_draw(key):
    return jax.random.normal(key, (1,))


@pytest.mark.parametrize("scale", [1.0, 1e-6], ids=["moves", "hardly moves"])
def test_the_mean_weight_is_unbiased_however_badly_the_kernel_mixes(scale):
    posterior = tabi.Posterior.from_parts(prior_density, half_gaussian, prior_draw)
    path = GeometricPath(Base(0), TimesF())
    kernel = RandomWalk(scale=scale, moves=20)
    count = 20_000
    with jax.enable_x64(True):
        target, *_ = prepare(half_gaussian_f, posterior, True, 2, (0, 1))
        specification = Specification(target, kernel, (path,))
        positions = Prior().sample(target, np.random.default_rng(0), count)
        states = specification.start(Start(jnp.asarray(positions), (Prior(),)))
    with precision(target.dtype):
        keys = np.random.default_rng(1).integers(0, 2**32, (count, 2), dtype=np.uint32)
        betas = np.array([0.0, 0.3, 1.0])
        task = Anneal(keys, states, betas, kernel.init(1, 3), *np.int32([3, 0, 0, 20]), (Prior(),))
        found = jax.jit(lambda task: anneal(specification, task))(task)
    weights = np.exp(np.asarray(found.log_weight))
    z = (weights.mean() - 1 / np.sqrt(5)) / weights.std() * np.sqrt(count)
    assert abs(z) < Z_LIMIT, z
    # It is the moves that lower the variance.
    assert (weights.std() < 0.335) == (scale == 1.0)


def half_gaussian_f(x):
    """f = 1: the target is the posterior."""
    return jnp.zeros(())


def test_any_number_of_threads_gives_the_same_bits():
    found = []
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as executor:
            found.append(bits(ask(hinged, PUBLISHED, executor=executor, max_evaluations=60_000)))
    assert found[0] == found[1]
    assert bits(ask(hinged, PUBLISHED, key=9, max_evaluations=60_000)) != found[0]


def test_nan_of_the_model_is_counted():
    result = ask(PROBLEM.f, PUBLISHED, BROKEN, max_evaluations=60_000)
    assert result.diagnostics is not None
    assert 0 < result.diagnostics.invalid_proposals < 0.05 * result.evaluations
    assert float(result.diagnostics.first_invalid.split(",")[1].strip(" ]")) > 2.2
    assert abs(z_scores(result, PROBLEM.truth)) < Z_LIMIT


# Refusals.


@pytest.mark.parametrize("method", [ADAPTIVE, PUBLISHED], ids=["adaptive", "as published"])
@pytest.mark.parametrize("posterior", [tabi.Posterior(normal, np.zeros(2)), UNSAMPLED])
def test_a_prior_that_cannot_be_sampled_is_refused(method, posterior):
    with pytest.raises(ValueError, match=r"AnnealedIS starts from prior draws.*tabi\.GTI\(\)"):
        ask(PROBLEM.f, method, posterior)


def test_two_rungs_are_refused():
    with pytest.raises(ValueError, match="rungs must be at least 3, got 2"):
        tabi.AnnealedIS(rungs=2)


def test_a_start_is_never_outside_the_posterior():
    """Where the likelihood is 0 on half of the prior, Z has a mass factor of its own."""
    result = ask(PROBLEM.f, PUBLISHED, CUT, max_evaluations=60_000)
    below, above = (stats.norm.sf(0, loc, scale) for loc, scale in ((-0.707, 0.707), CUT_END))
    truth = PROBLEM.log_truth + np.log(above / below)
    assert abs(log_z(result, truth)) < Z_LIMIT and result.log_stderr < 0.1


# f times the posterior is N(m / 3, I / 4): precisions 2 and 2, means -m / 2 and m.
CUT_END = (np.sqrt(2) / 4, 0.5)
assert PARTS.log_prior is PROBLEM.log_prior
