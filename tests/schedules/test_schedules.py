"""Where rungs stand: laws over SCHEDULES, and the barrier of problems with known rejection."""

import numpy as np
import pytest
from cases import SCHEDULES, rows
from gaussian_leg import GaussianLeg
from scipy.stats import norm

from tabi.draws import LegDraws
from tabi.paths import GeometricPath, LevelPath
from tabi.paths.level import DECADES
from tabi.schedules import Adaptive, Barrier, PoweredFraction, Uniform, barrier_of, rejection
from tabi.state import Scalars

GRID = np.linspace(0, 1, 21)
BARRIERS = {
    "easy": Barrier(GRID, 0.3 * GRID),
    "steep at 0": Barrier(GRID**4, 4 * GRID**1.2),
    "steep at 1": Barrier(GRID, 12 * GRID**6),
    "flat in places": Barrier(GRID, np.where(GRID < 0.5, 0.0, 5 * (GRID - 0.5))),
    "two rungs seen": Barrier(np.array([0.0, 1.0]), np.array([0.0, 0.9])),
    "nothing to pass": Barrier(GRID, 0 * GRID),
}


@rows("schedule", SCHEDULES)
@rows("barrier", BARRIERS)
def test_rungs_rise_from_0_to_1(schedule, barrier):
    rungs = schedule.rungs(barrier)
    betas = schedule.betas(barrier, rungs)
    assert rungs >= 2 and betas.shape == (rungs,)
    assert betas[0] == 0 and betas[-1] == 1
    assert np.all(np.diff(betas) > 0)


def test_uniform_and_powered_fraction_follow_their_formulas():
    barrier = BARRIERS["easy"]
    np.testing.assert_allclose(Uniform(5).betas(barrier, 5), [0, 0.25, 0.5, 0.75, 1])
    np.testing.assert_allclose(
        PoweredFraction(5).betas(barrier, 5), np.array([0, 0.25, 0.5, 0.75, 1]) ** 5
    )
    assert PoweredFraction(9).rungs(barrier) == 9 and Uniform(9).rungs(barrier) == 9


@pytest.mark.parametrize("name", ["easy", "steep at 0", "steep at 1"])
def test_adaptive_rungs_stand_at_equal_steps_of_the_barrier(name):
    barrier = BARRIERS[name]
    betas = Adaptive(count=8).betas(barrier, 8)
    levels = np.interp(betas, barrier.betas, barrier.cumulative)
    np.testing.assert_allclose(np.diff(levels), barrier.total / 7, rtol=0.2, atol=0.05)


@pytest.mark.parametrize(("total", "least", "most"), [(0.05, 2, 2), (2.0, 6, 6), (5.5, 14, 16)])
def test_the_number_of_rungs_comes_from_the_barrier(total, least, most):
    rungs = Adaptive().rungs(Barrier(GRID, total * GRID))
    assert least <= rungs <= most


@pytest.mark.parametrize("make", [Uniform, PoweredFraction, lambda n: Adaptive(count=n)])
def test_fewer_than_two_rungs_are_refused(make):
    with pytest.raises(ValueError, match="at least 2 rungs, got 1"):
        make(1)


def test_a_negative_exponent_is_refused():
    with pytest.raises(ValueError, match="positive, got -1"):
        PoweredFraction(5, exponent=-1)


def shifted_leg(distance: float, seed: int) -> LegDraws:
    """pi = N(0, 1) and log f = distance x: rung beta is N(beta distance, 1)."""
    x = np.random.default_rng(seed).normal(size=(2, 8, 2000))
    x[1] += distance
    scalars = Scalars(-0.5 * x**2, distance * x, np.ones(x.shape))
    return LegDraws(GeometricPath(), np.array([0.0, 1.0]), scalars)


@pytest.mark.parametrize("distance", [0.5, 1.5, 3.0])
def test_rejection_is_that_of_two_gaussians(distance):
    """log ratio = -distance (y - x), y - x ~ N(distance, 2): acceptance 2 Phi(-distance/sqrt 2)."""
    exact = 1 - 2 * norm.sf(distance / np.sqrt(2))
    found = [rejection(shifted_leg(distance, seed))[0] for seed in range(8)]
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - exact) < 5 * error
    assert error < 0.01


def test_states_off_the_upper_support_do_not_count():
    """The support edge rejects 1 - R of swaps wherever the rungs are: no part of the barrier."""
    betas = np.array([0.0, 1e-9, 0.5, 1.0])
    leg = GaussianLeg(zeros=True, edge=1.0)
    draws = leg.draws(3, betas, ladders=4, length=1000)
    rates = rejection(draws)
    assert np.mean(draws.scalars.sign_f[0] == 0) > 0.8
    assert rates[0] < 1e-3 < rates[1]
    barrier = barrier_of(draws)
    assert barrier.total == pytest.approx(rates.sum())
    np.testing.assert_array_equal(barrier.betas, betas)


def test_an_edge_that_no_draw_crosses_rejects_everything():
    x = np.zeros((2, 2, 10))
    scalars = Scalars(x, np.where(np.arange(2)[:, None, None] == 0, -np.inf, x), 1 + 0 * x)
    assert rejection(LegDraws(GeometricPath(), np.array([0.0, 1.0]), scalars))[0] == 1


def level_leg(taus, seed=0, count=20_000):
    """pi = N(0, 1), level x - 1: exact draws of smooth rungs and of the event itself."""
    path = LevelPath(sharp_at=1.0)
    betas = np.array([*(0.5 - np.log10(tau) / (2 * DECADES) for tau in taus), 1.0])
    x = np.random.default_rng(seed).normal(size=(len(betas), 4, 40 * count))
    log_pi, level = -0.5 * x**2, x - 1.0
    scalars = Scalars(log_pi, np.where(level > 0, 0.0, -np.inf), 1 * (level > 0), level=level)
    kept = []
    for i, beta in enumerate(betas):
        one = LegDraws(path, betas, scalars).rung(i)
        share = np.exp(path.log_density(one, beta) - one.log_pi - np.log(2.0))
        keep = np.random.default_rng(i).random(share.shape) < share
        kept.append(np.stack([row[flags][:count] for row, flags in zip(x[i], keep, strict=True)]))
    x = np.stack(kept)
    level = x - 1.0
    log_abs_f = np.where(level > 0, 0.0, -np.inf)
    return LegDraws(path, betas, Scalars(-0.5 * x**2, log_abs_f, 1 * (level > 0), level=level))


def test_states_before_the_turn_count_where_more_rungs_would_help():
    """Swaps with the event are accepted as often as the smooth rung's states are in it."""
    draws = level_leg([0.5], count=4000)
    inside = np.mean(draws.scalars.level[0] > 0)
    assert 0.3 < inside < 0.7
    found = rejection(draws)[0]
    # P(both swapped states fit): the smooth density is nearly flat over the event.
    assert 1 - inside < found < 1 - 0.7 * inside


def test_the_barrier_knows_the_way_to_the_turn():
    """Inside the edge before it: rungs placed at equal levels reject about equally."""
    draws = level_leg([0.5], count=4000)
    barrier = barrier_of(draws)
    assert len(barrier.betas) > 2 and np.all(np.diff(barrier.betas) > 0)
    assert np.all(np.diff(barrier.cumulative) >= 0)
    assert barrier.total == pytest.approx(rejection(draws)[0])
    low, middle, high = barrier.place(3)
    assert (low, high) == (draws.betas[0], 1.0)
    tau = 10 ** (2 * DECADES * (0.5 - middle))
    first, second = rejection(level_leg([0.5, tau], count=4000))
    assert abs(first - second) < 0.15
