"""The questions a user asks: `expect`, `probability` and `log_evidence`."""

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from tabi.methods import GTI, AbstractMethod, PowerPosterior, Question
from tabi.posterior import Posterior
from tabi.result import Result
from tabi.runtime.compiled import static_key
from tabi.runtime.keys import Key, as_key, stream, to_jax
from tabi.runtime.precision import precision
from tabi.runtime.progress import Progress, resolve_progress
from tabi.target import One, Target, as_floats, build_target, resolve_dtype

# Share of NaN proposals that stops a run.
FATAL_INVALID = 0.05


def expect(
    f: Callable[..., Any],
    posterior: Posterior,
    *,
    rel_tol: float | None = 0.05,
    abs_tol: float = 0.0,
    max_evaluations: int = 10**7,
    method: AbstractMethod | None = None,
    level: Callable[..., Any] | None = None,
    log: bool = False,
    ladders: int = 8,
    key: Any = 0,
    executor: Any = None,
    progress: bool | Progress = True,
    nan: str = "reject",
) -> Result:
    """E[f(x)] under a posterior, to the accuracy asked for.

    Parameters
    ----------
    f
        JAX function of one position (and the density's aux, with `has_aux`) that returns a real
        number or array.
    posterior
        The model.
    rel_tol, abs_tol
        A component is done when stderr <= max(rel_tol |value|, abs_tol). `rel_tol=None` with
        `abs_tol=0` spends the budget.
    max_evaluations
        Model calls, never exceeded, warm-up included.
    method
        A `tabi.GTI(...)`, `tabi.TATI(...)` or another method; None takes `GTI()`.
    level
        JAX function of the same arguments as f, positive where f counts: the answer is
        E[f 1(level > 0)], found even where no posterior draw has a positive level. One number, or
        one for each component of f. For f = max(0, g) give g for both.
    log
        f returns log f, -inf where f = 0, or `tabi.SignedLog(sign, log_abs)`.
    ladders
        Independent ladders; their spread is a check on the error bar.
    key
        An integer or a JAX key; the same key gives the same bits.
    executor
        None for one thread per core, any `concurrent.futures.Executor`, a Dask `Client`, or a
        function without arguments that makes one. Worker processes get one XLA thread each,
        unless NPROC is set; on many cores they make more of cheap models than threads do.
    progress
        True shows a bar in a terminal; an object with `update` and `close` receives the news.
    nan
        "reject" counts proposals at which the model is NaN and stops when they are too many;
        "raise" stops at the first.

    Returns
    -------
    Result
        The value with its error bar, in arrays of f's shape.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import tabi
    >>> posterior = tabi.Posterior(lambda x: -0.5 * jnp.sum(x**2), init=jnp.zeros(2))
    >>> result = tabi.expect(lambda x: jnp.exp(3 * x[0]), posterior, progress=False)
    >>> bool(abs(result.log_value - 4.5) < 0.25)
    True
    """
    _check_arguments(posterior, rel_tol, abs_tol, max_evaluations, method, ladders, nan)
    shown = resolve_progress(progress)
    try:
        question = ask(
            f,
            posterior,
            rel_tol=rel_tol,
            abs_tol=abs_tol,
            max_evaluations=max_evaluations,
            level=level,
            log=log,
            ladders=ladders,
            key=key,
            executor=executor,
            progress=shown,
            nan=nan,
        )
        return (GTI() if method is None else method).run(question)
    finally:
        shown.close()


def probability(
    level: Callable[..., Any],
    posterior: Posterior,
    *,
    rel_tol: float | None = 0.05,
    abs_tol: float = 0.0,
    max_evaluations: int = 10**7,
    method: AbstractMethod | None = None,
    ladders: int = 8,
    key: Any = 0,
    executor: Any = None,
    progress: bool | Progress = True,
    nan: str = "reject",
) -> Result:
    """P(level(x) > 0) under a posterior, however small.

    Parameters
    ----------
    level
        JAX function of one position that grows towards the event and is positive where it happens:
        for x > 3 the level x - 3. Its scale does not matter; but where it is the largest of several
        levels, give these in like units (each divided by its posterior standard deviation, say), or
        the steep ones look far away and are missed. A vector of levels gives a vector of
        probabilities.
    posterior, rel_tol, abs_tol, max_evaluations, method, ladders, key, executor, progress, nan
        As in `expect`.

    Returns
    -------
    Result
        The probability with its error bar, in arrays of the level's shape.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import tabi
    >>> posterior = tabi.Posterior(lambda x: -0.5 * jnp.sum(x**2), init=jnp.zeros(2))
    >>> result = tabi.probability(lambda x: x[0] - 5.0, posterior, progress=False)
    >>> bool(abs(result.log_value + 15.065) < 0.25)  # 2.87e-7
    True
    """
    if not callable(level):
        raise TypeError(f"level must be a function of one position, got {type(level).__name__}")
    return expect(
        One(),
        posterior,
        level=level,
        log=True,
        rel_tol=rel_tol,
        abs_tol=abs_tol,
        max_evaluations=max_evaluations,
        method=method,
        ladders=ladders,
        key=key,
        executor=executor,
        progress=progress,
        nan=nan,
    )


def log_evidence(
    posterior: Posterior,
    *,
    rel_tol: float | None = 0.05,
    max_evaluations: int = 10**7,
    method: AbstractMethod | None = None,
    ladders: int = 8,
    key: Any = 0,
    executor: Any = None,
    progress: bool | Progress = True,
    nan: str = "reject",
) -> Result:
    """log Z of a posterior, the log of the prior's expectation of the likelihood.

    Parameters
    ----------
    posterior
        From `Posterior.from_parts`, with a prior that integrates to one: a constant left out of
        the prior or of the likelihood is missing from log Z.
    rel_tol
        Accuracy of Z, so very nearly the absolute accuracy of log Z. None spends the budget.
    method
        A `tabi.PowerPosterior(...)` or another method; None takes `PowerPosterior()`.
    max_evaluations, ladders, key, executor, progress, nan
        As in `expect`.

    Returns
    -------
    Result
        `log_value` is log Z and `log_stderr` its standard error; `value` is Z, where it does not
        underflow.

    Examples
    --------
    >>> import jax
    >>> import tabi
    >>> posterior = tabi.Posterior.from_parts(
    ...     jax.scipy.stats.norm.logpdf,
    ...     lambda x: jax.scipy.stats.norm.logpdf(2.0, loc=x),
    ...     jax.random.normal,
    ... )
    >>> result = tabi.log_evidence(posterior, progress=False)
    >>> bool(abs(result.log_value + 2.2655) < 0.2)  # log N(2 | 0, 2)
    True
    """
    _check_arguments(posterior, rel_tol, 0.0, max_evaluations, method, ladders, nan)
    if posterior.log_prior is None or posterior.log_likelihood is None:
        raise ValueError(
            "log_evidence needs to know the prior from the likelihood: make the posterior with "
            "tabi.Posterior.from_parts(log_prior, log_likelihood, sample_prior)"
        )
    shown = resolve_progress(progress)
    try:
        question = ask(
            LogLikelihood(posterior.log_likelihood, posterior.has_aux),
            prior_of(posterior),
            rel_tol=rel_tol,
            abs_tol=0.0,
            max_evaluations=max_evaluations,
            log=True,
            ladders=ladders,
            key=key,
            executor=executor,
            progress=shown,
            nan=nan,
            evidence=True,
        )
        return (PowerPosterior() if method is None else method).run(question)
    finally:
        shown.close()


@dataclass(frozen=True)
class LogLikelihood:
    """The log likelihood as log f; equal for equal parts, so that programs are compiled once."""

    log_likelihood: Callable[..., Any]
    has_aux: bool

    def __call__(self, position: Any) -> Any:
        value = self.log_likelihood(position)
        return value[0] if self.has_aux else value


def no_likelihood(position: Any) -> float:
    """The log likelihood of no data."""
    return 0.0


def prior_of(posterior: Posterior) -> Posterior:
    """The prior of a posterior from parts as a posterior of its own: E f under it is Z for f = l.

    A method that needs a prior finds it there too, with nothing to learn from.
    """
    return dataclasses.replace(
        posterior, log_density=posterior.log_prior, log_likelihood=no_likelihood, has_aux=False
    )


def ask(
    f: Callable[..., Any],
    posterior: Posterior,
    *,
    rel_tol: float | None = None,
    abs_tol: float = 0.0,
    max_evaluations: float,
    level: Callable[..., Any] | None = None,
    log: bool = False,
    ladders: int = 8,
    key: Any = 0,
    executor: Any = None,
    progress: Progress,
    nan: str = "reject",
    evidence: bool = False,
) -> Question:
    """Arguments of `expect`, checked before, as a question for a method."""
    run_key = as_key(key)
    with precision(resolve_dtype(posterior)):
        target, starts, redraw = prepare(f, posterior, log, ladders, run_key, level)
    return Question(
        target=target,
        starts=starts,
        redraw=redraw,
        rel_tol=rel_tol,
        abs_tol=abs_tol,
        max_evaluations=int(max_evaluations),
        key=stream(run_key, 1),
        executor=executor,
        notify=progress.update,
        fatal_invalid=0.0 if nan == "raise" else FATAL_INVALID,
        evidence=evidence,
    )


def _check_arguments(
    posterior: Any,
    rel_tol: Any,
    abs_tol: Any,
    max_evaluations: Any,
    method: Any,
    ladders: Any,
    nan: Any,
) -> None:
    if not isinstance(posterior, Posterior):
        raise TypeError(
            f"posterior must be a tabi.Posterior, got {type(posterior).__name__}; wrap a log "
            "density as tabi.Posterior(log_density, init)"
        )
    for name, value, allowed in (("rel_tol", rel_tol, True), ("abs_tol", abs_tol, False)):
        if value is None and allowed:
            continue
        if not isinstance(value, int | float | np.number) or not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    if rel_tol == 0 and abs_tol == 0:
        raise ValueError(
            "rel_tol=0 with abs_tol=0 can never be met; give a tolerance, or rel_tol=None to "
            "spend max_evaluations"
        )
    if (
        not isinstance(max_evaluations, int | float | np.number)
        or isinstance(max_evaluations, bool)
        or not 1 <= max_evaluations < math.inf
    ):
        raise ValueError(
            f"max_evaluations must be a positive number of model calls, got {max_evaluations!r}"
        )
    if not isinstance(ladders, int | np.integer) or ladders < 2:
        raise ValueError(
            f"ladders must be an integer of at least 2 (their spread checks the error bar), "
            f"got {ladders!r}"
        )
    if method is not None and not isinstance(method, AbstractMethod):
        raise TypeError(f"method must be an object such as tabi.GTI(), got {method!r}")
    if nan not in ("reject", "raise"):
        raise ValueError(f'nan must be "reject" or "raise", got {nan!r}')


def prepare(
    f: Callable[..., Any],
    posterior: Posterior,
    log: bool,
    ladders: int,
    key: Key,
    level: Callable[..., Any] | None = None,
) -> tuple[Target, np.ndarray, Callable[[int, int], np.ndarray] | None]:
    """The target, a start for each ladder in the sampling space, and how to draw another."""
    dtype, init = resolve_dtype(posterior), posterior.init

    def draw(ladder: int, attempt: int) -> Any:
        return as_floats(init(to_jax(stream(key, 0, ladder, attempt))), dtype)

    first = draw(0, 0) if callable(init) else as_floats(init, dtype)
    target = _cached_target(f, posterior, first, log, level)
    if not callable(init):
        return target, np.tile(sampling_position(target, first), (ladders, 1)), None

    def redraw(ladder: int, attempt: int) -> np.ndarray:
        with precision(dtype):
            return sampling_position(target, draw(ladder, attempt))

    return target, np.stack([redraw(ladder, 0) for ladder in range(ladders)]), redraw


def sampling_position(target: Target, position: Any) -> np.ndarray:
    """A user's position as a flat vector in the sampling space."""
    flat = np.asarray(ravel_pytree(position)[0], np.float64)
    if flat.shape != (target.size,):
        raise ValueError(
            f"init gave positions of {target.size} and of {flat.size} numbers; every start must "
            "have the same shape"
        )
    if not np.all(np.isfinite(flat)):
        raise ValueError(f"the start {describe(position)} is not finite")
    if np.any(target.transform.outside(flat)):
        raise ValueError(
            f"the start {describe(position)} is not strictly inside the bounds; give one that is"
        )
    return target.transform.inverse(flat)


def describe(position: Any) -> str:
    """A position as text for a message."""
    return str(jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), position))


def _cached_target(
    f: Callable[..., Any],
    posterior: Posterior,
    first: Any,
    log: bool,
    level: Callable[..., Any] | None,
) -> Target:
    """The target of these functions and shapes: made once, so that nothing is traced again."""
    leaves, structure = jax.tree.flatten(first)
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    bounds_leaves, bounds_structure = jax.tree.flatten(posterior.bounds)
    bounds = (tuple(np.asarray(b).tobytes() for b in bounds_leaves), bounds_structure)
    parts = (posterior.log_density, posterior.log_prior, posterior.sample_prior)
    density = tuple(map(static_key, parts))
    key = (
        static_key(f),
        static_key(level),
        density,
        posterior.has_aux,
        bounds,
        log,
        shapes,
        structure,
    )
    return _TARGETS(key, lambda: build_target(posterior, f, first, log=log, level=level))


class _Remembered:
    """The last few results of functions, by key."""

    def __init__(self, most: int) -> None:
        self._get = functools.lru_cache(most)(lambda entry: entry.make())

    def __call__(self, key: Any, make: Callable[[], Any]) -> Any:
        return self._get(_KeyedCall(key, make))


class _KeyedCall:
    """Equal by key alone, so that a cache never compares what makes the value."""

    def __init__(self, key: Any, make: Callable[[], Any]) -> None:
        self.key, self.make = key, make

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KeyedCall) and self.key == other.key


_TARGETS = _Remembered(32)
