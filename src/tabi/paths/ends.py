"""The densities that paths join: the posterior, its products with f, and base densities."""

from abc import abstractmethod
from typing import Any

import equinox as eqx

from tabi.state import Scalars, array_namespace


class AbstractEnd(eqx.Module):
    """An unnormalised density that is a function of `Scalars` alone."""

    @abstractmethod
    def log(self, scalars: Scalars) -> Any:
        """log of the density, -inf outside its support."""


class FullPosterior(AbstractEnd):
    """The full posterior pi, whatever f is."""

    def log(self, scalars: Scalars) -> Any:
        return scalars.log_pi


class Base(AbstractEnd):
    """A base density: the prior, or one of the references of a run."""

    index: int = 0

    def log(self, scalars: Scalars) -> Any:
        return scalars.log_base[..., self.index]


class RestrictedBase(AbstractEnd):
    """A base density restricted to where another end is positive."""

    index: int
    support: AbstractEnd

    def log(self, scalars: Scalars) -> Any:
        log_base, end = scalars.log_base[..., self.index], self.support.log(scalars)
        xp = array_namespace(end)
        return xp.where(xp.isneginf(end), -xp.inf, log_base)


class TimesF(AbstractEnd):
    """|f| pi (sign=0), f+ pi (sign=1) or f- pi (sign=-1)."""

    sign: int = 0

    def log(self, scalars: Scalars) -> Any:
        return _only(scalars, self.sign, scalars.log_pi + scalars.log_abs_f)


class Restricted(AbstractEnd):
    """pi restricted to f != 0 (sign=0), f > 0 (sign=1) or f < 0 (sign=-1)."""

    sign: int = 0

    def log(self, scalars: Scalars) -> Any:
        return _only(scalars, self.sign, scalars.log_pi)


def _only(scalars: Scalars, sign: int, log_value: Any) -> Any:
    xp = array_namespace(log_value)
    inside = scalars.sign_f != 0 if sign == 0 else scalars.sign_f == sign
    return xp.where(inside, log_value, -xp.inf)
