"""GTI's options: every estimator, the paper's legs, schedules, no exchange."""

import jax.numpy as jnp
import numpy as np
import pytest
from models import EDGE_30, hinge, hinge_truth, normal

import tabi
from tabi.estimators import (
    BAR,
    MBAR,
    BackwardSteppingStones,
    CorrectedTrapezoid,
    ForwardSteppingStones,
    Power,
    Simpson,
    Trapezoid,
)
from tabi.paths import GeometricPath, Restricted, TimesF
from tabi.schedules import Adaptive, PoweredFraction, Uniform

POSTERIOR = tabi.Posterior(normal, np.zeros(2))
PAPER = (GeometricPath(Restricted(1), TimesF(1)), GeometricPath(Restricted(-1), TimesF(-1)))
ACCELERATED = GeometricPath(Restricted(0), TimesF(0))
Z_LIMIT = 4.0
RUNGS = PoweredFraction(16, exponent=2.0)


def two_signed(x):
    """E = sqrt(e) - 1: negative on the left half."""
    return jnp.exp(x[0]) - 1.0


TWO_SIGNED_TRUTH = np.exp(0.5) - 1


def smooth(x):
    """E = 1 / sqrt(2)."""
    return jnp.exp(-0.5 * x[0] ** 2)


def zeros(x):
    return hinge(x, EDGE_30)


def ask(f, budget=150_000, **options):
    return tabi.expect(
        f,
        POSTERIOR,
        method=tabi.GTI(**options),
        rel_tol=None,
        max_evaluations=budget,
        progress=False,
        key=2,
    )


def check(result, truth, signed=False):
    if signed:
        z = (result.value - truth) / result.stderr
    else:
        z = (result.log_value - np.log(truth)) / result.log_stderr
    assert abs(z) < Z_LIMIT, (z, result.warnings)
    assert result.log_stderr < 0.15
    return z


ESTIMATORS = {
    "mbar": MBAR(),
    "bar": BAR(),
    "forward": ForwardSteppingStones(),
    "backward": BackwardSteppingStones(),
    "trapezoid": Trapezoid(),
    "corrected": CorrectedTrapezoid(),
    "corrected in t": CorrectedTrapezoid(Power(exponent=2)),
    "simpson": Simpson(Power(exponent=2)),
}


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_every_estimator_answers(estimator):
    result = ask(smooth, estimator=estimator, schedule=RUNGS)
    check(result, np.sqrt(0.5))
    assert type(estimator).__name__ in result.method


@pytest.mark.parametrize("name", ["mbar", "bar", "forward"])
def test_estimators_that_absorb_zeros_carry_the_correction_factor(name):
    check(ask(zeros, estimator=ESTIMATORS[name], schedule=Adaptive(count=8)), hinge_truth(EDGE_30))


@pytest.mark.parametrize("estimator", [CorrectedTrapezoid(), Trapezoid(), MBAR(), BAR()])
def test_the_papers_form_two_restricted_legs_and_their_factors(estimator):
    result = ask(two_signed, 400_000, path=PAPER, estimator=estimator, schedule=RUNGS)
    check(result, TWO_SIGNED_TRUTH, signed=True)
    assert len(result.diagnostics.legs) == 2
    assert result.diagnostics.condition > 1


@pytest.mark.parametrize("estimator", [CorrectedTrapezoid(), MBAR()])
def test_the_accelerated_form_one_restricted_leg_split_by_sign(estimator):
    result = ask(two_signed, path=ACCELERATED, estimator=estimator, schedule=RUNGS)
    check(result, TWO_SIGNED_TRUTH, signed=True)


def test_a_leg_without_support_is_left_out():
    """f >= 0 with zeros needs no minus leg."""
    result = ask(zeros, path=PAPER, schedule=Adaptive(count=8))
    check(result, hinge_truth(EDGE_30))
    assert len(result.diagnostics.legs) == 1


@pytest.mark.parametrize("schedule", [Uniform(6), PoweredFraction(8), Adaptive(density=3.0)])
def test_every_schedule_answers(schedule):
    result = ask(smooth, schedule=schedule)
    check(result, np.sqrt(0.5))
    assert type(schedule).__name__ in result.method
    if not isinstance(schedule, Adaptive):
        np.testing.assert_allclose(
            result.diagnostics.legs[0].betas, schedule.betas(None, schedule.count)
        )


@pytest.mark.parametrize("f", [smooth, two_signed], ids=["one sign", "two signs"])
def test_without_exchange(f):
    result = ask(f, exchange=False, schedule=Uniform(5))
    check(result, {smooth: np.sqrt(0.5), two_signed: TWO_SIGNED_TRUTH}[f], signed=f is two_signed)
    assert result.method.endswith("no exchange)")
