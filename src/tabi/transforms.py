"""Bounded coordinates <-> unconstrained ones, so that samplers never meet a wall."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, eq=False)
class BoxTransform:
    """Coordinate-wise map from R^D into (lower, upper), bounds -inf or inf where there is none.

    Both bounds: x = lower + (upper - lower) sigmoid(z); one bound: x = bound +- exp(z);
    none: x = z. NumPyro has these maps too, as an optional dependency; here they act on one
    flat vector with a static kind per coordinate.
    """

    lower: np.ndarray
    upper: np.ndarray

    @property
    def is_identity(self) -> bool:
        return bool(np.all(np.isinf(self.lower)) and np.all(np.isinf(self.upper)))

    def forward(self, z: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Position in the user's space and log |det dx/dz|."""
        if self.is_identity:
            return z, jnp.zeros((), z.dtype)
        has_lower, has_upper = np.isfinite(self.lower), np.isfinite(self.upper)
        both = has_lower & has_upper
        lower = jnp.asarray(np.where(has_lower, self.lower, 0.0), z.dtype)
        upper = jnp.asarray(np.where(has_upper, self.upper, 0.0), z.dtype)
        width = jnp.asarray(np.where(both, self.upper - self.lower, 1.0), z.dtype)
        one_sided = has_lower ^ has_upper
        # Each branch sees a harmless zero where it does not apply: an overflow there would
        # otherwise turn the gradient of the branch that does apply into NaN.
        exp = jnp.exp(jnp.where(one_sided, z, 0.0))
        inside = lower + width * jax.nn.sigmoid(z)
        half = jnp.where(has_lower, lower + exp, upper - exp)
        x = jnp.where(both, inside, jnp.where(one_sided, half, z))
        log_det = jnp.where(
            both,
            jnp.log(width) + jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z),
            jnp.where(one_sided, z, 0.0),
        )
        return x, jnp.sum(log_det)

    def inverse(self, x: np.ndarray) -> np.ndarray:
        """Unconstrained coordinates of a position strictly inside the bounds."""
        has_lower, has_upper = np.isfinite(self.lower), np.isfinite(self.upper)
        both = has_lower & has_upper
        with np.errstate(all="ignore"):
            share = (x - self.lower) / (self.upper - self.lower)
            logit = np.log(share) - np.log1p(-share)
            above, below = np.log(x - self.lower), np.log(self.upper - x)
        return np.where(both, logit, np.where(has_lower, above, np.where(has_upper, below, x)))

    def outside(self, x: np.ndarray) -> np.ndarray:
        """Which coordinates lie on or beyond a bound."""
        return ~((x > self.lower) & (x < self.upper))


def box(bounds: Any, template: Any, size: int) -> BoxTransform:
    """The transform for `bounds = (lower, upper)`, pytrees or scalars that fit `template`."""
    if bounds is None:
        return BoxTransform(np.full(size, -np.inf), np.full(size, np.inf))
    try:
        lower, upper = bounds
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds must be a pair (lower, upper), got {bounds!r}; use -inf or inf for no bound"
        ) from None
    flat = [
        _flat_bound(side, name, template) for side, name in ((lower, "lower"), (upper, "upper"))
    ]
    if np.any(~(flat[0] < flat[1])):
        raise ValueError(
            f"every lower bound must be below its upper bound, got lower={flat[0]}, upper={flat[1]}"
        )
    return BoxTransform(*flat)


def _flat_bound(side: Any, name: str, template: Any) -> np.ndarray:
    leaves, structure = jax.tree.flatten(template)
    given, given_structure = jax.tree.flatten(side)
    if np.ndim(side) == 0 and not isinstance(side, dict | list | tuple):
        given = [side] * len(leaves)
    elif given_structure != structure:
        raise ValueError(
            f"the {name} bounds have structure {given_structure}, a position has {structure}; "
            "give a number or the structure of a position"
        )
    try:
        parts = [
            np.broadcast_to(np.asarray(g, np.float64), np.shape(leaf)).ravel()
            for g, leaf in zip(given, leaves, strict=True)
        ]
    except ValueError as error:
        raise ValueError(
            f"the {name} bounds do not fit the shapes of a position: {error}"
        ) from None
    return np.concatenate(parts) if parts else np.zeros(0)
