"""The bridge between draws that the user already has."""

import jax.numpy as jnp
import numpy as np
import pytest
from models import COVARIANCE, EDGE_30, KINDS, hinge, kinds, mild, normal
from scipy import stats

import tabi

POSTERIOR = tabi.Posterior(normal, np.array([0.7, 0.0]))
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


def zeros(x):
    return hinge(x, EDGE_30)


def crossing(x):
    return x[0] + 0.5


GRID = np.linspace(-9.0, 9.0, 200_001)


def exact(f, random, *shape):
    """Independent draws of |f| times the posterior, for f of x[0] alone."""
    position = np.stack([GRID, 0 * GRID])
    cumulative = np.cumsum(np.abs(np.asarray(f(position))) * stats.norm.pdf(GRID))
    first = np.interp(random.uniform(size=shape) * cumulative[-1], cumulative, GRID)
    slope = COVARIANCE[0, 1]
    spread = np.sqrt(COVARIANCE[1, 1] - slope**2)
    return np.stack([first, slope * first + spread * random.normal(size=shape)], axis=-1)


def one(x):
    return 1.0 + 0 * x[0]


# f, E f, whether it has two signs, and its own scale of errors for 2048 and 1024 draws.
GIVEN = {
    "f > 0": (mild, KINDS[0], 0.03),
    "zeros": (zeros, KINDS[3], 0.15),
    "both signs": (crossing, 0.5, 0.15),
}


@pytest.mark.parametrize(("f", "truth", "precise"), GIVEN.values(), ids=GIVEN.keys())
def test_given_independent_draws_of_unequal_numbers_give_calibrated_errors(f, truth, precise):
    z = []
    for key in range(KEYS):
        random = np.random.default_rng(key)
        draws = exact(one, random, 2048), exact(f, random, 1024)
        result = ask(f, tabi.BridgeSampling(draws))
        assert result.evaluations == 3072 and result.gradients == 0
        assert result.log_stderr < precise and result.method == "BridgeSampling(given draws)"
        assert result.converged, result.warnings
        z.append(z_scores(result, truth))
    assert_calibrated(z)


def test_chains_of_draws_and_one_long_row_give_the_same_number():
    random = np.random.default_rng(3)
    lower, upper = exact(one, random, 4, 512), exact(mild, random, 2, 512)
    chains = ask(mild, tabi.BridgeSampling((lower, upper)))
    rows = ask(mild, tabi.BridgeSampling((lower.reshape(-1, 2), upper.reshape(-1, 2))))
    mixed = ask(mild, tabi.BridgeSampling((lower, upper.reshape(-1, 2))))
    assert abs(z_scores(chains, KINDS[0])) < Z_LIMIT
    for other in (rows, mixed):
        np.testing.assert_allclose(other.log_value, chains.log_value, rtol=1e-12)
        assert 0.5 < other.log_stderr / chains.log_stderr < 2


def test_draws_of_a_slow_chain_have_a_wider_error_bar():
    """Every draw sixteen times: as many draws, a sixteenth of the information."""
    random = np.random.default_rng(4)
    lower, upper = exact(one, random, 512), exact(mild, random, 256)
    slow = ask(mild, tabi.BridgeSampling((np.repeat(lower, 16, 0), np.repeat(upper, 16, 0))))
    quick = ask(mild, tabi.BridgeSampling((lower, upper)))
    np.testing.assert_allclose(slow.log_value, quick.log_value, rtol=1e-10)
    assert 0.6 < slow.log_stderr / quick.log_stderr < 1.6


def rate_density(p):
    """Rate Exp(2) and two standard normals."""
    return -2.0 * p["rate"] - 0.5 * jnp.sum(p["free"] ** 2)


def rate_f(p):
    """E = exp(1/8) / 2."""
    return p["rate"] * jnp.exp(0.5 * p["free"][0])


RATES = tabi.Posterior(
    rate_density,
    {"rate": 1.0, "free": np.zeros(2)},
    bounds=({"rate": 0.0, "free": -np.inf}, {"rate": np.inf, "free": np.inf}),
)


def rates(random, shape, *size):
    return {
        "rate": random.gamma(shape, 0.5, size=size),
        "free": random.normal(size=(*size, 2)) + [(shape - 1) * 0.5, 0.0],
    }


@pytest.mark.parametrize("size", [(2048,), (8, 256)], ids=["draws", "chains"])
def test_given_draws_are_positions_in_the_users_space(size):
    z = []
    for key in range(KEYS):
        random = np.random.default_rng(key)
        draws = rates(random, 1, *size), rates(random, 2, 512)
        result = ask(rate_f, tabi.BridgeSampling(draws), RATES)
        assert result.evaluations == 2560 and result.log_stderr < 0.1
        z.append((result.log_value - np.log(0.5) - 0.125) / result.log_stderr)
    assert_calibrated(z)


RANDOM = np.random.default_rng(0)
LOWER, UPPER = exact(one, RANDOM, 64), exact(zeros, RANDOM, 64)


def shifted(where, by):
    return UPPER + np.where(np.arange(64) == where, by, 0.0)[:, None]


REFUSED = {
    "no axis of draws": ((LOWER[0], UPPER), {}, "one axis (draw) or two (chain, draw)"),
    "too many axes": ((LOWER[None, None], UPPER), {}, "[(1, 1, 64, 2)]; a position has [(2,)]"),
    "another size": ((LOWER, UPPER[:, :1]), {}, "[(64, 1)]; a position has [(2,)]"),
    "another structure": (({"a": LOWER, "b": LOWER}, UPPER), {}, "have the structure"),
    "not finite": ((LOWER, shifted(3, np.nan)), {}, "must be finite"),
    "f = 0 in the second set": ((LOWER, shifted(3, -9.0)), {}, "(f = 0) in the second"),
    "the sets exchanged": ((UPPER, LOWER), {}, "(f = 0) in the second"),
    "a budget too small": ((LOWER, UPPER), {"max_evaluations": 127}, "evaluating 128 given draws"),
    "several f": ((LOWER, UPPER), {"f": kinds}, "f of shape (4,); ask for one component at a time"),
}


@pytest.mark.parametrize(("draws", "options", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_draws_that_cannot_be_of_these_densities_are_refused(draws, options, message):
    options = {"f": zeros} | options
    with pytest.raises(ValueError) as caught:
        ask(method=tabi.BridgeSampling(draws), **options)
    assert message in str(caught.value)


def half_plane(x):
    return jnp.where(x[0] > -0.5, normal(x), -jnp.inf)


def test_draws_outside_the_support_of_the_posterior_are_refused():
    posterior = tabi.Posterior(half_plane, np.ones(2))
    with pytest.raises(ValueError, match="a given draw lies outside the support of its density"):
        ask(zeros, tabi.BridgeSampling((LOWER, UPPER)), posterior)


def test_draws_outside_the_bounds_are_refused():
    posterior = tabi.Posterior(normal, np.ones(2), bounds=(-2.0, 2.0))
    with pytest.raises(ValueError, match="strictly inside the bounds"):
        ask(zeros, tabi.BridgeSampling((LOWER, 10 * UPPER)), posterior)


def test_one_set_of_draws_is_no_pair():
    with pytest.raises(ValueError, match="must be a pair .*got 3"):
        tabi.BridgeSampling((LOWER, UPPER, UPPER))  # pyright: ignore[reportArgumentType]


def test_draws_that_never_overlap_are_no_estimate():
    """All of the posterior's draws where f = 0."""
    lower = LOWER[LOWER[:, 0] < EDGE_30]
    result = ask(zeros, tabi.BridgeSampling((lower, UPPER)))
    assert not result.converged and result.sign == 0
    assert "no estimate: BAR" in " ".join(result.warnings)


# Refusals that are wanted and not there yet.


def above(x):
    return jnp.where(x[0] > -0.5, normal(x), -jnp.inf)


def square(x):
    return 1.0 + x[0] ** 2


def test_draws_of_f_times_the_posterior_outside_its_support_are_refused():
    """f is not 0 there, but the posterior is."""
    lower = LOWER[LOWER[:, 0] > -0.5]
    with pytest.raises(ValueError, match="a given draw lies outside the support of its density"):
        ask(square, tabi.BridgeSampling((lower, LOWER)), tabi.Posterior(above, np.ones(2)))


def test_draws_of_other_names_are_refused():
    """The same shapes in another order are another position."""
    random = np.random.default_rng(1)
    lower, upper = (
        {"speed": p["rate"], "free": p["free"]}
        for p in (rates(random, 1, 64), rates(random, 2, 64))
    )
    draws = lower, upper
    with pytest.raises(ValueError, match="speed"):
        ask(rate_f, tabi.BridgeSampling(draws), RATES)


def test_a_model_that_is_nan_at_a_given_draw_is_named_with_its_position():
    def rarely(x):
        return jnp.where(x[0] > 1.5, jnp.nan, normal(x))

    with pytest.raises(ValueError, match=r"NaN.*\["):
        ask(square, tabi.BridgeSampling((LOWER, UPPER)), tabi.Posterior(rarely, np.zeros(2)))
