"""Schedules: where the rungs stand."""

from tabi.schedules.adaptive import Adaptive
from tabi.schedules.base import (
    AbstractSchedule,
    Barrier,
    barrier_of,
    effective_share,
    rejection,
)
from tabi.schedules.end_only import EndOnly
from tabi.schedules.powered_fraction import PoweredFraction
from tabi.schedules.uniform import Uniform

__all__ = [
    "AbstractSchedule",
    "Adaptive",
    "Barrier",
    "EndOnly",
    "PoweredFraction",
    "Uniform",
    "barrier_of",
    "effective_share",
    "rejection",
]
