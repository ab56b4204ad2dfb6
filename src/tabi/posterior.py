"""What a user brings: a log density, where to start, and the space it lives in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp

Position = Any


@dataclass(frozen=True, eq=False)
class Posterior:
    """An unnormalised posterior density.

    Parameters
    ----------
    log_density
        JAX function of one position (an array or any pytree of arrays) that returns the log of
        the unnormalised density, -inf outside its support.
    init
        One position, or `init(key) -> position`, which gives every ladder a start of its own.
    bounds
        Pair (lower, upper) of numbers or pytrees like a position, -inf or inf for no bound.
        Sampling then happens in unconstrained coordinates; f sees the user's space.
    has_aux
        The density returns (log density, aux) and f receives (position, aux), so a simulator
        runs once.
    dtype
        "float64" or "float32". None: float64 on a CPU, float32 on an accelerator.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import tabi
    >>> posterior = tabi.Posterior(lambda x: -0.5 * jnp.sum(x**2), init=jnp.zeros(2))
    """

    log_density: Callable[..., Any]
    init: Any
    bounds: Any = None
    has_aux: bool = False
    dtype: str | None = None
    log_prior: Callable[..., Any] | None = None
    log_likelihood: Callable[..., Any] | None = None
    sample_prior: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if not callable(self.log_density):
            raise TypeError(
                "log_density must be a function of one position, "
                f"got {type(self.log_density).__name__}"
            )
        if self.log_prior is not None and not callable(self.log_prior):
            raise TypeError(
                f"log_prior must be a function of one position, got {type(self.log_prior).__name__}"
            )
        if self.dtype not in (None, "float32", "float64"):
            raise ValueError(f'dtype must be "float64", "float32" or None, got {self.dtype!r}')

    @classmethod
    def from_parts(
        cls,
        log_prior: Callable[..., Any],
        log_likelihood: Callable[..., Any],
        sample_prior: Callable[..., Any] | None = None,
        *,
        init: Any = None,
        bounds: Any = None,
        has_aux: bool = False,
        dtype: str | None = None,
    ) -> "Posterior":
        """A posterior given as prior times likelihood.

        Parameters
        ----------
        log_prior
            log of the prior density.
        log_likelihood
            log of the likelihood; returns (log likelihood, aux) with `has_aux=True`. It is
            not read where the prior is zero.
        sample_prior
            `sample_prior(key) -> position`. Every ladder then starts at a prior draw.
        init
            As in `Posterior`; needed only without `sample_prior`.
        bounds, has_aux, dtype
            As in `Posterior`.

        Returns
        -------
        Posterior
            The product, which also knows its prior.
        """
        for name, part in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
            if not callable(part):
                raise TypeError(
                    f"{name} must be a function of one position, got {type(part).__name__}"
                )
        if init is None and sample_prior is None:
            raise ValueError(
                "from_parts needs a start: give sample_prior(key) -> position or init=position"
            )

        product = Product(log_prior, log_likelihood, has_aux)
        start = sample_prior if init is None else init
        return cls(
            *(product, start, bounds, has_aux, dtype),
            log_prior=log_prior,
            log_likelihood=log_likelihood,
            sample_prior=sample_prior,
        )


@dataclass(frozen=True)
class Product:
    """log prior + log likelihood; equal for equal parts, so that programs are compiled once."""

    log_prior: Callable[..., Any]
    log_likelihood: Callable[..., Any]
    has_aux: bool

    def __call__(self, position: Any) -> Any:
        prior = self.log_prior(position)
        likelihood = self.log_likelihood(position)
        likelihood, aux = likelihood if self.has_aux else (likelihood, None)
        log_pi = jnp.where(jnp.isneginf(prior), -jnp.inf, prior + likelihood)
        return (log_pi, aux) if self.has_aux else log_pi
