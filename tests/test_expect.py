"""expect() against exact answers: every kind of f, of tolerance and of posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models import COVARIANCE, EDGE_30, EDGE_99, hinge, hinge_truth, normal, tilt
from scipy import stats

import tabi
from tabi.kernels import HMC, RandomWalk, Slice

POSTERIOR = tabi.Posterior(normal, np.zeros(2))
Z_LIMIT = 4.0


def ask(f, posterior=POSTERIOR, **options) -> tabi.Result:
    options = {"rel_tol": None, "max_evaluations": 60_000, "key": 1} | options
    return tabi.expect(f, posterior, progress=False, **options)


def scores(result: tabi.Result, truth, signed=False) -> np.ndarray:
    """z on the log scale where f has one sign, on its own scale otherwise."""
    truth = np.asarray(truth, float)
    if signed:
        return (result.value - truth) / result.stderr
    assert np.all(result.sign == np.sign(truth))
    return (result.log_value - np.log(np.abs(truth))) / result.log_stderr


def assert_right(result, truth, signed=False, precise=0.1):
    assert np.all(np.abs(scores(result, truth, signed)) < Z_LIMIT)
    scale = np.maximum(np.abs(truth), 1e-300)
    assert np.all(result.stderr / scale < precise), "an error bar so wide proves nothing"
    assert np.all(result.converged), result.warnings
    assert result.value.dtype == np.float64 and result.value.shape == np.shape(truth)


def negative(x):
    return -tilt(x)


def signed(x):
    """Cancels: E x^3 = 0, E x^2 = 1."""
    return x[0] ** 3 + x[0] ** 2


def zeros_on_70_percent(x):
    return hinge(x, EDGE_30)


def zeros_on_1_percent(x):
    return hinge(x, EDGE_99)


def constant(x):
    return 3.0 + 0.0 * x[0]


SCALARS = {
    "f > 0": (tilt, np.exp(2.0), False),
    "f < 0": (negative, -np.exp(2.0), False),
    "signed": (signed, 1.0, True),
    "R = 0.3": (zeros_on_70_percent, hinge_truth(EDGE_30), False),
    "R = 0.99": (zeros_on_1_percent, hinge_truth(EDGE_99), False),
}


@pytest.mark.parametrize(("f", "truth", "two_signed"), SCALARS.values(), ids=SCALARS.keys())
def test_a_scalar_f_of_every_kind(f, truth, two_signed):
    result = ask(f)
    assert_right(result, truth, two_signed)
    assert 0.95 * 60_000 <= result.evaluations <= 60_000


def test_a_constant_f_is_known_exactly():
    result = ask(constant, max_evaluations=40_000)
    assert result.value == pytest.approx(3.0, rel=1e-9) and result.stderr < 1e-9


def mixed(x):
    """Signs, zeros and scales side by side."""
    return jnp.stack([tilt(x), -1e8 * tilt(x), signed(x), zeros_on_70_percent(x), 1e-9 * x[1] ** 2])


MIXED = [np.exp(2), -1e8 * np.exp(2), 1.0, hinge_truth(EDGE_30), 2e-9]


@pytest.fixture(scope="module")
def mixed_result():
    return ask(mixed, max_evaluations=400_000)


def test_a_vector_of_mixed_signs_and_scales(mixed_result):
    assert_right(mixed_result, MIXED, signed=True)
    assert mixed_result.interval()[0].shape == (5,)
    # A component of one sign is judged on its log scale too.
    z = (mixed_result.log_value - np.log(np.abs(MIXED))) / mixed_result.log_stderr
    assert np.all(np.abs(z[[0, 1, 3, 4]]) < Z_LIMIT)


def test_components_know_their_condition_number(mixed_result):
    condition = mixed_result.diagnostics.condition
    np.testing.assert_allclose(condition[[0, 1, 3, 4]], 1.0)
    # E |x^3 + x^2| by quadrature over E (x^3 + x^2) = 1.
    x = np.linspace(-9, 9, 20001)
    truth = np.trapezoid(np.abs(x**3 + x**2) * stats.norm.pdf(x), x)
    assert abs(condition[2] - truth) < 0.3


def moments(x):
    return jnp.outer(x, x)


def test_second_moments_as_a_matrix():
    assert_right(ask(moments, max_evaluations=300_000), COVARIANCE, signed=True)


def log_f(x):
    """log of exp(2 x - 2000) on x > 0, whose expectation is exp(-1998) Phi(2)."""
    return jnp.where(x[0] > 0, 2 * x[0] - 2000.0, -jnp.inf)


def test_log_f_with_zeros_that_underflows():
    result = ask(log_f, log=True)
    truth = -1998.0 + stats.norm.logcdf(2.0)
    assert abs(result.log_value - truth) < Z_LIMIT * result.log_stderr < 0.4
    assert result.value == 0.0 and result.sign == 1 and result.converged
    assert not np.isnan(result.interval()).any()


def signed_log_f(x):
    """exp(700) (exp(x) - 2): sinks below 0 on the left, overflows at once when squared."""
    value = jnp.exp(x[0]) - 2.0
    return tabi.SignedLog(jnp.sign(value), 700.0 + jnp.log(jnp.abs(value)))


def test_signed_logs():
    result = ask(signed_log_f, log=True, max_evaluations=200_000)
    truth = -(2.0 - np.exp(0.5)) * np.exp(700.0)
    assert result.sign == -1
    assert abs((result.value - truth) / result.stderr) < Z_LIMIT
    assert result.log_stderr < 0.1


@pytest.mark.parametrize("kernel", [RandomWalk(), RandomWalk(scale=1.0), Slice()])
def test_other_kernels_find_the_same_answer(kernel):
    result = ask(tilt, method=tabi.GTI(kernel=kernel), max_evaluations=100_000)
    assert abs(scores(result, np.exp(2.0))) < Z_LIMIT and result.log_stderr < 0.1


def test_tolerances_are_met_with_what_they_need():
    absolute = ask(tilt, abs_tol=0.3, max_evaluations=10**6)
    assert absolute.stderr <= 0.3 and absolute.converged
    assert abs(absolute.value - np.exp(2.0)) < Z_LIMIT * 0.3
    relative = ask(tilt, rel_tol=0.01, max_evaluations=10**6)
    assert relative.log_stderr <= 0.01 and relative.converged
    assert absolute.evaluations < relative.evaluations < 10**6
    either = ask(tilt, rel_tol=0.01, abs_tol=0.3, max_evaluations=10**6)
    assert either.evaluations == absolute.evaluations, "the looser of the two is enough"


def test_abs_tol_serves_an_answer_of_zero():
    result = ask(odd, abs_tol=0.05, max_evaluations=10**6)
    assert result.converged and abs(result.value) < Z_LIMIT * 0.05
    lower, upper = result.interval()
    assert lower < 0 < upper


def odd(x):
    return x[1]


@pytest.mark.parametrize("ladders", [2, 3])
def test_any_number_of_ladders(ladders):
    assert abs(scores(ask(tilt, ladders=ladders), np.exp(2.0))) < Z_LIMIT


def test_error_bars_are_calibrated():
    """rms z over keys within the quantiles of a chi-square, widened for the t of each error."""
    z = []
    for key in range(40):
        result = ask(mixed_scalar, max_evaluations=24_000, key=100 + key)
        z.append((result.value - 1.5) / result.stderr)
    low, high = np.sqrt(stats.chi2.ppf([1e-4, 1 - 1e-4], 40) / 40)
    assert low < np.sqrt(np.mean(np.square(z))) < 1.1 * high
    assert abs(np.mean(z)) < 4 / np.sqrt(40)
    assert np.mean(np.abs(z) < 2) > 0.8


def mixed_scalar(x):
    """E = 1.5, signed, with exchange through its zeros."""
    return x[0] * x[1] + x[0] ** 2


# Bounds: lower, upper, both and none, of a pytree position.


def bounded_density(p):
    """Exp(2) for the rate, a Beta(2, 3) share, minus an Exp(1) below -1, and a normal."""
    return (
        -2.0 * p["rate"]
        + jnp.log(p["share"])
        + 2 * jnp.log1p(-p["share"])
        + p["below"]
        - 0.5 * jnp.sum(p["free"] ** 2)
    )


BOUNDS = (
    {"rate": 0.0, "share": 0.0, "below": -np.inf, "free": -np.inf},
    {"rate": np.inf, "share": 1.0, "below": -1.0, "free": np.inf},
)
BOUNDED_INIT = {"rate": 1.0, "share": 0.4, "below": -2.0, "free": np.zeros(2)}
# E rate^3 = 3! / 2^3; E share^2 = 2 3 / (5 6); E (-below) = 2; E exp(free) = exp(1/2).
BOUNDED_TRUTH = [0.75, 0.2, 2.0, np.exp(0.5)]


def bounded_f(p):
    assert set(p) == {"rate", "share", "below", "free"} and p["free"].shape == (2,)
    return jnp.stack([p["rate"] ** 3, p["share"] ** 2, -p["below"], jnp.exp(p["free"][0])])


def test_bounds_of_every_kind_on_a_pytree():
    posterior = tabi.Posterior(bounded_density, BOUNDED_INIT, bounds=BOUNDS)
    result = ask(bounded_f, posterior, max_evaluations=500_000)
    assert_right(result, BOUNDED_TRUTH)


def log_prior(x):
    return -0.5 * jnp.sum(x**2)


def log_likelihood(x):
    """Observation 2 of x[0], unit noise: the posterior of x[0] is N(1, 1/2)."""
    return -0.5 * (2.0 - x[0]) ** 2


def sample_prior(key):
    return jax.random.normal(key, (2,))


def test_a_posterior_from_parts_starts_at_prior_draws():
    posterior = tabi.Posterior.from_parts(log_prior, log_likelihood, sample_prior)
    result = ask(tilt, posterior)
    assert_right(result, np.exp(2 * 1.0 + 4 * 0.5 / 2))
    assert "one start" not in " ".join(result.warnings)


def test_every_ladder_gets_its_own_start():
    seen = []

    def init(key):
        position = np.asarray(jax.random.normal(key, (2,)))
        seen.append(tuple(position))
        return position

    result = ask(tilt, tabi.Posterior(normal, init))
    assert len(set(seen)) == 8
    assert_right(result, np.exp(2.0))


def test_float32_is_a_choice_with_float64_results():
    posterior = tabi.Posterior(normal, np.zeros(2), dtype="float32")
    result = ask(tilt, posterior)
    assert_right(result, np.exp(2.0))


def test_progress_hears_of_every_phase_and_is_closed():
    class Own:
        def __init__(self):
            self.phases, self.done, self.closed = [], [], 0

        def update(self, phase, done, total, note):
            self.phases.append(phase)
            self.done.append(done)

        def close(self):
            self.closed += 1

    own = Own()
    result = tabi.expect(tilt, POSTERIOR, rel_tol=None, max_evaluations=60_000, key=1, progress=own)
    assert list(dict.fromkeys(own.phases)) == ["search", "settle", "climb", "refine", "measure"]
    assert own.done == sorted(own.done) and own.done[-1] == result.evaluations
    assert own.closed == 1


def test_a_run_says_what_it_did():
    result = ask(tilt, method=tabi.GTI(kernel=HMC()))
    assert result.method == "GTI(Adaptive, HMC, MBAR)"
    assert result.diagnostics.legs[0].component == 0
    assert [r.phase for r in result.diagnostics.rounds][-1] == "measure"
