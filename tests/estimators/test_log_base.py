"""Base densities have an axis of their own behind the draws': every estimator minds it."""

import dataclasses

import numpy as np
import pytest
from gaussian_leg import GaussianLeg

from tabi.draws import LegDraws
from tabi.estimators import (
    BAR,
    MBAR,
    BackwardSteppingStones,
    CorrectedTrapezoid,
    ForwardSteppingStones,
    Simpson,
    Trapezoid,
)
from tabi.estimators.base import thinned
from tabi.paths import Base, GeometricPath, TimesF

BETAS = np.array([0.0, 0.1, 0.35, 0.65, 1.0])
ESTIMATORS = (
    *(BAR(), MBAR(), ForwardSteppingStones(), BackwardSteppingStones()),
    *(Trapezoid(), CorrectedTrapezoid(), Simpson()),
)


def pair(length=30) -> tuple[LegDraws, LegDraws]:
    """A leg from the posterior, and the same one from a base density that equals it."""
    plain = GaussianLeg().draws(1, BETAS, ladders=2, length=length)
    log_pi = plain.scalars.log_pi
    # The second of two bases, so that taking draws from the last axis cannot go unnoticed.
    scalars = plain.scalars._replace(log_base=np.stack([log_pi - 5.0, log_pi], -1))
    path = GeometricPath(Base(1), TimesF(1))
    return plain, dataclasses.replace(plain, path=path, scalars=scalars)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_a_base_equal_to_the_posterior_gives_the_same_estimate(estimator):
    plain, based = (estimator.estimate(draws) for draws in pair())
    assert based.log_ratio == pytest.approx(plain.log_ratio, rel=1e-10)
    np.testing.assert_allclose(based.influence, plain.influence, atol=1e-12)


def test_thinned_draws_keep_their_bases():
    _, based = pair()
    kept = thinned(based, 20)
    assert kept.shape == (5, 2, 10)
    np.testing.assert_array_equal(kept.scalars.log_base, based.scalars.log_base[:, :, ::3])
    np.testing.assert_array_equal(kept.scalars.log_pi, based.scalars.log_pi[..., ::3])
    np.testing.assert_array_equal(kept.log_density(0.3), based.log_density(0.3)[..., ::3])


def test_one_rung_keeps_the_bases():
    _, based = pair()
    np.testing.assert_array_equal(based.rung(2).log_base, based.scalars.log_base[2])
