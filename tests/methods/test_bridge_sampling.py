"""The bridge between the posterior and |f| times it: its own chains, and as published."""

import jax.numpy as jnp
import numpy as np
import pytest
from models import EDGE_30, KINDS, hinge, kinds, mild, normal
from scipy import stats

import tabi
from tabi.kernels import RandomWalk
from tabi.methods.base import BudgetTooSmall

POSTERIOR = tabi.Posterior(normal, np.array([0.7, 0.0]))
ADAPTIVE = tabi.BridgeSampling()
PUBLISHED = tabi.BridgeSampling.as_published(3.0)
Z_LIMIT = 4.0
KEYS = 10
LOW, HIGH = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], KEYS) / KEYS)


def ask(f, method, posterior=POSTERIOR, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 50_000, "key": 1} | options
    return tabi.expect(f, posterior, method=method, progress=False, **options)


def z_scores(result, truth):
    return (result.value - truth) / result.stderr


def assert_calibrated(z):
    assert LOW < np.sqrt(np.mean(np.square(z))) < HIGH, z
    assert abs(np.mean(z)) < 4 / np.sqrt(len(z))


# Its own chains.


@pytest.fixture(scope="module")
def adaptive():
    return ask(kinds, ADAPTIVE, key=2)


def test_components_of_one_sign_are_served_with_zeros_of_f_too(adaptive):
    served = [0, 1, 3]
    assert np.all(np.abs(z_scores(adaptive, KINDS)[served]) < Z_LIMIT)
    assert np.all(adaptive.log_stderr[served] < 0.1) and adaptive.converged[served].all()
    assert adaptive.value.shape == (4,) and 0.95 * 50_000 <= adaptive.evaluations <= 50_000


def test_where_f_crosses_zero_chains_of_hmc_stay_on_one_side_and_it_says_so(adaptive):
    """No exchange carries them across: x + 1/2 keeps its sign for long."""
    assert not adaptive.converged[2]
    assert "in component 2" in " ".join(adaptive.warnings)


def log_jump(x):
    """exp(x1 / 2 - 700) times 2 on the right of 1/2 and times -1 elsewhere: never near 0."""
    right = x[0] > 0.5
    size = jnp.where(right, jnp.log(2.0), 0.0) + 0.5 * x[1] - 700.0
    return tabi.SignedLog(jnp.where(right, 1.0, -1.0), size)


# E exp(x1 / 2) = exp(1/4); under it x0 has mean 1/4.
JUMP = float(np.exp(0.25 - 700.0) * (3 * stats.norm.sf(0.25) - 1))


@pytest.mark.parametrize("method", [tabi.BridgeSampling(kernel=RandomWalk()), PUBLISHED])
def test_both_signs_of_a_log_f_are_served_where_chains_can_cross(method):
    """Its square underflows."""
    result = ask(log_jump, method, log=True)
    assert abs(z_scores(result, JUMP)) < Z_LIMIT and result.log_stderr < 0.3
    assert result.converged and result.sign == 1, result.warnings


@pytest.mark.parametrize("method", [ADAPTIVE, PUBLISHED], ids=["adaptive", "as published"])
def test_error_bars_are_calibrated(method):
    results = [ask(mild, method, max_evaluations=16_000, key=10 + key) for key in range(KEYS)]
    assert_calibrated([(r.log_value - 0.125) / r.log_stderr for r in results])
    assert all(r.converged and r.log_stderr < 0.02 for r in results)


# As published.


@pytest.mark.parametrize("budget", [50, 20_000, 20_001])
def test_as_published_is_a_chain_at_each_end(budget):
    result = ask(mild, PUBLISHED, max_evaluations=budget)
    assert result.evaluations == budget // 2 * 2 and result.gradients == 0


def test_as_published_components_share_the_chain_at_the_posterior():
    result = ask(kinds, PUBLISHED, max_evaluations=50_004)
    assert result.evaluations == 50_000
    assert np.all(np.abs(z_scores(result, KINDS)) < Z_LIMIT)
    assert np.all(result.log_stderr < [0.05, 0.05, 0.2, 0.2])


@pytest.mark.parametrize(("f", "least"), [(mild, 16), (kinds, 40)], ids=["one f", "four"])
def test_as_published_refuses_chains_too_short_for_an_error_bar(f, least):
    with pytest.raises(BudgetTooSmall, match=f"max_evaluations={least - 1} .* at least {least}$"):
        ask(f, PUBLISHED, max_evaluations=least - 1)


def zeros(x):
    return hinge(x, EDGE_30)


def test_as_published_cannot_begin_where_f_is_zero():
    with pytest.raises(ValueError, match=r"f is 0 at the start \[0.0, 0.0\].* give an init"):
        ask(zeros, PUBLISHED, tabi.Posterior(normal, np.zeros(2)))
