"""A rung with exact draws: a hard wall, a region where f = 0, correlated and badly scaled."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from models import Counter

import tabi
from tabi.kernels import AbstractKernel, Info
from tabi.kernels.base import evaluate
from tabi.paths import AbstractPath, GeometricPath, Restricted
from tabi.runtime.compiled import static_key
from tabi.state import ChainState, Scalars
from tabi.target import Target, build_target

COVARIANCE = np.array([[1.0, 1.2], [1.2, 4.0]])
PRECISION = np.linalg.inv(COVARIANCE)
WALL, EDGE = -1.2, 0.2

calls, f_calls = Counter(), Counter()
counted, f_counted = calls.tick(), f_calls.tick()


def log_density(x):
    return jnp.where(x[0] > WALL, -0.5 * x @ jnp.asarray(PRECISION) @ x, -jnp.inf)


def f(x):
    """Two components, of which the rungs read the second."""
    value = jnp.where(x[0] + x[1] > EDGE, jnp.exp(-0.4 * (x[1] - 1.0) ** 2), 0.0)
    return jnp.stack([jnp.exp(x[0]), value])


def nan_log_density(x):
    """Counted, and NaN beyond 1."""
    return counted(jnp.where(x[0] > 1.0, jnp.nan, -0.5 * x @ x))


def counted_f(x):
    return f(x) * f_counted(1.0 + 0.0 * x[0])


# Rungs: the full posterior, the middle of the path, the end of a path from restricted draws.
PATHS: tuple[AbstractPath, ...] = (GeometricPath(), GeometricPath(Restricted()))
RUNGS: dict[str, tuple[int, float]] = {"posterior": (0, 0.0), "middle": (0, 0.6), "end": (1, 1.0)}


@functools.cache
def make_target(counting: bool = False) -> Target:
    density, function = (nan_log_density, counted_f) if counting else (log_density, f)
    posterior = tabi.Posterior(density, np.array([1.0, 1.0]))
    with jax.enable_x64(True):
        return build_target(posterior, function, posterior.init, log=False)


def exact_draws(beta: float, count: int, seed: int) -> np.ndarray:
    """Gaussian draws, kept within the wall and with probability f^beta <= 1."""
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(2), COVARIANCE, 8 * count)
    keep = x[:, 0] > WALL
    if beta > 0:
        kept = np.exp(-0.4 * beta * (x[:, 1] - 1.0) ** 2)
        keep &= (x.sum(1) > EDGE) & (rng.uniform(size=len(x)) < kept)
    x = x[keep]
    assert len(x) >= count
    return x[:count]


@functools.cache
def _evaluate(target: Target, with_gradient: bool) -> Any:
    return jax.jit(jax.vmap(lambda z: evaluate(target, z, with_gradient)))


def start(target: Target, kernel: AbstractKernel, positions: np.ndarray) -> ChainState:
    found = _evaluate(target, kernel.gradient_based)(jnp.asarray(positions))
    return jax.block_until_ready(found)


def tuned(kernel: AbstractKernel) -> Any:
    """Parameters of one lane, of a rung that needs several steps; scales from draws."""
    return kernel.tune(kernel.init(2, 1), np.array([0.5]), np.zeros(1), [exact_draws(0.6, 500, 99)])


_LANES: dict[Any, Any] = {}


def _lanes(target: Target, kernel: AbstractKernel) -> Any:
    """One program for all rungs of a kernel."""

    def step(key: Any, state: Any, params: Any, path: Any, beta: Any, count: Any) -> Any:
        def density(scalars: Scalars) -> jax.Array:
            one = scalars.component(1)
            return jnp.stack([p.log_density(one, beta) for p in PATHS])[path]

        return kernel.step(key, state, target, density, params, count)

    key = (target, static_key(kernel))
    if key not in _LANES:
        _LANES[key] = jax.jit(jax.vmap(step, (0, 0, None, None, None, None)))
    return _LANES[key]


def move(
    target: Target,
    kernel: AbstractKernel,
    rung: str,
    states: ChainState,
    seed: int,
    params: Any,
) -> tuple[ChainState, Info]:
    """Every lane moves once, all with the same parameters and their own random numbers."""
    path, beta = RUNGS[rung]
    one_lane = jax.tree.map(lambda a: jnp.asarray(a[0]), params)
    keys = jax.random.split(jax.random.key(seed), states.position.shape[0])
    count = jnp.int32(kernel.evaluations(params))
    moved = _lanes(target, kernel)(keys, states, one_lane, path, beta, count)
    return jax.block_until_ready(moved)
