"""Plain posterior averages: every kind of f, calibration, counts, and the tail they cannot see."""

import jax.numpy as jnp
import numpy as np
import pytest
from models import KINDS, kinds, mild, normal
from scipy import stats

import tabi
from tabi.engine import Effort
from tabi.kernels import RandomWalk
from tabi.methods.base import BudgetTooSmall
from tabi.paper.problems import gaussian

POSTERIOR = tabi.Posterior(normal, np.zeros(2))
ADAPTIVE = tabi.MonteCarlo()
PUBLISHED = tabi.MonteCarlo.as_published(3.0)
METHODS = {"adaptive": ADAPTIVE, "as published": PUBLISHED}
Z_LIMIT = 4.0
KEYS = 10


def ask(f, method, posterior=POSTERIOR, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 50_000, "key": 1} | options
    return tabi.expect(f, posterior, method=method, progress=False, **options)


def z_scores(result, truth):
    return (result.value - truth) / result.stderr


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_a_vector_of_every_kind_of_f(method):
    result = ask(kinds, method)
    assert np.all(np.abs(z_scores(result, KINDS)) < Z_LIMIT)
    assert np.all(result.log_stderr < [0.02, 0.02, 0.05, 0.1])
    assert result.converged.all() and result.warnings == ()
    np.testing.assert_array_equal(result.sign, np.sign(KINDS))


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_error_bars_are_calibrated(method):
    results = [ask(mild, method, max_evaluations=16_000, key=10 + key) for key in range(KEYS)]
    z = np.array([(r.log_value - np.log(KINDS[0])) / r.log_stderr for r in results])
    low, high = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], KEYS) / KEYS)
    assert low < np.sqrt(np.mean(z**2)) < high
    assert abs(np.mean(z)) < 4 / np.sqrt(KEYS)
    assert all(r.converged for r in results)


def signed_log(x):
    """exp(700) (x + 1/2), which overflows at once when squared."""
    value = x[0] + 0.5
    return tabi.SignedLog(jnp.sign(value), 700.0 + jnp.log(jnp.abs(value)))


def test_signed_logs():
    result = ask(signed_log, PUBLISHED, log=True)
    truth = np.exp(700.0 + np.log(0.5))
    assert result.sign == 1 and result.converged
    assert abs(z_scores(result, truth)) < Z_LIMIT and result.log_stderr < 0.05


@pytest.mark.parametrize("budget", [8, 10_000, 10_001])
def test_as_published_is_one_chain_of_all_evaluations(budget):
    result = ask(kinds, PUBLISHED, max_evaluations=budget)
    assert result.evaluations == budget and result.gradients == 0
    # The start is the first of them.
    assert result.diagnostics is not None
    assert [r.sweeps for r in result.diagnostics.rounds] == [budget - 1]


def test_as_published_refuses_a_chain_too_short_for_an_error_bar():
    with pytest.raises(BudgetTooSmall, match="max_evaluations=7 .* need at least 8"):
        ask(kinds, PUBLISHED, max_evaluations=7)


def test_the_adaptive_form_keeps_its_budget_and_stops_at_its_tolerance():
    spent = ask(mild, ADAPTIVE, max_evaluations=20_000)
    assert 0.95 * 20_000 <= spent.evaluations <= 20_000
    result = ask(mild, ADAPTIVE, rel_tol=0.02, max_evaluations=10**6)
    assert result.converged and result.log_stderr <= 0.02 and result.evaluations < 50_000
    assert abs(result.log_value - 0.125) < Z_LIMIT * 0.02


def test_a_budget_that_ends_in_the_warm_up_is_kept_and_says_so():
    result = ask(mild, ADAPTIVE, max_evaluations=200)
    assert result.evaluations <= 200 and not result.converged and result.sign == 0
    assert "max_evaluations=200 ended" in " ".join(result.warnings)


def far(x):
    return jnp.maximum(x[0] - 20.0, 0.0)


def test_an_f_that_was_never_seen_is_not_known_to_be_zero():
    result = ask(far, PUBLISHED, max_evaluations=10_000)
    assert result.sign == 0 and result.value == 0 and not result.converged
    assert "not known to be 0" in " ".join(result.warnings)


FAR = gaussian(5.0, 50)
FAR_POSTERIOR = tabi.Posterior(FAR.log_density, FAR.init)


@pytest.mark.parametrize(
    "method",
    [tabi.MonteCarlo(kernel=RandomWalk(), effort=Effort()), tabi.MonteCarlo.as_published(0.05)],
    ids=["adaptive", "as published"],
)
def test_the_papers_hardest_gaussian_is_out_of_reach_and_it_says_so(method):
    """E f is made at 11 standard deviations of the posterior: a few draws rule the average."""
    result = ask(FAR.f, method, FAR_POSTERIOR)
    assert not result.converged
    assert "f has its weight where the posterior rarely goes" in " ".join(result.warnings)
    assert "tabi.GTI()" in " ".join(result.warnings)
