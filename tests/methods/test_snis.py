"""Self-normalised importance sampling, from |f| times the posterior and from a proposal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import KINDS, kinds, mild, normal
from scipy import stats

import tabi
from tabi.methods.base import BudgetTooSmall
from tabi.references import Density

# A start where no component of `kinds` is 0.
POSTERIOR = tabi.Posterior(normal, np.array([0.7, 0.0]))
ADAPTIVE = tabi.SNIS()
PUBLISHED = tabi.SNIS.as_published(3.0)
Z_LIMIT = 4.0
KEYS = 8


def ask(f, method, posterior=POSTERIOR, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 50_000, "key": 1} | options
    return tabi.expect(f, posterior, method=method, progress=False, **options)


def z_scores(result, truth):
    return (result.value - truth) / result.stderr


def rms(z):
    return np.sqrt(np.mean(np.square(z), axis=0))


LOW, HIGH = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], KEYS) / KEYS)

# From |f| times the posterior.


def test_error_bars_are_calibrated():
    results = [ask(mild, ADAPTIVE, max_evaluations=16_000, key=10 + key) for key in range(KEYS)]
    z = np.array([(r.log_value - 0.125) / r.log_stderr for r in results])
    assert LOW < rms(z) < HIGH and abs(np.mean(z)) < 4 / np.sqrt(KEYS)
    assert all(r.converged and r.warnings == () for r in results)
    assert all(r.log_stderr < 0.02 for r in results)


def log_minus_mild(x):
    return tabi.SignedLog(-jnp.ones(()), -700.0 + 0.5 * x[0])


def test_log_f_below_zero_that_underflows_when_squared():
    result = ask(log_minus_mild, PUBLISHED, log=True)
    assert result.sign == -1
    assert abs(result.log_value + 700 - 0.125) < Z_LIMIT * result.log_stderr < 0.1


@pytest.fixture(scope="module")
def adaptive():
    return ask(kinds, ADAPTIVE)


def test_components_of_one_sign_are_served(adaptive):
    assert np.all(np.abs(z_scores(adaptive, KINDS)[:2]) < Z_LIMIT)
    assert np.all(adaptive.log_stderr[:2] < 0.05) and adaptive.converged[:2].all()


def test_where_f_is_zero_it_finds_another_number_and_says_which(adaptive):
    """Its draws never see the zeros: E f over P(f != 0) = 0.3."""
    assert abs(adaptive.value[3] / KINDS[3] * 0.3 - 1) < 0.5
    assert z_scores(adaptive, KINDS)[3] > Z_LIMIT and not adaptive.converged[3]
    message = next(w for w in adaptive.warnings if "never see" in w)
    assert "this is an estimate of E f / 0.3" in message and "tabi.GTI()" in message


def test_where_f_crosses_zero_it_is_not_converged(adaptive):
    """1 / |x| has no mean under the posterior, so that the variance is infinite."""
    assert not adaptive.converged[2]


@pytest.mark.parametrize("budget", [40, 20_000, 20_003])
def test_as_published_is_one_chain_for_every_component(budget):
    result = ask(kinds, PUBLISHED, max_evaluations=budget)
    assert result.evaluations == budget // 4 * 4 and result.gradients == 0
    if budget > 40:
        assert np.all(np.abs(z_scores(result, KINDS)[:2]) < Z_LIMIT)
        assert np.all(result.log_stderr[:2] < 0.05)


@pytest.mark.parametrize("budget", [8, 10_001])
def test_as_published_spends_all_evaluations_on_one_f(budget):
    assert ask(mild, PUBLISHED, max_evaluations=budget).evaluations == budget


def test_as_published_is_never_trusted_for_its_draws_show_no_zeros():
    result = ask(mild, PUBLISHED)
    assert abs(z_scores(result, KINDS[0])) < Z_LIMIT and result.log_stderr < 0.02
    assert not result.converged
    assert "cannot show where f is 0" in " ".join(result.warnings)


@pytest.mark.parametrize(("f", "least"), [(mild, 8), (kinds, 32)], ids=["one f", "four"])
def test_as_published_refuses_chains_too_short_for_an_error_bar(f, least):
    with pytest.raises(BudgetTooSmall, match=f"max_evaluations={least - 1} .* at least {least}$"):
        ask(f, PUBLISHED, max_evaluations=least - 1)


def test_as_published_cannot_begin_where_f_is_zero():
    with pytest.raises(ValueError, match=r"f is 0 at the start \[0.0, 0.0\].* give an init"):
        ask(kinds, PUBLISHED, tabi.Posterior(normal, np.zeros(2)))


# From a proposal.

CENTRE, SPREAD = np.array([0.5, 0.2]), 2.0


def wide_log_density(x):
    return -0.5 * jnp.sum((x - CENTRE) ** 2) / SPREAD**2 - jnp.log(2 * jnp.pi * SPREAD**2)


def wide_draw(key):
    return CENTRE + SPREAD * jax.random.normal(key, (2,))


WIDE = tabi.SNIS(Density(wide_log_density, wide_draw))


def test_a_proposal_serves_every_kind_of_f_with_calibrated_errors():
    """Zeros of f too: the proposal sees them."""
    results = [ask(kinds, WIDE, max_evaluations=20_480, key=key) for key in range(KEYS)]
    z = np.array([z_scores(r, KINDS) for r in results])
    assert np.all((rms(z) > LOW) & (rms(z) < HIGH)), rms(z)
    assert np.all(np.abs(z.mean(0)) < 4 / np.sqrt(KEYS))
    assert np.all(np.abs(z) < Z_LIMIT)
    for result in results:
        assert result.converged.all() and result.warnings == ()
        assert result.evaluations == 20_480 and result.gradients == 0
        assert np.all(result.log_stderr < [0.03, 0.03, 0.1, 0.1])


def test_a_tolerance_ends_a_run_with_a_proposal():
    result = ask(kinds, WIDE, rel_tol=0.03, max_evaluations=10**6)
    assert result.converged.all() and np.all(result.log_stderr <= 0.03)
    assert result.evaluations < 250_000
    assert np.all(np.abs(z_scores(result, KINDS)) < Z_LIMIT)


def rate_density(p):
    """Rate Gamma(2, 1) up to a factor, and a standard normal."""
    return jnp.log(7.0 * p["rate"]) - p["rate"] - 0.5 * jnp.sum(p["free"] ** 2)


def rate_f(p):
    """E = 6 exp(1/8)."""
    return p["rate"] ** 2 * jnp.exp(0.5 * p["free"][0])


def rate_proposal(p):
    """Rate Exp(1/3), and a wider normal."""
    return -p["rate"] / 3 - jnp.log(3.0) + jnp.sum(jax.scipy.stats.norm.logpdf(p["free"], 0, 1.5))


def rate_draw(key):
    first, second = jax.random.split(key)
    return {
        "rate": 3.0 * jax.random.exponential(first),
        "free": 1.5 * jax.random.normal(second, (2,)),
    }


BOUNDED = tabi.Posterior(
    rate_density,
    {"rate": 1.0, "free": np.zeros(2)},
    bounds=({"rate": 0.0, "free": -np.inf}, {"rate": np.inf, "free": np.inf}),
)


def test_a_proposal_lives_in_the_users_space():
    """Bounds and a pytree: the Jacobians of posterior and proposal must cancel."""
    method = tabi.SNIS(Density(rate_proposal, rate_draw))
    result = ask(rate_f, method, BOUNDED, max_evaluations=20_480)
    assert result.converged, result.warnings
    assert abs(result.log_value - np.log(6) - 0.125) < Z_LIMIT * result.log_stderr < 0.1


def test_a_proposal_that_never_meets_f_or_the_posterior_says_nothing_was_seen():
    posterior = tabi.Posterior(half_plane, np.array([99.0, 0.0]))
    result = ask(kinds, WIDE, posterior, max_evaluations=2560)
    assert not result.converged.any() and np.all(result.sign == 0)
    assert "no draw saw f different from 0" in " ".join(result.warnings)


def half_plane(x):
    return jnp.where(x[0] > 50.0, normal(x), -jnp.inf)


def test_draws_of_another_size_are_refused():
    long = tabi.SNIS(Density(wide_log_density, lambda key: jax.random.normal(key, (3,))))
    with pytest.raises(ValueError, match="sample gave positions of 3 numbers, a position has 2"):
        ask(kinds, long)


@pytest.mark.parametrize(
    ("arguments", "name"), [((None, wide_draw), "log_density"), ((wide_log_density, 3), "sample")]
)
def test_a_density_is_made_of_two_functions(arguments, name):
    with pytest.raises(TypeError, match=f"{name} must be a function"):
        Density(*arguments)
