"""The few numbers of a state that every later step reads, and the state a chain carries.

Every density on every rung is a cheap function of a state's `Scalars`, so the model is called
once per proposal whatever the number of rungs; exchange and the estimators reuse the numbers.
"""

from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Scalars(NamedTuple):
    """What `Target` knows of one position (leading axes are free).

    Attributes
    ----------
    log_pi
        log of the unnormalised posterior in the sampling space.
    log_abs_f
        log|f|, -inf where f = 0. In a chain it carries f's components as a trailing axis;
        a path sees one component, without that axis.
    sign_f
        Sign of f: -1, 0 or 1, same shape as `log_abs_f`.
    log_base
        log of the base densities (a prior, references) where legs have any, as a trailing axis.
    level
        The level where there is one, positive where f counts. In a chain its trailing axis has
        the components, or length 1 where all of them share it.
    """

    log_pi: Any
    log_abs_f: Any
    sign_f: Any
    log_base: Any = None
    level: Any = None

    def component(self, index: Any) -> "Scalars":
        """The scalars as seen by a leg of component `index` (may be a traced integer)."""
        level = self.level
        if level is not None:
            level = level[..., 0 if level.shape[-1] == 1 else index]
        log_abs_f, sign_f = self.log_abs_f[..., index], self.sign_f[..., index]
        return self._replace(log_abs_f=log_abs_f, sign_f=sign_f, level=level)


class ChainState(NamedTuple):
    """A position, its scalars and (for gradient kernels) one gradient row per scalar.

    `grads` mirrors `Scalars` with a trailing position axis (`sign_f` has none: it is flat), so
    a change of rung or an accepted exchange needs no new gradient.
    """

    position: Any
    scalars: Scalars
    grads: Scalars | None


def array_namespace(array: Any) -> ModuleType:
    """`jax.numpy` inside compiled programs, NumPy for draws on the host.

    Paths are evaluated by both: inside the sampling loop and, after it, over arrays of draws of
    any shape, where one JAX compilation per shape would cost more than the arithmetic.
    """
    return jnp if isinstance(array, jax.Array) else np
