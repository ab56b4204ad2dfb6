"""Tables of cases: a new path, kernel or schedule adds a row and gets every law of its kind.

Estimators have theirs in `tests/estimators/test_laws.py`.
"""

import numpy as np
import pytest

from tabi.kernels import (
    HMC,
    LEAPFROG,
    AbstractKernel,
    DenseMetric,
    DiagonalMetric,
    RandomWalk,
    Slice,
)
from tabi.paths import (
    AbstractEnd,
    AbstractPath,
    Base,
    FullPosterior,
    GeometricPath,
    Restricted,
    TimesF,
)
from tabi.schedules import AbstractSchedule, Adaptive, PoweredFraction, Uniform

# A path and its two ends.
PATHS: dict[str, tuple[AbstractPath, AbstractEnd, AbstractEnd]] = {
    "posterior to |f|": (GeometricPath(), FullPosterior(), TimesF()),
    "f > 0 to f+": (GeometricPath(Restricted(1), TimesF(1)), Restricted(1), TimesF(1)),
    "f < 0 to f-": (GeometricPath(Restricted(-1), TimesF(-1)), Restricted(-1), TimesF(-1)),
    "f != 0 to |f|": (GeometricPath(Restricted(0), TimesF(0)), Restricted(), TimesF()),
    "prior to posterior": (GeometricPath(Base(), FullPosterior()), Base(), FullPosterior()),
    "reference to f+": (GeometricPath(Base(1), TimesF(1)), Base(1), TimesF(1)),
}

KERNELS: dict[str, AbstractKernel] = {
    "random walk": RandomWalk(),
    "random walk, one move": RandomWalk(moves=1, metric=DiagonalMetric()),
    "random walk, fixed scale": RandomWalk(scale=0.7, moves=2),
    "random walk, fixed covariance": RandomWalk(covariance=np.array([[0.5, 0.2], [0.2, 0.9]])),
    "slice": Slice(),
    "slice, two proposals": Slice(proposals=2, metric=DiagonalMetric()),
    "HMC": HMC(),
    "HMC, leapfrog": HMC(integrator=LEAPFROG, metric=DiagonalMetric()),
    "HMC, no jitter": HMC(jitter=0.0, timid=0.0, metric=DenseMetric()),
}

SCHEDULES: dict[str, AbstractSchedule] = {
    "uniform": Uniform(7),
    "powered fraction": PoweredFraction(7),
    "powered fraction, square": PoweredFraction(5, exponent=2.0),
    "adaptive": Adaptive(),
    "adaptive, dense": Adaptive(density=4.0),
    "adaptive, counted": Adaptive(count=6),
}


def rows(name: str, table: dict) -> pytest.MarkDecorator:
    """A test parameter that takes every row of a table."""
    return pytest.mark.parametrize(name, table.values(), ids=table.keys())
