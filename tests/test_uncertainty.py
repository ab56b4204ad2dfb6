"""The standard error is calibrated on correlated, antithetic and coupled draws."""

import numpy as np
import pytest
from gaussian_leg import GaussianLeg
from scipy.signal import lfilter
from scipy.stats import norm

from tabi.estimators import BAR, MBAR, CorrectedTrapezoid, ForwardSteppingStones
from tabi.uncertainty import autocorrelation, interval_factor, standard_error

LADDERS = 8


def autoregressive(rng: np.random.Generator, rho: float, shape: tuple[int, int]) -> np.ndarray:
    """Stationary standard normal series with correlation rho between neighbours."""
    noise = rng.standard_normal(shape) * np.sqrt(1 - rho**2)
    noise[:, 0] /= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


def mean_and_influence(series: np.ndarray) -> tuple[float, np.ndarray]:
    mean = series.mean()
    return mean, (series - mean) / series.size


@pytest.mark.parametrize(
    ("rho", "length"),
    [(-0.9, 2000), (-0.5, 500), (-0.5, 2001), (0, 500), (0.5, 2003), (0.8, 2000), (0.95, 10_000)],
)
def test_scores_of_a_mean_are_calibrated(rho, length):
    replications = 150
    rng = np.random.default_rng(3)
    scores, covered = [], 0
    for _ in range(replications):
        mean, influence = mean_and_influence(autoregressive(rng, rho, (LADDERS, length)))
        error = standard_error(influence)
        assert error.reliable
        assert error.batch_length % 2 == 0
        assert error.batches >= 20
        assert error.dof == error.batches - 1
        scores.append(mean / error.stderr)
        covered += abs(scores[-1]) < interval_factor(error.dof, 0.95)
    rms = np.sqrt(np.mean(np.square(scores)))
    # sd of an rms of standard normals: 1 / sqrt(2 n) = 0.058; five percent for finite batches.
    assert 0.95 - 4 * 0.058 < rms < 1.05 + 4 * 0.058
    assert covered / replications > 0.95 - 4 * np.sqrt(0.05 * 0.95 / replications)


@pytest.mark.parametrize("rho", [-0.9, -0.5, 0.0, 0.5, 0.95])
def test_the_autocorrelation_time_of_an_autoregression(rho):
    series = autoregressive(np.random.default_rng(1), rho, (LADDERS, 20_000))
    time, reach = autocorrelation(series - series.mean())
    assert time == pytest.approx((1 + rho) / (1 - rho), rel=0.15, abs=0.03)
    # The reach sees alternation: sum of |rho|^k whatever the sign.
    assert reach == pytest.approx((1 + abs(rho)) / (1 - abs(rho)), rel=0.3)


def test_an_alternation_cancels_within_batches():
    """Period two, as exchange makes it: batches of odd length would see it as variance."""
    series = np.where(np.arange(1002) % 2, 1.0, -1.0) + np.zeros((LADDERS, 1))
    noise = 1e-3 * np.random.default_rng(0).standard_normal(series.shape)
    _, influence = mean_and_influence(series + noise)
    expected = 1e-3 / np.sqrt(series.size)
    assert standard_error(influence).stderr == pytest.approx(expected, rel=0.5)


def test_sweeps_that_fill_no_batch_count():
    """15 batches of 10 leave 9 of 159 sweeps over: the variance is that of all 159."""
    rng, replications = np.random.default_rng(5), 500
    variances = []
    for _ in range(replications):
        series = rng.standard_normal((LADDERS, 159))
        error = standard_error(mean_and_influence(series)[1])
        variances.append(error.stderr**2 * series.size)
    # Each is a chi-square over about 119 degrees of freedom.
    assert np.mean(variances) == pytest.approx(1, abs=4 * np.sqrt(2 / 119 / replications))


def test_influence_is_summed_over_rungs_before_the_variance():
    """Rungs that share their random numbers: the error rung by rung is another one."""
    leg, betas = GaussianLeg(), np.linspace(0, 1, 6)
    rng = np.random.default_rng(7)
    joint, apart = [], []
    for _ in range(150):
        noise = norm.ppf(rng.uniform(size=(LADDERS, 500)))
        draws = leg.draws(0, betas, LADDERS, 500, noise=noise)
        estimate = MBAR().estimate(draws)
        deviation = estimate.log_ratio - leg.log_ratio()
        joint.append(deviation / standard_error(estimate.influence.sum(axis=0)).stderr)
        apart.append(deviation / np.sqrt((estimate.influence**2).sum()))
    assert np.sqrt(np.mean(np.square(joint))) == pytest.approx(1, abs=4 * 0.058 + 0.03)
    assert np.sqrt(np.mean(np.square(apart))) > 1.4


@pytest.mark.parametrize(
    "estimator", [ForwardSteppingStones(), BAR(), MBAR(), CorrectedTrapezoid()], ids=repr
)
def test_estimates_from_correlated_draws_are_calibrated(estimator):
    leg, betas, scores = GaussianLeg(), np.array([0.0, 0.05, 0.15, 0.3, 0.5, 0.75, 1.0]), []
    rng = np.random.default_rng(11)
    for _ in range(100):
        noise = np.stack([autoregressive(rng, 0.6, (LADDERS, 800)) for _ in betas])
        estimate = estimator.estimate(leg.draws(0, betas, LADDERS, 800, noise=noise))
        error = standard_error(estimate.influence.sum(axis=0)).stderr
        scores.append((estimate.log_ratio - leg.log_ratio()) / error)
    assert np.sqrt(np.mean(np.square(scores))) == pytest.approx(1, abs=4 / np.sqrt(200) + 0.03)


def test_a_run_too_short_for_its_correlation_says_so():
    rng = np.random.default_rng(2)
    _, influence = mean_and_influence(autoregressive(rng, 0.98, (LADDERS, 400)))
    error = standard_error(influence)
    assert not error.reliable
    assert error.batches >= 20


@pytest.mark.parametrize("shape", [(8, 3), (8, 1), (1, 30), (1, 2), (30, 1)])
def test_tiny_runs_give_a_number_and_are_not_reliable(shape):
    error = standard_error(np.random.default_rng(0).standard_normal(shape))
    assert error.stderr > 0
    assert not error.reliable


@pytest.mark.parametrize("offset", [0.05, 0.1, 1.0])
def test_ladders_that_disagree_are_noticed(offset):
    series = np.random.default_rng(3).standard_normal((LADDERS, 1000))
    alike = standard_error(mean_and_influence(series)[1])
    assert alike.reliable
    assert alike.ladder_ratio < 1.8
    apart = series + offset * np.arange(LADDERS)[:, None]
    error = standard_error(mean_and_influence(apart)[1])
    assert not error.reliable or error.ladder_ratio > 1.8
    between = apart.mean(axis=1).std(ddof=1) / np.sqrt(LADDERS)
    assert error.stderr * error.ladder_ratio == pytest.approx(between)


def test_degenerate_influence():
    exact = standard_error(np.zeros((4, 100)))
    assert (exact.stderr, exact.reliable) == (0.0, True)
    unknown = standard_error(np.full((4, 100), np.nan))
    assert np.isnan(unknown.stderr)
    assert not unknown.reliable


def test_the_scale_of_the_influence_is_free():
    influence = np.random.default_rng(0).standard_normal((4, 500))
    error = standard_error(influence).stderr
    for scale in (1e-120, 1e120):
        assert standard_error(scale * influence).stderr == pytest.approx(scale * error)


def test_the_interval_factor_is_a_t_quantile():
    assert interval_factor(10**9, 0.95) == pytest.approx(1.959964, abs=1e-5)
    assert interval_factor(19, 0.95) == pytest.approx(2.093024, abs=1e-5)
    assert interval_factor(0, 0.95) == np.inf
