"""Exchange leaves the joint density of all rungs alone and calls no model."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rungs

from tabi.draws import LegSpec
from tabi.engine import Ladder, Specification
from tabi.engine.program import Lanes, Segment, Start
from tabi.kernels import AbstractKernel, Info
from tabi.paths import GeometricPath
from tabi.runtime.keys import as_key, streams
from tabi.runtime.precision import precision

LADDERS = 6000
BETAS = np.array([0.0, 0.2, 0.5, 1.0])


class Still(AbstractKernel):
    """Moves nothing, so that exchange is alone."""

    gradient_based: ClassVar[bool] = False

    def init(self, dimension, lanes):
        return np.zeros(lanes)

    def evaluations(self, params):
        return 1

    def patience(self, dimension):
        return 1.0

    def step(self, key, state, target, log_density, params, evaluations):
        zero = jnp.zeros((), state.position.dtype)
        return state, Info(zero, jnp.zeros((), jnp.int32), jnp.zeros_like(state.position))

    def search(self, params, accept):
        return params

    def tune(self, params, accept, outside, positions):
        return params


def make_lanes(ladder, partners):
    return Lanes(
        beta=BETAS,
        path=ladder.path_index([GeometricPath()]),
        component=ladder.component,
        partners=partners.astype(np.int32),
        params=np.zeros(4),
    )


def make_segment(keys, states, replica, lanes, turn, sweeps):
    one = np.int32(1)
    return Segment(
        keys=keys,
        state=states,
        replica=replica,
        lanes=lanes,
        evaluations=one,
        first=np.int32(turn),
        sweeps=np.int32(sweeps),
        spacing=one,
    )


@pytest.fixture(scope="module")
def before():
    """Independent exact draws of every rung, [ladder, rung, coordinate]."""
    draws = [rungs.exact_draws(beta, LADDERS, 10 + i) for i, beta in enumerate(BETAS)]
    return np.stack(draws, 1)


@pytest.fixture(scope="module")
def swap(before):
    """One turn, and what it leaves: positions [ladder, rung, coordinate] and replicas."""
    target = rungs.make_target()
    specification = Specification(target, Still(), (GeometricPath(),), turns=1, length=2, slots=2)
    ladder = Ladder.build([LegSpec(GeometricPath(), 1)], [BETAS])
    with precision(target.dtype):
        states = jax.vmap(lambda z: specification.start(Start(z)))(jnp.asarray(before))
        program = jax.jit(specification.run)

    def run(turn, exchange=True, seed=0):
        partners = ladder.partners if exchange else np.tile(np.arange(4), (2, 1))
        lanes = make_lanes(ladder, partners)
        replica = np.tile(np.arange(4, dtype=np.int32), (LADDERS, 1))
        keys = streams(as_key(seed), LADDERS)
        with precision(target.dtype):
            task = make_segment(keys, states, replica, lanes, turn, sweeps=1)
            return jax.tree.map(np.asarray, program(task))

    return run


def statistics(x):
    a, b = x[..., 0], x[..., 1]
    return np.stack([a, b, a**2, b**2, a * b, a + b < rungs.EDGE + 0.5], -1).astype(float)


@pytest.mark.parametrize("turn", [0, 1])
def test_exchange_leaves_the_joint_density_invariant(swap, before, turn):
    after = swap(turn, seed=turn + 1).state.position
    change = statistics(after) - statistics(before)
    z = change.mean(0) / np.maximum(change.std(0), 1e-12) * np.sqrt(LADDERS)
    assert np.all(np.abs(z) < 4.5), z
    # Rungs that were independent still are, those that exchanged too.
    for i in range(3):
        for s, t in zip(statistics(after)[:, i].T, statistics(after)[:, i + 1].T, strict=True):
            assert abs(np.corrcoef(s, t)[0, 1]) * np.sqrt(LADDERS) < 4.5


@pytest.mark.parametrize("turn", [0, 1])
def test_whole_states_are_exchanged_between_neighbours_of_the_turn(swap, before, turn):
    record = swap(turn)
    assert set(record.replica.ravel()) == {0, 1, 2, 3}
    allowed = [{0, 1}, {0, 1}, {2, 3}, {2, 3}] if turn == 0 else [{0}, {1, 2}, {1, 2}, {3}]
    for rung, places in enumerate(allowed):
        assert set(record.replica[:, rung]) == places
    ladder = np.arange(LADDERS)[:, None]
    np.testing.assert_array_equal(record.state.position, before[ladder, record.replica])
    with jax.enable_x64(True):
        again = rungs.start(rungs.make_target(), Still(), record.state.position.reshape(-1, 2))
    np.testing.assert_allclose(
        record.state.scalars.log_pi.ravel(), again.scalars.log_pi, rtol=1e-12
    )
    # A state with f = 0 never leaves the posterior.
    assert np.all(record.state.scalars.sign_f[:, 1:, 1] == 1)
    assert np.any(record.state.scalars.sign_f[:, 0, 1] == 0)


def test_exchanges_are_accepted_as_often_as_the_two_densities_allow(swap, before):
    """The exact Metropolis probability, averaged over the same pairs."""
    record = swap(1, seed=9)
    x, y = before[:, 1], before[:, 2]
    log_f = [-0.4 * (p[:, 1] - 1.0) ** 2 for p in (x, y)]
    probability = np.minimum(1, np.exp((BETAS[2] - BETAS[1]) * (log_f[0] - log_f[1])))
    exchanged = record.replica[:, 1] == 2
    z = (exchanged - probability).sum() / np.sqrt((probability * (1 - probability)).sum())
    assert abs(z) < 4.5 and 0.2 < exchanged.mean() < 0.99


def test_without_exchange_nobody_moves(swap, before):
    record = swap(0, exchange=False)
    np.testing.assert_array_equal(record.state.position, before)


def test_exchange_calls_no_model():
    """A kernel that makes no calls leaves none at all."""
    target = rungs.make_target(counting=True)
    specification = Specification(target, Still(), (GeometricPath(),), turns=1, length=2, slots=2)
    ladder = Ladder.build([LegSpec(GeometricPath(), 1)], [BETAS])
    lanes = make_lanes(ladder, ladder.partners)
    with precision(target.dtype):
        states = jax.vmap(lambda z: specification.start(Start(z)))(jnp.full((2, 4, 2), 0.5))
        jax.block_until_ready(states)
        rungs.calls.calls = rungs.f_calls.calls = 0
        replica = np.zeros((2, 4), np.int32)
        task = make_segment(streams(as_key(0), 2), states, replica, lanes, turn=0, sweeps=2)
        jax.block_until_ready(jax.jit(specification.run)(task))
    assert rungs.calls.calls == rungs.f_calls.calls == 0
