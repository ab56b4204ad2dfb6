"""Signs, products and sums on the log scale."""

import numpy as np
import pytest
from gaussian_leg import GaussianLeg

from tabi.estimators import BAR, Estimate, Term, combine, fraction, inverse, product
from tabi.paths import Restricted

RNG = np.random.default_rng(0)
SHAPE = (2, 6)
INFLUENCES = RNG.standard_normal((3, *SHAPE))


def terms(signs: list[int], values: list[float], shift: float = 0.0) -> list[Term]:
    return [
        Term(s, float(np.log(v)) + shift, {"a": i}, 0.1)
        for s, v, i in zip(signs, values, INFLUENCES, strict=False)
    ]


@pytest.mark.parametrize("shift", [0.0, -1000.0, 1000.0])
@pytest.mark.parametrize("signs", [[1, 1, 1], [1, -1, 1], [-1, -1, 1]])
def test_a_sum_is_the_sum_of_its_terms_on_any_scale(signs, shift):
    values = [0.5, 2.0, 1.25]
    answer = combine(terms(signs, values, shift))
    signed = np.array(signs) * values
    total = signed.sum()
    assert answer.sign == np.sign(total)
    assert answer.log_abs == pytest.approx(np.log(abs(total)) + shift)
    expected = np.tensordot(signed, INFLUENCES, 1) / total
    np.testing.assert_allclose(answer.influences["a"], expected, rtol=1e-9)
    assert answer.bias == pytest.approx(0.1 * 3.75 / abs(total))
    assert answer.condition == pytest.approx(3.75 / abs(total))


def test_terms_of_vastly_different_size_do_no_harm():
    tiny = Term(-1, -5000.0, {"a": INFLUENCES[1]})
    answer = combine([Term(1, -1000.0, {"a": INFLUENCES[0]}), tiny])
    assert (answer.sign, answer.log_abs, answer.condition) == (1, -1000.0, 1.0)
    np.testing.assert_array_equal(answer.influences["a"], INFLUENCES[0])


@pytest.mark.parametrize(
    "nothing", [Term(0, 0.0, {"a": INFLUENCES[0]}), Term(1, -np.inf, {"a": INFLUENCES[0]})]
)
def test_zero_terms_vanish(nothing):
    answer = combine([nothing, nothing])
    assert (answer.sign, answer.log_abs) == (0, -np.inf)
    assert not answer.influences["a"].any()
    assert combine([nothing, *terms([-1], [3.0])]).log_abs == pytest.approx(np.log(3))


def test_exact_cancellation_leaves_no_error_bar():
    answer = combine(terms([1, -1], [2.0, 2.0]))
    assert (answer.sign, answer.log_abs, answer.condition) == (0, -np.inf, np.inf)
    assert np.isnan(answer.influences["a"]).all()


def test_a_product_adds_logs_influences_over_rungs_and_biases():
    a = Estimate(-700.0, RNG.standard_normal((4, *SHAPE)), bias=0.2)
    b = Estimate(-600.0, RNG.standard_normal((1, *SHAPE)), bias=-0.1)
    term = product(-1, a, b)
    assert (term.sign, term.log_value) == (-1, -1300.0)
    assert term.bias == pytest.approx(0.3)
    np.testing.assert_allclose(term.influences["ladders"], a.influence.sum(0) + b.influence[0])


def test_independent_streams_stay_apart_through_products_and_sums():
    ladder = Estimate(0.5, INFLUENCES[:1])
    other = Estimate(-0.2, RNG.standard_normal((1, 1, 30)), stream="posterior")
    terms = [product(1, ladder, other), product(-1, ladder)]
    answer = combine(terms)
    up, down = np.exp(0.3), np.exp(0.5)
    np.testing.assert_allclose(answer.influences["ladders"], np.sign(up - down) * -INFLUENCES[0])
    np.testing.assert_allclose(
        answer.influences["posterior"], up / (up - down) * other.influence[0]
    )


def test_an_inverse_divides():
    estimate = Estimate(0.7, INFLUENCES[:1], bias=0.1)
    one = product(1, estimate, inverse(estimate))
    assert one.log_value == 0 and not one.influences["ladders"].any()


def test_bad_calls_say_so():
    with pytest.raises(ValueError, match="expected -1, 0 or 1"):
        product(2, Estimate(0.0, INFLUENCES[:1]))
    with pytest.raises(ValueError, match="at least one factor"):
        product(1)
    with pytest.raises(ValueError, match="at least one term"):
        combine([])


def test_a_fraction_has_the_binomial_error():
    inside = np.arange(100).reshape(4, 25) % 5 == 0
    estimate = fraction(inside)
    assert estimate.log_ratio == pytest.approx(np.log(0.2))
    assert estimate.influence.shape == (1, 4, 25)
    assert estimate.influence.sum() == pytest.approx(0, abs=1e-12)
    assert (estimate.influence**2).sum() == pytest.approx(0.8 / 0.2 / 100)
    nowhere = fraction(np.zeros((4, 25), bool))
    assert nowhere.log_ratio == -np.inf
    assert not nowhere.influence.any()


def test_a_restricted_leg_times_its_correction_factor_is_calibrated():
    leg, betas, scores = GaussianLeg(zeros=True, start=Restricted()), np.array([0, 0.3, 1.0]), []
    full = GaussianLeg(zeros=True)
    for seed in range(200):
        ratio = BAR().estimate(leg.draws(seed, betas, ladders=2, length=200))
        root = full.draws(10_000 + seed, np.zeros(1), ladders=2, length=200)
        factor = fraction(root.scalars.sign_f[0] != 0)
        term = product(1, ratio, factor)
        error = np.sqrt((ratio.influence**2).sum() + (factor.influence**2).sum())
        scores.append((term.log_value - full.log_ratio()) / error)
    assert abs(np.mean(scores)) < 4 / np.sqrt(200)
    assert abs(np.std(scores, ddof=1) - 1) < 4 / np.sqrt(400)
