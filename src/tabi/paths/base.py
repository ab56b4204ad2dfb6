"""What a path is: a family of unnormalised densities, each a function of `Scalars` and beta."""

from abc import abstractmethod
from typing import Any

import equinox as eqx

from tabi.state import Scalars


class AbstractPath(eqx.Module):
    """A continuous family of unnormalised densities phi(x|beta), 0 <= beta <= 1.

    Implementations are static (hashable) objects whose methods accept NumPy arrays and traced
    JAX values alike (see `tabi.state.array_namespace`) and broadcast over leading axes. They
    own the handling of -inf: a state outside the support of a rung has log density -inf there.
    """

    @property
    def turn(self) -> float:
        """A beta shortly before which the densities change most, 0 where there is none.

        The climb does not jump over it, and rungs are placed in front of it with care.
        """
        return 0.0

    @abstractmethod
    def log_density(self, scalars: Scalars, beta: Any) -> Any:
        """log phi(x|beta) of states with these (one-component) scalars."""

    @abstractmethod
    def dbeta(self, scalars: Scalars, beta: Any) -> Any:
        """U = d log phi(x|beta) / d beta."""
