"""MBAR against pymbar, targets without draws, and where it must refuse."""

import numpy as np
import pytest
from gaussian_leg import GaussianLeg
from scipy.special import logsumexp

from tabi.draws import LegDraws
from tabi.estimators import MBAR, combine, product
from tabi.estimators.mbar import solve
from tabi.paths import TimesF

BETAS = np.array([0.0, 0.15, 0.5, 1.0])


def stderr(influence: np.ndarray) -> float:
    return float(np.sqrt((influence**2).sum()))


def signed_targets(draws: LegDraws) -> list[np.ndarray]:
    return [TimesF(sign=sign).log(draws.scalars) for sign in (1, -1)]


@pytest.mark.parametrize("zeros", [False, True])
def test_constants_errors_and_overlap_agree_with_pymbar(zeros):
    pymbar = pytest.importorskip("pymbar")
    draws = GaussianLeg(zeros=zeros).draws(0, BETAS, ladders=2, length=1000)
    energies = -np.stack([draws.log_density(beta).ravel() for beta in BETAS])
    # pymbar takes no infinite energy: 1e4 is a weight of exactly zero in double precision.
    oracle = pymbar.MBAR(np.minimum(energies, 1e4), np.full(4, 2000), solver_protocol="robust")
    differences = oracle.compute_free_energy_differences()
    estimate = MBAR().estimate(draws)
    assert estimate.log_ratio == pytest.approx(-differences["Delta_f"][0, -1], abs=1e-6)
    # Two estimates of one variance: equal but for a sampling error of order 1 / sqrt(draws).
    assert stderr(estimate.influence) == pytest.approx(differences["dDelta_f"][0, -1], rel=0.02)
    np.testing.assert_allclose(solve(draws).overlap, oracle.compute_overlap()["matrix"], atol=1e-5)


def test_the_equations_hold_at_the_solution():
    draws = GaussianLeg(zeros=True).draws(1, BETAS, ladders=2, length=100)
    weights = np.random.default_rng(0).uniform(0.5, 2, draws.shape)
    solution = solve(draws, weights)
    log_phi = np.stack([draws.log_density(beta).ravel() for beta in BETAS])
    log_w = np.log(solution.sample_weights.ravel())
    scaled = log_phi - solution.log_constants[:, None]
    mixture = logsumexp(scaled + np.log(200), axis=0)
    np.testing.assert_allclose(logsumexp(scaled - mixture + log_w, axis=1), 0, atol=1e-10)
    np.testing.assert_allclose(np.exp(scaled - mixture), solution.balance, atol=1e-12)


def test_a_rung_as_a_target_is_the_rung():
    draws = GaussianLeg().draws(2, BETAS, ladders=2, length=100)
    estimate = MBAR().estimate(draws)
    first, last = MBAR().log_expectations(draws, [draws.log_density(b) for b in (0.0, 1.0)])
    assert first.log_ratio == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(first.influence, 0, atol=1e-9)
    assert last.log_ratio == pytest.approx(estimate.log_ratio, abs=1e-9)
    np.testing.assert_allclose(last.influence, estimate.influence, atol=1e-9)


def test_signed_f_on_one_ladder_is_calibrated():
    """c+ and c- of a signed f from one |f| ladder, and their difference with a joint error."""
    leg, replications = GaussianLeg(signed=True), 200
    truths = leg.log_parts()
    truth = np.exp(truths[0]) - np.exp(truths[1])
    scores = []
    for seed in range(replications):
        draws = leg.draws(seed, BETAS, ladders=2, length=300)
        parts = MBAR().log_expectations(draws, signed_targets(draws))
        answer = combine([product(1, parts[0]), product(-1, parts[1])])
        value = answer.sign * np.exp(answer.log_abs)
        # Rungs are independent here, so the error is summed before rungs are.
        weights = [s * np.exp(p.log_ratio) for s, p in zip((1, -1), parts, strict=True)]
        joint = sum(w * p.influence for w, p in zip(weights, parts, strict=True))
        row = [(p.log_ratio - t) / stderr(p.influence) for p, t in zip(parts, truths, strict=True)]
        scores.append([*row, (value - truth) / stderr(joint)])
    means, deviations = np.mean(scores, axis=0), np.std(scores, axis=0, ddof=1)
    assert np.all(np.abs(means) < 4 / np.sqrt(replications))
    assert np.all(np.abs(deviations - 1) < 4 / np.sqrt(2 * replications))


def test_the_influence_of_a_target_is_the_derivative_in_the_weights():
    draws = GaussianLeg(signed=True).draws(3, BETAS, ladders=2, length=30)
    targets, h = signed_targets(draws), 1e-3
    parts = MBAR().log_expectations(draws, targets)
    for index in [(0, 0, 0), (1, 1, 3), (3, 0, 29)]:
        ends = []
        for step in (h, -h):
            weights = np.ones(draws.shape)
            weights[index] += step
            ends.append([e.log_ratio for e in MBAR().log_expectations(draws, targets, weights)])
        slopes = (np.array(ends[0]) - ends[1]) / (2 * h)
        influences = [part.influence[index] for part in parts]
        np.testing.assert_allclose(influences, slopes, rtol=1e-4, atol=1e-8)
    for part in parts:
        np.testing.assert_allclose(part.influence.sum(axis=(1, 2)), 0, atol=1e-12)


def test_a_target_that_vanishes_at_every_draw_is_zero():
    draws = GaussianLeg().draws(0, BETAS, ladders=2, length=50)
    plus, minus = MBAR().log_expectations(draws, signed_targets(draws))
    assert minus.log_ratio == -np.inf
    assert not minus.influence.any()
    assert plus.log_ratio == pytest.approx(MBAR().estimate(draws).log_ratio, abs=1e-9)


def test_rungs_without_overlap_are_refused():
    leg = GaussianLeg(y=1e3, s=0.01)
    with pytest.raises(ValueError, match="Use more rungs"):
        MBAR().estimate(leg.draws(0, np.array([0.0, 1.0]), ladders=2, length=50))


def test_draws_from_elsewhere_are_refused():
    draws = GaussianLeg(zeros=True).draws(0, BETAS, ladders=2, length=50)
    swapped = LegDraws(
        draws.path,
        draws.betas,
        type(draws.scalars)(*(None if a is None else a[::-1] for a in draws.scalars)),
    )
    with pytest.raises(ValueError, match="not draws from this path"):
        MBAR().estimate(swapped)


def test_a_poor_start_does_not_hurt(monkeypatch):
    draws = GaussianLeg().draws(0, BETAS, ladders=2, length=100)
    expected = MBAR().estimate(draws).log_ratio
    for offset in (-30.0, 30.0):
        monkeypatch.setattr(
            "tabi.estimators.mbar._start", lambda *_, o=offset: np.array([0.0, o, -o, o])
        )
        assert MBAR().estimate(draws).log_ratio == pytest.approx(expected, abs=1e-8)
