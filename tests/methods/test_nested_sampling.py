"""Nested sampling: exact answers, the paper's counts, and moves that do not forget seen."""

import functools
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
    z_scores,
)
from models import normal
from scipy import stats

import tabi
from tabi.engine import Specification
from tabi.engine.nest import Nest, nest
from tabi.engine.program import Start
from tabi.expect import prepare
from tabi.kernels import HMC, RandomWalk
from tabi.methods.base import BudgetTooSmall
from tabi.paths import Base, FullPosterior, GeometricPath
from tabi.references import Prior
from tabi.runtime.precision import precision

ADAPTIVE = tabi.NestedSampling()
PUBLISHED = tabi.NestedSampling.as_published(0.1, shrinkages=10)
TINY = tabi.NestedSampling.as_published(1e-8, shrinkages=10)
Z_LIMIT = 4.0
KEYS = 8
LOW, HIGH = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], KEYS) / KEYS)


def assert_calibrated(z):
    assert LOW < np.sqrt(np.mean(np.square(z))) < HIGH, z
    assert abs(np.mean(z)) < 4 / np.sqrt(len(z)), z


# Its own runs.


def test_a_vector_of_every_kind_of_f():
    """f > 0, f < 0, both signs, zeros on half of the prior."""
    result = ask(four, ADAPTIVE, max_evaluations=400_000)
    assert np.all(np.abs(z_scores(result, FOUR)) < Z_LIMIT) and np.all(result.log_stderr < 0.25)
    assert result.converged.all(), result.warnings
    assert result.evaluations <= 400_000


def test_error_bars_are_calibrated():
    budget = 100_000
    results = [
        ask(PROBLEM.log_f, ADAPTIVE, log=True, key=10 + key, max_evaluations=budget)
        for key in range(KEYS)
    ]
    assert_calibrated([log_z(r, PROBLEM.log_truth) for r in results])
    assert all(r.log_stderr < 0.2 and r.evaluations <= budget for r in results)
    assert sum(bool(r.converged) for r in results) > KEYS // 2


def test_the_evidence_with_zeros_of_the_likelihood():
    results = [evidence(ADAPTIVE, CUT, key=key) for key in range(KEYS)]
    assert_calibrated([log_z(r, CUT_LOG_Z) for r in results])
    assert all(r.log_stderr < 0.2 for r in results)
    assert all(0.8 * 40_000 <= r.evaluations <= 40_000 for r in results)


@pytest.mark.parametrize("f", [PROBLEM.log_f, four], ids=["one f", "four"])
@pytest.mark.parametrize("budget", [5, 300, 3000, 10_000])
def test_budgets_too_small_end_not_converged(f, budget):
    result = ask(f, ADAPTIVE, log=f is PROBLEM.log_f, max_evaluations=budget)
    assert result.evaluations <= budget and not np.any(result.converged)
    assert "ended before" in " ".join(result.warnings)


# As published.


@pytest.mark.parametrize(("f", "truth", "log"), CASES.values(), ids=CASES.keys())
def test_as_published_every_kind_of_f_is_served(f, truth, log):
    result = ask(f, PUBLISHED, log=log, max_evaluations=80_000)
    assert abs(z_scores(result, truth)) < Z_LIMIT and result.log_stderr < 0.3
    assert 0.98 * 80_000 <= result.evaluations <= 80_000 and result.gradients == 0


def test_as_published_the_evidence_is_one_run_of_all_points():
    """A likelihood that is 0 on half of the prior."""
    results = [evidence(PUBLISHED, CUT, key=key) for key in range(KEYS)]
    z = np.array([log_z(r, CUT_LOG_Z) for r in results])
    assert np.sqrt(np.mean(z**2)) < HIGH and np.all(np.abs(z) < Z_LIMIT)
    assert all(0.98 * 40_000 <= r.evaluations <= 40_000 for r in results)


@pytest.mark.parametrize("budget", [10_002, 60_000])
def test_the_papers_numbers_are_the_default(budget):
    half = budget // (1 + 250 * 20) // 2
    method = tabi.NestedSampling.as_published(1.0)
    result = ask(PROBLEM.log_f, method, log=True, max_evaluations=budget)
    assert result.evaluations == 2 * half * (1 + 250 * 20)


@pytest.mark.parametrize(("f", "least"), [(PROBLEM.f, 10_002), (four, 40_008)])
def test_a_budget_below_two_live_points_is_refused_with_what_is_needed(f, least):
    method = tabi.NestedSampling.as_published(1.0)
    with pytest.raises(BudgetTooSmall, match=f"{least - 1:,} pays for .* at least {least:,}$"):
        ask(f, method, max_evaluations=least - 1)


@pytest.mark.parametrize("key", range(4))
def test_moves_that_hardly_move_are_not_converged_and_it_says_so(key):
    """Their ranks are uniform: those of the points they began at."""
    result = ask(PROBLEM.log_f, TINY, log=True, key=key, max_evaluations=80_000)
    assert not result.converged
    assert "new points of Z are not spread evenly" in " ".join(result.warnings)
    assert "the moves do not forget where they began" in " ".join(result.warnings)


# The engine.


KERNEL = RandomWalk(moves=40)


@functools.cache
def begun(count=400, runs=2, iterations=1200):
    """A compiled program for the likelihood of `PARTS`, and its task but for the kernel's."""
    with jax.enable_x64(True):
        target, *_ = prepare(PROBLEM.f, PARTS, False, 2, (0, 1))
        path = GeometricPath(Base(0), FullPosterior())
        specification = Specification(target, KERNEL, (path,))
        positions = Prior().sample(target, np.random.default_rng(0), runs * count)
        live = specification.start(Start(jnp.asarray(positions), (Prior(),)))
        live = jax.tree.map(lambda a: a.reshape(runs, count, *a.shape[1:]), live)
    with precision(target.dtype):
        keys = np.random.default_rng(1).integers(0, 2**32, (runs, 2), dtype=np.uint32)
        numbers, rest = np.int32([0, iterations]), np.int32([0, 0, KERNEL.moves])
        room, none = np.zeros(iterations, bool), KERNEL.init(2, runs)
        task = Nest(keys, live, none, *numbers, room, *rest, (Prior(),))
        return jax.jit(lambda task: nest(specification, task)), task


def run_of(scale):
    """Two runs whose random walk has this scale."""
    program, task = begun()
    with precision(np.dtype("float64")):
        return program(task._replace(params=RandomWalk(scale=scale).init(2, 2)))


def test_moves_that_mix_leave_uniform_ranks_and_others_repeat_their_beginnings():
    mixing = run_of(0.5)
    ranks, parents = np.asarray(mixing.ranks), np.asarray(mixing.parents)
    assert ranks.min() >= 0 and ranks.max() <= 399 and parents.max() <= 398
    # Beyond chi-square's 1 - 1e-4 quantiles lies no chance.
    counts = np.histogram(ranks, bins=20, range=(0, 400))[0]
    assert ((counts - ranks.size / 20) ** 2).sum() / (ranks.size / 20) < stats.chi2.isf(1e-4, 19)
    assert abs(np.corrcoef(ranks.ravel(), parents.ravel())[0, 1]) < 0.1
    stuck = run_of(1e-5)
    assert np.corrcoef(np.ravel(stuck.ranks), np.ravel(stuck.parents))[0, 1] > 0.9


def test_the_dead_are_in_order_and_below_the_living():
    nested = run_of(0.5)
    assert np.all(np.diff(nested.dead, axis=0) >= 0)
    assert np.all(np.asarray(nested.log_likelihood).min(1) >= np.asarray(nested.dead)[-1])


MORE = {"ladders": 6, "max_evaluations": 100_000}


def test_any_number_of_threads_gives_the_same_bits():
    found = []
    for threads in (1, 2):
        with ThreadPoolExecutor(threads) as executor:
            found.append(bits(evidence(ADAPTIVE, CUT, executor=executor, **MORE)))
    assert found[0] == found[1]
    assert bits(evidence(ADAPTIVE, CUT, key=9, **MORE)) != found[0]


def test_nan_of_the_model_is_counted():
    result = ask(hinged, PUBLISHED, BROKEN, max_evaluations=80_000)
    assert result.diagnostics is not None
    assert 0 < result.diagnostics.invalid_proposals < 0.05 * result.evaluations
    assert float(result.diagnostics.first_invalid.split(",")[1].strip(" ]")) > 2.2
    assert abs(z_scores(result, FOUR[3])) < Z_LIMIT


# Refusals.


@pytest.mark.parametrize("method", [ADAPTIVE, PUBLISHED], ids=["adaptive", "as published"])
@pytest.mark.parametrize("posterior", [tabi.Posterior(normal, np.zeros(2)), UNSAMPLED])
def test_a_prior_that_cannot_be_sampled_is_refused(method, posterior):
    with pytest.raises(ValueError, match=r"NestedSampling starts from prior.*tabi\.GTI\(\)"):
        ask(PROBLEM.f, method, posterior)


def test_a_kernel_that_follows_gradients_is_refused():
    with pytest.raises(ValueError, match=r"hard walls.*RandomWalk\(moves=\.\.\.\) or Slice\(\)"):
        tabi.NestedSampling(HMC())
