"""Posterior and f together: the only place that calls the user's model."""

import dataclasses
import re
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jax.flatten_util import ravel_pytree

from tabi.posterior import Posterior
from tabi.runtime.compiled import lower
from tabi.state import Scalars
from tabi.transforms import BoxTransform, box


class SignedLog(NamedTuple):
    """What f may return with `log=True` when it takes both signs: f = sign * exp(log_abs)."""

    sign: Any
    log_abs: Any


class One(eqx.Module):
    """f = 1 on the log scale: with a level, E f is a probability."""

    def __call__(self, *arguments: Any) -> float:
        return 0.0


class AbstractBase(eqx.Module):
    """A density that a leg may start at: the prior, or a reference.

    Its arrays travel to the compiled loop with every task, so that other numbers (a reference
    fitted to other draws) need no other program.
    """

    @abstractmethod
    def log_density(self, target: "Target", z: jax.Array) -> jax.Array:
        """log density at a flat vector of the sampling space."""


@dataclass(frozen=True, eq=False)
class Target:
    """The model as the samplers see it: a flat unconstrained vector in, `Scalars` out.

    Attributes
    ----------
    posterior, f, log, level
        What the user brought; with a level the question is E[f 1(level > 0)].
    f_shape
        Shape of f's value; its components are `Scalars`' trailing axis.
    size
        Dimension of the sampling space.
    unravel
        Flat vector -> position in the user's structure.
    transform
        Unconstrained -> bounded coordinates.
    dtype
        Of all arithmetic inside the sampling loop.
    levels
        Length of the level's trailing axis in `Scalars`: 1 where all components share it.
    bases
        Base densities that legs read; bound inside the compiled loop (see `bind`).
    lane_by_lane
        Whether lanes call the model one after the other, not as one batch (see `_factorises`).
    """

    posterior: Posterior
    f: Callable[..., Any]
    log: bool
    f_shape: tuple[int, ...]
    size: int
    unravel: Callable[..., Any]
    transform: BoxTransform
    dtype: np.dtype
    level: Callable[..., Any] | None = None
    levels: int = 0
    bases: tuple[AbstractBase, ...] = ()
    lane_by_lane: bool = False

    def bind(self, bases: tuple[AbstractBase, ...]) -> "Target":
        """The same target with these base densities."""
        return dataclasses.replace(self, bases=bases)

    @property
    def components(self) -> int:
        """Number of components of f."""
        return int(np.prod(self.f_shape, dtype=int))

    def position(self, z: jax.Array) -> Any:
        """The position in the user's space and structure of a flat unconstrained vector."""
        return self.unravel(self.transform.forward(z)[0])

    def scalars(self, z: jax.Array) -> Scalars:
        """Evaluate the model once."""
        return self._in_lanes(Target._scalars, z)

    def scalars_and_grads(self, z: jax.Array) -> tuple[Scalars, Scalars]:
        """Evaluate the model once, with one gradient row for each scalar."""
        return self._in_lanes(Target._scalars_and_grads, z)

    def _in_lanes(self, evaluate: Callable[["Target", jax.Array], Any], z: jax.Array) -> Any:
        if not self.lane_by_lane:
            return evaluate(self, z)
        # Under vmap this is a loop; what is batched or traced must come in as an argument.
        one = sequential_vmap(lambda bases, z: evaluate(self.bind(bases), z))
        return one(self.bases, z)

    def _scalars(self, z: jax.Array) -> Scalars:
        (log_pi, log_base), aux = self._log_densities(z)
        (log_abs_f, level), sign_f = self._functions(z, aux)
        return Scalars(log_pi, log_abs_f, sign_f, log_base, level)

    def _scalars_and_grads(self, z: jax.Array) -> tuple[Scalars, Scalars]:
        """Gradients beside the scalars.

        The density and f are differentiated apart, so that f's rows cost no pass through the
        model; only with `has_aux`, where f reads the simulator's output, they must.
        """
        if self.posterior.has_aux:
            return self._joint_gradients(z)
        densities, pull, aux = jax.vjp(self._log_densities, z, has_aux=True)
        grads = _rows(pull, densities)
        values, pull, sign_f = jax.vjp(lambda z: self._functions(z, aux), z, has_aux=True)
        return _with_rows((densities, grads), (values, _rows(pull, values)), sign_f)

    def _joint_gradients(self, z: jax.Array) -> tuple[Scalars, Scalars]:
        def logs(z: jax.Array) -> Any:
            s = self._scalars(z)
            return ((s.log_pi, s.log_base), (s.log_abs_f, s.level)), s.sign_f

        values, pull, sign_f = jax.vjp(logs, z, has_aux=True)
        grads = _rows(pull, values)
        return _with_rows((values[0], grads[0]), (values[1], grads[1]), sign_f)

    def _log_densities(self, z: jax.Array) -> tuple[tuple[jax.Array, Any], Any]:
        x, log_det = self.transform.forward(z)
        position = self.unravel(x)
        log_pi = self.posterior.log_density(position)
        log_pi, aux = log_pi if self.posterior.has_aux else (log_pi, None)
        log_pi = jnp.asarray(log_pi, self.dtype) + log_det
        log_base = None
        if self.bases:
            logs = [jnp.asarray(base.log_density(self, z), self.dtype) for base in self.bases]
            log_base = jnp.stack(logs)
        return (log_pi, log_base), aux

    def _functions(self, z: jax.Array, aux: Any) -> tuple[tuple[jax.Array, Any], jax.Array]:
        """log|f| and the level, and the sign of f, which is 0 where the level is not positive."""
        arguments = (self.position(z), *((aux,) if self.posterior.has_aux else ()))
        log_abs, sign = self._log_f(arguments)
        if self.level is None:
            return (log_abs, None), sign
        value = jnp.asarray(self.level(*arguments), self.dtype)
        level = jnp.ravel(value if value.shape == () else jnp.broadcast_to(value, self.f_shape))
        inside = level > 0
        return (jnp.where(inside, log_abs, -jnp.inf), level), jnp.where(inside, sign, 0)

    def _log_f(self, arguments: tuple[Any, ...]) -> tuple[jax.Array, jax.Array]:
        value = self.f(*arguments)
        if self.log:
            log_abs, sign = _signed_log(value)
        else:
            value = jnp.asarray(value, self.dtype)
            sign = jnp.sign(value)
            # The inner where keeps log(0) away from the gradient, which it would turn into NaN.
            nonzero = jnp.where(value == 0, 1, value)
            log_abs = jnp.where(value == 0, -jnp.inf, jnp.log(jnp.abs(nonzero)))
        log_abs, sign = (
            jnp.ravel(jnp.broadcast_to(jnp.asarray(a, self.dtype), self.f_shape))
            for a in (log_abs, sign)
        )
        # f = inf has no finite expectation to offer: it is as invalid as NaN.
        log_abs = jnp.where(jnp.isposinf(log_abs), jnp.nan, log_abs)
        log_abs = jnp.where(sign == 0, -jnp.inf, log_abs)
        return log_abs, jnp.where(jnp.isneginf(log_abs), 0, sign)


def _signed_log(value: Any) -> tuple[jax.Array, Any]:
    if isinstance(value, SignedLog):
        return jnp.asarray(value.log_abs), jnp.sign(jnp.asarray(value.sign))
    return jnp.asarray(value), jnp.ones(())


def _rows(pull: Callable[..., Any], values: Any) -> Any:
    """Gradient of every number in `values`, each with a trailing position axis."""
    leaves, structure = jax.tree.flatten(values)
    rows = []
    for i, leaf in enumerate(leaves):
        zeros = [jnp.zeros_like(other) for other in leaves]

        def one(cotangent: jax.Array, i: int = i, zeros: list[jax.Array] = zeros) -> jax.Array:
            return pull(jax.tree.unflatten(structure, [*zeros[:i], cotangent, *zeros[i + 1 :]]))[0]

        basis = jnp.eye(leaf.size, dtype=leaf.dtype).reshape((leaf.size, *leaf.shape))
        # One row is the common case; without vmap its cotangent stays a constant that XLA folds.
        row = one(basis[0])[None] if leaf.size == 1 else jax.vmap(one)(basis)
        rows.append(row.reshape((*leaf.shape, -1)))
    return jax.tree.unflatten(structure, rows)


def _with_rows(
    densities: tuple[Any, Any], functions: tuple[Any, Any], sign_f: jax.Array
) -> tuple[Scalars, Scalars]:
    """(log pi, log base) and (log|f|, level), each with its gradients, as scalars and rows."""
    scalars, grads = (
        Scalars(log_pi, log_abs_f, sign_f, log_base, level)
        for (log_pi, log_base), (log_abs_f, level) in zip(densities, functions, strict=True)
    )
    return scalars, _tidy(scalars, grads)


def _tidy(scalars: Scalars, grads: Scalars) -> Scalars:
    """Zero gradients where a scalar is not finite: there is no slope to follow."""

    def clean(value: Any, row: Any) -> Any:
        if value is None:
            return None
        return jnp.where(jnp.isfinite(value)[..., None] & jnp.isfinite(row), row, 0)

    return Scalars(
        clean(scalars.log_pi, grads.log_pi),
        clean(scalars.log_abs_f, grads.log_abs_f),
        grads.sign_f,
        clean(scalars.log_base, grads.log_base),
        clean(scalars.level, grads.level),
    )


def build_target(
    posterior: Posterior,
    f: Callable[..., Any],
    position: Any,
    *,
    log: bool,
    level: Callable[..., Any] | None = None,
) -> Target:
    """Check f, the level and the density by shape alone (no model call) and make the `Target`.

    Must run where the wanted precision is enabled (see `tabi.runtime.precision`).
    """
    if not callable(f):
        raise TypeError(f"f must be a function of one position, got {type(f).__name__}")
    dtype = resolve_dtype(posterior)
    position = as_floats(position, dtype)
    flat, unravel = ravel_pytree(position)
    if flat.size == 0:
        raise ValueError("the start position has no coordinates; give at least one number")
    transform = box(posterior.bounds, position, flat.size)
    aux = _check_density(posterior, position)
    arguments = (position, aux) if posterior.has_aux else (position,)
    shape, levels = _check_f(f, arguments, log), 0
    if level is not None:
        shape, levels = _check_level(level, arguments, shape)
    target = Target(
        *(posterior, f, log, shape, flat.size, unravel, transform, dtype), level, levels
    )
    return dataclasses.replace(target, lane_by_lane=_factorises(target))


# Its first operand has three dimensions or more.
_BATCHED_LAPACK = re.compile(r"@lapack_.*: \(tensor<\d+x\d+x\d+x")


def _factorises(target: Target) -> bool:
    """Whether a batch of positions makes LAPACK calls on batches of matrices (Cholesky, solve...).

    XLA shares such a batch out to its thread pool and waits for it there: two programs at once, or
    one with several factorisations, can wait for each other forever on a pool of a few threads,
    and on a large one it takes a thousand times as long (jaxlib 0.10.2). One matrix at a time does
    neither, and on several workers nothing is lost.
    """
    if jax.default_backend() != "cpu":
        return False
    two = jax.ShapeDtypeStruct((2, target.size), target.dtype)
    return _BATCHED_LAPACK.search(lower(jax.vmap(target.scalars), two).as_text()) is not None


def resolve_dtype(posterior: Posterior) -> np.dtype:
    """float64 on a CPU, float32 on an accelerator, unless the posterior says otherwise."""
    default = "float64" if jax.default_backend() == "cpu" else "float32"
    return np.dtype(posterior.dtype or default)


def as_floats(position: Any, dtype: np.dtype) -> Any:
    """A position with all leaves real floating-point arrays."""

    def convert(leaf: Any) -> jax.Array:
        array = np.asarray(leaf)
        if array.dtype.kind not in "fiub" and str(array.dtype) != "bfloat16":
            raise TypeError(
                f"a position must be made of real numbers, got a leaf of dtype {array.dtype}; "
                "give init as an array or pytree of arrays of floats"
            )
        return jnp.asarray(array, dtype)

    return jax.tree.map(convert, position)


def _check_density(posterior: Posterior, position: Any) -> Any:
    out = jax.eval_shape(posterior.log_density, position)
    if posterior.has_aux:
        if not (isinstance(out, tuple) and len(out) == 2):
            raise ValueError(
                "with has_aux=True the density must return (log density, aux), "
                f"got {_describe(out)}"
            )
        out, aux = out
    else:
        aux = None
    if not hasattr(out, "shape") or out.shape != () or out.dtype.kind not in "fiu":
        raise ValueError(
            f"log_density must return one real number, got {_describe(out)}; it is called with "
            "one unbatched position"
            + ("" if posterior.has_aux else " (has_aux=True if it returns more)")
        )
    return aux


def _check_f(f: Callable[..., Any], arguments: tuple[Any, ...], log: bool) -> tuple[int, ...]:
    out = jax.eval_shape(f, *arguments)
    if isinstance(out, SignedLog):
        if not log:
            raise ValueError("f returned SignedLog; call expect(..., log=True)")
        shapes = {np.shape(out.sign), np.shape(out.log_abs)}
        if len(shapes) > 1:
            raise ValueError(f"SignedLog's sign and log_abs must have one shape, got {shapes}")
        if out.sign.dtype.kind not in "fiu":
            raise TypeError(f"SignedLog's sign must be -1, 0 or 1, got dtype {out.sign.dtype}")
        out = out.log_abs
    if not hasattr(out, "shape"):
        raise TypeError(
            f"f must return a real number or array, got {_describe(out)}; stack what you want "
            "to know into one array"
        )
    if out.dtype == bool:
        raise TypeError(
            "f returned booleans: an indicator defeats a ladder in f; use tabi.probability(level) "
            "with a level that is positive where the event happens"
        )
    if out.dtype.kind not in "fiu":
        raise TypeError(f"f must be real, got dtype {out.dtype}; take the real part or modulus")
    if 0 in out.shape:
        raise ValueError(f"f must have at least one component, got shape {out.shape}")
    return tuple(out.shape)


def _check_level(
    level: Callable[..., Any], arguments: tuple[Any, ...], f_shape: tuple[int, ...]
) -> tuple[tuple[int, ...], int]:
    """The shape of the answer and how many numbers the level has."""
    if not callable(level):
        raise TypeError(f"level must be a function of one position, got {type(level).__name__}")
    out = jax.eval_shape(level, *arguments)
    if not hasattr(out, "shape") or out.dtype == bool or out.dtype.kind not in "fiu":
        raise TypeError(
            f"a level must be a real number that grows towards the event and is positive where it "
            f"happens, got {_describe(out)}; for x > 3 give the level x - 3"
        )
    try:
        shape = np.broadcast_shapes(f_shape, out.shape)
    except ValueError:
        raise ValueError(
            f"f has shape {f_shape} and the level {out.shape}, which do not broadcast; give one "
            "level for all of f or one for each component"
        ) from None
    if 0 in shape:
        raise ValueError(f"a level must have at least one component, got shape {out.shape}")
    return shape, 1 if out.shape == () else int(np.prod(shape))


def _describe(out: Any) -> str:
    return str(
        jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}" if hasattr(a, "shape") else a, out)
    )
