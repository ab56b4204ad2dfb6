"""Every error of the contract: what was given, what was expected, what to do.

All but the NaN policy's are raised before any long work.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tabi
from tabi.engine import InvalidModel


def normal(x):
    return -0.5 * jnp.sum(x**2)


def tilt(x):
    return jnp.exp(x[0])


POSTERIOR = tabi.Posterior(normal, np.zeros(2))


def ask(f=tilt, posterior=POSTERIOR, **options):
    options = {"max_evaluations": 20_000, "rel_tol": None, "key": 5} | options
    return tabi.expect(f, posterior, progress=False, **options)


def refuses(error, *pieces, **options):
    """The message has every piece."""
    with pytest.raises(error) as caught:
        ask(**options)
    for piece in pieces:
        assert piece in str(caught.value), str(caught.value)


# Arguments.

ARGUMENTS = {
    "posterior": ({"posterior": normal}, TypeError, ["tabi.Posterior", "got function"]),
    "negative rel_tol": ({"rel_tol": -0.1}, ValueError, ["rel_tol", "at least 0", "-0.1"]),
    "nan rel_tol": ({"rel_tol": np.nan}, ValueError, ["rel_tol", "at least 0", "nan"]),
    "text rel_tol": ({"rel_tol": "5%"}, ValueError, ["rel_tol", "'5%'"]),
    "infinite abs_tol": ({"abs_tol": np.inf}, ValueError, ["abs_tol", "inf"]),
    "no abs_tol": ({"abs_tol": None}, ValueError, ["abs_tol", "None"]),
    "zero tolerance": (
        {"rel_tol": 0, "abs_tol": 0.0},
        ValueError,
        ["rel_tol=0", "never be met", "rel_tol=None", "max_evaluations"],
    ),
    "no budget": ({"max_evaluations": 0}, ValueError, ["max_evaluations", "positive", "got 0"]),
    "text budget": ({"max_evaluations": "many"}, ValueError, ["max_evaluations", "'many'"]),
    "infinite budget": ({"max_evaluations": np.inf}, ValueError, ["max_evaluations", "inf"]),
    "nan budget": ({"max_evaluations": np.nan}, ValueError, ["max_evaluations", "nan"]),
    "one ladder": ({"ladders": 1}, ValueError, ["ladders", "at least 2", "got 1"]),
    "half a ladder": ({"ladders": 2.5}, ValueError, ["ladders", "integer", "2.5"]),
    "method as text": ({"method": "GTI"}, TypeError, ["tabi.GTI()", "'GTI'"]),
    "method as class": ({"method": tabi.GTI}, TypeError, ["tabi.GTI()"]),
    "nan policy": ({"nan": "ignore"}, ValueError, ['"reject" or "raise"', "'ignore'"]),
    "key": ({"key": 0.5}, TypeError, ["key must be an int", "0.5"]),
    "executor": ({"executor": 4}, TypeError, ["executor", "None", "got int"]),
}


@pytest.mark.parametrize(("options", "error", "pieces"), ARGUMENTS.values(), ids=ARGUMENTS.keys())
def test_impossible_arguments(options, error, pieces):
    refuses(error, *pieces, **options)


def test_an_unknown_progress_is_refused():
    with pytest.raises(TypeError, match="update"):
        tabi.expect(tilt, POSTERIOR, progress="bar")


# f.

FUNCTIONS = {
    "no function": (3.0, TypeError, ["f must be a function", "got float"]),
    "boolean": (lambda x: x[0] > 3, TypeError, ["booleans", "tabi.probability(level)"]),
    "complex": (lambda x: x[0] + 1j, TypeError, ["real", "complex", "real part"]),
    "a list": (lambda x: [x[0], x[1]], TypeError, ["real number or array", "stack"]),
    "nothing": (lambda x: None, TypeError, ["real number or array", "None"]),
    "empty": (lambda x: x[:0], ValueError, ["at least one component", "(0,)"]),
    "a signed log": (
        lambda x: tabi.SignedLog(jnp.sign(x[0]), x[0]),
        ValueError,
        ["SignedLog", "log=True"],
    ),
}


@pytest.mark.parametrize(("f", "error", "pieces"), FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_an_f_of_the_wrong_kind(f, error, pieces):
    refuses(error, *pieces, f=f)


def test_parts_of_a_signed_log_must_have_one_shape():
    def f(x):
        return tabi.SignedLog(jnp.ones(2), x[0])

    refuses(ValueError, "one shape", "(2,)", "()", f=f, log=True)


@pytest.mark.parametrize("sign", [lambda x: x[0] > 0, lambda x: x[0] + 1j])
def test_the_sign_of_a_signed_log_must_be_a_real_number(sign):
    with pytest.raises(TypeError, match="sign"):
        ask(lambda x: tabi.SignedLog(sign(x), x[0]), log=True)


# The density.

DENSITIES = {
    "a vector": (lambda x: -(x**2), ["one real number", "float64[2]"]),
    "complex": (lambda x: jnp.sum(x) + 1j, ["one real number", "complex"]),
    "boolean": (lambda x: x[0] > 0, ["one real number", "bool"]),
    "nothing": (lambda x: None, ["one real number", "None"]),
    "a pair": (lambda x: (normal(x), x), ["one real number", "has_aux=True"]),
}


@pytest.mark.parametrize(("density", "pieces"), DENSITIES.values(), ids=DENSITIES.keys())
def test_a_density_of_the_wrong_kind(density, pieces):
    refuses(ValueError, *pieces, posterior=tabi.Posterior(density, np.zeros(2)))


def test_has_aux_needs_a_pair():
    posterior = tabi.Posterior(normal, np.zeros(2), has_aux=True)
    refuses(ValueError, "(log density, aux)", "has_aux", f=lambda x, aux: x[0], posterior=posterior)


def test_a_prior_of_the_wrong_kind():
    posterior = tabi.Posterior.from_parts(
        lambda x: -(x**2), lambda x: -(x[0] ** 2), init=np.zeros(2)
    )
    refuses(ValueError, "one real number", posterior=posterior)


def test_an_error_inside_the_model_arrives_as_it_is():
    def broken(x):
        raise ZeroDivisionError("the model's own words")

    refuses(ZeroDivisionError, "own words", posterior=tabi.Posterior(broken, np.zeros(2)))
    refuses(ZeroDivisionError, "own words", f=broken)


# Starts.


def nan_at_zero(x):
    return jnp.where(x[0] == 0, jnp.nan, normal(x))


def empty(x):
    return -jnp.inf + 0 * x[0]


def positive_only(x):
    return jnp.where(x[0] > 0, normal(x), -jnp.inf)


STARTS = {
    "nan in the start": (normal, np.array([np.nan, 0.0]), {}, ["nan", "not finite"]),
    "nan density": (nan_at_zero, np.array([0.0, 2.5]), {}, ["NaN", "2.5", "init"]),
    "outside the support": (positive_only, np.array([-1.5, 0.0]), {}, ["-inf", "-1.5", "init"]),
    "zero everywhere": (empty, np.zeros(2), {}, ["-inf", "start", "init"]),
    "outside the bounds": (normal, np.array([0.5, 7.5]), {"bounds": (0.0, 5.0)}, ["7.5", "bounds"]),
    "on a bound": (normal, np.array([0.5, 0.0]), {"bounds": (0.0, 5.0)}, ["strictly", "bounds"]),
    "no coordinates": (normal, np.zeros(0), {}, ["no coordinates"]),
}


@pytest.mark.parametrize(
    ("density", "init", "options", "pieces"), STARTS.values(), ids=STARTS.keys()
)
def test_a_start_that_cannot_be_one(density, init, options, pieces):
    refuses(ValueError, *pieces, posterior=tabi.Posterior(density, init, **options))


def test_f_that_is_nan_at_the_start():
    def f(x):
        return jnp.log(x[0] - 1.0)

    refuses(InvalidModel, "f is NaN", "0.0", "init", f=f)


def test_f_is_not_read_where_the_density_is_zero():
    """f may be NaN outside the support: such proposals are plain rejections."""

    def f(x):
        return jnp.sqrt(x[0])

    posterior = tabi.Posterior(positive_only, np.ones(2))
    result = ask(f, posterior, max_evaluations=40_000)
    assert result.diagnostics.invalid_proposals == 0
    # E sqrt|x| of a standard normal.
    truth = 2**0.25 * 1.2254167024651776 / np.sqrt(np.pi)
    assert abs(result.log_value - np.log(truth)) < 4.5 * result.log_stderr < 0.5


def test_a_start_of_text_or_complex_numbers():
    refuses(TypeError, "real numbers", posterior=tabi.Posterior(normal, np.array(["a"])))
    refuses(
        TypeError, "real numbers", "complex", posterior=tabi.Posterior(normal, np.zeros(2) + 1j)
    )


def test_starts_of_different_shapes():
    sizes = iter([2, 3] * 8)

    def init(key):
        return np.zeros(next(sizes))

    refuses(ValueError, "2 and of 3", "same shape", posterior=tabi.Posterior(normal, init))


def test_a_start_drawn_outside_the_support_is_drawn_again():
    """Unless the density is zero everywhere, which is said."""

    def init(key):
        return jax.random.normal(key, (2,))

    result = ask(posterior=tabi.Posterior(positive_only, init), max_evaluations=60_000)
    assert np.isfinite(result.log_value)
    refuses(ValueError, "-inf", "everywhere", posterior=tabi.Posterior(empty, init))


def test_float32_that_loses_f_ends_in_the_remedy():
    """log f = -(x + 15)^2 / 4 underflows in float32 on most of N(0, 9)."""

    def wide(x):
        return -jnp.sum(x**2) / 18

    def narrow(x):
        return jnp.exp(-0.25 * (x[0] + 15.0) ** 2)

    posterior = tabi.Posterior(wide, np.zeros(1), dtype="float32")
    refuses(
        ValueError, "float32", 'dtype="float64"', "log=True", f=narrow, posterior=posterior,
        max_evaluations=10**6,
    )  # fmt: skip


def test_a_density_too_large_for_float32_ends_in_the_remedy():
    def large(x):
        return -1e8 - 0.5 * jnp.sum(x**2)

    posterior = tabi.Posterior(large, np.zeros(2), dtype="float32")
    refuses(ValueError, "float32", 'dtype="float64"', posterior=posterior, max_evaluations=10**6)


# NaN in proposals: P(x[1] > edge) of them.


def rarely_nan(x):
    return jnp.where(x[1] > 2.05, jnp.nan, normal(x))


def often_nan(x):
    return jnp.where(x[1] > 0.8, jnp.nan, normal(x))


def infinite_f(x):
    return jnp.where(x[1] > 2.05, jnp.inf, tilt(x))


RARELY = tabi.Posterior(rarely_nan, np.zeros(2))


def test_two_percent_of_nan_proposals_are_rejected_and_withdraw_trust():
    result = ask(posterior=RARELY, max_evaluations=60_000)
    share = result.diagnostics.invalid_proposals / result.evaluations
    assert 0.001 < share < 0.05
    assert not result.converged
    assert "NaN" in " ".join(result.warnings) and "-inf" in " ".join(result.warnings)
    x = np.array(eval(result.diagnostics.first_invalid))
    assert x.shape == (2,) and x[1] > 2.05
    # Rejection is right: the posterior is the normal without its NaN region.
    assert abs(result.log_value - 0.5) < 4.5 * result.log_stderr


def test_many_nan_proposals_stop_the_run():
    with pytest.raises(InvalidModel) as caught:
        ask(posterior=tabi.Posterior(often_nan, np.zeros(2)), max_evaluations=10**6)
    message = str(caught.value)
    assert "NaN" in message and "first at" in message and "return -inf" in message


def test_one_nan_proposal_is_fatal_where_the_user_says_so():
    with pytest.raises(InvalidModel, match=r"NaN.* at \d+ of \d+ proposals, first at \["):
        ask(posterior=RARELY, nan="raise", max_evaluations=10**6)


def test_an_infinite_f_is_invalid_too():
    result = ask(infinite_f, max_evaluations=60_000)
    assert result.diagnostics.invalid_proposals > 0 and not result.converged
    assert "infinite" in " ".join(result.warnings)


# Answers that are none.


def test_an_f_that_is_zero_everywhere_is_not_known_to_be_zero():
    result = ask(lambda x: 0.0 * x[0])
    assert result.sign == 0 and not result.converged
    assert "not known to be 0" in " ".join(result.warnings)


def test_progress_is_closed_after_an_error_too():
    class Own:
        closed = 0

        def update(self, phase, done, total, note):
            pass

        def close(self):
            self.closed += 1

    own = Own()
    with pytest.raises(TypeError):
        tabi.expect(lambda x: x[0] > 0, POSTERIOR, progress=own)
    assert own.closed == 1
