"""Laws every kernel obeys: a new one adds a row to KERNELS."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import numpy as np
import pytest
import rungs
from cases import KERNELS, rows
from scipy import stats

from tabi.kernels import HMC, AbstractKernel, RandomWalk

LANES = 8_000
Z_LIMIT = 4.5


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def target():
    return rungs.make_target()


def functions(x: np.ndarray) -> np.ndarray:
    a, b = x[:, 0], x[:, 1]
    tests = [a, b, a**2, b**2, a * b, a < rungs.WALL + 0.2, a + b < rungs.EDGE + 0.2]
    return np.stack(tests, 1).astype(float)


def check_invariance(target, kernel: AbstractKernel, name: str, seed: int = 5) -> float:
    """Exact draws stay exact draws; the share of lanes that moved."""
    beta = rungs.RUNGS[name][1]
    before = rungs.exact_draws(beta, LANES, seed)
    states = rungs.start(target, kernel, before)
    states, info = rungs.move(target, kernel, name, states, seed, rungs.tuned(kernel))
    after = np.asarray(states.position)
    # Each lane is its own control: that is far more sensitive than comparing two samples.
    change = functions(after) - functions(before)
    spread = change.std(0)
    z = change.mean(0) / np.where(spread > 0, spread, 1.0) * np.sqrt(LANES)
    assert np.all(np.abs(z) < Z_LIMIT), z
    fresh = rungs.exact_draws(beta, LANES, seed + 1000)
    for a, b in zip(after.T, fresh.T, strict=True):
        assert stats.ks_2samp(a, b).pvalue > 1e-5
    assert np.all((info.accept >= 0) & (info.accept <= 1)) and not np.any(info.invalid)
    return float(np.mean(np.any(after != before, axis=1)))


@rows("kernel", KERNELS)
@pytest.mark.parametrize("name", rungs.RUNGS)
def test_a_kernel_leaves_its_rung_invariant(kernel, name, target):
    moved = check_invariance(target, kernel, name)
    assert moved > 0.1, "a kernel that stays where it is obeys any law"


@rows("kernel", KERNELS)
def test_cached_scalars_and_gradients_are_those_of_the_position(kernel):
    """At lanes that moved and lanes that did not."""
    target = rungs.make_target()
    states = rungs.start(target, kernel, rungs.exact_draws(0.6, LANES, 2))
    moved, _ = rungs.move(target, kernel, "middle", states, 3, rungs.tuned(kernel))
    again = rungs.start(target, kernel, np.asarray(moved.position))
    assert not np.array_equal(moved.position, states.position)
    assert (moved.grads is not None) == kernel.gradient_based
    for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@rows("kernel", KERNELS)
def test_a_move_calls_the_model_as_often_as_announced(kernel):
    target = rungs.make_target(counting=True)
    states = rungs.start(target, kernel, np.zeros((32, 2)))
    costs = set()
    for accept in (0.05, 0.3, 0.9):
        draws = np.random.default_rng(0).normal(size=(100, 2))
        params = kernel.tune(kernel.init(2, 1), np.array([accept]), np.zeros(1), [draws])
        costs.add(kernel.evaluations(params))
        rungs.calls.calls = rungs.f_calls.calls = 0
        rungs.move(target, kernel, "middle", states, 0, params)
        assert rungs.calls.calls == rungs.f_calls.calls == 32 * kernel.evaluations(params)
    assert len(costs) > 1 or not isinstance(kernel, HMC), "trajectories of several lengths"


@rows("kernel", KERNELS)
def test_tuning_moves_acceptance_towards_its_target(kernel, target):
    """From steps ten times too long or too short; a user's own step stays as it is."""
    if getattr(kernel, "fixed", False):
        return
    wanted = getattr(kernel, "acceptance", None) or 0.3
    positions = rungs.exact_draws(0.6, LANES, 7)
    states = rungs.start(target, kernel, positions)
    for factor in (0.1, 10.0):
        params = kernel.init(2, 1)
        params = params._replace(step_size=params.step_size * factor)
        seen = []
        for seed in range(6):
            _, info = rungs.move(target, kernel, "middle", states, seed, params)
            seen.append(float(info.accept.mean()))
            params = kernel.tune(
                params, np.array(seen[-1:]), np.zeros(1), [positions - positions.mean(0)]
            )
        # Walls cost acceptance that no step can win back; a longest step may be reached.
        assert abs(seen[-1] - wanted) < 0.15 or seen[-1] > wanted
        assert abs(seen[-1] - wanted) <= abs(seen[0] - wanted) + 0.02


@rows("kernel", KERNELS)
def test_parameters_have_a_lane_axis_and_survive_tuning(kernel):
    params = kernel.init(2, 3)
    draws = [rungs.exact_draws(0.6, 200, seed) for seed in range(3)]
    tuned = kernel.tune(params, np.array([0.2, 0.5, 0.9]), np.zeros(3), draws)
    searched = kernel.search(params, np.array([0.2, 0.2, 0.2]))
    for one in (params, tuned, searched):
        for a, b in zip(one, params, strict=True):
            assert isinstance(a, np.ndarray) and a.shape == b.shape and len(a) == 3
            assert np.all(np.isfinite(a))
    assert kernel.evaluations(searched) == kernel.evaluations(params), "search keeps the cost"


class Tempered(AbstractKernel):
    """A random walk that gets its density wrong by a power: the laws must notice."""

    gradient_based: ClassVar[bool] = False
    walk: RandomWalk = RandomWalk()
    power: float = 0.6
    stale: bool = eqx.field(default=False)

    def init(self, dimension: int, lanes: int) -> Any:
        return self.walk.init(dimension, lanes)

    def evaluations(self, params: Any) -> int:
        return self.walk.evaluations(params)

    def patience(self, dimension: int) -> float:
        return 1.0

    def step(self, key, state, target, log_density, params, evaluations):
        new, info = self.walk.step(
            key, state, target, lambda s: self.power * log_density(s), params, evaluations
        )
        return (new._replace(scalars=state.scalars) if self.stale else new), info

    def search(self, params, accept):
        return params

    def tune(self, params, accept, outside, positions):
        return self.walk.tune(params, accept, outside, positions)


@pytest.mark.parametrize("name", rungs.RUNGS)
def test_the_law_of_invariance_notices_a_wrong_density(name, target):
    with pytest.raises(AssertionError):
        check_invariance(target, Tempered(), name)
    check_invariance(target, Tempered(power=1.0), name)


def test_the_law_of_cached_scalars_notices_stale_ones():
    with pytest.raises(AssertionError):
        test_cached_scalars_and_gradients_are_those_of_the_position(Tempered(stale=True))


@rows("kernel", KERNELS)
def test_a_nan_model_is_rejected_counted_and_located(kernel):
    target = rungs.make_target(counting=True)
    states = rungs.start(target, kernel, np.full((32, 2), 0.5))
    params = kernel.init(2, 1)
    wide = params._replace(factor=3.0 * params.factor)
    moved, info = rungs.move(target, kernel, "posterior", states, 0, wide)
    assert np.all(np.asarray(moved.position)[:, 0] <= 1.0)
    bad = np.asarray(info.invalid) > 0
    assert bad.any() and not bad.all()
    assert np.all(np.asarray(info.where)[bad, 0] > 1.0)
