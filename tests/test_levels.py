"""Levels: supports that no posterior draw has seen, probabilities, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import COVARIANCE, Counter, normal
from scipy.stats import norm

import tabi
from tabi.estimators import BAR
from tabi.paths import LevelPath
from tabi.target import build_target

POSTERIOR = tabi.Posterior(normal, np.zeros(2))
CALLS, LEVEL_CALLS = Counter(), Counter()
counted, level_counted = CALLS.tick(), LEVEL_CALLS.tick()
Z_LIMIT = 4.0


def ask(question, *arguments, budget=60_000, key=1, **options):
    options = {"rel_tol": None, "max_evaluations": budget, "key": key, "progress": False} | options
    return question(*arguments, **options)


def check(result, log_truth, digits=0.3):
    assert result.converged.all(), result.warnings
    z = (result.log_value - log_truth) / result.log_stderr
    assert np.all(np.abs(z) < Z_LIMIT), z
    assert np.all(result.log_stderr < digits)


def beyond(x):
    """Two events, one of them once in a thousand million."""
    return jnp.stack([x[0] - 6.0, x[0] + x[1] - 2.0])


LOG_BEYOND = np.array([norm.logsf(6.0), norm.logsf(2.0 / np.sqrt(COVARIANCE.sum()))])


@pytest.fixture(scope="module")
def both():
    return ask(tabi.probability, beyond, POSTERIOR, budget=120_000)


def test_probabilities_have_the_levels_shape_and_are_right(both):
    assert both.value.shape == (2,)
    check(both, LOG_BEYOND)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_a_level_does_not_matter(both, factor):
    """The same rungs, but for the noise of the climb."""
    result = ask(tabi.probability, lambda x: factor * beyond(x), POSTERIOR, budget=120_000)
    check(result, LOG_BEYOND)
    np.testing.assert_allclose(result.diagnostics.barrier, both.diagnostics.barrier, rtol=0.25)


def payoff(x):
    """max(0, x - 4), of which no posterior draw sees anything; NaN where it is not to be read."""
    return jnp.where(x[0] > 4.0, x[0] - 4.0, jnp.nan)


LOG_PAYOFF = np.log(norm.pdf(4) - 4 * norm.sf(4))


def strike(x):
    return x[0] - 4.0


@pytest.mark.parametrize(
    ("f", "log", "sign"),
    [
        (payoff, False, 1),
        (lambda x: -payoff(x), False, -1),
        (lambda x: jnp.log(payoff(x)), True, 1),
    ],
    ids=["plain", "negative", "log"],
)
def test_f_counts_where_the_level_is_positive_and_is_not_read_elsewhere(f, log, sign):
    result = ask(tabi.expect, f, POSTERIOR, level=strike, log=log)
    check(result, LOG_PAYOFF)
    assert result.sign == sign and result.diagnostics.invalid_proposals == 0


def test_a_signed_f_and_one_level_for_all_components():
    """E (x - 5) 1(x > 4) and E 1(x > 4)."""
    result = ask(
        tabi.expect,
        lambda x: jnp.stack([x[0] - 5.0, jnp.ones_like(x[0])]),
        POSTERIOR,
        level=strike,
        budget=150_000,
    )
    truth = np.array([norm.pdf(4) - 5 * norm.sf(4), norm.sf(4)])
    assert np.all(np.abs(result.value - truth) < Z_LIMIT * result.stderr)
    assert np.all(result.stderr < 0.3 * np.abs(truth))


def test_a_likely_event_needs_two_rungs_only():
    result = ask(tabi.probability, lambda x: x[0] + 1.0, POSTERIOR, budget=30_000)
    check(result, norm.logcdf(1.0), digits=0.05)
    assert len(result.diagnostics.legs[0].betas) <= 3


def test_other_estimators_read_the_level_path():
    method = tabi.GTI(path=LevelPath(), estimator=BAR())
    check(ask(tabi.expect, payoff, POSTERIOR, level=strike, method=method), LOG_PAYOFF)


def test_plain_averages_count_what_they_see_of_the_event():
    result = ask(
        tabi.probability, lambda x: x[0] + 1.0, POSTERIOR, method=tabi.MonteCarlo(), budget=30_000
    )
    check(result, norm.logcdf(1.0), digits=0.05)


def test_the_level_reads_the_simulators_output_and_every_call_is_counted():
    CALLS.calls = LEVEL_CALLS.calls = 0
    result = ask(
        tabi.probability,
        lambda x, aux: level_counted(aux["height"] - 4.0),
        tabi.Posterior(lambda x: (counted(normal(x)), {"height": x[0]}), np.zeros(2), has_aux=True),
    )
    jax.effects_barrier()
    check(result, norm.logsf(4.0))
    assert result.evaluations == CALLS.calls == LEVEL_CALLS.calls


@pytest.mark.parametrize(
    "level", [lambda x: -1.0 - x[0] ** 2, lambda x: jnp.where(x[0] > 60.0, 1.0, -1.0)]
)
def test_an_event_that_is_never_reached_is_not_called_impossible(level):
    result = ask(tabi.probability, level, POSTERIOR)
    assert result.sign == 0 and not result.converged
    assert any("level" in warning for warning in result.warnings), result.warnings


@pytest.mark.parametrize(
    ("level", "error", "message"),
    [
        (lambda x: x[0] > 3, TypeError, r"for x > 3 give the level x - 3"),
        (lambda x: (x[0], x[1]), TypeError, "a level must be a real number"),
        (lambda x: jnp.zeros((0,)), ValueError, "at least one component"),
        (3.0, TypeError, "level must be a function of one position, got float"),
        (lambda x: jnp.log(x[0] - 1.0), ValueError, "the level is NaN at the start"),
    ],
)
def test_wrong_levels_are_named(level, error, message):
    with pytest.raises(error, match=message):
        ask(tabi.probability, level, POSTERIOR)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(ValueError, match=r"f has shape \(3,\) and the level \(2,\)"):
        ask(tabi.expect, lambda x: jnp.ones(3), POSTERIOR, level=beyond)


def test_the_papers_ladder_has_no_level_path():
    method = tabi.GTI.as_published(1.0, rungs=4)
    with pytest.raises(ValueError, match=r"no path for a level; use method=tabi.GTI\(\)"):
        ask(tabi.expect, payoff, POSTERIOR, level=strike, method=method)


@pytest.mark.parametrize("shared", [True, False], ids=["one level", "a level for each"])
def test_scalars_and_their_gradients_know_the_level(shared):
    def f(x):
        return jnp.stack([jnp.exp(x[0]), x[1]])

    def level(x):
        return x[0] * x[1] if shared else jnp.stack([x[0] * x[1], x[0] - x[1]])

    with jax.enable_x64(True):
        target = build_target(POSTERIOR, f, np.ones(2), log=False, level=level)
        assert target.levels == (1 if shared else 2)
        for z in (np.array([0.5, 2.0]), np.array([0.5, -1.0])):
            scalars, grads = target.scalars_and_grads(jnp.asarray(z))
            values = np.atleast_1d(level(z))
            np.testing.assert_allclose(scalars.level, values)
            expected = np.where(values > 0, np.log(np.abs(f(z))), -np.inf)
            np.testing.assert_allclose(scalars.log_abs_f, expected)
            np.testing.assert_array_equal(scalars.sign_f, np.where(values > 0, np.sign(f(z)), 0))
            rows = np.atleast_2d(jax.jacobian(level)(jnp.asarray(z)))
            np.testing.assert_allclose(grads.level, rows)
            assert not np.any(grads.log_abs_f[np.isneginf(expected)])


def test_two_events_far_apart_are_both_found():
    """The rungs near the event have two modes, for which the kernel's moves must stay cheap."""
    result = ask(tabi.probability, lambda x: jnp.abs(x[0]) - 5.0, POSTERIOR, budget=120_000)
    z = (result.log_value - np.log(2 * norm.sf(5.0))) / result.log_stderr
    assert abs(z) < Z_LIMIT and result.log_stderr < 0.4


@pytest.mark.parametrize(
    ("level", "truth"),
    [(lambda x: 1.0 + x[0] ** 2, 1.0), (lambda x: x[0] + 4.75, norm.cdf(4.75))],
    ids=["sure", "nearly sure"],
)
def test_a_sure_event_is_not_more_certain_than_its_draws(level, truth):
    result = ask(tabi.probability, level, POSTERIOR, budget=30_000)
    assert result.converged and not result.warnings
    assert abs(result.value - truth) < Z_LIMIT * result.stderr < 0.01


def test_a_plateau_below_the_event_is_named():
    result = ask(tabi.probability, lambda x: jnp.maximum(x[0], 4.0) - 6.0, POSTERIOR)
    assert result.sign == 0 and not result.converged
    assert "grows towards the event" in result.warnings[0]


def test_a_level_in_steps_gives_no_absurd_number():
    """The climb ends where all particles stand on one step, not at the sharpest sigmoid."""
    posterior = tabi.Posterior(lambda x: -0.5 * jnp.sum(x**2), np.zeros(2))
    options = {"budget": 200_000, "key": 0}
    result = ask(tabi.probability, lambda x: jnp.floor(x[0]) - 4.5, posterior, **options)
    assert result.sign == 0 or abs(result.log_value - norm.logsf(5.0)) < 5.0


def test_a_missing_level_is_named():
    with pytest.raises(TypeError, match="level must be a function of one position, got NoneType"):
        tabi.probability(None, POSTERIOR)
    with pytest.raises(ValueError, match="a LevelPath needs a level"):
        ask(tabi.expect, payoff, POSTERIOR, method=tabi.GTI(path=LevelPath()))
