"""Laws every estimator obeys: a new one adds a row to ESTIMATORS."""

import numpy as np
import pytest
from gaussian_leg import GaussianLeg

from tabi.draws import LegDraws
from tabi.estimators import (
    BAR,
    MBAR,
    AbstractEstimator,
    BackwardSteppingStones,
    CorrectedTrapezoid,
    ForwardSteppingStones,
    LeftRiemann,
    Power,
    RightRiemann,
    Simpson,
    Trapezoid,
)
from tabi.paths import GeometricPath, Restricted
from tabi.state import Scalars

RATIO_ESTIMATORS: dict[str, AbstractEstimator] = {
    "forward": ForwardSteppingStones(),
    "backward": BackwardSteppingStones(),
    "bar": BAR(),
    "mbar": MBAR(),
}
QUADRATURES: dict[str, AbstractEstimator] = {
    "trapezoid": Trapezoid(),
    "simpson": Simpson(),
    "corrected": CorrectedTrapezoid(),
    "corrected in t": CorrectedTrapezoid(Power()),
    "simpson in t": Simpson(Power(exponent=3)),
    "left": LeftRiemann(),
    "right in t": RightRiemann(Power(exponent=2)),
}
ESTIMATORS = RATIO_ESTIMATORS | QUADRATURES
ABSORB_ZEROS = {name: ESTIMATORS[name] for name in ("forward", "bar", "mbar")}

BETAS = np.array([0.0, 0.1, 0.35, 0.65, 1.0])
# Fine enough that corrected rules have no discretisation error to speak of.
FINE = np.linspace(0, 1, 17) ** 2
REPLICATIONS = 200


def rows(table: dict[str, AbstractEstimator]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("estimator", table.values(), ids=table.keys())


def random_weights(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(9).uniform(0.2, 3.0, shape)


def z_scores(estimator: AbstractEstimator, leg: GaussianLeg, betas: np.ndarray) -> np.ndarray:
    """Draws are independent, so the error is the root of the sum of squared influences."""
    scores = []
    for seed in range(REPLICATIONS):
        estimate = estimator.estimate(leg.draws(seed, betas, ladders=4, length=200))
        error = np.sqrt((estimate.influence**2).sum())
        scores.append((estimate.log_ratio - leg.log_ratio()) / error)
    return np.array(scores)


def assert_standard_normal(scores: np.ndarray) -> None:
    """Mean and sd of n standard normal scores, four standard deviations of each allowed."""
    n = len(scores)
    assert abs(scores.mean()) < 4 / np.sqrt(n)
    assert abs(scores.std(ddof=1) - 1) < 4 / np.sqrt(2 * n)


@rows(RATIO_ESTIMATORS)
def test_ratio_estimates_are_calibrated(estimator):
    assert_standard_normal(z_scores(estimator, GaussianLeg(), BETAS))


@rows({k: QUADRATURES[k] for k in ("simpson", "corrected", "corrected in t")})
def test_quadrature_is_calibrated_on_a_fine_ladder(estimator):
    assert_standard_normal(z_scores(estimator, GaussianLeg(), FINE))


@rows(ABSORB_ZEROS)
def test_a_support_edge_at_the_posterior_rung_is_absorbed(estimator):
    assert_standard_normal(z_scores(estimator, GaussianLeg(zeros=True), BETAS))


@rows({name: e for name, e in ESTIMATORS.items() if name not in ABSORB_ZEROS})
def test_a_support_edge_is_refused_by_the_others_with_a_remedy(estimator):
    draws = GaussianLeg(zeros=True).draws(0, BETAS, ladders=2, length=100)
    with pytest.raises(ValueError, match="MBAR"):
        estimator.estimate(draws)


@rows(ESTIMATORS)
def test_the_influence_is_the_derivative_in_the_weights(estimator):
    draws = GaussianLeg().draws(1, BETAS, ladders=2, length=30)
    influence, h = estimator.estimate(draws).influence, 1e-3
    for index in [(0, 0, 0), (0, 1, 29), (1, 0, 5), (2, 1, 7), (4, 1, 29)]:
        up, down = np.ones(draws.shape), np.ones(draws.shape)
        up[index] += h
        down[index] -= h
        ends = [estimator.estimate(draws, w).log_ratio for w in (up, down)]
        # Central differences are off by h^2 times a third derivative of the size of influence.
        np.testing.assert_allclose(
            influence[index], (ends[0] - ends[1]) / (2 * h), rtol=1e-4, atol=1e-8
        )


@rows(ESTIMATORS)
def test_the_influence_at_other_weights_is_the_derivative_in_their_logs(estimator):
    draws = GaussianLeg().draws(1, BETAS, ladders=2, length=30)
    weights, h = random_weights(draws.shape), 1e-3
    influence = estimator.estimate(draws, weights).influence
    direction = np.random.default_rng(4).standard_normal(draws.shape)
    ends = [estimator.estimate(draws, weights * np.exp(s * direction)).log_ratio for s in (h, -h)]
    np.testing.assert_allclose(
        (influence * direction).sum(), (ends[0] - ends[1]) / (2 * h), rtol=1e-4, atol=1e-8
    )


@rows(ESTIMATORS)
def test_the_influence_sums_to_zero_in_every_rung(estimator):
    draws = GaussianLeg().draws(2, BETAS, ladders=3, length=50)
    influence = estimator.estimate(draws, random_weights(draws.shape)).influence
    assert influence.shape == draws.shape
    assert np.abs(influence).max() > 1e-4
    np.testing.assert_allclose(influence.sum(axis=(1, 2)), 0, atol=1e-12)


@rows(ESTIMATORS)
def test_only_weights_relative_to_their_rung_matter(estimator):
    draws = GaussianLeg().draws(2, BETAS, ladders=3, length=50)
    weights = random_weights(draws.shape)
    scaled = weights * np.arange(1, len(BETAS) + 1)[:, None, None]
    a, b = (estimator.estimate(draws, w).log_ratio for w in (weights, scaled))
    np.testing.assert_allclose(a, b, rtol=1e-9)


@rows(ESTIMATORS)
def test_a_draw_of_weight_two_is_a_draw_taken_twice(estimator):
    draws = GaussianLeg().draws(3, BETAS, ladders=1, length=40)
    weights = np.ones(draws.shape)
    weights[..., :20], weights[..., 20:30] = 2.0, 0.0
    order = np.r_[0:20, 0:20, 30:40]
    scalars = type(draws.scalars)(*(a if a is None else a[..., order] for a in draws.scalars))
    repeated = type(draws)(draws.path, draws.betas, scalars)
    a, b = estimator.estimate(draws, weights), estimator.estimate(repeated)
    np.testing.assert_allclose([a.log_ratio, a.bias], [b.log_ratio, b.bias], rtol=1e-8)
    assert not a.influence[..., 20:30].any()


@rows(ESTIMATORS)
def test_draws_of_weight_zero_may_lie_anywhere(estimator):
    """A first rung rejected from posterior draws: weight zero where f vanishes."""
    rejected = GaussianLeg(zeros=True, log_f_shift=-1e4).draws(6, BETAS, ladders=2, length=60)
    inside = rejected.scalars.sign_f != 0
    assert not inside[0].all()
    path = GeometricPath(start=Restricted())
    moved = Scalars(
        *(a if a is None else np.where(inside, a, a[0][inside[0]][0]) for a in rejected.scalars)
    )
    a, b = (
        estimator.estimate(LegDraws(path, BETAS, scalars), inside.astype(float))
        for scalars in (rejected.scalars, moved)
    )
    np.testing.assert_allclose([a.log_ratio, a.bias], [b.log_ratio, b.bias], rtol=1e-9)
    np.testing.assert_allclose(a.influence, b.influence, rtol=1e-9)
    assert not a.influence[~inside].any()


@rows(ESTIMATORS)
@pytest.mark.parametrize("shift", [3.0, -1000.0])
def test_a_constant_in_log_pi_changes_nothing_and_one_in_log_f_adds_itself(estimator, shift):
    plain, moved_pi, moved_f = (
        estimator.estimate(leg.draws(5, BETAS, ladders=2, length=60))
        for leg in (GaussianLeg(), GaussianLeg(log_pi_shift=shift), GaussianLeg(log_f_shift=shift))
    )
    np.testing.assert_allclose(moved_pi.log_ratio, plain.log_ratio, atol=1e-8)
    np.testing.assert_allclose(moved_pi.influence, plain.influence, atol=1e-8)
    # A quadrature in t integrates even a constant with a discretisation error.
    inexact = getattr(estimator, "variable", None)
    if inexact is None or not hasattr(inexact, "exponent"):
        np.testing.assert_allclose(moved_f.log_ratio, plain.log_ratio + shift, atol=1e-8)
        np.testing.assert_allclose(moved_f.influence, plain.influence, atol=1e-8)


@rows(ESTIMATORS)
def test_weights_of_the_wrong_shape_or_value_are_refused(estimator):
    draws = GaussianLeg().draws(0, BETAS, ladders=2, length=10)
    with pytest.raises(ValueError, match="one weight per draw"):
        estimator.estimate(draws, np.ones((2, 10)))
    with pytest.raises(ValueError, match="not all 0"):
        estimator.estimate(draws, np.zeros(draws.shape))
